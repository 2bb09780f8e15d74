package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// listed is an Orderer that proposes a list.
type listed struct {
	list     []lockstep.JobID
	next     int
	outcomes []string
}

func (o *listed) Begin(time.Time) { o.next = 0 }

func (o *listed) Next() (lockstep.JobID, bool) {
	if o.next == len(o.list) {
		return "", false
	}
	o.next++
	return o.list[o.next-1], true
}

func (o *listed) Outcome(job lockstep.JobID, x lockstep.Outcome) {
	o.outcomes = append(o.outcomes, string(x)+" "+string(job))
}

// holder is a gang that bears to be stopped; with least it bears to shrink to it.
func holder(id lockstep.JobID, members, least int) *lockstep.Gang {
	g := plain(id, members, 0)
	g.Capabilities.Preemptible = true
	if least > 0 {
		g.Roles[0].Min, g.Roles[0].Max = least, members
		g.Capabilities.Resizable = true
	}
	return g
}

// boundary runs the holders, makes them due, submits the newcomers and returns
// what one Step decides.
func boundary(t *testing.T, p *placertest.Reference, order []lockstep.JobID, holders []*lockstep.Gang, due []lockstep.JobID, newcomers ...*lockstep.Gang) (*gang.Admission, *listed, []lockstep.Action) {
	t.Helper()
	o := &listed{}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
	for _, g := range holders {
		o.list = append(o.list, g.ID)
		require.NoError(t, a.Submit(at(0), g))
	}
	require.Len(t, step(t, a, 0), len(holders))
	o.list, o.outcomes = order, nil
	for _, id := range due {
		require.NoError(t, a.Due(at(10), id, 0))
	}
	for _, g := range newcomers {
		require.NoError(t, a.Submit(at(10), g))
	}
	return a, o, step(t, a, 10)
}

type ids = []lockstep.JobID

func TestADueHolderThatNobodyNeedsGoneStays(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	_, o, got := boundary(t, p, ids{"w", "h"}, []*lockstep.Gang{holder("h", 2, 0)}, ids{"h"}, plain("w", 2, 0))
	require.Equal(t, []string{"start w", "extend h"}, summary(got), "w has room beside h")
	require.Equal(t, []string{"granted w", "kept h"}, o.outcomes)
}

func TestADueHolderGivesWayToWhoIsProposedAhead(t *testing.T) { // H9
	p := placertest.NewReference(1, 2, 1, 0)
	a, o, got := boundary(t, p, ids{"w", "h"}, []*lockstep.Gang{holder("h", 2, 0)}, ids{"h"}, plain("w", 2, 0))
	require.Equal(t, []string{"evict h term"}, summary(got))
	require.Equal(t, lockstep.JobID("w"), got[0].Eviction.For)
	require.Equal(t, []string{"granted w", "blocked h"}, o.outcomes)
	require.Equal(t, gang.Awaiting, phase(a, "w"), "it owns the room, but h is still there")
	require.Equal(t, ids{"w"}, p.Jobs())
	o.list = ids{"h", "w"}
	require.Empty(t, step(t, a, 11), "nobody gets back ahead of whom they made room for")
	require.NoError(t, a.Evicted(at(15), "h", 0))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 15)))
	require.Equal(t, gang.Queued, phase(a, "h"))
}

func TestADueHolderProposedAheadStays(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	a, o, got := boundary(t, p, ids{"h", "w"}, []*lockstep.Gang{holder("h", 2, 0)}, ids{"h"}, plain("w", 2, 0))
	require.Equal(t, []string{"extend h"}, summary(got))
	require.Equal(t, []string{"kept h", "blocked w"}, o.outcomes)
	require.Equal(t, gang.Queued, phase(a, "w"))
}

func TestWhoCannotBearItStays(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	_, o, got := boundary(t, p, ids{"w", "h"}, []*lockstep.Gang{plain("h", 2, 0)}, ids{"h"}, plain("w", 2, 0))
	require.Equal(t, []string{"extend h"}, summary(got))
	require.Equal(t, []string{"blocked w", "kept h"}, o.outcomes)
}

func TestADueHolderShrinksInPlace(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a, _, got := boundary(t, p, ids{"w", "h"}, []*lockstep.Gang{holder("h", 4, 2)}, ids{"h"}, plain("w", 1, 0))
	require.Equal(t, []string{"resize h term"}, summary(got))
	require.Len(t, got[0].Plan.Members, 3)
	require.Equal(t, []int{3}, got[0].Eviction.Ranks, "the highest rank goes")
	require.Equal(t, lockstep.WholeGPU, got[0].Eviction.Cost.Devices)
	require.Equal(t, gang.Resizing, phase(a, "h"))
	require.NoError(t, a.Evicted(at(12), "h", 0))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 12)))
	require.Equal(t, gang.Running, phase(a, "h"))
}

func TestOneHolderOfTwoMovesTogether(t *testing.T) {
	// h1 on n0, h2 on n2: each rack is half free, w needs a whole one.
	p := placertest.NewReference(2, 2, 1, 0)
	o := &listed{}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
	block := plain("block", 1, 0)
	for _, g := range []*lockstep.Gang{holder("h1", 1, 0), block, holder("h2", 1, 0)} {
		require.NoError(t, a.Submit(at(0), g))
	}
	o.list = ids{"h1", "block", "h2"}
	step(t, a, 0)
	require.NoError(t, a.Finish(at(1), "block", 0))
	step(t, a, 1)
	s1, _ := a.State("h1")
	s2, _ := a.State("h2")
	require.Equal(t, "n0", string(s1.Plan.Members[0].Node))
	require.Equal(t, "n2", string(s2.Plan.Members[0].Node))

	w := plain("w", 2, 0)
	w.Required = placertest.Rack
	require.NoError(t, a.Submit(at(10), w))
	require.NoError(t, a.Due(at(10), "h1", 0))
	require.NoError(t, a.Due(at(10), "h2", 0))
	o.list, o.outcomes = ids{"w", "h1", "h2"}, nil
	got := step(t, a, 10)
	require.Equal(t, []string{"move h2 term", "extend h1"}, reorder(summary(got)))
	require.Equal(t, []string{"granted w", "kept h1", "kept h2"}, o.outcomes)
	require.Equal(t, gang.Moving, phase(a, "h2"))
	require.NoError(t, a.Evicted(at(12), "h2", 0))
	require.ElementsMatch(t, []string{"start h2", "start w"}, summary(step(t, a, 12)))
	s2, _ = a.State("h2")
	require.Equal(t, "n1", string(s2.Plan.Members[0].Node))
}

// reorder puts moves ahead, for comparing sets of decisions.
func reorder(list []string) []string {
	if len(list) == 2 && list[0] == "extend h1" {
		return []string{list[1], list[0]}
	}
	return list
}

func TestTheFewestHoldersGo(t *testing.T) { // H6, H8
	p := placertest.NewReference(1, 1, 11, 0)
	var holders []*lockstep.Gang
	var due ids
	for _, id := range []lockstep.JobID{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		holders = append(holders, holder(id, 1, 0))
		due = append(due, id)
	}
	_, _, got := boundary(t, p, append(ids{"w"}, due...), holders, due, plain("w", 1, 0))
	evicted := 0
	for _, x := range got {
		if x.Kind == lockstep.ActionEvict {
			evicted++
			require.Equal(t, lockstep.JobID("k"), x.Job, "the least deserving")
		}
	}
	require.Equal(t, 1, evicted)
	require.Len(t, got, 11)

	p = placertest.NewReference(2, 2, 1, 0) // n0 n1 | n2 n3, with low ones on n1 and n2
	o := &listed{list: ids{"x", "l1", "l2", "y"}}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
	for _, g := range []*lockstep.Gang{plain("x", 1, 0), holder("l1", 1, 0), holder("l2", 1, 0), plain("y", 1, 0)} {
		require.NoError(t, a.Submit(at(0), g))
	}
	step(t, a, 0)
	require.NoError(t, a.Finish(at(1), "x", 0))
	require.NoError(t, a.Finish(at(1), "y", 0))
	high := plain("high", 2, 0)
	high.Required = placertest.Rack
	require.NoError(t, a.Submit(at(2), high))
	require.NoError(t, a.Due(at(2), "l1", 0))
	require.NoError(t, a.Due(at(2), "l2", 0))
	o.list = ids{"high"}
	kinds := map[lockstep.ActionKind]int{}
	for _, x := range step(t, a, 2) {
		kinds[x.Kind]++
	}
	require.Equal(t, map[lockstep.ActionKind]int{lockstep.ActionExtend: 1, lockstep.ActionMove: 1}, kinds, "one only, and it finds the free node of the other rack")
}

func TestADomainFullOfDueHoldersIsACandidate(t *testing.T) { // H7
	p := placertest.NewReference(1, 4, 2, 0)
	w := plain("w", 4, 0)
	w.Required = placertest.Rack
	_, _, got := boundary(t, p, ids{"w"}, []*lockstep.Gang{holder("h1", 4, 0), holder("h2", 4, 0)}, ids{"h1", "h2"}, w)
	require.ElementsMatch(t, []string{"evict h2 term", "extend h1"}, summary(got))
}

func TestHoldersCompeteForQuotaToo(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	quota := newLedger(2)
	o := &listed{list: ids{"h"}}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true, Quota: quota})
	require.NoError(t, a.Submit(at(0), holder("h", 2, 0)))
	step(t, a, 0)
	require.NoError(t, a.Due(at(1), "h", 0))
	require.NoError(t, a.Submit(at(1), plain("w", 2, 0)))
	o.list = ids{"w", "h"}
	require.Equal(t, []string{"start w", "evict h quota"}, summary(step(t, a, 1)))
	require.Equal(t, 2, quota.used[""])
}

func TestADueHolderGrowsIntoRoomNobodyWantsAtTheBoundary(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	o := &listed{list: ids{"x", "h"}}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
	require.NoError(t, a.Submit(at(0), holder("h", 4, 2)))
	require.NoError(t, a.Submit(at(0), plain("x", 2, 0)))
	step(t, a, 0)
	require.NoError(t, a.Finish(at(1), "x", 0))
	require.NoError(t, a.Due(at(1), "h", 0))
	got := step(t, a, 1)
	require.Equal(t, []string{"extend h", "resize h term"}, summary(got))
	require.Len(t, got[1].Plan.Members, 4)
	require.Nil(t, got[1].Eviction)
	require.Equal(t, got[0].Plan.Members, got[1].Plan.Members[:2])
}

func TestAResizableHolderIsNotStoppedWhereItCanShrink(t *testing.T) {
	p := placertest.NewReference(1, 6, 1, 0)
	a, _, got := boundary(t, p, ids{"w"}, []*lockstep.Gang{holder("h1", 3, 1), holder("h2", 3, 1)}, ids{"h1", "h2"}, plain("w", 4, 0))
	require.ElementsMatch(t, []string{"resize h1 term", "resize h2 term"}, summary(got))
	require.Equal(t, gang.Awaiting, phase(a, "w"))
	s, _ := a.State("w")
	require.Equal(t, ids{"h1", "h2"}, s.Waits)
}
