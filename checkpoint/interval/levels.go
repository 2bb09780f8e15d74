package interval

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Level is a place that saves go to, and the failures that it helps after.
type Level struct {
	Stall time.Duration `json:"stall"` // Stall is how long a save to it holds the job up; positive.

	// Between is the mean time between failures that need this level: those after which what the levels before it
	// hold is gone too. Positive.
	Between time.Duration `json:"between"`
}

// maxLevels is more than there are kinds of memory.
const maxLevels = 8

// Levels returns an interval for each level, fastest level first: each is a whole multiple, at least 1, of the one
// before it, and together they lose least to first order, the sum over levels of Stall/interval and
// interval/(2 Between). No change of one ratio by one would lose less, not even with another that makes up for it.
func Levels(levels []Level) ([]time.Duration, error) {
	if err := checkLevels(levels); err != nil {
		return nil, err
	}
	ratios := make([]int64, len(levels)) // ratios[0] is 1
	ratios[0] = 1
	before := alone(levels[0])
	for i := 1; i < len(levels); i++ {
		here := alone(levels[i])
		ratios[i] = max(int64(math.Round(min(here/before, maxRatio))), 1)
		// What was rounded away must not add up over the levels.
		before *= float64(ratios[i])
	}
	descend(levels, ratios)
	a, b := parts(levels, ratios)
	out := make([]time.Duration, len(levels))
	t := quantised(math.Sqrt(2 * a / b))
	for i, n := range ratios {
		t *= min(time.Duration(n), lockstep.MaxWalltime/t) // at least once what is before it
		out[i] = t
	}
	return out, nil
}

// descend changes one ratio while that loses less, at last by one, alone or with another one that makes up for it: of
// 3 × 4 the neighbours are 2 × 4 and 2 × 6.
func descend(levels []Level, ratios []int64) {
	best := product(levels, ratios)
	better := func() bool {
		if slices.Min(ratios) < 1 || slices.Max(ratios) > maxRatio {
			return false
		}
		p := product(levels, ratios)
		if p >= best {
			return false
		}
		best = p
		return true
	}
	// By far to near: where ratios are large, one at a time would take seconds.
	for by := int64(maxRatio / 2); by >= 1; by /= 2 {
		for changed := true; changed; {
			changed = false
			for i := 1; i < len(ratios); i++ {
				changed = step(ratios, i, -by, better) || changed
				changed = step(ratios, i, by, better) || changed
			}
		}
	}
}

// step tries a change of a ratio with all that make up for it, and keeps what is better.
func step(ratios []int64, i int, by int64, better func() bool) bool {
	was := ratios[i]
	ratios[i] += by
	if ratios[i] < 1 {
		ratios[i] = was
		return false
	}
	if better() {
		return true
	}
	for j := 1; j < len(ratios); j++ {
		if j == i {
			continue
		}
		old := ratios[j]
		for up := range int64(2) {
			ratios[j] = old*was/ratios[i] + up
			if better() {
				return true
			}
		}
		ratios[j] = old
	}
	ratios[i] = was
	return false
}

// maxRatio bounds how much rarer a level may be than the one before it.
const maxRatio = 1 << 20

// alone is the interval of a level by itself, in nanoseconds.
func alone(l Level) float64 { return math.Sqrt(2 * float64(l.Stall) * float64(l.Between)) }

// parts returns the a and b of the loss a/t + b t/2 of a first interval t, for given ratios.
func parts(levels []Level, ratios []int64) (a, b float64) {
	n := 1.0
	for i, l := range levels {
		n *= float64(ratios[i])
		a += float64(l.Stall) / n
		b += n / float64(l.Between)
	}
	return a, b
}

// product is a b: with the best first interval the loss is sqrt(2 a b).
func product(levels []Level, ratios []int64) float64 {
	a, b := parts(levels, ratios)
	return float64(a * b)
}

// checkLevels reports every fault.
func checkLevels(levels []Level) error {
	if len(levels) == 0 || len(levels) > maxLevels {
		return fault("levels", "levels", strconv.Itoa(len(levels)), "want 1 to "+strconv.Itoa(maxLevels))
	}
	var errs []error
	for i, l := range levels {
		for _, x := range []struct {
			field string
			d     time.Duration
		}{{"Stall", l.Stall}, {"Between", l.Between}} {
			if x.d <= 0 || x.d > lockstep.MaxWalltime {
				errs = append(errs, fault("levels", "levels["+strconv.Itoa(i)+"]."+x.field, x.d.String(),
					"want more than 0, at most "+lockstep.MaxWalltime.String()))
			}
		}
	}
	return errors.Join(errs...)
}
