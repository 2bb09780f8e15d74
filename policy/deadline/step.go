package deadline

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Slot is what a step gave out.
type Slot struct {
	Run    []lockstep.JobID // Run are all that are to run until the next step, by ID; those that run and are not among them are to stop.
	AtRisk []lockstep.JobID // AtRisk are admitted jobs that will miss their deadlines as things stand, by ID: devices were lost, or they take longer than was said.
	Missed []lockstep.JobID // Missed are those whose deadline has passed since the last step, by ID. They go on as if they had none.
	Until  time.Time        // Until is when the slot ends.
}

// Step gives the present slot out: first to the jobs that are planned in it, then what is idle to jobs at risk,
// and to those without a deadline, shortest first, and then to admitted jobs ahead of their plan (or before, if
// Config.Eager). A further step in the same slot stops nobody and gives out what has become idle. Call it at the start of each slot, after Finish
// and Report for what has happened in the last one.
func (t *Table) Step(now time.Time) (Slot, error) {
	ns, err := t.at("step", now)
	if err != nil {
		return Slot{}, err
	}
	t.advance(ns)
	out := Slot{Until: lockstep.FromNanos(t.start(t.index + 1)), Missed: t.miss()}
	if !t.given {
		t.repair()
	}
	free := t.cfg.GPUs
	order := t.turn()
	for pass := range 2 { // those that are to run in any case, then the others
		for _, j := range order {
			sure := j.running || (!t.given && len(j.slots) > 0 && j.slots[0] == 0)
			if sure != (pass == 0) || j.gpus > free {
				continue
			}
			free -= j.gpus
			if !j.running {
				j.running, j.at = true, ns
			}
		}
	}
	t.given = true
	for _, j := range order {
		if len(j.slots) > 0 && j.slots[0] == 0 {
			t.used[0] -= j.gpus
			j.slots = j.slots[1:]
		}
		if j.running {
			out.Run = append(out.Run, j.id)
		}
		if j.atRisk {
			out.AtRisk = append(out.AtRisk, j.id)
		}
	}
	slices.Sort(out.Run)
	slices.Sort(out.AtRisk)
	return out, nil
}

// turn returns all jobs in the order in which they get idle devices.
func (t *Table) turn() []*job {
	list := make([]*job, 0, len(t.jobs))
	for _, j := range t.jobs { // sorted below, so order cannot matter
		list = append(list, j)
	}
	rank := func(j *job) int {
		switch {
		case j.atRisk:
			return 0
		case j.deadline == never:
			return 2
		case t.cfg.Eager:
			return 1
		}
		return 3
	}
	slices.SortFunc(list, func(a, b *job) int {
		c := cmp.Compare(rank(a), rank(b))
		if c == 0 && a.deadline == never {
			c = cmp.Compare(a.left, b.left)
		}
		return cmp.Or(c, cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
	})
	return list
}

// miss takes the deadlines off those whose deadline has passed.
func (t *Table) miss() []lockstep.JobID {
	var out []lockstep.JobID
	for _, j := range t.jobs { // sorted below, so order cannot matter
		if j.deadline <= t.now {
			out = append(out, j.id)
			t.unplan(j)
			j.deadline, j.atRisk = never, false
			t.missed++
		}
	}
	slices.Sort(out)
	return out
}

// repair brings the plan into line with what is: slots that are not needed any more are given back, the earliest
// first but for those that have become too late, and if any are lacking all are planned anew, as well as can be.
func (t *Table) repair() {
	list := t.withDeadline()
	wants := make([]want, len(list))
	whole := true
	for i, j := range list {
		w := t.want(j)
		wants[i] = w
		keep := t.held(j)
		for len(j.slots) > w.need+keep {
			drop := keep
			if end := len(j.slots) - 1; j.slots[end] >= w.have { // it needs more of its last slot than before
				drop = end
			}
			t.used[j.slots[drop]] -= j.gpus
			j.slots = slices.Delete(j.slots, drop, drop+1)
		}
		j.atRisk = false
		whole = whole && len(j.slots) == w.need+keep && (w.need == 0 || j.slots[len(j.slots)-1] < w.have)
	}
	for _, u := range t.used {
		whole = whole && u <= t.cfg.GPUs
	}
	if whole {
		return
	}
	if plan, _ := t.solve(list); plan != nil {
		t.adopt(list, plan)
		return
	}
	// Not all can be kept. Whoever was promised more is not known; the earliest deadlines come first.
	turn := make([]int, len(list))
	keep := make([][]int, len(list))
	for i, j := range list {
		turn[i], keep[i] = i, slices.Clone(j.slots[:t.held(j)])
	}
	clear(t.used)
	slices.SortStableFunc(turn, func(a, b int) int { return cmp.Compare(list[a].deadline, list[b].deadline) })
	for _, i := range turn {
		slots, ok := latest(t.used, t.cfg.GPUs, wants[i], t.first())
		if !ok {
			slots = some(t.used, t.cfg.GPUs, wants[i], t.first())
		}
		list[i].atRisk = !ok
		t.plan(list[i], append(keep[i], slots...))
	}
}

// some finds up to need slots, the earliest.
func some(used []int, capacity int, w want, first int) []int {
	var slots []int
	for s := first; s < w.have && len(slots) < w.need; s++ {
		if s >= len(used) || used[s]+w.gpus <= capacity {
			slots = append(slots, s)
		}
	}
	return slots
}

// advance lets time pass: jobs that run get on, and at the end of a slot all stop until the next is given out.
func (t *Table) advance(ns int64) {
	index := int128.FloorDiv(ns-t.origin(), int64(t.cfg.Lease))
	if len(t.jobs) == 0 && len(t.used) == 0 || index == t.index {
		t.settle(ns)
		t.given = t.given && index == t.index
		t.index, t.now = index, ns
		return
	}
	t.settle(t.start(t.index + 1))
	passed := index - t.index
	for _, j := range t.jobs { // each by itself, so order cannot matter
		j.running = false
		kept := j.slots[:0]
		for _, s := range j.slots {
			if int64(s) >= passed {
				kept = append(kept, s-int(passed))
			}
		}
		j.slots = kept
	}
	if passed >= int64(len(t.used)) {
		t.used = t.used[:0]
	} else {
		t.used = slices.Delete(t.used, 0, int(passed))
	}
	t.given, t.index, t.now = false, index, ns
}

// settle counts what running jobs did until ns. A job that should have ended keeps a nanosecond.
func (t *Table) settle(ns int64) {
	for _, j := range t.jobs { // each by itself, so order cannot matter
		if j.running {
			j.left = max(j.left-(ns-j.at), 1)
			j.at = ns
		}
	}
}

// Report says how long a job has to run from now on, where that is not what the table thinks.
func (t *Table) Report(now time.Time, id lockstep.JobID, remaining time.Duration) error {
	const op = "report"
	ns, err := t.at(op, now)
	if err != nil {
		return err
	}
	j, err := t.find(op, id)
	if err != nil {
		return err
	}
	if remaining <= 0 || remaining > lockstep.MaxWalltime {
		return fault(lockstep.ErrInvalid, op, "remaining", remaining.String(), "want more than 0, at most "+lockstep.MaxWalltime.String())
	}
	t.advance(ns)
	j.left, j.at = int64(remaining), ns
	return nil
}

// Finish drops a job that has ended, or is not wanted any more.
func (t *Table) Finish(now time.Time, id lockstep.JobID) error {
	const op = "finish"
	ns, err := t.at(op, now)
	if err != nil {
		return err
	}
	j, err := t.find(op, id)
	if err != nil {
		return err
	}
	t.advance(ns)
	t.unplan(j)
	delete(t.jobs, id)
	return nil
}

// SetGPUs says how many devices there are from the next slot on. Fewer may put jobs at risk, which the next Step tells.
func (t *Table) SetGPUs(now time.Time, gpus int) error {
	const op = "set GPUs"
	ns, err := t.at(op, now)
	if err != nil {
		return err
	}
	if gpus < 1 || gpus > maxGPUs {
		return fault(lockstep.ErrInvalid, op, "gpus", strconv.Itoa(gpus), "want 1 to "+strconv.Itoa(maxGPUs))
	}
	t.advance(ns)
	t.cfg.GPUs = gpus
	return nil
}

// find looks a job up.
func (t *Table) find(op string, id lockstep.JobID) (*job, error) {
	j, ok := t.jobs[id]
	if !ok {
		return nil, fault(lockstep.ErrUnknown, op, "id", errtext.Quote(id), "is not in the table")
	}
	return j, nil
}

// Planned returns the slots in which a job with a deadline is to run at the latest, by when each begins, the present
// one not counted once it was given out; ok is false for a job that is not in the table.
func (t *Table) Planned(id lockstep.JobID) (slots []time.Time, ok bool) {
	j, ok := t.jobs[id]
	if !ok {
		return nil, false
	}
	for _, s := range j.slots {
		slots = append(slots, lockstep.FromNanos(t.start(t.index+int64(s))))
	}
	return slots, true
}

// Len returns how many jobs are in the table.
func (t *Table) Len() int { return len(t.jobs) }

// Missed returns how many admitted jobs have missed their deadlines since the table was made.
func (t *Table) Missed() int64 { return t.missed }

// NextWake returns when the next slot begins, at which a Step is due; ok is false if there is no job.
func (t *Table) NextWake(now time.Time) (at time.Time, ok bool) {
	if len(t.jobs) == 0 {
		return time.Time{}, false
	}
	if !t.given {
		return now, true
	}
	if at = lockstep.FromNanos(t.start(t.index + 1)); at.After(now) {
		return at, true
	}
	return now, true
}
