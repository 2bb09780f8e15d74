package placement

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// puzzle is a small full cluster in which a gang does not fit.
type puzzle struct {
	t     *testing.T
	s     *State
	goal  Goal
	costs map[lockstep.JobID]int64
}

// newPuzzle makes racks of up to 12 nodes with few devices, and gangs of one role on
// them by chance.
func newPuzzle(t *testing.T, seed uint64) *puzzle {
	rng := rand.New(rand.NewPCG(seed, 77))
	devices := 1 << rng.IntN(3)
	shape, err := topology.UniformShape(devices, topology.NVLink(1))
	require.NoError(t, err)
	var nodes []topology.Node
	for r := range 1 + rng.IntN(4) {
		for range 1 + rng.IntN(3) {
			nodes = append(nodes, topology.Node{ID: lockstep.NodeID(fmt.Sprint("n", len(nodes))), Path: []string{fmt.Sprint("r", r)}, Shape: shape})
		}
	}
	p := &puzzle{t: t, s: stateOf(t, nodes, Config{}), costs: map[lockstep.JobID]int64{}}
	levels := []lockstep.Level{"", "rack", "rack", lockstep.LevelNode}
	for i := range 2 + rng.IntN(6) {
		g := gangOf(lockstep.JobID(fmt.Sprint("j", i)), 1+rng.IntN(3), 1+rng.IntN(devices))
		g.Required = levels[rng.IntN(len(levels))]
		plan, ok := p.anywhere(rng, g)
		if !ok || p.s.Adopt(plan) != nil {
			continue
		}
		if rng.IntN(5) > 0 {
			cost := lockstep.EvictionCost{Lost: time.Duration(rng.IntN(4)), Devices: 1000}
			p.goal.Jobs = append(p.goal.Jobs, Movable{Job: g.ID, Cost: cost})
			p.costs[g.ID] = cost.Total()
		}
	}
	g := gangOf("wanted", 1+rng.IntN(4), 1+rng.IntN(devices))
	g.Required = levels[rng.IntN(3)]
	p.goal.Request = &lockstep.Request{Gang: g}
	p.goal.MaxMoves = 3
	return p
}

// anywhere seats a gang on random nodes.
func (p *puzzle) anywhere(rng *rand.Rand, g *lockstep.Gang) (*lockstep.Plan, bool) {
	var ways [][]int
	p.seatings(g, func(counts []int) bool {
		ways = append(ways, slices.Clone(counts))
		return false
	})
	if len(ways) == 0 {
		return nil, false
	}
	return p.planAs(g, ways[rng.IntN(len(ways))]), true
}

// seatings yields every way to seat a gang on what is free, by members on each slot.
func (p *puzzle) seatings(g *lockstep.Gang, yield func([]int) bool) bool {
	s := p.s
	counts := make([]int, len(s.slots))
	stop := 0
	if g.Required != "" {
		stop, _ = s.tree.LevelIndex(g.Required)
	}
	var seat func(x, end int32, n int) bool
	seat = func(x, end int32, n int) bool {
		if n == 0 {
			return yield(counts)
		}
		if x == end {
			return false
		}
		for k := 0; k <= min(n, s.slots[x].free.Len()/g.Roles[0].Demand.GPUs); k++ {
			counts[x] = k
			if seat(x+1, end, n-k) {
				return true
			}
			counts[x] = 0
		}
		return false
	}
	for d := range s.tree.Domains(stop) {
		first, end := s.tree.Range(stop, int32(d))
		if seat(first, end, g.Roles[0].Min) {
			return true
		}
	}
	return false
}

// planAs makes a plan with so many members on each slot.
func (p *puzzle) planAs(g *lockstep.Gang, counts []int) *lockstep.Plan {
	plan := &lockstep.Plan{Job: g.ID, Gang: g}
	for x, n := range counts {
		free := p.s.slots[x].free
		for range n {
			set := lockstep.DeviceSet(0)
			for range g.Roles[0].Demand.GPUs {
				set |= free & -free
				free &= free - 1
			}
			plan.Members = append(plan.Members, lockstep.Member{Node: p.s.ids[x], Devices: set})
		}
	}
	return plan
}

// solvable tries every sequence of moves of the jobs of a set, each once.
func (p *puzzle) solvable(set []lockstep.JobID) bool {
	if len(set) == 0 {
		var plan lockstep.Plan
		v, err := p.s.Fit(p.goal.Request, &plan)
		require.NoError(p.t, err)
		return v.Feasible
	}
	for i, id := range set {
		rest := slices.Delete(slices.Clone(set), i, i+1)
		mark := p.s.Mark()
		g := p.s.jobs[p.s.byID[id]].gang
		require.NoError(p.t, p.s.Release(id))
		found := p.seatings(g, func(counts []int) bool {
			inner := p.s.Mark()
			require.NoError(p.t, p.s.Adopt(p.planAs(g, counts)))
			ok := p.solvable(rest)
			require.NoError(p.t, p.s.Rollback(inner))
			return ok
		})
		require.NoError(p.t, p.s.Rollback(mark))
		if found {
			return true
		}
	}
	return false
}

// shuffle is a set of jobs that move.
type shuffle struct {
	cost int64
	ids  []lockstep.JobID
}

// best returns the best set of at most three jobs that do, by trying all.
func (p *puzzle) best() (shuffle, bool) {
	var sets []shuffle
	jobs := slices.Clone(p.goal.Jobs)
	slices.SortFunc(jobs, func(a, b Movable) int { return cmp.Compare(a.Job, b.Job) })
	for mask := 1; mask < 1<<len(jobs); mask++ {
		var o shuffle
		for i := range jobs {
			if mask>>i&1 != 0 {
				o.ids = append(o.ids, jobs[i].Job)
				o.cost += jobs[i].Cost.Total()
			}
		}
		if len(o.ids) <= p.goal.MaxMoves {
			sets = append(sets, o)
		}
	}
	slices.SortFunc(sets, func(a, b shuffle) int { return cmp.Or(len(a.ids)-len(b.ids), cmp.Compare(a.cost, b.cost)) })
	for _, o := range sets {
		if p.solvable(o.ids) {
			return o, true
		}
	}
	return shuffle{}, false
}

func TestRepackEqualsExactSearch(t *testing.T) {
	cases := 400
	if testing.Short() {
		cases = 60
	}
	found, without := 0, 0
	var count [4]int
	for seed := uint64(0); found+without < cases; seed++ {
		p := newPuzzle(t, seed)
		wanted := p.goal.Request.Gang.Roles[0].Min * p.goal.Request.Gang.Roles[0].Demand.GPUs
		if len(p.goal.Jobs) == 0 || len(p.goal.Jobs) > 6 || p.s.Usage().Free < wanted || p.solvable(nil) {
			continue
		}
		before := bytesOf(t, p.s)
		var out Moves
		v, err := p.s.Repack(&p.goal, &out)
		require.NoError(t, err)
		require.Equal(t, before, bytesOf(t, p.s))
		require.NoError(t, p.s.verify())
		want, ok := p.best()
		require.Equal(t, ok, v.Feasible, "seed %d: want %v", seed, want)
		if !ok {
			without++
			require.Empty(t, out.Moves)
			continue
		}
		found++
		count[len(out.Moves)]++
		require.True(t, out.Exact)
		require.Len(t, out.Moves, len(want.ids), "seed %d: want %v", seed, want)
		cost := int64(0)
		for i := range out.Moves {
			cost += p.costs[out.Moves[i].Job]
		}
		require.Equal(t, want.cost, cost, "seed %d", seed)
		p.play(&out)
	}
	t.Logf("%d found (by moves: %v), %d have no way", found, count[1:], without)
	require.Greater(t, found, cases/4)
	require.Greater(t, count[2], cases/40)
}

// play makes the moves one by one and then seats the gang.
func (p *puzzle) play(out *Moves) {
	var held lockstep.Plan
	for i := range out.Moves {
		m := &out.Moves[i]
		require.True(p.t, p.s.Plan(m.Job, &held))
		require.Equal(p.t, held.Members, m.From.Members)
		require.NotEqual(p.t, m.From.Members, m.To.Members)
		require.NotEmpty(p.t, m.Domain)
		require.NoError(p.t, p.s.Exchange(&m.To))
		require.NoError(p.t, p.s.verify())
	}
	require.NoError(p.t, p.s.Adopt(&out.Plan))
	require.NoError(p.t, p.s.verify())
}

// TestRepackFreesTheEasiestDomain frees a node or a rack: no other one has fewer jobs
// that all find another place by themselves.
func TestRepackFreesTheEasiestDomain(t *testing.T) {
	cases := 600
	if testing.Short() {
		cases = 150
	}
	found, exact, none := 0, 0, 0
	for seed := range uint64(cases) {
		p := newPuzzle(t, seed)
		goal := Goal{Level: []lockstep.Level{lockstep.LevelNode, "rack"}[seed%2], Jobs: p.goal.Jobs, MaxMoves: 3}
		before := bytesOf(t, p.s)
		var out Moves
		v, err := p.s.Repack(&goal, &out)
		require.NoError(t, err)
		require.Equal(t, before, bytesOf(t, p.s))
		level, _ := p.s.tree.LevelIndex(goal.Level)
		least := 1 << 30 // jobs in a domain in which all may move
		for d := range p.s.tree.Domains(level) {
			jobs := p.inside(level, int32(d))
			if !slices.ContainsFunc(jobs, func(id lockstep.JobID) bool { _, ok := p.costs[id]; return !ok }) {
				least = min(least, len(jobs))
			}
		}
		if !v.Feasible {
			require.Empty(t, out.Moves)
			none++
			continue
		}
		found++
		require.GreaterOrEqual(t, len(out.Moves), least)
		if out.Exact {
			exact++
			require.Len(t, out.Moves, least)
		}
		for i := range out.Moves {
			require.NoError(t, p.s.Exchange(&out.Moves[i].To))
		}
		require.NoError(t, p.s.verify())
		d := -1
		for i := range p.s.tree.Domains(level) {
			if p.s.tree.DomainName(level, int32(i)) == v.Domain {
				d = i
			}
		}
		require.Empty(t, p.inside(level, int32(d)))
	}
	t.Logf("%d freed, %d of them proved best, %d not", found, exact, none)
	require.Greater(t, found, cases/4)
}

// inside returns the jobs with members in a domain.
func (p *puzzle) inside(level int, d int32) (ids []lockstep.JobID) {
	first, end := p.s.tree.Range(level, d)
	for x := first; x < end; x++ {
		ids = append(ids, p.s.jobsAt(p.s.slots[x].head)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestRepackRefuses(t *testing.T) {
	s := stateOf(t, racks(2), Config{})
	s.sit(t, "a", "n0")
	r := &lockstep.Request{Gang: gangOf("g", 1, 8)}
	for _, o := range []struct {
		goal *Goal
		kind error
	}{
		{nil, lockstep.ErrInvalid},
		{&Goal{}, lockstep.ErrInvalid},
		{&Goal{Request: r, Level: "rack"}, lockstep.ErrInvalid},
		{&Goal{Request: r, MaxMoves: -1}, lockstep.ErrInvalid},
		{&Goal{Level: "row"}, lockstep.ErrUnknown},
		{&Goal{Request: r, Jobs: []Movable{{Job: "x"}}}, lockstep.ErrUnknown},
		{&Goal{Request: r, Jobs: []Movable{{Job: "a"}, {Job: "a"}}}, lockstep.ErrDuplicate},
		{&Goal{Request: r, Jobs: []Movable{{Job: "a", Cost: lockstep.EvictionCost{Lost: -1}}}}, lockstep.ErrInvalid},
	} {
		var out Moves
		_, err := s.Repack(o.goal, &out)
		require.ErrorIs(t, err, o.kind)
	}
	_, err := s.Repack(&Goal{Request: r}, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}
