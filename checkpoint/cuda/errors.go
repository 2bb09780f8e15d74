package cuda

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// invalid builds the error of an input that can never be right.
func invalid(call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "cuda: " + call, Field: field, Value: value, Reason: reason}
}

// wrong builds the error of a call whose input is wrong; nothing was called.
func wrong(call string, t checkpoint.Target, err error) *checkpoint.DriverError {
	return &checkpoint.DriverError{Kind: lockstep.ErrInvalid, Call: call, PID: t.PID, Err: err}
}

// refuse builds the error of a call that was not made, for a reason that a field of
// the target or of the configuration has.
func refuse(kind error, call string, t checkpoint.Target, s checkpoint.State, field, value, reason string) *checkpoint.DriverError {
	return &checkpoint.DriverError{
		Kind: kind, Call: call, PID: t.PID, State: s,
		Err: &lockstep.Error{Kind: lockstep.ErrConflict, Op: "cuda", Field: field, Value: value, Reason: reason},
	}
}

// gone builds the error of a target that is no more.
func gone(call string, t checkpoint.Target) *checkpoint.DriverError {
	return &checkpoint.DriverError{Kind: checkpoint.ErrGone, Call: call, PID: t.PID, State: checkpoint.Gone}
}

// report builds the error of a call that was made.
func report(kind error, call string, t checkpoint.Target, f *failure, s checkpoint.State) *checkpoint.DriverError {
	e := &checkpoint.DriverError{Kind: kind, Call: call, PID: t.PID, State: s}
	if f == nil {
		return e
	}
	if f.call != "" {
		e.Call = f.call
	}
	e.Err = f.err
	if f.code != success {
		e.Code, e.Name = int(f.code), describe(f.code).name
	}
	return e
}
