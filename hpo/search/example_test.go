package search_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/hpo/search"
)

func Example() {
	points := func(step time.Duration) []search.Profile {
		return []search.Profile{{Points: []fusion.Point{{Fused: 1, Step: step, Memory: 1}, {Fused: 4, Step: step * 2, Memory: 2}}}}
	}
	s, err := search.New(search.Config{
		Rule: hpo.Config{ASHA: &hpo.ASHA{Max: 4, Eta: 2}},
		Classes: []search.Class{
			{Name: "gpu", Profiles: points(time.Second)},
			{Name: "bubble", Kind: search.Bubble, Profiles: points(7 * time.Second)},
		},
		Transfer: &search.Transfer{},
	})
	if err != nil {
		panic(err)
	}
	for i := range 8 {
		if err := s.Add(hpo.TrialID(fmt.Sprint("trial", i)), "batch=256"); err != nil {
			panic(err)
		}
	}
	_ = s.AddSlot("gpu0", "gpu")
	_ = s.AddSlot("bubble0", "bubble")
	for {
		actions, _ := s.Next()
		if len(actions) == 0 {
			break
		}
		for _, a := range actions {
			switch a.Do {
			case search.Start:
				fmt.Println(a.Do, a.Bundle, "on", a.Slot, "from", a.Begin, "to", a.Until)
				var losses []float64
				for _, m := range a.Members {
					fmt.Print(" ", m.Trial)
					losses = append(losses, float64(m.Trial[5]-'0'))
				}
				fmt.Println()
				if _, err := s.Report(search.Report{Bundle: a.Bundle, Step: a.Until, Values: losses}); err != nil {
					panic(err)
				}
			case search.Target:
				fmt.Println(a.Do, a.Trial, "on", a.Slot)
				_ = s.TargetEnded(a.Trial)
			}
		}
	}
	fmt.Println(s.Quiescent())
	// Output:
	// start b1 on gpu0 from 0 to 1
	//  trial0 trial1 trial2 trial3
	// start b2 on bubble0 from 0 to 1
	//  trial4 trial5 trial6 trial7
	// target trial0 on gpu0
	// start b3 on bubble0 from 1 to 2
	//  trial0 trial1 trial2 trial3
	// start b4 on gpu0 from 2 to 4
	//  trial0 trial1
	// true
}

func ExampleSearch_Lose() {
	s, _ := search.New(search.Config{Classes: []search.Class{{Name: "gpu", Profiles: []search.Profile{{Points: []fusion.Point{{Fused: 1, Step: time.Second}}}}}}})
	_ = s.AddSlot("gpu0", "gpu")
	_ = s.Add("trial", "")
	s.Next()
	_, _ = s.Lose("gpu0")
	_ = s.AddSlot("gpu1", "gpu")
	actions, _ := s.Next()
	fmt.Println(actions[0].Do, actions[0].Slot, actions[0].Members)
	// Output: start gpu1 [{trial 2}]
}
