package int128

import (
	"math"
	"math/bits"
)

// MulDiv returns a × b / c rounded down, held at the end of int64. A negative a or b counts as 0; c is more than 0.
func MulDiv(a, b, c int64) int64 {
	q, _ := mulDiv(a, b, c)
	return q
}

// MulDivUp is MulDiv rounded up.
func MulDivUp(a, b, c int64) int64 {
	q, rest := mulDiv(a, b, c)
	if rest && q < math.MaxInt64 {
		q++
	}
	return q
}

func mulDiv(a, b, c int64) (q int64, rest bool) {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi >= uint64(c) { // the quotient would not fit in 64 bits
		return math.MaxInt64, false
	}
	quo, rem := bits.Div64(hi, lo, uint64(c))
	return int64(min(quo, math.MaxInt64)), rem != 0
}

// FloorDiv returns a / b rounded down, also where a is negative; b is more than 0.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
