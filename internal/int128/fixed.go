package int128

import "math/bits"

// Fixed is a number of at least 0 and below 2^128 in steps of 2^-64. The zero
// Fixed is 0; == compares.
type Fixed struct {
	hi, lo, frac uint64
}

// Nudge is how far below a whole number, in steps of 2^-64, a Fixed may be and
// still count as that number for Near: 2^-20.
const Nudge = 1 << 44

// Whole returns v, which must not be negative.
func Whole(v Int) Fixed { return Fixed{v.hi, v.lo, 0} }

// FixedFromWords returns the Fixed of the given words, as Words gives them.
func FixedFromWords(hi, lo, frac uint64) Fixed { return Fixed{hi, lo, frac} }

// Words returns the whole part of a, high word first, and its fraction in steps
// of 2^-64.
func (a Fixed) Words() (hi, lo, frac uint64) { return a.hi, a.lo, a.frac }

// Divide returns (dividend + carry×2^-64) / divisor, rounded down to a step of
// 2^-64, and the remainder in such steps, which is below divisor. The dividend
// is read as unsigned. It panics if divisor is 0.
func Divide(dividend Int, carry, divisor uint64) (quotient Fixed, remainder uint64) {
	hi, r := bits.Div64(0, dividend.hi, divisor)
	lo, r := bits.Div64(r, dividend.lo, divisor)
	frac, r := bits.Div64(r, carry, divisor)
	return Fixed{hi, lo, frac}, r
}

// Add returns a+b.
func (a Fixed) Add(b Fixed) Fixed {
	frac, c := bits.Add64(a.frac, b.frac, 0)
	lo, c := bits.Add64(a.lo, b.lo, c)
	hi, _ := bits.Add64(a.hi, b.hi, c)
	return Fixed{hi, lo, frac}
}

// Sub returns a-b, where b is at most a.
func (a Fixed) Sub(b Fixed) Fixed {
	frac, c := bits.Sub64(a.frac, b.frac, 0)
	lo, c := bits.Sub64(a.lo, b.lo, c)
	hi, _ := bits.Sub64(a.hi, b.hi, c)
	return Fixed{hi, lo, frac}
}

// Mul returns a×n.
func (a Fixed) Mul(n uint64) Fixed {
	c, frac := bits.Mul64(a.frac, n)
	h, lo := bits.Mul64(a.lo, n)
	lo, carry := bits.Add64(lo, c, 0)
	return Fixed{a.hi*n + h + carry, lo, frac}
}

// QuoRem returns a/n, rounded down to a whole number, and what is left over,
// fraction included: a = n×quotient + rest. It panics if n is 0.
func (a Fixed) QuoRem(n uint64) (quotient Int, rest Fixed) {
	hi, r := bits.Div64(0, a.hi, n)
	lo, r := bits.Div64(r, a.lo, n)
	return Int{hi, lo}, Fixed{0, r, a.frac}
}

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Fixed) Cmp(b Fixed) int {
	switch {
	case a == b:
		return 0
	case a.hi < b.hi, a.hi == b.hi && a.lo < b.lo,
		a.hi == b.hi && a.lo == b.lo && a.frac < b.frac:
		return -1
	}
	return 1
}

// Floor returns the whole part of a.
func (a Fixed) Floor() Int { return Int{a.hi, a.lo} }

// Near returns the whole part of a, where what is less than Nudge below a whole
// number counts as that number: quotients that were rounded down a few times
// and multiplied again come out as the whole numbers that they stand for.
func (a Fixed) Near() Int { return a.Add(Fixed{0, 0, Nudge}).Floor() }

// lift returns a whole a divided by 2^64, so that it can be multiplied by any
// uint64 without overflow.
func (a Fixed) lift() Fixed { return Fixed{0, a.hi, a.lo} }
