package gang_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// lasting is a gang that goes on while lost members start anew elsewhere.
func lasting(id lockstep.JobID, members, spares int) *lockstep.Gang {
	g := plain(id, members, 0)
	g.Capabilities.Replaceable, g.Roles[0].Spares = true, spares
	return g
}

// bothPlacers runs test on a reference and on package placement, of one rack.
func bothPlacers(t *testing.T, nodes, devices int, test func(t *testing.T, p cluster)) {
	t.Run("reference", func(t *testing.T) { test(t, reference(1, nodes, devices)) })
	t.Run("placement", func(t *testing.T) { test(t, place(1, nodes, devices)) })
}

func nodesOf(members []lockstep.Member) []lockstep.NodeID {
	var out []lockstep.NodeID
	for _, m := range members {
		out = append(out, m.Node)
	}
	return out
}

type names = []lockstep.NodeID

func TestALostMemberTakesASpare(t *testing.T) {
	bothPlacers(t, 4, 1, func(t *testing.T, p cluster) {
		a := admission(t, p, gang.Config{StartAtOnce: true})
		submit(t, a, 0, lasting("g", 3, 1))
		got := step(t, a, 0)
		require.Equal(t, names{"n0", "n1", "n2"}, nodesOf(got[0].Plan.Members))
		require.Equal(t, names{"n3"}, nodesOf(got[0].Plan.Spares), "kept for it")
		submit(t, a, 1, plain("other", 1, 0))
		require.Empty(t, step(t, a, 1))
		require.NoError(t, a.Down(at(2), "n1"))
		got = step(t, a, 2)
		require.Equal(t, []string{"resize g lost"}, summary(got))
		require.Equal(t, names{"n0", "n3", "n2"}, nodesOf(got[0].Plan.Members), "ranks stay")
		require.Empty(t, got[0].Plan.Spares)
		require.Equal(t, []int{1}, got[0].Eviction.Ranks)
		require.Equal(t, lockstep.WholeGPU, got[0].Eviction.Cost.Devices)
		require.Equal(t, gang.Resizing, phase(a, "g"))
		require.NoError(t, a.Evicted(at(3), "g", 0))
		require.Equal(t, gang.Running, phase(a, "g"))
		require.Empty(t, step(t, a, 3))
		require.NoError(t, a.Down(at(4), "n3"))
		require.Equal(t, []string{"evict g lost"}, summary(step(t, a, 4)), "nothing is left to replace it with")
	})
}

func TestALostMemberTakesFreeRoomWhereThereIsNoSpare(t *testing.T) {
	bothPlacers(t, 4, 2, func(t *testing.T, p cluster) {
		a := admission(t, p, gang.Config{StartAtOnce: true})
		g := lasting("g", 3, 0)
		g.Roles[0].Demand.GPUs = 2
		submit(t, a, 0, g)
		before := step(t, a, 0)[0].Plan.Members
		require.NoError(t, a.Down(at(1), before[1].Node))
		require.NoError(t, a.Up(at(1), before[1].Node), "what ran there is lost in any case")
		require.NoError(t, a.Down(at(1), before[1].Node))
		got := step(t, a, 1)
		require.Equal(t, []string{"resize g lost"}, summary(got))
		require.Equal(t, before[0], got[0].Plan.Members[0])
		require.Equal(t, before[2], got[0].Plan.Members[2])
		require.NotEqual(t, before[1].Node, got[0].Plan.Members[1].Node)
	})
}

func TestWhoIsNotReplaceableLeavesWhole(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 4, 1, 0), gang.Config{StartAtOnce: true})
	g := lasting("g", 2, 1)
	g.Capabilities.Replaceable = false
	submit(t, a, 0, g)
	step(t, a, 0)
	require.NoError(t, a.Down(at(1), "n2"), "a spare's")
	require.Empty(t, step(t, a, 1))
	require.NoError(t, a.Down(at(2), "n1"))
	require.Equal(t, []string{"evict g lost"}, summary(step(t, a, 2)))
}

func TestASpareOnALostNodeIsOfNoUse(t *testing.T) {
	bothPlacers(t, 5, 1, func(t *testing.T, p cluster) {
		a := admission(t, p, gang.Config{StartAtOnce: true})
		submit(t, a, 0, lasting("g", 3, 1))
		got := step(t, a, 0)
		spare := got[0].Plan.Spares[0].Node
		require.NoError(t, a.Down(at(1), spare))
		require.NoError(t, a.Down(at(1), "n0"))
		got = step(t, a, 1)
		require.Equal(t, []string{"resize g lost"}, summary(got))
		require.NotContains(t, nodesOf(got[0].Plan.Members), spare)
	})
}

func TestALossBetweenStepsIsNotForgotten(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a := admission(t, p, gang.Config{StartAtOnce: true})
	submit(t, a, 0, lasting("g", 2, 0))
	step(t, a, 0)
	require.NoError(t, a.Down(at(1), "n0"))
	require.NoError(t, a.Cancel(at(1), "g"))
	require.Equal(t, []string{"evict g cancelled"}, summary(step(t, a, 1)), "once")
	require.NoError(t, a.Evicted(at(2), "g", 0))
	submit(t, a, 2, lasting("h", 2, 0))
	step(t, a, 2)
	require.NoError(t, a.Down(at(3), "n1"))
	var b bytes.Buffer
	require.NoError(t, a.Snapshot(&b))
	restored, err := gang.Restore(gang.Config{StartAtOnce: true, Placer: p.Clone()}, &b)
	require.NoError(t, err)
	require.Equal(t, []string{"resize h lost"}, summary(step(t, restored, 3)))
	require.NoError(t, a.Finish(at(3), "h", 0))
	require.Empty(t, step(t, a, 3))
	require.Empty(t, p.Jobs())
}

// A spare is no part of a hold's confirmations, and room that is lost before the start
// is exchanged whole.
func TestSparesAreKeptThroughHolds(t *testing.T) {
	bothPlacers(t, 5, 1, func(t *testing.T, p cluster) {
		a := admission(t, p, gang.Config{})
		submit(t, a, 0, lasting("g", 2, 1))
		x := step(t, a, 0)[0]
		require.Len(t, x.Plan.Spares, 1)
		require.NoError(t, a.Down(at(1), x.Plan.Spares[0].Node))
		y := step(t, a, 1)[0]
		require.Equal(t, lockstep.ActionReserve, y.Kind)
		require.Len(t, y.Plan.Spares, 1)
		require.NotEqual(t, x.Plan.Spares[0].Node, y.Plan.Spares[0].Node)
		require.Equal(t, x.Deadline, y.Deadline)
		confirmAll(t, a, 2, y)
		require.Equal(t, []string{"start g"}, summary(step(t, a, 2)))
		require.Len(t, p.Plan("g").Members, 2)
	})
}
