package elastic_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel/goodput"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// Five GPUs for two jobs: each next one goes to where it saves most.
func ExampleAllocator() {
	a, err := elastic.New(elastic.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	can := lockstep.Capabilities{Resizable: true, Preemptible: true}
	s := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	shares, err := a.Append(nil, 5, []elastic.Job{
		{ID: "vision", Work: 100, Capabilities: can, Sizes: []elastic.Size{{1, s(10)}, {2, s(6)}, {3, s(5)}, {4, s(4.6)}}},
		{ID: "speech", Work: 50, Capabilities: can, Sizes: []elastic.Size{{1, s(8)}, {2, s(4.4)}, {3, s(3.2)}, {4, s(2.6)}}, Held: 1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, x := range shares {
		fmt.Printf("%s: %d GPUs, had %d, %v\n", x.ID, x.GPUs, x.Held, x.Reason)
	}
	// Output:
	// speech: 2 GPUs, had 1, given
	// vision: 3 GPUs, had 0, given
}

// A job that runs on one GPU grows to a node of its own, since after an hour that pays the restart; a new one takes the other.
func ExampleSearch() {
	m, err := goodput.New(goodput.Config{
		Params: goodput.Params{
			Compute: goodput.Linear{Alpha: .05, Beta: .01}, Local: goodput.Linear{Alpha: .05, Beta: .002},
			Remote: goodput.Linear{Alpha: .2, Beta: .01},
		},
		Noise: goodput.Noise{Norm: 1, Variance: 4}, Initial: 32, Limits: goodput.Limits{MaxSamples: 128},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := elastic.NewSearch(elastic.SearchConfig{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	can := lockstep.Capabilities{Resizable: true, Preemptible: true}
	placed, err := s.Append(nil, []int{4, 4}, []elastic.Candidate{
		{ID: "new", Speed: m, Max: 8, Capabilities: can},
		{ID: "old", Speed: m, Max: 8, Capabilities: can, Age: time.Hour, Held: []elastic.Spot{{Node: 1, GPUs: 1}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range placed {
		fmt.Printf("%s on %v, moved %t\n", p.ID, p.Spots, p.Moved)
	}
	// Output:
	// new on [{1 4}], moved false
	// old on [{0 4}], moved true
}
