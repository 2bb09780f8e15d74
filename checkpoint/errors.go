package checkpoint

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// The kinds of failure that callers branch on, besides those of package
// lockstep. Text is for people.
var (
	ErrUnsupported  = errors.New("not supported")          // ErrUnsupported: this driver, or this target, cannot do it.
	ErrTimeout      = errors.New("timed out")              // ErrTimeout: the target did not drain in time and was left as it was.
	ErrIllegalState = errors.New("illegal state")          // ErrIllegalState: the target is not in the state that the call needs.
	ErrInFlight     = errors.New("still in flight")        // ErrInFlight: a call that outlived its context has not ended; read the state later.
	ErrGone         = errors.New("target is gone")         // ErrGone: the process ended, or its PID is another's now.
	ErrWedged       = errors.New("target is wedged")       // ErrWedged: only killing the target helps; start it from its last image.
	ErrMemory       = errors.New("out of memory")          // ErrMemory: the host or the device has no room.
	ErrPermission   = errors.New("not permitted")          // ErrPermission: the caller lacks a right, or the container hides the target.
	ErrDriver       = errors.New("driver failed")          // ErrDriver: any other failure of the driver, or of what stands behind it.
	ErrFenced       = errors.New("fenced")                 // ErrFenced: a newer leader has taken over.
	ErrCorrupt      = errors.New("corrupt image")          // ErrCorrupt: what was read is not what was written.
	ErrNoSpace      = errors.New("no space")               // ErrNoSpace: the store is full; the last committed epoch is as it was.
	ErrRefused      = errors.New("refused by the process") // ErrRefused: a cooperating process said no.
)

// DriverError is a call of a driver that failed.
type DriverError struct {
	Kind  error  // Kind is one of the sentinels of this package; errors.Is finds it.
	Call  string // Call is what was called, such as "cuCheckpointProcessLock".
	PID   int    // PID is the target's; 0 if there was none.
	Code  int    // Code is the driver's own number for the failure; 0 if it gave none.
	Name  string // Name is the driver's name for Code, such as "CUDA_ERROR_NOT_READY".
	State State  // State is what was read back afterwards; "" if it could not be read.
	Err   error  // Err is the cause below, if there is one.
}

// Error returns the text of e on one line.
func (e *DriverError) Error() string {
	s := "checkpoint: " + e.Call
	if e.PID != 0 {
		s += ": pid " + strconv.Itoa(e.PID)
	}
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
	if e.Code != 0 || e.Name != "" {
		s += fmt.Sprintf(" (%s %d)", e.Name, e.Code)
	}
	if e.State != "" {
		s += ", now " + string(e.State)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the kind of e and its cause.
func (e *DriverError) Unwrap() []error {
	list := make([]error, 0, 2)
	if e.Kind != nil {
		list = append(list, e.Kind)
	}
	if e.Err != nil {
		list = append(list, e.Err)
	}
	return list
}

// fault builds the *lockstep.Error of a call of this package.
func fault(kind error, call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "checkpoint: " + call, Field: field, Value: value, Reason: reason}
}
