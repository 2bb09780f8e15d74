package hpo

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Deadline is by when a search has to be over, and on what.
type Deadline struct {
	At      time.Time     // At is when.
	Devices int           // Devices there are, at least as many as trials run.
	Most    int           // Most is how many devices one trial can use; 0 means Devices.
	Step    time.Duration // Step is how long a step takes on one device, above 0.
	Resize  time.Duration // Resize is what it costs a trial to change its devices, in time.
	Speedup []int64       // Speedup of w devices in thousandths, at w-1; Most of them, above 0, not falling; nil means w.
}

// Size is how many devices a trial has.
type Size struct {
	Trial   TrialID // Trial is which.
	Devices int     // Devices is how many, at least 1.
}

// Shift is how to use what is left of the time.
type Shift struct {
	Explore bool       // Explore says that trials may still be started that never ran; if not, Next starts none.
	Sizes   []Size     // Sizes are the devices for each trial that runs, the best trial first.
	Stopped []Decision // Stopped are trials that would not be judged again.
}

// Shift moves devices from trials to begin and trials without prospect to the best ones as a deadline comes near. A trial
// that never ran may be started while it could still catch up with the best there is, on as many devices as one
// can use. One that runs is stopped if it could not reach its next rung; the best is not, before the deadline.
// Devices that nobody is going to be started on go to the best trial, as far as it gets further with them in spite
// of the cost of resizing, then to the next. sizes is what trials have now; one that is not in it has one device.
//
// It is for asynchronous successive halving; another rule is ErrConflict. It costs O(n log n) in trials, and for each that runs
// O(Most) if Speedup is given.
func (s *Scheduler) Shift(now time.Time, d Deadline, sizes []Size) (Shift, error) {
	a, ok := s.rule.(*asha)
	if !ok {
		return Shift{}, fault(lockstep.ErrConflict, "shift", "rule", "", "only asynchronous successive halving shifts devices")
	}
	left, err := s.checkShift(now, &d, sizes)
	if err != nil {
		return Shift{}, err
	}
	ranked := a.ranked()
	out := Shift{Explore: left > 0 && a.mayExplore(&d, left, ranked)}
	s.closed = !out.Explore
	var on []int32 // who runs on, best first
	for i, slot := range ranked {
		t := &s.trials[slot]
		if t.state != running {
			continue
		}
		until := a.until(slot)
		if left > 0 && (i == 0 || until <= t.step || d.reaches(until-t.step, left)) {
			on = append(on, slot)
			continue
		}
		s.finish(slot)
		out.Stopped = append(out.Stopped, Decision{Trial: t.id, Attempt: t.attempt, Action: Stop, Reason: ReasonDeadline})
	}
	out.Sizes = s.share(&d, left, on, sizes)
	return out, nil
}

// share returns the devices of those who run on, the best first, after some are kept for those who may be started.
func (s *Scheduler) share(d *Deadline, left uint64, on []int32, sizes []Size) []Size {
	reserved := s.counts[again]
	if !s.closed {
		reserved += s.counts[waiting]
	}
	extra := max(0, d.Devices-len(on)-reserved)
	has := make(map[TrialID]int, len(sizes))
	for _, x := range sizes {
		has[x.Trial] = x.Devices
	}
	var out []Size
	for _, slot := range on {
		id := s.trials[slot].id
		n := d.size(left, max(1, has[id]), 1+extra)
		extra -= n - 1
		out = append(out, Size{id, n})
	}
	return out
}

// ranked returns trials that are not done, the best first: the higher rung first, then the better metric at it.
func (a *asha) ranked() []int32 {
	var out []int32
	for i := range a.b.trials {
		if t := &a.b.trials[i]; t.order > 0 && t.state != done && t.state != waiting {
			out = append(out, int32(i))
		}
	}
	slices.SortFunc(out, func(i, j int32) int {
		x, y := &a.b.trials[i], &a.b.trials[j]
		return cmp.Or(
			cmp.Compare(a.highest(y), a.highest(x)),
			cmp.Compare(standing(y), standing(x)),
			cmp.Compare(x.id, y.id),
		)
	})
	return out
}

// standing returns the key by which a trial is ranked.
func standing(t *trial) float64 {
	if t.seq == 0 || math.IsNaN(t.key) {
		return worst
	}
	return t.key
}

// highest returns the highest level that t has passed.
func (a *asha) highest(t *trial) uint64 {
	rungs := a.lanes[t.bracket].rungs
	switch {
	case t.rung == 0:
		return 0
	case a.past(t):
		return a.cfg.Max
	}
	return rungs[t.rung-1].level
}

// mayExplore says whether a new trial could catch up with the best one, or reach a rung if there is none.
func (a *asha) mayExplore(d *Deadline, left uint64, ranked []int32) bool {
	goal := a.cfg.Max
	if len(a.levels) > 0 {
		goal = a.levels[0]
	}
	if len(ranked) > 0 {
		if best := &a.b.trials[ranked[0]]; best.seq > 0 {
			goal = max(goal, best.step)
		}
	}
	return d.reaches(goal, left)
}

// reaches says whether so many steps fit in the time left, on the most devices.
func (d *Deadline) reaches(steps, left uint64) bool {
	hi, nanos := bits.Mul64(steps, uint64(d.Step))
	if hi > 0 {
		return false
	}
	hi1, lo1 := bits.Mul64(nanos, 1000)
	hi2, lo2 := bits.Mul64(left, d.speed(d.Most))
	return hi1 < hi2 || hi1 == hi2 && lo1 <= lo2
}

// speed returns that of n devices, in thousandths of the speed of one.
func (d *Deadline) speed(n int) uint64 {
	if d.Speedup == nil {
		return uint64(n) * 1000
	}
	return uint64(d.Speedup[n-1])
}

// size returns how many devices, up to most, get a trial furthest that has some: those that it has, or the fewest that get
// it further, or the fewest there are none better than if it has more than most.
func (d *Deadline) size(left uint64, has, most int) int {
	most = min(most, d.Most)
	if has > most {
		for most > 1 && d.speed(most-1) == d.speed(most) {
			most--
		}
		return most
	}
	best := has
	hi, lo := bits.Mul64(left, d.speed(has))
	after := left - min(left, uint64(d.Resize))
	from := has + 1
	if d.Speedup == nil {
		from = max(from, most) // the more the better
	}
	for n := from; n <= most; n++ {
		if h, l := bits.Mul64(after, d.speed(n)); h > hi || h == hi && l > lo {
			best, hi, lo = n, h, l
		}
	}
	return best
}

// checkShift returns the time that is left, in nanoseconds, and fills in d.
func (s *Scheduler) checkShift(now time.Time, d *Deadline, sizes []Size) (uint64, error) {
	const in instant.In = "hpo"
	from, err := in.Nanos("shift", "now", now)
	if err != nil {
		return 0, err
	}
	to, err := in.Nanos("shift", "Deadline.At", d.At)
	if err != nil {
		return 0, err
	}
	set(&d.Most, d.Devices)
	if err := d.check(s.counts[running]); err != nil {
		return 0, err
	}
	if err := s.checkSizes(sizes); err != nil {
		return 0, err
	}
	if to <= from {
		return 0, nil
	}
	return uint64(to) - uint64(from), nil
}

// check says what is wrong with d while so many trials run.
func (d *Deadline) check(run int) error {
	bad := func(field, value, reason string) error {
		return fault(lockstep.ErrInvalid, "shift", "Deadline."+field, value, reason)
	}
	switch {
	case d.Devices < 1 || d.Devices > maxBracket:
		return bad("Devices", fmt.Sprint(d.Devices), "must be between 1 and 2^30")
	case d.Devices < run:
		return bad("Devices", fmt.Sprint(d.Devices), fmt.Sprintf("%d trials run", run))
	case d.Most < 1 || d.Most > d.Devices:
		return bad("Most", fmt.Sprint(d.Most), "must be between 1 and Devices")
	case d.Step <= 0:
		return bad("Step", d.Step.String(), "must be above 0")
	case d.Resize < 0:
		return bad("Resize", d.Resize.String(), "must not be negative")
	case d.Speedup != nil && len(d.Speedup) != d.Most:
		return bad("Speedup", fmt.Sprint(len(d.Speedup)), "must have as many elements as Most")
	}
	last := int64(1)
	for i, v := range d.Speedup {
		if v < last {
			return bad(fmt.Sprintf("Speedup[%d]", i), fmt.Sprint(v), "must be above 0 and not fall")
		}
		last = v
	}
	return nil
}

// checkSizes says what is wrong with the sizes of trials that run.
func (s *Scheduler) checkSizes(sizes []Size) error {
	seen := make(map[TrialID]bool, len(sizes))
	for i, x := range sizes {
		field := fmt.Sprintf("sizes[%d]", i)
		slot, ok := s.index[x.Trial]
		switch {
		case !ok:
			return fault(lockstep.ErrUnknown, "shift", field+".Trial", errtext.Quote(x.Trial), "is not there")
		case seen[x.Trial]:
			return fault(lockstep.ErrDuplicate, "shift", field+".Trial", errtext.Quote(x.Trial), "stands twice")
		case s.trials[slot].state != running:
			return fault(lockstep.ErrConflict, "shift", field+".Trial", errtext.Quote(x.Trial), "does not run")
		case x.Devices < 1:
			return fault(lockstep.ErrInvalid, "shift", field+".Devices", fmt.Sprint(x.Devices), "must be at least 1")
		}
		seen[x.Trial] = true
	}
	return nil
}
