package placement

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// TestSparesGoBesideTheGang keeps room on nodes that have none of the members, in the
// rack where there is some, and anywhere in the required domain else.
func TestSparesGoBesideTheGang(t *testing.T) {
	s := stateOf(t, racks(4, 4), Config{})
	g := gangOf("g", 3, 2)
	g.Required, g.Preferred, g.Roles[0].Spares = "rack", "rack", 2
	p := s.mustPlace(t, g)
	require.Equal(t, []lockstep.Member{{Node: "n0", Devices: 0x3}, {Node: "n0", Devices: 0xc}, {Node: "n0", Devices: 0x30}}, p.Members)
	require.Equal(t, []lockstep.Member{{Node: "n1", Devices: 0x3}, {Node: "n1", Devices: 0xc}}, p.Spares)
	require.NoError(t, s.verify())

	one := gangOf("one", 1, 2) // only its own node has room
	one.Required, one.Roles[0].Spares = lockstep.LevelNode, 3
	p = s.mustPlace(t, one)
	require.Len(t, p.Spares, 3)
	require.Equal(t, p.Members[0].Node, p.Spares[2].Node)

	wide := gangOf("wide", 4, 8) // a rack holds the members, but not the spare
	wide.Required, wide.Roles[0].Spares = "rack", 1
	var out lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: wide}, &out)
	require.NoError(t, err)
	require.False(t, v.Feasible)
	require.Equal(t, lockstep.ReasonCapacity, v.Reason)
	require.Equal(t, int64(40_000), v.Requested)
	wide.Required = ""
	v, err = s.Fit(&lockstep.Request{Gang: wide}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, lockstep.Level("rack"), out.Level)
}

// TestReplaceUsesSparesFirst loses nodes one by one: the spare steps in, then free
// nodes nearby; ranks and everybody else stay.
func TestReplaceUsesSparesFirst(t *testing.T) {
	s := stateOf(t, racks(4, 4), Config{})
	g := gangOf("g", 3, 8)
	g.Required, g.Roles[0].Spares = "cluster", 1
	before := s.mustPlace(t, g)
	require.Equal(t, lockstep.NodeID("n3"), before.Spares[0].Node)
	require.NoError(t, s.SetHealth("n1", false))

	var p lockstep.Plan
	r := &lockstep.Request{Gang: g}
	v, err := s.Replace(r, &p)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, "n0 n3 n2", nodesIn(p.Members))
	require.Equal(t, "n4", nodesIn(p.Spares), "filled up from the other rack")
	require.NoError(t, s.Exchange(&p))
	require.NoError(t, s.verify())

	r.Exclude = []lockstep.NodeID{"n0", "n2"}
	r.Busy = []lockstep.Busy{{Node: "n5", Devices: 1}}
	v, err = s.Replace(r, &p)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, "n4 n3 n6", nodesIn(p.Members))
	require.Equal(t, "n7", nodesIn(p.Spares))
	require.NoError(t, s.Exchange(&p))

	r.Exclude = []lockstep.NodeID{"n0", "n2", "n5", "n6", "n7"}
	v, err = s.Replace(r, &p)
	require.NoError(t, err)
	require.False(t, v.Feasible)
	require.Empty(t, p.Members)
	require.Equal(t, lockstep.ReasonBusy, v.Reason)
	require.Equal(t, 2, v.Fit)
	require.Equal(t, int64(8000), v.Requested)
}

func nodesIn(list []lockstep.Member) (s string) {
	for i := range list {
		if i > 0 {
			s += " "
		}
		s += string(list[i].Node)
	}
	return s
}

// TestReplaceKeepsGroupsTogether loses one node of a group of two: its mate stays if
// the group's rack has room, else both move.
func TestReplaceKeepsGroupsTogether(t *testing.T) {
	s := stateOf(t, racks(3, 3, 3), Config{})
	g := gangOf("g", 4, 8)
	g.Roles[0].Inner = lockstep.Inner{Size: 2, Level: "rack"}
	require.NoError(t, s.Adopt(&lockstep.Plan{Job: "g", Gang: g, Members: []lockstep.Member{
		{Node: "n0", Devices: 0xff}, {Node: "n1", Devices: 0xff}, {Node: "n3", Devices: 0xff}, {Node: "n4", Devices: 0xff},
	}}))
	require.NoError(t, s.SetHealth("n1", false))
	var p lockstep.Plan
	_, err := s.Replace(&lockstep.Request{Gang: g}, &p)
	require.NoError(t, err)
	require.Equal(t, "n0 n2 n3 n4", nodesIn(p.Members))
	_, err = s.Replace(&lockstep.Request{Gang: g, Exclude: []lockstep.NodeID{"n2"}}, &p)
	require.NoError(t, err)
	require.Equal(t, "n6 n7 n3 n4", nodesIn(p.Members))
}

// TestReplaceIsLegalAndMinimal fails nodes of random gangs: the plan is legal, whoever
// kept its node stays, and for gangs without groups it is there exactly where the
// spares and the free room of the gang's domain suffice.
func TestReplaceIsLegalAndMinimal(t *testing.T) {
	cases := 4_000
	if testing.Short() {
		cases = 250
	}
	shapes := someShapes(t)
	done, refused, spared := 0, 0, 0
	for seed := 0; done+refused < cases; seed++ {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			r := w.spareRequest()
			v, err := w.s.Fit(r, &w.plan)
			require.NoError(t, err)
			if want, known := w.holdsSpares(r); known {
				require.Equal(t, want, v.Feasible, "seed %d", seed)
			}
			if v.Feasible {
				all := byRole(&w.plan)
				w.ref.legal(t, r, all)
				require.NoError(t, w.s.Apply(&w.plan))
				w.ref.jobs[r.Gang.ID] = w.plan.Clone()
			}
		}
		ids := slices.Sorted(maps.Keys(w.ref.jobs))
		if len(ids) == 0 {
			continue
		}
		id := ids[w.rng.IntN(len(ids))]
		held := w.ref.jobs[id]
		for range 1 + w.rng.IntN(2) {
			bad := held.Members[w.rng.IntN(len(held.Members))].Node
			require.NoError(t, w.s.SetHealth(bad, false))
			w.ref.ill[bad] = true
		}
		r := &lockstep.Request{Gang: held.Gang}
		if w.rng.IntN(3) == 0 {
			r.Exclude = []lockstep.NodeID{w.anyNode()}
		}
		before := bytesOf(t, w.s)
		var p lockstep.Plan
		v, err := w.s.Replace(r, &p)
		require.NoError(t, err)
		require.Equal(t, before, bytesOf(t, w.s))
		w.check()
		want, known := w.replaceable(r, held)
		if known {
			require.Equal(t, want, v.Feasible, "seed %d: %v", seed, v)
		}
		if !v.Feasible {
			refused++
			require.NotEmpty(t, v.Reason)
			continue
		}
		done++
		delete(w.ref.jobs, id)
		w.ref.legal(t, r, byRole(&p))
		lost := map[lockstep.NodeID]bool{}
		for n, ill := range w.ref.ill { // in any order: a set
			lost[n] = ill
		}
		for _, n := range r.Exclude {
			lost[n] = true
		}
		grouped := slices.ContainsFunc(held.Gang.Roles, func(o lockstep.Role) bool { return o.Inner.Size > 1 })
		survives := false
		for _, m := range held.Members {
			survives = survives || !lost[m.Node]
		}
		for rank, m := range held.Members {
			if survives && !grouped && !lost[m.Node] {
				require.Equal(t, m, p.Members[rank], "seed %d", seed)
			}
			require.Equal(t, m.Role, p.Members[rank].Role)
			require.False(t, lost[p.Members[rank].Node])
			if lost[m.Node] && slices.Contains(held.Spares, p.Members[rank]) {
				spared++
			}
		}
		require.NoError(t, w.s.Exchange(&p))
		w.check()
	}
	t.Logf("%d replaced, %d of the members by spares; %d refused", done, spared, refused)
	require.Greater(t, done, cases/4)
	require.Greater(t, refused, cases/20)
	require.Greater(t, spared, cases/20)
}

// byRole returns the members and spares of a plan, role by role.
func byRole(p *lockstep.Plan) []lockstep.Member {
	all := slices.Concat(p.Members, p.Spares)
	slices.SortStableFunc(all, func(a, b lockstep.Member) int { return int(a.Role - b.Role) })
	return all
}

// spareRequest is a request for a gang, often with spares.
func (w *world) spareRequest() *lockstep.Request {
	r := &lockstep.Request{Gang: w.gang()}
	w.ease(r)
	for i := range r.Gang.Roles {
		if w.rng.IntN(2) == 0 {
			r.Gang.Roles[i].Spares = 1 + w.rng.IntN(2)
		}
	}
	return r
}

// holdsSpares says whether some domain has the room for a gang of one role and its
// spares, by counting; known is false for others.
func (w *world) holdsSpares(r *lockstep.Request) (ok, known bool) {
	g := r.Gang
	o := &g.Roles[0]
	if len(g.Roles) > 1 || o.Demand.Share > 0 || o.Demand.Profile != "" {
		return false, false
	}
	f := &plainFit{plainState: w.ref, exclude: map[lockstep.NodeID]bool{}, gang: g, worst: 32, allowed: map[*lockstep.Role][]int8{}}
	f.left = w.ref.left(nil)
	stop := 0
	if g.Required != "" {
		stop, _ = w.ref.tree.LevelIndex(g.Required)
	}
	size := max(1, o.Inner.Size)
	need := (o.Min + (o.Spares+size-1)/size*size) / f.unit(stop, o)
	for d := range w.ref.tree.Domains(stop) {
		ok = ok || f.units(stop, int32(d), o) >= need
	}
	return ok, true
}

// replaceable says whether a gang of one role without groups finds room again, by
// counting; known is false for others.
func (w *world) replaceable(r *lockstep.Request, held *lockstep.Plan) (ok, known bool) {
	g := held.Gang
	if len(g.Roles) > 1 || g.Roles[0].Inner.Size > 1 || len(g.Constraints.Affinity)+len(g.Roles[0].Constraints.Affinity) > 0 {
		return false, false
	}
	if d := &g.Roles[0].Demand; d.Share > 0 || d.Profile != "" {
		return false, false
	}
	f := &plainFit{plainState: w.ref, exclude: map[lockstep.NodeID]bool{}, gang: g, worst: 32, allowed: map[*lockstep.Role][]int8{}}
	for _, n := range r.Exclude {
		f.exclude[n] = true
	}
	f.left = w.ref.left(nil)
	stop := 0
	if g.Required != "" {
		stop, _ = w.ref.tree.LevelIndex(g.Required)
	}
	lost, home := 0, int32(-1)
	bad := func(m lockstep.Member) bool { return w.ref.ill[m.Node] || f.exclude[m.Node] }
	for _, m := range held.Members {
		if bad(m) {
			lost++
		} else if home < 0 {
			x, _ := w.ref.tree.Slot(m.Node)
			home = w.ref.tree.DomainOf(stop, x)
		}
	}
	if home < 0 {
		return false, false
	}
	for _, m := range held.Spares {
		if x, _ := w.ref.tree.Slot(m.Node); !bad(m) && w.ref.tree.DomainOf(stop, x) == home {
			lost--
		}
	}
	return lost <= f.units(stop, home, &g.Roles[0]), true
}

func TestEvictClosesUpTheRanks(t *testing.T) {
	s := stateOf(t, racks(4, 4), Config{})
	g := gangOf("g", 6, 8)
	g.Roles[0].Inner.Size, g.Roles[0].Inner.Level, g.Roles[0].Spares = 2, "rack", 2
	p := s.mustPlace(t, g)
	before := bytesOf(t, s)
	mark := s.Mark()
	require.NoError(t, s.Evict(&lockstep.Eviction{Job: "g", Ranks: []int{2, 3}}))
	var left lockstep.Plan
	require.True(t, s.Plan("g", &left))
	require.Equal(t, slices.Concat(p.Members[:2], p.Members[4:]), left.Members)
	require.Equal(t, p.Spares, left.Spares)
	require.NoError(t, s.verify())
	require.NoError(t, s.Exchange(p), "its old room is free")
	require.NoError(t, s.Evict(&lockstep.Eviction{Job: "g"}))
	require.Empty(t, s.Jobs())
	require.NoError(t, s.Rollback(mark))
	require.Equal(t, before, bytesOf(t, s))
	require.NoError(t, s.verify())

	for i, ranks := range [][]int{{0}, {0, 2}, {2, 3, 3}, {-1, 0}, {4, 6}, {0, 1, 2, 3, 4, 5}, {1, 0}} {
		err := s.Evict(&lockstep.Eviction{Job: "g", Ranks: ranks})
		require.ErrorIs(t, err, lockstep.ErrInvalid, fmt.Sprint(i))
	}
	require.ErrorIs(t, s.Evict(&lockstep.Eviction{Job: "x"}), lockstep.ErrUnknown)
	require.ErrorIs(t, s.Evict(nil), lockstep.ErrInvalid)
	require.Equal(t, before, bytesOf(t, s))
}

func TestExchangeIsAllOrNothing(t *testing.T) {
	s := stateOf(t, racks(2, 2), Config{})
	a := s.mustPlace(t, gangOf("a", 2, 8))
	b := s.mustPlace(t, gangOf("b", 1, 8))
	before := bytesOf(t, s)
	p := a.Clone()
	p.Members[1].Node = b.Members[0].Node
	require.ErrorIs(t, s.Exchange(p), lockstep.ErrConflict)
	mark := s.Mark()
	require.ErrorIs(t, s.Exchange(p), lockstep.ErrConflict)
	require.NoError(t, s.Rollback(mark))
	require.Equal(t, before, bytesOf(t, s))
	require.NoError(t, s.verify())
	p.Members[1].Node = "n3"
	mark = s.Mark()
	require.NoError(t, s.Exchange(p))
	require.NoError(t, s.verify())
	require.NoError(t, s.Rollback(mark))
	require.Equal(t, before, bytesOf(t, s))
	require.NoError(t, s.Exchange(p))
	require.ErrorIs(t, s.Exchange(&lockstep.Plan{Job: "x", Gang: gangOf("x", 1, 8)}), lockstep.ErrUnknown)
	require.ErrorIs(t, s.Exchange(nil), lockstep.ErrInvalid)
}
