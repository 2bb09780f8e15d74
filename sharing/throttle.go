package sharing

import (
	"cmp"
	"math/bits"
	"strconv"
	"time"
)

// Defaults of a throttle.
const (
	defaultTolerance = 50
	defaultRaise     = 50
	defaultCut       = 500
)

// Throttle is how far opportunistic tenants are held back so that a guaranteed one
// beside them is hardly slower than alone: their rate, in thousandths of all that
// they could launch, rises by a sum while its steps are in time and falls by a
// factor when they are not. The rate is the caller's to keep. The zero value is
// valid.
type Throttle struct {
	Tolerance int64 `json:"tolerance,omitempty"` // Tolerance is how much longer than alone a step may take, in thousandths of that, 1 to 10⁶; 0 means 50.
	Raise     int64 `json:"raise,omitempty"`     // Raise is what the rate gains by a step in time, 1 to 1000; 0 means 50.
	Cut       int64 `json:"cut,omitempty"`       // Cut is how much of the rate is left by a step that is late, in thousandths, 1 to 999; 0 means 500.
	Least     int64 `json:"least,omitempty"`     // Least is the rate below which it never falls, up to Most; 0 means that it may stop them.
	Most      int64 `json:"most,omitempty"`      // Most is the rate above which it never rises, 1 to 1000; 0 means 1000.
}

// Next returns the rate after a step of the guaranteed tenant that took step and
// takes alone when nobody is beside it. Both are more than 0 and rate is 0 to 1000,
// else that is ErrInvalid, as is a throttle that Validate refuses.
func (t Throttle) Next(rate int64, alone, step time.Duration) (int64, error) {
	f := faults{op: "sharing: throttle"}
	if rate < 0 || rate > wholeMille {
		f.bad("rate", strconv.FormatInt(rate, 10), "want 0 to 1000")
	}
	if alone < 1 {
		f.bad("alone", alone.String(), "want more than 0")
	}
	if step < 1 {
		f.bad("step", step.String(), "want more than 0")
	}
	t.check(&f)
	if len(f.errs) > 0 {
		return 0, f.err()
	}
	if late(alone, step, cmp.Or(t.Tolerance, defaultTolerance)) {
		rate = rate * cmp.Or(t.Cut, defaultCut) / wholeMille
	} else {
		rate += cmp.Or(t.Raise, defaultRaise)
	}
	return min(max(rate, t.Least), cmp.Or(t.Most, wholeMille)), nil
}

// late says whether step is more than tolerance thousandths longer than alone, exactly.
func late(alone, step time.Duration, tolerance int64) bool {
	hi, lo := bits.Mul64(uint64(step), wholeMille)
	limitHi, limitLo := bits.Mul64(uint64(alone), uint64(wholeMille+tolerance))
	return hi > limitHi || hi == limitHi && lo > limitLo
}

// Validate reports every fault of t, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (t Throttle) Validate() error {
	f := faults{op: "sharing: throttle"}
	t.check(&f)
	return f.err()
}

func (t Throttle) check(f *faults) {
	within := func(field string, v, most int64) {
		if v < 0 || v > most {
			f.bad(field, strconv.FormatInt(v, 10), "want 0 to "+strconv.FormatInt(most, 10))
		}
	}
	within("Tolerance", t.Tolerance, 1e6)
	within("Raise", t.Raise, wholeMille)
	within("Cut", t.Cut, wholeMille-1)
	within("Most", t.Most, wholeMille)
	within("Least", t.Least, min(max(cmp.Or(t.Most, wholeMille), 0), wholeMille))
}
