package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// maxArranged bounds the steps of one search for an arrangement.
const maxArranged = 1 << 14

// arranger looks at every way to seat some jobs, by numbers of members on nodes.
type arranger struct {
	h     *hunt
	out   *Moves
	items []item
	bare  []slot // as they are without the items
	loads []load // by slot
	steps int
}

// item is a job that moves: n members that all take d, in one domain of level stop.
type item struct {
	cand, rec int32
	v         *view
	d         *lockstep.Demand
	stop      int
	n         int32
	old, now  []int32 // members by slot
}

// arrange reports whether the picked jobs can be seated otherwise at all such that the
// gang fits, and the moves be put in order. Jobs of several roles and the like are
// not arranged: then the search is not complete.
func (h *hunt) arrange(picks []pick, out *Moves) bool {
	s := h.s
	a := &arranger{h: h, out: out, steps: maxArranged}
	for i := range picks {
		o, ok := a.itemOf(picks[i].cand)
		if !ok || len(h.r.Exclude) > 0 {
			h.cut = true
			return false
		}
		a.items = append(a.items, o)
	}
	slices.SortStableFunc(a.items, func(x, y item) int { return cmp.Or(cmp.Compare(y.stop, x.stop), cmp.Compare(y.n, x.n)) })
	s.work.frozen = true
	for i := range a.items {
		s.unseat(a.items[i].rec)
	}
	_ = s.cover("repack", h.r)
	a.bare, a.loads = slices.Clone(s.slots), make([]load, len(s.slots))
	base := len(s.work.saved)
	ok := a.seat(0)
	s.restore(base)
	s.restore(0)
	for i := len(a.items) - 1; i >= 0; i-- {
		s.reseat(a.items[i].rec)
	}
	s.work.frozen = false
	if ok && out != nil {
		return a.carryOut()
	}
	return ok
}

// itemOf reads a job that may be arranged.
func (a *arranger) itemOf(cand int32) (o item, ok bool) {
	h, s := a.h, a.h.s
	rec := h.recs[cand]
	j := &s.jobs[rec]
	g := j.gang
	r := &g.Roles[0]
	if len(g.Roles) > 1 || r.Inner.Size > 1 || r.Spares > 0 || modeOf(&r.Demand) != takesWhole || int(j.ranks) != len(j.seats) ||
		len(g.Constraints.Affinity)+len(r.Constraints.Affinity) > 0 {
		return o, false
	}
	o = item{cand: cand, rec: rec, d: &r.Demand, n: j.ranks, old: make([]int32, len(s.slots)), now: make([]int32, len(s.slots))}
	for i := range j.seats {
		if j.seats[i].slot < 0 {
			return o, false
		}
		o.old[j.seats[i].slot]++
	}
	if g.Required != "" {
		o.stop, _ = s.tree.LevelIndex(g.Required)
	}
	o.v = s.viewFor(g, r, s.depth-1, s.worst())
	return o, true
}

// seat seats the items from i on in every way, until the rest works out.
func (a *arranger) seat(i int) bool {
	h, s := a.h, a.h.s
	if a.steps--; a.steps < 0 {
		h.cut = true
		return false
	}
	if i == len(a.items) {
		for k := range a.items {
			if slices.Equal(a.items[k].old, a.items[k].now) {
				return false // it need not move
			}
		}
		return s.fitsNow(h.q) && a.sequence()
	}
	o := &a.items[i]
	for d := range s.tree.Domains(o.stop) {
		first, end := s.tree.Range(o.stop, int32(d))
		if a.spread(i, first, end, o.n) {
			return true
		}
	}
	return false
}

// spread seats n members of item i on the slots from x on.
func (a *arranger) spread(i int, x, end, n int32) bool {
	s, o := a.h.s, &a.items[i]
	if n == 0 {
		return a.seat(i + 1)
	}
	room := int32(0)
	for y := x; y < end && room < n; y++ {
		room += a.room(o, y)
	}
	if room < n {
		return false
	}
	base := len(s.work.saved)
	for k := min(n, a.room(o, x)); k >= 0; k-- {
		if a.steps--; a.steps < 0 {
			a.h.cut = true
			return false
		}
		s.work.picks = s.work.picks[:0]
		s.seatAt(x, 0, o.v, k)
		for t := range s.work.picks {
			s.reserve(&s.work.picks[t], o.d)
		}
		o.now[x] = k
		if a.spread(i, x+1, end, n-k) {
			return true
		}
		o.now[x] = 0
		s.restore(base)
	}
	return false
}

func (a *arranger) room(o *item, x int32) int32 {
	s := a.h.s
	if s.slots[x].flags != 0 || !o.v.class.has(x) {
		return 0
	}
	return max(0, s.room(o.v, x, &s.slots[x]))
}

// load is what items have of a slot, by numbers: which devices does not matter.
type load struct {
	gpus, rdma, slots int32
	cpu, memory       int64
}

// sequence reports whether the items can move one after another, and sorts them so.
func (a *arranger) sequence() bool {
	clear(a.loads)
	for i := range a.items {
		o := &a.items[i]
		for x, n := range o.old {
			a.add(o, x, n)
		}
	}
	return a.next(0)
}

// next moves the items from i on in some order. Items before have moved.
func (a *arranger) next(i int) bool {
	if i == len(a.items) {
		return true
	}
	for k := i; k < len(a.items); k++ {
		a.items[i], a.items[k] = a.items[k], a.items[i]
		o, ok := &a.items[i], true
		for x := range a.loads {
			a.add(o, x, o.now[x]-o.old[x])
			ok = ok && (o.now[x] == 0 || a.holds(o, x))
		}
		ok = ok && a.next(i+1)
		if ok {
			return true
		}
		for x := range a.loads {
			a.add(o, x, o.old[x]-o.now[x])
		}
		a.items[i], a.items[k] = a.items[k], a.items[i]
	}
	return false
}

func (a *arranger) add(o *item, x int, n int32) {
	l := &a.loads[x]
	l.gpus += n * int32(o.d.GPUs)
	l.cpu += int64(n) * int64(o.d.CPU)
	l.memory += int64(n) * int64(o.d.Memory)
	l.rdma += n * int32(o.d.RDMA)
	l.slots += n
}

// holds reports whether a slot has what items have of it, in all that o asks for.
func (a *arranger) holds(o *item, x int) bool {
	c, l := &a.bare[x], &a.loads[x]
	return (o.d.GPUs == 0 || int(l.gpus) <= a.h.s.wholes(int32(x), c).Len()) && l.slots <= c.slots &&
		(o.d.CPU == 0 || l.cpu <= c.cpu) && (o.d.Memory == 0 || l.memory <= c.memory) && (o.d.RDMA == 0 || l.rdma <= c.rdma)
}

// carryOut makes the moves in their order, and writes them.
func (a *arranger) carryOut() bool {
	h, s := a.h, a.h.s
	for i := range a.items {
		o := &a.items[i]
		now := s.newJob(int(o.n))
		s.work.frozen = true
		s.unseat(o.rec)
		s.seatAs(o, now)
		s.reseat(now)
		s.work.frozen = false
		h.moves.done = append(h.moves.done, moved{o.cand, o.rec, now})
	}
	ok := h.arrived(a.out, h.r)
	h.undo()
	return ok
}

// seatAs writes into a new record where the members of an item, which is out, go: on
// each node as many as decided, those that were there before and then others.
func (s *State) seatAs(o *item, now int32) {
	j, old := &s.jobs[now], &s.jobs[o.rec]
	j.id, j.gang, j.port, j.ranks = old.id, old.gang, old.port, o.n
	left := slices.Clone(o.now)
	for i := range old.seats {
		t := old.seats[i]
		if left[t.slot] > 0 {
			left[t.slot]--
		} else {
			t.slot = -1
		}
		j.seats[i] = t
	}
	base := len(s.work.saved)
	for i := range j.seats {
		if j.seats[i].slot >= 0 {
			s.reserve(&j.seats[i], o.d)
		}
	}
	i := 0
	for x, n := range left {
		if n == 0 {
			continue
		}
		s.work.picks = s.work.picks[:0]
		s.seatAt(int32(x), 0, o.v, n)
		for _, t := range s.work.picks {
			for j.seats[i].slot >= 0 {
				i++
			}
			j.seats[i] = t
		}
	}
	s.restore(base)
}
