package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Report tells what bundles measured, at one moment. All of it is recorded before anything is decided. The result has a
// decision for each member, in the order given, and then those about other trials. A bundle all of whose members go on
// runs on; any other is over, which Next says too, with what becomes of the rest.
func (s *Search) Report(reports ...Report) ([]hpo.Decision, error) {
	on, err := s.named(reports)
	if err != nil {
		return nil, err
	}
	var batch []hpo.Report
	for i, b := range on {
		for j, n := range b.members {
			t := &s.trials[n]
			batch = append(batch, hpo.Report{Trial: t.id, Attempt: t.attempt, Step: reports[i].Step, Value: reports[i].Values[j]})
		}
	}
	out, err := s.rule.Report(batch...)
	if err != nil {
		return nil, err
	}
	rest := out
	parts := make([]part, len(on))
	for i, b := range on {
		parts[i] = part{b, &reports[i], rest[:len(b.members)]}
		rest = rest[len(b.members):]
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.b.seq, b.b.seq) })
	for _, p := range parts {
		s.reported(p)
	}
	s.others(rest)
	s.elect()
	return out, nil
}

// part is what was reported and decided about one bundle.
type part struct {
	b         *bundle
	report    *Report
	decisions []hpo.Decision
}

// Until returns the step at which a bundle that runs is to report next, 0 for every one; false if it does not run.
func (s *Search) Until(id fusion.BundleID) (uint64, bool) {
	b, ok := s.bundles[id]
	if !ok {
		return 0, false
	}
	return b.until, true
}

// named returns the bundles of reports, which it checks.
func (s *Search) named(reports []Report) ([]*bundle, error) {
	on := make([]*bundle, len(reports))
	for i := range reports {
		r := &reports[i]
		b, ok := s.bundles[r.Bundle]
		switch {
		case !ok:
			return nil, fault(lockstep.ErrUnknown, "report", fmt.Sprintf("reports[%d].Bundle", i), errtext.Quote(r.Bundle), "does not run")
		case r.Step == 0:
			return nil, fault(lockstep.ErrInvalid, "report", fmt.Sprintf("reports[%d].Step", i), "0", "must be at least 1")
		case len(r.Values) != len(b.members):
			return nil, fault(lockstep.ErrInvalid, "report", fmt.Sprintf("reports[%d].Values", i), fmt.Sprint(len(r.Values)), fmt.Sprintf("must be %d, one a member", len(b.members)))
		}
		on[i] = b
	}
	if len(reports) > 1 {
		seen := make(map[fusion.BundleID]bool, len(reports))
		for i := range reports {
			if seen[reports[i].Bundle] {
				return nil, fault(lockstep.ErrDuplicate, "report", fmt.Sprintf("reports[%d].Bundle", i), errtext.Quote(reports[i].Bundle), "stands twice")
			}
			seen[reports[i].Bundle] = true
		}
	}
	return on, nil
}

// reported takes in what was decided about the members of a bundle.
func (s *Search) reported(p part) {
	b := p.b
	kept := b.members[:0]
	for i, n := range b.members {
		s.note(n, p.report.Values[i])
		switch p.decisions[i].Action {
		case hpo.Pause, hpo.Stop:
			s.leave(n)
			s.over(n)
		default:
			kept = append(kept, n)
		}
	}
	gone := len(kept) < len(b.members)
	b.members = kept
	b.from = max(b.from, p.report.Step)
	if b.until > 0 && b.from >= b.until {
		b.until = s.after(b.bracket, b.from)
	}
	if gone {
		s.dissolve(b)
	}
}

// after returns the step after one at which there is something to decide, 0 if at any.
func (s *Search) after(bracket int32, step uint64) uint64 {
	if int(bracket) >= len(s.levels) {
		return 0
	}
	for _, level := range s.levels[bracket] {
		if level > step {
			return level
		}
	}
	if step < s.most {
		return s.most
	}
	return 0
}

// note takes in a trial's metric.
func (s *Search) note(n int32, v float64) {
	if s.cfg.Transfer == nil {
		return
	}
	if math.IsInf(v, 0) {
		v = math.NaN()
	}
	t := &s.trials[n]
	t.value = v
	t.stamp++
	if v == v {
		s.best.push(s.entry(n))
	}
}

// entry returns what the board has of a trial: larger scores are better.
func (s *Search) entry(n int32) entry {
	t := &s.trials[n]
	score := t.value
	if s.cfg.Rule.Mode == hpo.Minimize {
		score = -score
	}
	return entry{score: score, slot: n, stamp: t.stamp, id: t.id}
}

// leader returns the best trial by its last report, -1 if there is none. It drops what is out of date.
func (s *Search) leader() int32 {
	for len(s.best) > 0 {
		if e := s.best[0]; s.trials[e.slot].stamp == e.stamp {
			return e.slot
		}
		s.best.pop()
	}
	return -1
}

// elect makes the best trial pending for transfer if it is time and it was not transferred.
func (s *Search) elect() {
	c := s.cfg.Transfer
	if c == nil || s.finished {
		return
	}
	if len(s.best) > 2*len(s.trials)+64 {
		s.best = s.best[:0]
		for i := range s.trials {
			if v := s.trials[i].value; v == v {
				s.best.push(s.entry(int32(i)))
			}
		}
	}
	after := c.After
	if after == 0 {
		after = max(1, max(c.Trials, len(s.trials))/2)
	}
	if s.ended < after {
		return
	}
	kept := s.pending[:0]
	for _, n := range s.pending { // who was sent already and lost its slot keeps its place
		if s.trials[n].sent {
			kept = append(kept, n)
		}
	}
	s.pending = kept
	if n := s.leader(); n >= 0 && !s.trials[n].sent {
		s.pending = append(s.pending, n)
	}
}

// finish chooses the last transfers when all trials are done.
func (s *Search) finish() {
	c := s.cfg.Transfer
	if c == nil || s.finished || s.ready > 0 || len(s.bundles) > 0 || len(s.safe) > 0 || !s.rule.Quiescent() {
		return
	}
	s.finished = true
	var results []fusion.Result
	for i := range s.trials {
		if t := &s.trials[i]; t.value == t.value {
			results = append(results, fusion.Result{ID: fusion.TrialID(t.id), Key: s.keys[t.key], Score: s.entry(int32(i)).score})
		}
	}
	chosen, err := fusion.SelectTransfers(results, max(1, c.Best))
	if err != nil {
		panic("search: " + err.Error()) // invariant: IDs are unique and not empty
	}
	kept := s.pending[:0]
	for _, n := range s.pending {
		if s.trials[n].sent {
			kept = append(kept, n)
		}
	}
	s.pending = kept
	for _, id := range chosen {
		if n := s.index[hpo.TrialID(id)]; !s.trials[n].sent {
			s.pending = append(s.pending, n)
		}
	}
}

// TargetEnded tells that the target of a trial ran to its end, well or not. It is not started again.
func (s *Search) TargetEnded(id hpo.TrialID) error {
	n, ok := s.index[id]
	if ok {
		for _, x := range s.slots {
			if x.target == n {
				x.target = -1
				return nil
			}
		}
	}
	return fault(lockstep.ErrUnknown, "target ended", "id", errtext.Quote(id), "has no target that runs")
}

// entry is a trial's last metric.
type entry struct {
	score float64
	slot  int32
	stamp uint32
	id    hpo.TrialID
}

func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(o.score, e.score), cmp.Compare(e.id, o.id), cmp.Compare(o.stamp, e.stamp)) < 0
}

// board is a heap of entries, the best first; those out of date stay until they come up.
type board []entry

func (h *board) push(e entry) {
	*h = append(*h, e)
	a := *h
	for i := len(a) - 1; i > 0 && a[i].before(&a[(i-1)/2]); i = (i - 1) / 2 {
		a[i], a[(i-1)/2] = a[(i-1)/2], a[i]
	}
}

func (h *board) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a[last] = entry{}
	a = a[:last]
	*h = a
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return
		}
		if c+1 < last && a[c+1].before(&a[c]) {
			c++
		}
		if !a[c].before(&a[i]) {
			return
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
}
