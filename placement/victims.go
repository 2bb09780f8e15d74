package placement

import (
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// ReasonPreempted is the reason of the evictions that Victims proposes.
const ReasonPreempted lockstep.Reason = "preempted"

// Victims finds room for a gang that does not fit: which candidates have to go, so
// that the least members that the request asks for fit into one domain of the required
// level, and where the gang sits then. It changes nothing. Where the gang fits as
// things are, out has its plan and no evictions; where it does not fit even so, out is
// left empty and the verdict is Fit's.
//
// Of all sets that do, it is the one with the lowest top tier; then the least cost
// (the sum of EvictionCost.Total, held at the end of int64), the fewest jobs, the least
// that they give up (devices, then members, with the spares of those that go whole), and
// the lowest job IDs, compared as sorted lists. A candidate goes whole at Cost, or, where
// it has Min, gives back whole inner groups at Shrink: as few as help, of like ones those
// with the highest ranks. What goes counts against each entry of Limits that its job
// names, by Demand.Resources. Nobody has to go for members above the least; the plan has
// as many as Fit gives it then.
//
// Out.Exact says that the search was complete: no set is better but perhaps by its IDs.
// In a domain with up to 24 candidates all sets are tried that bounds do not rule
// out. Beyond that, where one role has a least and its inner
// groups share a node, the room of candidates that share no node is a sum, and the
// best one is found by filling up, unless a limit forbids it. Else the set is that of
// the cheapest nodes, without whoever is not needed, and with single victims exchanged
// for cheaper ones; then 2^15 further steps in a domain, 2^17 in all, look for a better.
// Where roles are several or have affinities, no more than 2,048 sets are tried.
//
// Out.Plan is of the present version, and so Apply refuses it: room is there only once
// the evictions are done, each by Evict. Then Fit, with out.Plan as Prefer, gives that
// plan again unless something else has changed; Adopt takes it as it is.
//
// It returns errors as Fit does, ErrUnknown for a candidate that holds nothing, and
// ErrInvalid or ErrDuplicate for candidates that are malformed. It allocates nothing
// once warm. It costs O(members of the candidates + domains of the required level), less
// for jobs of whole nodes in one domain, and the search in those domains that may be
// the best (BenchmarkVictims).
func (s *State) Victims(r *lockstep.Request, c *lockstep.Candidates, out *lockstep.Preempted) (lockstep.Verdict, error) {
	if out == nil {
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "victims", "out", "nil", "must not be nil")
	}
	if r != nil && r.Prefer == &out.Plan { // to be read after out is written
		same := *r
		same.Prefer = out.Plan.Clone()
		r = &same
	}
	out.Reset()
	q := &s.work.query
	if err := s.read("victims", r, q); err != nil {
		return lockstep.Verdict{}, err
	}
	h := &s.work.hunt
	if err := h.load(s, r, c, "victims", "Candidates."); err != nil {
		return lockstep.Verdict{}, err
	}
	if err := s.cover("victims", r); err != nil {
		return lockstep.Verdict{}, err
	}
	v := s.solve(q, r, &out.Plan)
	if v.Feasible || len(h.jobs) == 0 || !h.search() {
		out.Exact = v.Feasible
		covered := len(s.work.saved) > 0
		s.restore(0)
		if covered && !v.Feasible && s.fits(q) {
			v.Reason = lockstep.ReasonReserved
		}
		return v, nil
	}
	return h.emit(out), nil
}

// emit writes the best set and the plan without it.
func (h *hunt) emit(out *lockstep.Preempted) (v lockstep.Verdict) {
	s, b := h.s, &h.best
	h.without(b.picks, b.ranks, func() { v = s.solve(h.q, h.r, &out.Plan) })
	s.restore(0)
	out.Exact = !h.cut
	for i := range b.picks {
		p := &b.picks[i]
		c := &h.jobs[p.cand]
		n := len(out.Evictions)
		out.Evictions = slices.Grow(out.Evictions, 1)[:n+1]
		e := &out.Evictions[n]
		*e = lockstep.Eviction{
			Job: c.Job, For: h.q.gang.ID, Ranks: e.Ranks[:0], Reason: ReasonPreempted,
			Grace: s.jobs[h.recs[p.cand]].gang.Capabilities.Grace, Cost: c.Cost,
		}
		if !p.whole {
			e.Cost = c.Shrink
			for _, rank := range b.ranks[p.from:p.to] {
				e.Ranks = append(e.Ranks, int(rank))
			}
		}
	}
	return v
}

// pick is a candidate that is to go: whole, or its ranks[from:to].
type pick struct {
	cand     int32
	whole    bool
	from, to int32
}

// without does something while the picked members are gone; the request's overlay is
// in place for it, and again afterwards.
func (h *hunt) without(picks []pick, ranks []int32, do func()) {
	s := h.s
	s.restore(0)
	s.work.frozen = true // all come back
	for i := range picks {
		p := &picks[i]
		rec := h.recs[p.cand]
		if p.whole {
			s.unseat(rec)
			continue
		}
		for _, rank := range ranks[p.from:p.to] {
			h.lift(rec, rank)
		}
	}
	_ = s.cover("victims", h.r) // read before
	do()
	s.restore(0)
	for i := len(picks) - 1; i >= 0; i-- {
		p := &picks[i]
		rec := h.recs[p.cand]
		if p.whole {
			s.reseat(rec)
			continue
		}
		for k := p.to - 1; k >= p.from; k-- {
			h.lower(rec, ranks[k])
		}
	}
	s.work.frozen = false
	_ = s.cover("victims", h.r)
}

// lift takes one member out of the cluster, as if its node were away, until lower;
// the last lifted is lowered first.
func (h *hunt) lift(rec, i int32) {
	s := h.s
	t := &s.jobs[rec].seats[i]
	s.vacate(rec, i)
	s.countOne(rec, t.slot, -1)
	h.lifted = append(h.lifted, t.slot)
	t.slot = -1 // terms that are counted meanwhile pass it over
}

// lower undoes lift.
func (h *hunt) lower(rec, i int32) {
	s := h.s
	t := &s.jobs[rec].seats[i]
	t.slot = h.lifted[len(h.lifted)-1]
	h.lifted = h.lifted[:len(h.lifted)-1]
	s.occupy(rec, i)
	s.countOne(rec, t.slot, 1)
}

func (s *State) countOne(rec, x, by int32) {
	if x < 0 {
		return
	}
	for _, t := range s.terms {
		if matches(t.match, s.jobs[rec].gang.Labels) {
			s.countSeat(t, x, by)
		}
	}
}

// fitsNow reports whether Fit would be feasible, as it would decide.
func (s *State) fitsNow(q *query) bool {
	for penalty := range s.ranks {
		if penalty > 0 && s.ranks[penalty] == 0 {
			continue
		}
		s.aim(q, uint8(penalty))
		if _, _, ok := s.place(q); ok {
			return true
		}
	}
	return false
}

// load checks the candidates, which a call was given as a field, and finds their jobs.
func (h *hunt) load(s *State, r *lockstep.Request, c *lockstep.Candidates, call, in string) error {
	h.reset(s, r)
	if c == nil {
		return nil
	}
	if c.Max < 0 {
		return fault(lockstep.ErrInvalid, call, in+"Max", strconv.Itoa(c.Max), "must not be negative")
	}
	h.jobs, h.max = c.Jobs, int32(min(c.Max, len(c.Jobs)))
	if c.Max == 0 {
		h.max = int32(len(c.Jobs))
	}
	for len(h.seen) < len(s.jobs) {
		h.seen, h.which = append(h.seen, 0), append(h.which, 0)
	}
	for i := range c.Jobs {
		if err := h.loadJob(int32(i), len(c.Limits), call, in); err != nil {
			return err
		}
	}
	slices.Sort(h.tiers)
	h.tiers = slices.Compact(h.tiers)
	if len(h.tiers) > 1 {
		h.byTier()
	}
	for j, limit := range c.Limits {
		for name, amount := range limit { // in any order: all must hold
			h.quantities = append(h.quantities, quantity{limit: int32(j), kind: kindOf(name), name: name, left: amount})
		}
	}
	return nil
}

// loadJob checks one candidate and finds its job.
func (h *hunt) loadJob(i int32, limits int, call, in string) error {
	s, o := h.s, &h.jobs[i]
	bad := func(kind error, field, reason string) error {
		return fault(kind, call, in+at("Jobs", int(i))+field, strconv.Quote(string(o.Job)), reason)
	}
	rec, ok := s.byID[o.Job]
	switch {
	case !ok:
		return bad(lockstep.ErrUnknown, "", "holds nothing")
	case o.Job == h.r.Gang.ID:
		return bad(lockstep.ErrInvalid, "", "is the gang itself")
	case h.seen[rec] == h.age:
		return bad(lockstep.ErrDuplicate, "", "named twice")
	}
	h.seen[rec], h.which[rec] = h.age, i
	if field, ok := s.checkCandidate(o, rec, limits); !ok {
		return bad(lockstep.ErrInvalid, "."+field, "out of range")
	}
	h.recs, h.tiers, h.order = append(h.recs, rec), append(h.tiers, o.Tier), append(h.order, i)
	return nil
}

// byTier sorts the order of candidates by tier, and by index within it.
func (h *hunt) byTier() {
	h.starts = slices.Grow(h.starts[:0], len(h.tiers)+1)[:len(h.tiers)+1]
	clear(h.starts)
	for i := range h.jobs {
		n, _ := slices.BinarySearch(h.tiers, h.jobs[i].Tier)
		h.starts[n+1]++
	}
	for n := range h.tiers {
		h.starts[n+1] += h.starts[n]
	}
	for i := range h.jobs {
		n, _ := slices.BinarySearch(h.tiers, h.jobs[i].Tier)
		h.order[h.starts[n]] = int32(i)
		h.starts[n]++
	}
}

// checkCandidate returns the field of a candidate that is out of range.
func (s *State) checkCandidate(o *lockstep.Candidate, rec int32, limits int) (field string, ok bool) {
	for _, c := range [...]*lockstep.EvictionCost{&o.Cost, &o.Shrink} {
		if c.Lost < 0 || c.Save < 0 || c.Restore < 0 || c.Devices < 0 {
			return "Cost", false
		}
	}
	if o.Min != nil && len(o.Min) != len(s.jobs[rec].gang.Roles) {
		return "Min", false
	}
	for _, n := range o.Min {
		if n < 0 {
			return "Min", false
		}
	}
	for i, j := range o.Limits {
		if j < 0 || int(j) >= limits || slices.Contains(o.Limits[:i], j) {
			return "Limits", false
		}
	}
	return "", true
}
