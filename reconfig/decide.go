package reconfig

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// defaultMargin is how many steps more there must be, in millionths.
const defaultMargin = 10_000

// ShouldReplan says whether it pays to go from a layout to another one: whether as
// many steps and margin more (0.01 for 0; AnyGain for none) are done within the
// horizon if cost, the time that the move takes, is spent first. An old estimate
// without Iteration is a job that stands still: then it pays if the move ends within
// the horizon. The margin keeps two layouts that are about as good from taking turns.
func ShouldReplan(old, next Estimate, cost, horizon time.Duration, margin float64) bool {
	if next.Iteration <= 0 || horizon <= 0 || cost < 0 || cost >= horizon || old.Iteration < 0 {
		return false
	}
	if old.Iteration == 0 {
		return true
	}
	more := int64(defaultMargin)
	switch {
	case margin == AnyGain:
		more = 0
	case margin > 0 && margin <= 1e6:
		more = int64(math.Round(float64(margin * whole)))
	case margin != 0:
		return false
	}
	// (horizon-cost)/next > (1+margin)·horizon/old
	gain := int128.Product(int64(horizon-cost), int64(old.Iteration))
	stay := int128.Product(int64(horizon), int64(next.Iteration))
	return int128.CmpProducts(gain, whole, stay, uint64(whole+more)) > 0
}
