package drf_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/drf"
)

// Example is that of the paper: 9 processors and 18 GB, for A in tasks of <1, 4> and for
// B in tasks of <3, 1>.
func Example() {
	capacity := lockstep.Resources{lockstep.ResourceCPU: 9000, lockstep.ResourceMemory: 18 << 30}
	q, err := drf.New(drf.Config{Capacity: capacity, OnBlocked: drf.BlockAll, Tenants: []drf.Tenant{{ID: "A", Weight: 1}, {ID: "B", Weight: 1}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 5 {
		for tenant, demand := range map[lockstep.TenantID]lockstep.Demand{"A": {CPU: 1000, Memory: 4 << 30}, "B": {CPU: 3000, Memory: 1 << 30}} {
			g := &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint(tenant, i)), Tenant: tenant, Roles: []lockstep.Role{{Min: 1, Demand: demand}}}
			if err := q.Submit(g, nil, nil); err != nil {
				fmt.Println(err)
			}
		}
	}
	q.Begin(time.Time{})
	for range 5 { // as many as fit
		id, _ := q.Next()
		q.Outcome(id, lockstep.Granted)
		if err := q.Start(id, nil); err != nil {
			fmt.Println(err)
		}
		fmt.Println(id)
	}
	for _, tenant := range []lockstep.TenantID{"A", "B"} {
		s, _ := q.Statement(tenant)
		fmt.Println(tenant, "uses", s.Used, "and so", s.Share, "of all", s.Dominant)
	}
	// Output:
	// A0
	// B0
	// A1
	// B1
	// A2
	// A uses cpu=3 memory=12Gi and so 2/3 of all memory
	// B uses cpu=6 memory=2Gi and so 2/3 of all cpu
}

func ExampleFluid() {
	capacity := lockstep.Vector{100, 1000} // devices and cores
	for _, a := range drf.Fluid(capacity, []drf.User{
		{Demand: lockstep.Vector{4, 32}, Weight: 1}, {Demand: lockstep.Vector{1, 16}, Weight: 1}, {Demand: lockstep.Vector{0, 64}, Weight: 1},
	}) {
		fmt.Println(a.Share.RatString(), a.Tasks.FloatString(3))
	}
	// Output:
	// 5/14 8.929
	// 5/14 22.321
	// 5/14 5.580
}

func ExampleFinishTimes() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// Of 64 devices each of four users could have 16.
	ideal := drf.IdealTime(time.Hour, 32*lockstep.WholeGPU, 64*lockstep.WholeGPU, 4)
	var f drf.FinishTimes
	for i, job := range []lockstep.JobID{"first", "second"} {
		if err := f.Submit(drf.App{Job: job, Arrived: start.Add(time.Duration(i) * time.Hour), Left: time.Hour, Ideal: ideal}); err != nil {
			fmt.Println(err)
		}
	}
	now := start.Add(2 * time.Hour)
	f.Begin(now)
	for id, ok := f.Next(); ok; id, ok = f.Next() {
		rho, _ := f.Rho(now, id)
		fmt.Println(id, rho)
	}
	// Output:
	// first 3/2
	// second 1/1
}
