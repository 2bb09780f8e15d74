package detect_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// rates are those of four equal stages.
func rates() detect.Rates {
	var r detect.Rates
	for range 4 {
		r.Forward = append(r.Forward, detect.Coeff{Alpha: 2000, Beta: 0.04})
		r.Backward = append(r.Backward, detect.Coeff{Alpha: 4000, Beta: 0.1})
	}
	return r
}

// measure makes up iteration n of a job with two replicas, of which one has a stage that is slow
// from iteration 100 on.
func measure(n uint64) *detect.Iteration {
	it := &detect.Iteration{Number: n, Took: time.Second}
	for replica := range 2 {
		var micros []perfmodel.Batch
		for micro := range 8 {
			a := 4096 + int(n*7919+uint64(micro*104729))%20000
			b, _ := perfmodel.Mask{}.Batch([]int{a, 32768 - a})
			micros = append(micros, b)
		}
		it.Batches = append(it.Batches, micros)
		for stage := range 4 {
			for micro, b := range micros {
				took := rates().Forward[stage].Time(b)
				took += took * time.Duration((n*31+uint64(17*micro+5*stage+replica))%7) / 1000 // some noise
				if n >= 100 && replica == 1 && stage == 2 {
					took += took / 10
				}
				it.Chunks = append(it.Chunks, detect.Chunk{Replica: replica, Stage: stage, Kind: pipeline.Forward, Micro: micro, Took: took})
			}
		}
	}
	return it
}

func Example() {
	m, err := detect.New(detect.Config{Pipeline: pipeline.Config{Stages: 4, Micros: 8}, Replicas: 2, Rates: rates()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := uint64(1); n <= 120; n++ {
		it := measure(n)
		it.Took = 0 // only chunks are timed here
		v, err := m.Observe(it)
		if err != nil {
			fmt.Println(err)
			return
		}
		if v.Alarm {
			s := v.Suspects[0]
			fmt.Printf("iteration %d: %v since %d, %v: replica %d stage %d\n", v.Number, v.State, v.Onset, v.Cause, s.Replica, s.Stage)
		}
	}
	// Output:
	// iteration 101: slow since 100, hardware: replica 1 stage 2
}

func ExampleFit() {
	truth := detect.Coeff{Alpha: 2000, Beta: 0.05}
	var samples []detect.Sample
	for i := range 20 {
		b, _ := perfmodel.Mask{}.Batch([]int{1000 * (i + 1), 32768 - 1000*(i+1)})
		samples = append(samples, detect.Sample{Batch: b, Took: truth.Time(b)})
	}
	c, report, err := detect.Fit(samples, detect.FitOptions{})
	fmt.Printf("%.0f ns a token, %.3f ns a pair, error %.1f %%, %v\n", c.Alpha, c.Beta, 100*report.MAPE, err)

	_, _, err = detect.Fit(samples[:1], detect.FitOptions{})
	fmt.Println(errors.Is(err, detect.ErrUnidentifiable), err)
	_, _, err = detect.Fit(samples, detect.FitOptions{Fixed: true}) // all have as many tokens
	fmt.Println(errors.Is(err, detect.ErrUnidentifiable), err)
	// Output:
	// 2000 ns a token, 0.050 ns a pair, error 0.0 %, <nil>
	// true detect: fit: samples = 1: want at least one for each of 2 coefficients
	// true detect: fit: samples.Tokens = 0: hardly varies by itself; want a spread of at least 0.02
}

func ExampleNewTest() {
	test, err := detect.NewTest(detect.TestConfig{}) // CUSUM
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

func ExampleMonitor_Snapshot() {
	m, err := detect.New(detect.Config{Pipeline: pipeline.Config{Stages: 4, Micros: 8}, Replicas: 2, Rates: rates()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := uint64(1); n <= 60; n++ {
		if _, err := m.Observe(measure(n)); err != nil {
			fmt.Println(err)
			return
		}
	}
	var b bytes.Buffer
	fmt.Println(m.Snapshot(&b))
	again, err := detect.Restore(&b)
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := again.Observe(measure(60))
	fmt.Println(v.State, v.Reason, err)
	// Output:
	// <nil>
	// healthy repeated <nil>
}

func ExampleSignals() {
	s, err := detect.NewSignals(detect.SignalsConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var f detect.Findings
	for i := range 100 {
		loss := 2.5 + 0.01*float64(i%7)
		if i == 99 {
			loss = math.NaN()
		}
		f, _ = s.Observe(detect.Reading{Loss: &loss})
	}
	fmt.Println("loss", f.Loss, "throughput", f.Throughput)
	zero := time.Duration(0)
	_, err = s.Observe(detect.Reading{Step: &zero})
	fmt.Println(errors.Is(err, lockstep.ErrInvalid))
	// Output:
	// loss abnormal throughput unknown
	// true
}
