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
	sequences := 5_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	tried := map[lockstep.ChangeKind]int{}
	added := map[lockstep.ResourceName]int{}
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		w.added = added
		for range 6 {
			w.step()
		}
		r := w.request()
		if seed%3 == 0 {
			w.scarce(r)
		}
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
	t.Log(tried, added)
	for _, name := range []lockstep.ResourceName{lockstep.ResourceGPU, lockstep.ResourceCPU, lockstep.ResourceMemory, lockstep.ResourceSlots} {
		require.Greater(t, added[name], sequences/1000, "adding %s was hardly tried", name)
	}
	for _, kind := range []lockstep.ChangeKind{lockstep.ChangeFree, lockstep.ChangeRelax, lockstep.ChangeShrink, lockstep.ChangeOpen, lockstep.ChangeTolerate, lockstep.ChangeAdd} {
		require.Greater(t, tried[kind], sequences/400, "%s was hardly tried", kind)
	}
}

// TestCapacityMeansNever empties the cluster, opens and heals it and drops the
// constraints: what was refused for capacity fits there no better. For one role it is
// said whenever that is so.
func TestCapacityMeansNever(t *testing.T) {
	sequences := 4_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	said := 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		r := w.request()
		v, err := w.s.Fit(r, &w.plan)
		require.NoError(t, err)
		if v.Feasible {
			continue
		}
		for _, id := range w.s.Jobs() {
			require.NoError(t, w.s.Release(id))
		}
		for x := range w.s.tree.Slots() {
			if id, ok := w.s.tree.NodeAt(int32(x)); ok {
				require.NoError(t, w.s.Open(id))
				require.NoError(t, w.s.SetHealth(id, true))
			}
		}
		free := *r
		free.Gang, free.Exclude, free.Busy = tolerant(r.Gang), nil, nil
		for i := range free.Gang.Roles {
			d := &free.Gang.Roles[i].Demand
			if d.Classes = nil; !parted(d) {
				d.GPUMemory = 0
			}
		}
		best, err := w.s.Fit(&free, &w.plan)
		require.NoError(t, err)
		capacity := v.Reason == lockstep.ReasonCapacity
		require.False(t, capacity && best.Feasible, "seed %d: %v, but fits", seed, v)
		require.False(t, !capacity && v.Reason != lockstep.ReasonReserved && !best.Feasible && len(r.Gang.Roles) == 1, "seed %d: %v, but never fits", seed, v)
		if capacity {
			said++
		}
	}
	require.Greater(t, said, sequences/50)
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

// scarce gives every node little CPU and memory, under the members that it has, and has
// r ask for some.
func (w *world) scarce(r *lockstep.Request) {
	var nodes []Node
	for x := range w.s.tree.Slots() {
		if id, ok := w.s.tree.NodeAt(int32(x)); ok {
			n := w.node(id)
			n.CPU, n.Memory = lockstep.MilliCPU(1+w.rng.IntN(4))*1000, lockstep.Bytes(1+w.rng.IntN(4))<<30
			nodes = append(nodes, n)
		}
	}
	_, err := w.s.Rebase(w.s.tree, nodes)
	require.NoError(w.t, err)
	w.marks = nil
	for i := range r.Gang.Roles {
		d := &r.Gang.Roles[i].Demand
		d.CPU, d.Memory = lockstep.MilliCPU(w.rng.IntN(3))*700, lockstep.Bytes(w.rng.IntN(3))*(700<<20)
		if w.rng.IntN(2) == 0 {
			*d = lockstep.Demand{CPU: d.CPU / 2, Memory: d.Memory}
		}
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

// afterAdd joins nodes to the domain of c, in a state of its own that holds what
// w's does: like the one that Explain found, but with no more of the resource
// than members take.
func (w *world) afterAdd(r *lockstep.Request, c *lockstep.Change) bool {
	require.Len(w.t, r.Gang.Roles, 1)
	role := &r.Gang.Roles[0]
	e := &explainer{s: w.s, r: r, g: r.Gang}
	require.NoError(w.t, e.open())
	v := e.view()
	name := c.Resource
	if len(role.Demand.Classes) == 1 && name == lockstep.ResourceGPUClass(role.Demand.Classes[0]) {
		name = lockstep.ResourceGPU
	}
	_, need := v.kind.named(name)
	require.Positive(w.t, need)
	members, least := int32(c.Amount/need), v.unit(w.s.depth-1)
	if e.stop == w.s.depth-1 {
		least = members
	}
	wholeNodes := v.ranked && (name == lockstep.ResourceGPU || name == lockstep.ResourceGPUMemory)
	if wholeNodes {
		if least = v.unit(w.s.depth - 1); e.stop == w.s.depth-1 {
			least *= e.need
		}
	} else {
		require.Zero(w.t, c.Amount%need)
	}
	x, ok := e.model(v, least)
	require.True(w.t, ok)
	like, shape := w.s.specs[x].node, w.s.tree.Shape(x)
	empty := w.s.empty(x)
	room := w.s.room(v, x, &empty)
	room -= room % v.unit(w.s.depth-1)
	if wholeNodes {
		each := int64(empty.all.Len()) * 1000
		if name == lockstep.ResourceGPUMemory {
			each = int64(empty.all.Len()) * int64(like.GPUMemory)
		}
		require.Zero(w.t, c.Amount%each)
		members = int32(c.Amount/each) * room
	}
	e.close()

	level, _ := w.s.tree.LevelIndex(c.Level)
	same, path := 0, []string(nil)
	for d := range w.s.tree.Domains(level) {
		if w.s.tree.DomainName(level, int32(d)) == c.Domain {
			same++
		}
	}
	for x := range w.s.tree.Slots() {
		n, ok := w.s.tree.Node(int32(x))
		if ok && path == nil && w.s.tree.DomainName(level, w.s.tree.DomainOf(level, int32(x))) == c.Domain {
			path = n.Path
		}
	}
	if path == nil || same > 1 {
		return true // only vacant slots, or several racks of that name
	}
	var joins []topology.Change
	var nodes []Node
	for members > 0 {
		k := min(room, members)
		members -= k
		n := Node{ID: lockstep.NodeID(fmt.Sprint("new", len(nodes))), Class: like.Class, GPUMemory: like.GPUMemory, Overcommit: like.Overcommit, MIG: like.MIG, CPU: like.CPU, Memory: like.Memory, RDMA: like.RDMA, Slots: like.Slots}
		of := shape
		if wholeNodes {
			n.Partitioned = like.Partitioned
		}
		switch amount := int64(k) * need; name {
		case lockstep.ResourceGPUMemory:
		case lockstep.ResourceGPU:
			if wholeNodes {
				break
			}
			var err error
			of, err = topology.UniformShape(int(amount/1000), topology.NVLink(1))
			require.NoError(w.t, err)
		case lockstep.ResourceCPU:
			n.CPU = lockstep.MilliCPU(amount)
		case lockstep.ResourceMemory:
			n.Memory = lockstep.Bytes(amount)
		case lockstep.ResourceRDMA:
			n.RDMA = int(amount)
		case lockstep.ResourceSlots:
			n.Slots = int(amount)
		}
		joins = append(joins, topology.Change{Kind: topology.Join, Node: topology.Node{ID: n.ID, Path: path, Shape: of}})
		nodes = append(nodes, n)
	}
	next, err := w.s.tree.With(joins...)
	require.NoError(w.t, err)
	old := w.s.tree
	_, err = w.s.Rebase(next, nodes)
	require.NoError(w.t, err)
	var out lockstep.Plan
	got, err := w.s.Fit(r, &out)
	require.NoError(w.t, err)
	_, err = w.s.Rebase(old, nil)
	require.NoError(w.t, err)
	w.added[name]++
	return got.Feasible
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
		}, lockstep.ReasonCapacity, 1, "slots 2/1\nshrink / 1  []"},
		{"several roles, more than the cluster together", func(t *testing.T) (*State, *lockstep.Gang) {
			shape, err := topology.UniformShape(4, topology.NVLink(1))
			require.NoError(t, err)
			s := stateOf(t, []topology.Node{{ID: "a", Path: []string{"r"}, Shape: shape}, {ID: "b", Path: []string{"r"}, Shape: shape}}, Config{})
			g := gangOf("c", 2, 4)
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1, Demand: lockstep.Demand{GPUs: 1}})
			return s, g
		}, lockstep.ReasonCapacity, 2, "gpu 9000/8000\nshrink / 2  []"},
		{"several roles, more than a rack together", func(t *testing.T) (*State, *lockstep.Gang) {
			g := rack(gangOf("c", 2, 8))
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1, Demand: lockstep.Demand{GPUs: 1}})
			return stateOf(t, nodesOf(4), Config{}), g
		}, lockstep.ReasonCapacity, 2, "gpu 17000/16000\nrelax / 0  []\nshrink / 2  []"},
		{"several roles and a cordon", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{})
			require.NoError(t, s.Cordon("n0"))
			g := gangOf("c", 1, 8)
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1, Demand: lockstep.Demand{GPUs: 1}})
			return s, g
		}, lockstep.ReasonUnhealthy, 1, "gpu 9000/8000\n1 unhealthy cordoned\nshrink / 1  []\nopen cluster/cluster 0  [n0]"},
		{"more CPU than any node has", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", CPU: 100}, {ID: "n1", CPU: 128}}})
			s.mustPlace(t, gangOf("x", 1, 8))
			g := gangOf("c", 1, 1)
			g.Roles[0].Demand.CPU = 200
			return s, g
		}, lockstep.ReasonCapacity, 0, "cpu 200/128\n2 capacity cpu"},
		{"CPU is what is short", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", CPU: 100}, {ID: "n1", CPU: 100}}})
			g := gangOf("c", 3, 1)
			g.Roles[0].Demand.CPU = 100
			return s, g
		}, lockstep.ReasonCapacity, 2, "cpu 300/200\nshrink / 2  []\nadd cluster/cluster 100 cpu []"},
		{"a label that only a cordoned node has", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", Labels: map[string]string{"disk": "nvme"}}}})
			require.NoError(t, s.Cordon("n0"))
			g := gangOf("c", 1, 8)
			g.Constraints.Selector = []lockstep.Requirement{{Key: "disk", Operator: lockstep.In, Values: []string{"nvme"}}}
			return s, g
		}, lockstep.ReasonUnhealthy, 0, "gpu 8000/0\n1 constraint selector\n1 unhealthy cordoned\ntolerate / 0  []\nopen cluster/cluster 0  [n0]"},
		{"CPU ran out", func(t *testing.T) (*State, *lockstep.Gang) {
			s := stateOf(t, nodesOf(1), Config{Nodes: []Node{{ID: "n0", CPU: 3000}}})
			g := gangOf("c", 4, 1)
			g.Roles[0].Demand.CPU = 1000
			return s, g
		}, lockstep.ReasonCapacity, 3, ""},
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
