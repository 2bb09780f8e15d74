package goodput

import (
	"errors"
	"math"
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
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: f.op, Field: field, Value: value, Reason: reason})
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

func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// quantum is the step in which ratios are compared, where a decision hangs on one.
const quantum = 1e6

// quantise returns v in millionths, rounded, held inside int64.
func quantise(v float64) int64 {
	v = math.Round(v * quantum)
	switch {
	case v <= math.MinInt64:
		return math.MinInt64
	case !(v < math.MaxInt64): // 2^63 as a float
		return math.MaxInt64
	}
	return int64(v)
}
