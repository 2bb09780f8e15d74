package hpo

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// rule is what one kind of search decides. Slots are of trials in the book.
type rule interface {
	join(slot int32)                               // a trial was added
	note(slot int32, r *Report, key float64)       // phase one: records what a running trial reported
	decide(slot int32, r *Report) (Decision, bool) // phase two: moves the trial; true asks for both phases again
	settle(dst []Decision) []Decision              // phase three: appends what it means for others
	leave(slot int32)                              // a trial that was not done is
	pick() (int32, bool)                           // a paused trial that may be started
	ready() bool                                   // pick would return one
	unblock() bool                                 // nothing runs or can be started: lets somebody go on, if anybody can
	until(slot int32) uint64                       // the step at which there is something to decide about a trial that runs
	end(slot int32) uint64                         // the step at which a trial that runs is complete; 0 if at none
	bracket(slot int32) int                        // that of a trial that runs
	finite() bool                                  // metrics that are not finite are dealt with by Config.NaN
	rungs() []Rung
	save(s *saver)
	load(d *loader)
}

// Scheduler decides which trials of a search run on, and which start next. Make one with New.
type Scheduler struct {
	*book
	cfg  Config
	rule rule
	work []work
}

// work is one report on its way through a batch.
type work struct {
	Report
	slot int32
	at   int  // in the batch
	live bool // it still has to be noted and decided
}

// New returns an empty Scheduler.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{cfg: cfg.filled(), book: &book{index: map[TrialID]int32{}}}
	var err error
	s.rule, err = s.newRule()
	return s, err
}

func (s *Scheduler) newRule() (rule, error) {
	switch {
	case s.cfg.SHA != nil:
		return newSHA(s.book, s.cfg.SHA)
	case s.cfg.Hyperband != nil:
		return newHyperband(s.book, s.cfg.Hyperband)
	case s.cfg.Median != nil:
		return newMedian(s.book, s.cfg), nil
	case s.cfg.PBT != nil:
		return newPBT(s.book, s.cfg), nil
	}
	return newASHA(s.book, s.cfg)
}

// Add makes a trial wait to be started. Its brackets and its turn come from the order in which trials are added.
func (s *Scheduler) Add(id TrialID) error {
	if id == "" {
		return fault(lockstep.ErrInvalid, "add", "id", "", "must be given")
	}
	if _, ok := s.index[id]; ok {
		return fault(lockstep.ErrDuplicate, "add", "id", errtext.Quote(id), "is there already")
	}
	if len(s.spare) == 0 && len(s.trials) >= math.MaxInt32 {
		return fault(lockstep.ErrConflict, "add", "id", errtext.Quote(id), "there are 2^31-1 trials; forget some")
	}
	s.rule.join(s.add(id))
	return nil
}

// Report tells what trials measured, at one moment: the members of a fused bundle report in one call. All of it is
// recorded before anything is decided, so that the order within a call does not matter. The result has a decision
// for each report, in the order given, and then those about other trials. A trial may stand in a call once.
//
// A report of an earlier attempt changes nothing, nor does one of a trial that does not run, or a step that the
// attempt has reported before.
func (s *Scheduler) Report(reports ...Report) ([]Decision, error) {
	if err := s.resolve(reports); err != nil {
		return nil, err
	}
	out := make([]Decision, len(reports))
	for i := range s.work {
		w := &s.work[i]
		out[w.at], w.live = s.accept(w.slot, &w.Report)
		if t := &s.trials[w.slot]; w.live {
			t.step = max(t.step, w.Step)
		}
	}
	for more := true; more; {
		more = false
		for i := range s.work {
			if w := &s.work[i]; w.live {
				s.rule.note(w.slot, &w.Report, s.key(w.Value))
			}
		}
		for i := range s.work {
			w := &s.work[i]
			if !w.live {
				continue
			}
			out[w.at], w.live = s.rule.decide(w.slot, &w.Report)
			more = more || w.live
		}
	}
	for i := range s.work {
		w := &s.work[i]
		t := &s.trials[w.slot]
		d := &out[w.at]
		d.Trial = t.id
		if d.Attempt == 0 {
			d.Attempt = t.attempt
		}
	}
	return s.rule.settle(out), nil
}

// resolve fills s.work with the reports in the order of decision, or says what is wrong with them.
func (s *Scheduler) resolve(reports []Report) error {
	s.batch++
	s.work = s.work[:0]
	for i := range reports {
		r := &reports[i]
		slot, ok := s.index[r.Trial]
		if !ok {
			return fault(lockstep.ErrUnknown, "report", field("Trial", i), errtext.Quote(r.Trial), "is not there")
		}
		t := &s.trials[slot]
		switch {
		case t.stamp == s.batch:
			return fault(lockstep.ErrDuplicate, "report", field("Trial", i), errtext.Quote(r.Trial), "stands twice")
		case r.Step == 0:
			return fault(lockstep.ErrInvalid, "report", field("Step", i), "0", "counts from 1")
		case t.attempt == 0:
			return fault(lockstep.ErrConflict, "report", field("Trial", i), errtext.Quote(r.Trial), "was never started")
		case r.Attempt > t.attempt:
			latest := fmt.Sprintf("the latest is %d", t.attempt)
			return fault(lockstep.ErrConflict, "report", field("Attempt", i), fmt.Sprint(r.Attempt), latest)
		}
		t.stamp = s.batch
		s.work = append(s.work, work{Report: *r, slot: slot, at: i})
	}
	if len(reports) > 1 {
		slices.SortFunc(s.work, func(a, b work) int {
			return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Trial, b.Trial))
		})
	}
	return nil
}

// field returns the path of a field of the i-th report.
func field(name string, i int) string { return fmt.Sprintf("reports[%d].%s", i, name) }

// accept says whether a report counts, and the decision if not.
func (s *Scheduler) accept(slot int32, r *Report) (Decision, bool) {
	t := &s.trials[slot]
	if r.Attempt != 0 && r.Attempt < t.attempt {
		return Decision{Attempt: r.Attempt, Action: Continue, Reason: ReasonLate}, false
	}
	switch t.state {
	case running:
	case done:
		return Decision{Action: Stop, Reason: ReasonOver}, false
	case paused:
		return Decision{Action: Pause, Reason: ReasonRung}, false
	default:
		return Decision{Action: Pause, Reason: ReasonRestart}, false
	}
	if s.cfg.NaN == NaNWorst || !s.rule.finite() || finite(r.Value) {
		return Decision{}, true
	}
	d := Decision{Action: Stop, Reason: ReasonNumber}
	if s.cfg.NaN == NaNIgnore {
		if d.Level = s.rule.end(slot); d.Level == 0 || r.Step < d.Level {
			return Decision{Action: Continue, Reason: ReasonNumber}, false
		}
		d.Reason = ReasonComplete // it has run to the end, whatever it measured there
	}
	s.finish(slot)
	return d, false
}

// finish ends a trial that is not done.
func (s *Scheduler) finish(slot int32) {
	s.rule.leave(slot)
	s.move(slot, done)
}

// key returns a metric such that larger is better. One that is not finite is the worst, where the rule wants no other.
func (s *Scheduler) key(v float64) float64 {
	if s.rule.finite() && !finite(v) {
		return worst
	}
	if s.cfg.Mode == Minimize {
		return -v
	}
	return v
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Failed tells that an attempt of a trial came to an end by itself. attempt 0 means the present one, and an earlier
// one changes nothing, nor does the failure of a trial that is done. Only a trial that runs is restarted; one that
// waits or is paused stays as it is, unless it was Invalid or Ended. The result has the decision about the trial,
// and then those about others.
func (s *Scheduler) Failed(id TrialID, attempt uint32, kind FailKind) ([]Decision, error) {
	slot, ok := s.index[id]
	if !ok {
		return nil, fault(lockstep.ErrUnknown, "failed", "id", errtext.Quote(id), "is not there")
	}
	t := &s.trials[slot]
	if attempt > t.attempt {
		latest := fmt.Sprintf("the latest is %d", t.attempt)
		return nil, fault(lockstep.ErrConflict, "failed", "attempt", fmt.Sprint(attempt), latest)
	}
	forGood := false
	switch kind {
	case Invalid, Ended:
		forGood = true
	case Crashed, Preempted:
	default:
		return nil, fault(lockstep.ErrInvalid, "failed", "kind", errtext.Quote(kind), "is not known")
	}
	if attempt != 0 && attempt < t.attempt || t.state == done {
		return nil, nil
	}
	if t.state == running && kind == Crashed {
		t.crashes++
		forGood = uint64(t.crashes) > uint64(s.cfg.Retries)
	}
	d := Decision{Trial: id, Attempt: t.attempt, Action: Pause, Reason: ReasonRestart}
	switch {
	case forGood:
		s.finish(slot)
		d.Action, d.Reason = Stop, ReasonFailed
	case t.state == running:
		s.move(slot, again)
	default:
		return nil, nil
	}
	return s.rule.settle([]Decision{d}), nil
}

// Next returns what to run on up to free places, and decisions about trials that are paused: trials to be started
// again first, then those that are promoted, from the highest rung down, then new ones in the order of Add. Where
// trials wait for each other and nothing runs or can be started, those that came decide without the others; so
// a host adds what it has before it asks.
func (s *Scheduler) Next(free int) ([]Start, []Decision) {
	var starts []Start
	var decisions []Decision
	for len(starts) < free {
		slot, ok := s.next()
		if !ok {
			if s.counts[running] > 0 || !s.rule.unblock() {
				break
			}
			decisions = s.rule.settle(decisions)
			continue
		}
		s.move(slot, running)
		t := &s.trials[slot]
		t.attempt++
		starts = append(starts, s.start(slot))
	}
	return starts, decisions
}

func (s *Scheduler) next() (int32, bool) {
	if slot, ok := s.again.pop(s.book, again); ok {
		return slot, true
	}
	if slot, ok := s.rule.pick(); ok {
		return slot, true
	}
	if s.closed {
		return 0, false
	}
	return s.waiting.pop(s.book, waiting)
}

func (s *Scheduler) start(slot int32) Start {
	t := &s.trials[slot]
	until := s.rule.until(slot)
	if end := s.rule.end(slot); end > 0 {
		until = min(until, end) // the next judgement may be due past the end
	}
	return Start{Trial: t.id, Attempt: t.attempt, Bracket: s.rule.bracket(slot), From: t.step, Until: until}
}

// Quiescent says that nothing runs, and that nothing can start until a trial is added (or, where Shift said that none that
// never ran may be started, until it says otherwise): the search is over.
func (s *Scheduler) Quiescent() bool {
	return s.counts[running] == 0 && s.counts[again] == 0 && (s.closed || s.counts[waiting] == 0) && !s.rule.ready()
}

// Running returns what runs, by ID, as its latest Start said; From is what it has reported since.
func (s *Scheduler) Running() []Start {
	var out []Start
	for i := range s.trials {
		if t := &s.trials[i]; t.order > 0 && t.state == running {
			out = append(out, s.start(int32(i)))
		}
	}
	slices.SortFunc(out, func(a, b Start) int { return cmp.Compare(a.Trial, b.Trial) })
	return out
}

// Forget drops a trial that is over: stopped, complete or failed for good. What it reported still counts for others.
// Its ID may be added again.
func (s *Scheduler) Forget(id TrialID) error {
	slot, ok := s.index[id]
	if !ok {
		return fault(lockstep.ErrUnknown, "forget", "id", errtext.Quote(id), "is not there")
	}
	if s.trials[slot].state != done {
		return fault(lockstep.ErrConflict, "forget", "id", errtext.Quote(id), "is not over; report it as Ended first")
	}
	s.forget(slot)
	return nil
}

// Rung is what a rung has seen.
type Rung struct {
	Bracket  int    // Bracket is its bracket, from 0.
	Level    uint64 // Level is its step.
	Recorded uint64 // Recorded counts reports. BOHB fits its model to the highest level that has enough of them.
	Promoted uint64 // Promoted counts trials that went on. Decided one at a time, they may be more than Recorded/Eta.
}

// Rungs returns the rungs by bracket and level; there are none where the rule has none.
func (s *Scheduler) Rungs() []Rung { return s.rule.rungs() }
