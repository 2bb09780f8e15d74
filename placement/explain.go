package placement

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Explain answers a request as Fit does and says why: how many nodes fail for
// which reason first, and for a gang that does not fit, changes each of which
// alone would let it in (see the package documentation). Where several roles
// are asked for, nodes are counted for the one that binds. It changes nothing.
//
// It returns errors as Fit does. It reads every node, and tries each change:
// O(nodes + changes tried × Fit).
func (s *State) Explain(r *lockstep.Request) (lockstep.Explanation, error) {
	var plan lockstep.Plan
	verdict, err := s.Fit(r, &plan)
	if err != nil {
		return lockstep.Explanation{}, err
	}
	e := &explainer{s: s, r: r, g: r.Gang}
	e.out = lockstep.Explanation{Job: r.Gang.ID, Verdict: verdict}
	if verdict.Reason == lockstep.ReasonUnsupported {
		return e.out, nil
	}
	if err := e.open(); err != nil {
		return lockstep.Explanation{}, err
	}
	e.count()
	e.close()
	if !verdict.Feasible {
		e.relax()
		e.shrink()
		e.tolerate()
		e.gain(lockstep.ChangeOpen)
		e.gain(lockstep.ChangeFree)
		e.add()
	}
	e.out.Sort()
	return e.out, nil
}

// explainer is one call of Explain.
type explainer struct {
	s    *State
	r    *lockstep.Request
	g    *lockstep.Gang
	out  lockstep.Explanation
	role int32 // that binds
	stop int
	need int32 // units of role
}

// open puts the request's overlay in place and finds the role that binds.
func (e *explainer) open() error {
	s, q := e.s, &e.s.work.query
	if err := s.read("explain", e.r, q); err != nil {
		return err
	}
	if err := s.cover("explain", e.r); err != nil {
		return err
	}
	s.aim(q, s.worst())
	e.role, _ = s.binds(q)
	e.stop = q.stop
	e.need = q.need(e.role) / e.view().unit(q.stop)
	return nil
}

func (e *explainer) close() { e.s.restore(0) }

// view returns the view of the role that binds, up to date.
func (e *explainer) view() *view {
	v := e.s.work.views[e.role]
	e.s.sync(v)
	return v
}

// count counts the nodes that no member of the role can use, by first reason.
func (e *explainer) count() {
	v := e.view()
	byCause := make(map[lockstep.ReasonCount]int)
	for x := range e.s.slots {
		if e.s.slots[x].flags&vacant == 0 && v.units[x] == 0 {
			byCause[e.s.cause(v, int32(x))]++
		}
	}
	for c, n := range byCause { // in any order: Sort follows
		c.Nodes = n
		e.out.Counts = append(e.out.Counts, c)
	}
}

// cause says what rules a slot out first: the state of the node, the request,
// the wishes, then room.
func (s *State) cause(v *view, x int32) lockstep.ReasonCount {
	c := &s.slots[x]
	switch {
	case c.flags&cordoned != 0:
		return lockstep.ReasonCount{Reason: lockstep.ReasonUnhealthy, Detail: "cordoned"}
	case c.flags&sick != 0:
		return lockstep.ReasonCount{Reason: lockstep.ReasonUnhealthy, Detail: "unhealthy"}
	case c.flags&excluded != 0:
		return lockstep.ReasonCount{Reason: lockstep.ReasonReserved, Detail: "excluded"}
	}
	if ok, why := v.class.admits(&s.specs[x].node); !ok {
		return lockstep.ReasonCount{Reason: lockstep.ReasonConstraint, Detail: why.String()}
	}
	if !v.wishes(s, x) {
		return lockstep.ReasonCount{Reason: lockstep.ReasonConstraint, Detail: wishAffinity.String()}
	}
	size := int32(1)
	if int(v.kind.inner) == s.depth-1 {
		size = v.kind.size
	}
	empty := s.empty(x)
	if short := v.shortOf(&empty, size); short != "" {
		return lockstep.ReasonCount{Reason: lockstep.ReasonCapacity, Detail: string(short)}
	}
	return lockstep.ReasonCount{Reason: lockstep.ReasonBusy, Detail: string(v.shortOf(c, size))}
}

// String names the wish, as explanations do.
func (w wish) String() string {
	switch w {
	case wishDevice:
		return "device"
	case wishSelector:
		return "selector"
	case wishTaint:
		return "taint"
	}
	return "affinity"
}

// shortOf returns the first resource of which c has too little for n members.
func (v *view) shortOf(c *slot, n int32) lockstep.ResourceName {
	k := &v.kind
	switch {
	case k.gpus > 0 && int32(bits.OnesCount64(uint64(c.free)))/k.gpus < n:
		return lockstep.ResourceGPU
	case k.cpu > 0 && c.cpu/k.cpu < int64(n):
		return lockstep.ResourceCPU
	case k.memory > 0 && c.memory/k.memory < int64(n):
		return lockstep.ResourceMemory
	case k.rdma > 0 && c.rdma/k.rdma < n:
		return lockstep.ResourceRDMA
	case c.slots < n:
		return lockstep.ResourceSlots
	}
	return ""
}

// would reports whether a request for g fits once change is done.
func (e *explainer) would(r lockstep.Request, g *lockstep.Gang, change func()) bool {
	s, q := e.s, &e.s.work.query
	r.Gang, r.Prefer = g, nil
	if s.read("explain", &r, q) != nil || s.cover("explain", &r) != nil {
		return false
	}
	if change != nil {
		change()
	}
	ok := s.fits(q)
	s.restore(0)
	return ok
}

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
		return max(0, v.room(c))
	}
	if c.flags != 0 || c.members == 0 {
		return 0
	}
	empty := s.empty(x)
	return max(0, v.room(&empty)-max(0, v.room(c)))
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

// add says how much more there would have to be, in nodes that members fill:
// what the role that binds lacks in the best domain, or all of a gang of
// several roles. It goes above the level of nodes, since nodes do not grow.
func (e *explainer) add() {
	if err := e.open(); err != nil {
		return
	}
	defer e.close()
	v := e.view()
	fit, d := e.s.most(v, e.stop, e.need)
	lacks, level := int64(e.need-fit)*int64(v.unit(e.stop)), e.stop
	c := lockstep.Change{Kind: lockstep.ChangeAdd, Resource: lockstep.ResourceGPU}
	if level == e.s.depth-1 {
		lacks = int64(e.need) * int64(v.unit(level))
		d = e.s.tree.Parent(level, d)
		level--
		if int(v.kind.gpus)*int(lacks) > lockstep.MaxDevicesPerNode {
			return
		}
	}
	c.Level, c.Domain = e.s.tree.LevelAt(level).Name, e.s.tree.DomainName(level, d)
	c.Amount = lacks * int64(v.kind.gpus) * int64(lockstep.WholeGPU)
	if len(e.g.Roles) > 1 {
		c.Amount = int64(e.g.GPUs(nil))
	}
	if c.Amount == 0 {
		c.Resource, c.Amount = lockstep.ResourceSlots, lacks
	}
	if c.Amount > 0 {
		e.propose(c)
	}
}
