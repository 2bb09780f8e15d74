package fusion

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Point is what was measured with some trials fused.
type Point struct {
	Fused  int            `json:"fused"`  // trials in the bundle
	Step   time.Duration  `json:"step"`   // one training step of all of them
	Memory lockstep.Bytes `json:"memory"` // of the bundle alone, not of other tenants of the device
}

// Profile tells what a bundle costs. Its zero value knows nothing.
type Profile struct {
	points   []Point // by Fused; Step and Memory do not fall
	repaired int
}

// NewProfile returns the profile of points, in any order, one of which is of a single trial. A step or a memory below
// that of fewer trials is noise and is raised to it.
func NewProfile(points []Point) (Profile, error) {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int { return cmp.Compare(a.Fused, b.Fused) })
	for i, p := range sorted {
		field := fmt.Sprintf("points[Fused=%d]", p.Fused)
		switch {
		case p.Fused < 1:
			return Profile{}, fault(lockstep.ErrInvalid, "profile", field, fmt.Sprint(p.Fused), "must be at least 1")
		case p.Step <= 0:
			return Profile{}, fault(lockstep.ErrInvalid, "profile", field+".Step", p.Step.String(), "must be positive")
		case p.Memory < 0:
			return Profile{}, fault(lockstep.ErrInvalid, "profile", field+".Memory", p.Memory.String(), "must not be negative")
		case i > 0 && sorted[i-1].Fused == p.Fused:
			return Profile{}, fault(lockstep.ErrDuplicate, "profile", field, fmt.Sprint(p.Fused), "stands twice")
		}
	}
	if len(sorted) == 0 || sorted[0].Fused != 1 {
		return Profile{}, fault(lockstep.ErrInvalid, "profile", "points", "", "need one of a single trial")
	}
	out := Profile{points: sorted}
	for i := 1; i < len(sorted); i++ {
		before, p := sorted[i-1], &sorted[i]
		if p.Step < before.Step || p.Memory < before.Memory {
			out.repaired++
		}
		p.Step, p.Memory = max(p.Step, before.Step), max(p.Memory, before.Memory)
	}
	return out, nil
}

// Repaired returns how many points were raised because they fell below one of fewer trials.
func (p Profile) Repaired() int { return p.repaired }

// Points returns the points by Fused, as repaired. The slice is the caller's.
func (p Profile) Points() []Point { return slices.Clone(p.points) }

// At returns what a bundle of fused trials costs, or false if as many were never measured: the point of the smallest
// number measured that is not below fused, with Fused as asked.
func (p Profile) At(fused int) (Point, bool) {
	i, _ := slices.BinarySearchFunc(p.points, fused, func(q Point, n int) int { return cmp.Compare(q.Fused, n) })
	if fused < 1 || i == len(p.points) {
		return Point{}, false
	}
	q := p.points[i]
	q.Fused = fused
	return q, true
}

// Most returns the largest measured number of trials that fits memory, or false if not even one does.
func (p Profile) Most(memory lockstep.Bytes) (int, bool) {
	n := p.fit(memory)
	if n == 0 {
		return 0, false
	}
	return p.points[n-1].Fused, true
}

// Knee returns the smallest measured number of trials that fits memory and makes at least 1-slack of the trial-steps
// a second of the best that fits, or false if not even one trial fits. Slack lies in [0, 1); of any other value the
// nearest is taken, and of one that is no number 0. Past the knee memory is spent for nothing.
func (p Profile) Knee(memory lockstep.Bytes, slack float64) (int, bool) {
	points := p.points[:p.fit(memory)]
	if len(points) == 0 {
		return 0, false
	}
	if !(slack > 0) {
		slack = 0
	}
	best := slices.MaxFunc(points, func(a, b Point) int { return compareRate(a, b, 1) })
	for _, q := range points {
		if compareRate(q, best, 1-min(slack, 1)) >= 0 {
			return q.Fused, true
		}
	}
	return best.Fused, true
}

// fit returns how many points fit memory.
func (p Profile) fit(memory lockstep.Bytes) int {
	n, _ := slices.BinarySearchFunc(p.points, memory, func(q Point, m lockstep.Bytes) int {
		if q.Memory <= m {
			return -1
		}
		return 1
	})
	return n
}

// compareRate compares the trial-steps a second of a with those of b times share.
func compareRate(a, b Point, share float64) int {
	return cmp.Compare(float64(a.Fused)*float64(b.Step), share*float64(b.Fused)*float64(a.Step))
}

// Affine returns how many trials fit memory if each after the first takes two-one more, from the memory of bundles of
// one and of two; math.MaxInt if two take no more than one. It is a first guess where nothing else was measured: real
// profiles are not affine. False if not even one fits.
func Affine(one, two, memory lockstep.Bytes) (int, bool) {
	switch {
	case one < 0 || memory < one:
		return 0, false
	case two <= one:
		return math.MaxInt, true
	}
	more := (memory - one) / (two - one)
	if int64(more) >= math.MaxInt {
		return math.MaxInt, true
	}
	return 1 + int(more), true
}

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "fusion: " + op, Field: field, Value: value, Reason: reason}
}
