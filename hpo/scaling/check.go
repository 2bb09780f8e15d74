package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Coordinate is the size of one activation: the host trained the model at one width for a few steps and took the mean
// of the absolute values of what a layer put out.
type Coordinate struct {
	Layer string  // which
	Width int64   // of the model
	Step  int     // 0 is before the first update
	Size  float64 // mean absolute value, over the batch and seeds
}

// Slope says how the size of one activation depends on the width.
type Slope struct {
	Layer string  // which
	Step  int     // when
	Slope float64 // size grows as width to this power; about 0 is right
	Grows bool    // more than the tolerance above 0: this layer blows up with the width
	Fades bool    // more than the tolerance below 0, after the first step: it stops learning
}

// Check fits the slope of log size over log width, by least squares, for each layer and step, and says which layers
// depend on the width: the coordinate check of Yang et al. 2021, appendix D. tolerance 0 means 0.15. A size may fade
// before the first update, as that of an output does which starts with random weights; so only growth is judged at
// step 0. Layers come in the order of their names, then by step.
func Check(sizes []Coordinate, tolerance float64) ([]Slope, error) {
	if tolerance == 0 {
		tolerance = 0.15
	}
	if !(tolerance > 0) || math.IsInf(tolerance, 0) {
		return nil, fault(lockstep.ErrInvalid, "check", "tolerance", fmt.Sprint(tolerance), "must be a positive number")
	}
	for i, c := range sizes {
		field := fmt.Sprintf("sizes[%d]", i)
		switch {
		case c.Width < 1:
			return nil, fault(lockstep.ErrInvalid, "check", field+".Width", fmt.Sprint(c.Width), "must be at least 1")
		case c.Step < 0:
			return nil, fault(lockstep.ErrInvalid, "check", field+".Step", fmt.Sprint(c.Step), "must not be negative")
		case !(c.Size > 0) || math.IsInf(c.Size, 0):
			return nil, fault(lockstep.ErrInvalid, "check", field+".Size", fmt.Sprint(c.Size), "must be a positive number")
		}
	}
	sorted := slices.Clone(sizes)
	order := func(a, b Coordinate) int { return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Step, b.Step)) }
	slices.SortStableFunc(sorted, func(a, b Coordinate) int {
		return cmp.Or(order(a, b), cmp.Compare(a.Width, b.Width), cmp.Compare(a.Size, b.Size))
	})
	var out []Slope
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && order(sorted[0], sorted[n]) == 0 {
			n++
		}
		slope, ok := fit(sorted[:n])
		if !ok {
			return nil, fault(lockstep.ErrInvalid, "check", "sizes", errtext.Quote(sorted[0].Layer), "needs at least two widths at each step")
		}
		s := Slope{Layer: sorted[0].Layer, Step: sorted[0].Step, Slope: slope, Grows: slope > tolerance}
		s.Fades = s.Step > 0 && slope < -tolerance
		out = append(out, s)
		sorted = sorted[n:]
	}
	return out, nil
}

// fit returns the slope of log size over log width, or false if there is one width only.
func fit(points []Coordinate) (float64, bool) {
	n := float64(len(points))
	var mx, my float64
	for _, p := range points {
		mx += math.Log(float64(p.Width)) / n
		my += math.Log(p.Size) / n
	}
	var xx, xy float64
	for _, p := range points {
		dx := math.Log(float64(p.Width)) - mx
		xx += float64(dx * dx)
		xy += float64(dx * (math.Log(p.Size) - my))
	}
	if points[0].Width == points[len(points)-1].Width {
		return 0, false
	}
	return xy / xx, true
}
