package hetero_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

// Two jobs are four times as fast on the fast device, two twice as fast: the fast one goes mostly to those that gain most.
func Example() {
	classes := []hetero.Class{{ID: "fast", Devices: 1}, {ID: "slow", Devices: 1}}
	rates := func(fast, slow float64) []hetero.Rate {
		return []hetero.Rate{{Class: "fast", PerSecond: fast}, {Class: "slow", PerSecond: slow}}
	}
	a, err := hetero.MaxMin(hetero.Problem{Classes: classes, Groups: []hetero.Group{
		{ID: "quick", Count: 2, Rates: rates(4, 1)},
		{ID: "steady", Count: 2, Rates: rates(2, 1)},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.6f of the equal split, shares %v\n", a.Objective, a.Shares)

	r, err := hetero.NewRounds(hetero.RoundsConfig{Classes: classes})
	if err != nil {
		fmt.Println(err)
		return
	}
	var targets []hetero.Target
	for i, jobs := range [][]string{{"a", "b"}, {"c", "d"}} {
		for _, id := range jobs {
			targets = append(targets, hetero.Target{Job: lockstep.JobID(id), Shares: a.Shares[i]})
		}
	}
	if err := r.Set(targets); err != nil {
		fmt.Println(err)
		return
	}
	for range 6 {
		on := make([]lockstep.JobID, len(classes))
		for _, g := range r.Next() {
			on[g.Class] = g.Job
		}
		fmt.Println(on)
	}
	// Output:
	// 1.090909 of the equal split, shares [[340909 0] [159091 500000]]
	// [a c]
	// [b d]
	// [c d]
	// [d c]
	// [a c]
	// [b d]
}

// Two jobs on one fast and one slow machine, by the sum of their ends.
func ExampleMatch() {
	takes := func(steps, fast, slow float64) []time.Duration {
		return []time.Duration{time.Duration(steps / fast * 1e9), time.Duration(steps / slow * 1e9)}
	}
	turns, _, err := hetero.Match([]hetero.Machine{{ID: "fast"}, {ID: "slow"}}, []hetero.Pending{
		{ID: "j0", Takes: takes(300, 2, 1)},
		{ID: "j1", Takes: takes(500, 3, 2)},
	}, 0)
	fmt.Println(err)
	for _, t := range turns {
		fmt.Println(t.Job, "on", t.Machine, "until", t.End)
	}
	// Output:
	// <nil>
	// j0 on fast until 2m30s
	// j1 on slow until 4m10s
}

// The equal split answers at once; the optimum is asked for, and taken if it is back in time and still fits.
func ExampleCheck() {
	classes := []hetero.Class{{ID: "fast", Devices: 1}, {ID: "slow", Devices: 1}}
	p := hetero.Problem{Classes: classes, Groups: []hetero.Group{
		{ID: "quick", Count: 2, Rates: []hetero.Rate{{Class: "fast", PerSecond: 4}, {Class: "slow", PerSecond: 1}}},
		{ID: "steady", Count: 2, Rates: []hetero.Rate{{Class: "fast", PerSecond: 2}, {Class: "slow", PerSecond: 1}}},
	}}
	s, err := policy.NewSeam(policy.SeamConfig[[][]hetero.Parts]{
		Budget: time.Second,
		Check:  func(shares [][]hetero.Parts) error { return hetero.Check(p, shares) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	score := func(a *hetero.Allocation) int64 { return int64(a.Objective * 1e6) }
	now, version := time.Unix(0, 0), uint64(1)

	fast, _ := hetero.EqualSplit(p)
	outcome, err := s.Fast(now, version, fast.Shares, score(fast))
	fmt.Println("equal split:", outcome, err)
	ask, _, _ := s.Ask(now, version)
	best, _ := hetero.WaterFill(p) // in a goroutine, where it matters
	outcome, err = s.Answer(now.Add(50*time.Millisecond), version, policy.Proposal[[][]hetero.Parts]{Ask: ask, Plan: best.Shares, Score: score(best)})
	fmt.Println("optimum:", outcome, err)

	p.Classes[0].Devices = 0 // the fast device fails while the next answer is worked out
	version++
	ask, _, _ = s.Ask(now.Add(time.Second), version)
	outcome, err = s.Answer(now.Add(2*time.Second), version, policy.Proposal[[][]hetero.Parts]{Ask: ask, Plan: best.Shares, Score: score(best)})
	fmt.Println("of before:", outcome, err != nil)
	// Output:
	// equal split: adopted <nil>
	// optimum: adopted <nil>
	// of before: infeasible true
}
