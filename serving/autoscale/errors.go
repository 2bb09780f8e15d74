package autoscale

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// in reads the times of this package.
const in = instant.In("autoscale")

// faults collects what a validator finds, in the order in which it looks.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, fault(lockstep.ErrInvalid, f.op, field, value, reason))
}

// count checks a whole number.
func (f *faults) count(field string, v, least, most int64) {
	if v < least || v > most {
		f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
}

// span checks a length of time.
func (f *faults) span(field string, v, least, most time.Duration) {
	if v < least || v > most {
		f.bad(field, v.String(), "want "+least.String()+" to "+most.String())
	}
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "autoscale: " + op, Field: field, Value: value, Reason: reason}
}

// or returns v, or the default where v is zero.
func or[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}
