package serving_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/serving"
)

// The rule of Triton's dynamic batcher: hold requests for a preferred size, but no longer than MaxDelay.
func Example() {
	b, err := serving.NewBatcher(serving.BatcherConfig{MaxBatch: 8, Preferred: []int{4, 8}, MaxDelay: 100 * time.Microsecond})
	if err != nil {
		panic(err)
	}
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	var plan serving.Plan
	submit := func(after time.Duration, ids ...serving.RequestID) {
		for _, id := range ids {
			if _, err := b.Submit(start.Add(after), serving.Request{ID: id}); err != nil {
				panic(err)
			}
		}
	}
	step := func(after time.Duration) {
		if err := b.Step(start.Add(after), &plan); err != nil {
			panic(err)
		}
		for _, batch := range plan.Batches {
			fmt.Println(after, batch.Requests, batch.Cause)
		}
	}
	submit(0, 1, 2, 3)
	step(0)
	wake, _ := b.NextWake(start)
	fmt.Println("held until", wake.Sub(start))
	submit(60*time.Microsecond, 4)
	step(60 * time.Microsecond)
	// Output:
	// held until 100µs
	// 60µs [1 2 3 4] preferred
}

// How many replicas a rate needs: full batches first, the rest in a smaller one.
func ExampleResidual() {
	curve := serving.Linear{Base: 5 * time.Millisecond, Each: 1500 * time.Microsecond}
	slo := 50 * time.Millisecond
	full := serving.Saturated(curve, slo)
	each := serving.Throughput(curve, full)
	rate := 2000.0
	replicas := int(rate / each)
	rest := rate - float64(replicas)*each
	batch, duty := serving.Residual(curve, slo, rest)
	fmt.Printf("%d replicas with batches of %d, %.1f/s each\n", replicas, full, each)
	fmt.Printf("the rest, %.2f/s, in batches of %d every %v: %.3f of a replica\n", rest, batch, duty.Round(10*time.Microsecond), float64(curve.Batch(batch))/float64(duty))
	// Output:
	// 3 replicas with batches of 13, 530.6/s each
	// the rest, 408.16/s, in batches of 11 every 26.95ms: 0.798 of a replica
}

// A batch size that grows by steps, and shrinks by a tenth when a batch was late.
func ExampleAIMD() {
	curve := serving.Linear{Base: 5 * time.Millisecond, Each: 1500 * time.Microsecond}
	a, err := serving.NewAIMD(serving.AIMDConfig{SLO: 20 * time.Millisecond, Add: 4})
	if err != nil {
		panic(err)
	}
	for range 9 {
		fmt.Print(a.Size(), " ")
		a.Observe(a.Size(), curve.Batch(a.Size()))
	}
	// Output: 1 5 9 13 11 9 13 11 9
}
