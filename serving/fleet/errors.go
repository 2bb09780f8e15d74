package fleet

import (
	"cmp"
	"errors"
	"math/bits"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// million is the unit of accuracies and shares: they are in millionths.
const million = 1_000_000

// Bounds of what is told.
const (
	maxItems  = 1 << 12 // sessions, models, groups
	maxPrice  = int64(1) << 40
	maxMemory = lockstep.Bytes(1) << 50
	maxSpan   = 100 * time.Hour
)

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

// rate checks requests a second; NaN never is one.
func (f *faults) rate(field string, v float64) {
	if !(v >= 0 && v <= 1e9) {
		f.bad(field, strconv.FormatFloat(v, 'g', -1, 64), "want 0 to 1e9")
	}
}

// names checks that every ID is usable and stands once.
func (f *faults) names(list string, n int, id func(i int) ID) {
	seen := make(map[ID]bool, n)
	for i := range n {
		field := list + "[" + strconv.Itoa(i) + "].ID"
		switch {
		case lockstep.JobID(id(i)).Validate() != nil:
			f.bad(field, errtext.Quote(id(i)), "is no usable name")
		case seen[id(i)]:
			f.errs = append(f.errs, fault(lockstep.ErrDuplicate, f.op, field, errtext.Quote(id(i)), "stands twice"))
		}
		seen[id(i)] = true
	}
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "fleet: " + op, Field: field, Value: value, Reason: reason}
}

// compareProducts compares a × b and c × d, none of which is negative.
func compareProducts(a, b, c, d int64) int {
	ah, al := bits.Mul64(uint64(a), uint64(b))
	ch, cl := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(ah, ch), cmp.Compare(al, cl))
}
