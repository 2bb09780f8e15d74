package lifecycle

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Apply lets time pass up to e's, makes the move that e asks for, and appends
// the steps that were made to dst. It keeps nothing of e. After an error nothing has changed.
func (m *Machine) Apply(dst []Step, e *Event) ([]Step, error) {
	ns, until, err := m.times(e)
	if err != nil {
		return dst, err
	}
	j, drop, err := m.check(e, ns)
	if err != nil {
		return dst, err
	}
	m.out = dst
	m.advance(ns)
	if j != nil {
		j = m.jobs[e.Job] // as time has left it: nil if it was forgotten
	}
	switch {
	case e.Move == MoveTick:
	case drop:
		m.dropped++
	case e.Move == MoveSubmit:
		m.submit(e, ns, until)
	default:
		m.unset(j)
		j.settle(ns)
		m.do(j, e, ns, until)
		m.set(j)
	}
	dst, m.out = m.out, nil
	return dst, nil
}

// times reads the move and the times of e.
func (m *Machine) times(e *Event) (ns, until int64, err error) {
	op := string(e.Move)
	if !e.Move.known() {
		return 0, 0, fault(lockstep.ErrInvalid, "apply", "Move", strconv.Quote(op), "is no move")
	}
	ns, err = in.SinceEpoch(op, "Time", e.Time)
	if err != nil {
		return 0, 0, err
	}
	if err := in.NotBefore(op, "Time", e.Time, ns, m.now); err != nil {
		return 0, 0, err
	}
	until = never
	if !e.Until.IsZero() && (e.Move == MoveSubmit || e.Move == MoveReserve || e.Move == MoveDrain) {
		until, err = in.SinceEpoch(op, "Until", e.Until)
		if err != nil {
			return 0, 0, err
		}
		if until <= ns {
			return 0, 0, fault(lockstep.ErrInvalid, op, "Until", e.Until.String(), "must be after Time")
		}
	}
	return ns, until, nil
}

// check says whether e may happen at ns, and whether it is to be dropped,
// without changing anything.
func (m *Machine) check(e *Event, ns int64) (j *job, drop bool, err error) {
	op := string(e.Move)
	if e.Move == MoveTick {
		return nil, false, nil
	}
	if err := e.Job.Validate(); err != nil {
		return nil, false, err
	}
	j = m.foresee(e.Job, ns)
	if e.Move == MoveSubmit {
		if j != nil {
			return nil, false, fault(lockstep.ErrDuplicate, op, "Job", string(e.Job), "is "+string(j.State))
		}
		return nil, false, nil
	}
	if j == nil {
		return nil, false, fault(lockstep.ErrUnknown, op, "Job", string(e.Job), "is not known")
	}
	if e.Move.ofAttempt() && e.Attempt != 0 {
		if e.Attempt > j.Attempt {
			return nil, false, fault(lockstep.ErrUnknown, op, "Attempt", itoa(e.Attempt), "the latest is "+itoa(j.Attempt))
		}
		if j.over(e.Attempt) {
			return j, true, nil
		}
	}
	if !e.Move.allowed(j.State) {
		return nil, false, fault(lockstep.ErrConflict, op, "Job", string(e.Job), "is "+string(j.State))
	}
	return j, false, m.checkFields(j, e)
}

// foresee returns a job as it is once time has passed up to ns, without letting
// it pass; nil if there is none then.
func (m *Machine) foresee(id lockstep.JobID, ns int64) *job {
	j := m.jobs[id]
	if j == nil || j.timer > ns || j.timer == never {
		return j
	}
	future := *j
	future.Used = slices.Clone(j.Used)
	probe := Machine{cfg: m.cfg, now: m.now}
	for future.timer <= ns && future.timer != never {
		if future.State.Terminal() {
			return nil // it will be forgotten
		}
		probe.fire(&future)
		future.timer = future.nextTimer()
	}
	return &future
}

// checkFields checks what depends on more than the state.
func (m *Machine) checkFields(j *job, e *Event) error {
	op := string(e.Move)
	if e.GPUs < 0 {
		return fault(lockstep.ErrInvalid, op, "GPUs", e.GPUs.String(), "must not be negative")
	}
	conflict := func(reason string) error {
		return fault(lockstep.ErrConflict, op, "Job", string(e.Job), reason)
	}
	switch e.Move {
	case MoveReserve:
		if e.Attempt != 0 && e.Attempt <= j.Attempt {
			return fault(lockstep.ErrStale, op, "Attempt", itoa(e.Attempt), "the latest is "+itoa(j.Attempt))
		}
		if j.Attempt == math.MaxUint64 {
			return fault(lockstep.ErrConflict, op, "Attempt", itoa(j.Attempt), "is the highest that there is")
		}
	case MoveDrain:
		if e.Cause == "" || e.Cause == CauseExit {
			return fault(lockstep.ErrInvalid, op, "Cause", string(e.Cause), "want the intent")
		}
	case MoveSave:
		if j.Saving {
			return conflict("is saving already")
		}
	case MoveSaved:
		if j.State == Running && !j.Saving {
			return conflict("is not saving")
		}
	case MoveResize:
		if e.GPUs == 0 {
			return fault(lockstep.ErrInvalid, op, "GPUs", "0", "must be positive")
		}
	case MoveResized:
		if j.Target == 0 {
			return conflict("is not resizing")
		}
	case MoveClean:
		if e.GPUs > j.GPUs-j.Clean {
			return fault(lockstep.ErrInvalid, op, "GPUs", e.GPUs.String(), "only "+(j.GPUs-j.Clean).String()+" are not confirmed yet")
		}
	case MoveCancel:
		if j.Cause == CauseCancel && j.leaving() {
			return conflict("is being cancelled already")
		}
	}
	return nil
}

// advance fires the deadlines up to ns, in order.
func (m *Machine) advance(ns int64) {
	m.now = ns
	for {
		j, ok := m.wake.Min()
		if !ok || j.timer > ns {
			return
		}
		if j.State.Terminal() {
			m.forget(j)
			continue
		}
		at := j.timer
		m.unset(j)
		j.timer = at // fire reads it
		m.fire(j)
		m.set(j)
	}
}

// fire meets the deadline j.timer. j is in no tree.
func (m *Machine) fire(j *job) {
	at := j.timer
	e := Event{Move: MoveTick}
	j.settle(at)
	if j.Deadline > at { // its own deadline has come
		switch j.State {
		case Starting, Running:
			m.drain(j, &e, at, CauseDeadline, never)
		default:
			m.toQueued(j, &e, at)
			m.enter(j, DeadlineExceeded, &e, at)
		}
		return
	}
	switch j.State {
	case Queued:
		m.enter(j, DeadlineExceeded, &e, at)
	case Admitted, Reserving, Backoff:
		m.toQueued(j, &e, at)
	case Starting:
		m.drain(j, &e, at, CauseStart, never)
	case Draining:
		m.clean(j, &e, at)
	case Lost:
		j.Cause = CauseInfra
		m.clean(j, &e, at)
	case Cleaning:
		m.finish(j, &e, at)
	}
}

func (m *Machine) submit(e *Event, ns, until int64) {
	j := &job{ID: e.Job, Submitted: ns, At: ns, Deadline: never, Due: until, timer: never}
	m.jobs[j.ID] = j
	m.enter(j, Queued, e, ns)
	m.set(j)
}

// do makes a move that check has allowed. j is settled and in no tree.
func (m *Machine) do(j *job, e *Event, ns, until int64) {
	switch e.Move {
	case MoveHold:
		m.toQueued(j, e, ns)
		m.enter(j, Held, e, ns)
	case MoveQueue, MoveReturn:
		m.toQueued(j, e, ns)
	case MoveAdmit:
		m.enter(j, Admitted, e, ns)
	case MoveReserve:
		m.reserve(j, e, ns, until)
	case MoveStart:
		m.enter(j, Starting, e, ns)
	case MoveRun:
		m.enter(j, Running, e, ns)
	case MoveDrain:
		m.drain(j, e, ns, e.Cause, until)
	case MoveLose:
		j.Saving = false
		m.enter(j, Lost, e, ns)
	case MoveExit:
		m.exit(j, e, ns)
	case MoveFence:
		j.Cause = CauseInfra
		m.clean(j, e, ns)
	case MoveClean:
		m.confirm(j, e, ns)
	case MoveCancel:
		m.cancel(j, e, ns)
	default:
		m.fact(j, e, ns)
	}
}

// reserve begins an attempt.
func (m *Machine) reserve(j *job, e *Event, ns, until int64) {
	if j.State == Queued {
		m.enter(j, Admitted, e, ns)
	}
	j.Attempt++
	if e.Attempt != 0 {
		j.Attempt = e.Attempt
	}
	j.GPUs, j.Cause, j.Exit, j.To, j.Budget, j.Charges, j.Ran = e.GPUs, "", Exit{}, "", "", 0, 0
	m.enter(j, Reserving, e, ns)
	if until != never {
		j.Deadline = until
	}
}

// exit ends an attempt whose members are gone.
func (m *Machine) exit(j *job, e *Event, ns int64) {
	if j.State == Starting {
		m.enter(j, Draining, e, ns) // legality has it so; it takes no time
	}
	j.Exit = e.Exit
	if j.Cause == "" { // else the intent was there first
		j.Cause = e.Cause
	}
	m.clean(j, e, ns)
}

// confirm notes that devices are clean.
func (m *Machine) confirm(j *job, e *Event, ns int64) {
	j.Clean += e.GPUs
	if e.GPUs == 0 {
		j.Clean = j.GPUs
	}
	if j.Clean == j.GPUs {
		m.finish(j, e, ns)
	} else {
		m.note(j, e, ns, 0)
	}
}

// fact notes what changes no state.
func (m *Machine) fact(j *job, e *Event, ns int64) {
	freed := lockstep.MilliGPU(0)
	switch e.Move {
	case MoveSave:
		j.Saving = true
	case MoveSaved:
		j.Saving = false
		if e.Cause == "" {
			j.safe()
		}
	case MoveResize:
		j.Target = 0
		if e.GPUs < j.GPUs {
			j.Target = e.GPUs
		} else {
			j.GPUs = e.GPUs
		}
	case MoveResized:
		freed = j.GPUs - j.Target
		j.GPUs, j.Target = j.Target, 0
	}
	m.note(j, e, ns, freed)
}

func (m *Machine) cancel(j *job, e *Event, ns int64) {
	switch j.State {
	case Starting, Running:
		m.drain(j, e, ns, CauseCancel, never)
		return
	case Draining:
		j.Cause = CauseCancel
	case Lost:
		j.Cause = CauseCancel
		m.clean(j, e, ns)
		return
	case Cleaning:
		if j.To != Succeeded { // what is done is done
			j.To, j.Cause = Cancelled, CauseCancel
		}
	default:
		j.Cause = CauseCancel
		m.toQueued(j, e, ns)
		m.enter(j, Cancelled, e, ns)
		return
	}
	m.note(j, e, ns, 0)
}

func (m *Machine) drain(j *job, e *Event, ns int64, cause Cause, until int64) {
	j.Cause, j.Saving, j.Target = cause, false, 0
	m.enter(j, Draining, e, ns)
	if until != never {
		j.Deadline = until
	}
}

// clean ends the attempt: its verdict is given and its unsaved work is lost.
func (m *Machine) clean(j *job, e *Event, ns int64) {
	j.Saving, j.Target = false, 0
	m.verdict(j)
	if j.Exit.Saved || j.To == Succeeded {
		j.safe()
	} else {
		j.lose()
	}
	m.enter(j, Cleaning, e, ns)
}

// finish leaves Cleaning: what is confirmed is freed, the rest is quarantined.
func (m *Machine) finish(j *job, e *Event, ns int64) {
	to := j.To
	if to == Held {
		to = Queued
	}
	m.enter(j, to, e, ns)
	if j.To == Held {
		m.enter(j, Held, e, ns)
	}
}

// toQueued brings a job that holds no running members to Queued, from wherever.
func (m *Machine) toQueued(j *job, e *Event, ns int64) {
	if j.State != Queued {
		m.enter(j, Queued, e, ns)
	}
}

// enter passes to a state, sets its deadline, and appends the step.
func (m *Machine) enter(j *job, to State, e *Event, ns int64) {
	s := Step{Job: j.ID, Attempt: j.Attempt, From: j.State, To: to, Move: e.Move, Time: lockstep.FromNanos(ns), Cause: j.Cause, Reason: e.Reason}
	switch j.State {
	case Cleaning:
		s.Freed, s.Quarantined = j.Clean, j.GPUs-j.Clean
		j.GPUs, j.Clean = 0, 0
	case Reserving:
		if to == Queued {
			s.Freed = j.GPUs
			j.GPUs = 0
		}
	}
	if to == Admitted {
		j.Cause, s.Cause = "", "" // that of the attempt before
	}
	j.State, j.Deadline = to, never
	switch to {
	case Queued:
		j.Deadline = instant.Add(ns, m.cfg.MaxWait)
	case Admitted:
		j.Deadline = instant.Add(ns, m.cfg.Admit)
	case Reserving:
		j.Deadline = instant.Add(ns, m.cfg.Reserve)
	case Starting:
		j.Deadline = instant.Add(ns, m.cfg.Start)
	case Draining:
		j.Deadline = instant.Add(ns, m.cfg.Grace)
	case Lost:
		j.Deadline = instant.Add(ns, m.cfg.Fence)
	case Cleaning:
		j.Deadline = instant.Add(ns, m.cfg.Clean)
		s.Budget = j.Budget
	case Backoff:
		j.Deadline = instant.Add(ns, m.delay(j.Charges))
	default:
		if to.Terminal() && m.cfg.Retain > 0 {
			j.Deadline = instant.Add(ns, m.cfg.Retain)
		}
	}
	m.out = append(m.out, s)
}

// note appends a step that changes no state.
func (m *Machine) note(j *job, e *Event, ns int64, freed lockstep.MilliGPU) {
	m.out = append(m.out, Step{
		Job: j.ID, Attempt: j.Attempt, From: j.State, To: j.State, Move: e.Move, Time: lockstep.FromNanos(ns),
		Cause: j.Cause, Reason: e.Reason, Freed: freed,
	})
}
