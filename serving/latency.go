package serving

import (
	"errors"
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// MaxSize is the largest batch that this package counts with.
const MaxSize = 1 << 16

// maxTime is the longest time of a batch that a Latency of this package gives, so that sums of two stay in 64 bits.
const maxTime = time.Duration(math.MaxInt64 / 4)

// Latency says how long a batch takes on one replica. It does not fall as the
// batch grows.
type Latency interface {
	// Batch returns the time of a batch of n, n ≥ 1.
	Batch(n int) time.Duration
}

// Linear is a Latency of a fixed part and a part for each request.
type Linear struct {
	Base time.Duration `json:"base"` // Base is the time of a batch of any size; not negative.
	Each time.Duration `json:"each"` // Each is the time that every request adds; not negative.
}

// Batch returns Base + n × Each, held at a quarter of the longest Duration.
func (l Linear) Batch(n int) time.Duration { return min(scale(l.Each, n, 1), maxTime-l.Base) + l.Base }

// Validate reports all faults of l, joined.
func (l Linear) Validate() error {
	var errs []error
	errs = append(errs, checkSpan("latency", "Base", l.Base), checkSpan("latency", "Each", l.Each))
	return errors.Join(errs...)
}

// Point is the time of a batch of one size, as measured.
type Point struct {
	Size int           `json:"size"` // Size is the number of requests, from 1 to MaxSize.
	Time time.Duration `json:"time"` // Time is what such a batch takes; above 0, up to 100 h.
}

// Points is a Latency from measurements at some sizes, which rise, with times that do not fall. Use it after Validate.
type Points []Point

// Batch returns the time of the first point up to its size, a straight line between two points, rounded up, and beyond
// the last one what its time per request or the last line gives, whichever is more. It returns 0 if there are no points.
func (p Points) Batch(n int) time.Duration {
	i := sort.Search(len(p), func(i int) bool { return p[i].Size >= n })
	switch {
	case len(p) == 0:
		return 0
	case i == 0:
		return p[0].Time
	case i < len(p):
		return p.line(i, n)
	}
	last := p[len(p)-1]
	t := scale(last.Time, n, last.Size)
	if len(p) > 1 {
		t = max(t, p.line(len(p)-1, n))
	}
	return t
}

// line is the straight line through points i-1 and i.
func (p Points) line(i, n int) time.Duration {
	a, b := p[i-1], p[i]
	return min(a.Time+scale(b.Time-a.Time, n-a.Size, b.Size-a.Size), maxTime)
}

// Validate reports all faults of p, joined.
func (p Points) Validate() error {
	if len(p) == 0 {
		return invalid("latency", "Points", "", "must not be empty")
	}
	var errs []error
	for i, q := range p {
		at := "Points[" + strconv.Itoa(i) + "]"
		if q.Size < 1 || q.Size > MaxSize {
			errs = append(errs, invalid("latency", at+".Size", strconv.Itoa(q.Size), "must be from 1 to "+strconv.Itoa(MaxSize)))
		}
		if q.Time <= 0 || q.Time > maxSpan {
			errs = append(errs, invalid("latency", at+".Time", q.Time.String(), "must be above 0 and at most "+maxSpan.String()))
		}
		if i > 0 && q.Size <= p[i-1].Size {
			errs = append(errs, invalid("latency", at+".Size", strconv.Itoa(q.Size), "must be above that of the point before"))
		}
		if i > 0 && q.Time < p[i-1].Time {
			errs = append(errs, invalid("latency", at+".Time", q.Time.String(), "must not be below that of the point before"))
		}
	}
	return errors.Join(errs...)
}

// scale returns d × n / of, rounded up and held at maxTime; all are at least 0, of above 0.
func scale(d time.Duration, n, of int) time.Duration {
	return min(time.Duration(int128.MulDivUp(int64(d), int64(n), int64(of))), maxTime)
}

// Largest returns the largest batch of at most most, and of at most MaxSize, that takes no longer than bound, or 0.
func Largest(l Latency, bound time.Duration, most int) int {
	return sort.Search(max(min(most, MaxSize), 0), func(i int) bool { return l.Batch(i+1) > bound })
}

// Saturated returns the largest batch b of a replica that always has requests waiting, such that none of them takes
// longer than slo: one that just missed a batch waits for it and rides in the next, 2 l(b) ≤ slo. It returns 0 if there is
// none. (Shen et al., "Nexus", SOSP 2019, section 6.1.)
func Saturated(l Latency, slo time.Duration) int { return Largest(l, slo/2, MaxSize) }

// Residual returns the largest batch b that rate requests a second fill in time: b/rate + l(b) ≤ slo; and its duty,
// the time b/rate between two such batches, rounded to a nanosecond. l(b) over duty is what the model occupies of a
// replica. (Nexus, section 6.1.) If already a batch of one waits too long for its like, it is sent by itself: 1, and the
// longest duty slo - l(1) at which it is looked for often enough. Residual returns 0, 0 if l(1) is above slo, or rate
// is not above 0, or not finite.
func Residual(l Latency, slo time.Duration, rate float64) (batch int, duty time.Duration) {
	if !(rate > 0) || math.IsInf(rate, 1) || l.Batch(1) > slo {
		return 0, 0
	}
	batch = sort.Search(MaxSize, func(i int) bool {
		t := l.Batch(i + 1)
		return t > slo || gather(i+1, rate) > slo-t
	})
	if batch == 0 {
		return 1, slo - l.Batch(1)
	}
	return batch, gather(batch, rate)
}

// gather is how long rate requests a second take to be n. A product, a quotient and one rounding: the same everywhere.
func gather(n int, rate float64) time.Duration {
	ns := float64(float64(n)*1e9) / rate
	if ns >= float64(maxTime) {
		return maxTime
	}
	return time.Duration(math.Round(ns))
}

// Throughput returns how many requests a second a replica serves in batches of n, or 0 where l gives no time for them.
func Throughput(l Latency, n int) float64 {
	t := l.Batch(n)
	if n < 1 || t <= 0 {
		return 0
	}
	return float64(float64(n)*1e9) / float64(t)
}
