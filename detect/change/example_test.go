package change_test

import (
	"fmt"
	"math"

	"github.com/lockstep-gpu/lockstep/detect/change"
)

func Example() {
	test, err := change.New(change.Config{}) // CUSUM
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 200 {
		ratio := 1 + 0.01*math.Sin(float64(i*i)) // observed over expected
		if i >= 150 {
			ratio *= 1.05
		}
		d, err := test.Observe(math.Log(ratio))
		if err != nil {
			fmt.Println(err)
			return
		}
		if d.Alarm {
			fmt.Printf("sample %d, slow for %d, by %.0f %%; a slowdown of %.1f %% would have been found\n",
				i, d.Since, 100*(math.Exp(d.Shift)-1), 100*(d.MinDetectable-1))
		}
	}
	// Output:
	// sample 151, slow for 4, by 3 %; a slowdown of 0.8 % would have been found
}
