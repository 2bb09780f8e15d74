package drf

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Ratio is a fraction that is not negative, compared without rounding. The zero Ratio
// is 0. Equal ratios need not be == each other: use Cmp.
type Ratio struct {
	num, den, scale uint64 // num / (den × scale), each below 2^63; 0 where num is 0; infinite where den is 0
}

// RatioOf returns num/den: 0 where num is not above 0, infinite where den is not.
func RatioOf(num, den int64) Ratio { return ratio(num, den, 1) }

func ratio(num, den, scale int64) Ratio {
	if num <= 0 {
		return Ratio{}
	}
	if den <= 0 || scale <= 0 {
		return Ratio{num: 1}
	}
	return Ratio{uint64(num), uint64(den), uint64(scale)}
}

// Infinite reports whether r is more than any number.
func (r Ratio) Infinite() bool { return r.num != 0 && r.den == 0 }

// Cmp returns -1, 0 or 1 as r is less than, equal to or greater than s.
func (r Ratio) Cmp(s Ratio) int {
	switch {
	case r.num == 0 || s.num == 0, r.Infinite() && s.Infinite():
		return order(r.num != 0, s.num != 0)
	case r.Infinite() || s.Infinite():
		return order(r.Infinite(), s.Infinite())
	}
	return int128.CmpProducts(int128.Mul(r.num, s.den), s.scale, int128.Mul(s.num, r.den), r.scale)
}

// order puts what is false first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Float64 returns r, rounded, for reports; +Inf where it is infinite.
func (r Ratio) Float64() float64 {
	if r.num == 0 {
		return 0
	}
	return float64(r.num) / float64(r.den) / float64(max(r.scale, 1))
}

// String returns r as "num/den" in lowest terms, "0", or "inf".
func (r Ratio) String() string {
	switch {
	case r.num == 0:
		return "0"
	case r.den == 0:
		return "inf"
	}
	num, den, scale := r.num, r.den, r.scale
	g := gcd(num, den)
	num, den = num/g, den/g
	g = gcd(num, scale)
	num, scale = num/g, scale/g
	hi, lo := bits.Mul64(den, scale)
	return strconv.FormatUint(num, 10) + "/" + int128.FromWords(hi, lo).String()
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Dominant returns the index of the resource of which used is the greatest part of
// capacity, the first of equals, and that part over weight, which is the dominant share.
// Something used of what there is none of is infinitely much. A weight that is not above
// 0 counts as 1.
func Dominant(used, capacity lockstep.Vector, weight int64) (index int, share Ratio) {
	weight = max(weight, 1)
	for i := range used {
		if s := ratio(used[i], capacity[i], weight); s.Cmp(share) > 0 {
			index, share = i, s
		}
	}
	return index, share
}

// Rho is the finish-time fairness of a job that has been there for elapsed and needs left
// more, as it is served now, where it would have needed ideal in all, alone on its part of the
// cluster: T_shared over T_ideal. Above 1 it is worse off for sharing. What is negative
// counts as 0; an ideal of 0 gives an infinite Rho to all but a job that needs nothing.
func Rho(elapsed, left, ideal time.Duration) Ratio {
	elapsed, left = max(elapsed, 0), max(left, 0)
	return RatioOf(int64(elapsed+min(left, maxDuration-elapsed)), int64(ideal))
}

const maxDuration = time.Duration(1<<63 - 1)

// IdealTime returns T_ideal of a job that runs for run on gpus devices: how long it
// would take alone on one of users equal parts of capacity, with speed in proportion
// to devices where the part has fewer. It is rounded up, and held at the end of a
// Duration; without capacity or users it is run.
func IdealTime(run time.Duration, gpus, capacity lockstep.MilliGPU, users int) time.Duration {
	if run <= 0 || gpus <= 0 || capacity <= 0 || users <= 0 {
		return max(run, 0)
	}
	// run × max(1, gpus × users / capacity)
	hi, share := bits.Mul64(uint64(gpus), uint64(users))
	if hi == 0 && share <= uint64(capacity) {
		return run
	}
	if hi != 0 {
		return maxDuration
	}
	hi, lo := bits.Mul64(uint64(run), share)
	lo, carry := bits.Add64(lo, uint64(capacity)-1, 0)
	hi += carry
	if hi >= uint64(capacity) {
		return maxDuration
	}
	ideal, _ := bits.Div64(hi, lo, uint64(capacity))
	return time.Duration(min(ideal, uint64(maxDuration)))
}
