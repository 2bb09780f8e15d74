package placement

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// TestHandMadePlansAreSafe spoils plans at random: what is taken is sound, what is
// refused has changed nothing and says what was wrong.
func TestHandMadePlansAreSafe(t *testing.T) {
	sequences := 1_500
	if testing.Short() {
		sequences = 300
	}
	shapes := someShapes(t)
	taken, refused := 0, 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		r := w.request()
		if v, err := w.s.Fit(r, &w.plan); err != nil || !v.Feasible {
			continue
		}
		for range 6 {
			p := w.plan.Clone()
			w.spoil(p)
			before, version := bytesOf(t, w.s), w.s.Version()
			mark := w.s.Mark()
			call := w.s.Apply
			if w.rng.IntN(2) == 0 {
				call = w.s.Adopt
			}
			if err := call(p); err != nil {
				refused++
				var e *lockstep.Error
				require.ErrorAs(t, err, &e)
				require.NotEmpty(t, e.Field)
				require.Equal(t, version, w.s.Version())
				require.Equal(t, before, bytesOf(t, w.s))
			} else {
				taken++
			}
			require.NoError(t, w.s.verify())
			require.NoError(t, w.s.Rollback(mark))
			require.Equal(t, before, bytesOf(t, w.s))
		}
	}
	require.Greater(t, taken, sequences/10)
	require.Greater(t, refused, sequences)
}

func (w *world) spoil(p *lockstep.Plan) {
	rng := w.rng
	for range rng.IntN(3) {
		m := &p.Members[rng.IntN(len(p.Members))]
		switch rng.IntN(10) {
		case 0:
			m.Role = int32(rng.IntN(4)) - 1
		case 1:
			m.Node = w.anyNode()
		case 2:
			m.Node = []lockstep.NodeID{"", "gone", "\xff"}[rng.IntN(3)]
		case 3:
			m.Devices = lockstep.DeviceSet(rng.Uint64() >> rng.IntN(64))
		case 4:
			m.Devices = m.Devices<<1 | m.Devices>>63
		case 5:
			p.Version += lockstep.Version(rng.IntN(3)) - 1
		case 6:
			p.Members = append(p.Members, *m)
		case 7:
			if len(p.Members) > 1 {
				p.Members = slices.Delete(p.Members, 0, 1)
			}
		case 8:
			p.Port = []int{-1, 0, 65535, 65536}[rng.IntN(4)]
		case 9:
			p.Job = w.anyJob()
		}
	}
}

// TestErrorsNameFieldAndValue holds what a caller can read from a refusal.
func TestErrorsNameFieldAndValue(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	var p lockstep.Plan
	fit := func(r lockstep.Request) error {
		if r.Gang == nil {
			r.Gang = gangOf("g", 4, 1)
			r.Gang.Roles[0].Inner = lockstep.Inner{Size: 2}
		}
		_, err := s.Fit(&r, &p)
		return err
	}
	gang := func(change func(g *lockstep.Gang)) error {
		g := gangOf("g", 2, 1)
		change(g)
		return fit(lockstep.Request{Gang: g})
	}
	_, badNodes := s.Rebase(s.Tree(), []Node{{ID: "n0", GPUMemory: -1}})
	_, badClass := s.Rebase(s.Tree(), []Node{{ID: "n0", Class: "a b"}})
	_, badLabel := s.Rebase(s.Tree(), []Node{{ID: "n0", Labels: map[string]string{"\xff": "1", "ok": "x"}}})
	_, badTaint := s.Rebase(s.Tree(), []Node{{ID: "n0", Taints: []lockstep.Taint{{Key: "ok"}, {Key: "k", Value: "\n"}}}})
	_, badRole := s.Room(&lockstep.Request{Gang: gangOf("g", 1, 1)}, 7)
	var zero State
	_, zeroFit := zero.Fit(&lockstep.Request{Gang: gangOf("g", 1, 1)}, &p)
	tests := []struct {
		err          error
		field, value string
	}{
		{fit(lockstep.Request{Max: []int{3}}), "Request.Max[0]", "3 to 3"},
		{fit(lockstep.Request{Min: []int{1}}), "Request.Min[0]", "1 to 4"},
		{fit(lockstep.Request{Min: []int{6}}), "Request.Min[0]", "6 to 4"},
		{fit(lockstep.Request{Max: []int{1 << 30}}), "Request.Max[0]", "4 to 1073741824"},
		{fit(lockstep.Request{Min: []int{0, 0}}), "Request.Min", "2 entries"},
		{fit(lockstep.Request{Max: []int{}}), "Request.Max", "0 entries"},
		{fit(lockstep.Request{Busy: []lockstep.Busy{{}, {Node: "n0", RDMA: -2}}}), "Request.Busy[1].RDMA", "-2"},
		{gang(func(g *lockstep.Gang) { g.Tenant = "a b" }), "Tenant", `"a b"`},
		{gang(func(g *lockstep.Gang) { g.ID = "-x" }), "ID", `"-x"`},
		{gang(func(g *lockstep.Gang) { g.Walltime = -1 }), "Walltime", "-1ns"},
		{gang(func(g *lockstep.Gang) { g.Labels = map[string]string{"k": "\xff"} }), "Labels.k", `"\xff"`},
		{gang(func(g *lockstep.Gang) { g.Roles[0].Demand.CPU = 1 << 42 }), "Roles[0].Demand.CPU", "4398046511104m"},
		{gang(func(g *lockstep.Gang) { g.Roles[0].Inner.Level = "a b" }), "Roles[0].Inner.Level", `"a b"`},
		{badNodes, "Nodes[0].GPUMemory", "-1"},
		{badClass, "Nodes[0].Class", `"a b"`},
		{badLabel, "Nodes[0].Labels", `"\xff=1"`},
		{badTaint, "Nodes[0].Taints[1]", `"k=\n"`},
		{badRole, "role", "7"},
		{zeroFit, "State", "zero"},
	}
	for _, test := range tests {
		var e *lockstep.Error
		require.ErrorAs(t, test.err, &e, test.field)
		require.Equal(t, test.field, e.Field)
		require.Equal(t, test.value, e.Value)
	}
}

// TestZeroStateRefuses holds that a State which nobody made does no harm.
func TestZeroStateRefuses(t *testing.T) {
	var s State
	g := gangOf("g", 1, 1)
	r := &lockstep.Request{Gang: g}
	tree := stateOf(t, nodesOf(1), Config{}).Tree()
	var p lockstep.Plan
	_, fit := s.Fit(r, &p)
	_, explain := s.Explain(r)
	_, room := s.Room(r, 0)
	_, rebase := s.Rebase(tree, nil)
	_, drain := s.Drain("n0")
	hand := &lockstep.Plan{Job: "g", Gang: g, Members: []lockstep.Member{{Node: "n0", Devices: 1}}}
	for _, err := range []error{
		fit, explain, room, rebase, drain, s.Cordon("n0"), s.SetPenalty("n0", 1), s.SetHealth("n0", true),
		s.Apply(hand), s.Adopt(hand), s.Release("g"), s.Snapshot(&bytes.Buffer{}), s.Commit(s.Mark() + 1),
	} {
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
	}
	_, ok := s.Node("n0")
	require.False(t, ok)
	require.False(t, s.Plan("g", &p))
	require.Empty(t, s.Jobs())
	require.Empty(t, s.Lost())
	require.Zero(t, s.Usage())
	require.Nil(t, s.View().Tree())
	require.Len(t, s.Reconcile([]Observed{{Job: "g", Members: hand.Members}}), 1)
}

// TestOddClusters asks clusters of no node, of nodes without devices, and of 64.
func TestOddClusters(t *testing.T) {
	var p lockstep.Plan
	empty, err := topology.New([]topology.Level{{Name: "rack"}}, nil)
	require.NoError(t, err)
	s, err := New(empty, Config{})
	require.NoError(t, err)
	for _, level := range []lockstep.Level{"", "cluster", "rack", "node"} {
		for _, strategy := range []lockstep.Strategy{lockstep.Pack, lockstep.Spread} {
			g := gangOf("g", 2, 0)
			g.Required, g.Preferred, g.Strategy = level, level, strategy
			g.Roles[0].Inner = lockstep.Inner{Size: 2, Level: level}
			e, err := s.Explain(&lockstep.Request{Gang: g, Exclude: []lockstep.NodeID{"x"}, Busy: []lockstep.Busy{{Node: "x", CPU: 1}}})
			require.NoError(t, err)
			require.Equal(t, lockstep.ReasonCapacity, e.Verdict.Reason)
			require.Empty(t, e.Changes)
			_, err = s.Room(&lockstep.Request{Gang: g}, 0)
			require.NoError(t, err)
		}
	}
	_, err = Restore(empty, Config{}, bytes.NewReader(bytesOf(t, s)))
	require.NoError(t, err)

	large, err := topology.UniformShape(64, topology.NVLink(1))
	require.NoError(t, err)
	one, err := topology.UniformShape(1, topology.NVLink(1))
	require.NoError(t, err)
	tree, err := topology.New(nil, []topology.Node{{ID: "a"}, {ID: "b", Shape: large}, {ID: "c", Shape: one}})
	require.NoError(t, err)
	_, err = s.Rebase(tree, nil)
	require.NoError(t, err)
	p = *s.mustPlace(t, gangOf("all", 65, 1))
	require.Len(t, p.Members, 65)
	require.Equal(t, 0, s.Usage().Free)
	require.NoError(t, s.Release("all"))
	p = *s.mustPlace(t, gangOf("wide", 1, 64))
	require.Equal(t, ^lockstep.DeviceSet(0), p.Members[0].Devices)
	p = *s.mustPlace(t, gangOf("cpu", 1024, 0))
	require.Equal(t, 1, p.NodeCount())
	room, err := s.Room(&lockstep.Request{Gang: gangOf("g", 1, 0)}, 0)
	require.NoError(t, err)
	require.Equal(t, 2*1024-1, room.Levels[0].Members)
	require.NoError(t, s.verify())
}

// TestMillionsOfMembersAreCounted holds that Room has no bound of its own.
func TestMillionsOfMembersAreCounted(t *testing.T) {
	s, err := New(benchTree(t, 2048), Config{})
	require.NoError(t, err)
	room, err := s.Room(&lockstep.Request{Gang: gangOf("g", 1, 0)}, 0)
	require.NoError(t, err)
	require.Equal(t, 2048*MaxSlots, room.Levels[0].Members)
}

// TestBusyRoomAddsUp gives one node so much busy room, in so many entries, that
// the sums would turn over.
func TestBusyRoomAddsUp(t *testing.T) {
	s := stateOf(t, nodesOf(1), Config{})
	var p lockstep.Plan
	for _, d := range []lockstep.Demand{{RDMA: 1}, {CPU: 1}, {Memory: 1}, {GPUs: 1}, {}} {
		for entries := 1; entries < 40; entries++ {
			r := lockstep.Request{Gang: gangOf("g", 1, 0)}
			r.Gang.Roles[0].Demand = d
			for range entries {
				r.Busy = append(r.Busy, lockstep.Busy{Node: "n0", Devices: 0xff, CPU: 1<<63 - 1, Memory: 1<<63 - 1, RDMA: 1<<31 - 1, Slots: 1<<31 - 1})
			}
			v, err := s.Fit(&r, &p)
			require.NoError(t, err)
			require.Equal(t, lockstep.ReasonReserved, v.Reason, "%v in %d entries", d, entries)
		}
	}
	require.NoError(t, s.verify())
}

// TestPreferMayBeThePlanToFill keeps a gang where it is with one plan for both.
func TestPreferMayBeThePlanToFill(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	s.mustPlace(t, gangOf("a", 1, 8)) // n0, so that what follows sits further on
	g := gangOf("b", 2, 4)
	p := s.mustPlace(t, g)
	want := slices.Clone(p.Members)
	require.NoError(t, s.Release("a"))
	require.NoError(t, s.Release("b"))
	v, err := s.Fit(&lockstep.Request{Gang: g, Prefer: p}, p)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, want, p.Members)
	require.NotEqual(t, lockstep.NodeID("n0"), p.Members[0].Node)
}

// TestNamesSurviveASnapshot holds that what New and Apply take comes back.
func TestNamesSurviveASnapshot(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{
		ID: "n0", Class: "gpu/β", GPUMemory: 80, CPU: None, Memory: None, RDMA: None, Slots: None,
		Labels: map[string]string{"k/ä": "any text, <&> ж", "empty": ""}, Taints: []lockstep.Taint{{Key: "k", Value: "é"}},
	}}})
	g := gangOf("ж", 1, 8)
	g.Labels = map[string]string{"a": "<&>", "ö": " x "}
	s.mustPlace(t, g)
	saved := bytesOf(t, s)
	again, err := Restore(s.Tree(), Config{}, bytes.NewReader(saved))
	require.NoError(t, err)
	require.Equal(t, saved, bytesOf(t, again))
	a, _ := s.Node("n0")
	b, _ := again.Node("n0")
	require.Equal(t, a, b)
}

// TestMarksMisused closes marks in any order, twice and across a rebase.
func TestMarksMisused(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	before := bytesOf(t, s)
	var marks []lockstep.Mark
	for range 5 {
		marks = append(marks, s.Mark())
	}
	s.mustPlace(t, gangOf("a", 1, 8))
	require.NoError(t, s.Commit(marks[3])) // and 4
	require.ErrorIs(t, s.Commit(marks[4]), lockstep.ErrStale)
	require.ErrorIs(t, s.Rollback(marks[3]), lockstep.ErrStale)
	require.NoError(t, s.Cordon("n1"))
	require.NoError(t, s.SetHealth("n2", false))
	require.NoError(t, s.SetPenalty("n3", 9))
	require.NoError(t, s.Rollback(marks[1]))
	require.Equal(t, before, bytesOf(t, s))
	require.ErrorIs(t, s.Rollback(marks[2]), lockstep.ErrStale)
	s.mustPlace(t, gangOf("a", 1, 8))
	after := bytesOf(t, s)
	_, err := s.Rebase(s.Tree(), nil) // ends every mark
	require.NoError(t, err)
	require.ErrorIs(t, s.Rollback(marks[0]), lockstep.ErrStale)
	require.NotEqual(t, after, bytesOf(t, s), "the version grew")
	require.Equal(t, []lockstep.JobID{"a"}, s.Jobs())
	require.NoError(t, s.verify())
}

// TestAffinityCorners walks through gangs that look for themselves and others.
func TestAffinityCorners(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	var p lockstep.Plan
	wish := func(id lockstep.JobID, labels map[string]string, a ...lockstep.Affinity) *lockstep.Gang {
		g := gangOf(id, 1, 2)
		g.Labels, g.Constraints.Affinity = labels, a
		return g
	}
	app := map[string]string{"app": "x"}
	fit := func(g *lockstep.Gang) bool {
		v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		return v.Feasible
	}
	require.False(t, fit(wish("a", nil, lockstep.Affinity{Match: app, Level: "rack"})), "nobody to be near to")
	first := wish("a", map[string]string{"app": "x", "more": "y"}, lockstep.Affinity{Match: app, Level: "rack"})
	require.True(t, fit(first), "its own first")
	require.NoError(t, s.Apply(&p))
	home := p.Members[0].Node
	require.NoError(t, s.Cordon(home))
	require.True(t, fit(wish("b", app, lockstep.Affinity{Match: app, Level: "rack"})))
	require.Equal(t, s.tree.LCA(0, 1), 1)
	require.NotEqual(t, home, p.Members[0].Node)
	require.False(t, fit(wish("b", app, lockstep.Affinity{Match: app})), "the node is cordoned")
	require.False(t, fit(wish("c", nil, lockstep.Affinity{Match: app, Level: "cluster", Anti: true})), "one in the whole cluster")
	require.True(t, fit(wish("c", nil, lockstep.Affinity{Match: app, Level: "rack", Anti: true})))
	require.Equal(t, lockstep.NodeID("n2"), p.Members[0].Node)
	require.False(t, fit(wish("c", nil, lockstep.Affinity{Match: app, Level: "rack"}, lockstep.Affinity{Match: app, Level: "rack", Anti: true})), "both at once")
	require.False(t, fit(wish("c", nil, lockstep.Affinity{Match: map[string]string{"app": "x", "more": "z"}})), "all labels count")
	mark := s.Mark()
	require.NoError(t, s.Release("a"))
	require.True(t, fit(wish("c", nil, lockstep.Affinity{Match: app, Level: "cluster", Anti: true})))
	require.NoError(t, s.Rollback(mark))
	require.False(t, fit(wish("c", nil, lockstep.Affinity{Match: app, Level: "cluster", Anti: true})))
	require.NoError(t, s.verify())
}

// TestOddRequests asks with nodes that are gone and with more than there is.
func TestOddRequests(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	var p lockstep.Plan
	g := gangOf("g", 40, 0)
	g.Strategy = lockstep.Spread
	gone := &lockstep.Plan{Job: "g", Gang: g, Members: []lockstep.Member{
		{Node: "gone"}, {Role: 9, Node: "n0"}, {Role: -1, Node: "n0"}, {Node: "n0", Devices: ^lockstep.DeviceSet(0)}, {},
	}}
	v, err := s.Fit(&lockstep.Request{
		Gang: g, Prefer: gone, Exclude: []lockstep.NodeID{"gone", "", "n3", "n3"},
		Busy: []lockstep.Busy{{Node: "gone", CPU: 1}, {Node: "n3", Devices: ^lockstep.DeviceSet(0)}},
	}, &p)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	perNode := map[lockstep.NodeID]int{}
	for _, m := range p.Members {
		perNode[m.Node]++
	}
	require.Equal(t, map[lockstep.NodeID]int{"n0": 10, "n1": 10, "n2": 20}, perNode)
	e, err := s.Explain(&lockstep.Request{Gang: gangOf("g", lockstep.MaxMembers, 64)})
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonCapacity, e.Verdict.Reason)
	require.Empty(t, e.Changes, "no node is wide enough")
	require.NoError(t, s.verify())
}

// TestViewIsACopy changes a state and its view, and finds each as it was left.
func TestViewIsACopy(t *testing.T) {
	sequences := 500
	shapes := someShapes(t)
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 8 {
			w.step()
		}
		saved, lost := bytesOf(t, w.s), w.s.Lost()
		v := w.s.View()
		require.NoError(t, v.verify())
		require.Equal(t, saved, bytesOf(t, v))
		require.Equal(t, lost, v.Lost())
		r := w.request()
		var a, b lockstep.Plan
		x, err := w.s.Fit(r, &a)
		require.NoError(t, err)
		y, err := v.Fit(r, &b)
		require.NoError(t, err)
		require.Equal(t, x, y)
		require.Equal(t, a, b)
		for range 8 {
			w.step()
		}
		require.NoError(t, v.verify())
		require.Equal(t, saved, bytesOf(t, v))
		later := bytesOf(t, w.s)
		for _, id := range v.Jobs() {
			require.NoError(t, v.Release(id))
		}
		require.NoError(t, v.verify())
		require.NoError(t, w.s.verify())
		require.Equal(t, later, bytesOf(t, w.s))
		if len(lost) == 0 && y.Feasible && v.Version() != w.s.Version() {
			if v, err := v.Fit(r, &b); err == nil && v.Feasible {
				require.True(t, errors.Is(w.s.Apply(&b), lockstep.ErrStale))
			}
		}
	}
}

// TestOpeningsAreUsedAgain leaves idle nodes with ever other room.
func TestOpeningsAreUsedAgain(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	g := gangOf("g", 1, 0)
	g.Roles[0].Demand.CPU = 1
	var p lockstep.Plan
	for i := range 200 {
		_, err := s.Rebase(s.tree, []Node{{ID: "n0", CPU: lockstep.MilliCPU(i%100 + 1)}})
		require.NoError(t, err)
		_, err = s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		require.NoError(t, s.verify())
	}
	require.LessOrEqual(t, len(s.views.list[0].open), 3)
}
