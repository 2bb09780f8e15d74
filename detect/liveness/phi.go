package liveness

import (
	"math"
	"math/bits"
	"time"
)

// phi returns the suspicion that a silence of elapsed raises where beats come at
// intervals of this mean and standard deviation: -log10 of the chance that a
// normal interval is longer. Each unit is ten times less chance. A sigma that is
// not positive gives 0 before the mean and +Inf from it on.
func phi(elapsed, mean, sigma time.Duration) float64 {
	if sigma <= 0 {
		if elapsed < mean {
			return 0
		}
		return math.Inf(1)
	}
	return phiAt((float64(elapsed) - float64(mean)) / float64(sigma))
}

// phiAt returns -log10 of the upper tail of the normal distribution at z. The
// logarithm is taken of the tail itself and not of 1-F, which is 0 in float64
// from z = 8.3 on.
func phiAt(z float64) float64 {
	x := z / math.Sqrt2
	switch {
	case x < 0:
		return -math.Log1p(-0.5*math.Erfc(-x)) / math.Ln10
	case x < 3:
		return -math.Log(0.5*math.Erfc(x)) / math.Ln10
	}
	return (float64(x*x) - math.Log(0.5*scaledErfc(x))) / math.Ln10
}

// scaledErfc returns exp(x²)·erfc(x) for x of at least 3, by the continued
// fraction of Laplace (Abramowitz and Stegun, 1964, 7.1.14), from the back.
func scaledErfc(x float64) float64 {
	f := x
	for k := 60; k > 0; k-- {
		f = x + float64(k)/2/f
	}
	return 1 / (f * math.Sqrt(math.Pi))
}

// maxSigmas is above the z of the highest threshold, in millionths.
const maxSigmas = 100 * million

// sigmasFor returns the least z, in millionths, at which phi reaches the
// threshold, in thousandths. Here a model's figure becomes an integer.
func sigmasFor(threshold int) int64 {
	lo, hi := int64(0), int64(maxSigmas) // phi(lo) is below, phi(hi) is not
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if phiAt(float64(mid)/million)*thousand >= float64(threshold) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// maxSample bounds an interval, in microseconds, so that the squares of maxWindow
// of them fit 64 bits.
const maxSample = 1<<26 - 1

// window is the sums over the intervals of a member; the intervals themselves are
// in the ring of the table. All in microseconds, so exact.
type window struct {
	sum, square uint64
	n, head     uint16
}

// push takes in the interval x, and lets go of the oldest once ring is full.
func (w *window) push(ring []uint32, x uint32) {
	if int(w.n) == len(ring) {
		old := uint64(ring[w.head])
		w.sum -= old
		w.square -= old * old
	} else {
		w.n++
	}
	ring[w.head] = x
	w.sum += uint64(x)
	w.square += uint64(x) * uint64(x)
	if w.head++; int(w.head) == len(ring) {
		w.head = 0
	}
}

// mean returns the mean interval in nanoseconds, rounded down.
func (w *window) mean() int64 {
	return int64(w.sum * thousand / uint64(max(w.n, 1)))
}

// sigma returns the standard deviation in nanoseconds, rounded up to whole
// microseconds.
func (w *window) sigma() int64 {
	n := uint64(max(w.n, 1))
	hi, lo := bits.Mul64(n, w.square)
	sh, sl := bits.Mul64(w.sum, w.sum)
	lo, borrow := bits.Sub64(lo, sl, 0)
	hi, _ = bits.Sub64(hi, sh, borrow)
	v, rem := bits.Div64(hi, lo, n*n) // the variance is below the square of maxSample, so hi < n*n
	if rem != 0 {
		v++
	}
	return int64(rootUp(v)) * thousand
}

// rootUp returns the least r with r*r >= v, for v up to 2^53.
func rootUp(v uint64) uint64 {
	r := uint64(math.Sqrt(float64(v))) // exact to one, since v and the root fit float64
	for r*r < v {
		r++
	}
	for r > 0 && (r-1)*(r-1) >= v {
		r--
	}
	return r
}
