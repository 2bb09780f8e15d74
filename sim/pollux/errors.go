package pollux

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "pollux: " + op, Field: field, Value: value, Reason: reason}
}

// at names a field of a line of a file or of an element of a list.
func at(what string, i int, field string) string { return what + "[" + strconv.Itoa(i) + "]." + field }
