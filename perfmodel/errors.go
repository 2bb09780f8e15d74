package perfmodel

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// faults collects what a validator finds, in the order in which it looks.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

// bad notes an invalid field; value is what was given, as it is to be shown.
func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, invalid(f.op, field, value, reason))
}

// within notes a number outside low to high.
func (f *faults) within(field string, v, low, high int64) {
	if v < low || v > high {
		f.bad(field, text(v), "want "+text(low)+" to "+text(high))
	}
}

// divides notes that the first number is not a multiple of the second.
func (f *faults) divides(field string, v, by int64, what string) {
	if by > 0 && v%by != 0 {
		f.bad(field, text(v), "want a multiple of "+what+" = "+text(by))
	}
}

// invalid builds this package's error.
func invalid(op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Value: value, Reason: reason}
}

// text returns a number as errors show it.
func text[T ~int | ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }
