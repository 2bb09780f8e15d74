package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// world is a State beside the reference, driven by the same random calls.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	s      *State
	ref    *plainState
	plan   lockstep.Plan
	serial int
	marks  []worldMark
	shapes []*topology.Shape
	parts  bool // some members take shares or MIG instances
	asked  int
	fitted int
	added  map[lockstep.ResourceName]int // changes of kind add that were tried
}

type worldMark struct {
	mark lockstep.Mark
	ref  *plainState
}

// littered lets a long test collect garbage seldom: small states make much of it.
func littered(t *testing.T) {
	old := debug.SetGCPercent(1000)
	t.Cleanup(func() { debug.SetGCPercent(old) })
}

// someShapes returns the shapes that worlds draw from.
func someShapes(t *testing.T) []*topology.Shape {
	littered(t)
	out := []*topology.Shape{topology.PCIe8(), nil}
	for _, n := range []int{1, 2, 4, 8} {
		shape, err := topology.UniformShape(n, topology.NVLink(1))
		require.NoError(t, err)
		out = append(out, shape)
	}
	return out
}

func newWorld(t *testing.T, seed uint64, some []*topology.Shape) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, rng: rng, shapes: some, parts: seed%3 == 1}
	levels := []topology.Level{{Name: "block"}, {Name: "rack"}}[:rng.IntN(3)]
	var shapes []*topology.Shape
	for range 1 + rng.IntN(2) {
		shapes = append(shapes, some[rng.IntN(len(some))])
	}
	var nodes []topology.Node
	for i := range 1 + rng.IntN(8) {
		n := topology.Node{ID: lockstep.NodeID(fmt.Sprint("n", i)), Shape: shapes[rng.IntN(len(shapes))]}
		n.Path = w.path(len(levels))
		nodes = append(nodes, n)
	}
	tree, err := topology.New(levels, nodes)
	require.NoError(t, err)
	w.ref = &plainState{
		tree: tree, nodes: map[lockstep.NodeID]Node{}, shut: map[lockstep.NodeID]bool{}, ill: map[lockstep.NodeID]bool{},
		penalty: map[lockstep.NodeID]int32{}, jobs: map[lockstep.JobID]*lockstep.Plan{},
		mig: plainGeometries{}, mix: w.mix(),
	}
	w.ref.rule = []Rule{RulePrices, RulePrices, RuleGradient}[rng.IntN(3)]
	w.ref.rankAll = w.parts && rng.IntN(3) == 0
	cfg := Config{Mix: w.ref.mix, Rule: w.ref.rule, RankAll: w.ref.rankAll, wide: int32([]int{0, 1, 2}[rng.IntN(3)]), Views: []int{0, 1, 3}[rng.IntN(3)]}
	for _, n := range nodes {
		o := w.node(n.ID)
		w.ref.nodes[n.ID] = o
		cfg.Nodes = append(cfg.Nodes, o)
	}
	w.s, err = New(tree, cfg)
	require.NoError(t, err)
	w.ref.remains = w.ref.remaining()
	return w
}

// mix returns a workload to measure fragmentation by.
func (w *world) mix() (out []Shape) {
	for range w.rng.IntN(5) {
		h := Shape{GPUs: []int{0, 1, 1, 1, 2, 4}[w.rng.IntN(6)], CPU: lockstep.MilliCPU(w.rng.IntN(4)) * 1000, Count: int64(w.rng.IntN(5))}
		if h.GPUs > 0 {
			h.Share = lockstep.MilliGPU([]int{0, 200, 500, 700, 1000}[w.rng.IntN(5)])
			if w.rng.IntN(4) == 0 {
				h.Classes = []lockstep.DeviceClass{"h100"}
			}
		}
		out = append(out, h)
	}
	return out
}

func (w *world) path(depth int) []string {
	p := []string{fmt.Sprint("b", w.rng.IntN(2)), fmt.Sprint("r", w.rng.IntN(3))}[:depth]
	return p
}

func (w *world) node(id lockstep.NodeID) Node {
	n := Node{ID: id, Labels: map[string]string{"zone": fmt.Sprint(w.rng.IntN(2))}}
	switch w.rng.IntN(4) {
	case 0:
		n.Slots = 1 + w.rng.IntN(4)
	case 1:
		n.CPU = lockstep.MilliCPU(w.rng.IntN(6)) * 1000
		n.RDMA = w.rng.IntN(4) - 1
	case 2:
		n.Class, n.GPUMemory = "h100", 80
		if w.parts {
			n.Overcommit = w.rng.IntN(2) * 500
		}
		if w.parts && w.rng.IntN(2) == 0 {
			n.MIG = []string{"a30", "h100-80gb"}[w.rng.IntN(2)]
			n.Partitioned = lockstep.DeviceSet(w.rng.IntN(2) * w.rng.IntN(8))
		}
	}
	if w.rng.IntN(5) == 0 {
		n.Taints = []lockstep.Taint{{Key: "k", Value: fmt.Sprint(w.rng.IntN(2))}}
	}
	return n
}

func (w *world) gang() *lockstep.Gang {
	rng := w.rng
	w.serial++
	g := &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint("j", w.serial))}
	if rng.IntN(3) == 0 {
		g.Labels = map[string]string{"app": fmt.Sprint(rng.IntN(2))}
	}
	for i := range 1 + rng.IntN(7)/5*(1+rng.IntN(2)) {
		g.Roles = append(g.Roles, w.role(fmt.Sprint("r", i)))
	}
	levels := []lockstep.Level{"", "", "", "cluster"}
	for l := range w.s.tree.Levels() {
		levels = append(levels, w.s.tree.LevelAt(l).Name)
	}
	g.Required = levels[rng.IntN(len(levels))]
	g.Preferred = levels[rng.IntN(len(levels))]
	if rng.IntN(4) == 0 {
		g.Strategy = lockstep.Spread
	}
	g.Constraints = w.constraints()
	return g
}

func (w *world) role(name string) lockstep.Role {
	rng := w.rng
	r := lockstep.Role{Name: lockstep.RoleName(name), Min: 1 + rng.IntN(3)}
	r.Demand.GPUs = []int{0, 1, 1, 1, 2, 2, 3, 4, 8}[rng.IntN(9)]
	if w.parts && r.Demand.GPUs > 0 {
		switch rng.IntN(3) {
		case 0:
			r.Demand.Share = lockstep.MilliGPU([]int{100, 250, 300, 400, 500, 600, 999}[rng.IntN(7)])
			r.Demand.GPUMemory = lockstep.Bytes([]int{0, 0, 20, 45}[rng.IntN(4)])
		case 1:
			r.Demand.GPUs, r.Demand.Profile = 1, []lockstep.Profile{"1g.6gb", "2g.12gb", "1g.10gb", "3g.40gb", "1g.20gb", "7g.80gb"}[rng.IntN(6)]
		}
	}
	switch rng.IntN(5) {
	case 0:
		r.Demand.CPU = lockstep.MilliCPU(rng.IntN(3)) * 700
	case 1:
		r.Demand.RDMA = rng.IntN(2)
	case 2:
		if r.Demand.GPUs > 0 && r.Demand.Share == 0 {
			r.Demand.GPUMemory = 80
		}
	}
	if rng.IntN(3) == 0 {
		r.Max = r.Min + rng.IntN(5)
	}
	if rng.IntN(4) == 0 {
		r.Inner.Size = 2 + rng.IntN(2)
		r.Min *= r.Inner.Size
		r.Max *= r.Inner.Size
		if rng.IntN(2) == 0 {
			r.Inner.Level = w.s.tree.LevelAt(rng.IntN(w.s.tree.Levels())).Name
		}
	}
	if rng.IntN(6) == 0 {
		r.Constraints = w.constraints()
	}
	return r
}

func (w *world) constraints() (c lockstep.Constraints) {
	rng := w.rng
	if rng.IntN(5) == 0 {
		c.Selector = []lockstep.Requirement{{Key: "zone", Operator: []lockstep.Operator{lockstep.In, lockstep.NotIn}[rng.IntN(2)], Values: []string{fmt.Sprint(rng.IntN(2))}}}
	}
	if rng.IntN(3) == 0 {
		c.Tolerations = []lockstep.Toleration{{Key: "k", Value: []string{"", "0", "1"}[rng.IntN(3)]}}
	}
	if rng.IntN(5) == 0 {
		c.Affinity = []lockstep.Affinity{{
			Match: map[string]string{"app": fmt.Sprint(rng.IntN(2))}, Anti: rng.IntN(2) == 0,
			Level: w.s.tree.LevelAt(rng.IntN(w.s.tree.Levels())).Name,
		}}
	}
	return c
}

func (w *world) anyNode() lockstep.NodeID {
	var ids []lockstep.NodeID
	for x := range w.s.tree.Slots() {
		if id, ok := w.s.tree.NodeAt(int32(x)); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[w.rng.IntN(len(ids))]
}

func (w *world) anyJob() lockstep.JobID {
	ids := slices.Sorted(maps.Keys(w.ref.jobs))
	if len(ids) == 0 {
		return ""
	}
	return ids[w.rng.IntN(len(ids))]
}

// request wraps a gang, sometimes with bounds, exclusions and busy room.
func (w *world) request() *lockstep.Request {
	rng := w.rng
	r := &lockstep.Request{Gang: w.gang()}
	if rng.IntN(5) == 0 {
		for i := range r.Gang.Roles {
			o := &r.Gang.Roles[i]
			size := max(1, o.Inner.Size)
			hi := rng.IntN(o.Limit()/size + 1)
			r.Max = append(r.Max, hi*size)
			r.Min = append(r.Min, rng.IntN(hi+1)*size)
		}
		if slices.Max(r.Max) == 0 {
			r.Min, r.Max = nil, nil
		}
	}
	if rng.IntN(5) == 0 {
		r.Exclude = []lockstep.NodeID{w.anyNode(), "gone"}
	}
	if rng.IntN(5) == 0 {
		for range 2 {
			r.Busy = append(r.Busy, lockstep.Busy{
				Node: w.anyNode(), Devices: lockstep.DeviceSet(rng.IntN(16)), CPU: lockstep.MilliCPU(rng.IntN(2000)),
				RDMA: rng.IntN(2), Slots: rng.IntN(2),
			})
			if b := &r.Busy[len(r.Busy)-1]; w.parts && rng.IntN(2) == 0 {
				b.Share, b.GPUMemory = lockstep.MilliGPU(rng.IntN(5))*250, lockstep.Bytes(rng.IntN(3)*15)
			}
		}
	}
	return r
}

func (w *world) step() {
	switch w.rng.IntN(20) {
	default:
		w.fit(w.request())
	case 0, 1, 2, 3, 4:
		if id := w.anyJob(); id != "" {
			require.NoError(w.t, w.s.Release(id))
			delete(w.ref.jobs, id)
		}
	case 5, 6:
		if id := w.anyNode(); id != "" {
			w.flag(id)
		}
	case 7:
		w.marks = append(w.marks, worldMark{w.s.Mark(), w.ref.clone()})
	case 8:
		if n := len(w.marks); n > 0 {
			i := w.rng.IntN(n)
			require.NoError(w.t, w.s.Rollback(w.marks[i].mark))
			w.ref = w.marks[i].ref
			w.marks = w.marks[:i]
		}
	case 9, 10:
		w.rebase()
	}
}

func (w *world) flag(id lockstep.NodeID) {
	set := w.rng.IntN(2) == 0
	switch w.rng.IntN(3) {
	case 0:
		if set {
			require.NoError(w.t, w.s.Cordon(id))
		} else {
			require.NoError(w.t, w.s.Open(id))
		}
		w.ref.shut[id] = set
	case 1:
		require.NoError(w.t, w.s.SetHealth(id, !set))
		w.ref.ill[id] = set
	case 2:
		p := int32(w.rng.IntN(4))
		require.NoError(w.t, w.s.SetPenalty(id, p))
		w.ref.penalty[id] = p
	}
}

func (w *world) fit(r *lockstep.Request) {
	verdict, err := w.s.Fit(r, &w.plan)
	if err != nil { // require is slow
		require.NoError(w.t, err)
	}
	want := w.ref.fit(r)
	w.asked++
	if !slices.Equal(want, w.plan.Members) || (want != nil) != verdict.Feasible {
		require.Equal(w.t, want, w.plan.Members, "%v", verdict)
	}
	if want == nil {
		require.NotEmpty(w.t, verdict.Reason)
		return
	}
	if len(want) != verdict.Fit {
		require.Len(w.t, want, verdict.Fit)
	}
	w.fitted++
	if r.Busy == nil && w.rng.IntN(4) > 0 {
		require.NoError(w.t, w.s.Apply(&w.plan))
		w.ref.jobs[r.Gang.ID] = w.plan.Clone()
	}
}

// rebase changes the tree: nodes join, leave and move.
func (w *world) rebase() {
	rng, tree := w.rng, w.ref.tree
	depth := tree.Levels() - 2
	var changes []topology.Change
	var nodes []Node
	for range 1 + rng.IntN(2) {
		id := lockstep.NodeID(fmt.Sprint("n", rng.IntN(10)))
		if slices.ContainsFunc(changes, func(c topology.Change) bool { return c.Node.ID == id }) {
			continue
		}
		n := topology.Node{ID: id, Path: w.path(depth), Shape: w.shapes[rng.IntN(len(w.shapes))]}
		_, there := tree.Slot(id)
		switch {
		case !there:
			changes = append(changes, topology.Change{Kind: topology.Join, Node: n})
			w.ref.nodes[id] = Node{ID: id}
		case rng.IntN(2) == 0 && tree.Nodes() > 1:
			changes = append(changes, topology.Change{Kind: topology.Leave, Node: n})
			delete(w.ref.nodes, id)
			delete(w.ref.shut, id)
			delete(w.ref.ill, id)
			delete(w.ref.penalty, id)
			continue
		default:
			changes = append(changes, topology.Change{Kind: topology.Recable, Node: n})
		}
		if rng.IntN(2) == 0 {
			w.ref.nodes[id] = w.node(id)
			nodes = append(nodes, w.ref.nodes[id])
		}
	}
	next, err := tree.With(changes...)
	require.NoError(w.t, err)
	lost := w.s.Lost()
	displaced, err := w.s.Rebase(next, nodes)
	require.NoError(w.t, err)
	w.ref.tree, w.marks = next, nil
	var want []Displaced
	w.ref.resettle(changes, nodes)
	for _, id := range slices.Sorted(maps.Keys(w.ref.jobs)) {
		for rank, m := range w.ref.jobs[id].Members {
			if w.ref.away[id][rank] {
				want = append(want, Displaced{id, rank, m.Node})
			}
		}
	}
	require.Equal(w.t, want, w.s.Lost())
	for _, d := range displaced {
		require.NotContains(w.t, lost, d)
		require.Contains(w.t, want, d)
	}
	w.checkPlans()
}

// checkPlans compares what every job holds.
func (w *world) checkPlans() {
	require.ElementsMatch(w.t, slices.Sorted(maps.Keys(w.ref.jobs)), w.s.Jobs())
	for id, want := range w.ref.jobs { // in any order: all are compared
		require.True(w.t, w.s.Plan(id, &w.plan))
		require.Equal(w.t, want.Members, w.plan.Members)
	}
}

// check compares every counter with its sum.
func (w *world) check() {
	require.NoError(w.t, w.s.verify())
}

func TestStateEqualsBruteForce(t *testing.T) {
	sequences := 100_000
	if testing.Short() {
		sequences = 3_000
	}
	shapes := someShapes(t)
	asked, fitted := 0, 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 10 {
			w.step()
		}
		w.check()
		asked, fitted = asked+w.asked, fitted+w.fitted
	}
	t.Logf("%d of %d requests fitted", fitted, asked)
	require.Greater(t, 3*fitted, asked, "too few requests fit for the test to mean much")
}
