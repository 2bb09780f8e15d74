package gang_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// A gang of four gets its room whole, its members confirm, and it starts.
func Example() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	a, err := gang.New(gang.Config{Placer: placertest.NewReference(1, 2, 2, 0), Hold: time.Minute})
	if err != nil {
		panic(err)
	}
	g := &lockstep.Gang{ID: "train", Roles: []lockstep.Role{{Min: 4, Demand: lockstep.Demand{GPUs: 1}}}}
	if err := a.Submit(now, g); err != nil {
		panic(err)
	}
	for range 2 {
		actions, err := a.Step(now)
		if err != nil {
			panic(err)
		}
		for _, x := range actions {
			fmt.Println(x.Kind, x.Job)
			if x.Kind == lockstep.ActionReserve {
				for rank, m := range x.Plan.Members {
					fmt.Printf("  rank %d on %s device %s\n", rank, m.Node, m.Devices)
					if err := a.Confirm(now, x.Job, x.Attempt, rank); err != nil {
						panic(err)
					}
				}
			}
		}
	}
	// Output:
	// reserve train
	//   rank 0 on n0 device 0
	//   rank 1 on n0 device 1
	//   rank 2 on n1 device 0
	//   rank 3 on n1 device 1
	// start train
}

// A blocked gang has a start time, and a short job passes it.
func ExampleAdmission_Forecast() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	a, err := gang.New(gang.Config{Placer: placertest.NewReference(1, 4, 1, 0), StartAtOnce: true})
	if err != nil {
		panic(err)
	}
	for _, j := range []struct {
		id      lockstep.JobID
		members int
		wall    time.Duration
	}{{"a", 3, time.Hour}, {"b", 4, time.Hour}, {"c", 1, time.Hour}, {"d", 1, 2 * time.Hour}} {
		err := a.Submit(now, &lockstep.Gang{
			ID: j.id, Walltime: j.wall,
			Roles: []lockstep.Role{{Min: j.members, Demand: lockstep.Demand{GPUs: 1}}},
		})
		if err != nil {
			panic(err)
		}
	}
	if _, err := a.Step(now); err != nil {
		panic(err)
	}
	b, _ := a.Forecast("b")
	fmt.Println("running", a.AppendJobs(nil, gang.Running), "b at", b.Start.Format(time.Kitchen), "on", b.Nodes())
	e, _ := a.Explain("d")
	fmt.Println(e.String())
	// Output:
	// running [a c] b at 10:00AM on [n0 n1 n2 n3]
	// d: does not fit: busy, 0 of 1 members
}
