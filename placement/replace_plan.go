package placement

import (
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Replace plans how a running gang goes on after it lost nodes: those of its members
// whose node is unhealthy, left the tree or is among r.Exclude get another place, the
// others stay where they are, and all keep their ranks. Only Gang.ID, Exclude and Busy of
// the request are read. It changes nothing: Exchange takes the plan.
//
// The lost members of a role that sat on one node go together, or the lost ones of
// one inner group, role by role in packing order, lowest rank first. Places come from
// the gang's spares, nearest first (finest common domain with the lost node; of a node
// that left, with the next member that is there; ties to the lowest slot), and then from
// what is free in the finest domain around that has room for all of them, out to the
// domain of the required level that holds the first member left. A group that finds no place for
// those it lost in its own domain moves as a whole. Then the spares are filled up
// again as far as there is room. Where no member is left, the plan is Fit's.
//
// The verdict is feasible where every member has a place, else it says what is lacking
// in the gang's domain. It returns errors as Fit does, and lockstep.ErrUnknown for a
// gang that holds nothing. O(members·spares + nodes of the plan·levels).
func (s *State) Replace(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	switch {
	case s.tree == nil:
		return lockstep.Verdict{}, zeroState("replace")
	case out == nil:
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "replace", "out", "nil", "must not be nil")
	case r == nil || r.Gang == nil:
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "replace", "Request.Gang", "nil", "must not be nil")
	}
	rec, ok := s.byID[r.Gang.ID]
	if !ok {
		return lockstep.Verdict{}, fault(lockstep.ErrUnknown, "replace", "Request.Gang", strconv.Quote(string(r.Gang.ID)), "holds nothing")
	}
	out.Reset()
	same := s.again(rec, r)
	q := &s.work.query
	if err := s.read("replace", &same, q); err != nil {
		return lockstep.Verdict{}, err
	}
	s.work.frozen = true
	s.unseat(rec)
	err := s.cover("replace", &same)
	var v lockstep.Verdict
	if err == nil {
		v = s.replace(q, &same, rec, out)
	}
	s.restore(0)
	s.reseat(rec)
	s.work.frozen = false
	return v, err
}

// again is a request for what a job holds.
func (s *State) again(rec int32, r *lockstep.Request) lockstep.Request {
	j := &s.jobs[rec]
	counts := make([]int, len(j.gang.Roles))
	for i := range j.seats[:j.ranks] {
		counts[j.seats[i].role]++
	}
	return lockstep.Request{Gang: j.gang, Min: counts, Max: counts, Exclude: r.Exclude, Busy: r.Busy}
}

// mend is one replacement: what a job held, and what it gets.
type mend struct {
	s      *State
	q      *query
	seats  []seat // by rank; those lost have lost set
	lost   []bool
	spares []seat
	spent  []bool // by spare: used, or lost
	home   int32  // the domain of the required level
}

// replace answers Replace, with the job gone and the request's overlay in place.
func (s *State) replace(q *query, r *lockstep.Request, rec int32, out *lockstep.Plan) lockstep.Verdict {
	j := &s.jobs[rec]
	m := &mend{s: s, q: q, home: -1}
	for i := range j.seats {
		t := j.seats[i]
		away := t.slot < 0 || s.slots[t.slot].flags&^cordoned != 0
		if i >= int(j.ranks) {
			m.spares, m.spent = append(m.spares, t), append(m.spent, away)
			continue
		}
		if m.seats, m.lost = append(m.seats, t), append(m.lost, away); !away && m.home < 0 {
			m.home = s.tree.DomainOf(q.stop, t.slot)
		}
	}
	if m.home < 0 {
		return s.solve(q, r, out)
	}
	base := len(s.work.saved)
	var v lockstep.Verdict
	for penalty := range s.ranks {
		if penalty > 0 && s.ranks[penalty] == 0 {
			continue
		}
		s.restore(base)
		s.aim(q, uint8(penalty))
		try := *m
		try.seats, try.lost, try.spent = slices.Clone(m.seats), slices.Clone(m.lost), slices.Clone(m.spent)
		short := try.run()
		if short < 0 {
			return try.emit(j, out)
		}
		v = try.refuse(short)
	}
	return v
}

// refuse says what a role lacks whose members do not all find a place.
func (m *mend) refuse(role int32) lockstep.Verdict {
	s, q := m.s, m.q
	v := s.work.views[role]
	s.sync(v)
	out := lockstep.Verdict{
		Reason: lockstep.ReasonBusy, Want: len(m.seats),
		Level: s.tree.LevelAt(q.stop).Name, Domain: s.tree.DomainName(q.stop, m.home),
	}
	lacking := int32(0)
	for i := range m.seats {
		if !m.lost[i] {
			out.Fit++
		} else if int32(m.seats[i].role) == role {
			lacking++
		}
	}
	if q.stop > 0 && s.scattered(v, lacking) {
		out.Reason = lockstep.ReasonFragmented
	}
	s.binding(&out, v, q.stop, m.home, int64(lacking))
	return out
}

// run finds places for those that lost theirs. It returns the role that finds none,
// or -1.
func (m *mend) run() int32 {
	for i := range m.seats {
		if !m.lost[i] {
			m.s.reserve(&m.seats[i], m.demand(m.seats[i].role))
		}
	}
	for i := range m.spares {
		if !m.spent[i] {
			m.s.reserve(&m.spares[i], m.demand(m.spares[i].role))
		}
	}
	for _, role := range m.q.order {
		if !m.runRole(role) {
			return role
		}
	}
	return -1
}

// runRole finds places for the lost members of a role.
func (m *mend) runRole(role int32) bool {
	from := 0
	for from < len(m.seats) && int32(m.seats[from].role) != role {
		from++
	}
	to := from
	for to < len(m.seats) && int32(m.seats[to].role) == role {
		to++
	}
	size := max(1, m.q.gang.Roles[role].Inner.Size)
	for g := from; g < to; g += size {
		switch {
		case !slices.Contains(m.lost[g:g+size], true):
		case size == 1 && !m.renew(role, m.together(g, to)), size > 1 && !m.patch(role, g, size) && !m.moveGroup(role, g, size):
			return false
		}
	}
	return true
}

func (m *mend) demand(role int16) *lockstep.Demand { return &m.q.gang.Roles[role].Demand }

// together lists the lost members from a rank on that sat on its node.
func (m *mend) together(from, to int) (ranks []int) {
	for i := from; i < to; i++ {
		if m.lost[i] && m.seats[i].slot == m.seats[from].slot {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// anchor returns a slot of the tree near which a member is to go.
func (m *mend) anchor(rank int) int32 {
	for d := range m.seats {
		for _, i := range [...]int{rank - d, rank + d} {
			if i >= 0 && i < len(m.seats) && m.seats[i].slot >= 0 {
				return m.seats[i].slot
			}
		}
	}
	return 0
}

// renew finds places for some members, each by itself: spares, then free room.
func (m *mend) renew(role int32, ranks []int) bool {
	near := m.anchor(ranks[0])
	for len(ranks) > 0 {
		k := m.nearest(role, near, m.q.stop, m.home)
		if k < 0 {
			break
		}
		m.use(ranks[0], k)
		ranks = ranks[1:]
	}
	return len(ranks) == 0 || m.free(role, near, ranks, m.q.stop)
}

// nearest returns the unspent spare of a role in a domain of a level that is nearest to
// a slot, or -1.
func (m *mend) nearest(role, near int32, level int, d int32) int {
	best, finest := -1, -1
	for k := range m.spares {
		t := &m.spares[k]
		if m.spent[k] || int32(t.role) != role || m.s.tree.DomainOf(level, t.slot) != d {
			continue
		}
		l := m.s.tree.LCA(near, t.slot)
		if l > finest || l == finest && t.slot < m.spares[best].slot {
			best, finest = k, l
		}
	}
	return best
}

// use seats a member in the room of a spare, which is reserved already.
func (m *mend) use(rank, spare int) {
	m.seats[rank], m.lost[rank], m.spent[spare] = m.spares[spare], false, true
}

// free seats members in free room: in the finest domain around a slot, out to a level,
// that has room for all of them. For levels as coarse as that of inner groups they must
// be whole groups.
func (m *mend) free(role, near int32, ranks []int, stop int) bool {
	s, w := m.s, &m.s.work
	v := w.views[role]
	s.sync(v)
	for l := s.depth - 1; l >= stop; l-- {
		d := s.tree.DomainOf(l, near)
		n := int32(len(ranks)) / v.unit(l)
		if n == 0 || s.unitsOf(v, l, d) < n {
			continue
		}
		w.picks = w.picks[:0]
		s.fill(v, role, l, d, n, false)
		m.take(ranks)
		return true
	}
	return false
}

// take seats members where the picks are.
func (m *mend) take(ranks []int) {
	for i, rank := range ranks {
		m.seats[rank], m.lost[rank] = m.s.work.picks[i], false
		m.s.reserve(&m.seats[rank], m.demand(m.seats[rank].role))
	}
}

// patch finds places for the lost members of a group in the group's own domain.
func (m *mend) patch(role int32, from, size int) bool {
	s, level := m.s, max(m.q.inner[role], m.q.stop)
	d := int32(-1)
	var ranks []int
	for i := from; i < from+size; i++ {
		if m.lost[i] {
			ranks = append(ranks, i)
		} else if d < 0 {
			d = s.tree.DomainOf(level, m.seats[i].slot)
		}
	}
	if d < 0 {
		return false
	}
	near := m.anchor(ranks[0])
	if s.tree.DomainOf(level, near) != d {
		near, _ = s.tree.Range(level, d)
	}
	rest := len(ranks) - min(m.sparesIn(role, level, d), len(ranks))
	v := s.work.views[role]
	s.sync(v)
	if rest > 0 && !m.free(role, near, ranks[:rest], level+1) {
		if s.freeMembers(v, level, d) < int32(rest) {
			return false
		}
		s.work.picks = s.work.picks[:0]
		s.fillMembers(v, role, level, d, int32(rest))
		m.take(ranks[:rest])
	}
	for _, rank := range ranks[rest:] {
		m.use(rank, m.nearest(role, near, level, d))
	}
	return true
}

// freeMembers returns how many members fit into a domain of the inner level, groups
// apart.
func (s *State) freeMembers(v *view, level int, d int32) int32 {
	if level < s.depth-1 {
		return v.sums[level][d]
	}
	if !v.allows(s, d) {
		return 0
	}
	return max(0, s.room(v, d, &s.slots[d]))
}

// fillMembers is fill of n members, groups apart, into a domain of the inner level.
func (s *State) fillMembers(v *view, role int32, level int, d, n int32) {
	if level == s.depth-1 {
		s.seatAt(d, role, v, n)
		return
	}
	base := len(s.work.allots)
	s.pack(v, level, d, n)
	for i := base; i < len(s.work.allots); i++ {
		a := s.work.allots[i]
		s.fill(v, role, level+1, a.child, a.n/v.unit(level+1), false)
	}
	s.work.allots = s.work.allots[:base]
}

// moveGroup gives a whole group another place.
func (m *mend) moveGroup(role int32, from, size int) bool {
	s := m.s
	near := m.anchor(from)
	ranks := make([]int, 0, size)
	for i := from; i < from+size; i++ {
		if ranks = append(ranks, i); !m.lost[i] {
			s.giveBack(&m.seats[i], m.demand(m.seats[i].role))
			m.lost[i] = true
		}
	}
	level := max(m.q.inner[role], m.q.stop)
	if d := m.spareGroup(role, near, level, size); d >= 0 {
		for _, rank := range ranks {
			m.use(rank, m.nearest(role, near, level, d))
		}
		return true
	}
	return m.free(role, near, ranks, m.q.stop)
}

// spareGroup returns the domain of a level nearest to a slot with so many unspent spares
// of a role, in the gang's domain, or -1.
func (m *mend) spareGroup(role, near int32, level, size int) int32 {
	tree := m.s.tree
	best, finest := int32(-1), -1
	for k := range m.spares {
		x := m.spares[k].slot
		if m.spent[k] || tree.DomainOf(m.q.stop, x) != m.home {
			continue
		}
		d := tree.DomainOf(level, x)
		if l := tree.LCA(near, x); m.sparesIn(role, level, d) >= size && (l > finest || l == finest && d < best) {
			best, finest = d, l
		}
	}
	return best
}

// sparesIn returns how many unspent spares of a role a domain has.
func (m *mend) sparesIn(role int32, level int, d int32) (n int) {
	for k := range m.spares {
		if t := &m.spares[k]; !m.spent[k] && int32(t.role) == role && m.s.tree.DomainOf(level, t.slot) == d {
			n++
		}
	}
	return n
}

// giveBack undoes a reservation before restore does.
func (s *State) giveBack(t *seat, d *lockstep.Demand) {
	s.give(s.save(t.slot), t, d)
}

// emit writes the plan and fills up the spares.
func (m *mend) emit(j *job, out *lockstep.Plan) lockstep.Verdict {
	s, q, w := m.s, m.q, &m.s.work
	out.Job, out.Gang, out.Version, out.Port, out.Inventory = j.id, j.gang, s.version, j.port, s.tree
	lo, hi := int32(maxSlots), int32(-1)
	w.picks, w.hint = w.picks[:0], w.hint[:0]
	for i := range m.seats {
		t := &m.seats[i]
		out.Members = append(out.Members, s.memberOf(t))
		w.picks = append(w.picks, *t)
		lo, hi = min(lo, t.slot), max(hi, t.slot)
	}
	level := s.tree.LCA(lo, hi)
	out.Level = s.tree.LevelAt(level).Name
	n := len(w.picks)
	for role := range q.gang.Roles {
		have := int32(0)
		for k := range m.spares {
			if t := &m.spares[k]; !m.spent[k] && int(t.role) == role {
				out.Spares = append(out.Spares, s.memberOf(t))
				have++
			}
		}
		from := len(w.picks)
		m.refill(n, int32(role), lo, level, q.spares[role]-have)
		for i := from; i < len(w.picks); i++ {
			out.Spares = append(out.Spares, s.memberOf(&w.picks[i]))
		}
	}
	d := s.tree.DomainOf(level, lo)
	return lockstep.Verdict{Feasible: true, Fit: len(m.seats), Want: len(m.seats), Level: out.Level, Domain: s.tree.DomainName(level, d)}
}

// refill holds as many more spares of a role as there is room for, as holdSpares does,
// beside the first n picks, which reach from slot x up to a level.
func (m *mend) refill(n int, role, x int32, level int, rest int32) {
	s, q := m.s, m.q
	if rest <= 0 {
		return
	}
	s.avoid(n, true)
	for l := max(level, q.stop); l >= q.stop && rest > 0; l-- {
		rest = s.spareIn(q, role, l, s.tree.DomainOf(l, x), rest)
	}
	s.avoid(n, false)
	s.spareIn(q, role, q.stop, s.tree.DomainOf(q.stop, x), rest)
}
