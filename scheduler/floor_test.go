package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// TestUnderAFloorOnlyTheUrgentDisplace has two jobs that hold all devices for long. A
// third waits, and is let be behind their terms until it could no longer expect the
// floor; then it displaces one of them, though nobody's tenant is owed anything.
func TestUnderAFloorOnlyTheUrgentDisplace(t *testing.T) {
	cfg := scheduler.Config{
		Tree: cluster(t, 1), StartAtOnce: true, Term: 5 * time.Minute, Round: time.Minute,
		Floor: 500_000, Quantum: 10 * time.Minute, Weights: map[lockstep.TenantID]int64{"a": 1, "b": 1, "c": 2},
	}
	s := newScheduler(t, cfg)
	submit(t, s, at(0), gangOf("a", "a", 4, 0), gangOf("b", "b", 4, 0))
	require.Equal(t, []string{"start a", "start b"}, kinds(step(t, s, at(0))))
	submit(t, s, at(1), gangOf("c", "c", 4, 0))
	require.Empty(t, step(t, s, at(1)))

	// c deserves 4 of the 8 devices. Were it started w seconds after it came and ran for
	// the quantum of 600 s, its index would be 600/(w+600): half at w = 600.
	now := 1
	for {
		wake, ok := s.NextWake(at(now))
		require.True(t, ok)
		now = int(wake.Sub(epoch).Seconds()) + 1
		actions := step(t, s, wake)
		if len(actions) == 0 {
			require.Less(t, now, 700, "nobody is displaced")
			continue
		}
		require.Equal(t, lockstep.ActionEvict, actions[0].Kind)
		require.InDelta(t, 601, wake.Sub(epoch).Seconds(), 1, "no sooner than it must be")
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: wake, Job: actions[0].Job}))
		require.Contains(t, kinds(step(t, s, wake)), "start c")
		return
	}
}

func TestFloorsThatCannotBeAreRefused(t *testing.T) {
	for i, cfg := range []scheduler.Config{
		{Floor: -1},
		{Floor: 10_000_001},
		{Floor: 1, Rule: scheduler.FIFO},
		{Floor: 1, Inside: scheduler.First},
		{Floor: 1, Term: scheduler.NoTerm},
		{Hysteresis: -1},
		{Hysteresis: 1_000_001},
		{Quantum: -1},
		{Band: -1},
	} {
		cfg.Tree = cluster(t, 1)
		_, err := scheduler.New(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid, fmt.Sprint(i))
	}
}
