package placement

import (
	"github.com/lockstep-gpu/lockstep"
)

// totals says how much of a demand there could be in the best domain of a
// level, if nothing were taken. It is counted anew when hardware, health or
// affinities changed.
type totals struct {
	counted bool
	epoch   uint64
	all     int32 // units on every node, wishes and health apart
	at      int32 // the domain that has those
	wished  int32 // on the nodes that the constraints allow
	open    int32 // on those of them that are open and healthy
}

func (s *State) verdict(q *query, level int, d int32, n int) lockstep.Verdict {
	lead, _ := s.lead(q)
	v := s.work.views[lead]
	left := s.unitsOf(v, level, d) - s.work.counts[lead]/v.unit(level)
	return lockstep.Verdict{
		Feasible: true, Fit: n, Want: q.want,
		Level: s.tree.LevelAt(level).Name, Domain: s.tree.DomainName(level, d),
		Score: int64(s.depth-1-level)<<32 + int64(left),
	}
}

// refusal says what binds first. It names the first role, in packing order,
// that does not fit by itself; where each would, the first one, or what all of
// them together lack.
func (s *State) refusal(q *query) lockstep.Verdict {
	role, alone := s.binds(q)
	v := s.work.views[role]
	need, unit := q.need(role)/v.unit(q.stop), v.unit(q.stop)
	fit, d := s.most(v, q.stop, need)
	out := lockstep.Verdict{
		Fit: int(fit * unit), Want: q.want,
		Level: s.tree.LevelAt(q.stop).Name, Domain: s.tree.DomainName(q.stop, d),
	}
	members := int64(need) * int64(unit)
	t := s.total(v, q.stop)
	if t.all < need {
		out.Reason = lockstep.ReasonCapacity
		s.bindingEmpty(&out, v, q.stop, t.at, d, members)
		return out
	}
	if len(q.max) > 1 && q.least > 0 {
		if p, ok := s.pooled(q, v, d, alone); ok {
			p.write(&out)
			out.Domain = s.tree.DomainName(q.stop, p.d)
			out.Fit = int(min(need, s.unitsOf(v, q.stop, p.d)) * unit)
			return out
		}
	}
	switch {
	case alone:
		out.Reason = lockstep.ReasonFragmented
	case t.wished < need:
		out.Reason = lockstep.ReasonConstraint
	case t.open < need:
		out.Reason = lockstep.ReasonUnhealthy
	case s.scattered(v, need*unit):
		out.Reason = lockstep.ReasonFragmented
	default:
		out.Reason = lockstep.ReasonBusy
	}
	s.binding(&out, v, q.stop, d, members)
	return out
}

// binds returns the first role, in packing order, that does not fit by itself;
// where each would, alone is true and it is the first that is needed. Where one
// group of any role would do, it is the first that an empty cluster could hold.
func (s *State) binds(q *query) (role int32, alone bool) {
	role = -1
	if q.least == 0 && len(q.order) > 1 {
		for _, i := range q.order {
			v, n := s.work.views[i], q.need(i)
			if n > 0 && s.total(v, q.stop).all >= n/v.unit(q.stop) && !s.holdsOne(v, q.stop, n/v.unit(q.stop)) {
				return i, false
			}
		}
	}
	for _, i := range q.order {
		n := q.need(i)
		if n == 0 {
			continue
		}
		if v := s.work.views[i]; !s.holdsOne(v, q.stop, n/v.unit(q.stop)) {
			return i, false
		}
		if role < 0 {
			role = i
		}
	}
	return role, true
}

// holdsOne reports whether some domain of a level has room for need units.
func (s *State) holdsOne(v *view, level int, need int32) bool {
	w := s.walk(v, level, need, true)
	_, ok := w.next()
	return ok
}

// scattered reports whether enough is free in the whole cluster.
func (s *State) scattered(v *view, members int32) bool {
	need := v.kind.amounts()
	return s.unitsOf(v, 0, 0)*v.unit(0) >= members ||
		v.kind.gpus > 0 && v.freeMilli() >= int64(members)*need[0] &&
			(v.kind.memoryEach == 0 || s.memoryFree(v) >= int64(members)*need[1])
}

// memoryFree returns the device memory that is free for members of v. O(nodes).
func (s *State) memoryFree(v *view) (sum int64) {
	for x := range s.slots {
		if v.allows(s, int32(x)) {
			sum = addUp(sum, s.amountsFor(v, int32(x), &s.slots[x])[1])
		}
	}
	return sum
}

// most returns the most units, up to need, that one domain of a level has room
// for, and the domain.
func (s *State) most(v *view, level int, need int32) (units, d int32) {
	lo, hi := int32(0), need
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		w := s.walk(v, level, mid, true)
		if x, ok := w.next(); ok { // the roomiest
			lo, d = mid, x
		} else {
			hi = mid - 1
		}
	}
	return lo, d
}

// binding names the resource that ran out in a domain.
func (s *State) binding(out *lockstep.Verdict, v *view, level int, d int32, members int64) {
	if asked := members * v.kind.amounts()[0]; level == 0 && v.freeMilli() < asked { // without a look at every node
		(&shortage{resource: 0, asked: asked, left: v.freeMilli()}).write(out)
		return
	}
	first, end := s.tree.Range(level, d)
	var sum supply
	for x := first; x < end; x++ {
		if v.allows(s, x) {
			s.addTo(&sum, v, x, &s.slots[x])
		}
	}
	p := sum.short(&v.kind, members)
	p.write(out)
}

// bindingEmpty names the resource of which the best domain has too little even
// without members, and what is free of it in domain d: at the level of nodes
// where no node has what one member needs.
func (s *State) bindingEmpty(out *lockstep.Verdict, v *view, level int, best, d int32, members int64) {
	l := &v.lack
	if !l.counted || l.epoch != s.epoch || l.level != level || l.members != members {
		*l = s.lacking(v, level, best, members)
	}
	p := l.shortage
	switch {
	case l.node >= 0:
		p.left = max(0, s.amountsFor(v, l.node, &s.slots[l.node])[p.resource])
		out.Level, out.Domain = lockstep.LevelNode, string(s.ids[l.node])
	case level == 0 && p.resource == 0: // without a look at every node
		p.left = v.freeMilli()
	default:
		p.left = 0
		first, end := s.tree.Range(level, d)
		for x := first; x < end; x++ {
			if v.allows(s, x) {
				p.left = addUp(p.left, s.amountsFor(v, x, &s.slots[x])[p.resource])
			}
		}
	}
	p.write(out)
}

// lack is what an empty domain has too little of.
type lack struct {
	shortage
	node    int32 // the one with most, where no node has enough for one member; else -1
	counted bool
	epoch   uint64
	level   int
	members int64
}

func (s *State) lacking(v *view, level int, d int32, members int64) lack {
	var all supply
	first, end := s.tree.Range(level, d)
	for x := first; x < end; x++ {
		if s.slots[x].flags&vacant == 0 {
			empty := s.empty(x)
			s.addTo(&all, v, x, &empty)
		}
	}
	out := lack{shortage: all.short(&v.kind, members), node: -1, counted: true, epoch: s.epoch, level: level, members: members}
	for i, need := range v.kind.amounts() {
		if all.nodes > 0 && all.most[i] < need {
			out.shortage, out.node = shortage{resource: i, asked: need}, all.where[i]
			break
		}
	}
	return out
}

// total counts what the best domain of a level would have if it were empty.
func (s *State) total(v *view, level int) totals {
	if len(v.totals) != s.tree.Levels() {
		v.totals = make([]totals, s.tree.Levels())
	}
	t := &v.totals[level]
	if t.counted && t.epoch == s.epoch {
		return *t
	}
	*t = totals{counted: true, epoch: s.epoch}
	for d := range s.tree.Domains(level) {
		first, end := s.tree.Range(level, int32(d))
		all, wished, open := s.emptyUnits(v, level, first, end)
		if all > t.all {
			t.all, t.at = all, int32(d)
		}
		t.wished, t.open = max(t.wished, wished), max(t.open, open)
	}
	return *t
}

// tally adds up units over slots in order, by whole inner groups.
type tally struct {
	inner int32 // domain at hand
	part  int32 // members in it
	units int32
}

func (t *tally) add(v *view, inner, n int32) {
	if inner != t.inner {
		t.close(v)
		t.inner = inner
	}
	t.part += n
}

func (t *tally) close(v *view) {
	t.units += t.part / v.kind.size
	t.part = 0
}

func (s *State) emptyUnits(v *view, level int, first, end int32) (all, wished, open int32) {
	var sums [3]tally
	grouped := level <= int(v.kind.inner) && v.kind.size > 1
	for x := first; x < end; x++ {
		if s.slots[x].flags&vacant != 0 {
			continue
		}
		empty := s.empty(x)
		n := max(0, s.room(v, x, &empty))
		inner := first
		if grouped {
			inner = s.tree.DomainOf(int(v.kind.inner), x)
		}
		sums[0].add(v, inner, n)
		if !v.wishes(s, x) {
			continue
		}
		sums[1].add(v, inner, n)
		if s.slots[x].flags&^excluded == 0 {
			sums[2].add(v, inner, n)
		}
	}
	for i := range sums {
		if grouped {
			sums[i].close(v)
		} else {
			sums[i].units += sums[i].part
		}
	}
	return sums[0].units, sums[1].units, sums[2].units
}

// empty returns slot x as it would be without members.
func (s *State) empty(x int32) slot {
	c := s.slots[x]
	n := &s.specs[x].node
	c.free, c.members, c.head, c.part = c.all, 0, nowhere(), 0
	c.cpu, c.memory, c.rdma, c.slots = counted(int64(n.CPU)), counted(int64(n.Memory)), uncountedRDMA, MaxSlots
	if n.RDMA != 0 {
		c.rdma = int32(max(0, n.RDMA))
	}
	if n.Slots != 0 {
		c.slots = int32(max(0, n.Slots))
	}
	return c
}
