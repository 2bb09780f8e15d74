package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// taking is an Admission whose waiting gangs may take room, and start at once.
func taking(t *testing.T, p gang.Placer, cfg gang.Config) *gang.Admission {
	t.Helper()
	cfg.Preempt, cfg.StartAtOnce = gang.PreemptOn, true
	return admission(t, p, cfg)
}

// low is a gang of priority p that bears to be stopped; with least it bears to shrink.
func low(id lockstep.JobID, members, least int, p lockstep.Priority) *lockstep.Gang {
	g := holder(id, members, least)
	g.Priority = p
	return g
}

// high is a gang of priority p that bears nothing.
func high(id lockstep.JobID, members int, p lockstep.Priority) *lockstep.Gang {
	g := plain(id, members, 0)
	g.Priority = p
	return g
}

func submit(t *testing.T, a *gang.Admission, second int, gangs ...*lockstep.Gang) {
	t.Helper()
	for _, g := range gangs {
		require.NoError(t, a.Submit(at(second), g))
	}
}

func TestAWaitingGangTakesTheRoomOfLowerPriority(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a := taking(t, p, gang.Config{})
	submit(t, a, 0, low("a", 2, 0, 0), low("b", 2, 0, 1))
	step(t, a, 0)
	submit(t, a, 10, high("w", 2, 5))
	got := step(t, a, 10)
	require.Equal(t, []string{"evict a preempted"}, summary(got), "the lower tier goes")
	require.Equal(t, lockstep.JobID("w"), got[0].Eviction.For)
	require.Equal(t, lockstep.EvictionCost{Lost: 10 * time.Second, Devices: 2000}, got[0].Eviction.Cost)
	require.Equal(t, gang.Awaiting, phase(a, "w"))
	require.Equal(t, ids{"b", "w"}, p.Jobs(), "the room is w's before a has left")
	require.Empty(t, step(t, a, 11))
	require.NoError(t, a.Evicted(at(12), "a", 0))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 12)))
	require.Equal(t, gang.Queued, phase(a, "a"))
	require.NoError(t, a.Finish(at(20), "w", 0))
	require.Equal(t, []string{"start a"}, summary(step(t, a, 20)))
}

func TestPreemptionIsOffByDefault(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	submit(t, a, 0, low("a", 2, 0, 0))
	step(t, a, 0)
	submit(t, a, 1, high("w", 2, 5))
	require.Empty(t, step(t, a, 1))
}

func TestPreemptNeverWaits(t *testing.T) {
	a := taking(t, placertest.NewReference(1, 2, 1, 0), gang.Config{})
	submit(t, a, 0, low("a", 2, 0, 0))
	step(t, a, 0)
	w := high("w", 2, 5)
	w.Preemption = lockstep.PreemptNever
	submit(t, a, 1, w)
	require.Empty(t, step(t, a, 1))
	submit(t, a, 2, high("v", 2, 4))
	require.Empty(t, step(t, a, 2), "v is behind w, whose reserved room it would take")
	require.NoError(t, a.Cancel(at(3), "w"))
	require.Equal(t, []string{"evict a preempted"}, summary(step(t, a, 3)))
}

func TestEqualsAndThoseWhoBearNothingAreNotTakenFrom(t *testing.T) {
	a := taking(t, placertest.NewReference(1, 2, 1, 0), gang.Config{})
	submit(t, a, 0, low("equal", 1, 0, 5), high("firm", 1, 0))
	step(t, a, 0)
	submit(t, a, 1, high("w", 1, 5))
	require.Empty(t, step(t, a, 1))
}

func TestAVictimShrinksWhereThatIsEnough(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a := taking(t, p, gang.Config{})
	submit(t, a, 0, low("a", 4, 2, 0))
	step(t, a, 0)
	submit(t, a, 1, high("w", 1, 5))
	got := step(t, a, 1)
	require.Equal(t, []string{"resize a preempted"}, summary(got))
	require.Equal(t, []int{3}, got[0].Eviction.Ranks)
	require.Len(t, got[0].Plan.Members, 3)
	require.NoError(t, a.Evicted(at(2), "a", 0))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 2)))
	submit(t, a, 3, high("x", 3, 5))
	got = step(t, a, 3)
	require.Equal(t, []string{"evict a preempted"}, summary(got), "not even its least is left")
}

func TestAVictimMovesWhereThereIsOtherRoom(t *testing.T) {
	p := placertest.NewReference(2, 2, 1, 0)
	a := taking(t, p, gang.Config{})
	submit(t, a, 0, plain("0", 1, 0), low("a", 1, 0, 0), low("b", 1, 0, 0)) // n0 n1 | n2
	step(t, a, 0)
	require.NoError(t, a.Finish(at(1), "0", 0)) // n0 and n3 are free
	step(t, a, 1)
	w := high("w", 2, 5)
	w.Required = placertest.Rack
	submit(t, a, 2, w)
	got := step(t, a, 2)
	require.Len(t, got, 1)
	require.Equal(t, lockstep.ActionMove, got[0].Kind)
	require.Equal(t, gang.ReasonPreempted, got[0].Reason)
	victim := got[0].Job
	require.NoError(t, a.Evicted(at(3), victim, 0))
	require.ElementsMatch(t, []string{"start " + string(victim), "start w"}, summary(step(t, a, 3)))
}

func TestNobodyMakesRoomTwiceForOneCause(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	a := admission(t, p, gang.Config{Preempt: gang.PreemptOn, Hold: 10 * time.Second, Backoff: 10 * time.Second})
	submit(t, a, 0, low("a", 2, 0, 0))
	run := func(second int, job lockstep.JobID, members int) {
		for rank := range members {
			require.NoError(t, a.Confirm(at(second), job, 0, rank))
		}
	}
	step(t, a, 0)
	run(0, "a", 2)
	step(t, a, 0)
	submit(t, a, 1, high("w", 2, 5))
	require.Equal(t, []string{"evict a preempted"}, summary(step(t, a, 1)))
	require.NoError(t, a.Evicted(at(2), "a", 0))
	require.Equal(t, []string{"reserve w"}, summary(step(t, a, 2)))
	require.Equal(t, []string{"release w lapsed", "reserve a"}, summary(step(t, a, 12)), "w gave up what was made for it")
	run(13, "a", 2)
	require.Equal(t, []string{"start a"}, summary(step(t, a, 13)))
	require.Empty(t, step(t, a, 22), "a made room for w once, and w has not run since")
	require.Equal(t, gang.Running, phase(a, "a"))
	require.NoError(t, a.Reconsider(at(23)))
	require.Equal(t, []string{"evict a preempted"}, summary(step(t, a, 23)), "the host says that things are different")
}

func TestMaxVictimsCountsUntilAGangHasRun(t *testing.T) {
	a := taking(t, placertest.NewReference(1, 3, 1, 0), gang.Config{MaxVictims: 2})
	submit(t, a, 0, low("a", 1, 0, 0), low("b", 1, 0, 0), low("c", 1, 0, 0))
	step(t, a, 0)
	submit(t, a, 1, high("w", 3, 5))
	require.Empty(t, step(t, a, 1), "it would take three")
	submit(t, a, 2, high("v", 2, 6))
	require.Equal(t, []string{"evict b preempted", "evict c preempted"}, summary(step(t, a, 2)))
}

// costs is a Coster that knows some jobs.
type costs map[lockstep.JobID]lockstep.EvictionCost

func (c costs) Cost(job lockstep.JobID, _ time.Time) (lockstep.EvictionCost, bool) {
	x, ok := c[job]
	return x, ok
}

func TestTheHostSaysWhatStoppingCosts(t *testing.T) {
	host := costs{"a": {Lost: time.Second, Save: -time.Hour, Restore: 2 * time.Second}, "b": {Lost: time.Hour}}
	a := taking(t, placertest.NewReference(1, 2, 1, 0), gang.Config{Cost: host})
	submit(t, a, 0, low("a", 1, 0, 0))
	step(t, a, 0)
	submit(t, a, 50, low("b", 1, 0, 0))
	step(t, a, 50)
	submit(t, a, 60, high("w", 1, 5))
	got := step(t, a, 60)
	require.Equal(t, []string{"evict a preempted"}, summary(got), "b would be the cheaper by its start")
	require.Equal(t, lockstep.EvictionCost{Lost: time.Second, Restore: 2 * time.Second, Devices: 1000}, got[0].Eviction.Cost)
}

func TestDueHoldersAreTakenFromFirst(t *testing.T) {
	a := taking(t, placertest.NewReference(1, 4, 1, 0), gang.Config{})
	submit(t, a, 0, low("a", 2, 0, 0), low("b", 1, 0, 3), low("c", 1, 0, 3))
	step(t, a, 0)
	require.NoError(t, a.Due(at(5), "b", 0))
	submit(t, a, 5, high("w", 2, 5))
	got := step(t, a, 5)
	require.Equal(t, []string{"extend b", "evict a preempted"}, summary(got), "b alone is not enough, and not needed")
	require.NoError(t, a.Evicted(at(6), "a", 0))
	step(t, a, 6)
	require.NoError(t, a.Due(at(7), "b", 0))
	submit(t, a, 7, high("v", 2, 5))
	require.Equal(t, []string{"evict b term", "evict c preempted"}, summary(step(t, a, 7)), "both are needed")
}
