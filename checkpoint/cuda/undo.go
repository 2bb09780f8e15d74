package cuda

import (
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// bringBack takes a target to Running from wherever it is, step by step, going by the
// state alone. It tries again what fails without having wedged the target, for about
// a quarter of a second. The state it returns is the last one read, "" if none could be.
func (d *Driver) bringBack(j *job) (checkpoint.State, *checkpoint.DriverError) {
	var last *checkpoint.DriverError
	seen, pause := checkpoint.State(""), firstPause
	for failures := 0; failures < undoTries; {
		o := d.steady(j.target)
		if o.err == nil {
			if seen = o.state; seen == checkpoint.Running {
				return seen, nil
			}
			last = d.step(j, o.state)
			if last != nil && last.Kind == checkpoint.ErrGone {
				return checkpoint.Gone, last
			}
			if final(last) {
				return last.State, last
			}
		} else {
			last = o.err
		}
		if last == nil {
			continue
		}
		failures++
		if !d.pause(pause) {
			break
		}
		pause *= 2
	}
	last.State = seen
	return seen, last
}

// final says whether trying again is in vain.
func final(e *checkpoint.DriverError) bool {
	return e != nil && e.Kind == checkpoint.ErrWedged
}

// step makes the one call that leads a target towards Running. What was to go to other
// devices goes there, since those that it came from may be somebody else's by now.
func (d *Driver) step(j *job, s checkpoint.State) *checkpoint.DriverError {
	r := request{do: unlock, pid: j.target.PID, start: j.target.Start}
	switch s {
	case checkpoint.Locked:
	case checkpoint.Checkpointed:
		r.do, r.pairs = resume, j.request.pairs
		if e := d.foreseen(j, r, s); e != nil {
			return e
		}
	case checkpoint.Gone:
		return gone(j.request.do.String(), j.target)
	case checkpoint.Failed:
		return d.wedge(j, nil, "the driver says so")
	default: // it is left alone, and read again: a number may have been a slip
		return refuse(checkpoint.ErrDriver, j.request.do.String(), j.target, s, "state", string(s), "nobody knows how to undo it")
	}
	d.owe(j.slot)
	f := d.backend.act(r)
	part := &job{target: j.target, request: r, slot: j.slot}
	_, e := d.judge(part, f, d.steady(j.target))
	return e
}
