package placement

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// TestChangesLetTheGangIn applies each change that Explain names, to the state,
// and asks again.
func TestChangesLetTheGangIn(t *testing.T) {
	sequences := 10_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	tried := map[lockstep.ChangeKind]int{}
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		r := w.request()
		var before, after lockstep.Plan
		fit, err := w.s.Fit(r, &before)
		require.NoError(t, err)
		e, err := w.s.Explain(r)
		require.NoError(t, err)
		require.Equal(t, fit, e.Verdict)
		again, err := w.s.Explain(r)
		require.NoError(t, err)
		require.Equal(t, e, again)
		require.NoError(t, w.s.verify())
		if fit.Feasible {
			require.Empty(t, e.Changes)
			continue
		}
		for _, c := range e.Changes {
			tried[c.Kind]++
			require.True(t, w.after(r, &c, &after), "seed %d: %v does not help: %v", seed, c, &e)
			w.fewest(r, &c)
		}
	}
	t.Log(tried)
	for _, kind := range []lockstep.ChangeKind{lockstep.ChangeFree, lockstep.ChangeRelax, lockstep.ChangeShrink, lockstep.ChangeOpen, lockstep.ChangeTolerate, lockstep.ChangeAdd} {
		require.Greater(t, tried[kind], sequences/200, "%s was hardly tried", kind)
	}
}

// fewest tries every smaller set of nodes of one domain, for the gangs of which
// ChangeFree and ChangeOpen promise the fewest.
func (w *world) fewest(r *lockstep.Request, c *lockstep.Change) {
	if len(r.Gang.Roles) > 1 || r.Gang.Roles[0].Inner.Size > 1 || len(c.Nodes) < 2 || len(r.Gang.Constraints.Affinity)+len(r.Gang.Roles[0].Constraints.Affinity) > 0 {
		return
	}
	e := &explainer{s: w.s, r: r, g: r.Gang}
	var slots []int32
	for x := range w.s.slots {
		if c := &w.s.slots[x]; c.flags&(vacant|excluded) == 0 {
			slots = append(slots, int32(x))
		}
	}
	for set := range 1 << len(slots) {
		if bits.OnesCount(uint(set)) != len(c.Nodes)-1 {
			continue
		}
		var nodes []gained
		for i, x := range slots {
			if set>>i&1 != 0 {
				nodes = append(nodes, gained{x: x})
			}
		}
		if c.Kind == lockstep.ChangeFree {
			nodes = slices.DeleteFunc(nodes, func(n gained) bool { return w.s.slots[n.x].flags != 0 })
		}
		require.False(w.t, e.wouldWith(c.Kind, nodes), "%v: fewer will do: %v", c, nodes)
	}
}

// after does what c says, asks again and undoes it.
func (w *world) after(r *lockstep.Request, c *lockstep.Change, out *lockstep.Plan) bool {
	ask := *r
	g := *r.Gang
	ask.Gang = &g
	s := w.s
	switch c.Kind {
	case lockstep.ChangeRelax:
		g.Required = c.Level
	case lockstep.ChangeTolerate:
		ask.Gang = tolerant(&g)
	case lockstep.ChangeShrink:
		ask.Min = make([]int, len(g.Roles))
		ask.Max = make([]int, len(g.Roles))
		for i := range ask.Max {
			ask.Max[i] = g.Roles[i].Min
			if r.Min != nil {
				ask.Max[i] = r.Min[i]
			}
		}
		if len(g.Roles) == 1 {
			ask.Min[0], ask.Max[0] = int(c.Amount), int(c.Amount)
		}
	case lockstep.ChangeAdd:
		return w.afterAdd(&ask, c)
	}
	mark := s.Mark()
	for _, id := range c.Nodes {
		if c.Kind == lockstep.ChangeOpen {
			require.NoError(w.t, s.Open(id))
			require.NoError(w.t, s.SetHealth(id, true))
			continue
		}
		jobs, err := s.Drain(id) // whole jobs go here: at least what was asked for
		require.NoError(w.t, err)
		require.NoError(w.t, s.Open(id))
		for _, job := range jobs {
			require.NoError(w.t, s.Release(job))
		}
	}
	v, err := s.Fit(&ask, out)
	require.NoError(w.t, err)
	require.NoError(w.t, s.Rollback(mark))
	return v.Feasible
}

// afterAdd joins idle nodes that members fill into the domain of c, in a state
// of its own that holds what w's does.
func (w *world) afterAdd(r *lockstep.Request, c *lockstep.Change) bool {
	if len(r.Gang.Roles) > 1 || len(r.Gang.Constraints.Affinity)+len(r.Gang.Roles[0].Constraints.Affinity) > 0 {
		return true // which nodes would do is another question
	}
	role := &r.Gang.Roles[0]
	per := int(c.Amount)
	if c.Resource == lockstep.ResourceGPU {
		per /= int(lockstep.WholeGPU) * role.Demand.GPUs
	}
	level, _ := w.s.tree.LevelIndex(c.Level)
	if per*max(1, role.Demand.GPUs) > 64 || role.Inner.Size > 1 {
		return true
	}
	var id lockstep.NodeID
	var path []string
	for x := range w.s.tree.Slots() {
		d := w.s.tree.DomainOf(level, int32(x))
		if n, ok := w.s.tree.Node(int32(x)); ok && w.s.tree.DomainName(level, d) == c.Domain {
			path, id = n.Path, "new"
			break
		}
	}
	same := 0
	for d := range w.s.tree.Domains(level) {
		if w.s.tree.DomainName(level, int32(d)) == c.Domain {
			same++
		}
	}
	if id == "" || same > 1 {
		return true // only vacant slots, or several racks of that name
	}
	shape, err := topology.UniformShape(per*role.Demand.GPUs, topology.NVLink(1))
	require.NoError(w.t, err)
	n := Node{ID: id, GPUMemory: 80, Class: "h100", Labels: map[string]string{}}
	if len(r.Gang.Constraints.Selector)+len(role.Constraints.Selector) > 0 {
		return true
	}
	next, err := w.s.tree.With(topology.Change{Kind: topology.Join, Node: topology.Node{ID: id, Path: path, Shape: shape}})
	require.NoError(w.t, err)
	old := w.s.tree
	_, err = w.s.Rebase(next, []Node{n})
	require.NoError(w.t, err)
	var out lockstep.Plan
	v, err := w.s.Fit(r, &out)
	require.NoError(w.t, err)
	_, err = w.s.Rebase(old, nil)
	require.NoError(w.t, err)
	return v.Feasible
}

func nodesOf(n int, path ...string) (out []topology.Node) {
	shape := topology.NVSwitch8()
	for i := range n {
		p := slices.Clone(path)
		if len(p) == 0 {
			p = []string{fmt.Sprint("r", i/2)}
		}
		out = append(out, topology.Node{ID: lockstep.NodeID(fmt.Sprint("n", i)), Path: p, Shape: shape})
	}
	return out
}

func stateOf(t *testing.T, nodes []topology.Node, cfg Config) *State {
	tree, err := topology.New([]topology.Level{{Name: "rack"}}, nodes)
	require.NoError(t, err)
	s, err := New(tree, cfg)
	require.NoError(t, err)
	return s
}

func gangOf(id lockstep.JobID, members, gpus int) *lockstep.Gang {
	return &lockstep.Gang{ID: id, Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: gpus}}}}
}

// run places a gang and fails the test where it does not fit.
func (s *State) mustPlace(t *testing.T, g *lockstep.Gang) *lockstep.Plan {
	var p lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
	require.NoError(t, err)
	require.True(t, v.Feasible, v.String())
	require.NoError(t, s.Apply(&p))
	return &p
}

// brief writes the counts and changes of an explanation, one a line.
func brief(e *lockstep.Explanation) string {
	out := fmt.Sprintf("%s %d/%d", e.Verdict.Resource, e.Verdict.Requested, e.Verdict.Available)
	for _, c := range e.Counts {
		out += fmt.Sprintf("\n%d %s %s", c.Nodes, c.Reason, c.Detail)
	}
	for _, c := range e.Changes {
		out += fmt.Sprintf("\n%s %s/%s %d %s %v", c.Kind, c.Level, c.Domain, c.Amount, c.Resource, c.Nodes)
	}
	return out
}

func TestReasons(t *testing.T) {
	type test struct {
		name   string
		setup  func(t *testing.T) (*State, *lockstep.Gang)
		reason lockstep.Reason
		fit    int
		text   string
	}
	rack := func(g *lockstep.Gang) *lockstep.Gang { g.Required = "rack"; return g }
	tests := []test{
		{"H1: room for 8 of 20", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(4), Config{})
			s.mustPlace(t, gangOf("a", 3, 8))
			return s, gangOf("b", 20, 1)
		}, lockstep.ReasonBusy, 8, `gpu 20000/8000
3 busy gpu
shrink / 8  []
free cluster/cluster 0  [n0 n1]
add cluster/cluster 12000 gpu []`},
		{"H5: two nodes, one busy, none is bound", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{})
			s.mustPlace(t, gangOf("a", 1, 8))
			return s, gangOf("b", 2, 8)
		}, lockstep.ReasonBusy, 1, ""},
		{"larger than the cluster", func(t *testing.T) (*State, *lockstep.Gang) {
			return stateOf(t, nodesOf(4), Config{}), gangOf("b", 5, 8)
		}, lockstep.ReasonCapacity, 4, `gpu 40000/32000
shrink / 4  []
add cluster/cluster 8000 gpu []`},
		{"larger than a rack", func(t *testing.T) (*State, *lockstep.Gang) {
			return stateOf(t, nodesOf(4), Config{}), rack(gangOf("b", 3, 8))
		}, lockstep.ReasonCapacity, 2, ""},
		{"free but in two racks", func(t *testing.T) (*State, *lockstep.Gang) {
			s2 := stateOf(t, nodesOf(4), Config{})
			p := s2.mustPlace(t, gangOf("a", 1, 8))
			require.Equal(t, lockstep.NodeID("n0"), p.Members[0].Node)
			require.NoError(t, s2.Cordon("n1"))
			s2.mustPlace(t, gangOf("b", 1, 8))
			require.NoError(t, s2.Open("n1"))
			return s2, rack(gangOf("d", 2, 8))
		}, lockstep.ReasonFragmented, 1, `gpu 16000/8000
2 busy gpu
relax / 0  []
shrink / 1  []
free rack/r0 0  [n0]
add rack/r0 8000 gpu []`},
		{"free but scattered over nodes", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{})
			s.mustPlace(t, gangOf("a", 1, 5))
			s.mustPlace(t, gangOf("b", 1, 5))
			return s, gangOf("c", 1, 6)
		}, lockstep.ReasonFragmented, 0, ""},
		{"constraints", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", Taints: []lockstep.Taint{{Key: "k"}}}}})
			return s, gangOf("c", 2, 8)
		}, lockstep.ReasonConstraint, 1, `gpu 16000/8000
1 constraint taint
shrink / 1  []
tolerate / 0  []
add cluster/cluster 8000 gpu []`},
		{"unhealthy", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(4), Config{})
			require.NoError(t, s.SetHealth("n2", false))
			require.NoError(t, s.Cordon("n1"))
			return s, gangOf("c", 3, 8)
		}, lockstep.ReasonUnhealthy, 2, `gpu 24000/16000
1 unhealthy cordoned
1 unhealthy unhealthy
shrink / 2  []
open cluster/cluster 0  [n1]
add cluster/cluster 8000 gpu []`},
		{"H12: slots count across roles", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(1), Config{Nodes: []Node{{ID: "n0", Slots: 1}}})
			g := gangOf("c", 1, 1)
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1, Demand: lockstep.Demand{CPU: 100}})
			return s, g
		}, lockstep.ReasonFragmented, 1, ""},
		{"CPU ran out", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(1), Config{Nodes: []Node{{ID: "n0", CPU: 3000}}})
			g := gangOf("c", 4, 1)
			g.Roles[0].Demand.CPU = 1000
			return s, g
		}, lockstep.ReasonCapacity, 3, ""},
		{"shares are not placed here", func(t *testing.T) (*State, *lockstep.Gang) {
			g := gangOf("c", 1, 1)
			g.Roles[0].Demand.Share = 500
			return stateOf(t, nodesOf(1), Config{}), g
		}, lockstep.ReasonUnsupported, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, g := test.setup(t)
			e, err := s.Explain(&lockstep.Request{Gang: g})
			require.NoError(t, err)
			require.False(t, e.Verdict.Feasible)
			require.Equal(t, test.reason, e.Verdict.Reason, e.String())
			require.Equal(t, test.fit, e.Verdict.Fit, e.String())
			if test.text != "" {
				require.Equal(t, test.text, brief(&e))
			}
		})
	}
}
