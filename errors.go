package lockstep

import (
	"errors"
	"strings"
)

// The kinds of error that every package returns. A caller branches on these
// with errors.Is and reads the details from *Error with errors.As. After any
// error nothing has changed.
var (
	// ErrInvalid is the kind of an input that can never be right: a field out
	// of range, a malformed text, a gang without roles.
	ErrInvalid = errors.New("invalid input")

	// ErrDuplicate is the kind of an ID that is already in use.
	ErrDuplicate = errors.New("duplicate")

	// ErrUnknown is the kind of a reference to something that is not there.
	ErrUnknown = errors.New("unknown")

	// ErrStale is the kind of a plan, mark or token made from an older state.
	ErrStale = errors.New("stale")

	// ErrPast is the kind of a time before one already seen.
	ErrPast = errors.New("time went backwards")

	// ErrConflict is the kind of a call that is legal in itself but not in the
	// present state: devices already taken, a job that is not in that phase.
	ErrConflict = errors.New("conflict")
)

// Error says which field of which call was wrong and why. Its text reads
// "op: field = value: reason"; the text is for people and may change.
type Error struct {
	Kind   error  // Kind is one of the sentinels of this package; errors.Is finds it.
	Op     string // Op is the package and the call, such as "gang: submit".
	Field  string // Field is the path of the field or argument, such as "Roles[0].Min".
	Value  string // Value is what was given, as text; "" when it does not help.
	Reason string // Reason is what would have been right, or what stands in the way.
}

// Error returns the text of e on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Field != "" {
		b.WriteString(": ")
		b.WriteString(e.Field)
		if e.Value != "" {
			b.WriteString(" = ")
			b.WriteString(e.Value)
		}
	}
	b.WriteString(": ")
	if e.Reason != "" {
		b.WriteString(e.Reason)
	} else if e.Kind != nil {
		b.WriteString(e.Kind.Error())
	}
	return b.String()
}

// Unwrap returns the kind of e.
func (e *Error) Unwrap() error { return e.Kind }

// invalid builds the common error of this package's validators.
func invalid(op, field, value, reason string) *Error {
	return &Error{Kind: ErrInvalid, Op: "lockstep: " + op, Field: field, Value: value, Reason: reason}
}
