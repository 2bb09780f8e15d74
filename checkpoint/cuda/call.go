package cuda

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// job is a call that changes something, from its claim to its end. The fields below
// done are guarded by Driver.mu until done is closed.
type job struct {
	target  checkpoint.Target
	request request
	slot    *slot
	now     []Device // what the host knew when the call began
	done    chan struct{}

	acted     bool // run's own: a call was made that changes something
	abandoned bool // the caller has gone; whatever comes of it is to be undone
	ended     bool
	took      time.Duration
	bytes     lockstep.Bytes
	err       *checkpoint.DriverError
}

// busyError says that another call for the target has not ended.
type busyError struct{ done <-chan struct{} }

func (*busyError) Error() string { return "another call for it has not ended" }

func asBusy(err error, into **busyError) bool { return errors.As(err, into) }

// change makes a call that changes something, and waits for its end or that of ctx.
// What is not over by then goes on without the caller: see abandon.
func (d *Driver) change(ctx context.Context, t checkpoint.Target, r request) (checkpoint.Moved, error) {
	if e := d.admit(ctx, t, r); e != nil {
		return checkpoint.Moved{}, e
	}
	var now []Device
	if r.do != lock && r.do != unlock {
		now = d.ask(ctx, t.PID)
	}
	j, e := d.claim(t, r)
	if e != nil {
		return checkpoint.Moved{}, e
	}
	j.now = now
	go d.run(j)
	select {
	case <-j.done:
	case <-ctx.Done():
		if !d.abandon(j) {
			break // it ended at the same moment
		}
		return checkpoint.Moved{}, &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: r.do.String(), PID: t.PID, Err: ctx.Err()}
	}
	if j.err != nil {
		return checkpoint.Moved{}, j.err
	}
	return checkpoint.Moved{Bytes: j.bytes, Took: j.took}, nil
}

// admit refuses what can be refused without a call.
func (d *Driver) admit(ctx context.Context, t checkpoint.Target, r request) *checkpoint.DriverError {
	call := r.do.String()
	if !supported {
		return noSystem(call, t)
	}
	if err := ctx.Err(); err != nil {
		return &checkpoint.DriverError{Kind: checkpoint.ErrTimeout, Call: call, PID: t.PID, Err: err}
	}
	if e := checkPID(call, t); e != nil {
		return e
	}
	if why := foreign(); why != "" {
		return refuse(checkpoint.ErrPermission, call, t, "", "/proc", "", why)
	}
	e := verify(r.do, t)
	if e != nil && e.Kind == checkpoint.ErrGone {
		d.forget(t)
	}
	return e
}

// claim takes the target for one call, and a place among those that may block.
func (d *Driver) claim(t checkpoint.Target, r request) (*job, *checkpoint.DriverError) {
	call := r.do.String()
	// All of it under one lock: of two callers one gets the target.
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.slots[keyOf(t)]
	switch {
	case d.closed:
		return nil, shut(call, t)
	case s != nil && s.job != nil:
		return nil, &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: call, PID: t.PID, Err: &busyError{s.job.done}}
	case s != nil && s.wedged != nil:
		return nil, &checkpoint.DriverError{Kind: checkpoint.ErrWedged, Call: call, PID: t.PID, State: checkpoint.Failed, Err: s.wedged}
	}
	// Whoever waited here might wait for ever, with a lock held elsewhere.
	way := d.way(r.do)
	select {
	case way <- struct{}{}:
	default:
		return nil, crowded(call, t, cap(way))
	}
	if s == nil {
		s = &slot{target: t}
		d.slots[keyOf(t)] = s
	}
	j := &job{target: t, request: r, slot: s, done: make(chan struct{})}
	s.job = j
	s.turns++
	return j, nil
}

// way returns where a call takes its place. Those that lead out of a pause have places
// of their own, so that whoever is held can be let go although all that lead in hang.
func (d *Driver) way(v verb) chan struct{} {
	if v == lock || v == suspend {
		return d.ways[0]
	}
	return d.ways[1]
}

// crowded is the error where as many calls are blocked as may be: nothing was called.
func crowded(call string, t checkpoint.Target, n int) *checkpoint.DriverError {
	return &checkpoint.DriverError{
		Kind: checkpoint.ErrDriver, Call: call, PID: t.PID,
		Err: &lockstep.Error{Kind: lockstep.ErrConflict, Op: "cuda", Field: "Workers", Value: strconv.Itoa(n), Reason: "so many calls have not returned"},
	}
}

// abandon notes that nobody waits for a call any more. From here on its end is for
// run to undo. It reports false if the call has ended.
func (d *Driver) abandon(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j.abandoned = !j.ended
	return j.abandoned
}

func (d *Driver) isAbandoned(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return j.abandoned
}

// owe notes, before a call is made, that the target may leave Running by it.
func (d *Driver) owe(s *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.owed = true
}

// run makes a call on a thread of its own and sees it through: if its caller has gone
// meanwhile, whatever it did is undone here, before anybody else may call. A call that
// did nothing leaves the target as it was, which may be paused with good reason.
func (d *Driver) run(j *job) {
	runtime.LockOSThread() // the call may take minutes
	defer runtime.UnlockOSThread()
	began := time.Now()
	state, err := d.perform(j)
	j.took = time.Since(began)
	var lost error
	d.mu.Lock()
	if j.abandoned && j.acted && j.request.do != undo {
		d.mu.Unlock()
		var e *checkpoint.DriverError
		if state, e = d.bringBack(j); e != nil {
			lost = e
		}
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	s := j.slot
	// Only now may others call for the target: what it owes is known again.
	s.job, s.lost, s.turns = nil, lost, s.turns+1
	if j.request.do == undo && err != nil {
		s.lost = err
	}
	if err == nil {
		d.movedLocked(j)
	}
	d.settledLocked(s, state)
	if !s.owed && s.wedged == nil {
		delete(d.slots, keyOf(j.target)) // nothing to remember
	}
	j.err, j.ended = err, true
	<-d.way(j.request.do)
	close(j.done)
}

// movedLocked notes what a call that has worked has moved, as far as the host knows.
func (d *Driver) movedLocked(j *job) {
	switch {
	case !j.acted:
	case j.request.do == suspend:
		j.slot.held, j.bytes = j.now, total(j.now)
	case j.request.do == resume:
		j.bytes, j.slot.held = total(j.slot.held), nil
	}
}

// background makes a call that changes nothing, on a thread of its own, and waits
// for its end or that of ctx. do must not write what is read after an error.
func (d *Driver) background(ctx context.Context, call string, t checkpoint.Target, do func()) error {
	if err := ctx.Err(); err != nil {
		return &checkpoint.DriverError{Kind: checkpoint.ErrTimeout, Call: call, PID: t.PID, Err: err}
	}
	if e := d.enter(call, t); e != nil {
		return e
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-d.readers }()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		do()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: call, PID: t.PID, Err: ctx.Err()}
	}
}

// enter takes a place among the reads that may block.
func (d *Driver) enter(call string, t checkpoint.Target) *checkpoint.DriverError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return shut(call, t)
	}
	select {
	case d.readers <- struct{}{}:
		return nil
	default:
		return crowded(call, t, cap(d.readers))
	}
}
