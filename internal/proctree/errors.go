package proctree

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// The kinds of error, beside those of package lockstep.
var (
	// ErrUnsupported is the kind where this system or kernel lacks what a call needs.
	ErrUnsupported = errors.New("not supported here")

	// ErrTimeout is the kind where a context ended before a call was done.
	ErrTimeout = errors.New("not done in time")

	// ErrFailed is the kind where the kernel refused a call.
	ErrFailed = errors.New("the kernel refused")
)

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "proctree: " + op, Field: field, Value: value, Reason: reason}
}

// refusal is a signal that the kernel did not send. It is os.ErrPermission as well if a
// right was missing.
func refusal(field string, id Identity, err error) error {
	e := fault(ErrFailed, "signal", field, id.String(), err.Error())
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (%w)", e, os.ErrPermission)
	}
	return e
}

// StuckError says which processes kept a call from being done in time. It is
// ErrTimeout, and the error of the context as well.
type StuckError struct {
	Op      string    // Op is the call: "pause", "resume", "ask", "await", "terminate" or "wait".
	Members []Process // Members are the processes that were not where they should be, by pid; the caller owns them.
	Err     error     // Err is the error of the context.
}

// Error returns the text of e on one line.
func (e *StuckError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "proctree: %s: %d processes stand in the way", e.Op, len(e.Members))
	for i, p := range e.Members {
		if i == 8 {
			b.WriteString(", and more")
			break
		}
		fmt.Fprintf(&b, ", %d %q %c", p.PID, p.Name, p.State)
	}
	return b.String()
}

// Unwrap returns ErrTimeout and the error of the context.
func (e *StuckError) Unwrap() []error { return []error{ErrTimeout, e.Err} }
