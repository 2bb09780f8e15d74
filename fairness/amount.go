package fairness

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

const in instant.In = "fairness" // whose times are read

// ratio returns a/b, and false where that is no number.
func ratio(a, b lockstep.GPUTime) (float64, bool) {
	if b.Sign() <= 0 {
		return 0, false
	}
	return int128.Int(a).Float64() / int128.Int(b).Float64(), true
}

// rated returns the service at rate over nanos.
func rated(rate lockstep.MilliGPU, nanos uint64) int128.Int {
	return int128.Mul(uint64(rate), nanos)
}

// fault returns the error of this package's calls.
func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + call, Field: field, Value: value, Reason: reason}
}
