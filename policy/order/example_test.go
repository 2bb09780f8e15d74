package order_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	q, err := order.New(order.Config{Order: order.Priority{Then: order.SRSF{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range []order.Job{
		{ID: "wide", GPUs: 8 * lockstep.WholeGPU, Duration: 10 * time.Minute},
		{ID: "narrow", GPUs: 1 * lockstep.WholeGPU, Duration: 20 * time.Minute},
		{ID: "urgent", GPUs: 4 * lockstep.WholeGPU, Duration: time.Hour, Priority: 1},
	} {
		if err := q.Submit(now, job); err != nil {
			fmt.Println(err)
		}
	}
	q.Begin(now)
	for id, ok := q.Next(); ok; id, ok = q.Next() {
		fmt.Println(id)
		q.Outcome(id, lockstep.Blocked)
	}
	// Output:
	// urgent
	// narrow
	// wide
}

func ExampleLAS() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	q, _ := order.New(order.Config{Order: order.LAS{Limits: []time.Duration{100 * time.Second}}})
	_ = q.Submit(now, order.Job{ID: "a", GPUs: 4 * lockstep.WholeGPU})
	_ = q.Start(now, "a")
	wake, _ := q.NextWake(now)
	fmt.Println("a sinks after", wake.Sub(now))
	q.Begin(wake)
	a, _ := q.Job("a")
	fmt.Println("a is in queue", a.Level())
	// Output:
	// a sinks after 25s
	// a is in queue 1
}
