package bubble

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Why a window is not filled, a quantum not started, or what Observe found.
const (
	ReasonSamples lockstep.Reason = "samples" // ReasonSamples: too few samples of jitter for the guarantee.
	ReasonDrift   lockstep.Reason = "drift"   // ReasonDrift: the window's length has changed and is learnt anew.
	ReasonScale   lockstep.Reason = "scale"   // ReasonScale: windows scatter more than the samples did.
	ReasonHarm    lockstep.Reason = "harm"    // ReasonHarm: the main job had to wait more often than it may.
	ReasonRearmed lockstep.Reason = "rearmed" // ReasonRearmed: what was off is filled again.
	ReasonMemory  lockstep.Reason = "memory"  // ReasonMemory: nothing that may run in the window is loaded beside the main job's peak.
	ReasonShort   lockstep.Reason = "short"   // ReasonShort: no quantum is safe in the time that is left.
	ReasonSupply  lockstep.Reason = "supply"  // ReasonSupply: the bundle has no such number of trial-steps left.
)

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "bubble: " + op, Field: field, Value: value, Reason: reason}
}

func invalid(op, field, value, reason string) *lockstep.Error {
	return fault(lockstep.ErrInvalid, op, field, value, reason)
}

// at names an element of a slice in an error.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// checkSpan refuses a time or a length that is negative or longer than is kept.
func checkSpan(op, field string, d time.Duration) error {
	if d < 0 || d > maxSpan {
		return invalid(op, field, d.String(), "must be from 0 to "+maxSpan.String())
	}
	return nil
}
