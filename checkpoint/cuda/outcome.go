package cuda

import (
	"errors"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// from and to are the states that a call leads from and to, by verb. Both are
// immutable.
var (
	from = [...]checkpoint.State{lock: checkpoint.Running, suspend: checkpoint.Locked, resume: checkpoint.Checkpointed, unlock: checkpoint.Locked}
	to   = [...]checkpoint.State{lock: checkpoint.Locked, suspend: checkpoint.Checkpointed, resume: checkpoint.Locked, unlock: checkpoint.Running}
)

// How a state is waited for.
const (
	readTries  = 3                      // of one reading, before it counts as failed
	undoTries  = 7                      // of bringing a target back
	firstPause = 2 * time.Millisecond   // between two tries; it doubles
	maxPause   = 250 * time.Millisecond // between two readings of a state that does not last
)

// observation is what one reading of a state came to: one of the two.
type observation struct {
	state checkpoint.State
	err   *checkpoint.DriverError
}

// observe reads the state of t once. A process that dies meanwhile, or whose PID
// another has got, is Gone, whatever the driver says of the PID.
func (d *Driver) observe(t checkpoint.Target) observation {
	if _, ok, err := alive(getState, t); err != nil || !ok {
		return observation{checkpoint.Gone, err}
	}
	n, f := d.backend.read(t.PID)
	if _, ok, err := alive(getState, t); err != nil || !ok {
		return observation{checkpoint.Gone, err}
	}
	if f != nil {
		return observation{err: report(f.kind, getState, t, f, "")}
	}
	return observation{state: stateOf(n)}
}

// steady reads until the state is one that lasts. A reading that fails is tried anew:
// what the driver is to be told next hangs on it.
func (d *Driver) steady(t checkpoint.Target) observation {
	pause := firstPause
	for tries := 1; ; {
		o := d.observe(t)
		switch {
		case o.err != nil && (tries == readTries || errors.Is(o.err, lockstep.ErrInvalid)):
			return o
		case o.err != nil:
			tries++
			continue
		case o.state != checkpoint.Checkpointing && o.state != checkpoint.Restoring:
			return o
		}
		if !d.pause(pause) {
			return o
		}
		pause = min(2*pause, maxPause)
	}
}

// pause waits, and reports false once the driver is closed.
func (d *Driver) pause(p time.Duration) bool {
	timer := time.NewTimer(p)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.closing:
		return false
	}
}

// perform makes the call that j is for: it reads the state, calls if there is a need,
// and goes by what it reads afterwards.
func (d *Driver) perform(j *job) (checkpoint.State, *checkpoint.DriverError) {
	if j.request.do == undo {
		return d.bringBack(j)
	}
	before := d.steady(j.target)
	if before.err != nil {
		return "", before.err
	}
	if e, done := d.ready(j, before.state); done {
		return before.state, e
	}
	if d.isAbandoned(j) { // nobody wants it any more, and nothing was done
		return before.state, &checkpoint.DriverError{Kind: checkpoint.ErrTimeout, Call: j.request.do.String(), PID: j.target.PID, State: before.state}
	}
	d.owe(j.slot) // before the call, so that nothing that comes of it is forgotten
	j.acted = true
	f := d.backend.act(j.request)
	return d.judge(j, f, d.steady(j.target))
}

// ready says whether a target's state makes a call needless or forbids it.
func (d *Driver) ready(j *job, s checkpoint.State) (e *checkpoint.DriverError, done bool) {
	do, call := j.request.do, j.request.do.String()
	switch {
	case s == from[do]:
		e = d.foreseen(j, j.request, s)
		return e, e != nil
	case s == to[do]:
		if do == lock || do == suspend {
			d.owe(j.slot) // it is this driver's from now on, whoever did it
		}
		return nil, true
	case s == checkpoint.Gone:
		return gone(call, j.target), true
	case s == checkpoint.Failed:
		return d.wedge(j, nil, "the driver says so"), true
	case !s.Known():
		return refuse(checkpoint.ErrDriver, call, j.target, s, "state", string(s), "nobody knows what it means, so the target is left alone"), true
	}
	return refuse(checkpoint.ErrIllegalState, call, j.target, s, "state", string(s), "want "+string(from[do])), true
}

// judge says what came of a call that was made, from what the driver said and what
// was read afterwards.
func (d *Driver) judge(j *job, f *failure, o observation) (checkpoint.State, *checkpoint.DriverError) {
	do, call, s := j.request.do, j.request.do.String(), o.state
	switch {
	case o.err != nil: // nobody knows, so it stays owed
		e := report(checkpoint.ErrDriver, call, j.target, f, "")
		e.Err = errors.Join(e.Err, o.err)
		return "", e
	case s == checkpoint.Gone:
		if do == lock && f == nil {
			d.release(j.target)
		}
		return s, report(checkpoint.ErrGone, call, j.target, f, s)
	case s == checkpoint.Failed:
		return s, d.wedge(j, f, "the driver says so")
	case !s.Known():
		return s, report(checkpoint.ErrDriver, call, j.target, f, s)
	case wedges(do, f) && s == checkpoint.Checkpointed:
		return checkpoint.Failed, d.wedge(j, f, "it could not be restored, and will not be")
	case f == nil && s != to[do]:
		return s, liar(j, s)
	case f == nil:
		return s, nil
	}
	return d.blame(j, f, s)
}

// blame says what came of a call that failed, as the driver says, and left the target
// alive in a state s that is known. The way into a pause, Lock and Suspend, needs code
// and state to agree; on the way out the state is all that counts.
func (d *Driver) blame(j *job, f *failure, s checkpoint.State) (checkpoint.State, *checkpoint.DriverError) {
	do, call := j.request.do, j.request.do.String()
	switch {
	case s == to[do] && (do == resume || do == unlock):
		return s, nil
	case s == to[do] && do == lock && f.code != illegalState:
		// Nobody will unlock what failed. With 401 it is somebody else's lock.
		return d.unwanted(j, f)
	case do == resume && f.code == invalidValue && len(j.request.pairs) > 0:
		e := report(lockstep.ErrInvalid, call, j.target, f, s)
		e.Err = invalid("resume", "Map", "", "the driver refuses it: want every device of the target, and devices of the same chip")
		return s, e
	}
	return s, report(f.kind, call, j.target, f, s)
}

// wedges says whether a failed call has broken the target for good: after a Restore
// that ran out of memory all later ones fail.
func wedges(do verb, f *failure) bool {
	return do == resume && f != nil && (f.code == outOfMemory || f.code == osCall)
}

// liar is the error of a call that said it worked, where the state says otherwise.
func liar(j *job, s checkpoint.State) *checkpoint.DriverError {
	do := j.request.do
	if s == from[do] {
		return refuse(checkpoint.ErrDriver, do.String(), j.target, s, "state", string(s), "the driver says that it worked, but nothing has changed")
	}
	return refuse(checkpoint.ErrIllegalState, do.String(), j.target, s, "state", string(s), "somebody else has changed it meanwhile")
}

// wedge notes that only killing the target helps, and returns the error that says so.
func (d *Driver) wedge(j *job, f *failure, why string) *checkpoint.DriverError {
	e := report(checkpoint.ErrWedged, j.request.do.String(), j.target, f, checkpoint.Failed)
	cause := error(&lockstep.Error{Kind: lockstep.ErrConflict, Op: "cuda", Field: "target", Reason: why + ": kill it and start it from its image"})
	if f != nil && f.kind != nil {
		cause = errors.Join(f.kind, cause)
	}
	e.Err = errors.Join(e.Err, cause)
	d.mu.Lock()
	defer d.mu.Unlock()
	j.slot.wedged = cause
	return e
}

// unwanted undoes a Lock that failed and locked all the same.
func (d *Driver) unwanted(j *job, f *failure) (checkpoint.State, *checkpoint.DriverError) {
	s, e := d.bringBack(j)
	if e != nil && s == "" {
		s = checkpoint.Locked
	}
	return s, report(f.kind, j.request.do.String(), j.target, f, s)
}

// release unlocks a PID that another process got while it was being locked: what was
// locked is then a stranger, whom nobody else would unlock.
func (d *Driver) release(t checkpoint.Target) {
	p, ok, err := look(t.PID)
	if err != nil || !ok || p.dead() || p.start == t.Start {
		return
	}
	if n, f := d.backend.read(t.PID); f == nil && stateOf(n) == checkpoint.Locked {
		_ = d.backend.act(request{do: unlock, pid: t.PID, start: p.start})
	}
}
