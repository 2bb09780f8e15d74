package placement

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// amounts are the resources that members take, in the order in which a shortage
// is looked for: devices, in thousandths, their memory where shares take it, CPU,
// memory, endpoints, slots.
type amounts [6]int64

// names of amounts.
func resourceName(i int) lockstep.ResourceName {
	return [...]lockstep.ResourceName{
		lockstep.ResourceGPU, lockstep.ResourceGPUMemory, lockstep.ResourceCPU, lockstep.ResourceMemory, lockstep.ResourceRDMA, lockstep.ResourceSlots,
	}[i]
}

// amountsOf returns what c, which is slot x as it is or might be, has left for
// members that take whole devices, or shares as well.
func (s *State) amountsOf(x int32, c *slot, m mode) amounts {
	idle := int64(bits.OnesCount64(uint64(s.wholes(x, c))))
	a := amounts{idle * int64(lockstep.WholeGPU), 0, c.cpu, c.memory, int64(c.rdma), int64(c.slots)}
	if m != takesShare {
		return a
	}
	size := s.memoryOf(x)
	a[1] = idle * size
	set, portions := s.shares(x, c)
	for ; set != 0; set &= set - 1 {
		if l := &portions[bits.TrailingZeros64(uint64(set))]; l.held == 0 {
			a[0] += int64(lockstep.WholeGPU) - int64(l.milli)
			a[1] = addUp(a[1], size-l.memory)
		}
	}
	return a
}

// amountsFor is amountsOf for members of v; each instance of its profile that there
// is room for counts as a device.
func (s *State) amountsFor(v *view, x int32, c *slot) amounts {
	a := s.amountsOf(x, c, v.kind.mode)
	if v.kind.mode == takesSlice {
		a[0] = int64(lockstep.WholeGPU) * int64(s.sliceRoom(v, x, c))
	}
	return a
}

// amounts returns what one member takes.
func (k *kind) amounts() amounts {
	each := int64(lockstep.WholeGPU)
	if k.mode == takesShare {
		each = int64(k.share)
	}
	return amounts{int64(k.gpus) * each, int64(k.gpus) * k.memoryEach, k.cpu, k.memory, int64(k.rdma), 1}
}

// together is amounts where it is added up with what other roles take: instances
// count for nothing there, since how many a device has room for depends on which.
func (k *kind) together() amounts {
	a := k.amounts()
	if k.mode == takesSlice {
		a[0] = 0
	}
	return a
}

// joint returns what counts as left for all roles together: what is left of shared
// devices too where a role takes shares.
func (s *State) joint() mode {
	for _, v := range s.work.views {
		if v.kind.mode == takesShare {
			return takesShare
		}
	}
	return takesWhole
}

// enough is more than the members of any gang together can ask for.
const enough = 1<<62 + 1

func addUp(a, b int64) int64 { return min(a+min(max(0, b), enough), enough) }

// add adds n times b to a, of which nothing is below zero.
func (a *amounts) add(b amounts, n int64) {
	for i := range a {
		a[i] = addUp(a[i], max(0, b[i])*n)
	}
}

// supply adds up what some nodes have for the members of a kind.
type supply struct {
	nodes int
	left  amounts // all of it
	can   amounts // members, were there enough of the other resources
	most  amounts // on the node with most
	where [6]int32
}

// addTo adds what c, which is slot x as it is or might be, has for members of v.
func (s *State) addTo(p *supply, v *view, x int32, c *slot) {
	k, a := &v.kind, s.amountsFor(v, x, c)
	for i, need := range k.amounts() {
		p.left[i] = addUp(p.left[i], a[i])
		switch {
		case need == 0:
		case i == 0:
			p.can[0] += int64(s.milliRoom(v, x, c))
		case i == 1:
			p.can[1] += int64(s.deviceRoom(v, x, c))
		default:
			p.can[i] += max(0, a[i]) / need
		}
		if p.nodes == 0 || a[i] > p.most[i] {
			p.most[i], p.where[i] = a[i], x
		}
	}
	p.nodes++
}

// shortage is a resource of which less is left than is asked for.
type shortage struct {
	resource    int
	asked, left int64
}

// short names the first resource of which there is less than members need; else
// the first of which what nodes have does not go out evenly; else the first that
// they need at all.
func (p *supply) short(k *kind, members int64) shortage {
	pick, rank := 0, 3
	for i, need := range k.amounts() {
		r := 2
		switch {
		case need == 0:
			continue
		case p.left[i] < need*members:
			r = 0
		case p.can[i] < members:
			r = 1
		}
		if r < rank {
			pick, rank = i, r
		}
	}
	return shortage{pick, k.amounts()[pick] * members, p.left[pick]}
}

func (p *shortage) write(out *lockstep.Verdict) {
	out.Resource, out.Requested, out.Available = resourceName(p.resource), p.asked, p.left
}

// stage says how far a domain comes as a place for all roles together, looking
// at sums alone.
type stage uint8

const (
	lacksAll  stage = iota // too little on all its nodes, were they empty
	lacksWish              // on those that some role may use
	lacksOpen              // on those of them that are open and healthy
	lacksFree              // of what is free in the whole cluster
	lacksHere              // of what is free in it
	lacksNone
)

// pool is what binds several roles together: the domain of the required level
// that comes furthest, and the first resource that it lacks.
type pool struct {
	stage stage
	d     int32
	shortage
}

func (p *pool) write(out *lockstep.Verdict) {
	p.shortage.write(out)
	out.Reason = [...]lockstep.Reason{
		lockstep.ReasonCapacity, lockstep.ReasonConstraint, lockstep.ReasonUnhealthy, lockstep.ReasonBusy, lockstep.ReasonFragmented,
	}[p.stage]
}

// memo keeps the part of a pool that only hardware, health, penalties and
// affinities change, for one set of roles.
type memo struct {
	epoch uint64
	level int
	views []uint64 // their ids, by role; none before the first
	need  amounts
	pool  pool
}

// pooled compares what all roles need together with what the domains of the
// required level have when empty, then with what the best, d, has free. It reports
// whether that says more than the role that binds by itself, which v is of.
func (s *State) pooled(q *query, v *view, d int32, alone bool) (pool, bool) {
	var need amounts
	for i, w := range s.work.views {
		need.add(w.kind.together(), int64(q.need(int32(i))))
	}
	p := s.poolEmpty(q.stop, v, &need)
	switch {
	case p.stage == lacksAll, alone && p.stage < lacksFree:
		p.left = s.freeIn(q.stop, p.d, &need, p.resource)[p.resource]
		return p, true
	case p.stage < lacksFree || !alone:
		return p, false
	}
	now := s.freeIn(q.stop, d, &need, 0)
	i := now.lacks(&need)
	if i < 0 {
		return pool{}, false
	}
	p = pool{lacksHere, d, shortage{i, need[i], now[i]}}
	if q.stop == 0 || s.alike() && v.freeMilli() < need[0] {
		p.stage = lacksFree
	}
	return p, true
}

// poolEmpty finds the domain that comes furthest while it has no members.
func (s *State) poolEmpty(level int, v *view, need *amounts) pool {
	m := &v.memo
	same := slices.EqualFunc(m.views, s.work.views, func(id uint64, w *view) bool { return id == w.id })
	if same && m.epoch == s.epoch && m.level == level && m.need == *need {
		return m.pool
	}
	*m = memo{epoch: s.epoch, level: level, need: *need, views: m.views[:0], pool: pool{d: -1}}
	for _, w := range s.work.views {
		m.views = append(m.views, w.id)
	}
	for d := range s.tree.Domains(level) {
		p := s.pourInto(level, int32(d), need)
		if m.pool.d < 0 || p.stage > m.pool.stage {
			m.pool = p
		}
		if m.pool.stage == lacksNone {
			break
		}
	}
	return m.pool
}

// lacks returns the first resource of which a has less than need, or -1.
func (a *amounts) lacks(need *amounts) int {
	for i := range need {
		if a[i] < need[i] {
			return i
		}
	}
	return -1
}

// pourInto compares need with what a domain has when empty.
func (s *State) pourInto(level int, d int32, need *amounts) pool {
	var sums [3]amounts
	m := s.joint()
	first, end := s.tree.Range(level, d)
	for x := first; x < end; x++ {
		c := &s.slots[x]
		if c.flags&vacant != 0 {
			continue
		}
		empty := s.empty(x)
		a := s.amountsOf(x, &empty, m)
		n := 1
		if slices.ContainsFunc(s.work.views, func(v *view) bool { return v.wishes(s, x) }) {
			n = 2
			if c.flags&^excluded == 0 {
				n = 3
			}
		}
		for i := range n {
			sums[i].add(a, 1)
		}
	}
	for i := range sums {
		if r := sums[i].lacks(need); r >= 0 {
			return pool{stage(i), d, shortage{r, need[r], sums[i][r]}}
		}
	}
	return pool{stage: lacksNone, d: d}
}

// freeIn adds up what is free in a domain for some role. In the cluster, where it is
// one to all roles and has fewer devices than need, those alone are looked at
// where it is devices that are asked about.
func (s *State) freeIn(level int, d int32, need *amounts, resource int) (sum amounts) {
	views := s.work.views
	if s.alike() {
		views = views[:1]
		if free := views[0].freeMilli(); level == 0 && resource == 0 && free < need[0] {
			return amounts{free}
		}
	}
	m := s.joint()
	first, end := s.tree.Range(level, d)
	for x := first; x < end; x++ {
		for _, v := range views {
			if v.allows(s, x) {
				sum.add(s.amountsOf(x, &s.slots[x], m), 1)
				break
			}
		}
	}
	return sum
}

// alike reports whether all roles surely may use the same nodes. It compares what
// they ask for, not the classes at hand, which come and go.
func (s *State) alike() bool {
	first, m := s.work.views[0].class, s.work.views[0].kind.mode
	for _, v := range s.work.views {
		c := v.class
		same := c == first || c.gpuMemory == first.gpuMemory && c.profile == first.profile && slices.Equal(c.devices, first.devices) &&
			equalWishes(&c.gang, &first.gang) && equalWishes(&c.role, &first.role)
		if !same || len(v.terms) > 0 || v.kind.mode != m {
			return false
		}
	}
	return true
}
