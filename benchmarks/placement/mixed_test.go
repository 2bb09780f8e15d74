package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
)

func TestMixedKeepsItsBooks(t *testing.T) {
	m, err := newMixed(512, pendingNodes, 1)
	require.NoError(t, err)
	require.NoError(t, m.churn(2, 70))
	require.LessOrEqual(t, m.used, m.all*70/100)
	require.NoError(t, m.fill())
	for i := range 20 {
		require.Equal(t, m.all-m.used, m.state.Usage().Free)
		require.Equal(t, len(m.live), m.state.Usage().Jobs)
		require.Len(t, m.candidates.Jobs, len(m.live))
		for k := range m.live {
			require.Equal(t, m.live[k].gang.ID, m.candidates.Jobs[k].Job)
			require.Equal(t, k, m.index[m.live[k].gang.ID])
		}
		var out lockstep.Preempted
		gang := pending(lockstep.JobID(fmt.Sprint("pending-", i)))
		v, err := m.state.Victims(&lockstep.Request{Gang: gang}, &m.candidates, &out)
		require.NoError(t, err)
		require.True(t, v.Feasible)
		require.NotEmpty(t, out.Evictions, "the cluster is full")
		require.NoError(t, m.evict(&out))
		require.NoError(t, m.end(m.index[gang.ID]))
		require.NoError(t, m.fill())
		m.reprice()
	}
}

func TestGreedyLeavesTheClusterAsItWas(t *testing.T) {
	for seed := range uint64(4) {
		m, err := newMixed(512, pendingNodes, seed)
		require.NoError(t, err)
		require.NoError(t, m.churn(2, movesFill))
		goal := m.goal()
		var before, after bytes.Buffer
		require.NoError(t, m.state.Snapshot(&before))
		for _, r := range rules() {
			n, err := m.greedy(goal.Request, r.order)
			require.NoError(t, err)
			require.NotZero(t, n)
		}
		_, _, err = m.repack(goal, newMeter())
		require.NoError(t, err)
		require.NoError(t, m.state.Snapshot(&after))
		require.Equal(t, before.String(), after.String())
	}
}

func TestExactSearchFindsWhatIsThere(t *testing.T) {
	// The wanted gang needs all four nodes of a rack; in two racks two gangs of one device
	// are in the way, in the third only one.
	r := &riddle{wanted: small{members: 4, gpus: 2, rack: true}}
	for x := range r.free {
		r.free[x] = smallDevices
	}
	for _, x := range []int{0, 1, 4, 8, 9} {
		j := small{members: 1, gpus: 1}
		j.at[x] = 1
		r.free = less(r.free, &j)
		r.jobs = append(r.jobs, j)
	}
	require.Equal(t, 1, r.least(), "the only one in its rack moves")
	r.jobs[2].members, r.jobs[2].at[5] = 2, 1
	r.free[5]--
	require.Equal(t, 1, r.least(), "of two members now, which may part")
	got, err := r.repack()
	require.NoError(t, err)
	require.Equal(t, 1, got)

	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		r := newRiddle(rng)
		_, _, err := r.state() // whose Adopt refuses what does not fit
		require.NoError(t, err)
	}
}

func TestCopiesHoldWhatTheOriginalDoes(t *testing.T) {
	tree, nodes, err := newSharedTree(64)
	require.NoError(t, err)
	cfg := placement.Config{Nodes: nodes, RankAll: true}
	state, err := placement.New(tree, cfg)
	require.NoError(t, err)
	c := newSharers(state, 64, 1)
	require.Len(t, c.tasks, 35)
	require.InDelta(t, 0.42, c.partly(), 0.03, "two in five take part of a device")
	require.NoError(t, c.warm(2*c.most))
	d, err := c.copied(64, 3, placement.Config{RankAll: true})
	require.NoError(t, err)
	require.Len(t, d.live, 3*len(c.live))
	require.Equal(t, 3*c.held, d.held)
	require.Equal(t, 3*c.state.Usage().Shared, d.state.Usage().Shared)
	require.Equal(t, 3*c.state.Usage().Free, d.state.Usage().Free)
	require.NoError(t, d.warm(d.most/10))
}

func TestReclaimTakesAllOfTheNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second or two: left out of short tests")
	}
	b, err := harness.New("placement", []string{"-quick"}, new(bytes.Buffer), nil)
	require.NoError(t, err)
	p := &program{Bench: b, meter: newMeter(), release: random, fill: 70}
	for _, rebuild := range []bool{false, true} {
		evictions := 0
		f, err := p.reclaimed(reclaimed{nodes: 20, members: 3}, rebuild, &evictions)
		require.NoError(t, err)
		require.Equal(t, 24, evictions)
		require.Positive(t, f.p50)
	}
	f, found, memory, err := p.victims(512)
	require.NoError(t, err)
	require.Positive(t, f.p50Ref)
	require.Positive(t, memory)
	require.Equal(t, f.count, found.decisions)
}
