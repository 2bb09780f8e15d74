package main

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockstep-gpu/lockstep/sim"
)

// lag is how much a tenant is owed over time, in GPU-hours.
func lag(s *sim.Series, k int, a axis) plotter.XYs {
	var xys plotter.XYs
	for i := range s.Samples {
		at := a.of(s.Samples[i].Time)
		if at > a.end {
			break
		}
		xys = append(xys, plotter.XY{X: at, Y: (s.Samples[i].Entitlement[k] - s.Samples[i].Service[k]) / 3600})
	}
	return thin(xys, 200)
}

// thin keeps the least and the greatest of each stretch, about n points in all.
func thin(xys plotter.XYs, n int) plotter.XYs {
	step := max(2*len(xys)/n, 1)
	if step <= 2 {
		return xys
	}
	var kept plotter.XYs
	for part := range slices.Chunk(xys, step) {
		byY := func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) }
		lo, hi := slices.MinFunc(part, byY), slices.MaxFunc(part, byY)
		if hi.X < lo.X {
			lo, hi = hi, lo
		}
		if kept = append(kept, lo); hi != lo {
			kept = append(kept, hi)
		}
	}
	return kept
}

// lagRange returns the least and the greatest lag to show: those of all tenants
// under all policies, but not much more than those of the second worst policy.
func lagRange(outcomes []outcome, a axis) (lo, hi float64, cut bool) {
	var bottoms, tops []float64
	for i := range outcomes {
		bottom, top := 0.0, 1.0
		for k := range outcomes[i].Tenants {
			for _, xy := range lag(&outcomes[i].Series, k, a) {
				bottom, top = max(bottom, -xy.Y), max(top, xy.Y)
			}
		}
		bottoms, tops = append(bottoms, bottom), append(tops, top)
	}
	limit := func(v []float64) float64 {
		slices.Sort(v)
		most := v[len(v)-1]
		if n := len(v); n > 1 && most > v[n-2]*5/4 {
			most, cut = v[n-2]*5/4, true
		}
		return most
	}
	return -limit(bottoms), limit(tops), cut
}

func plotLag(x *outcome, list []layer, a axis, lo, hi float64) (template.HTML, error) {
	p := newPlot(a.label, "owed, GPU-hours")
	a.apply(p)
	pad := (hi - lo) * 0.13 // for the labels
	p.Y.Min, p.Y.Max = lo-pad, hi+pad
	p.Y.Tick.Marker = rounds(lo, hi, 5, amountTick)
	zero, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: a.end, Y: 0}})
	if err != nil {
		return "", err
	}
	zero.Color, zero.Width = muted.rgb(), 1
	p.Add(zero)
	owed, ahead := -1, -1 // those furthest from 0
	var top, bottom plotter.XY
	lines := make([]plotter.XYs, len(x.Tenants))
	for k := range x.Tenants {
		lines[k] = lag(&x.Series, k, a)
		for _, xy := range lines[k] {
			if xy.Y > top.Y {
				owed, top = k, xy
			}
			if xy.Y < bottom.Y {
				ahead, bottom = k, xy
			}
		}
	}
	for k := range x.Tenants {
		if len(lines[k]) < 2 || k == owed || k == ahead {
			continue
		}
		l, err := plotter.NewLine(clip(lines[k], lo, hi))
		if err != nil {
			return "", err
		}
		l.Color, l.Width = faint.rgb(), 0.75
		p.Add(l)
	}
	for i, k := range []int{ahead, owed} {
		if k < 0 {
			continue
		}
		l, err := plotter.NewLine(clip(lines[k], lo, hi))
		if err != nil {
			return "", err
		}
		color := colorOf(list, k)
		l.Color, l.Width = color.rgb(), 1.75
		p.Add(l)
		at, label := bottom, string(x.Tenants[k].ID)+" ahead "+amount(-bottom.Y)
		if i == 1 {
			at, label = top, string(x.Tenants[k].ID)+" owed "+amount(top.Y)
		}
		at.Y = min(max(at.Y, lo), hi)
		p.Add(drawing(func(c draw.Canvas, p *plot.Plot) { labelPeak(c, p, at, label, color) }))
	}
	return render(p, 190, "How much each tenant was owed over time under "+x.Title,
		fmt.Sprintf("A line for each tenant: entitlement less service. The most owed tenant reaches %s GPU-hours, the one furthest ahead %s.", amount(top.Y), amount(-bottom.Y)))
}

// clip holds a line to a range: beyond, it runs along the edge.
func clip(xys plotter.XYs, lo, hi float64) plotter.XYs {
	out := slices.Clone(xys)
	for i := range out {
		out[i].Y = min(max(out[i].Y, lo), hi)
	}
	return out
}

// labelPeak writes a label beside a peak, above positive and below negative ones.
func labelPeak(c draw.Canvas, p *plot.Plot, at plotter.XY, label string, k ink) {
	trX, trY := p.Transforms(&c)
	style := textStyle(k, draw.XCenter, draw.YBottom)
	pt := vg.Point{X: trX(at.X), Y: trY(at.Y) + 3}
	if at.Y < 0 {
		style.YAlign, pt.Y = draw.YTop, trY(at.Y)-3
	}
	half := style.Width(label)/2 + 2
	pt.X = min(max(pt.X, c.Min.X+half), c.Max.X-half)
	pt.Y = min(max(pt.Y, c.Min.Y+2), c.Max.Y)
	if at.Y < 0 && pt.Y-fontSize < c.Min.Y {
		pt.Y = c.Min.Y + fontSize + 2
	}
	c.FillText(style, pt, label)
}
