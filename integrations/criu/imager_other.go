//go:build !linux

package criu

import (
	"context"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Imager dumps and loads with CRIU, on Linux. Here every call is checkpoint.ErrUnsupported.
type Imager struct{}

// NoCRIU is the reason of a limit: the program is not there, or its own check fails.
const NoCRIU lockstep.Reason = "no-criu"

// New returns an imager, or the faults of cfg.
func New(cfg Config) (*Imager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Imager{}, nil
}

// Probe says that CRIU is for Linux.
func (*Imager) Probe(context.Context) (checkpoint.Caps, error) {
	return checkpoint.Caps{Driver: "criu", Limits: []checkpoint.Unsupported{{What: checkpoint.CanImage, Reason: NoCRIU, Detail: "CRIU is for Linux"}}}, nil
}

// Dump is not supported here.
func (*Imager) Dump(_ context.Context, t checkpoint.Target, _ checkpoint.ImageWriter) error {
	return &checkpoint.DriverError{Kind: checkpoint.ErrUnsupported, Call: "dump", PID: t.PID}
}

// Load is not supported here.
func (*Imager) Load(context.Context, checkpoint.ImageReader) (checkpoint.Target, error) {
	return checkpoint.Target{}, &checkpoint.DriverError{Kind: checkpoint.ErrUnsupported, Call: "restore"}
}
