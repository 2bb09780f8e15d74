package moves

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// faults collects what validators find, in the order in which they look.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

// bad notes an invalid field; value is what was given, as it is to be shown.
func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: f.op, Field: field, Value: value, Reason: reason})
}

// wrap notes what a validator of another package found, as a fault of this operation.
func (f *faults) wrap(err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			f.wrap(one)
		}
		return
	}
	var e *lockstep.Error
	if errors.As(err, &e) {
		own := *e
		own.Op = f.op
		err = &own
	}
	f.errs = append(f.errs, err)
}

// infeasible is the answer where devices or state stand in the way, and no replica or
// stage is to be named.
func infeasible(l reconfig.Level, r lockstep.Reason, w reconfig.Witness) error {
	w.Replica, w.Stage = -1, -1
	return &reconfig.Infeasible{Level: l, Reason: r, Witness: w}
}

func text(n int) string { return strconv.Itoa(n) }
