package llm

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// in reads the times of this package.
const in instant.In = "llm"

// Limits on what is accepted, so that sums and products stay in 64 bits.
const (
	maxSpan   = 100 * time.Hour
	maxTokens = 1 << 24 // of a prompt and of an output
	maxBlocks = 1 << 26
	maxQueue  = 1 << 24
)

// Why a request is refused, besides serving.ReasonFull and serving.ReasonDeadline.
const (
	ReasonTooLong lockstep.Reason = "too-long" // ReasonTooLong: its tokens need more blocks than there are.
	ReasonPace    lockstep.Reason = "pace"     // ReasonPace: it would miss its TPOT even if it ran alone.
)

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "llm: " + op, Field: field, Value: value, Reason: reason}
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

// checkFraction refuses what is not in [0, most).
func checkFraction(op, field string, f, most float64) error {
	if !(f >= 0 && f < most) {
		return invalid(op, field, formatFloat(f), "must be from 0 up to, and without, "+formatFloat(most))
	}
	return nil
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
