package num

import (
	"math"
	"time"
)

// The functions of this file use only additions, products, quotients and roots of
// single results, so that they give the same bits on every platform; those of
// package math may not.

// Ln 2 in two parts.
const (
	Ln2Hi = 6.93147180369123816490e-01 // upper part of ln 2; products with small integers are exact
	Ln2Lo = 1.90821492927058770002e-10 // the rest
)

// Log returns the natural logarithm of a finite x > 0.
func Log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	z := s * s
	p := 0.0
	for _, c := range [...]float64{1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5, 1. / 3, 1} {
		p = float64(p*z) + c // the series of atanh; |s| < 0.172
	}
	k := float64(e)
	return float64(k*Ln2Hi) + (float64(2*s*p) + float64(k*Ln2Lo))
}

// Exp returns e to the x, 0 where that is below 1e-300 and +Inf above 1e300.
func Exp(x float64) float64 {
	switch {
	case x < -690:
		return 0
	case x > 690:
		return math.Inf(1)
	}
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(k*Ln2Hi) - float64(k*Ln2Lo)
	p := 0.0
	for _, c := range [...]float64{
		1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2, 1, 1,
	} {
		p = float64(p*r) + c // |r| < 0.347
	}
	return float64(p * math.Float64frombits(uint64(1023+int64(k))<<52))
}

// Normal returns the chance that a standard normal variable is at most z, within
// 1e-7 (Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 26.2.17).
func Normal(z float64) float64 {
	a := math.Abs(z)
	t := 1 / (1 + float64(0.2316419*a))
	p := 1.330274429
	for _, c := range [...]float64{-1.821255978, 1.781477937, -0.356563782, 0.319381530} {
		p = float64(p*t) + c
	}
	tail := float64(Exp(-a*a/2) / math.Sqrt(2*math.Pi) * p * t)
	if z < 0 {
		return tail
	}
	return 1 - tail
}

// MADScale is how many standard deviations a median absolute deviation is of, for a normal distribution.
const MADScale = 1.4826022185056018

// Clip returns x held to [-most, most].
func Clip(x, most float64) float64 { return max(-most, min(most, x)) }

// Median returns the median of a sorted slice that is not empty.
func Median(sorted []float64) float64 {
	n := len(sorted)
	return float64(sorted[(n-1)/2]/2) + float64(sorted[n/2]/2)
}

// Duration rounds nanoseconds to the nearest time; what is not in the range of time.Duration is held there.
func Duration(ns float64) time.Duration {
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(math.Floor(float64(ns) + 0.5))
}
