package placement

import (
	"github.com/lockstep-gpu/lockstep"
)

// scratch is memory that calls use again.
type scratch struct {
	query query
	chooser
	views  []*view
	counts []int32
	picks  []seat  // chosen members, in packing order
	parts  []part  // by role: its picks
	hint   []int32 // slots of the last plan, by rank
	allots []allot
	keys   []uint64
	saved  []saved
	kept   []seat // by rank: what stays in place, slot -1 for the others
	final  []seat
	frozen bool // departed nodes without members are kept
	spares part // of picks: room that is kept beside the members
	stock  stock
	rails  rails
	hunt   hunt // of Victims
}

// part is the picks of one role: picks[from:to].
type part struct{ from, to int32 }

// saved is a slot as it was before a reservation inside one call.
type saved struct {
	x   int32
	was slot
}

// Fit looks for room for a gang and writes where it would run into out, whose
// memory is used again; out may be r.Prefer. It changes nothing: Apply takes the
// plan. Where the verdict is not feasible, out is left empty. The order of decision
// is in the package documentation. Nodes that are cordoned, unhealthy, excluded or
// do not meet class, device memory, selectors, taints and affinities have no room;
// Exclude and Busy may name nodes that the tree lacks. A Max below a role's Min
// lowers that, where the request has no Min.
//
// With Prefer, penalty and counts are decided as without. Then the members that may
// stay, by whole inner groups, in the domain of the required level that holds most
// (ties to the lowest) keep node and devices, and the others go into the finest domain
// around them with room; where there is none, Prefer is without effect.
//
// The verdict's Score is the levels between the domain and the nodes, times 2^32,
// plus the units that stay free there for its first role in packing order. Of a
// refusal by several roles, Fit counts the members of the role that binds: the first
// that does not fit by itself, else the first of all. Reasons, in this order: capacity
// (too little in every domain of the required level were it empty, open, healthy and
// without constraints, for some role or for the sum of all: waiting will not help),
// constraint, unhealthy, fragmented, busy; or reserved, where it would fit but for
// Exclude and Busy. Of capacity that no node has for even one member, Level and Domain
// name the node with most.
//
// It returns lockstep.ErrInvalid for a nil or malformed request and ErrUnknown for
// levels that the tree lacks. It allocates nothing once it has seen the kind of
// demand and the size of the gang. It costs O(roles·levels + nodes of the plan +
// slots changed since the kind was last asked for), and for several roles O(nodes of
// the plan) more for each domain in which they were tried in vain; a refusal reads
// the nodes of one domain of the required level, and all of them when it is the first
// since hardware, health, penalties or affinities changed.
func (s *State) Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	if out == nil {
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "fit", "out", "nil", "must not be nil")
	}
	if r != nil && r.Prefer == out { // to be read after out is written
		same := *r
		same.Prefer = out.Clone()
		r = &same
	}
	out.Reset()
	q := &s.work.query
	if err := s.read("fit", r, q); err != nil {
		return lockstep.Verdict{}, err
	}
	if err := s.cover("fit", r); err != nil {
		return lockstep.Verdict{}, err
	}
	v := s.solve(q, r, out)
	if covered := len(s.work.saved) > 0; covered {
		s.restore(0)
		if !v.Feasible && s.fits(q) {
			v.Reason = lockstep.ReasonReserved
		}
	}
	return v, nil
}

// solve answers a query, with the request's overlay in place.
func (s *State) solve(q *query, r *lockstep.Request, out *lockstep.Plan) lockstep.Verdict {
	for penalty := range s.ranks {
		if penalty > 0 && s.ranks[penalty] == 0 {
			continue
		}
		s.aim(q, uint8(penalty))
		l, d, ok := s.place(q)
		if !ok {
			continue
		}
		if r.Prefer != nil {
			if q.tiers() > 1 { // whoever may stay does, whatever is faster
				s.aim(q, uint8(penalty))
			}
			l, d = s.stay(q, r.Prefer, l, d)
		} else {
			s.alignRails(q)
		}
		s.emit(q, out)
		return s.verdict(q, l, d, len(out.Members))
	}
	return s.refusal(q)
}

// aim readies the views of the roles for one bound on penalties.
func (s *State) aim(q *query, penalty uint8) {
	q.penalty = penalty
	s.work.views = s.work.views[:0]
	for i := range q.gang.Roles {
		s.work.views = append(s.work.views, s.viewFor(q.gang, &q.gang.Roles[i], q.inner[i], penalty))
	}
}

// fits reports whether a query fits as things stand.
func (s *State) fits(q *query) bool {
	s.aim(q, s.worst())
	_, _, ok := s.place(q)
	return ok
}

// worst returns the greatest class of penalty that a node has.
func (s *State) worst() uint8 {
	worst := len(s.ranks) - 1
	for worst > 0 && s.ranks[worst] == 0 {
		worst--
	}
	return uint8(worst)
}

// place decides how many members of each role there will be, and chooses them.
// It returns the domain that holds them.
func (s *State) place(q *query) (level int, d int32, ok bool) {
	w := &s.work
	w.counts = append(w.counts[:0], q.max...)
	if level, d, ok = s.search(q); ok {
		return level, d, true
	}
	copy(w.counts, q.min)
	if level, d, ok = s.search(q); !ok && q.least > 0 {
		return 0, 0, false
	}
	grown := false
	for i := range q.max { // roles in order get as many more as fit
		size := int32(max(1, q.gang.Roles[i].Inner.Size))
		lo, hi := q.min[i]/size, q.max[i]/size
		for lo < hi {
			mid := lo + (hi-lo+1)/2
			w.counts[i] = mid * size
			if _, _, ok := s.search(q); ok {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		w.counts[i] = lo * size
		grown = grown || q.min[i] < q.max[i]
	}
	if grown {
		level, d, ok = s.search(q)
	}
	return level, d, ok
}

// search chooses members for w.counts in the first domain that holds them: the
// finest level first, and in it in the order of walk.
func (s *State) search(q *query) (level int, d int32, ok bool) {
	lead, roles := s.lead(q)
	if lead < 0 {
		return 0, 0, false
	}
	n := s.work.counts[lead]
	var need amounts // of all roles together
	if roles > 1 {
		for i, k := range s.work.counts {
			need.add(s.work.views[i].kind.together(), int64(k))
		}
	}
	tiers := q.tiers()
	for i := range (q.start - q.stop + 1) * tiers {
		level = q.start - i/tiers
		if tiers > 1 && !s.tierUp(q, i%tiers) {
			continue
		}
		v := s.work.views[lead]
		w := s.walk(v, level, n/v.unit(level), q.spread)
		for {
			d, ok := w.next()
			if !ok {
				break
			}
			if roles == 1 {
				s.choose(q, lead, level, d)
			} else if !s.each(level, d) || !s.holds(level, d, &need) || !s.try(q, level, d) {
				continue
			}
			if s.holdSpares(q, level, d) {
				return level, d, true
			}
		}
	}
	return 0, 0, false
}

// each reports whether every role would fit into a domain by itself.
func (s *State) each(level int, d int32) bool {
	for i, v := range s.work.views {
		if n := s.work.counts[i]; n > 0 && s.unitsOf(v, level, d) < n/v.unit(level) {
			return false
		}
	}
	return true
}

// holds reports whether a domain may have what all roles need together: a look
// at one node or one small lowest domain, before the roles are packed into it.
func (s *State) holds(level int, d int32, need *amounts) bool {
	first, end := s.tree.Range(level, d)
	if level < s.depth-2 || int(end-first) > wide {
		return true
	}
	var sum amounts
	m := s.joint()
	for x := first; x < end; x++ {
		if c := &s.slots[x]; c.flags == 0 {
			sum.add(s.amountsOf(x, c, m), 1)
		}
		if sum.lacks(need) < 0 {
			return true
		}
	}
	return false
}

// lead returns the first role in packing order that gets members, or -1, and
// how many roles do.
func (s *State) lead(q *query) (lead int32, roles int) {
	lead = -1
	for _, i := range q.order {
		if s.work.counts[i] > 0 {
			if lead < 0 {
				lead = i
			}
			roles++
		}
	}
	return lead, roles
}

// choose makes the picks of a single role.
func (s *State) choose(q *query, role int32, level int, d int32) {
	w := &s.work
	w.picks = w.picks[:0]
	w.parts = append(w.parts[:0], make([]part, len(q.max))...)
	v, n := w.views[role], w.counts[role]
	s.fill(v, role, level, d, n/v.unit(level), q.spread)
	w.parts[role] = part{0, int32(len(w.picks))}
}

// try packs all roles into one domain, the greatest demand first, each on what
// the ones before it left.
func (s *State) try(q *query, level int, d int32) bool {
	w := &s.work
	w.picks = w.picks[:0]
	w.parts = append(w.parts[:0], make([]part, len(q.max))...)
	base := len(w.saved)
	ok := true
	for _, i := range q.order {
		if w.counts[i] == 0 {
			continue
		}
		v := w.views[i]
		s.sync(v)
		n := w.counts[i] / v.unit(level)
		if s.unitsOf(v, level, d) < n {
			ok = false
			break
		}
		from := len(w.picks)
		s.fill(v, i, level, d, n, q.spread)
		w.parts[i] = part{int32(from), int32(len(w.picks))}
		for k := from; k < len(w.picks); k++ {
			s.reserve(&w.picks[k], &q.gang.Roles[i].Demand)
		}
	}
	s.restore(base)
	for _, v := range w.views {
		s.sync(v)
	}
	return ok
}

// reserve takes the room of a pick until restore.
func (s *State) reserve(t *seat, d *lockstep.Demand) {
	s.take(s.save(t.slot), t, d)
}

// restore undoes reservations down to base, newest first.
func (s *State) restore(base int) {
	for i := len(s.work.saved) - 1; i >= base; i-- {
		v := &s.work.saved[i]
		if c := &s.slots[v.x]; c.part != 0 { // its own, since save
			s.dropBlock(c)
		}
		s.slots[v.x] = v.was
		s.push(v.x)
	}
	s.work.saved = s.work.saved[:base]
}

// emit writes the picks into out in rank order: role by role, in slot order.
func (s *State) emit(q *query, out *lockstep.Plan) {
	w := &s.work
	out.Job, out.Gang, out.Version, out.Inventory = q.gang.ID, q.gang, s.version, s.tree
	w.hint = w.hint[:0]
	lo, hi := int32(maxSlots), int32(-1)
	for _, p := range w.parts {
		for i := p.from; i < p.to; i++ {
			t := &w.picks[i]
			w.hint = append(w.hint, t.slot)
			out.Members = append(out.Members, lockstep.Member{Role: int32(t.role), Node: s.ids[t.slot], Devices: t.devices, Start: int32(t.start)})
			lo, hi = min(lo, t.slot), max(hi, t.slot)
		}
	}
	s.emitSpares(out)
	out.Level = s.tree.LevelAt(s.tree.LCA(lo, hi)).Name
}
