package lifecycle

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// ForAction appends the events that carry out a scheduler's action, for Apply
// in that order, and returns dst. They suit the job as it is now, so translate
// one action, apply it, and then the next. What the job is beyond already gives
// nothing: a release of a cancelled job, an eviction of one that is leaving, a
// start that is repeated.
//
//	reserve  MoveReserve, after MoveQueue or MoveReturn where the job is not queued
//	start    MoveStart and MoveRun, after the same as a reserve where there was none
//	release  MoveReturn
//	extend   MoveExtend
//	evict    MoveDrain, with a cause from the reason, else CausePreempt
//	resize   MoveResize
//	move     MoveDrain: it goes on after it is reserved again
//	reject   MoveHold
//
// A host that reports itself when a gang is up applies MoveStart without the
// MoveRun behind it.
func (m *Machine) ForAction(dst []Event, a *lockstep.Action) []Event {
	j, ok := m.jobs[a.Job]
	if !ok || j.State.Terminal() {
		return dst
	}
	e := Event{Time: a.Time, Job: a.Job, Attempt: a.Attempt, Reason: a.Reason}
	addIf := func(move Move) {
		if e.Move = move; move.allowed(j.State) {
			dst = append(dst, e)
		}
	}
	switch a.Kind {
	case lockstep.ActionReserve, lockstep.ActionStart:
		return j.begin(dst, a)
	case lockstep.ActionRelease:
		addIf(MoveReturn)
	case lockstep.ActionExtend:
		addIf(MoveExtend)
	case lockstep.ActionResize:
		e.GPUs = planGPUs(a.Plan)
		addIf(MoveResize)
	case lockstep.ActionEvict, lockstep.ActionMove:
		if e.Cause = causeOf(a.Reason); e.Cause == "" {
			e.Cause = CausePreempt
		}
		if a.Eviction != nil && a.Eviction.Grace > 0 {
			e.Until = a.Time.Add(a.Eviction.Grace)
		}
		addIf(MoveDrain)
	case lockstep.ActionReject:
		addIf(MoveHold)
	}
	return dst
}

// begin appends the events of a reserve or a start.
func (j *job) begin(dst []Event, a *lockstep.Action) []Event {
	e := Event{Time: a.Time, Job: a.Job, Reason: a.Reason}
	add := func(move Move) {
		e.Move = move
		dst = append(dst, e)
	}
	start := a.Kind == lockstep.ActionStart
	held := start && j.State == Reserving && (a.Attempt == 0 || a.Attempt == j.Attempt)
	if !held {
		if a.Attempt != 0 && a.Attempt <= j.Attempt {
			return dst // it has begun, and may be over
		}
		if MoveQueue.allowed(j.State) {
			add(MoveQueue)
		}
		if j.State == Reserving {
			add(MoveReturn) // the hold moves to other room: another attempt
		}
		e.GPUs, e.Until, e.Attempt = planGPUs(a.Plan), a.Deadline, a.Attempt
		add(MoveReserve)
		e.GPUs, e.Until = 0, time.Time{}
	}
	if start {
		e.Attempt = a.Attempt
		add(MoveStart)
		add(MoveRun)
	}
	return dst
}

// ForEvent appends the events that a host's event means for the machine, for
// Apply in that order, and returns dst. What means nothing any more, such as a
// finish that is repeated, gives nothing.
//
//	submit   MoveSubmit
//	cancel   MoveCancel
//	finish   MoveExit as done, MoveClean
//	fail     MoveExit with code 1 and a cause from the reason, MoveClean; before the start, MoveHold
//	evicted  MoveResized for a job that was to shrink, else MoveExit and MoveClean
//	down     MoveLose, if Job is set: repeat it for each job on the node
//
// Confirm, refuse, due, up, cordon and open give nothing: the actions that
// follow say what moves. The causes are the reasons that are spelled like one of
// this package's, "cancelled", and "lost" and lockstep.ReasonUnhealthy for
// CauseInfra. A host that knows exit codes and evidence applies MoveExit itself
// instead.
func (m *Machine) ForEvent(dst []Event, v *lockstep.Event) []Event {
	e := Event{Time: v.Time, Job: v.Job, Attempt: v.Attempt, Reason: v.Reason}
	if v.Kind == lockstep.EventSubmit {
		if v.Gang != nil {
			e.Job = v.Gang.ID
		}
		e.Move = MoveSubmit
		return append(dst, e)
	}
	j, ok := m.jobs[v.Job]
	if !ok || j.State.Terminal() {
		return dst
	}
	add := func(move Move) {
		if move.allowed(j.State) || move == MoveClean && exited(dst, v.Job) {
			e.Move = move
			dst = append(dst, e)
		}
	}
	exit := func() {
		if j.State == Lost && e.Cause == "" {
			e.Cause = CauseInfra // nobody saw it end
		}
		add(MoveExit)
		e.Exit, e.Cause = Exit{}, ""
		add(MoveClean)
	}
	switch v.Kind {
	case lockstep.EventCancel:
		if j.Cause != CauseCancel || !j.leaving() {
			add(MoveCancel)
		}
	case lockstep.EventFinish:
		e.Exit.Done = true
		exit()
	case lockstep.EventFail:
		if MoveHold.allowed(j.State) {
			if v.Attempt == 0 || !j.over(v.Attempt) {
				add(MoveHold)
			}
			break
		}
		e.Exit.Code, e.Cause = 1, causeOf(v.Reason)
		exit()
	case lockstep.EventEvicted:
		switch {
		case j.State != Running:
			exit()
		case j.Target != 0:
			add(MoveResized)
		}
	case lockstep.EventDown:
		add(MoveLose)
	}
	return dst
}

// exited reports whether the last of events is an exit of job.
func exited(events []Event, job lockstep.JobID) bool {
	n := len(events)
	return n > 0 && events[n-1].Move == MoveExit && events[n-1].Job == job
}

// leaving reports whether j's attempt is being ended.
func (j *job) leaving() bool { return j.State == Draining || j.State == Lost || j.State == Cleaning }

// attempting reports whether j is in an attempt, from its reservation to the end
// of its cleaning.
func (j *job) attempting() bool {
	return j.State == Reserving || j.State == Starting || j.State == Running || j.leaving()
}

// over reports whether attempt a of j has ended.
func (j *job) over(a lockstep.Attempt) bool {
	return a < j.Attempt || a == j.Attempt && !j.attempting()
}

// causeOf reads a cause from a reason; "" where it names none.
func causeOf(r lockstep.Reason) Cause {
	switch c := Cause(r); c {
	case CausePreempt, CauseSuspend, CauseCancel, CauseDeadline, CauseInfra, CauseStart, CauseMemory, CauseSetup:
		return c
	}
	switch r {
	case "cancelled":
		return CauseCancel
	case "lost", lockstep.ReasonUnhealthy:
		return CauseInfra
	}
	return ""
}

// planGPUs returns the devices that p's members take.
func planGPUs(p *lockstep.Plan) lockstep.MilliGPU {
	if p == nil {
		return 0
	}
	if p.Gang != nil {
		return p.Gang.GPUs(p.AppendCounts(nil, len(p.Gang.Roles)))
	}
	var sum lockstep.MilliGPU
	for i := range p.Members {
		sum = sum.Add(lockstep.WholeGPU.Mul(int64(p.Members[i].Devices.Len())))
	}
	return sum
}
