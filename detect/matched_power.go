package detect

import (
	"math"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// matchedExcess is by how much, in logarithms, the odds of a fault have to exceed the threshold,
// besides: they count with the chance that it is this fault, and some information goes into
// learning level and scale.
const matchedExcess = 3.1

// reach returns the chance that a sum which gains half of its variance in the mean, as the
// logarithm of odds does (a gain of j in all has the variance 2 j), passes a limit on its way: the
// first passage of Brownian motion with drift.
func reach(limit, j float64) float64 {
	if !(j > 0) {
		return 0
	}
	sd := math.Sqrt(2 * j)
	back := num.Normal(-(j + limit) / sd)
	if back > 0 {
		back *= num.Exp(min(limit, 600))
	}
	return min(num.Normal((j-limit)/sd)+back, 1)
}

// neededInformation returns the gain in all with which the limit is reached with a chance.
func neededInformation(limit, chance float64) float64 {
	low, high := 0.0, 100*(limit+1)
	for range 60 {
		mid := (low + high) / 2
		if reach(limit, mid) < chance {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// chunkExcess is the same for a place whose chunk times are known.
const chunkExcess = 7.2
