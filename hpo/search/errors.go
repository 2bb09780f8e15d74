package search

import "github.com/lockstep-gpu/lockstep"

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "search: " + op, Field: field, Value: value, Reason: reason}
}
