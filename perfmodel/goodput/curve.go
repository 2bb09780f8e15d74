package goodput

import (
	"cmp"
	"math"
	"slices"
)

// Curve says how long a unit of work takes with n GPUs in the form of Amdahl's law, with
// a part that grows with their number: Parallel/n + Serial + Each × (n-1) seconds.
type Curve struct {
	Parallel float64 `json:"parallel"` // Parallel is the seconds that are shared out, at least 0.
	Serial   float64 `json:"serial"`   // Serial is the seconds that remain however many GPUs there are, at least 0.
	Each     float64 `json:"each"`     // Each is the seconds that every GPU beyond the first adds, at least 0.
}

// FitCurve returns the curve with the least squared relative errors in the times of
// points, none of its parts negative, and the median distance of the points from it, as
// a part of each. Where points are too few to tell, Parallel comes first, then Serial:
// a single count of GPUs gives a job that scales without end, as Pollux has it. Invalid
// points, and none, are ErrInvalid.
func FitCurve(points []Point) (c Curve, miss float64, err error) {
	if err := checkPoints("goodput: curve", points); err != nil {
		return Curve{}, 0, err
	}
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Weight, b.Weight))
	})
	heaviest := 0.0
	for _, p := range sorted {
		heaviest = max(heaviest, cmp.Or(p.Weight, 1))
	}
	scale := 1 / sorted[0].Rate // seconds, so that coefficients are near 1
	columns := [][]float64{make([]float64, len(sorted)), make([]float64, len(sorted)), make([]float64, len(sorted))}
	target := make([]float64, len(sorted))
	for i, p := range sorted {
		w, n := math.Sqrt(cmp.Or(p.Weight, 1)/heaviest), float64(p.GPUs)
		target[i] = w
		for j, part := range [3]float64{1 / n, 1, n - 1} {
			columns[j][i] = w * part * (p.Rate * scale)
		}
	}
	if sorted[0].GPUs == sorted[len(sorted)-1].GPUs {
		columns = columns[:1]
	}
	x := append(nnls(columns, target), 0, 0)
	c = Curve{Parallel: x[0] * scale, Serial: x[1] * scale, Each: x[2] * scale}
	misses := make([]float64, len(sorted))
	for i, p := range sorted {
		misses[i] = math.Abs(c.Rate(p.GPUs)/p.Rate - 1)
	}
	return c, median(misses), nil
}

// Rate returns the units of work a second with n GPUs; 0 for n below 1 or a curve
// without time.
func (c Curve) Rate(n int) float64 {
	if n < 1 {
		return 0
	}
	t := c.Parallel/float64(n) + c.Serial + float64(c.Each*float64(n-1))
	if !(t > 0) {
		return 0
	}
	return 1 / t
}

// Points returns the rates of 1 to most GPUs, each count one point, up to where more of
// them no longer help and at most 64, for NewTable.
func (c Curve) Points(most int) []Point {
	var out []Point
	for n := 1; n <= min(most, maxPoints); n++ {
		rate := c.Rate(n)
		if !(rate > 0) || n > 1 && rate <= out[n-2].Rate {
			break
		}
		out = append(out, Point{GPUs: n, Rate: rate})
	}
	return out
}
