package autoscale

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// thousand is the unit of the package's parts: loads, targets and quantiles are in thousandths.
const thousand = 1_000

// scale returns v × mille / 1000, rounded towards zero; v may be negative.
func scale(v, mille int64) int64 {
	if v < 0 {
		return -int128.MulDiv(-v, mille, thousand)
	}
	return int128.MulDiv(v, mille, thousand)
}

// root returns the square root of v, rounded down. v is at most 2^62.
func root(v int64) int64 {
	if v <= 0 {
		return 0
	}
	x := int64(1) << ((bits.Len64(uint64(v)) + 1) / 2) // not below the root, from where Newton's steps only fall
	for {
		y := (x + v/x) / 2
		if y >= x {
			return x
		}
		x = y
	}
}

// replicas returns how many whole replicas a load in thousandths takes, held at the most there may be.
func replicas(load int64) int { return int(min(int128.MulDivUp(load, 1, thousand), MaxReplicas)) }
