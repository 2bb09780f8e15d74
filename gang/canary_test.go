package gang_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// confirmAll confirms all that the hold of x is for.
func confirmAll(t *testing.T, a *gang.Admission, second int, x lockstep.Action) {
	t.Helper()
	for rank := range x.Plan.Members {
		require.NoError(t, a.Confirm(at(second), x.Job, x.Attempt, rank))
	}
}

// fill runs jobs of one device with priority 0 that bear to be stopped.
func fill(t *testing.T, a *gang.Admission, names ...lockstep.JobID) {
	t.Helper()
	for _, id := range names {
		submit(t, a, 0, low(id, 1, 0, 0))
	}
	for _, x := range step(t, a, 0) {
		confirmAll(t, a, 0, x)
	}
	step(t, a, 0)
}

func TestCanariesAreTriedBeforeTheOthers(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a := admission(t, p, gang.Config{Hold: 30 * time.Second})
	g := plain("w", 4, 100)
	g.Canary = 1
	submit(t, a, 0, g)
	trial := step(t, a, 0)
	require.Equal(t, []string{"reserve w"}, summary(trial))
	require.Len(t, trial[0].Plan.Members, 1, "the host is told of one member")
	require.Len(t, p.Plan("w").Members, 4, "and all have their room")
	s, _ := a.State("w")
	require.Equal(t, 1, s.Trial)
	require.Equal(t, at(30+30+100), s.End)
	require.ErrorIs(t, a.Confirm(at(1), "w", 0, 1), lockstep.ErrInvalid, "not told of yet")
	require.NoError(t, a.Confirm(at(5), "w", trial[0].Attempt, 0))
	whole := step(t, a, 5)
	require.Equal(t, []string{"reserve w"}, summary(whole))
	require.Len(t, whole[0].Plan.Members, 4)
	require.Equal(t, at(35), whole[0].Deadline)
	require.Greater(t, whole[0].Attempt, trial[0].Attempt)
	s, _ = a.State("w")
	require.Equal(t, 3, s.Missing, "the first has confirmed")
	confirmAll(t, a, 6, whole[0])
	require.Equal(t, []string{"start w"}, summary(step(t, a, 6)))
}

func TestACanaryThatFailsKeepsOthersRunning(t *testing.T) {
	p := placertest.NewReference(1, 6, 1, 0)
	a := admission(t, p, gang.Config{Preempt: gang.PreemptOn, Hold: 30 * time.Second})
	fill(t, a, "a", "b", "c", "d", "e", "f")
	g := high("w", 4, 5)
	g.Canary = 1
	submit(t, a, 1, g)
	got := step(t, a, 1)
	require.Equal(t, []string{"evict a preempted"}, summary(got), "room for the first member only")
	require.NoError(t, a.Evicted(at(2), "a", 0))
	trial := step(t, a, 2)
	require.Equal(t, []string{"reserve w"}, summary(trial))
	node := trial[0].Plan.Members[0].Node
	require.NoError(t, a.Refuse(at(3), "w", trial[0].Attempt, node))
	got = step(t, a, 3)
	require.Equal(t, []string{"release w refused", "evict b preempted", "reserve a"}, reorderLast(summary(got)), "the next node is tried; a may have the one that w refused")
	require.Len(t, a.AppendJobs(nil, gang.Running), 4)
}

// reorderLast puts evictions before reserves.
func reorderLast(list []string) []string {
	if len(list) == 3 && list[1][:7] == "reserve" {
		list[1], list[2] = list[2], list[1]
	}
	return list
}

func TestCanariesThatConfirmMakeRoomForTheWhole(t *testing.T) {
	p := placertest.NewReference(1, 6, 1, 0)
	cfg := gang.Config{Preempt: gang.PreemptOn, Hold: 30 * time.Second, Placer: p}
	a := admission(t, p, cfg)
	fill(t, a, "a", "b", "c", "d")
	g := high("w", 6, 5)
	g.Canary = 2
	submit(t, a, 1, g)
	require.Equal(t, []string{"evict a preempted", "evict b preempted"}, summary(step(t, a, 1)))
	s, _ := a.State("w")
	require.Equal(t, 2, s.Trial)
	require.Equal(t, gang.Awaiting, s.Phase)
	require.Len(t, s.Plan.Members, 2)
	require.NoError(t, a.Evicted(at(2), "a", 0))
	require.NoError(t, a.Evicted(at(2), "b", 0))
	trial := step(t, a, 2)
	require.Equal(t, []string{"reserve w"}, summary(trial), "a and b are not let back into n4 and n5, which are set apart")
	require.Len(t, p.Plan("w").Members, 2)
	e, _ := a.Explain("a")
	require.Contains(t, e.String(), "4 nodes are set apart for w")
	require.Empty(t, a.AppendIdle(nil, p.Nodes(), at(3)))

	var saved bytes.Buffer // and all of that survives a restart
	require.NoError(t, a.Snapshot(&saved))
	a, err := gang.Restore(cfg, &saved)
	require.NoError(t, err)

	confirmAll(t, a, 3, trial[0])
	require.NoError(t, a.Confirm(at(3), "w", trial[0].Attempt, 0), "again")
	require.Equal(t, []string{"evict c preempted", "evict d preempted"}, summary(step(t, a, 33)), "also after the deadline of the trial, which is over")
	s, _ = a.State("w")
	require.Zero(t, s.Trial)
	require.Len(t, s.Plan.Members, 6)
	require.NoError(t, a.Evicted(at(34), "c", 0))
	require.NoError(t, a.Evicted(at(34), "d", 0))
	whole := step(t, a, 34)
	require.Equal(t, []string{"reserve w"}, summary(whole))
	require.Equal(t, trial[0].Plan.Members, whole[0].Plan.Members[:2], "the first stay where they were tried")
	confirmAll(t, a, 35, whole[0])
	require.Equal(t, []string{"start w"}, summary(step(t, a, 35)))
}

func TestATrialWhoseRoomWentAwayIsGivenBack(t *testing.T) {
	p := placertest.NewReference(1, 3, 1, 0)
	a := admission(t, p, gang.Config{Preempt: gang.PreemptOn, Hold: 30 * time.Second})
	fill(t, a, "a", "b", "c")
	g := high("w", 3, 5)
	g.Canary = 1
	submit(t, a, 1, g)
	step(t, a, 1)
	require.NoError(t, a.Evicted(at(2), "a", 0))
	trial := step(t, a, 2)
	require.NoError(t, a.Down(at(3), "n2"))
	require.Equal(t, []string{"evict c lost"}, summary(step(t, a, 3)))
	confirmAll(t, a, 4, trial[0])
	require.Equal(t, []string{"release w busy", "reserve a"}, summary(settled(t, a, 4)), "three nodes there are no more")
	require.Equal(t, gang.Queued, phase(a, "w"))
	require.Equal(t, gang.Running, phase(a, "b"), "b was not told to go in vain")
}

// settled makes steps until nothing is left to decide at that second.
func settled(t *testing.T, a *gang.Admission, second int) []lockstep.Action {
	t.Helper()
	var out []lockstep.Action
	for range 10 {
		out = append(out, step(t, a, second)...)
		if wake, ok := a.NextWake(at(second)); !ok || wake.After(at(second)) {
			break
		}
	}
	return out
}

func TestTrialsEndLikeHolds(t *testing.T) {
	start := func() (*gang.Admission, *placertest.Reference, lockstep.Action) {
		p := placertest.NewReference(1, 3, 1, 0)
		a := admission(t, p, gang.Config{Preempt: gang.PreemptOn, Hold: 30 * time.Second})
		fill(t, a, "a", "b", "c")
		g := high("w", 3, 5)
		g.Canary = 1
		submit(t, a, 1, g)
		step(t, a, 1)
		require.NoError(t, a.Evicted(at(2), "a", 0))
		return a, p, step(t, a, 2)[0]
	}
	a, p, _ := start()
	require.Equal(t, []string{"release w lapsed", "reserve a"}, summary(settled(t, a, 32)))
	require.Equal(t, ids{"a", "b", "c"}, p.Jobs())
	a, _, _ = start()
	require.NoError(t, a.Cancel(at(3), "w"))
	require.Equal(t, []string{"release w cancelled", "reserve a"}, summary(settled(t, a, 3)))
	a, _, x := start()
	require.NoError(t, a.Fail(at(3), "w", x.Attempt, ""))
	require.Equal(t, []string{"release w failed", "reserve a"}, summary(settled(t, a, 3)))
	a, _, x = start()
	confirmAll(t, a, 3, x)
	require.NoError(t, a.Cancel(at(3), "w"), "between the trial and the whole")
	require.Equal(t, []string{"release w cancelled", "reserve a"}, summary(settled(t, a, 3)))
	a, _, x = start()
	confirmAll(t, a, 3, x)
	require.NoError(t, a.Down(at(3), x.Plan.Members[0].Node))
	require.Equal(t, []string{"release w refused"}, summary(settled(t, a, 3)))
}

func TestCanariesAreWholeGroups(t *testing.T) {
	p := placertest.NewReference(1, 3, 4, 0)
	a := admission(t, p, gang.Config{})
	g := plain("w", 8, 0)
	g.Roles[0].Inner.Size, g.Canary = 4, 1
	submit(t, a, 0, g)
	x := step(t, a, 0)
	require.Len(t, x[0].Plan.Members, 4)
	one := plain("one", 4, 0)
	one.Roles[0].Inner.Size, one.Canary = 4, 2
	submit(t, a, 1, one)
	x = step(t, a, 1)
	require.Len(t, x[0].Plan.Members, 4, "the whole is one group: it is not tried apart")
	s, _ := a.State("one")
	require.Zero(t, s.Trial)
}

func TestNobodyIsTriedWhereGangsStartAtOnce(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	g := plain("w", 2, 0)
	g.Canary = 1
	submit(t, a, 0, g)
	require.Equal(t, []string{"start w"}, summary(step(t, a, 0)))
}
