package liveness_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/liveness"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func Example() {
	m, err := liveness.NewMonitor(liveness.Config{}, "node-1", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank := range 3 {
		if err := m.Join(start, rank, 1); err != nil {
			fmt.Println(err)
			return
		}
	}
	// All beat each second. Rank 1 does no more after 5 s, and rank 2 stays at step 1.
	now := start
	for range 700 {
		now = now.Add(time.Second)
		step := uint64(now.Sub(start) / time.Second)
		for rank := range 3 {
			b := liveness.Beat{Incarnation: 1, Progress: step}
			if rank == 2 {
				b.Progress = 1
			}
			if rank == 1 && step > 5 {
				continue
			}
			if _, err := m.Beat(now, rank, b); err != nil {
				fmt.Println(err)
			}
		}
		events, err := m.Check(nil, now)
		if err != nil {
			fmt.Println(err)
		}
		for _, e := range events {
			fmt.Println(now.Sub(start), e)
		}
	}
	// Output:
	// 1s rank 0: unknown -> alive (beating)
	// 1s rank 1: unknown -> alive (beating)
	// 1s rank 2: unknown -> alive (beating)
	// 10s rank 1: alive -> suspect (silent)
	// 15s rank 1: suspect -> dead (silent)
	// 31s rank 2: alive -> hung (no-progress)
}

func ExampleCoordinator() {
	c, err := liveness.NewCoordinator(liveness.Config{
		Domain: func(id lockstep.NodeID) string { return "rack-" + string(id[0]) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	nodes := []lockstep.NodeID{"a1", "a2", "a3", "b1", "b2", "b3", "b4"}
	for rank, id := range nodes {
		if err := c.Join(start, id, 1, []liveness.Member{{Rank: rank, Incarnation: 1}}); err != nil {
			fmt.Println(err)
		}
	}
	// After 5 s all of rack a falls silent; at 20 s a witness finds a1 switched off.
	for s := 1; s <= 20; s++ {
		now := start.Add(time.Duration(s) * time.Second)
		for rank, id := range nodes {
			if s > 5 && id[0] == 'a' {
				continue
			}
			_, err := c.Report(now, liveness.Report{Node: id, Incarnation: 1, Sequence: uint64(s), Members: []liveness.Member{
				{Rank: rank, Incarnation: 1, State: liveness.Alive, Reason: "beating", Since: now},
			}})
			if err != nil {
				fmt.Println(err)
			}
		}
		if s == 20 {
			if _, err := c.Evidence(now, "a1", 1, liveness.Exited); err != nil {
				fmt.Println(err)
			}
		}
		events, err := c.Check(nil, now)
		if err != nil {
			fmt.Println(err)
		}
		for _, e := range events {
			if e.From != liveness.Unknown && e.Kind != liveness.RankChanged || e.Kind == liveness.PartitionSuspected {
				fmt.Println(s, e)
			}
		}
	}
	list := c.Faults()
	fmt.Println(list.Participants, "take part; at fault:", list.Faults[0].Rank, list.Faults[0].State)
	// Output:
	// 10 partition suspected: rack-a: 3 of 3 silent (cohort)
	// 10 node a1: alive -> suspect (silent)
	// 10 node a2: alive -> suspect (silent)
	// 10 node a3: alive -> suspect (silent)
	// 20 node a1: suspect -> dead (exited)
	// 6 take part; at fault: 0 dead
}

func ExampleMonitor_Tune() {
	cfg := liveness.Config{}
	m, err := liveness.NewMonitor(cfg, "node-1", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = m.Join(start, 0, 1)
	_, _ = m.Beat(start, 0, liveness.Beat{Incarnation: 1})
	s, _ := m.Status(start, 0)
	fmt.Println("hung after", s.HungAt.Sub(start))

	// An operator knows of a step that takes half an hour.
	cfg.Rules = []liveness.Rule{{Phase: liveness.PhaseStep, Gap: 45 * time.Minute, Fixed: true}}
	err = m.Tune(start, cfg)
	s, _ = m.Status(start, 0)
	fmt.Println("hung after", s.HungAt.Sub(start), err)
	// Output:
	// hung after 10m0s
	// hung after 45m0s <nil>
}
