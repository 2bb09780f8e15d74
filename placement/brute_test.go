package placement

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// plainState is the reference: it keeps who holds what and scans everything,
// following the order of decision of the package documentation.
type plainState struct {
	tree    *topology.Tree
	nodes   map[lockstep.NodeID]Node
	shut    map[lockstep.NodeID]bool
	ill     map[lockstep.NodeID]bool
	penalty map[lockstep.NodeID]int32
	jobs    map[lockstep.JobID]*lockstep.Plan
	mix     []Shape
	rule    Rule
	rankAll bool
	remains []leftover // of devices, when the mix was last learned
	mig     plainGeometries
	away    map[lockstep.JobID]map[int]bool // ranks that are lost
}

func (p *plainState) clone() *plainState {
	return &plainState{
		tree: p.tree, nodes: maps.Clone(p.nodes), shut: maps.Clone(p.shut), ill: maps.Clone(p.ill),
		penalty: maps.Clone(p.penalty), jobs: maps.Clone(p.jobs), mix: p.mix, rule: p.rule, rankAll: p.rankAll, remains: p.remains, mig: p.mig, away: p.away,
	}
}

// plainNode is what is left on a node.
type plainNode struct {
	free              lockstep.DeviceSet // nobody has any part of them
	hidden            lockstep.DeviceSet // wholly held, or busy
	apart             lockstep.DeviceSet // set aside for instances
	devices           [8]plainDevice
	mig               string
	class             lockstep.DeviceClass
	memoryEach        int64
	cpu, memory       int64
	rdma, slots, used int
}

// plainFit is one attempt: nodes by slot, changed as members are placed.
type plainFit struct {
	*plainState
	left    []plainNode
	exclude map[lockstep.NodeID]bool
	gang    *lockstep.Gang
	worst   int
	allowed map[*lockstep.Role][]int8 // by slot: 0 unknown, 1 yes, -1 no; for one worst
	prices  *plainMarket
}

func amount(v int64) int64 {
	if v == 0 {
		return 1 << 55
	}
	return max(v, 0)
}

func (p *plainState) left(busy []lockstep.Busy) []plainNode {
	out := make([]plainNode, p.tree.Slots())
	for x := range out {
		id, ok := p.tree.NodeAt(int32(x))
		if !ok {
			continue
		}
		n := p.nodes[id]
		out[x] = plainNode{
			free: p.tree.Shape(int32(x)).All(), cpu: amount(int64(n.CPU)), memory: amount(int64(n.Memory)),
			rdma: int(min(amount(int64(n.RDMA)), 1<<30)), slots: int(min(amount(int64(n.Slots)), 1024)),
			apart: n.Partitioned, mig: n.MIG, class: n.Class, memoryEach: int64(n.GPUMemory) * int64(1000+n.Overcommit) / 1000,
		}
	}
	for id, plan := range p.jobs { // in any order: sums
		for rank, m := range everyone(plan) {
			if x, ok := p.tree.Slot(m.Node); ok && !p.away[id][rank] {
				out[x].take(m.Devices, int(m.Start), &plan.Gang.Roles[m.Role].Demand, p.mig)
			}
		}
	}
	for _, b := range busy {
		if x, ok := p.tree.Slot(b.Node); ok {
			for i := range (b.Devices & p.tree.Shape(x).All()).All {
				o := &out[x].devices[i]
				if out[x].free &^= 1 << i; b.Share%1000 == 0 || o.held != 0 || out[x].apart.Has(i) {
					out[x].hidden |= 1 << i
				} else if !out[x].hidden.Has(i) {
					o.milli = min(o.milli+int(b.Share), 1000)
					o.memory += int64(b.GPUMemory)
				}
			}
			out[x].cpu -= int64(b.CPU)
			out[x].memory -= int64(b.Memory)
			out[x].rdma -= b.RDMA
			out[x].slots -= b.Slots
		}
	}
	return out
}

// everyone returns the members of a plan and then its spares.
func everyone(p *lockstep.Plan) []lockstep.Member { return slices.Concat(p.Members, p.Spares) }

func (n *plainNode) take(set lockstep.DeviceSet, start int, d *lockstep.Demand, mig plainGeometries) {
	n.free &^= set
	for i := range set.All {
		switch {
		case d.Profile != "":
			g := mig.of(n.mig)
			p, _ := g.Lookup(d.Profile)
			n.devices[i].held, _ = g.Take(n.devices[i].held, p, start)
		case d.Share%1000 != 0:
			n.devices[i].milli += int(d.Share)
			n.devices[i].memory += int64(d.GPUMemory)
		default:
			n.hidden |= 1 << i
		}
	}
	n.cpu -= int64(d.CPU)
	n.memory -= int64(d.Memory)
	n.rdma -= d.RDMA
	n.slots--
	n.used++
}

// may is allows, asked once a node: members come and go, but not what decides.
func (f *plainFit) may(x int32, r *lockstep.Role) bool {
	known := f.allowed[r]
	if known == nil {
		known = make([]int8, len(f.left))
		f.allowed[r] = known
	}
	if known[x] == 0 {
		known[x] = int8(2*boolInt(f.allows(x, r)) - 1)
	}
	return known[x] > 0
}

// allows reports whether a role may use a node.
func (f *plainFit) allows(x int32, r *lockstep.Role) bool {
	id, ok := f.tree.NodeAt(x)
	if !ok || f.shut[id] || f.ill[id] || f.exclude[id] || bits.Len32(uint32(f.penalty[id])) > f.worst {
		return false
	}
	n := f.nodes[id]
	if len(r.Demand.Classes) > 0 && !slices.Contains(r.Demand.Classes, n.Class) || r.Demand.GPUMemory > n.GPUMemory {
		return false
	}
	if r.Demand.Profile != "" {
		g := f.mig.of(n.MIG)
		if g == nil {
			return false
		}
		if _, ok := g.Lookup(r.Demand.Profile); !ok {
			return false
		}
	}
	tolerations := slices.Concat(f.gang.Constraints.Tolerations, r.Constraints.Tolerations)
	for _, t := range n.Taints {
		if !slices.ContainsFunc(tolerations, func(o lockstep.Toleration) bool { return o.Tolerates(t) }) {
			return false
		}
	}
	for _, q := range slices.Concat(f.gang.Constraints.Selector, r.Constraints.Selector) {
		if !q.Matches(n.Labels) {
			return false
		}
	}
	for _, a := range slices.Concat(f.gang.Constraints.Affinity, r.Constraints.Affinity) {
		here, all := f.matching(&a, x)
		self := subset(a.Match, f.gang.Labels)
		if a.Anti && here || !a.Anti && !here && (all || !self) {
			return false
		}
	}
	return true
}

func (f *plainFit) matching(a *lockstep.Affinity, x int32) (here, all bool) {
	level := f.tree.Levels() - 1
	if a.Level != "" {
		level, _ = f.tree.LevelIndex(a.Level)
	}
	for _, plan := range f.jobs { // in any order: any will do
		if !subset(a.Match, plan.Gang.Labels) {
			continue
		}
		for rank, m := range everyone(plan) {
			if y, ok := f.tree.Slot(m.Node); ok && !f.away[plan.Job][rank] {
				all = true
				here = here || f.tree.DomainOf(level, x) == f.tree.DomainOf(level, y)
			}
		}
	}
	return here, all
}

func subset(match, labels map[string]string) bool {
	for k, v := range match { // in any order: all must hold
		if w, ok := labels[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// members returns how many members of a role fit on a node.
func (f *plainFit) members(x int32, r *lockstep.Role) int {
	if !f.may(x, r) {
		return 0
	}
	n, d := &f.left[x], &r.Demand
	k := n.slots
	switch {
	case parted(d):
		k = min(k, f.partMembers(x, d))
	case d.GPUs > 0:
		k = min(k, (n.free&^n.apart).Len()/d.GPUs)
	}
	if d.CPU > 0 {
		k = int(min(int64(k), n.cpu/int64(d.CPU)))
	}
	if d.Memory > 0 {
		k = int(min(int64(k), n.memory/int64(d.Memory)))
	}
	if d.RDMA > 0 {
		k = min(k, n.rdma/d.RDMA)
	}
	return max(k, 0)
}

func (f *plainFit) innerOf(r *lockstep.Role) (level, size int) {
	level = f.tree.Levels() - 1
	if r.Inner.Size > 1 && r.Inner.Level != "" {
		level, _ = f.tree.LevelIndex(r.Inner.Level)
	}
	return level, max(1, r.Inner.Size)
}

// units returns the room of a domain: whole groups at the inner level and
// coarser, members below.
func (f *plainFit) units(level int, d int32, r *lockstep.Role) int {
	inner, size := f.innerOf(r)
	n := 0
	if level < inner {
		a, b := f.tree.Children(level, d)
		for c := a; c < b; c++ {
			n += f.units(level+1, c, r)
		}
		return n
	}
	first, end := f.tree.Range(level, d)
	for x := first; x < end; x++ {
		n += f.members(x, r)
	}
	if level == inner {
		n /= size
	}
	return n
}

func (f *plainFit) unit(level int, r *lockstep.Role) int {
	if inner, size := f.innerOf(r); level <= inner {
		return size
	}
	return 1
}

// parted reports whether members take parts of devices.
func parted(d *lockstep.Demand) bool { return d.Profile != "" || d.Share%1000 != 0 }

// ranked reports whether nodes are chosen by rank.
func (p *plainState) ranked(d *lockstep.Demand) bool { return p.rankAll || parted(d) }

type plainDomain struct {
	d         int32
	rank      int
	units     int
	idle      bool
	free      int
	rack      int32 // lowest domain above a node
	rackUnits int
}

func (f *plainFit) domain(level int, d int32, r *lockstep.Role) plainDomain {
	o := plainDomain{d: d, units: f.units(level, d, r)}
	last := f.tree.Levels() - 1
	if level == last && f.ranked(&r.Demand) {
		o.rank = f.rank(d, r)
		return o
	}
	if level == last {
		o.idle, o.free = f.left[d].used == 0, (f.left[d].free &^ f.left[d].apart).Len()
		o.rack = f.tree.Parent(level, d)
		inner, _ := f.innerOf(r)
		first, end := f.tree.Range(last-1, o.rack)
		for x := first; x < end; x++ { // members, or groups where they sit in nodes
			if inner == last {
				o.rackUnits += f.units(last, x, r)
			} else {
				o.rackUnits += f.members(x, r)
			}
		}
	}
	return o
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fit answers a request without Prefer.
func (p *plainState) fit(r *lockstep.Request) []lockstep.Member {
	g := r.Gang
	lo, hi := make([]int, len(g.Roles)), make([]int, len(g.Roles))
	for i := range g.Roles {
		lo[i], hi[i] = g.Roles[i].Min, g.Roles[i].Limit()
		if r.Max != nil {
			hi[i] = r.Max[i]
			lo[i] = min(lo[i], hi[i])
		}
		if r.Min != nil {
			lo[i] = r.Min[i]
		}
	}
	f := &plainFit{plainState: p, left: p.left(r.Busy), exclude: map[lockstep.NodeID]bool{}, gang: g, prices: p.market()}
	for _, id := range r.Exclude {
		f.exclude[id] = true
	}
	classes := []int{0}
	for _, v := range p.penalty { // in any order: sorted below
		classes = append(classes, bits.Len32(uint32(v)))
	}
	slices.Sort(classes)
	for _, f.worst = range slices.Compact(classes) {
		f.allowed = map[*lockstep.Role][]int8{}
		if m := f.grow(lo, hi); m != nil {
			return m
		}
	}
	return nil
}

func (f *plainFit) grow(lo, hi []int) []lockstep.Member {
	if m := f.search(hi); m != nil {
		return m
	}
	counts := slices.Clone(lo)
	best := f.search(counts)
	some := slices.ContainsFunc(lo, func(n int) bool { return n > 0 })
	if best == nil && some {
		return nil
	}
	for i := range counts {
		size := max(1, f.gang.Roles[i].Inner.Size)
		if len(counts) == 1 { // one role: the greatest count that fits, tried from the top
			for counts[i] = hi[i]; counts[i] > lo[i]; counts[i] -= size {
				if m := f.search(counts); m != nil {
					return m
				}
			}
			return best
		}
		a, b := lo[i]/size, hi[i]/size
		for a < b {
			mid := (a + b + 1) / 2
			counts[i] = mid * size
			if f.search(counts) != nil {
				a = mid
			} else {
				b = mid - 1
			}
		}
		counts[i] = a * size
	}
	return f.search(counts)
}
