package placement

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Goal is what moves are to bring about: that a gang fits, or that some domain of a
// level has no members. Either Request or Level is set.
type Goal struct {
	Request  *lockstep.Request // Request is the gang that is to fit; nil where a domain is to become free.
	Level    lockstep.Level    // Level is of which one domain is to become free, such as lockstep.LevelNode; empty where Request is set.
	Jobs     []Movable         // Jobs are those that may be moved, in any order; each once.
	MaxMoves int               // MaxMoves is how many may be moved; 0 means 16.
	MaxCost  int64             // MaxCost is what all moves may cost together, by EvictionCost.Total; 0 means any.
}

// Movable is a job that may be moved.
type Movable struct {
	Job  lockstep.JobID        `json:"job"`           // Job is which.
	Cost lockstep.EvictionCost `json:"cost,omitzero"` // Cost is what a move of it throws away, whatever part of it moves.
}

// Move is one job that goes to another place.
type Move struct {
	Job    lockstep.JobID        `json:"job"`              // Job is which.
	From   lockstep.Plan         `json:"from"`             // From is what it holds before.
	To     lockstep.Plan         `json:"to"`               // To is what it holds then, with the same ranks; Exchange takes it.
	Level  lockstep.Level        `json:"level,omitempty"`  // Level is the level of the domain that the move helps to free.
	Domain string                `json:"domain,omitempty"` // Domain is the domain that the move helps to free.
	Cost   lockstep.EvictionCost `json:"cost,omitzero"`    // Cost is what it throws away.
}

// Moves are a way to a goal.
type Moves struct {
	Moves []Move        `json:"moves,omitempty"` // Moves are in the order in which they can be made: at its turn, each one's place is free.
	Plan  lockstep.Plan `json:"plan,omitzero"`   // Plan is where the gang sits after them; without members where there is none.
	Exact bool          `json:"exact,omitempty"` // Exact says that the search was complete: no fewer moves would do, nor as many cheaper ones.
}

// Reset empties m.
func (m *Moves) Reset() { *m = Moves{} }

// Bounds on moves.
const (
	defaultMoves = 16
	chainJobs    = 12 // up to how many jobs one may move out of another's way
)

// Repack looks for moves of running jobs that bring a goal about: as few as will do,
// then those that cost least, then the lowest job IDs. It changes nothing. Each job
// moves at most once, and where members of it may stay they do. Moves can be made in
// the order in which they come: no two jobs ever hold the same room, the gang's included.
// Where nothing need be moved there are no moves; where none will do, the verdict is not
// feasible.
//
// For a gang, candidates are those in its way in the domain at hand, and where at most
// 12 jobs may move, also those in the way of them. With at most 12, of one role, of
// whole devices, without inner groups, affinities and spares, every arrangement is
// looked at: then out.Exact says that there is no better way. Else a job goes where Fit
// puts it, the largest first, and for each number of moves no more than 512 sets are
// tried. For a level, the domain with the fewest jobs, then the cheapest, is freed.
//
// It returns errors as Victims does, with ErrUnknown for a job that holds nothing, and
// ErrInvalid for a goal without request and level or with both. A domain is named that a
// gang's required level has; a gang without one is in the way in the whole cluster.
func (s *State) Repack(g *Goal, out *Moves) (lockstep.Verdict, error) {
	switch {
	case s.tree == nil:
		return lockstep.Verdict{}, zeroState("repack")
	case out == nil:
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "repack", "out", "nil", "must not be nil")
	case g == nil || (g.Request == nil) == (g.Level == ""):
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "repack", "Goal", "", "want either a request or a level")
	case g.MaxMoves < 0 || g.MaxCost < 0:
		return lockstep.Verdict{}, fault(lockstep.ErrInvalid, "repack", "Goal.MaxMoves", strconv.Itoa(g.MaxMoves), "bounds must not be negative")
	}
	out.Reset()
	h := &s.work.hunt
	h.moves.list = h.moves.list[:0]
	for i := range g.Jobs {
		h.moves.list = append(h.moves.list, lockstep.Candidate{Job: g.Jobs[i].Job, Cost: g.Jobs[i].Cost})
	}
	most := cmp.Or(g.MaxMoves, defaultMoves)
	if g.Request != nil {
		return h.repackFor(s, g, most, out)
	}
	level, err := s.level("repack", -1, "Level", g.Level)
	if err != nil {
		return lockstep.Verdict{}, err
	}
	r := &lockstep.Request{Gang: nobody()}
	if err := h.load(s, r, &lockstep.Candidates{Jobs: h.moves.list}, "repack", "Goal."); err != nil {
		return lockstep.Verdict{}, err
	}
	return h.repackFree(g, level, most, out), nil
}

// nobody is a gang in whose name a domain is freed; no job is called so.
func nobody() *lockstep.Gang { return &lockstep.Gang{Roles: []lockstep.Role{{Min: 1}}} }

// repackFor looks for moves that let a gang in.
func (h *hunt) repackFor(s *State, g *Goal, most int, out *Moves) (lockstep.Verdict, error) {
	r := g.Request
	q := &s.work.query
	if err := s.read("repack", r, q); err != nil {
		return lockstep.Verdict{}, err
	}
	if err := h.load(s, r, &lockstep.Candidates{Jobs: h.moves.list}, "repack", "Goal."); err != nil {
		return lockstep.Verdict{}, err
	}
	if err := s.cover("repack", r); err != nil {
		return lockstep.Verdict{}, err
	}
	v := s.solve(q, r, &out.Plan)
	out.Exact = v.Feasible
	h.moving, h.chains, h.dearest = 1, len(h.jobs) <= chainJobs, cmp.Or(g.MaxCost, 1<<63-1)
	for k := 1; k <= min(most, len(h.jobs)) && !v.Feasible; k++ {
		h.max, h.trials = int32(k), maxTrials/4
		h.anew()
		if !h.search() {
			continue
		}
		if h.settle(h.best.picks, out) {
			v = h.moves.verdict
			out.Exact = !h.cut && h.chains
		}
		break
	}
	s.restore(0)
	return v, nil
}

// clearing is a domain that may be freed.
type clearing struct {
	d    int32
	toll toll
}

// repackFree looks for moves that free a domain of a level.
func (h *hunt) repackFree(g *Goal, level, most int, out *Moves) lockstep.Verdict {
	s := h.s
	var list []clearing
	for d := range s.tree.Domains(level) {
		t, ok := h.inside(level, int32(d))
		if ok && int(t.jobs) <= most && (g.MaxCost == 0 || t.cost <= g.MaxCost) {
			list = append(list, clearing{int32(d), t})
		}
	}
	slices.SortStableFunc(list, func(a, b clearing) int { return a.toll.compare(&b.toll) })
	m := &h.moves
	m.level = g.Level
	for i := range list[:min(len(list), maxTrials)] {
		d := list[i].d
		first, end := s.tree.Range(level, d)
		m.room = m.room[:0]
		for x := first; x < end; x++ {
			m.room = append(m.room, seat{slot: x})
		}
		m.domain = s.tree.DomainName(level, d)
		h.inside(level, d)
		if h.oneByOne(h.draft.picks, out, nil) {
			out.Exact = i == 0
			return lockstep.Verdict{Feasible: true, Level: g.Level, Domain: m.domain}
		}
	}
	return lockstep.Verdict{Reason: lockstep.ReasonBusy, Level: g.Level}
}

// inside lists who must leave a domain for it to be free, and what that costs; it
// fails where someone may not be moved, or the domain has no open node.
func (h *hunt) inside(level int, d int32) (t toll, ok bool) {
	s := h.s
	first, end := s.tree.Range(level, d)
	h.draft.picks = h.draft.picks[:0]
	for x := first; x < end; x++ {
		ok = ok || s.slots[x].flags == 0
		for o := s.slots[x].head; o.rec >= 0; o = s.jobs[o.rec].seats[o.idx].next {
			if h.seen[o.rec] != h.age {
				return t, false
			}
			h.draft.picks = append(h.draft.picks, pick{cand: h.which[o.rec], whole: true})
		}
	}
	slices.SortFunc(h.draft.picks, func(a, b pick) int { return cmp.Compare(h.jobs[a.cand].Job, h.jobs[b.cand].Job) })
	h.draft.picks = slices.Compact(h.draft.picks)
	for _, p := range h.draft.picks {
		t = t.and(1, h.jobs[p.cand].Cost.Total(), 0, int32(len(s.jobs[h.recs[p.cand]].seats)))
	}
	return t, ok
}
