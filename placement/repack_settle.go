package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// mover is the memory of a search for moves.
type mover struct {
	list    []lockstep.Candidate
	room    []seat // where the gang is to sit, or all nodes that are to be free
	level   lockstep.Level
	domain  string
	query   query
	plan    lockstep.Plan
	done    []moved
	verdict lockstep.Verdict
	order   []int32
}

// moved is a job whose record rec is replaced by one with its new place.
type moved struct{ cand, rec, now int32 }

// settle reports whether the picked jobs find other places such that the gang fits.
// Where out is given, it writes the moves.
func (h *hunt) settle(picks []pick, out *Moves) (ok bool) {
	s := h.s
	h.without(picks, nil, func() {
		if ok = s.fitsNow(h.q); ok {
			h.moves.room = append(h.moves.room[:0], s.work.picks...)
		}
	})
	if !ok {
		return false
	}
	d := s.tree.DomainOf(h.q.stop, h.moves.room[0].slot)
	h.moves.level, h.moves.domain = s.tree.LevelAt(h.q.stop).Name, s.tree.DomainName(h.q.stop, d)
	s.restore(0)
	ok = h.oneByOne(picks, out, h.r) || h.chains && h.arrange(picks, out)
	_ = s.cover("repack", h.r)
	return ok
}

// oneByOne moves the picked jobs one after another to where Fit puts them, off the
// nodes of the room that is to be free, the largest first. No overlay is in place.
func (h *hunt) oneByOne(picks []pick, out *Moves, r *lockstep.Request) bool {
	s, m := h.s, &h.moves
	m.order, m.done = m.order[:0], m.done[:0]
	for i := range picks {
		m.order = append(m.order, picks[i].cand)
	}
	slices.SortFunc(m.order, func(a, b int32) int {
		x, y := len(s.jobs[h.recs[a]].seats), len(s.jobs[h.recs[b]].seats)
		return cmp.Or(cmp.Compare(y, x), cmp.Compare(h.jobs[a].Job, h.jobs[b].Job))
	})
	ok := true
	for _, cand := range m.order {
		if ok = h.relocate(cand, r); !ok {
			break
		}
	}
	ok = ok && h.arrived(out, r)
	h.undo()
	return ok
}

// relocate moves one job off the room that is to be free. It fails where there is no
// other place for it.
func (h *hunt) relocate(cand int32, r *lockstep.Request) bool {
	s, m := h.s, &h.moves
	rec := h.recs[cand]
	s.Plan(h.jobs[cand].Job, &m.plan)
	same := s.again(rec, &lockstep.Request{})
	same.Prefer = &m.plan
	if s.read("repack", &same, &m.query) != nil {
		return false
	}
	s.work.frozen = true
	s.unseat(rec)
	h.fence(r)
	now, ok := h.place(rec, &same)
	s.restore(0)
	if !ok || slices.EqualFunc(s.jobs[now].seats, s.jobs[rec].seats, sameSeat) {
		if ok {
			s.freeJob(now)
		}
		s.reseat(rec)
		s.work.frozen = false
		return false
	}
	s.reseat(now)
	s.work.frozen = false
	m.done = append(m.done, moved{cand, rec, now})
	return true
}

func sameSeat(a, b seat) bool {
	return a.slot == b.slot && a.role == b.role && a.start == b.start && a.devices == b.devices
}

// fence keeps movers off the room that is to be free, and off what a request reserves.
func (h *hunt) fence(r *lockstep.Request) {
	s := h.s
	if r != nil {
		_ = s.cover("repack", &lockstep.Request{Busy: r.Busy})
	}
	for i := range h.moves.room {
		if x := h.moves.room[i].slot; s.slots[x].flags&excluded == 0 {
			s.save(x).flags |= excluded
		}
	}
}

// place finds a place for a job that is out, and returns a record with its seats.
func (h *hunt) place(rec int32, r *lockstep.Request) (now int32, ok bool) {
	s, q := h.s, &h.moves.query
	for penalty := range s.ranks {
		if penalty > 0 && s.ranks[penalty] == 0 {
			continue
		}
		s.aim(q, uint8(penalty))
		l, d, ok := s.place(q)
		if !ok {
			continue
		}
		s.stay(q, r.Prefer, l, d)
		return h.recordOf(rec, q), true
	}
	return 0, false
}

// recordOf makes a record of the picks at hand, for the job of another record.
func (h *hunt) recordOf(rec int32, q *query) int32 {
	s, w := h.s, &h.s.work
	n := 0
	for _, p := range w.parts {
		n += int(p.to - p.from)
	}
	now := s.newJob(n + int(w.spares.to-w.spares.from))
	j := &s.jobs[now]
	old := &s.jobs[rec]
	j.id, j.gang, j.port, j.ranks = old.id, old.gang, old.port, int32(n)
	at := 0
	for _, p := range w.parts {
		at += copy(j.seats[at:], w.picks[p.from:p.to])
	}
	for role := range q.gang.Roles {
		for _, t := range w.picks[w.spares.from:w.spares.to] {
			if int(t.role) == role {
				j.seats[at] = t
				at++
			}
		}
	}
	return now
}

// arrived reports whether the goal is reached now, and writes the moves if so.
func (h *hunt) arrived(out *Moves, r *lockstep.Request) bool {
	s, m := h.s, &h.moves
	if r != nil {
		_ = s.cover("repack", r)
		defer s.restore(0)
		if out == nil {
			return s.fitsNow(h.q)
		}
		if m.verdict = s.solve(h.q, r, &out.Plan); !m.verdict.Feasible {
			out.Plan.Reset()
			return false
		}
	}
	if out == nil {
		return true
	}
	for _, o := range m.done {
		v := Move{Job: h.jobs[o.cand].Job, Level: m.level, Domain: m.domain, Cost: h.jobs[o.cand].Cost}
		s.planOf(o.rec, &v.From)
		s.planOf(o.now, &v.To)
		out.Moves = append(out.Moves, v)
	}
	return true
}

// planOf writes what a record holds or held.
func (s *State) planOf(rec int32, out *lockstep.Plan) {
	j := &s.jobs[rec]
	out.Job, out.Gang, out.Version, out.Port, out.Inventory = j.id, j.gang, s.version, j.port, s.tree
	for i := range j.seats {
		if m := s.memberOf(&j.seats[i]); i < int(j.ranks) {
			out.Members = append(out.Members, m)
		} else {
			out.Spares = append(out.Spares, m)
		}
	}
	out.Level = s.levelOf(j.seats[:j.ranks])
}

// undo takes all moves back.
func (h *hunt) undo() {
	s, m := h.s, &h.moves
	s.work.frozen = true
	for i := len(m.done) - 1; i >= 0; i-- {
		o := m.done[i]
		s.unseat(o.now)
		s.freeJob(o.now)
		s.reseat(o.rec)
	}
	s.work.frozen = false
	m.done = m.done[:0]
}
