package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

func (e *explainer) propose(c lockstep.Change) { e.out.Changes = append(e.out.Changes, c) }

// relax looks for the finest coarser level that would do.
func (e *explainer) relax() {
	g := *e.g
	for l := e.stop - 1; l >= 0; l-- {
		g.Required = e.s.tree.LevelAt(l).Name
		if !e.would(*e.r, &g, nil) {
			continue
		}
		if l == 0 {
			g.Required = ""
		}
		e.propose(lockstep.Change{Kind: lockstep.ChangeRelax, Level: g.Required})
		return
	}
}

// shrink asks how many members would fit, roles in order as many as can.
func (e *explainer) shrink() {
	r := *e.r
	r.Max, r.Min = make([]int, len(e.g.Roles)), make([]int, len(e.g.Roles))
	for i := range r.Max {
		r.Max[i] = e.g.Roles[i].Min
		if e.r.Max != nil {
			r.Max[i] = e.r.Max[i]
		}
		if e.r.Min != nil {
			r.Max[i] = e.r.Min[i]
		}
	}
	if slices.Max(r.Max) == 0 || !e.would(r, e.g, nil) {
		return
	}
	n := int64(0)
	for _, k := range e.s.work.counts {
		n += int64(k)
	}
	e.propose(lockstep.Change{Kind: lockstep.ChangeShrink, Amount: n})
}

// tolerate drops every constraint.
func (e *explainer) tolerate() {
	if g := tolerant(e.g); e.would(*e.r, g, nil) {
		e.propose(lockstep.Change{Kind: lockstep.ChangeTolerate})
	}
}

// tolerant returns g without selectors and affinities, tolerating every taint.
func tolerant(g *lockstep.Gang) *lockstep.Gang {
	c := *g
	c.Constraints = lockstep.Constraints{Tolerations: []lockstep.Toleration{{}}}
	c.Roles = slices.Clone(g.Roles)
	for i := range c.Roles {
		c.Roles[i].Constraints = lockstep.Constraints{}
	}
	return &c
}

// gained is a node that a change would give room on.
type gained struct {
	x       int32
	members int32
}

// gain looks for the fewest nodes of one domain that, opened or freed, would
// let the gang in: those with most room first. What it finds is tried, and
// nodes that turn out not to be needed are dropped again.
func (e *explainer) gain(kind lockstep.ChangeKind) {
	best := e.offers(kind)
	for i, o := range best {
		if i == maxTries {
			return
		}
		nodes := o.nodes
		ok := e.wouldWith(kind, nodes[:o.enough])
		if ok {
			nodes = nodes[:o.enough]
		} else if ok = e.wouldWith(kind, nodes); !ok {
			continue
		}
		nodes = e.prune(kind, nodes)
		c := lockstep.Change{Kind: kind, Level: e.s.tree.LevelAt(e.stop).Name, Domain: e.s.tree.DomainName(e.stop, o.d)}
		for _, n := range nodes {
			c.Nodes = append(c.Nodes, e.s.ids[n.x])
		}
		slices.Sort(c.Nodes)
		e.propose(c)
		return
	}
}

// Bounds on the search for a change.
const (
	maxTries = 16 // domains
	maxPrune = 32 // nodes that are tried one by one
)

// offer is what a domain could gain.
type offer struct {
	d      int32
	nodes  []gained // most room first
	enough int      // how many of them seem to be needed
}

// offers returns the domains that could gain enough, fewest nodes first.
func (e *explainer) offers(kind lockstep.ChangeKind) []offer {
	var out []offer
	if err := e.open(); err != nil {
		return nil
	}
	defer e.close()
	v := e.view()
	want := e.need * v.unit(e.stop)
	for d := range e.s.tree.Domains(e.stop) {
		o := offer{d: int32(d)}
		first, end := e.s.tree.Range(e.stop, int32(d))
		have := e.s.unitsOf(v, e.stop, int32(d)) * v.unit(e.stop)
		for x := first; x < end; x++ {
			if n := e.s.gainOf(v, kind, x); n > 0 {
				o.nodes = append(o.nodes, gained{x, n})
			}
		}
		slices.SortFunc(o.nodes, func(a, b gained) int { return cmp.Or(int(b.members-a.members), int(a.x-b.x)) })
		for o.enough < len(o.nodes) && (have < want || o.enough == 0) {
			have += o.nodes[o.enough].members
			o.enough++
		}
		if len(o.nodes) > 0 && have >= want {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b offer) int { return a.enough - b.enough })
	return out
}

// gainOf returns how many members more a slot would hold once opened or freed.
func (s *State) gainOf(v *view, kind lockstep.ChangeKind, x int32) int32 {
	c := &s.slots[x]
	if c.flags&(vacant|excluded) != 0 || !v.wishes(s, x) {
		return 0
	}
	if kind == lockstep.ChangeOpen {
		if c.flags == 0 {
			return 0
		}
		return max(0, s.room(v, x, c))
	}
	if c.flags != 0 || c.members == 0 {
		return 0
	}
	empty := s.empty(x)
	return max(0, s.room(v, x, &empty)-max(0, s.room(v, x, c)))
}

// wouldWith reports whether the gang fits with the nodes opened or freed. Freed
// nodes must do in both senses: their members gone, as when they move, and the
// whole jobs of those members gone, which others' affinities may notice.
func (e *explainer) wouldWith(kind lockstep.ChangeKind, nodes []gained) bool {
	s := e.s
	ok := e.would(*e.r, e.g, func() {
		for _, n := range nodes {
			c := s.save(n.x)
			if kind == lockstep.ChangeOpen {
				c.flags = 0
			} else {
				head := c.head
				s.dropBlock(c)
				*c = s.empty(n.x)
				c.head = head
			}
		}
	})
	if !ok || kind == lockstep.ChangeOpen {
		return ok
	}
	var jobs []lockstep.JobID
	for _, n := range nodes {
		jobs = append(jobs, s.jobsAt(s.slots[n.x].head)...)
	}
	slices.Sort(jobs)
	var recs []int32
	s.work.frozen = true // all come back
	defer func() { s.work.frozen = false }()
	for _, id := range slices.Compact(jobs) {
		rec := s.byID[id]
		recs = append(recs, rec)
		s.unseat(rec)
	}
	ok = e.would(*e.r, e.g, nil)
	for i := len(recs) - 1; i >= 0; i-- {
		s.reseat(recs[i])
	}
	return ok
}

// prune drops nodes that are not needed, the least gain first.
func (e *explainer) prune(kind lockstep.ChangeKind, nodes []gained) []gained {
	if len(nodes) > maxPrune {
		return nodes
	}
	nodes = slices.Clone(nodes)
	for i := len(nodes) - 1; i >= 0 && len(nodes) > 1; i-- {
		fewer := slices.Delete(slices.Clone(nodes), i, i+1)
		if e.wouldWith(kind, fewer) {
			nodes = fewer
		}
	}
	return nodes
}

// add says how much more there would have to be of what binds a single role, in
// the best domain, and in the one above where that is a node, since nodes do not
// grow. It is proved for nodes like one that is there, without its labels and
// taints, each with what its members take of that resource; where no node is
// such that this would do, there is no change. Devices that members share come in
// whole nodes.
func (e *explainer) add() {
	if err := e.open(); err != nil {
		return
	}
	defer e.close()
	s, v, level := e.s, e.view(), e.stop
	fit, d := s.most(v, level, e.need)
	unit := v.unit(level)
	lacks, least := (e.need-fit)*unit, v.unit(s.depth-1)
	if level == s.depth-1 {
		lacks, least, level, d = e.need*unit, e.need*unit, level-1, s.tree.Parent(level, d)
	}
	name, need := v.kind.named(e.out.Verdict.Resource)
	x, ok := e.model(v, least)
	if !ok || need == 0 || len(e.g.Roles) > 1 || !v.mayJoin(s, level, d) {
		return
	}
	amount := int64(lacks) * need
	if v.ranked && (name == lockstep.ResourceGPU || name == lockstep.ResourceGPUMemory) {
		amount = s.addNodes(v, x, lacks, name)
	}
	if name == lockstep.ResourceGPU && len(v.class.devices) == 1 {
		name = lockstep.ResourceGPUClass(v.class.devices[0])
	}
	e.propose(lockstep.Change{
		Kind: lockstep.ChangeAdd, Level: s.tree.LevelAt(level).Name, Domain: s.tree.DomainName(level, d),
		Resource: name, Amount: amount,
	})
}

// addNodes returns how much of a resource of devices as many nodes like x have as hold
// so many members.
func (s *State) addNodes(v *view, x, members int32, name lockstep.ResourceName) int64 {
	empty := s.empty(x)
	room := s.room(v, x, &empty)
	room -= room % v.unit(s.depth-1)
	devices := int64((members+room-1)/room) * int64(empty.all.Len())
	if name == lockstep.ResourceGPU {
		return devices * int64(lockstep.WholeGPU)
	}
	return devices * int64(s.specs[x].node.GPUMemory)
}

// model returns the lowest open node that, empty and without labels and taints,
// would hold so many members.
func (e *explainer) model(v *view, least int32) (int32, bool) {
	for x := range e.s.slots {
		if e.s.slots[x].flags&^excluded != 0 {
			continue
		}
		n := &e.s.specs[x].node
		empty := e.s.empty(int32(x))
		if ok, _ := e.s.admits(v.class, &Node{Class: n.Class, GPUMemory: n.GPUMemory, MIG: n.MIG}); ok && e.s.room(v, int32(x), &empty) >= least {
			return int32(x), true
		}
	}
	return 0, false
}

// named returns how much one member takes of a resource.
func (k *kind) named(name lockstep.ResourceName) (lockstep.ResourceName, int64) {
	for i, a := range k.amounts() {
		if resourceName(i) == name {
			return name, a
		}
	}
	return name, 0
}

// mayJoin reports whether the affinities of v surely allow a node that joins
// domain d of a level.
func (v *view) mayJoin(s *State, level int, d int32) bool {
	for i := range v.terms {
		l := &v.terms[i]
		switch {
		case l.self && l.term.total == 0:
		case l.term.level == s.depth-1 && l.anti:
		case l.term.level <= level:
			first, _ := s.tree.Range(level, d)
			if !l.ok(s.tree.DomainOf(l.term.level, first)) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
