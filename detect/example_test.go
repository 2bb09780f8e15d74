package detect_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// rates are those of four equal stages.
func rates() detect.Rates {
	var r detect.Rates
	for range 4 {
		r.Forward = append(r.Forward, fit.Coeff{Alpha: 2000, Beta: 0.04})
		r.Backward = append(r.Backward, fit.Coeff{Alpha: 4000, Beta: 0.1})
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
