package int128

import (
	"math"
	"math/big"
	"math/bits"
)

// Int is an integer from -2^127 to 2^127-1. The zero Int is 0; == compares.
type Int struct {
	hi, lo uint64 // two's complement
}

// Of returns v.
func Of(v int64) Int { return Int{uint64(v >> 63), uint64(v)} }

// Mul returns a×b, which must be below 2^127 to be read as an Int.
func Mul(a, b uint64) Int {
	hi, lo := bits.Mul64(a, b)
	return Int{hi, lo}
}

// Product returns a×b, which always fits.
func Product(a, b int64) Int {
	v := Mul(uint64(a), uint64(b))
	// Two's complement of a negative number is 2^64 more than it: take the other factor off the high word.
	v.hi -= uint64(a>>63&b) + uint64(b>>63&a)
	return v
}

// FromWords returns the Int whose two's complement is hi followed by lo.
func FromWords(hi, lo uint64) Int { return Int{hi, lo} }

// Words returns the two's complement of a, high word first.
func (a Int) Words() (hi, lo uint64) { return a.hi, a.lo }

// Add returns a+b.
func (a Int) Add(b Int) Int {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return Int{hi, lo}
}

// Sub returns a-b.
func (a Int) Sub(b Int) Int {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return Int{hi, lo}
}

// AddSat returns a+b, held at the ends.
func (a Int) AddSat(b Int) Int { return a.held(b, a.Add(b)) }

// SubSat returns a-b, held at the ends.
func (a Int) SubSat(b Int) Int { return a.held(Int{^b.hi, ^b.lo}, a.Sub(b)) }

// held returns sum, of a and a number with b's sign, or the end that it went past:
// then it has the sign that neither has.
func (a Int) held(b, sum Int) Int {
	if int64((a.hi^sum.hi)&(b.hi^sum.hi)) >= 0 {
		return sum
	}
	if a.Sign() < 0 {
		return Int{1 << 63, 0}
	}
	return Int{math.MaxInt64, math.MaxUint64}
}

// Neg returns -a.
func (a Int) Neg() Int { return Int{}.Sub(a) }

// Sign returns -1, 0 or 1.
func (a Int) Sign() int {
	switch {
	case int64(a.hi) < 0:
		return -1
	case a.hi|a.lo == 0:
		return 0
	}
	return 1
}

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Int) Cmp(b Int) int {
	switch {
	case a == b:
		return 0
	case int64(a.hi) < int64(b.hi), a.hi == b.hi && a.lo < b.lo:
		return -1
	}
	return 1
}

// CmpProducts compares a×m with b×n, for a and b of at least 0, without loss.
func CmpProducts(a Int, m uint64, b Int, n uint64) int {
	return Fixed{a.hi, a.lo, 0}.lift().Mul(m).Cmp(Fixed{b.hi, b.lo, 0}.lift().Mul(n))
}

// Float64 returns a, rounded, for reports.
func (a Int) Float64() float64 {
	if a.Sign() < 0 {
		return -a.Neg().unsigned()
	}
	return a.unsigned()
}

// unsigned returns the words of a read as an unsigned number.
func (a Int) unsigned() float64 {
	return math.Ldexp(float64(a.hi), 64) + float64(a.lo)
}

// Big returns a as a new big.Int.
func (a Int) Big() *big.Int {
	v := new(big.Int).SetInt64(int64(a.hi))
	return v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(a.lo))
}

// String returns a in decimal.
func (a Int) String() string { return a.Big().String() }

// longest is the length of the longest text that String writes.
const longest = len("-170141183460469231731687303715884105728")

// Parse reads what String writes; leading zeros may be there too, within the
// length of that.
func Parse(s string) (v Int, ok bool) {
	if len(s) > longest || s != "" && s[0] == '+' { // the length so that a megabyte of digits costs nothing
		return Int{}, false
	}
	b, ok := new(big.Int).SetString(s, 10)
	if !ok || b.BitLen() > 127 && b.Cmp(Int{1 << 63, 0}.Big()) != 0 {
		return Int{}, false
	}
	low := new(big.Int).And(b, new(big.Int).SetUint64(math.MaxUint64))
	return Int{uint64(b.Rsh(b, 64).Int64()), low.Uint64()}, true
}
