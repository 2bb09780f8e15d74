package placement

import (
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// TestBadInputsChangeNothing gives every call what it must refuse.
func TestBadInputsChangeNothing(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	s.mustPlace(t, gangOf("held", 1, 4))
	before := bytesOf(t, s)
	fit := func(change func(g *lockstep.Gang, r *lockstep.Request)) error {
		g := gangOf("g", 2, 2)
		r := &lockstep.Request{Gang: g}
		change(g, r)
		var p lockstep.Plan
		_, err := s.Fit(r, &p)
		_, other := s.Explain(r)
		require.Equal(t, err == nil, other == nil)
		return err
	}
	apply := func(change func(p *lockstep.Plan)) error {
		var p lockstep.Plan
		v, err := s.Fit(&lockstep.Request{Gang: gangOf("g", 2, 2)}, &p)
		require.NoError(t, err)
		require.True(t, v.Feasible)
		change(&p)
		return s.Apply(&p)
	}
	var p lockstep.Plan
	_, noOut := s.Fit(&lockstep.Request{Gang: gangOf("g", 1, 1)}, nil)
	_, noRequest := s.Fit(nil, &p)
	_, noExplain := s.Explain(nil)
	_, unknownDrain := s.Drain("x")
	_, noTree := s.Rebase(nil, nil)
	_, badNode := s.Rebase(s.Tree(), []Node{{ID: "x"}, {ID: "n0", CPU: -2}, {ID: "n0", Slots: 9999}})
	_, badRole := s.Room(&lockstep.Request{Gang: gangOf("g", 1, 1)}, 1)
	tests := []struct {
		name string
		err  error
		kind error
	}{
		{"nil request", noRequest, lockstep.ErrInvalid},
		{"nil request to explain", noExplain, lockstep.ErrInvalid},
		{"nil plan to fill", noOut, lockstep.ErrInvalid},
		{"nil gang", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Gang = nil }), lockstep.ErrInvalid},
		{"no roles", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles = nil }), lockstep.ErrInvalid},
		{"no ID", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.ID = "" }), lockstep.ErrInvalid},
		{"ID with a space", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.ID = "a b" }), lockstep.ErrInvalid},
		{"no members", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Min = 0 }), lockstep.ErrInvalid},
		{"negative members", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Min = -1 }), lockstep.ErrInvalid},
		{"min above max", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Max = 1 }), lockstep.ErrInvalid},
		{"absurd count", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Min = 1 << 30 }), lockstep.ErrInvalid},
		{"torn inner groups", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Inner.Size = 3 }), lockstep.ErrInvalid},
		{"65 devices", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Demand.GPUs = 65 }), lockstep.ErrInvalid},
		{"negative CPU", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Demand.CPU = -1 }), lockstep.ErrInvalid},
		{"share above one", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Roles[0].Demand.Share = 1001 }), lockstep.ErrInvalid},
		{"unknown operator", fit(func(g *lockstep.Gang, _ *lockstep.Request) {
			g.Constraints.Selector = []lockstep.Requirement{{Key: "k", Operator: "Gt"}}
		}), lockstep.ErrInvalid},
		{"two roles of one name", fit(func(g *lockstep.Gang, _ *lockstep.Request) {
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, g.Roles[0])
		}), lockstep.ErrDuplicate},
		{"unknown strategy", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Strategy = "x" }), lockstep.ErrInvalid},
		{"unknown required level", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Required = "x" }), lockstep.ErrUnknown},
		{"unknown preferred level", fit(func(g *lockstep.Gang, _ *lockstep.Request) { g.Preferred = "x" }), lockstep.ErrUnknown},
		{"unknown inner level", fit(func(g *lockstep.Gang, _ *lockstep.Request) {
			g.Roles[0].Inner = lockstep.Inner{Size: 2, Level: "x"}
		}), lockstep.ErrUnknown},
		{"unknown affinity level", fit(func(g *lockstep.Gang, _ *lockstep.Request) {
			g.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"a": "b"}, Level: "x"}}
		}), lockstep.ErrUnknown},
		{"bounds of the wrong length", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Max = []int{1, 1} }), lockstep.ErrInvalid},
		{"bounds above the limit", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Max = []int{3} }), lockstep.ErrInvalid},
		{"negative bounds", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Min = []int{-1} }), lockstep.ErrInvalid},
		{"bounds of nothing", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Max = []int{0} }), lockstep.ErrInvalid},
		{"negative busy room", fit(func(_ *lockstep.Gang, r *lockstep.Request) { r.Busy = []lockstep.Busy{{Node: "n0", CPU: -1}} }), lockstep.ErrInvalid},

		{"nil plan", s.Apply(nil), lockstep.ErrInvalid},
		{"nil plan to adopt", s.Adopt(nil), lockstep.ErrInvalid},
		{"empty plan", s.Adopt(&lockstep.Plan{}), lockstep.ErrInvalid},
		{"stale plan", apply(func(p *lockstep.Plan) { p.Version-- }), lockstep.ErrStale},
		{"another job's name", apply(func(p *lockstep.Plan) { p.Job = "other" }), lockstep.ErrInvalid},
		{"duplicate job", apply(func(p *lockstep.Plan) { p.Gang.ID, p.Job = "held", "held" }), lockstep.ErrDuplicate},
		{"no members", apply(func(p *lockstep.Plan) { p.Members = nil }), lockstep.ErrInvalid},
		{"unknown role", apply(func(p *lockstep.Plan) { p.Members[0].Role = 1 }), lockstep.ErrInvalid},
		{"negative role", apply(func(p *lockstep.Plan) { p.Members[0].Role = -1 }), lockstep.ErrInvalid},
		{"too many members", apply(func(p *lockstep.Plan) { p.Members = append(p.Members, p.Members[0]) }), lockstep.ErrInvalid},
		{"unknown node", apply(func(p *lockstep.Plan) { p.Members[1].Node = "x" }), lockstep.ErrUnknown},
		{"no node", apply(func(p *lockstep.Plan) { p.Members[1].Node = "" }), lockstep.ErrUnknown},
		{"too few devices", apply(func(p *lockstep.Plan) { p.Members[1].Devices = 1 }), lockstep.ErrInvalid},
		{"devices not on the node", apply(func(p *lockstep.Plan) { p.Members[1].Devices = 3 << 8 }), lockstep.ErrInvalid},
		{"devices taken twice in the plan", apply(func(p *lockstep.Plan) { p.Members[1] = p.Members[0] }), lockstep.ErrConflict},
		{"devices of another job", apply(func(p *lockstep.Plan) { p.Members[1].Node, p.Members[1].Devices = "n0", 3 }), lockstep.ErrConflict},
		{"invalid gang in a plan", apply(func(p *lockstep.Plan) { p.Gang.Roles[0].Max = 1 }), lockstep.ErrInvalid},

		{"release of an unknown job", s.Release("x"), lockstep.ErrUnknown},
		{"unknown node to cordon", s.Cordon("x"), lockstep.ErrUnknown},
		{"unknown node to open", s.Open("x"), lockstep.ErrUnknown},
		{"unknown node's health", s.SetHealth("x", true), lockstep.ErrUnknown},
		{"unknown node to drain", unknownDrain, lockstep.ErrUnknown},
		{"unknown node's penalty", s.SetPenalty("x", 1), lockstep.ErrUnknown},
		{"negative penalty", s.SetPenalty("n0", -1), lockstep.ErrInvalid},
		{"unknown mark", s.Rollback(77), lockstep.ErrStale},
		{"no mark", s.Commit(0), lockstep.ErrStale},
		{"nil tree", noTree, lockstep.ErrInvalid},
		{"unknown node to rebase", badNode, lockstep.ErrUnknown},
		{"bad node to rebase", badNode, lockstep.ErrInvalid},
		{"twice a node to rebase", badNode, lockstep.ErrDuplicate},
		{"nil writer", s.Snapshot(nil), lockstep.ErrInvalid},
		{"role out of range", badRole, lockstep.ErrInvalid},
	}
	for _, test := range tests {
		require.ErrorIs(t, test.err, test.kind, test.name)
		var e *lockstep.Error
		require.ErrorAs(t, test.err, &e, test.name)
	}
	require.Equal(t, before, bytesOf(t, s))
	require.NoError(t, s.verify())
}

func TestNewRefuses(t *testing.T) {
	_, err := New(nil, Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	tree := stateOf(t, nodesOf(2), Config{}).Tree()
	_, err = New(tree, Config{Nodes: []Node{{ID: "x"}, {ID: "n0"}, {ID: "n0", RDMA: -5}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = New(tree, Config{Views: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestMarksNestAndClose(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{Journal: 3})
	outer := s.Mark()
	s.mustPlace(t, gangOf("a", 1, 8))
	inner := s.Mark()
	s.mustPlace(t, gangOf("b", 1, 8))
	require.NoError(t, s.Commit(inner))
	require.ErrorIs(t, s.Rollback(inner), lockstep.ErrStale)
	require.NoError(t, s.Rollback(outer))
	require.Empty(t, s.Jobs())
	require.ErrorIs(t, s.Rollback(outer), lockstep.ErrStale)

	outer = s.Mark()
	for range 2 { // four changes are one too many
		s.mustPlace(t, gangOf("a", 1, 8))
		require.NoError(t, s.Release("a"))
	}
	require.ErrorIs(t, s.Rollback(outer), lockstep.ErrStale)
	require.NoError(t, s.verify())
}

// TestUncountedAmounts holds what zero and None mean.
func TestUncountedAmounts(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", CPU: None, RDMA: None}}})
	g := gangOf("g", 3, 1)
	g.Roles[0].Demand.CPU, g.Roles[0].Demand.Memory, g.Roles[0].Demand.RDMA = 1<<39, 1<<42, 1<<10
	p := s.mustPlace(t, g)
	for _, m := range p.Members {
		require.Equal(t, lockstep.NodeID("n1"), m.Node)
	}
	require.NoError(t, s.Release("g"))

	s = stateOf(t, nodesOf(1), Config{})
	g = gangOf("g", MaxSlots, 0)
	s.mustPlace(t, g)
	var plan lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: gangOf("h", 1, 0)}, &plan)
	require.NoError(t, err)
	require.False(t, v.Feasible)
	require.Equal(t, lockstep.ResourceSlots, v.Resource)
}
