package sharing

import (
	"errors"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
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

// duplicate notes a name that stands twice where each may stand once.
func (f *faults) duplicate(field, name string) {
	f.errs = append(f.errs, fault(lockstep.ErrDuplicate, f.op, field, errtext.Quote(name), "named twice"))
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
