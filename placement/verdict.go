package placement

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
)

// totals says how much of a demand there could be in the best domain of a
// level, if nothing were taken. It is counted anew when hardware, health or
// affinities changed.
type totals struct {
	counted bool
	epoch   uint64
	level   int
	all     int32 // units on every node, wishes and health apart
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
// that does not fit by itself; where each would, the first one.
func (s *State) refusal(q *query) lockstep.Verdict {
	role, alone := s.binds(q)
	v := s.work.views[role]
	need, unit := q.need(role)/v.unit(q.stop), v.unit(q.stop)
	fit, d := s.most(v, q.stop, need)
	out := lockstep.Verdict{
		Fit: int(fit * unit), Want: q.want,
		Level: s.tree.LevelAt(q.stop).Name, Domain: s.tree.DomainName(q.stop, d),
	}
	t := s.total(v, q.stop)
	switch {
	case alone:
		out.Reason = lockstep.ReasonBusy
		if v.free >= int64(q.gang.GPUs(nil)/lockstep.WholeGPU) {
			out.Reason = lockstep.ReasonFragmented
		}
	case t.all < need:
		out.Reason = lockstep.ReasonCapacity
	case t.wished < need:
		out.Reason = lockstep.ReasonConstraint
	case t.open < need:
		out.Reason = lockstep.ReasonUnhealthy
	case s.scattered(v, need*unit):
		out.Reason = lockstep.ReasonFragmented
	default:
		out.Reason = lockstep.ReasonBusy
	}
	s.binding(&out, v, q.stop, d, int64(need)*int64(unit))
	return out
}

// binds returns the first role, in packing order, that does not fit by itself;
// where each would, alone is true and it is the first that is needed.
func (s *State) binds(q *query) (role int32, alone bool) {
	role = -1
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
	return s.unitsOf(v, 0, 0)*v.unit(0) >= members ||
		v.kind.gpus > 0 && v.free >= int64(members)*int64(v.kind.gpus)
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

// binding names the resource that ran out in a domain: the first of devices,
// CPU, memory, endpoints and slots of which less is left than members need, else
// the first that they need at all.
func (s *State) binding(out *lockstep.Verdict, v *view, level int, d int32, members int64) {
	if asked := members * int64(v.kind.gpus); level == 0 && v.free < asked { // without a look at every node
		out.Resource, out.Requested, out.Available = lockstep.ResourceGPU, asked*int64(lockstep.WholeGPU), v.free*int64(lockstep.WholeGPU)
		return
	}
	first, end := s.tree.Range(level, d)
	var left [5]int64
	for x := first; x < end; x++ {
		if !v.allows(s, x) {
			continue
		}
		c := &s.slots[x]
		for i, amount := range [...]int64{int64(bits.OnesCount64(uint64(c.free))), c.cpu, c.memory, int64(c.rdma), int64(c.slots)} {
			left[i] = min(left[i]+max(0, amount), uncounted)
		}
	}
	k := &v.kind
	need := [...]int64{int64(k.gpus), k.cpu, k.memory, int64(k.rdma), 1}
	name := [...]lockstep.ResourceName{lockstep.ResourceGPU, lockstep.ResourceCPU, lockstep.ResourceMemory, lockstep.ResourceRDMA, lockstep.ResourceSlots}
	pick, short := -1, false
	for i := range need {
		lacks := left[i] < need[i]*members
		if need[i] > 0 && (pick < 0 || lacks && !short) {
			pick, short = i, lacks
		}
	}
	scale := int64(1)
	if pick == 0 {
		scale = int64(lockstep.WholeGPU)
	}
	out.Resource, out.Requested, out.Available = name[pick], need[pick]*members*scale, left[pick]*scale
}

// total counts what the best domain of a level would have if it were empty.
func (s *State) total(v *view, level int) totals {
	t := &v.totals
	if t.counted && t.epoch == s.epoch && t.level == level {
		return *t
	}
	*t = totals{counted: true, epoch: s.epoch, level: level}
	for d := range s.tree.Domains(level) {
		first, end := s.tree.Range(level, int32(d))
		all, wished, open := s.emptyUnits(v, level, first, end)
		t.all, t.wished, t.open = max(t.all, all), max(t.wished, wished), max(t.open, open)
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
		n := max(0, v.room(&empty))
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
	c.free, c.members, c.head = c.all, 0, nowhere()
	c.cpu, c.memory, c.rdma, c.slots = counted(int64(n.CPU)), counted(int64(n.Memory)), uncountedRDMA, MaxSlots
	if n.RDMA != 0 {
		c.rdma = int32(max(0, n.RDMA))
	}
	if n.Slots != 0 {
		c.slots = int32(max(0, n.Slots))
	}
	return c
}
