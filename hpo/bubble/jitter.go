package bubble

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Sample is one length that was predicted, of a window or a step, and what it came to.
type Sample struct {
	Predicted time.Duration // positive
	Actual    time.Duration // positive
}

// jitter is what is known of how far lengths are off, relative to what was predicted.
type jitter struct {
	ends   []int64 // of windows, (actual-predicted)/predicted in parts per million, sorted
	away   []int64 // of windows, the distance of ends from their median, sorted
	centre int64   // the median of ends
	steps  []int64 // actual/predicted of steps in parts per million, sorted
}

// mostOff is the largest ratio that is kept; what is beyond counts as it.
const mostOff = 1 << 31

// off returns how far a window of this length is off in parts per million, rounded down: a window counts as shorter
// than it was rather than longer.
func off(predicted, actual int64) int64 {
	return min(int128.MulDiv(actual, million, predicted), mostOff) - million
}

// slow returns what a step took over what it should have in parts per million, rounded up.
func slow(predicted, actual int64) int64 {
	return min(int128.MulDivUp(actual, million, predicted), mostOff)
}

// setEnds takes samples of windows in, which it keeps.
func (j *jitter) setEnds(ends []int64) {
	slices.Sort(ends)
	j.ends, j.centre = ends, 0
	if len(ends) > 0 {
		j.centre = ends[(len(ends)-1)/2]
	}
	j.away = make([]int64, len(ends))
	for i, u := range ends {
		j.away[i] = distance(u, j.centre)
	}
	slices.Sort(j.away)
}

func (j *jitter) setSteps(steps []int64) {
	slices.Sort(steps)
	j.steps = steps
}

// enough says whether the samples can carry the guarantee for a share of misses.
func (j *jitter) enough(miss int64) bool {
	n := need(miss)
	return int64(len(j.ends)) >= n && int64(len(j.steps)) >= n
}

// margin returns the shortfall that all but a share of miss of windows stay within, in parts per million of their
// length: the order statistic ceil((n+1)(1-miss)).
func (j *jitter) margin(miss int64) (int64, bool) {
	n := int64(len(j.ends))
	k := int128.MulDivUp(n+1, million-miss, million)
	if k > n || n == 0 {
		return 0, false
	}
	return max(-j.ends[n-k], 0), true
}

// still says whether all samples of windows are alike, and those of steps.
func (j *jitter) still() (windows, steps bool) {
	return j.ends[0] == j.ends[len(j.ends)-1], j.steps[0] == j.steps[len(j.steps)-1]
}

// meanStep returns the mean ratio of steps, in parts per million, rounded up.
func (j *jitter) meanStep() int64 {
	sum := int64(0)
	for _, s := range j.steps {
		sum += s
	}
	n := int64(len(j.steps))
	return (sum + n - 1) / n
}

// part is a share of all steps, of parts whole, and the ratio that stands for it.
type part struct{ weight, ratio int64 }

// whole is the sum of the weights of parts.
const whole = 1 << 12

// parts cuts the samples of steps into shares: the bulk into sixteen of equal size, each with its mean, and the slowest
// into ever smaller ones, each with its slowest, so that what is rare is not lost and not made light of.
func (j *jitter) parts() []part {
	n := len(j.steps)
	if _, still := j.still(); still {
		return []part{{whole, j.steps[0]}}
	}
	bulk := n - n/64
	cuts := make([]int, 0, 20)
	for i := 1; i <= 16; i++ {
		cuts = append(cuts, bulk*i/16)
	}
	cuts = append(cuts, n-n/256, n-n/1024, n)
	var out []part
	from, given := 0, int64(0)
	for i, to := range cuts {
		upTo := int64(to) * whole / int64(n)
		if to == from || upTo == given {
			continue
		}
		p := part{upTo - given, j.steps[to-1]}
		if i < 16 {
			sum := int64(0)
			for _, s := range j.steps[from:to] {
				sum += s
			}
			p.ratio = sum / int64(to-from)
		}
		out = append(out, p)
		from, given = to, upTo
	}
	return out
}

func distance(a, b int64) int64 {
	if a < b {
		return b - a
	}
	return a - b
}
