package placement

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Evict gives back what an eviction names: all that a job holds, or the members of its
// Ranks, which must be in increasing order. Those that stay keep their places and the
// job its spares; their ranks close up. Only Job and Ranks are read. A job that holds
// nothing is lockstep.ErrUnknown; ranks that it does not have, that are all it has, or
// that leave inner groups in pieces are ErrInvalid. O(members).
func (s *State) Evict(e *lockstep.Eviction) error {
	if e == nil {
		return fault(lockstep.ErrInvalid, "evict", "Eviction", "nil", "must not be nil")
	}
	rec, ok := s.byID[e.Job]
	if !ok {
		return fault(lockstep.ErrUnknown, "evict", "Eviction.Job", strconv.Quote(string(e.Job)), "holds nothing")
	}
	if len(e.Ranks) == 0 {
		return s.Release(e.Job)
	}
	if err := s.checkRanks(e, &s.jobs[rec]); err != nil {
		return err
	}
	rest := s.newJob(len(s.jobs[rec].seats) - len(e.Ranks)) // may move jobs
	old, j := &s.jobs[rec], &s.jobs[rest]
	j.id, j.gang, j.port, j.ranks = old.id, old.gang, old.port, old.ranks-int32(len(e.Ranks))
	k, at := 0, 0
	for i := range old.seats {
		if k < len(e.Ranks) && e.Ranks[k] == i {
			k++
			continue
		}
		j.seats[at] = old.seats[i]
		at++
	}
	s.supersede(rec, rest)
	return nil
}

// supersede puts one record of a job in the place of another. The seats of the new
// one are free once the old one has left.
func (s *State) supersede(rec, with int32) {
	frozen := s.work.frozen
	s.work.frozen = true // nodes that are away are not forgotten in between
	s.unseat(rec)
	s.reseat(with)
	s.work.frozen = frozen
	s.settleLost(rec)
	s.log(entry{kind: gaveJob, index: rec})
	s.log(entry{kind: tookJob, index: with})
	s.advance()
}

// settleLost forgets the nodes that are away and that only a job which has left sat on.
func (s *State) settleLost(rec int32) {
	for i := range s.jobs[rec].seats {
		if x := s.jobs[rec].seats[i].slot; x < 0 {
			s.settleGone(^x)
		}
	}
}

// Exchange gives a job the room of a plan in the place of what it holds, all or none,
// as moves and replacements ask for. It takes a plan of any version, and looks whether
// its room is free once the job has left its own; it returns errors as Adopt does, and
// lockstep.ErrUnknown for a job that holds nothing.
func (s *State) Exchange(p *lockstep.Plan) error {
	if p == nil || p.Gang == nil {
		return fault(lockstep.ErrInvalid, "exchange", "Plan", "", "want a gang and at least one member")
	}
	rec, ok := s.byID[p.Job]
	if !ok {
		return fault(lockstep.ErrUnknown, "exchange", "Plan.Job", strconv.Quote(string(p.Job)), "holds nothing")
	}
	n := len(s.journal.entries)
	marked := len(s.journal.marks) > 0
	s.work.frozen = true // nodes that are away are not forgotten in between
	s.unseat(rec)
	if marked { // before what admit writes
		s.journal.entries = append(s.journal.entries, entry{kind: gaveJob, index: rec})
	}
	err := s.admit("exchange", p)
	s.work.frozen = false
	if err != nil {
		s.journal.entries = s.journal.entries[:n]
		s.reseat(rec)
		return err
	}
	if !marked {
		s.settleLost(rec)
		s.freeJob(rec)
	}
	return nil
}

// checkRanks checks the ranks of an eviction against what a job holds.
func (s *State) checkRanks(e *lockstep.Eviction, j *job) error {
	last := -1
	for i, rank := range e.Ranks {
		if rank <= last || rank >= int(j.ranks) || len(e.Ranks) == int(j.ranks) {
			return fault(lockstep.ErrInvalid, "evict", at("Eviction.Ranks", i), strconv.Itoa(rank), "want increasing ranks below "+strconv.Itoa(int(j.ranks))+", and not all")
		}
		last = rank
	}
	seats := j.seats[:j.ranks]
	for from, k := 0, 0; from < len(seats); {
		to := from
		for to < len(seats) && seats[to].role == seats[from].role {
			to++
		}
		size := max(1, j.gang.Roles[seats[from].role].Inner.Size)
		for g := from; g < to; g += size {
			n := 0
			for k < len(e.Ranks) && e.Ranks[k] < min(g+size, to) {
				k, n = k+1, n+1
			}
			if n != 0 && n != min(size, to-g) {
				return fault(lockstep.ErrInvalid, "evict", "Eviction.Ranks", strconv.Itoa(g), "the inner group from that rank on would be torn")
			}
		}
		from = to
	}
	return nil
}
