package profile

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
	f.errs = append(f.errs, fault(lockstep.ErrInvalid, f.op, field, value, reason))
}

// count checks a whole number.
func (f *faults) count(field string, v, least, most int64) {
	if v < least || v > most {
		f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
}

// figure checks a float; least is allowed, NaN never is.
func (f *faults) figure(field string, v, least, most float64) {
	if !(v >= least && v <= most) {
		f.bad(field, text(v), "want "+text(least)+" to "+text(most))
	}
}

// kind checks a name of a kind.
func (f *faults) kind(field string, k Kind) {
	f.wrap(field, lockstep.JobID(k).Validate())
}

// wrap notes what a validator of the root package found, if anything, under a field of this package.
func (f *faults) wrap(field string, err error) {
	var e *lockstep.Error
	if errors.As(err, &e) {
		f.errs = append(f.errs, fault(e.Kind, f.op, field, e.Value, e.Reason))
	}
}

// fault builds this package's error.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: op, Field: field, Value: value, Reason: reason}
}

func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
