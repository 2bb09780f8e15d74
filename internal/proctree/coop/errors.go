package coop

import "errors"

// The kinds of error, beside those of package lockstep.
var (
	// ErrProtocol is the kind where the other side does not keep to the protocol.
	ErrProtocol = errors.New("not as the protocol has it")

	// ErrRefused is the kind where a supervisor does not want a hook.
	ErrRefused = errors.New("refused")

	// ErrUnsupported is the kind where the system has no peer credentials.
	ErrUnsupported = errors.New("not supported here")
)
