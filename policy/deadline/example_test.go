package deadline_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/policy/deadline"
)

func Example() {
	t0 := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	table, err := deadline.New(deadline.Config{GPUs: 8})
	if err != nil {
		panic(err)
	}
	// In sums of device-hours all three fit: 16 + 12 + 4 of 32. But a leaves too little for b.
	for _, j := range []deadline.Job{
		{ID: "a", GPUs: 8, Remaining: 40 * time.Minute, Deadline: t0.Add(60 * time.Minute)},
		{ID: "b", GPUs: 4, Remaining: 60 * time.Minute, Deadline: t0.Add(80 * time.Minute)},
		{ID: "c", GPUs: 4, Remaining: 20 * time.Minute, Deadline: t0.Add(80 * time.Minute)},
	} {
		d, err := table.Admit(t0, j)
		if err != nil {
			panic(err)
		}
		fmt.Println(j.ID, d.Feasible, d.Reason, d.Exact, "needs", d.Need, "of", d.Have)
	}
	slot, err := table.Step(t0)
	if err != nil {
		panic(err)
	}
	fmt.Println(slot.Run, slot.Until.Sub(t0))
	// Output:
	// a true  false needs 2 of 3
	// b false deadline-capacity true needs 3 of 4
	// c true  false needs 1 of 4
	// [a] 20m0s
}

func ExampleElastic() {
	t0 := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	e, err := deadline.NewElastic(4)
	if err != nil {
		panic(err)
	}
	points := []deadline.Point{{GPUs: 1, Rate: 1000}, {GPUs: 2, Rate: 1800}, {GPUs: 4, Rate: 3000}} // thousandths of a step
	for _, j := range []deadline.ElasticJob{
		{ID: "x", Left: 1_000_000, Points: points, Deadline: t0.Add(400 * time.Second)},
		{ID: "y", Left: 500_000, Points: points, Deadline: t0.Add(600 * time.Second)},
		{ID: "z", Left: 500_000, Points: points, Deadline: t0.Add(600 * time.Second)},
	} {
		d, err := e.Admit(t0, j)
		if err != nil {
			panic(err)
		}
		fmt.Println(j.ID, d.Feasible, d.Reason, d.Need)
	}
	shares, left, until, _, err := e.AppendShares(nil, t0)
	if err != nil {
		panic(err)
	}
	fmt.Println(shares, left, until.Sub(t0).Round(time.Second))
	// Output:
	// x true  4
	// y true  1
	// z false deadline-capacity 1
	// [{x 4} {y 0}] 0 5m33s
}

func ExampleRestoreElastic() {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e, err := deadline.NewElastic(4)
	if err != nil {
		panic(err)
	}
	points := []deadline.Point{{GPUs: 1, Rate: 10}, {GPUs: 2, Rate: 18}, {GPUs: 4, Rate: 30}}
	if _, err := e.Admit(t0, deadline.ElasticJob{ID: "a", Left: 10_000, Points: points, Deadline: t0.Add(10 * time.Minute)}); err != nil {
		panic(err)
	}
	var saved bytes.Buffer
	if err := e.Snapshot(&saved); err != nil {
		panic(err)
	}
	again, err := deadline.RestoreElastic(&saved)
	if err != nil {
		panic(err)
	}
	shares, left, _, _, err := again.AppendShares(nil, t0.Add(time.Minute))
	if err != nil {
		panic(err)
	}
	fmt.Println(shares, left)
	// Output: [{a 2}] 2
}
