package pollux_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/sim/pollux"
)

// Two jobs on a cluster of two nodes, under Optimus: the second comes when the first has grown.
func ExampleRun() {
	p, err := pollux.ReadProfile(toy(), "toy")
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := pollux.Config{
		Profiles: []*pollux.Profile{p}, Nodes: 2, GPUsPerNode: 2,
		Observe: func(c pollux.Change) { fmt.Printf("%v %s on %v\n", c.At, c.Job, c.Slots) },
	}
	r, err := pollux.Run(cfg, []pollux.Job{
		{ID: "a", App: "toy", GPUs: 1, Batch: 16},
		{ID: "b", App: "toy", GPUs: 1, Batch: 16, Submit: 100 * time.Second},
	}, pollux.NewOptimus())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, j := range r.Records {
		fmt.Printf("%s took %v\n", j.Job, j.JCT())
	}
	// Output:
	// 1m0s a on [{0 2} {1 2}]
	// 2m0s a on [{0 2}]
	// 2m0s b on [{1 2}]
	// 6m0s a on [{0 1}]
	// 6m0s b on [{1 2} {0 1}]
	// 7m0s a on [{0 2}]
	// 7m0s b on [{1 2}]
	// a took 10m36s
	// b took 9m18s
}
