package fairness

import (
	"math/bits"

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

// cmpRatios compares a/b and c/d, none of which is negative, b and d positive, by
// their cross products in 256 bits.
func cmpRatios(a, b, c, d int128.Int) int {
	x, y := wideMul(a, d), wideMul(c, b)
	for i := len(x) - 1; i >= 0; i-- {
		if x[i] != y[i] {
			if x[i] < y[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// wideMul returns a·b, neither negative, in words from the lowest.
func wideMul(a, b int128.Int) (p [4]uint64) {
	ah, al := a.Words()
	bh, bl := b.Words()
	var carry uint64
	p[1], p[0] = bits.Mul64(al, bl)
	add := func(at int, hi, lo uint64) {
		p[at], carry = bits.Add64(p[at], lo, 0)
		p[at+1], carry = bits.Add64(p[at+1], hi, carry)
		if at+2 < len(p) {
			p[at+2] += carry
		}
	}
	hi, lo := bits.Mul64(al, bh)
	add(1, hi, lo)
	hi, lo = bits.Mul64(ah, bl)
	add(1, hi, lo)
	hi, lo = bits.Mul64(ah, bh)
	add(2, hi, lo)
	return p
}

// fault returns the error of this package's calls.
func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + call, Field: field, Value: value, Reason: reason}
}
