package placement

import (
	"github.com/lockstep-gpu/lockstep"
)

// Explain answers a request as Fit does and says why: how many nodes have no room,
// by what rules each out first (cordoned, unhealthy, excluded, device, selector,
// taint, affinity, capacity, busy), and for a gang that does not fit, changes each of
// which alone would let it in, in this order: relax, shrink, tolerate, open, move, evict,
// free, add. Where several roles are asked for, nodes are counted for the one that binds.
// It changes nothing.
//
// Each change was tried, but for add, which is proved: for one role, and nodes
// without labels and taints that are else like one that is there, cut in that resource to
// what members take. Shrink counts all roles together, in order as many as fit. Open
// and free name the fewest nodes for one role without inner groups and affinities, else few.
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
		e.move()
		e.evict()
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
	if ok, why := s.admits(v.class, &s.specs[x].node); !ok {
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
	if short := s.shortOf(v, x, &empty, size); short != "" {
		return lockstep.ReasonCount{Reason: lockstep.ReasonCapacity, Detail: string(short)}
	}
	return lockstep.ReasonCount{Reason: lockstep.ReasonBusy, Detail: string(s.shortOf(v, x, c, size))}
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
func (s *State) shortOf(v *view, x int32, c *slot, n int32) lockstep.ResourceName {
	k := &v.kind
	switch {
	case k.gpus > 0 && s.milliRoom(v, x, c) < n:
		return lockstep.ResourceGPU
	case k.memoryEach > 0 && s.deviceRoom(v, x, c) < n:
		return lockstep.ResourceGPUMemory
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
