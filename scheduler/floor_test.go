package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// floored is a scheduler of two tenants on one node of eight devices under a floor
// of a half, with a quantum of a minute and terms of five. Each tenant has a quota
// of four.
func floored(t testing.TB, change func(*scheduler.Config)) *scheduler.Scheduler {
	cfg := scheduler.Config{
		Tree: cluster(t, 1), Weights: map[lockstep.TenantID]int64{"a": 1, "b": 1},
		Floor: 500_000, Quantum: time.Minute, Term: 5 * time.Minute, Hysteresis: 900_000, StartAtOnce: true,
	}
	if change != nil {
		change(&cfg)
	}
	return newScheduler(t, cfg)
}

// evicted reports that jobs have left.
func evicted(t testing.TB, s *scheduler.Scheduler, now time.Time, actions []lockstep.Action) {
	t.Helper()
	for i := range actions {
		if a := &actions[i]; a.Kind == lockstep.ActionEvict {
			require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: a.Job, Attempt: a.Attempt}))
		}
	}
}

// TestNobodyIsDisplacedBeforeTheFloor: a job of one device alone deserves one
// device; with a quantum of 60 s its expected index is 60/(wait+60), which falls
// below a half after a minute. The scheduler wakes just then.
func TestNobodyIsDisplacedBeforeTheFloor(t *testing.T) {
	s := floored(t, nil)
	submit(t, s, at(0), gangOf("a1", "a", 8, 0))
	require.Equal(t, []string{"start a1"}, kinds(step(t, s, at(0))))
	submit(t, s, at(600), gangOf("b1", "b", 1, 0))
	require.Empty(t, step(t, s, at(600)), "the term of a1 is over, but b1 can wait")
	wake, ok := s.NextWake(at(600))
	require.True(t, ok)
	require.Equal(t, at(660).Add(time.Millisecond), wake)
	require.Empty(t, step(t, s, at(660)))
	actions := step(t, s, wake)
	require.Equal(t, []string{"evict a1"}, kinds(actions))
	require.Equal(t, lockstep.JobID("b1"), actions[0].Eviction.For)
	evicted(t, s, at(666), actions)
	require.Equal(t, []string{"start b1"}, kinds(step(t, s, at(666))))
}

// TestNobodyIsDisplacedInItsTerm lets a job be urgent while no term is over; the
// holder is asked as soon as its is.
func TestNobodyIsDisplacedInItsTerm(t *testing.T) {
	s := floored(t, nil)
	submit(t, s, at(0), gangOf("a1", "a", 8, 0))
	step(t, s, at(0))
	submit(t, s, at(1), gangOf("b1", "b", 1, 0))
	for now := at(1); now.Before(at(300)); {
		require.Empty(t, step(t, s, now))
		wake, ok := s.NextWake(now)
		require.True(t, ok)
		require.True(t, wake.After(now))
		now = wake
	}
	require.Equal(t, []string{"evict a1"}, kinds(step(t, s, at(300))))
}

// TestTheWidestMakesRoom has a narrow holder that expects more than the wide one.
func TestTheWidestMakesRoom(t *testing.T) {
	s := floored(t, nil)
	submit(t, s, at(0), gangOf("a1", "a", 2, 0), gangOf("b1", "b", 6, 0))
	require.Len(t, step(t, s, at(0)), 2)
	submit(t, s, at(600), gangOf("a2", "a", 1, 0))
	step(t, s, at(600))
	wake, _ := s.NextWake(at(600))
	actions := step(t, s, wake)
	require.Equal(t, []string{"evict b1"}, kinds(actions))
}

// TestHysteresisKeepsAHolder: at a tenth, a holder must expect five times the floor
// or more, which this one does not.
func TestHysteresisKeepsAHolder(t *testing.T) {
	s := floored(t, func(c *scheduler.Config) { c.Hysteresis = 100_000 })
	submit(t, s, at(0), gangOf("a1", "a", 8, 0))
	step(t, s, at(0))
	submit(t, s, at(600), gangOf("b1", "b", 1, 0))
	for now := at(600); now.Before(at(690)); {
		require.Empty(t, step(t, s, now))
		now, _ = s.NextWake(now)
	}
}

// TestWhoIsDisplacedDisplacesNobody: the wide holder that makes room for an urgent
// job would fit where the narrow ones sit, who expect more than it does; it waits
// all the same.
func TestWhoIsDisplacedDisplacesNobody(t *testing.T) {
	s := floored(t, nil)
	submit(t, s, at(0), gangOf("b1", "b", 2, 0), gangOf("b2", "b", 2, 0), gangOf("a1", "a", 4, 0))
	require.Len(t, step(t, s, at(0)), 3)
	submit(t, s, at(600), gangOf("b3", "b", 1, 0))
	step(t, s, at(600))
	wake, _ := s.NextWake(at(600))
	actions := step(t, s, wake)
	require.Equal(t, []string{"evict a1"}, kinds(actions))
}

// TestAFreeDeviceGoesByWhatTenantsAreOwed: neither job is urgent, and b is owed.
func TestAFreeDeviceGoesByWhatTenantsAreOwed(t *testing.T) {
	s := floored(t, func(c *scheduler.Config) { c.Band = time.Second })
	submit(t, s, at(0), gangOf("a1", "a", 7, 0), gangOf("a2", "a", 1, 0))
	require.Len(t, step(t, s, at(0)), 2)
	submit(t, s, at(200), gangOf("a3", "a", 1, 0))
	submit(t, s, at(230), gangOf("b1", "b", 1, 0))
	require.Empty(t, step(t, s, at(230)))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(240), Job: "a2"}))
	require.Equal(t, []string{"start b1"}, kinds(step(t, s, at(240))))
}

// TestAHeldOverHolderIsNoNews: while somebody presses in vain, those who stay are
// not told so again and again.
func TestAHeldOverHolderIsNoNews(t *testing.T) {
	s := floored(t, nil)
	stays := gangOf("a1", "a", 8, 0)
	stays.Capabilities.Preemptible = false
	submit(t, s, at(0), stays)
	step(t, s, at(0))
	submit(t, s, at(10), gangOf("b1", "b", 1, 0))
	for now := at(10); now.Before(at(3600)); {
		require.Empty(t, step(t, s, now))
		wake, ok := s.NextWake(now)
		require.True(t, ok)
		now = wake
	}
}

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
