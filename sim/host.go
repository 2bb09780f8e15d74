package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// host does what the scheduler says to jobs that run by themselves.
type host struct {
	cfg   Config
	sched Scheduler
	acc   *account

	zero, until int64
	now         int64
	runs        []*run // by submit time, then ID
	byID        map[lockstep.JobID]*run
	submitted   int // how many of runs were
	left        int // how many have not ended
	heap        []happening
	seq         uint64
	beyond      bool // something would happen after the last time there is
	events      int
	actions     int
	steps       int
	event       lockstep.Event // memory for the one that is on its way
}

// state is what a job does.
type state int

const (
	waiting state = iota
	held          // its devices are its own; its members confirm
	working       // it runs, or stands still to resume
	leaving       // it saves its work
	ended
)

// run is a job and what became of it.
type run struct {
	gang   *lockstep.Gang
	submit int64
	work   int64 // what it has still to do
	tenant *tenant

	state   state
	attempt lockstep.Attempt
	plan    *lockstep.Plan
	amount  lockstep.MilliGPU // held
	since   int64             // held since
	from    int64             // working since, its resume done, or leaving until: may lie ahead
	begun   bool
	version uint64
	waits   int64 // waiting since
	rec     Record
}

// happening is something that will happen to a job unless version changes.
type happening struct {
	at      int64
	kind    happen
	seq     uint64
	job     *run
	version uint64
}

// happen orders what happens at one time.
type happen uint8

const (
	finishes happen = iota
	leaves
	confirms
)

func newHost(cfg Config, jobs []Job, s Scheduler) (*host, error) {
	zero := int64(0)
	if !cfg.Start.IsZero() {
		t, err := lockstep.Nanos(cfg.Start)
		if err != nil {
			return nil, err
		}
		zero = t
	}
	h := &host{cfg: cfg, sched: s, zero: zero, now: zero, left: len(jobs), byID: make(map[lockstep.JobID]*run, len(jobs))}
	if cfg.Until > 0 {
		h.until = max(zero, zero+int64(cfg.Until))
		if h.until == zero { // it would be after the last time there is
			h.until = math.MaxInt64
		}
	}
	all := make([]run, len(jobs))
	for i := range jobs {
		if err := h.add(&all[i], &jobs[i], "jobs["+strconv.Itoa(i)+"]"); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(h.runs, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.submit, b.submit), cmp.Compare(a.gang.ID, b.gang.ID))
	})
	if len(h.runs) > 0 {
		h.now = h.runs[0].submit
	}
	var err error
	h.acc, err = newAccount(h)
	return h, err
}

// add takes in a job, which is found at the path field.
func (h *host) add(r *run, j *Job, field string) error {
	switch {
	case j.Gang == nil:
		return fault(lockstep.ErrInvalid, "run", field+".Gang", "nil", "required")
	case j.Submit < 0 || j.Submit > lockstep.MaxWalltime:
		return fault(lockstep.ErrInvalid, "run", field+".Submit", j.Submit.String(), "want 0 to "+lockstep.MaxWalltime.String())
	case j.Duration <= 0 || j.Duration > lockstep.MaxWalltime:
		return fault(lockstep.ErrInvalid, "run", field+".Duration", j.Duration.String(), "want more than 0, to "+lockstep.MaxWalltime.String())
	case h.byID[j.Gang.ID] != nil:
		return fault(lockstep.ErrDuplicate, "run", field+".Gang.ID", errtext.Quote(j.Gang.ID), "occurs twice")
	}
	if err := j.Gang.Validate(); err != nil {
		return fmt.Errorf("sim: run: %s: %w", field, err)
	}
	if h.zero > math.MaxInt64-int64(j.Submit) {
		return fault(lockstep.ErrInvalid, "run", field+".Submit", j.Submit.String(), "after the last time there is, counted from Start")
	}
	r.gang, r.submit, r.work = j.Gang, h.zero+int64(j.Submit), int64(j.Duration)
	r.rec = Record{Job: j.Gang.ID, Tenant: j.Gang.Tenant, GPUs: j.Gang.GPUs(nil), Submit: j.Submit, Duration: j.Duration}
	h.byID[j.Gang.ID] = r
	h.runs = append(h.runs, r)
	return nil
}

// apply tells the scheduler of h.event.
func (h *host) apply() error {
	e := &h.event
	h.events++
	if h.cfg.Event != nil {
		h.cfg.Event(e)
	}
	if err := h.sched.Apply(*e); err != nil {
		return fmt.Errorf("sim: %s: %w", e.Kind, err)
	}
	return nil
}

func (h *host) submit(j *run) error {
	j.waits = j.submit // also where it is seen later
	if err := h.acc.submit(h, j); err != nil {
		return err
	}
	h.event = lockstep.Event{Kind: lockstep.EventSubmit, Time: lockstep.FromNanos(h.now), Job: j.gang.ID, Gang: j.gang}
	return h.apply()
}

// happen lets something happen to a job, if nothing has come between.
func (h *host) happen(x happening) error {
	j := x.job
	if x.version != j.version {
		return nil
	}
	h.event = lockstep.Event{Time: lockstep.FromNanos(h.now), Job: j.gang.ID, Attempt: j.attempt}
	e := &h.event
	switch x.kind {
	case confirms:
		e.Kind = lockstep.EventConfirm
		for e.Rank = range j.plan.Members {
			if err := h.apply(); err != nil {
				return err
			}
		}
		return nil
	case finishes:
		e.Kind = lockstep.EventFinish
		j.work = 0
		j.state = ended
		h.left--
	case leaves:
		e.Kind = lockstep.EventEvicted
		j.state = waiting
	}
	if err := h.letGo(j); err != nil {
		return err
	}
	return h.apply()
}

// do carries out an action.
func (h *host) do(a *lockstep.Action) error {
	h.actions++
	if h.cfg.Action != nil {
		h.cfg.Action(a)
	}
	j := h.byID[a.Job]
	if j == nil {
		return fault(lockstep.ErrUnknown, "action", "Job", errtext.Quote(a.Job), "was never submitted")
	}
	if !suits(a.Kind, j.state) {
		return fault(lockstep.ErrConflict, "action", "Kind", string(a.Kind), "does not suit "+string(a.Job)+" at "+lockstep.FromNanos(h.now).String())
	}
	switch a.Kind {
	case lockstep.ActionReserve:
		return h.reserve(j, a)
	case lockstep.ActionStart:
		if j.state == waiting {
			if err := h.take(j, a); err != nil {
				return err
			}
		}
		h.begin(j)
	case lockstep.ActionRelease:
		j.version++
		j.state = waiting
		return h.letGo(j)
	case lockstep.ActionExtend:
		h.extend(j)
	case lockstep.ActionEvict, lockstep.ActionMove:
		h.stop(j, a)
	case lockstep.ActionReject:
		return h.reject(j, a)
	case lockstep.ActionResize:
		return fault(lockstep.ErrInvalid, "action", "Kind", string(a.Kind), "is not simulated: a trace does not say how fast "+string(a.Job)+" would run with other members")
	}
	return nil
}

// suits reports whether an action of this kind may be about a job in state s.
func suits(kind lockstep.ActionKind, s state) bool {
	switch kind {
	case lockstep.ActionReserve, lockstep.ActionStart:
		return s == waiting || s == held
	case lockstep.ActionRelease:
		return s == held
	case lockstep.ActionExtend, lockstep.ActionEvict, lockstep.ActionMove, lockstep.ActionResize:
		return s == working
	case lockstep.ActionReject:
		return s == waiting
	}
	return false
}

func (h *host) reserve(j *run, a *lockstep.Action) error {
	if j.state == held { // other room within the same hold
		j.version++
		j.state = waiting
		if err := h.letGo(j); err != nil {
			return err
		}
	}
	if err := h.take(j, a); err != nil {
		return err
	}
	h.after(int64(h.cfg.Latency), confirms, j)
	return nil
}

// take gives j the devices of a plan.
func (h *host) take(j *run, a *lockstep.Action) error {
	if a.Plan == nil || j.state != waiting {
		return fault(lockstep.ErrConflict, "action", "Kind", string(a.Kind), "does not suit "+string(a.Job))
	}
	j.state, j.attempt, j.plan = held, a.Attempt, a.Plan
	j.amount, j.since = planGPUs(a.Plan, j.gang), h.now
	j.rec.Wait += dur(h.now - j.waits)
	return h.acc.hold(h, j)
}

// letGo takes its devices from j.
func (h *host) letGo(j *run) error {
	j.rec.Held += dur(h.now - j.since)
	j.waits = h.now
	err := h.acc.free(h, j)
	j.plan, j.amount = nil, 0
	return err
}

// begin lets j work, once it has resumed.
func (h *host) begin(j *run) {
	j.state, j.from = working, h.now
	if !j.begun {
		j.begun = true
		j.rec.Start = dur(h.now - h.zero)
	} else {
		cost := int64(j.gang.Capabilities.Restore)
		j.from += cost
		j.rec.Resumes++
		h.acc.resume(j, cost)
	}
	h.after(j.from-h.now+j.work, finishes, j)
}

// extend lets j go on; where releases are unconditional it pays all the same.
func (h *host) extend(j *run) {
	j.rec.Extensions++
	if !h.cfg.Unconditional {
		return
	}
	if h.now > j.from { // otherwise it goes on resuming first
		h.progress(j)
	}
	c := &j.gang.Capabilities
	j.rec.Preemptions++
	j.rec.Resumes++
	h.acc.save(j, int64(c.Save))
	h.acc.resume(j, int64(c.Restore))
	j.from = max(j.from, h.now) + int64(c.Save) + int64(c.Restore)
	j.version++
	h.after(j.from-h.now+j.work, finishes, j)
}

// stop makes j save its work and leave.
func (h *host) stop(j *run, a *lockstep.Action) {
	h.progress(j)
	j.state, j.from = leaving, h.now+int64(j.gang.Capabilities.Save)
	j.rec.Preemptions++
	if a.Kind == lockstep.ActionMove {
		j.rec.Moves++
	}
	j.version++
	h.acc.save(j, int64(j.gang.Capabilities.Save))
	h.after(int64(j.gang.Capabilities.Save), leaves, j)
}

// progress notes the work that j has done by now.
func (h *host) progress(j *run) {
	if done := h.now - j.from; done > 0 {
		j.work = max(j.work-done, 0)
		j.from = h.now
	} else {
		h.acc.unresume(j, -done) // it was stopped while it resumed
	}
}

func (h *host) reject(j *run, a *lockstep.Action) error {
	j.state = ended
	j.rec.Wait += dur(h.now - j.waits)
	j.rec.Rejected = a.Reason
	h.left--
	return h.acc.finish(h, j)
}

func (h *host) after(d int64, kind happen, j *run) {
	if d > math.MaxInt64-h.now {
		h.beyond = true
		return
	}
	h.seq++
	h.push(happening{at: h.now + d, kind: kind, seq: h.seq, job: j, version: j.version})
}

func (h *host) less(i, k int) bool {
	x, y := &h.heap[i], &h.heap[k]
	if x.at != y.at {
		return x.at < y.at
	}
	if x.kind != y.kind {
		return x.kind < y.kind
	}
	return x.seq < y.seq
}

func (h *host) push(x happening) {
	h.heap = append(h.heap, x)
	for i := len(h.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h.heap[i], h.heap[up] = h.heap[up], h.heap[i]
		i = up
	}
}

func (h *host) drop() {
	last := len(h.heap) - 1
	h.heap[0] = h.heap[last]
	h.heap[last] = happening{}
	h.heap = h.heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return
		}
		if down+1 < last && h.less(down+1, down) {
			down++
		}
		if !h.less(down, i) {
			return
		}
		h.heap[i], h.heap[down] = h.heap[down], h.heap[i]
		i = down
	}
}

// planGPUs returns the devices that a plan of gang g takes.
func planGPUs(p *lockstep.Plan, g *lockstep.Gang) lockstep.MilliGPU {
	var sum lockstep.MilliGPU
	for i := range p.Members {
		d := &g.Roles[p.Members[i].Role].Demand
		sum = sum.Add(d.DeviceShare().Mul(int64(d.GPUs)))
	}
	return sum
}
