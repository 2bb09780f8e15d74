package gate

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// The kinds of error, beside those of package lockstep.
var (
	// ErrUnsupported is the kind where this system cannot do what a gate needs.
	ErrUnsupported = proctree.ErrUnsupported

	// ErrTimeout is the kind where something was not done in time.
	ErrTimeout = proctree.ErrTimeout

	// ErrFailed is the kind where the kernel refused to start, signal or end a trial.
	ErrFailed = proctree.ErrFailed

	// ErrRefused is the kind where the supervisor does not take a hook.
	ErrRefused = coop.ErrRefused

	// ErrProtocol is the kind where the other side breaks the protocol.
	ErrProtocol = coop.ErrProtocol
)

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "gate: " + op, Field: field, Value: value, Reason: reason}
}
