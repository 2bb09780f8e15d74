package cooperative

import (
	"context"
	"errors"
	"os"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// The kinds of error of a Hook, beside those of packages lockstep and checkpoint.
var (
	// ErrLeave is what Hook.Next returns when the job is to end: the loop is left, and the
	// image that the host asked for is there.
	ErrLeave = errors.New("the job is to leave its loop")

	// ErrRefused is the kind where the host does not take a hook.
	ErrRefused = coop.ErrRefused

	// ErrProtocol is the kind where the other side breaks the protocol.
	ErrProtocol = coop.ErrProtocol
)

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "checkpoint/cooperative: " + op, Field: field, Value: value, Reason: reason}
}

// The words of a refusal.
const (
	wordLate   = "late"   // the step was not reached in time
	wordPassed = "passed" // the step is over
	wordState  = "state"  // the hook does not stand still
	wordSave   = "save"   // the save failed
	wordSpace  = "space"  // there is no room for it
	wordNone   = "none"   // the hook cannot save
)

// kindOf returns what a caller branches on for an error of a request.
func kindOf(err error) error {
	for _, kind := range []error{
		lockstep.ErrInvalid, checkpoint.ErrGone, checkpoint.ErrInFlight, checkpoint.ErrTimeout, checkpoint.ErrIllegalState,
		checkpoint.ErrNoSpace, checkpoint.ErrCorrupt, checkpoint.ErrUnsupported, checkpoint.ErrRefused,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return checkpoint.ErrTimeout
	}
	return checkpoint.ErrDriver
}

// refusal is what a hook that says no means.
func refusal(verb, word string) error {
	kind := checkpoint.ErrRefused
	switch word {
	case wordLate:
		kind = checkpoint.ErrTimeout
	case wordState:
		kind = checkpoint.ErrIllegalState
	case wordSpace:
		kind = checkpoint.ErrNoSpace
	case wordNone:
		kind = checkpoint.ErrUnsupported
	}
	return fault(kind, verb, "hook", word, "the hook refuses")
}
