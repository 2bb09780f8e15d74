package goodput_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel/goodput"
)

// How far a job that was measured on one node would get on two.
func Example() {
	sample := func(nodes, gpus int, batch int64, step, compute time.Duration) goodput.Sample {
		return goodput.Sample{Shape: goodput.Shape{Nodes: nodes, GPUs: gpus, Batch: batch}, Step: step, Compute: compute}
	}
	fit, err := goodput.FitParams([]goodput.Sample{
		sample(1, 1, 32, 370*time.Millisecond, 370*time.Millisecond),
		sample(1, 1, 64, 690*time.Millisecond, 690*time.Millisecond),
		sample(1, 2, 32, 420*time.Millisecond, 370*time.Millisecond),
		sample(1, 4, 32, 424*time.Millisecond, 370*time.Millisecond),
		sample(1, 4, 64, 744*time.Millisecond, 690*time.Millisecond),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := goodput.New(goodput.Config{
		Params: fit.Params, Initial: 32, Noise: goodput.Noise{Norm: 1, Variance: 4},
		Limits: goodput.Limits{MaxSamples: 1024, MaxBatch: 64, Accumulate: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, gpus := range []int{1, 2, 4} {
		best, _ := m.Best(1, gpus)
		x, _ := m.Speedup(1, gpus)
		fmt.Printf("%d GPUs: %d samples a step, speed-up %.2f, %s\n", gpus, best.Shape.Samples(), x, fit.Basis(best.Shape))
	}
	fmt.Println("two nodes known:", fit.Basis(goodput.Shape{Nodes: 2, GPUs: 8, Batch: 32}) != goodput.Unknown)
	// Output:
	// 1 GPUs: 32 samples a step, speed-up 1.00, measured
	// 2 GPUs: 50 samples a step, speed-up 1.48, inferred
	// 4 GPUs: 72 samples a step, speed-up 2.35, inferred
	// two nodes known: false
}

func ExampleTable() {
	t, err := goodput.NewTable([]goodput.Point{{GPUs: 1, Rate: 100}, {GPUs: 2, Rate: 180}, {GPUs: 4, Rate: 300}, {GPUs: 8, Rate: 400}})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, basis := t.Speedup(3)
	n, ok := t.Smallest(3.4)
	fmt.Println(x, basis)
	fmt.Println(n, ok)
	fmt.Println(t.Saved(2, 10*time.Hour).Round(time.Minute))
	// Output:
	// 2.4 inferred
	// 6 true
	// 1h23m0s
}
