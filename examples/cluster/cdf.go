package main

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockstep-gpu/lockstep/sim"
)

// shortest is the left end of a logarithmic axis of times: shorter ones are drawn
// there.
const shortest = time.Second

// curve is a distribution of one policy.
type curve struct {
	policy
	sorted []time.Duration
}

// curves takes one time of every job that completed.
func curves(outcomes []outcome, of func(*sim.Record) time.Duration) []curve {
	var list []curve
	for i := range outcomes {
		c := curve{policy: outcomes[i].policy}
		for k := range outcomes[i].Records {
			if r := &outcomes[i].Records[k]; r.Done {
				c.sorted = append(c.sorted, of(r))
			}
		}
		slices.Sort(c.sorted)
		list = append(list, c)
	}
	return list
}

// at returns the time that the given part of the jobs does not exceed.
func (c *curve) at(part float64) time.Duration {
	if len(c.sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(part*float64(len(c.sorted)))) - 1
	return c.sorted[min(max(i, 0), len(c.sorted)-1)]
}

// points returns the curve, cut at the shortest time shown.
func (c *curve) points() plotter.XYs {
	const steps = 250
	var xys plotter.XYs
	for i := range steps + 1 {
		part := float64(i) / steps
		d := max(c.at(part), shortest)
		if n := len(xys); n > 0 && d == shortest {
			xys[n-1].Y = part
			continue
		}
		xys = append(xys, plotter.XY{X: d.Seconds(), Y: part})
	}
	return xys
}

// logTicks are times about a factor of ten apart.
func logTicks() (ticks plot.ConstantTicks) {
	for _, d := range []struct {
		at    time.Duration
		label string
	}{
		{time.Second, "1 s"},
		{10 * time.Second, "10 s"},
		{time.Minute, "1 min"},
		{10 * time.Minute, "10 min"},
		{time.Hour, "1 h"},
		{10 * time.Hour, "10 h"},
		{4 * 24 * time.Hour, "4 d"},
		{40 * 24 * time.Hour, "40 d"},
		{400 * 24 * time.Hour, "400 d"},
	} {
		ticks = append(ticks, plot.Tick{Value: d.at.Seconds(), Label: d.label})
	}
	return ticks
}

// plotCDF shows distributions of times over a logarithmic axis, each with its name
// beside it.
func plotCDF(what, axisLabel string, list []curve) (template.HTML, error) {
	p := newPlot(axisLabel, "jobs")
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = shortest.Seconds(), 10*shortest.Seconds()
	p.X.Tick.Marker = logTicks()
	p.Y.Min, p.Y.Max = 0, 1.08 // with room for names
	p.Y.Tick.Marker = rounds(0, 1, 5, percentWhole)
	var medians []string
	lines := make([]plotter.XYs, len(list))
	for i := range list {
		lines[i] = list[i].points()
		l, err := plotter.NewLine(lines[i])
		if err != nil {
			return "", err
		}
		l.Color, l.Dashes, l.Width = policyInks[list[i].Flag].rgb(), policyDashes[list[i].Flag], 1.75
		p.Add(l)
		p.X.Max = max(p.X.Max, lines[i][len(lines[i])-1].X)
		medians = append(medians, list[i].Title+" "+clock(list[i].at(0.5).Seconds()))
	}
	p.X.Min = shortest.Seconds()
	p.Add(drawing(func(c draw.Canvas, p *plot.Plot) { labelCurves(c, p, list, lines) }))
	return render(p, 270, "Distribution of the "+what+" of jobs under each policy",
		fmt.Sprintf("Cumulative curves over a logarithmic time axis. Medians: %s. The table below gives more.", strings.Join(medians, ", ")))
}

// labelCurves writes each curve's name close to it, where it is furthest from the
// other curves and names.
func labelCurves(c draw.Canvas, p *plot.Plot, list []curve, lines []plotter.XYs) {
	trX, trY := p.Transforms(&c)
	ways := make([][]vg.Point, len(lines))
	for i := range lines {
		for _, xy := range lines[i] {
			ways[i] = append(ways[i], vg.Point{X: trX(xy.X), Y: trY(xy.Y)})
		}
		ways[i] = dense(ways[i])
	}
	var taken []vg.Rectangle
	for i := range list {
		style := textStyle(policyInks[list[i].Flag], draw.XLeft, draw.YBottom)
		size := vg.Point{X: style.Width(list[i].Title), Y: fontSize}
		var others []vg.Point
		for k := range ways {
			if k != i {
				others = append(others, ways[k]...)
			}
		}
		best, score := vg.Rectangle{}, math.Inf(-1)
		for _, pt := range ways[i] {
			for _, corner := range corners(pt, size) {
				box := vg.Rectangle{Min: corner, Max: corner.Add(size)}
				if box.Min.X < c.Min.X || box.Max.X > c.Max.X || box.Min.Y < c.Min.Y+2 || box.Max.Y > c.Max.Y {
					continue
				}
				const apart = 2 // a name lies on no curve; where it would, the key is enough
				own := clearance(box, ways[i], nil)
				if own < apart {
					continue
				}
				if free := clearance(box, others, taken); free >= apart && free-own > score {
					best, score = box, free-own
				}
			}
		}
		if !math.IsInf(score, -1) {
			taken = append(taken, best)
			c.FillText(style, best.Min, list[i].Title)
		}
	}
}

// corners are where a name of some size may stand beside a point.
func corners(pt, size vg.Point) (list []vg.Point) {
	for _, gap := range []vg.Length{0, 5, 9} {
		for _, dy := range []vg.Length{-size.Y - 3, -size.Y / 2, 3} {
			list = append(list, vg.Point{X: pt.X + gap, Y: pt.Y + dy}, vg.Point{X: pt.X - size.X - gap, Y: pt.Y + dy})
		}
	}
	return list
}

// dense adds points so that none is far from the next.
func dense(way []vg.Point) (out []vg.Point) {
	for i, pt := range way {
		if i > 0 {
			last := way[i-1]
			n := int(math.Hypot(float64(pt.X-last.X), float64(pt.Y-last.Y)) / 4)
			for k := 1; k < n; k++ {
				part := vg.Length(k) / vg.Length(n)
				out = append(out, vg.Point{X: last.X + (pt.X-last.X)*part, Y: last.Y + (pt.Y-last.Y)*part})
			}
		}
		out = append(out, pt)
	}
	return out
}

// clearance is how far a box is from everything, up to a distance that is enough.
func clearance(box vg.Rectangle, points []vg.Point, boxes []vg.Rectangle) float64 {
	const enough = 16
	best := float64(enough)
	for _, pt := range points {
		dx := max(box.Min.X-pt.X, pt.X-box.Max.X, 0)
		dy := max(box.Min.Y-pt.Y, pt.Y-box.Max.Y, 0)
		if best = min(best, math.Hypot(float64(dx), float64(dy))); best == 0 {
			return 0
		}
	}
	for _, b := range boxes {
		dx := max(box.Min.X-b.Max.X, b.Min.X-box.Max.X, 0)
		dy := max(box.Min.Y-b.Max.Y, b.Min.Y-box.Max.Y, 0)
		best = min(best, math.Hypot(float64(dx), float64(dy))-2)
	}
	return best
}
