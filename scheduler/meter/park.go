package meter

import (
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// park is where the devices of the cluster are.
type park struct {
	tree    *topology.Tree
	classes []lockstep.DeviceClass // sorted
	nodes   map[lockstep.NodeID]*garage
	closed  map[lockstep.NodeID]uint8
	total   []lockstep.MilliGPU // by class
	running []lockstep.MilliGPU
	waiting []lockstep.MilliGPU
}

// garage is the devices of a node.
type garage struct {
	class int
	gpus  lockstep.MilliGPU
}

// Why a node is closed.
const (
	isDown     = 1
	isCordoned = 2
)

// newPark returns the devices of tree; a nil tree has none. It has the classes in
// also, whether there are devices of them or not.
func newPark(tree *topology.Tree, nodes []placement.Node, also []lockstep.DeviceClass) *park {
	p := &park{tree: tree, nodes: make(map[lockstep.NodeID]*garage), closed: make(map[lockstep.NodeID]uint8)}
	if tree == nil {
		return p
	}
	class := make(map[lockstep.NodeID]lockstep.DeviceClass, len(nodes))
	for i := range nodes {
		class[nodes[i].ID] = nodes[i].Class
	}
	found := make(map[lockstep.DeviceClass]bool)
	for _, c := range also {
		found[c] = true
	}
	for slot := range int32(tree.Slots()) {
		if id, ok := tree.NodeAt(slot); ok && tree.DeviceCount(slot) > 0 {
			found[class[id]] = true
		}
	}
	p.classes = slices.Sorted(maps.Keys(found))
	p.total = make([]lockstep.MilliGPU, len(p.classes))
	p.running, p.waiting = make([]lockstep.MilliGPU, len(p.classes)), make([]lockstep.MilliGPU, len(p.classes))
	for slot := range int32(tree.Slots()) {
		id, ok := tree.NodeAt(slot)
		if n := tree.DeviceCount(slot); ok && n > 0 {
			at, _ := slices.BinarySearch(p.classes, class[id])
			g := &garage{class: at, gpus: lockstep.WholeGPU.Mul(int64(n))}
			p.nodes[id] = g
			p.total[at] = p.total[at].Add(g.gpus)
		}
	}
	return p
}

// renewed returns the devices as c has them, p itself if it can. Classes of which
// nothing is left stay, so that they are recorded as 0.
func (p *park) renewed(c Cluster) *park {
	tree := c.Tree()
	if p.tree == nil || tree == nil {
		return p // devices are not measured
	}
	if tree != p.tree || p.reclassed(c) {
		var nodes []placement.Node
		for slot := range int32(tree.Slots()) {
			if id, ok := tree.NodeAt(slot); ok {
				st, _ := c.Node(id)
				nodes = append(nodes, placement.Node{ID: id, Class: st.Node.Class})
			}
		}
		p = newPark(tree, nodes, p.classes)
	}
	clear(p.closed)
	for id := range p.nodes { // each by itself, so that the order cannot matter
		if st, ok := c.Node(id); ok {
			if !st.Healthy {
				p.close(lockstep.EventDown, id)
			}
			if !st.Open {
				p.close(lockstep.EventCordon, id)
			}
		}
	}
	return p
}

// reclassed reports whether c has some node of p in another class.
func (p *park) reclassed(c Cluster) bool {
	for id, g := range p.nodes { // whether there is one: the order cannot matter
		if st, ok := c.Node(id); ok && st.Node.Class != p.classes[g.class] {
			return true
		}
	}
	return false
}

// close notes that a node takes no more members, or that it does again.
func (p *park) close(kind lockstep.EventKind, node lockstep.NodeID) {
	was := p.closed[node]
	switch kind {
	case lockstep.EventDown:
		was |= isDown
	case lockstep.EventCordon:
		was |= isCordoned
	case lockstep.EventUp:
		was &^= isDown
	case lockstep.EventOpen:
		was &^= isCordoned
	}
	if was == 0 {
		delete(p.closed, node)
	} else {
		p.closed[node] = was
	}
}

// reset forgets who holds what.
func (p *park) reset() {
	clear(p.running)
	clear(p.waiting)
}

// hold notes what a job holds.
func (p *park) hold(plan *lockstep.Plan, waits bool) {
	into := p.running
	if waits {
		into = p.waiting
	}
	for i := range plan.Members {
		if g := p.nodes[plan.Members[i].Node]; g != nil {
			into[g.class] = into[g.class].Add(share(plan, &plan.Members[i]))
		}
	}
	for i := range plan.Spares { // nobody runs there
		if g := p.nodes[plan.Spares[i].Node]; g != nil {
			p.waiting[g.class] = p.waiting[g.class].Add(share(plan, &plan.Spares[i]))
		}
	}
}

// tell records the levels by class.
func (p *park) tell(rec lockstep.Recorder) {
	away := make([]lockstep.MilliGPU, len(p.classes))
	for id := range p.closed { // a sum, so that the order cannot matter
		if g := p.nodes[id]; g != nil {
			away[g.class] = away[g.class].Add(g.gpus)
		}
	}
	for i, c := range p.classes {
		l := lockstep.MetricLabels{Class: c}
		rec.Gauge(CapacityGPUs, l, devices(float64(p.total[i])))
		rec.Gauge(AllocatedGPUs, l, devices(float64(p.running[i])))
		rec.Gauge(ReservedGPUs, l, devices(float64(p.waiting[i])))
		rec.Gauge(QuarantinedGPUs, l, devices(float64(away[i])))
	}
}

func quote(id lockstep.NodeID) string { return errtext.Quote(string(id)) }
