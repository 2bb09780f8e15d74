package placement

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// cover takes a request's excluded nodes and busy room out of the state until
// restore(0). Nodes that the tree lacks have nothing to leave out.
func (s *State) cover(call string, r *lockstep.Request) error {
	for i := range r.Busy {
		b := &r.Busy[i]
		if b.CPU >= 0 && b.Memory >= 0 && b.RDMA >= 0 && b.Slots >= 0 && b.Share >= 0 && b.Share <= lockstep.WholeGPU && b.GPUMemory >= 0 {
			continue
		}
		for _, a := range [...]struct {
			field string
			value int64
		}{{"CPU", int64(b.CPU)}, {"Memory", int64(b.Memory)}, {"RDMA", int64(b.RDMA)}, {"Slots", int64(b.Slots)}, {"Share", int64(b.Share)}, {"GPUMemory", int64(b.GPUMemory)}} {
			if a.field == "Share" && b.Share > lockstep.WholeGPU {
				return fault(lockstep.ErrInvalid, call, at("Request.Busy", i)+".Share", b.Share.String(), "want at most a whole device")
			}
			if a.value < 0 {
				return fault(lockstep.ErrInvalid, call, at("Request.Busy", i)+"."+a.field, strconv.FormatInt(a.value, 10), "must not be negative")
			}
		}
	}
	for _, id := range r.Exclude {
		if x, ok := s.tree.Slot(id); ok {
			c := s.save(x)
			c.flags |= excluded
		}
	}
	for i := range r.Busy {
		b := &r.Busy[i]
		x, ok := s.tree.Slot(b.Node)
		if !ok {
			continue
		}
		c := s.save(x)
		if b.Share == 0 || b.Share == lockstep.WholeGPU {
			s.hide(c, b.Devices)
		} else {
			s.dim(x, c, b.Devices, int16(b.Share), int64(b.GPUMemory))
		}
		c.cpu = less(c.cpu, int64(b.CPU), uncounted)
		c.memory = less(c.memory, int64(b.Memory), uncounted)
		c.rdma = less(c.rdma, int32(min(b.RDMA, uncountedRDMA)), uncountedRDMA)
		c.slots = less(c.slots, int32(min(b.Slots, MaxSlots)), MaxSlots)
	}
	return nil
}

// less takes n from left, which many entries of one node must not turn over.
func less[T int32 | int64](left, n, most T) T { return max(left-min(n, most), -most) }

// save remembers a slot for restore and returns it to be changed.
func (s *State) save(x int32) *slot {
	c := &s.slots[x]
	s.work.saved = append(s.work.saved, saved{x, *c})
	s.ownBlock(c)
	s.push(x)
	return c
}

// stay tries to keep the members of prefer where they are, for the counts in
// w.counts: those that may stay and sit in one domain of the required level
// keep their nodes and devices, and the others go into the finest domain around
// them with room. Where that fails the picks are made as without prefer.
func (s *State) stay(q *query, prefer *lockstep.Plan, level int, d int32) (int, int32) {
	base := len(s.work.saved)
	home, ok := s.home(q, prefer)
	if ok {
		ok = s.keep(q, prefer, home)
	}
	if ok {
		var l int
		var to int32
		if l, to, ok = s.rejoin(q); ok {
			level, d = l, to
			s.restore(base)
			ok = s.holdSpares(q, level, d)
		}
	}
	s.restore(base)
	for _, v := range s.work.views {
		s.sync(v)
	}
	if !ok {
		level, d, _ = s.search(q)
	}
	return level, d
}

// home returns the domain of the required level with most members of prefer,
// ties to the lowest.
func (s *State) home(q *query, prefer *lockstep.Plan) (int32, bool) {
	keys := s.work.keys[:0]
	for i := range prefer.Members {
		if x, ok := s.tree.Slot(prefer.Members[i].Node); ok {
			keys = append(keys, uint64(s.tree.DomainOf(q.stop, x)))
		}
	}
	s.work.keys = keys
	slices.Sort(keys)
	best, most := int32(0), 0
	for i := 0; i < len(keys); {
		j := i
		for j < len(keys) && keys[j] == keys[i] {
			j++
		}
		if j-i > most {
			best, most = int32(keys[i]), j-i
		}
		i = j
	}
	return best, most > 0
}

// keep reserves, by whole inner groups, what may stay in the home domain, and
// writes it to w.kept by rank. It reports whether anything stays.
func (s *State) keep(q *query, prefer *lockstep.Plan, home int32) bool {
	w := &s.work
	w.kept = w.kept[:0]
	any := false
	next := 0 // in prefer.Members
	for role := range q.gang.Roles {
		for next < len(prefer.Members) && int(prefer.Members[next].Role) < role {
			next++
		}
		size := max(1, q.gang.Roles[role].Inner.Size)
		for n := 0; n < int(w.counts[role]); n += size {
			base := len(w.saved)
			stays := true
			for k := range size {
				t := seat{slot: -1, role: int16(role)}
				if i := next + n + k; stays && i < len(prefer.Members) && int(prefer.Members[i].Role) == role {
					t, stays = s.mayStay(q, &prefer.Members[i], home)
				} else {
					stays = false
				}
				w.kept = append(w.kept, t)
			}
			group := w.kept[len(w.kept)-size:]
			if stays && s.together(group, q.inner[role]) {
				any = true
				continue
			}
			s.restore(base)
			for i := range group {
				group[i].slot = -1
			}
		}
	}
	return any
}

// mayStay reserves a member's room where it is, if it may stay there.
func (s *State) mayStay(q *query, m *lockstep.Member, home int32) (seat, bool) {
	none := seat{slot: -1, role: int16(m.Role)}
	x, ok := s.tree.Slot(m.Node)
	if !ok || s.tree.DomainOf(q.stop, x) != home {
		return none, false
	}
	d := &q.gang.Roles[m.Role].Demand
	v, c := s.work.views[m.Role], &s.slots[x]
	t := seatOf(m, x, d)
	if !v.allows(s, x) || s.room(v, x, c) < 1 || bits.OnesCount64(uint64(m.Devices)) != d.GPUs || !s.accepts(x, c, &t, d) {
		return none, false
	}
	s.reserve(&t, d)
	return t, true
}

func (s *State) together(group []seat, level int) bool {
	d := s.tree.DomainOf(level, group[0].slot)
	for i := range group {
		if s.tree.DomainOf(level, group[i].slot) != d {
			return false
		}
	}
	return true
}

// rejoin places the members that do not stay in the finest domain around those
// that do, and makes the picks of all.
func (s *State) rejoin(q *query) (level int, d int32, ok bool) {
	w := &s.work
	lo, hi := int32(maxSlots), int32(-1)
	for i := range w.kept {
		if x := w.kept[i].slot; x >= 0 {
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	base := len(w.saved)
	for level = s.tree.LCA(lo, hi); level >= q.stop; level-- {
		d = s.tree.DomainOf(level, lo)
		if ok = s.fillRest(q, level, d); ok {
			return level, d, true
		}
		s.restore(base)
	}
	return 0, 0, false
}

// fillRest places into one domain the members whose kept seat is empty.
func (s *State) fillRest(q *query, level int, d int32) bool {
	w := &s.work
	w.picks = w.picks[:0]
	w.parts = append(w.parts[:0], make([]part, len(q.max))...)
	for _, role := range q.order {
		n := int32(0)
		for i := range w.kept {
			if int32(w.kept[i].role) == role && w.kept[i].slot < 0 {
				n++
			}
		}
		v := w.views[role]
		s.sync(v)
		n /= v.unit(level) // whole groups go, but a finer level counts members
		if s.unitsOf(v, level, d) < n {
			return false
		}
		from := int32(len(w.picks))
		if n > 0 {
			s.fill(v, role, level, d, n, q.spread)
		}
		w.parts[role] = part{from, int32(len(w.picks))}
		for k := int(from); k < len(w.picks); k++ {
			s.reserve(&w.picks[k], &q.gang.Roles[role].Demand)
		}
	}
	s.merge(q)
	return true
}

// merge puts the new picks into the ranks that nobody kept.
func (s *State) merge(q *query) {
	w := &s.work
	w.final = w.final[:0]
	at := 0
	for role := range q.max {
		p := &w.parts[role]
		from, next := len(w.final), p.from
		for ; at < len(w.kept) && int(w.kept[at].role) == role; at++ {
			t := w.kept[at]
			if t.slot < 0 {
				t = w.picks[next]
				next++
			}
			w.final = append(w.final, t)
		}
		*p = part{int32(from), int32(len(w.final))}
	}
	w.picks, w.final = w.final, w.picks
}

func quoteID[T ~string](id T) string { return strconv.Quote(string(id)) }
