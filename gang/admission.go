package gang

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Admission decides which gangs hold which devices. Make one with New.
type Admission struct {
	cfg  Config
	what WhatIf // nil when the placer has none

	preempter Preempter // nil when the placer is none
	reclaimer Reclaimer // nil when the quota is none
	takes     bool      // waiting gangs may take room

	now      int64
	jobs     map[lockstep.JobID]*job
	queue    queue                      // waiting jobs
	ends     []*job                     // holders by expected end
	due      []*job                     // jobs whose term is over, by ID
	awaiting []*job                     // jobs with waits, by ID
	replans  []*job                     // held jobs whose room lost a node, by ID
	trials   []*job                     // held jobs with more room set apart, by ID
	passed   []*job                     // those of trials whose first members confirmed, by ID
	levels   []level                    // Preemptible holders by priority, where some may take room
	dirty    map[lockstep.NodeID][]*job // who is still leaving a node, by ID
	closed   []closure                  // nodes down or cordoned, by ID
	windows  []Window                   // by name
	timers   timers
	simple   map[simple]*shape // of simple gangs
	shapes   map[string]*shape // of the others, by shapeKey
	owners   map[owner]int32   // numbers of those who have gangs, where that matters
	gone     []*job            // left jobs that are remembered, oldest first
	attempts lockstep.Attempt

	res      []reservation // of the latest pass, by order of proposal
	grants   uint64        // rooms given to jobs
	runs     uint64        // grows when somebody may be taken from who could not before
	epoch    uint64        // grows when room may have become free
	opens    uint64        // grows when an empty cluster may have grown
	tight    uint64        // grows when room was taken without regard to every reservation
	flow     uint64        // grows when what is expected of the future changes, but for more reservations
	gen      uint64        // the latest reservation's id
	pass     uint64        // passes so far
	stale    bool          // a pass is needed
	walked   uint64        // epoch when the latest pass began
	walkedAt int64         // when that was
	plain    bool          // walks the order to its end: tests compare
	out      []lockstep.Action

	p       pass // what the running pass keeps
	scratch scratch
}

// scratch is memory that calls use again.
type scratch struct {
	plan    lockstep.Plan // of Fit for the present
	shadow  lockstep.Plan // of Fit for a future
	prefer  lockstep.Plan // of requests: the room promised
	request lockstep.Request
	from    lockstep.Candidates // from whom room may be taken
	made    lockstep.Preempted  // how the placer would make it
	exclude []lockstep.NodeID
	busy    []lockstep.Busy
	counts  []int
	times   []int64
	rest    []reservation
}

// level is how many holders of a priority there are.
type level struct {
	priority lockstep.Priority
	holders  int
}

// closure is a node that takes no members.
type closure struct {
	node           lockstep.NodeID
	down, cordoned bool
}

// New returns an Admission without jobs. It reports every fault of cfg.
func New(cfg Config) (*Admission, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Admission{
		cfg:    cfg.withDefaults(),
		now:    math.MinInt64,
		jobs:   make(map[lockstep.JobID]*job),
		dirty:  make(map[lockstep.NodeID][]*job),
		shapes: make(map[string]*shape),
		simple: make(map[simple]*shape),
		owners: make(map[owner]int32),
		epoch:  1,
		opens:  1,
		tight:  1,
		gen:    1,
		flow:   1,
	}
	a.what, _ = cfg.Placer.(WhatIf)
	a.preempter, _ = cfg.Placer.(Preempter)
	a.reclaimer, _ = cfg.Quota.(Reclaimer)
	a.takes = cfg.Preempt == PreemptOn
	return a, nil
}

// latest is the last time that calls may have: there is always a later one, and
// what is due at forever is never due.
const latest = forever - 1

// at checks a time without taking note of it.
func (a *Admission) at(op string, now time.Time) (int64, error) {
	t, err := lockstep.Nanos(now)
	if err != nil || t > latest {
		return 0, fault(lockstep.ErrInvalid, op, "now", now.String(), "must lie between 1678 and 2262")
	}
	if t < a.now {
		return 0, fault(lockstep.ErrPast, op, "now", now.UTC().Format(time.RFC3339Nano), "before a time already seen")
	}
	return t, nil
}

// find looks a job up and checks that attempt is its present one.
func (a *Admission) find(op string, now time.Time, id lockstep.JobID, attempt lockstep.Attempt) (*job, int64, error) {
	t, err := a.at(op, now)
	if err != nil {
		return nil, 0, err
	}
	j := a.jobs[id]
	if j == nil {
		return nil, 0, fault(lockstep.ErrUnknown, op, "job", strconv.Quote(string(id)), "not submitted, or forgotten")
	}
	if attempt != 0 && attempt != j.attempt {
		return nil, 0, fault(lockstep.ErrStale, op, "attempt", strconv.FormatUint(uint64(attempt), 10),
			"the present one of "+string(id)+" is "+strconv.FormatUint(uint64(j.attempt), 10))
	}
	return j, t, nil
}

// conflict is the error of an event that does not suit the job's phase.
func conflict(op string, j *job, want string) error {
	return fault(lockstep.ErrConflict, op, "job", strconv.Quote(string(j.id)), "is "+string(j.phase)+", want "+want)
}

// State returns where job stands.
func (a *Admission) State(job lockstep.JobID) (Status, bool) {
	j := a.jobs[job]
	if j == nil {
		return Status{}, false
	}
	s := Status{
		Job: j.id, Phase: j.phase, Attempt: j.attempt, Submitted: lockstep.FromNanos(j.submit), Plan: j.plan,
		Waits: slices.Clone(j.waits), Trial: j.trial, Due: j.due, Reason: j.reason, Lapses: j.lapses, Verdict: a.verdictOf(j),
	}
	if j.phase == Held {
		s.Missing = j.missing
		if j.deadline != forever {
			s.Deadline = lockstep.FromNanos(j.deadline)
		}
	}
	if j.begun {
		s.Started = lockstep.FromNanos(j.start)
	}
	if j.holds() && j.end != forever {
		s.End = lockstep.FromNanos(j.end)
	}
	if j.notUntil > a.now {
		s.NotBefore = lockstep.FromNanos(j.notUntil)
	}
	return s, true
}

// AppendJobs appends the IDs of all jobs in any of phases, or in every phase
// where none is given, sorted, and returns dst.
func (a *Admission) AppendJobs(dst []lockstep.JobID, phases ...Phase) []lockstep.JobID {
	start := len(dst)
	for id, j := range a.jobs { // the order does not matter: sorted below
		if len(phases) == 0 || slices.Contains(phases, j.phase) {
			dst = append(dst, id)
		}
	}
	slices.Sort(dst[start:])
	return dst
}

// Forget drops a job that has left before its time. One that has not left is
// lockstep.ErrConflict.
func (a *Admission) Forget(id lockstep.JobID) error {
	j := a.jobs[id]
	switch {
	case j == nil:
		return fault(lockstep.ErrUnknown, "forget", "job", strconv.Quote(string(id)), "not submitted, or forgotten")
	case j.phase != Gone:
		return conflict("forget", j, string(Gone))
	}
	a.forget(j)
	return nil
}

func (a *Admission) forget(j *job) {
	delete(a.jobs, j.id)
	if i := slices.Index(a.gone, j); i >= 0 {
		a.gone = slices.Delete(a.gone, i, i+1)
	}
}

// NextWake returns when Step is to be called next if nothing happens before;
// false means not until something does.
func (a *Admission) NextWake(now time.Time) (time.Time, bool) {
	t := a.now
	if n, err := lockstep.Nanos(now); err == nil {
		t = max(t, n)
	}
	if len(a.out) > 0 || a.stale || len(a.replans) > 0 {
		return lockstep.FromNanos(t), true
	}
	next, ok := a.timers.next(a)
	for i := range a.res {
		if r := &a.res[i]; r.timed() && (!ok || r.start < next) {
			next, ok = r.start, true
		}
	}
	if !ok {
		return time.Time{}, false
	}
	return lockstep.FromNanos(max(t, next)), true
}

// retire makes j one of those that have left.
func (a *Admission) retire(j *job, reason lockstep.Reason) {
	j.phase, j.reason = Gone, reason
	a.unqueue(j)
	a.setDue(j, false)
	a.dropShape(j)
	if n := len(a.res); n > 0 {
		if a.res = slices.DeleteFunc(a.res, func(r reservation) bool { return r.job == j }); len(a.res) < n {
			a.flow++
		}
	}
	j.plan, j.old, j.confirmed, j.spot, j.refused = nil, nil, nil, nil, nil
	a.gone = append(a.gone, j)
	for len(a.gone) > a.cfg.Retain {
		delete(a.jobs, a.gone[0].id)
		a.gone[0] = nil
		a.gone = a.gone[1:]
	}
}

func (a *Admission) setDue(j *job, due bool) {
	switch {
	case due && !j.due:
		a.due = insertSorted(a.due, j, byID)
	case !due && j.due:
		a.due = removeSorted(a.due, j, byID)
	}
	j.due = due
}

// closedAt returns the place of node among the closed ones.
func (a *Admission) closedAt(node lockstep.NodeID) (int, bool) {
	return slices.BinarySearchFunc(a.closed, node, func(c closure, n lockstep.NodeID) int { return cmp.Compare(c.node, n) })
}
