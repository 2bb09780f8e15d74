package topology

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// maxFaults is how many faults one call reports; the rest it counts.
const maxFaults = 64

// faults collects the faults of one call.
type faults struct {
	op    string
	errs  []error
	count int
}

func (f *faults) add(kind error, field, value, reason string) {
	if f.count++; f.count <= maxFaults {
		f.errs = append(f.errs, &lockstep.Error{Kind: kind, Op: f.op, Field: field, Value: value, Reason: reason})
	}
}

func (f *faults) invalid(field, value, reason string) {
	f.add(lockstep.ErrInvalid, field, value, reason)
}

// name checks what stands in text forms by the rules for node IDs.
func (f *faults) name(field, name string) {
	var e *lockstep.Error
	if err := lockstep.NodeID(name).Validate(); errors.As(err, &e) {
		f.invalid(field, quote(name), e.Reason)
	}
}

// err returns the faults joined, nil where there are none.
func (f *faults) err() error {
	if f.count > maxFaults {
		more := f.count - maxFaults
		return errors.Join(append(f.errs, &lockstep.Error{
			Kind: lockstep.ErrInvalid, Op: f.op, Reason: strconv.Itoa(more) + " more faults",
		})...)
	}
	return errors.Join(f.errs...)
}

func quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.Quote(s)
}
