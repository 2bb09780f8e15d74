package interval_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint/interval"
)

func Example() {
	// A save stalls a job for 2 minutes, and on 64 nodes something fails every 12 hours.
	between, _ := interval.Failures{Unit: 768 * time.Hour, Units: 64}.Between()
	best, err := interval.Optimum(2*time.Minute, between)
	if err != nil {
		panic(err)
	}
	hourly, _ := interval.Waste(time.Hour, 2*time.Minute, 5*time.Minute, between)
	least, _ := interval.Waste(best, 2*time.Minute, 5*time.Minute, between)
	fmt.Printf("every %v: %.1f %% lost instead of %.1f %%\n", best.Round(time.Minute), 100*least, 100*hourly)
	// Output: every 52m0s: 7.9 % lost instead of 8.0 %
}

func ExampleCheck() {
	chain := []interval.Link{
		{Name: "scheduler", Grace: 60 * time.Second},
		{Name: "kubelet", Grace: 90 * time.Second, Spent: 10 * time.Second},
	}
	need := interval.Need{Step: 2 * time.Second, Save: 118 * time.Second}
	c, err := interval.Check(chain, need, 2*time.Hour)
	if err != nil {
		panic(err)
	}
	fmt.Println(c)
	c, _ = interval.Check(chain, need, 10*time.Minute)
	fmt.Println(c)
	// Output:
	// a save needs 2m30s but the warning is 1m0s ("scheduler"): a preemption loses 1h0m0s on average, 2h0m0s at worst
	// a save needs 2m30s but the warning is 1m0s ("scheduler"): a preemption loses 5m0s on average, 10m0s at worst
}

func ExampleCost() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := interval.Progress{Saved: now.Add(-40 * time.Minute), Save: time.Minute, Restore: 3 * time.Minute, Step: time.Second, Devices: 8000}
	unsaved, err := interval.Cost(now, p)
	if err != nil {
		panic(err)
	}
	p.Contract.Feasible = true // as interval.Check found
	saved, _ := interval.Cost(now, p)
	fmt.Println(unsaved.Lost, unsaved.Save, unsaved.Restore)
	fmt.Println(saved.Lost, saved.Save, saved.Restore)
	// Output:
	// 40m0s 0s 3m0s
	// 1s 1m0s 3m0s
}

func ExampleLevels() {
	ts, err := interval.Levels([]interval.Level{
		{Stall: time.Second, Between: 4 * time.Hour},        // memory of a peer: a process died
		{Stall: 20 * time.Second, Between: 48 * time.Hour},  // the node's disk: peers died together
		{Stall: 3 * time.Minute, Between: 1000 * time.Hour}, // remote: the rack burnt
	})
	if err != nil {
		panic(err)
	}
	for _, t := range ts {
		fmt.Println(t.Round(time.Second))
	}
	// Output:
	// 2m52s
	// 43m7s
	// 10h3m33s
}

func ExamplePolicy() {
	p, err := interval.New(interval.Config{Failures: interval.Failures{Preempted: 6 * time.Hour}, Step: 2 * time.Second})
	if err != nil {
		panic(err)
	}
	for range 3 {
		if err := p.Saved(40 * time.Second); err != nil {
			panic(err)
		}
	}
	a, err := p.Advise("llama")
	if err != nil {
		panic(err)
	}
	fmt.Printf("every %v, %.1f %% lost\n", a.Interval, 100*a.Waste)
	// Output: every 21m30s, 6.0 % lost
}

func ExampleQuietest() {
	var samples []interval.Sample
	for i := range 40 { // one step of 4 s, sampled every 100 ms: activations rise and fall
		used := lockstep.Bytes(20+min(i, 40-i)) << 30
		samples = append(samples, interval.Sample{At: time.Duration(i) * 100 * time.Millisecond, Used: used})
	}
	m, err := interval.Quietest(samples, 4*time.Second, 200*time.Millisecond)
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Offset, m.Used, m.Peak, m.Flat)
	// Output: 3.9s 21Gi 40Gi false
}
