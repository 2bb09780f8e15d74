package autoscale

import (
	"math"
	"math/bits"
)

// thousand is the unit of the package's parts: loads, targets and quantiles are in thousandths.
const thousand = 1_000

// mulDiv returns a × b / c rounded down, held at the end of int64. None is negative and c is not 0.
func mulDiv(a, b, c int64) int64 {
	q, _ := divide(a, b, c)
	return q
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	q, rest := divide(a, b, c)
	if rest && q < math.MaxInt64 {
		q++
	}
	return q
}

func divide(a, b, c int64) (q int64, rest bool) {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi >= uint64(c) {
		return math.MaxInt64, false
	}
	quo, rem := bits.Div64(hi, lo, uint64(c))
	return int64(min(quo, math.MaxInt64)), rem != 0
}

// scale returns v × mille / 1000, rounded towards zero; v may be negative.
func scale(v, mille int64) int64 {
	if v < 0 {
		return -mulDiv(-v, mille, thousand)
	}
	return mulDiv(v, mille, thousand)
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
func replicas(load int64) int { return int(min(mulDivUp(load, 1, thousand), MaxReplicas)) }
