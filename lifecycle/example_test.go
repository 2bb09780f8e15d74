package lifecycle_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lifecycle"
)

func Example() {
	m, err := lifecycle.New(lifecycle.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	t0 := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	events := []lifecycle.Event{
		{Move: lifecycle.MoveSubmit, Time: t0, Job: "a"},
		{Move: lifecycle.MoveReserve, Time: t0.Add(time.Minute), Job: "a", GPUs: 8 * lockstep.WholeGPU},
		{Move: lifecycle.MoveStart, Time: t0.Add(2 * time.Minute), Job: "a"},
		{Move: lifecycle.MoveRun, Time: t0.Add(3 * time.Minute), Job: "a", Attempt: 1},
		{Move: lifecycle.MoveExit, Time: t0.Add(time.Hour), Job: "a", Attempt: 1, Exit: lifecycle.Exit{Code: 1}},
		{Move: lifecycle.MoveClean, Time: t0.Add(time.Hour + time.Second), Job: "a", Attempt: 1},
	}
	var steps []lifecycle.Step
	for i := range events {
		if steps, err = m.Apply(steps, &events[i]); err != nil {
			fmt.Println(err)
		}
	}
	for _, s := range steps[1:] {
		fmt.Printf("%s -> %s %q\n", s.From, s.To, s.Budget)
	}
	j, _ := m.Job("a")
	fmt.Println(j.Ledger.Time[lifecycle.PartLost], j.Ledger.Time[lifecycle.PartWaiting], j.Deadline.Sub(t0))
	// Output:
	// queued -> admitted ""
	// admitted -> reserving ""
	// reserving -> starting ""
	// starting -> running ""
	// running -> cleaning "app"
	// cleaning -> backoff ""
	// 57m0s 2m0s 1h0m11s
}

func ExampleMachine_ForEvent() {
	m, _ := lifecycle.New(lifecycle.Config{})
	t0 := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, v := range []lockstep.Event{
		{Kind: lockstep.EventSubmit, Time: t0, Gang: &lockstep.Gang{ID: "a"}},
		{Kind: lockstep.EventCancel, Time: t0.Add(time.Minute), Job: "a"},
	} {
		for _, e := range m.ForEvent(nil, &v) {
			steps, err := m.Apply(nil, &e)
			fmt.Println(e.Move, steps[0].To, err)
		}
	}
	// Output:
	// submit queued <nil>
	// cancel cancelled <nil>
}
