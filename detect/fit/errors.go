package fit

import (
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// ErrUnidentifiable is the kind of a fit that the samples do not determine: too few of
// them, or a quantity that does not vary by itself. Field of the *lockstep.Error says
// which. It is an ErrInvalid too.
var ErrUnidentifiable = fmt.Errorf("%w: the samples do not determine the fit", lockstep.ErrInvalid)

// unidentifiable says what a fit lacks.
func unidentifiable(field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: ErrUnidentifiable, Op: "fit: solve", Field: field, Value: value, Reason: reason}
}

// invalid builds the common error of this package.
func invalid(op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "fit: " + op, Field: field, Value: value, Reason: reason}
}

func text(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// at names an element of a slice in an error.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
