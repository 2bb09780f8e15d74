package scheduler_test

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Two tenants share a node of eight devices. When the first one's term is over
// the second is owed more, and takes over once the devices are clean.
func Example() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	s, err := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, id := range []lockstep.JobID{"vision-1", "speech-1"} {
		g := &lockstep.Gang{
			ID: id, Tenant: lockstep.TenantID(id[:6]), Walltime: time.Hour,
			Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 8}}},
			Capabilities: lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second},
		}
		now = now.Add(time.Duration(i) * time.Minute)
		if err := s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g}); err != nil {
			fmt.Println(err)
		}
		show(s, now)
	}
	now, _ = s.NextWake(now) // the term of vision-1
	show(s, now)
	now = now.Add(5 * time.Second)
	_ = s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: "vision-1"})
	show(s, now)
	// Output:
	// 00:00:00 start vision-1
	// 00:15:00 evict vision-1 for speech-1: term
	// 00:15:05 start speech-1
}

// show takes a step and prints what it decides.
func show(s *scheduler.Scheduler, now time.Time) {
	actions, err := s.Step(now)
	if err != nil {
		fmt.Println(err)
	}
	for _, a := range actions {
		fmt.Print(now.Format(time.TimeOnly), " ", a.Kind, " ", a.Job)
		if a.Eviction != nil {
			fmt.Print(" for ", a.Eviction.For, ": ", a.Reason)
		}
		fmt.Println()
	}
}

// The parts compose without this package too: here is a fair gang scheduler with
// leases by hand.
func Example_byHand() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{2}, Shape: shape})
	room, _ := placement.New(tree, placement.Config{})
	owed, _ := fairness.New(fairness.Config{Capacity: 16 * lockstep.WholeGPU, DefaultWeight: 1})
	terms, _ := lease.New(lease.Config{Term: 15 * time.Minute})
	gangs, err := gang.New(gang.Config{Placer: room, Orderer: owed, StartAtOnce: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 3 { // submit: to the ledger, then to admission
		g := &lockstep.Gang{
			ID: lockstep.JobID(fmt.Sprint("job-", i)), Tenant: lockstep.TenantID(fmt.Sprint("team-", i/2)),
			Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 8}}},
		}
		_ = owed.Submit(now, g.ID, g.Tenant, g.GPUs(nil))
		_ = gangs.Submit(now, g)
	}
	actions, err := gangs.Step(now) // decide: one pass along the ledger's order
	for _, a := range actions {
		_ = owed.Start(now, a.Job, 8*lockstep.WholeGPU) // charge
		l, _ := terms.Grant(now, a.Job, 8*lockstep.WholeGPU, 0)
		fmt.Println(a.Kind, a.Job, "on", a.Plan.Members[0].Node, "until", l.Boundary.Format(time.TimeOnly))
	}
	fmt.Println(err)
	// Output:
	// start job-0 on n0 until 00:15:00
	// start job-2 on n1 until 00:15:00
	// <nil>
}

// A snapshot and the log of what came behind it make up for a restart.
func ExampleRestore() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	var log []scheduler.Entry
	cfg := scheduler.Config{Tree: tree, StartAtOnce: true, Log: func(e scheduler.Entry) { log = append(log, e) }}
	s, _ := scheduler.New(cfg)
	var saved bytes.Buffer
	_ = s.Snapshot(&saved)

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := &lockstep.Gang{ID: "job", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 4}}}}
	_ = s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g})
	show(s, now)

	cfg.Log = nil
	again, err := scheduler.Restore(cfg, &saved)
	for _, e := range log {
		actions, _ := again.Replay(e)
		for _, a := range actions {
			fmt.Println("again", a.Kind, a.Job, a.Plan.Members[0].Devices)
		}
	}
	fmt.Println(err)
	// Output:
	// 00:00:00 start job
	// again start job 0-3
	// <nil>
}

// Explain says why a job waits, with what each part knows.
func ExampleScheduler_Explain() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	s, _ := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, id := range []lockstep.JobID{"a", "b"} {
		g := &lockstep.Gang{ID: id, Tenant: lockstep.TenantID("team-" + id), Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 6}}}}
		_ = s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g})
	}
	_, _ = s.Step(now)
	e, _ := s.Explain("b")
	fmt.Println(e.Verdict.Reason, e.Verdict.Requested, e.Verdict.Available)
	for _, n := range e.Notes {
		fmt.Println(n.Stage, n.Reason)
	}
	// Output:
	// busy 6000 2000
	// gang reserved
	// fairness served
	// lifecycle queued
}

// A scheduler that comes to a cluster in use is told what runs where, and what is not
// its own, before it decides anything.
func ExampleScheduler_Adopt() {
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	if err != nil {
		panic(err)
	}
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{2}, Shape: shape})
	if err != nil {
		panic(err)
	}
	s, err := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true})
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	gang := func(id lockstep.JobID, gpus int) *lockstep.Gang {
		return &lockstep.Gang{ID: id, Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}}}
	}
	first, _ := tree.NodeAt(0)
	second, _ := tree.NodeAt(1)
	runs := &lockstep.Plan{Job: "runs", Gang: gang("runs", 8), Members: []lockstep.Member{{Node: first, Devices: 0xff}}}
	theirs := &lockstep.Plan{Job: "theirs", Gang: gang("theirs", 2), Members: []lockstep.Member{{Node: second, Devices: 0b11}}}
	if err := errors.Join(s.Adopt(now, runs, now.Add(-time.Hour)), s.Occupy(now, theirs)); err != nil {
		panic(err)
	}
	fmt.Println(s.Usage().Free, "devices are free")

	// Two more nodes join. What is not named keeps what it has.
	wider, err := topology.Uniform(topology.UniformConfig{Fanout: []int{4}, Shape: shape})
	if err != nil {
		panic(err)
	}
	if err := s.Rebase(now, wider, nil); err != nil {
		panic(err)
	}
	fmt.Println(s.Usage().Free, "devices are free")
	// Output:
	// 6 devices are free
	// 22 devices are free
}
