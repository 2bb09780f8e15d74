package goodput

import (
	"math"
	"time"
)

// geometric is the exponent below which a mean is taken for the geometric one: a sum of powers would lose more digits
// than the two differ by.
const geometric = 1e-8

// PowerMean returns the mean of xs with exponent p: their harmonic mean for -1, by which
// Pollux sums up the speed-ups of all jobs, the geometric one for 0, the arithmetic one
// for 1. Ok is false if xs is empty or has a negative or not a finite number in it, or p
// is not finite. With p at most 0 one 0 makes the mean 0.
func PowerMean(p float64, xs []float64) (mean float64, ok bool) {
	if len(xs) == 0 || math.IsNaN(p) || math.IsInf(p, 0) {
		return 0, false
	}
	least, most := math.Inf(1), 0.0
	for _, x := range xs {
		if !(x >= 0) || math.IsInf(x, 1) {
			return 0, false
		}
		least, most = min(least, x), max(most, x)
	}
	if most == 0 || p <= 0 && least == 0 {
		return 0, true
	}
	if math.Abs(p) < geometric {
		p = 0
	}
	scale := most // the terms are of x over scale, so that none leaves the range of floats
	if p < 0 {
		scale = least
	}
	sum := 0.0
	for _, x := range xs {
		if p == 0 {
			sum += math.Log(x / scale)
		} else {
			sum += math.Pow(x/scale, p)
		}
	}
	sum /= float64(len(xs))
	if p == 0 {
		return scale * math.Exp(sum), true
	}
	return scale * math.Pow(sum, 1/p), true
}

// RestartFactor returns the part of its time that a job of that age would have kept for
// work had it been restarted so often and once more, when a restart takes that delay:
// Pollux multiplies the speed-up of an allocation by it that would restart the job. It
// is 0 where restarts took all the time, for a negative argument, and for an age and
// delay of 0.
func RestartFactor(age time.Duration, restarts int, delay time.Duration) float64 {
	if age < 0 || restarts < 0 || delay < 0 || age == 0 && delay == 0 {
		return 0
	}
	worked := float64(age) - float64(float64(restarts)*float64(delay))
	return max(worked, 0) / (float64(age) + float64(delay))
}
