package serving

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// in reads the times of this package.
const in instant.In = "serving"

// maxSpan is the longest time that a configuration may name, so that sums and products stay in 64 bits.
const maxSpan = 100 * time.Hour

// Why a request is not served.
const (
	ReasonFull     lockstep.Reason = "full"     // ReasonFull: as many requests wait as may.
	ReasonDeadline lockstep.Reason = "deadline" // ReasonDeadline: it could not be over by its deadline any more.
	ReasonTimeout  lockstep.Reason = "timeout"  // ReasonTimeout: it waited for longer than it may.
)

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "serving: " + op, Field: field, Value: value, Reason: reason}
}

func invalid(op, field, value, reason string) error {
	return fault(lockstep.ErrInvalid, op, field, value, reason)
}

// checkSpan refuses a time that is negative or longer than is kept.
func checkSpan(op, field string, d time.Duration) error {
	if d < 0 || d > maxSpan {
		return invalid(op, field, d.String(), "must be from 0 to "+maxSpan.String())
	}
	return nil
}

// checkInt refuses a number outside a range.
func checkInt(op, field string, v, least, most int) error {
	if v < least || v > most {
		return invalid(op, field, strconv.Itoa(v), "must be from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return nil
}

// formatFloat writes f for an error.
func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
