package placement

import (
	"maps"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// legal checks a plan against the reference by the rules alone: room, wishes,
// required level and inner groups.
func (p *plainState) legal(t *testing.T, r *lockstep.Request, members []lockstep.Member) {
	g := r.Gang
	f := &plainFit{plainState: p, left: p.left(r.Busy), exclude: map[lockstep.NodeID]bool{}, gang: g, worst: 32, allowed: map[*lockstep.Role][]int8{}}
	for _, id := range r.Exclude {
		f.exclude[id] = true
	}
	stop := 0
	if g.Required != "" {
		stop, _ = p.tree.LevelIndex(g.Required)
	}
	first := int32(-1)
	count := make([]int, len(g.Roles))
	group := make([]int32, len(g.Roles))
	for _, m := range members {
		role := &g.Roles[m.Role]
		x, ok := p.tree.Slot(m.Node)
		require.True(t, ok)
		require.True(t, f.may(x, role), "node %s is not allowed", m.Node)
		n := &f.left[x]
		require.Equal(t, role.Demand.GPUs, m.Devices.Len())
		if !parted(&role.Demand) {
			require.Zero(t, m.Devices&^(n.free&^n.apart))
		}
		for i := range m.Devices.All {
			if parted(&role.Demand) {
				require.Contains(t, f.devicesFor(x, &role.Demand), i)
			}
			if role.Demand.Profile != "" {
				g := f.mig.of(n.mig)
				k, _ := g.Lookup(role.Demand.Profile)
				require.True(t, g.Starts(n.devices[i].held, k).Has(int(m.Start)))
			}
		}
		n.take(m.Devices, int(m.Start), &role.Demand, f.mig)
		for i := range m.Devices.All {
			require.LessOrEqual(t, n.devices[i].milli, 1000)
			require.True(t, role.Demand.Share%1000 == 0 || role.Demand.GPUMemory == 0 || n.devices[i].memory <= n.memoryEach)
		}
		require.GreaterOrEqual(t, n.slots, 0)
		require.True(t, n.cpu >= 0 || role.Demand.CPU == 0)
		require.True(t, n.rdma >= 0 || role.Demand.RDMA == 0)
		if first < 0 {
			first = p.tree.DomainOf(stop, x)
		}
		require.Equal(t, first, p.tree.DomainOf(stop, x), "outside the required domain")
		inner, size := f.innerOf(role)
		if count[m.Role]%size == 0 {
			group[m.Role] = p.tree.DomainOf(inner, x)
		}
		require.Equal(t, group[m.Role], p.tree.DomainOf(inner, x), "inner group torn")
		count[m.Role]++
	}
}

// TestPreferKeepsWhatMayStay holds the promise of Request.Prefer: as many
// members as without, a legal plan, and no move at all where none is needed.
func TestPreferKeepsWhatMayStay(t *testing.T) {
	sequences := 5_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	whole := 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 8 {
			w.step()
		}
		ids := slices.Sorted(maps.Keys(w.ref.jobs))
		if len(ids) == 0 {
			continue
		}
		old := w.ref.jobs[ids[w.rng.IntN(len(ids))]]
		mark := w.s.Mark()
		require.NoError(t, w.s.Release(old.Job))
		delete(w.ref.jobs, old.Job)
		whole += w.stays(old)
		if id := w.anyNode(); id != "" {
			w.flag(id)
		}
		w.fit(w.request())
		whole += w.stays(old)
		require.NoError(t, w.s.Rollback(mark))
	}
	require.Greater(t, whole, sequences/20)
}

// stays asks for a gang again, preferring where it was, and returns 1 where it
// stays whole.
func (w *world) stays(old *lockstep.Plan) int {
	r := &lockstep.Request{Gang: old.Gang}
	fresh, err := w.s.Fit(r, &w.plan)
	require.NoError(w.t, err)
	counts := w.plan.AppendCounts(nil, len(old.Gang.Roles))
	r.Prefer = old
	verdict, err := w.s.Fit(r, &w.plan)
	require.NoError(w.t, err)
	require.Equal(w.t, fresh.Feasible, verdict.Feasible)
	require.Equal(w.t, counts, w.plan.AppendCounts(nil, len(old.Gang.Roles)))
	w.ref.legal(w.t, r, w.plan.Members)
	if !slices.Equal(w.plan.Members, old.Members) {
		return 0
	}
	return 1
}

func TestPreferReplacesOnlyTheLostNode(t *testing.T) {
	s, err := New(benchTree(t, 256), Config{})
	require.NoError(t, err)
	g := &lockstep.Gang{ID: "j", Required: "block", Roles: []lockstep.Role{{Min: 20, Demand: lockstep.Demand{GPUs: 8}}}}
	var before, after lockstep.Plan
	_, err = s.Fit(&lockstep.Request{Gang: g}, &before)
	require.NoError(t, err)
	require.NoError(t, s.SetHealth(before.Members[7].Node, false))
	v, err := s.Fit(&lockstep.Request{Gang: g, Prefer: &before}, &after)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	for rank := range before.Members {
		if rank == 7 {
			require.NotEqual(t, before.Members[rank].Node, after.Members[rank].Node)
			continue
		}
		require.Equal(t, before.Members[rank], after.Members[rank])
	}
}

// TestPreferMendsTornGroups prefers a place in which one inner group sits in two
// racks: that group moves, the whole one stays.
func TestPreferMendsTornGroups(t *testing.T) {
	s := stateOf(t, nodesOf(8), Config{})
	g := gangOf("g", 4, 8)
	g.Roles[0].Inner = lockstep.Inner{Size: 2, Level: "rack"}
	prefer := &lockstep.Plan{Job: "g", Gang: g}
	for _, id := range []lockstep.NodeID{"n0", "n2", "n6", "n7"} {
		prefer.Members = append(prefer.Members, lockstep.Member{Node: id, Devices: 0xff})
	}
	var p lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: g, Prefer: prefer}, &p)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	var nodes []lockstep.NodeID
	for _, m := range p.Members {
		nodes = append(nodes, m.Node)
	}
	require.Equal(t, []lockstep.NodeID{"n0", "n1", "n6", "n7"}, nodes)
}
