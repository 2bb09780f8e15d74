package fairness

import (
	"cmp"
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
	x3, x2, x1, x0 := wideMul(a, d)
	y3, y2, y1, y0 := wideMul(c, b)
	switch {
	case x3 != y3:
		return cmp.Compare(x3, y3)
	case x2 != y2:
		return cmp.Compare(x2, y2)
	case x1 != y1:
		return cmp.Compare(x1, y1)
	}
	return cmp.Compare(x0, y0)
}

// wideMul returns a·b, neither negative, in words from the highest.
func wideMul(a, b int128.Int) (p3, p2, p1, p0 uint64) {
	ah, al := a.Words()
	bh, bl := b.Words()
	p1, p0 = bits.Mul64(al, bl)
	if ah|bh == 0 {
		return 0, 0, p1, p0
	}
	h1, l1 := bits.Mul64(al, bh)
	h2, l2 := bits.Mul64(ah, bl)
	p3, p2 = bits.Mul64(ah, bh)
	p1, c := bits.Add64(p1, l1, 0)
	p2, c = bits.Add64(p2, h1, c)
	p3 += c
	p1, c = bits.Add64(p1, l2, 0)
	p2, c = bits.Add64(p2, h2, c)
	return p3 + c, p2, p1, p0
}

// fault returns the error of this package's calls.
func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + call, Field: field, Value: value, Reason: reason}
}
