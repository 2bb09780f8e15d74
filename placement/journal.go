package placement

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// journal is what Rollback needs: each change since the oldest open mark, with
// what undoes it. Nothing is written while no mark is open.
type journal struct {
	entries []entry
	marks   []bookmark
	minds   []mind        // what entries of kind learnt refer to
	issued  lockstep.Mark // the greatest mark ever given out
}

type bookmark struct {
	mark    lockstep.Mark
	at      int // entries before the mark
	version lockstep.Version
}

type entryKind uint8

// What an entry says was done, and so how it is undone.
const (
	tookJob      entryKind = iota // a job came: remove it
	gaveJob                       // a job left: seat it again
	wroteFlags                    // a node's flags changed from old
	wrotePenalty                  // a node's penalty changed from old
	learnt                        // a gang arrived: what was known before is minds[index]
)

// mind is what was known of the workload.
type mind struct {
	learner learner
	market  *market
}

type entry struct {
	kind  entryKind
	index int32 // of the job or the slot
	old   uint64
}

// Mark returns a mark of the present state, to which Rollback can return.
// Marks nest. Changes are journalled from the first open mark on; a mark stays
// open until it, or one before it, is rolled back or committed.
func (s *State) Mark() lockstep.Mark {
	j := &s.journal
	j.issued++
	j.marks = append(j.marks, bookmark{mark: j.issued, at: len(j.entries), version: s.version})
	return j.issued
}

// Rollback undoes every change since mark, the version included, and closes
// it and every later mark. It costs what was changed. A mark that is closed, or
// went stale with Rebase or a full journal, is refused with lockstep.ErrStale.
func (s *State) Rollback(mark lockstep.Mark) error {
	i, err := s.openMark("rollback", mark)
	if err != nil {
		return err
	}
	j := &s.journal
	b := j.marks[i]
	for n := len(j.entries) - 1; n >= b.at; n-- {
		s.undo(j.entries[n])
	}
	j.entries, j.marks = j.entries[:b.at], j.marks[:i]
	s.version = b.version
	return nil
}

// Commit closes mark and every later one and keeps the changes. It is refused
// as Rollback is.
func (s *State) Commit(mark lockstep.Mark) error {
	i, err := s.openMark("commit", mark)
	if err != nil {
		return err
	}
	s.journal.marks = s.journal.marks[:i]
	if i == 0 {
		s.forget()
	}
	return nil
}

func (s *State) openMark(call string, mark lockstep.Mark) (int, error) {
	for i := len(s.journal.marks) - 1; i >= 0; i-- {
		if s.journal.marks[i].mark == mark {
			return i, nil
		}
	}
	return 0, fault(lockstep.ErrStale, call, "mark", strconv.FormatUint(uint64(mark), 10), "not open")
}

func (s *State) undo(e entry) {
	switch e.kind {
	case tookJob:
		s.unseat(e.index)
		s.freeJob(e.index)
	case gaveJob:
		s.reseat(e.index)
	case wroteFlags:
		s.flag(e.index, uint8(e.old))
	case wrotePenalty:
		s.penalize(e.index, int32(e.old))
	case learnt:
		m := &s.journal.minds[e.index]
		s.learner = m.learner
		if s.market != m.market {
			s.trade(m.market)
		}
		s.journal.minds = s.journal.minds[:e.index]
	}
}

// logLearner keeps what is known of the workload, once after each mark.
func (s *State) logLearner() {
	j := &s.journal
	if len(j.marks) == 0 {
		return
	}
	for _, e := range j.entries[j.marks[len(j.marks)-1].at:] {
		if e.kind == learnt {
			return
		}
	}
	j.minds = append(j.minds, mind{s.learner.clone(), s.market})
	s.log(entry{kind: learnt, index: int32(len(j.minds) - 1)})
}

// log writes an entry while a mark is open.
func (s *State) log(e entry) {
	j := &s.journal
	if len(j.marks) == 0 {
		if e.kind == gaveJob {
			s.freeJob(e.index)
		}
		return
	}
	j.entries = append(j.entries, e)
	if len(j.entries) > s.cfg.Journal {
		s.forget()
	}
}

// forget closes all marks and gives back the jobs kept for them.
func (s *State) forget() {
	j := &s.journal
	for _, e := range j.entries {
		if e.kind == gaveJob {
			s.freeJob(e.index)
		}
	}
	changed := len(j.entries) > 0
	j.entries, j.marks, j.minds = j.entries[:0], j.marks[:0], nil
	for g := range s.gone {
		if !changed {
			break
		}
		s.settleGone(int32(g))
	}
}
