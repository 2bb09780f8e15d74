package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

// small is a trace that keeps 4 nodes busy for a day.
func small(t *testing.T) *workload {
	t.Helper()
	w, err := synthetic(3, 4*perNode, 24*time.Hour)
	require.NoError(t, err)
	return w
}

// TestCensusIsWhatHappened counts events and actions one by one.
func TestCensusIsWhatHappened(t *testing.T) {
	w := small(t)
	tree, err := cluster(4)
	require.NoError(t, err)
	for _, p := range []policy{ltgf, fifo} {
		c, took, err := w.replays(newMeter(), p, tree, 2)
		require.NoError(t, err)
		require.Positive(t, took.wall)

		events, actions := make(map[lockstep.EventKind]int), make(map[lockstep.ActionKind]int)
		s, err := scheduler.New(w.config(p, tree))
		require.NoError(t, err)
		r, err := sim.Run(sim.Config{
			Tree:   tree,
			Event:  func(e *lockstep.Event) { events[e.Kind]++ },
			Action: func(a *lockstep.Action) { actions[a.Kind]++ },
		}, w.jobs(), s)
		require.NoError(t, err)
		require.Equal(t, r.Events, c.Events)
		require.Equal(t, map[lockstep.EventKind]int{
			lockstep.EventSubmit: c.Jobs, lockstep.EventFinish: c.Finished, lockstep.EventConfirm: c.confirms(), lockstep.EventEvicted: c.Preemptions,
		}, withZero(events, lockstep.EventEvicted), p.title)
		stops := actions[lockstep.ActionEvict] + actions[lockstep.ActionMove]
		require.Equal(t, actions[lockstep.ActionExtend]+stops, c.terms(), p.title)
		require.Equal(t, c.Events+c.terms(), c.jobEvents())
		if p == fifo {
			require.Zero(t, c.terms())
		} else {
			require.Positive(t, c.Extensions)
			require.Positive(t, c.Preemptions)
		}
	}
}

// withZero makes sure that kind is counted, if only as none.
func withZero(counts map[lockstep.EventKind]int, kind lockstep.EventKind) map[lockstep.EventKind]int {
	counts[kind] += 0
	return counts
}

func TestBusyAndCrowded(t *testing.T) {
	c := &census{&sim.Result{Series: sim.Series{Samples: []sim.Sample{
		{Time: 0, Waiting: 1, Held: []lockstep.MilliGPU{1000, 1000}},
		{Time: time.Hour, Waiting: 5, Held: []lockstep.MilliGPU{4000, 0}},
		{Time: 2 * time.Hour, Waiting: 5, Held: []lockstep.MilliGPU{8000, 0}},
	}}}}
	held, waiting := c.busy(time.Hour, 4)
	require.InDelta(t, 0.75, held, 1e-9)
	require.InDelta(t, 3, waiting, 1e-9)
	at, most := c.crowded()
	require.Equal(t, time.Hour, at, "the first of equals")
	require.Equal(t, 5, most)
	held, waiting = (&census{&sim.Result{}}).busy(time.Hour, 4)
	require.Zero(t, held)
	require.Zero(t, waiting)
}
