package fusion_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
)

// The knee of a measured profile: past it memory is spent for nothing.
func ExampleProfile_Knee() {
	p, err := fusion.NewProfile([]fusion.Point{
		{Fused: 1, Step: 28500 * time.Microsecond, Memory: 1581 * lockstep.MiB},
		{Fused: 25, Step: 93500 * time.Microsecond, Memory: 4065 * lockstep.MiB},
		{Fused: 100, Step: 195200 * time.Microsecond, Memory: 11603 * lockstep.MiB},
		{Fused: 220, Step: 413500 * time.Microsecond, Memory: 23921 * lockstep.MiB},
	})
	if err != nil {
		panic(err)
	}
	most, _ := p.Most(24 * lockstep.GiB)
	knee, _ := p.Knee(24*lockstep.GiB, 0.05)
	fmt.Println(most, knee)
	// Output: 220 100
}

func ExamplePlan() {
	var trials []fusion.Trial
	for i := range 11 {
		trials = append(trials, fusion.Trial{ID: fusion.TrialID(fmt.Sprint("t", i)), Key: "batch=128"})
	}
	bundles, err := fusion.Plan(trials, func(fusion.Key) int { return 10 }, 1, fusion.RuleEven)
	for _, b := range bundles {
		fmt.Println(len(b.Members), b.Members[0])
	}
	fmt.Println(err)
	// Output:
	// 6 t0
	// 5 t6
	// <nil>
}

func ExampleRefuse() {
	live := []fusion.Live{
		{ID: "a", Key: "128", Members: []fusion.TrialID{"t1", "t2"}, Safe: true},
		{ID: "b", Key: "128", Members: []fusion.TrialID{"t3"}, Safe: true},
	}
	waiting := []fusion.Trial{{ID: "t9", Key: "128"}}
	got, err := fusion.Refuse(live, waiting, func(fusion.Key) int { return 4 })
	for _, m := range got.Moves {
		fmt.Printf("%s %q -> %s\n", m.Trial, m.From, m.To)
	}
	fmt.Println(got.Emptied, err)
	// Output:
	// t3 "b" -> a
	// t9 "" -> a
	// [b] <nil>
}
