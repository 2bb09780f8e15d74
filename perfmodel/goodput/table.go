package goodput

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// maxPoints is how many different counts of GPUs a table may have measurements of.
const maxPoints = 64

// Basis says what a figure rests on.
type Basis string

// The bases, the worst first.
const (
	Unknown  Basis = ""         // Unknown: nothing near it was measured; the figure is a guess on the safe or the hopeful side, as documented.
	Inferred Basis = "inferred" // Inferred: it lies between, or not far beyond, what was measured.
	Measured Basis = "measured" // Measured: it was measured, and possibly smoothed.
)

// Point is a measured or promised rate of progress.
type Point struct {
	GPUs   int     `json:"gpus"`             // GPUs is with how many, from 1.
	Rate   float64 `json:"rate"`             // Rate is the progress a second in any unit, such as steps or samples, from 10⁻⁵⁰ to 10⁵⁰.
	Weight float64 `json:"weight,omitempty"` // Weight is how much it counts beside others, such as the iterations measured, in the same range; 0 means 1.
}

// Table says how much faster a job is with more GPUs: a line through its points that
// rises, ever less steeply, from 0. Where the points do not, it is the line of that kind
// with the least squared relative errors. It is made by NewTable and read only.
type Table struct {
	at    []int     // ascending
	rate  []float64 // at those counts
	error float64
}

// NewTable returns the table of points; several may have the same count. Each invalid
// point is an *lockstep.Error of kind ErrInvalid, and so is none at all or more than 64
// different counts.
func NewTable(points []Point) (*Table, error) {
	const op = "goodput: table"
	if err := checkPoints(op, points); err != nil {
		return nil, err
	}
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b Point) int { // by value, so that the order given does not matter
		return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Weight, b.Weight))
	})
	t := &Table{}
	for i := 0; i < len(sorted); {
		n, sum, weight := sorted[i].GPUs, 0.0, 0.0
		for ; i < len(sorted) && sorted[i].GPUs == n; i++ {
			w := cmp.Or(sorted[i].Weight, 1)
			sum += float64(w * sorted[i].Rate)
			weight += w
		}
		t.at, t.rate = append(t.at, n), append(t.rate, sum/weight)
	}
	if len(t.at) > maxPoints {
		f := faults{op: op}
		f.bad("points", strconv.Itoa(len(t.at)), "want at most 64 different counts")
		return nil, f.err()
	}
	if !t.concave() {
		t.repair(sorted)
	}
	misses := make([]float64, len(sorted))
	for i, p := range sorted {
		rate, _ := t.Rate(p.GPUs)
		misses[i] = math.Abs(rate/p.Rate - 1)
	}
	t.error = median(misses)
	return t, nil
}

func checkPoints(op string, points []Point) error {
	f := faults{op: op}
	if len(points) == 0 || len(points) > maxSamples {
		f.bad("points", strconv.Itoa(len(points)), "want 1 to "+strconv.Itoa(maxSamples))
	}
	for i, p := range points[:min(len(points), maxSamples)] {
		at := "points[" + strconv.Itoa(i) + "]."
		f.count(at+"GPUs", int64(p.GPUs), 1, maxGPUs)
		f.figure(at+"Rate", p.Rate, 1/maxRate, maxRate)
		if p.Weight != 0 {
			f.figure(at+"Weight", p.Weight, 1/maxRate, maxRate)
		}
	}
	return f.err()
}

// concave says whether the means rise ever less steeply from 0.
func (t *Table) concave() bool {
	slope, x, y := math.Inf(1), 0.0, 0.0
	for i := range t.at {
		next := (t.rate[i] - y) / (float64(t.at[i]) - x)
		if next < 0 || next > slope*(1+1e-12) {
			return false
		}
		slope, x, y = next, float64(t.at[i]), t.rate[i]
	}
	return true
}

// repair puts the best concave line in place of the means. Such a line is a sum of
// bends, each of which rises evenly up to one count and is level from there on, and
// none of which is negative.
func (t *Table) repair(points []Point) {
	bends, target := make([][]float64, len(t.at)), make([]float64, len(points))
	for j := range bends {
		bends[j] = make([]float64, len(points))
	}
	heaviest := 0.0 // weights count beside each other: over the heaviest they are in the range of floats
	for _, p := range points {
		heaviest = max(heaviest, cmp.Or(p.Weight, 1))
	}
	scale := t.rate[len(t.rate)-1] // so that coefficients are near 1, whatever the unit
	for i, p := range points {
		w := math.Sqrt(cmp.Or(p.Weight, 1) / heaviest)
		target[i] = w
		for j, at := range t.at {
			bends[j][i] = w * float64(min(p.GPUs, at)) / float64(at) * (scale / p.Rate)
		}
	}
	x := nnls(bends, target)
	for i, at := range t.at {
		sum := 0.0
		for j, bend := range t.at {
			sum += float64(x[j] * (float64(min(at, bend)) / float64(bend)))
		}
		t.rate[i] = sum * scale
	}
}

// Rate returns the progress a second on n GPUs, in the unit of the points. Below the
// fewest that were measured it is in proportion, which is the least that concavity
// allows; beyond the most it stays level, Inferred up to twice as many and Unknown
// from there on. For n below 1 it is 0.
func (t *Table) Rate(n int) (rate float64, b Basis) {
	if n < 1 {
		return 0, Unknown
	}
	last := len(t.at) - 1
	i, found := slices.BinarySearch(t.at, n)
	switch {
	case found:
		return t.rate[i], Measured
	case i == 0:
		return t.rate[0] * (float64(n) / float64(t.at[0])), Inferred
	case i > last && n/2 > t.at[last]:
		return t.rate[last], Unknown
	case i > last:
		return t.rate[last], Inferred
	}
	part := float64(n-t.at[i-1]) / float64(t.at[i]-t.at[i-1])
	return t.rate[i-1] + float64(part*(t.rate[i]-t.rate[i-1])), Inferred
}

// Speedup returns how many times as fast n GPUs are as one, at most n. It is Measured
// only where both were.
func (t *Table) Speedup(n int) (x float64, b Basis) {
	one, known := t.Rate(1)
	rate, b := t.Rate(n)
	if b == Measured {
		b = known
	}
	return rate / one, b
}

// Smallest returns the fewest GPUs that are x times as fast as one, to a millionth. Ok is
// false where no number of them is known to be.
func (t *Table) Smallest(x float64) (n int, ok bool) {
	last := t.at[len(t.at)-1]
	reach := func(n int) bool {
		s, _ := t.Speedup(n)
		return quantise(s) >= quantise(x)
	}
	if math.IsNaN(x) || !reach(last) {
		return 0, false
	}
	lo, hi := 1, last // speed-ups do not fall: the fewest is from lo to hi
	for lo < hi {
		if mid := lo + (hi-lo)/2; reach(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, true
}

// Saved returns how much sooner work that one GPU would need that long for ends with n+1
// GPUs than with n, to the nanosecond: what Optimus gives the next GPU by. Except for
// rounding it never rises with n. For n below 1 or no work it is 0.
func (t *Table) Saved(n int, work time.Duration) time.Duration {
	if n < 1 || work <= 0 {
		return 0
	}
	now, _ := t.Speedup(n)
	next, _ := t.Speedup(n + 1)
	return duration(max(work.Seconds()/now-work.Seconds()/next, 0))
}

// Error returns the median distance of the points from the line, as a part of each.
func (t *Table) Error() float64 { return t.error }

// median returns the median of xs, which it sorts, the lower of two.
func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[(len(xs)-1)/2]
}
