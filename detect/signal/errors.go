package signal

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// invalid builds the common error of this package.
func invalid(op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "signal: " + op, Field: field, Value: value, Reason: reason}
}

func text(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// at names an element of a slice in an error.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
