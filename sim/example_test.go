package sim_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

// A made up day on eight nodes, under two policies.
func Example() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{8}, Shape: shape})
	day, _ := trace.Synthetic(trace.SyntheticConfig{Seed: 1, Span: 24 * time.Hour, GPUs: 64, Load: 1200, Tenants: 4})
	for _, rule := range []scheduler.Rule{scheduler.FIFO, scheduler.LTGF} {
		var jobs []sim.Job
		for _, j := range day.Jobs {
			g := j.Gang(8)
			g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second, Restore: 20 * time.Second}
			jobs = append(jobs, sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration})
		}
		s, err := scheduler.New(scheduler.Config{Tree: tree, Rule: rule})
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := sim.Run(sim.Config{Tree: tree}, jobs, s)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q: all done: %v; service is devices × time held: %v\n", rule, r.Finished == r.Jobs, r.Service == r.Held)
	}
	// Output:
	// "fifo": all done: true; service is devices × time held: true
	// "": all done: true; service is devices × time held: true
}
