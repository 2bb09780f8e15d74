package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// ErrStillAlive is the kind where SIGKILL was sent and the kernel has not confirmed that
// all are dead: what they hold is not free. The error is a *StuckError.
var ErrStillAlive = errors.New("still alive after SIGKILL")

// StuckError says whom an ending has left alive. Terminate may be called again.
type StuckError struct {
	Kind error               // Kind is ErrStillAlive, or checkpoint.ErrTimeout if the caller's context ended before the grace was over; then nobody was killed.
	Of   checkpoint.Target   // Of is the target that was to be ended.
	Left []checkpoint.Target // Left are the processes that are alive, by pid, with the job and rank of Of.
	Err  error               // Err is the cause below: the end of the context, or what the kernel refused.
}

// Error returns the text of e on one line.
func (e *StuckError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint/process: terminate: pid %d: %v: %d processes", e.Of.PID, e.Kind, len(e.Left))
	for i, t := range e.Left {
		if i == 8 {
			b.WriteString(", and more")
			break
		}
		fmt.Fprintf(&b, ", %d", t.PID)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the kind of e and its cause.
func (e *StuckError) Unwrap() []error { return []error{e.Kind, e.Err} }

// fault is a call with bad input.
func fault(kind error, call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "checkpoint/process: " + call, Field: field, Value: value, Reason: reason}
}

// kindOf returns what a caller branches on for an error from below.
func kindOf(err error) error {
	switch {
	case errors.Is(err, lockstep.ErrUnknown), errors.Is(err, checkpoint.ErrGone):
		return checkpoint.ErrGone
	case errors.Is(err, checkpoint.ErrIllegalState):
		return checkpoint.ErrIllegalState
	case errors.Is(err, lockstep.ErrInvalid):
		return lockstep.ErrInvalid
	case errors.Is(err, os.ErrPermission):
		return checkpoint.ErrPermission
	case errors.Is(err, proctree.ErrTimeout), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return checkpoint.ErrTimeout
	case errors.Is(err, proctree.ErrUnsupported):
		return checkpoint.ErrUnsupported
	}
	return checkpoint.ErrDriver
}
