package meter

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// faults collects what a validator finds.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

func (f *faults) add(err error) {
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "meter: " + f.op, Field: field, Value: value, Reason: reason})
}

func (f *faults) count(field string, n, most int) {
	if n < 0 || n > most {
		f.bad(field, strconv.Itoa(n), "want 0 to "+strconv.Itoa(most))
	}
}
