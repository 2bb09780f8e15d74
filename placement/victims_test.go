package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

func TestVictimsRefuse(t *testing.T) {
	s := stateOf(t, racks(2), Config{})
	s.sit(t, "a", "n0")
	r := &lockstep.Request{Gang: gangOf("g", 2, 8)}
	before := bytesOf(t, s)
	a := lockstep.Candidate{Job: "a"}
	with := func(change func(o *lockstep.Candidate)) *lockstep.Candidates {
		o := a
		change(&o)
		return &lockstep.Candidates{Jobs: []lockstep.Candidate{o}}
	}
	for i, o := range []struct {
		c    *lockstep.Candidates
		kind error
	}{
		{&lockstep.Candidates{Jobs: []lockstep.Candidate{{Job: "x"}}}, lockstep.ErrUnknown},
		{&lockstep.Candidates{Jobs: []lockstep.Candidate{a, a}}, lockstep.ErrDuplicate},
		{&lockstep.Candidates{Jobs: []lockstep.Candidate{a}, Max: -1}, lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Cost.Lost = -1 }), lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Shrink.Devices = -1 }), lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Min = []int{1, 1} }), lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Min = []int{-1} }), lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Limits = []int32{0} }), lockstep.ErrInvalid},
		{with(func(o *lockstep.Candidate) { o.Limits = []int32{-1} }), lockstep.ErrInvalid},
	} {
		out := lockstep.Preempted{Evictions: []lockstep.Eviction{{Job: "old"}}}
		_, err := s.Victims(r, o.c, &out)
		require.ErrorIs(t, err, o.kind, fmt.Sprint(i))
		require.Empty(t, out.Evictions)
	}
	_, err := s.Victims(r, nil, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = s.Victims(nil, nil, &lockstep.Preempted{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = s.Victims(&lockstep.Request{Gang: gangOf("a", 2, 8)}, &lockstep.Candidates{Jobs: []lockstep.Candidate{a}}, &lockstep.Preempted{})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "it cannot make room for itself")
	_, err = new(State).Victims(r, nil, &lockstep.Preempted{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, before, bytesOf(t, s))

	var out lockstep.Preempted
	v, err := s.Victims(r, nil, &out)
	require.NoError(t, err)
	require.False(t, v.Feasible, "nobody may go")
	v, err = s.Victims(&lockstep.Request{Gang: gangOf("g", 1, 8)}, &lockstep.Candidates{Jobs: []lockstep.Candidate{a}}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible && out.Exact)
	require.Empty(t, out.Evictions, "nobody need go")
	require.Equal(t, "n1", nodesIn(out.Plan.Members))
}

// TestTiersComeBeforeCost takes three cheap jobs of the lower tier rather than one of the
// higher that costs nothing.
func TestTiersComeBeforeCost(t *testing.T) {
	s := stateOf(t, racks(3, 3), Config{})
	for i := range 3 {
		s.sit(t, lockstep.JobID(fmt.Sprint("low-", i)), lockstep.NodeID(fmt.Sprint("n", i)))
	}
	s.sit(t, "high", "n3", "n4", "n5")
	g := gangOf("g", 3, 8)
	g.Required = "rack"
	c := candidatesOf(s)
	for i := range c.Jobs {
		if c.Jobs[i].Job != "high" {
			c.Jobs[i].Cost = lockstep.EvictionCost{Lost: time.Hour, Devices: 8000}
		} else {
			c.Jobs[i].Tier = 1
		}
	}
	require.Len(t, s.mustEvict(t, &lockstep.Request{Gang: g}, c).Evictions, 3)
	c.Max = 2
	out := s.mustEvict(t, &lockstep.Request{Gang: g}, c)
	require.Len(t, out.Evictions, 1)
	require.Equal(t, lockstep.JobID("high"), out.Evictions[0].Job)
	require.Equal(t, lockstep.JobID("g"), out.Evictions[0].For)
	require.Equal(t, ReasonPreempted, out.Evictions[0].Reason)

	c.Max = 0
	c.Limits = []lockstep.Resources{{lockstep.ResourceGPU: 16_000}}
	for i := range c.Jobs {
		c.Jobs[i].Limits = []int32{0}
	}
	v, err := s.Victims(&lockstep.Request{Gang: g}, c, out)
	require.NoError(t, err)
	require.False(t, v.Feasible, "no more than two nodes may be taken")
}

// TestOrderOfCandidatesDoesNotMatter permutes them.
func TestOrderOfCandidatesDoesNotMatter(t *testing.T) {
	s, c := packed(t, 1_000, 2, 16)
	g := gangOf("big", 64, 8)
	g.Required = "block"
	want := s.mustEvict(t, &lockstep.Request{Gang: g}, c)
	require.Greater(t, len(want.Evictions), 1)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		rng.Shuffle(len(c.Jobs), func(i, k int) { c.Jobs[i], c.Jobs[k] = c.Jobs[k], c.Jobs[i] })
		var got lockstep.Preempted
		_, err := s.Victims(&lockstep.Request{Gang: g}, c, &got)
		require.NoError(t, err)
		require.Equal(t, want.Plan.Members, got.Plan.Members)
		require.Equal(t, want.Exact, got.Exact)
		require.True(t, slices.EqualFunc(want.Evictions, got.Evictions, func(a, b lockstep.Eviction) bool {
			return a.Job == b.Job && slices.Equal(a.Ranks, b.Ranks)
		}))
	}
}

func TestVictimsAllocateNothing(t *testing.T) {
	for _, most := range []int{0, 16} {
		s, c := packed(t, 1_000, 2, most)
		c.Limits = []lockstep.Resources{{lockstep.ResourceGPU: 1 << 40, lockstep.ResourceSlots: 1 << 20}}
		for i := range c.Jobs {
			c.Jobs[i].Limits = []int32{0}
		}
		g := gangOf("big", 64, 8)
		g.Required = "block"
		r := &lockstep.Request{Gang: g}
		var out lockstep.Preempted
		ask := func() {
			if v, err := s.Victims(r, c, &out); err != nil || !v.Feasible || len(out.Evictions) == 0 {
				t.Fatal(v, err)
			}
		}
		ask()
		ask()
		require.Zero(t, testing.AllocsPerRun(10, ask), "jobs of %d nodes", most)
	}
}

// TestManyVictimsAreAsCheapAsTheySum asks with so many candidates that they are not
// tried one by one: the set costs what the cheapest nodes do together.
func TestManyVictimsAreAsCheapAsTheySum(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s := stateOf(t, racks(40), Config{})
		c := &lockstep.Candidates{}
		var costs []int64 // by node: of all its jobs
		for x := range s.slots {
			sum := int64(0)
			for free := lockstep.DeviceSet(0xff); free != 0; {
				set := lockstep.DeviceSet(0)
				for range min(1+rng.IntN(8), free.Len()) {
					set |= free & -free
					free &= free - 1
				}
				id := lockstep.JobID(fmt.Sprintf("j%02d-%s", x, set))
				s.sitOn(t, id, int32(x), set)
				cost := lockstep.EvictionCost{Lost: time.Duration(1 + rng.IntN(1000)), Devices: lockstep.MilliGPU(1000 * set.Len())}
				sum += cost.Total()
				c.Jobs = append(c.Jobs, lockstep.Candidate{Job: id, Cost: cost})
			}
			costs = append(costs, sum)
		}
		n := 1 + rng.IntN(30)
		slices.Sort(costs)
		want := int64(0)
		for _, cost := range costs[:n] {
			want += cost
		}
		out := s.mustEvict(t, &lockstep.Request{Gang: gangOf("g", n, 8)}, c)
		got := int64(0)
		for i := range out.Evictions {
			got += out.Evictions[i].Cost.Total()
		}
		require.True(t, out.Exact)
		require.Equal(t, want, got)
	}
}
