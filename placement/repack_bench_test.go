package placement

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// churned returns a cluster of 1,024 nodes in 4 blocks, 85 % full after many gangs of
// 1 to most nodes (a power of two) have come and gone, some of a few devices each.
func churned(tb testing.TB, seed uint64, most int) *State {
	s, err := New(benchTree(tb, 1_000), Config{})
	require.NoError(tb, err)
	rng := rand.New(rand.NewPCG(85, seed))
	total := s.Usage().Devices
	used, serial := 0, 0
	var held []*lockstep.Gang
	var plan lockstep.Plan
	for turned := 0; turned < 4*total; {
		g := gangOf(lockstep.JobID(fmt.Sprint("j", serial)), 1<<rng.IntN(bits.Len(uint(most))), 8)
		serial++
		g.Required = "block"
		if g.Roles[0].Min <= 16 {
			g.Required = "rack"
		}
		if rng.IntN(4) == 0 {
			g.Roles[0].Min, g.Roles[0].Demand.GPUs = 1+rng.IntN(4), 1<<rng.IntN(3)
		}
		size := g.Roles[0].Min * g.Roles[0].Demand.GPUs
		v, err := s.Fit(&lockstep.Request{Gang: g}, &plan)
		require.NoError(tb, err)
		if v.Feasible {
			require.NoError(tb, s.Apply(&plan))
			held = append(held, g)
			used += size
		}
		turned += size
		for used > total*85/100 {
			i := rng.IntN(len(held))
			old := held[i]
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			require.NoError(tb, s.Release(old.ID))
			used -= old.Roles[0].Min * old.Roles[0].Demand.GPUs
		}
	}
	return s
}

// goalOf wants a gang of 64 whole nodes in one block; every job may move.
func goalOf(s *State) *Goal {
	g := gangOf("wanted", 64, 8)
	g.Required = "block"
	goal := &Goal{Request: &lockstep.Request{Gang: g}, MaxMoves: 64}
	for _, id := range s.Jobs() {
		devices := lockstep.MilliGPU(8000 * len(s.jobs[s.byID[id]].seats))
		goal.Jobs = append(goal.Jobs, Movable{Job: id, Cost: lockstep.EvictionCost{Lost: time.Minute, Devices: devices}})
	}
	return goal
}

// greedyMoves is the baseline: the domains with most free room first, and in each the
// jobs in an order, one by one to where Fit puts them outside of it, until the gang fits;
// jobs without such a place are passed over. It returns how many moved, or -1.
func greedyMoves(tb testing.TB, s *State, goal *Goal, order func(a, b int) int) int {
	level, _ := s.tree.LevelIndex(goal.Request.Gang.Required)
	free := make([]int, s.tree.Domains(level))
	for x := range s.slots {
		if s.slots[x].free == s.slots[x].all {
			free[s.tree.DomainOf(level, int32(x))]++
		}
	}
	domains := make([]int32, len(free))
	for d := range domains {
		domains[d] = int32(d)
	}
	slices.SortFunc(domains, func(a, b int32) int { return cmp.Or(free[b]-free[a], int(a-b)) })
	for _, d := range domains {
		mark := s.Mark()
		if n := s.greedyIn(tb, goal, level, d, order); n >= 0 {
			require.NoError(tb, s.Rollback(mark))
			return n
		}
		require.NoError(tb, s.Rollback(mark))
	}
	return -1
}

func (s *State) greedyIn(tb testing.TB, goal *Goal, level int, d int32, order func(a, b int) int) int {
	var ids []lockstep.JobID
	first, end := s.tree.Range(level, d)
	var outside []lockstep.NodeID
	for x := range s.slots {
		if int32(x) >= first && int32(x) < end {
			ids = append(ids, s.jobsAt(s.slots[x].head)...)
			outside = append(outside, s.ids[x])
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	members := map[lockstep.JobID]int{}
	for _, id := range ids {
		members[id] = len(s.jobs[s.byID[id]].seats)
	}
	slices.SortStableFunc(ids, func(a, b lockstep.JobID) int { return order(members[a], members[b]) })
	moves := 0
	var plan lockstep.Plan
	for {
		v, err := s.Fit(goal.Request, &plan)
		require.NoError(tb, err)
		if v.Feasible {
			return moves
		}
		moved := false
		for len(ids) > 0 && !moved {
			id := ids[0]
			ids = ids[1:]
			g := s.jobs[s.byID[id]].gang
			v, err := s.Fit(&lockstep.Request{Gang: g, Exclude: outside}, &plan)
			require.NoError(tb, err)
			if v.Feasible {
				require.NoError(tb, s.Exchange(&plan))
				moved = true
				moves++
			}
		}
		if !moved {
			return -1
		}
	}
}

// TestRepackMovesLessThanGreedy compares the moves over seeds in which both find a way.
func TestRepackMovesLessThanGreedy(t *testing.T) {
	for _, most := range []int{64, 16} {
		t.Run(fmt.Sprintf("gangs of 1 to %d nodes", most), func(t *testing.T) { repackAgainstGreedy(t, most) })
	}
}

func repackAgainstGreedy(t *testing.T, most int) {
	seeds := 100
	if testing.Short() {
		seeds = 3
	}
	orders := []struct {
		name  string
		order func(a, b int) int
		logs  float64
		both  int
		only  int
		lost  int
		moves int
	}{
		{name: "smallest first", order: func(a, b int) int { return a - b }},
		{name: "largest first", order: func(a, b int) int { return b - a }},
		{name: "by name", order: func(a, b int) int { return 0 }},
	}
	ours, done := 0, 0
	for seed := uint64(0); done < seeds; seed++ {
		s := churned(t, seed, most)
		goal := goalOf(s)
		var out Moves
		v, err := s.Fit(goal.Request, &out.Plan)
		require.NoError(t, err)
		if v.Feasible {
			continue
		}
		done++
		v, err = s.Repack(goal, &out)
		require.NoError(t, err)
		if v.Feasible {
			ours += len(out.Moves)
		}
		for i := range orders {
			o := &orders[i]
			n := greedyMoves(t, s, goal, o.order)
			switch {
			case v.Feasible && n > 0:
				o.logs += math.Log(float64(len(out.Moves)) / float64(n))
				o.moves += n
				o.both++
			case v.Feasible:
				o.only++
			case n > 0:
				o.lost++
			}
		}
		if v.Feasible {
			(&puzzle{t: t, s: s, goal: *goal}).play(&out)
		}
	}
	t.Logf("Repack: %d moves over %d seeds", ours, done)
	for i := range orders {
		o := &orders[i]
		t.Logf("greedy, %s: %d moves; geometric mean of Repack's over its %.2f in %d seeds; only Repack solves %d, only greedy %d",
			o.name, o.moves, math.Exp(o.logs/float64(o.both)), o.both, o.only, o.lost)
		require.Zero(t, o.lost)
	}
	require.LessOrEqual(t, math.Exp(orders[0].logs/float64(orders[0].both)), 0.8)
}

func BenchmarkRepack(b *testing.B) {
	var states []*State
	for seed := uint64(0); len(states) < 8; seed++ {
		s := churned(b, seed, 64)
		var plan lockstep.Plan
		if v, _ := s.Fit(goalOf(s).Request, &plan); !v.Feasible {
			states = append(states, s)
		}
	}
	n := 0
	for b.Loop() {
		s := states[n%len(states)]
		n++
		var out Moves
		if _, err := s.Repack(goalOf(s), &out); err != nil {
			b.Fatal(err)
		}
	}
}
