package fit_test

import (
	"errors"
	"fmt"

	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

func Example() {
	truth := fit.Coeff{Alpha: 2000, Beta: 0.05}
	var samples []fit.Sample
	for i := range 20 {
		b, _ := perfmodel.Mask{}.Batch([]int{1000 * (i + 1), 32768 - 1000*(i+1)})
		samples = append(samples, fit.Sample{Batch: b, Took: truth.Time(b)})
	}
	c, report, err := fit.Solve(samples, fit.Options{})
	fmt.Printf("%.0f ns a token, %.3f ns a pair, error %.1f %%, %v\n", c.Alpha, c.Beta, 100*report.MAPE, err)

	_, _, err = fit.Solve(samples[:1], fit.Options{})
	fmt.Println(errors.Is(err, fit.ErrUnidentifiable), err)
	_, _, err = fit.Solve(samples, fit.Options{Fixed: true}) // all have as many tokens
	fmt.Println(errors.Is(err, fit.ErrUnidentifiable), err)
	// Output:
	// 2000 ns a token, 0.050 ns a pair, error 0.0 %, <nil>
	// true fit: solve: samples = 1: want at least one for each of 2 coefficients
	// true fit: solve: samples.Tokens = 0: hardly varies by itself; want a spread of at least 0.02
}

func ExampleTracker() {
	before := fit.Coeff{Alpha: 2000}
	tracker, err := fit.NewTracker(before, fit.Report{Scale: 0.01}, fit.TrackerConfig{Linear: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := perfmodel.Batch{Tokens: 32768}
	for _, alpha := range []float64{1980, 4000} { // kernels are tuned, then something is wrong
		for range 4096 {
			if err := tracker.Observe(fit.Sample{Batch: b, Took: fit.Coeff{Alpha: alpha}.Time(b)}); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Printf("%.0f\n", tracker.Coeff().Alpha)
	}
	// Output:
	// 1980
	// 2040
}
