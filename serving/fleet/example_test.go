package fleet_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/serving"
	"github.com/lockstep-gpu/lockstep/serving/fleet"
)

const ms = time.Millisecond

func Example() {
	p, err := fleet.Pack([]fleet.Session{
		{ID: "a", Rate: 64, Objective: 200 * ms, Latency: serving.Points{{Size: 8, Time: 75 * ms}}},
		{ID: "b", Rate: 32, Objective: 250 * ms, Latency: serving.Points{{Size: 4, Time: 50 * ms}}},
		{ID: "c", Rate: 32, Objective: 250 * ms, Latency: serving.Points{{Size: 4, Time: 60 * ms}}},
	}, 0)
	for _, g := range p.GPUs {
		fmt.Println(g.Duty, g.Parts)
	}
	fmt.Println("at least", p.Least, err)
	// Output:
	// 125ms [{a 64 8} {b 32 4}]
	// 156.25ms [{c 32 5}]
	// at least 2 <nil>
}

func ExampleCheapest() {
	one := func(id fleet.ID, price int64, latency time.Duration) fleet.Instance {
		return fleet.Instance{ID: id, Price: price, MaxBatch: 1, Latency: serving.Linear{Each: latency}}
	}
	cpu, gpu := one("cpu", 200, 50*ms), one("gpu", 3000, time.Second/600)
	even, _ := fleet.BreakEven(cpu, gpu, time.Second)
	fmt.Printf("%.0f a second\n", even)
	for _, rate := range []float64{250, 350, 650} {
		m, err := fleet.Cheapest([]fleet.Instance{cpu, gpu}, rate, time.Second)
		fmt.Println(m.Counts, m.Cost, err)
	}
	// Output:
	// 300 a second
	// [{cpu 13 1}] 2600 <nil>
	// [{gpu 1 1}] 3000 <nil>
	// [{cpu 3 1} {gpu 1 1}] 3600 <nil>
}

func ExampleChoose() {
	s, err := fleet.Choose([]fleet.Task{
		{ID: "detect", Weight: 3, Variants: []fleet.Variant{{ID: "small", Accuracy: 700_000, Cost: 2}, {ID: "large", Accuracy: 800_000, Cost: 6}}},
		{ID: "read", Variants: []fleet.Variant{{ID: "small", Accuracy: 600_000, Cost: 1}, {ID: "large", Accuracy: 900_000, Cost: 4}}},
	}, fleet.Goal{Budget: 7})
	fmt.Println(s.Picks, s.Cost, s.Accuracy, s.Price, err)
	// Output: [{detect small} {read large}] 6 750000 18750 <nil>
}

func ExampleVote() {
	e, err := fleet.Vote([]fleet.Member{
		{ID: "a", Accuracy: 700_000, Cost: 1}, {ID: "b", Accuracy: 700_000, Cost: 1}, {ID: "c", Accuracy: 700_000, Cost: 1}, {ID: "d", Accuracy: 770_000, Cost: 9},
	}, 780_000)
	fmt.Println(len(e.Members), e.Accuracy, e.Cost, err)
	// Output: 3 784000 3 <nil>
}

func ExampleGate() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var g fleet.Gate
	chat := fleet.Tail{Alone: 60 * ms, Slowdown: 1200, Objective: 100 * ms}
	fmt.Println(g.Consider(now, chat, chat))
	fmt.Println(g.Observe(now, [2]time.Duration{75 * ms, 120 * ms}, [2]time.Duration{100 * ms, 100 * ms}))
	fmt.Println(g.Again.Sub(now))
	// Output:
	// canary <nil>
	//  <nil>
	// 10m0s
}
