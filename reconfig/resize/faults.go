package resize

import (
	"errors"
	"math/bits"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Bounds of what is given.
const (
	maxReplicas = 1 << 20
	maxMicros   = 1 << 20
	maxSamples  = 1 << 40
)

// whole is 1 in the millionths in which rates, gains and margins count.
const whole = 1_000_000

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

// within notes a number that is not lo to hi.
func (f *faults) within(field string, v, lo, hi int64) {
	if v < lo || v > hi {
		f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10))
	}
}

// part returns a·i/n, rounded down, for 0 <= i <= n.
func part(a, i, n int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}
