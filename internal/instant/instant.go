package instant

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Never is after every other instant.
const Never = math.MaxInt64

// Add returns at+d, held at Never. It takes no negative d.
func Add(at int64, d time.Duration) int64 {
	if at > Never-int64(d) {
		return Never
	}
	return at + int64(d)
}

// In is the name of a package, such as "lease", that reads times.
type In string

// Nanos returns t, which was given as field of op, in nanoseconds since 1970.
func (in In) Nanos(op, field string, t time.Time) (int64, error) {
	ns, err := lockstep.Nanos(t)
	if err != nil {
		return 0, in.fault(lockstep.ErrInvalid, op, field, t, "must lie between 1677-09-21 and 2262-04-11")
	}
	return ns, nil
}

// SinceEpoch is Nanos that takes no time before 1970, so that the difference of
// two fits a time.Duration.
func (in In) SinceEpoch(op, field string, t time.Time) (int64, error) {
	ns, err := lockstep.Nanos(t)
	if err != nil || ns < 0 {
		return 0, in.fault(lockstep.ErrInvalid, op, field, t, "must lie between 1970-01-01 and 2262-04-11")
	}
	return ns, nil
}

// NotBefore refuses t, which is ns, if it is before last.
func (in In) NotBefore(op, field string, t time.Time, ns, last int64) error {
	if ns >= last {
		return nil
	}
	return in.fault(lockstep.ErrPast, op, field, t, "is before "+lockstep.FromNanos(last).String())
}

// fault names t in UTC and without its monotonic part, so that the text is the same everywhere.
func (in In) fault(kind error, op, field string, t time.Time, reason string) error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: t.Round(0).UTC().String(), Reason: reason}
}
