package main

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockstep-gpu/lockstep/sim"
)

// axis is a time axis that all plots over time share.
type axis struct {
	unit  time.Duration
	label string
	end   float64 // in units
	cut   bool    // some policy goes on beyond
}

// timeAxis ends where the runs end, or a fifth after the median run: one policy that
// takes very much longer would leave no room for the others.
func timeAxis(outcomes []outcome) axis {
	var ends []time.Duration
	for i := range outcomes {
		end := time.Duration(0)
		if s := outcomes[i].Series.Samples; len(s) > 0 {
			end = s[len(s)-1].Time
		}
		ends = append(ends, max(end, time.Minute))
	}
	slices.Sort(ends)
	end := ends[len(ends)-1]
	a := axis{unit: 24 * time.Hour, label: "days since the trace began"}
	if limit := ends[len(ends)/2] * 6 / 5; end > limit {
		end, a.cut = limit, true
	}
	switch {
	case end < 4*time.Hour:
		a.unit, a.label = time.Minute, "minutes since the trace began"
	case end < 60*time.Hour:
		a.unit, a.label = time.Hour, "hours since the trace began"
	}
	a.end = a.of(end)
	return a
}

func (a *axis) of(t time.Duration) float64 { return float64(t) / float64(a.unit) }

func (a *axis) apply(p *plot.Plot) {
	p.X.Min, p.X.Max = 0, a.end
	p.X.Tick.Marker = rounds(0, a.end, 6, amountTick)
}

// rounds returns round ticks, about n of them.
func rounds(lo, hi float64, n int, format func(float64) string) plot.ConstantTicks {
	step := math.Pow(10, math.Floor(math.Log10(max(hi-lo, 1e-9)/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	var ticks plot.ConstantTicks
	for k := math.Ceil(lo/step-1e-9) + 0; k*step <= hi+step*1e-6; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: format(k * step)})
	}
	return ticks
}

// powers returns ticks of a logarithmic axis: 1, 2 and 5 of each decade, or 1 alone
// where there are many decades.
func powers(lo, hi float64) (ticks plot.ConstantTicks) {
	factors := []float64{1, 2, 5}
	if decades := math.Log10(hi / lo); decades > 3.5 {
		factors = factors[:1]
	} else if decades > 2 {
		factors = []float64{1, 3}
	}
	for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= lo && v <= hi {
				ticks = append(ticks, plot.Tick{Value: v, Label: amountTick(v)})
			}
		}
	}
	return ticks
}

func amountTick(v float64) string {
	if v == math.Trunc(v) {
		return count(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// drawing is a plotter made of a function.
type drawing func(c draw.Canvas, p *plot.Plot)

// Plot is that of plot.Plotter.
func (d drawing) Plot(c draw.Canvas, p *plot.Plot) { d(c, p) }

func textStyle(k ink, x draw.XAlignment, y draw.YAlignment) draw.TextStyle {
	return draw.TextStyle{Font: sans(fontSize), Color: k.rgb(), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

// occupancyBins is how many stretches of time a plot of occupancy shows.
const occupancyBins = 150

// layer is a tenant, or the lesser ones together, in plots and keys.
type layer struct {
	Name string
	ink  ink
	of   []int // indices of Result.Tenants
}

// Color is the name of its CSS variable.
func (l *layer) Color() template.CSS { return template.CSS("var(--" + l.ink.Name + ")") } //nolint:gosec // a name of ours

// layers chooses those that are shown apart: all, or the ones that did most.
func layers(w *workload, r *sim.Result) []layer {
	order := make([]int, 0, len(r.Tenants))
	for i := range r.Tenants {
		if r.Tenants[i].Jobs > 0 {
			order = append(order, i)
		}
	}
	const most = len(tenantInks)
	var others []int
	if len(order) > most {
		slices.SortStableFunc(order, func(a, b int) int { return r.Tenants[b].Service.Cmp(r.Tenants[a].Service) })
		others = slices.Clone(order[most-1:])
		order = order[:most-1]
		slices.Sort(order)
	}
	var list []layer
	for i, k := range order {
		list = append(list, layer{Name: string(r.Tenants[k].ID), ink: tenantInks[i], of: []int{k}})
	}
	if others != nil {
		list = append(list, layer{Name: fmt.Sprintf("%d others", len(others)), ink: tenantInks[most-1], of: others})
	}
	return list
}

// occupancy sums up, for each layer, the mean GPUs held in each stretch of time up
// to end.
func occupancy(s *sim.Series, list []layer, end time.Duration, bins int) [][]float64 {
	sums := make([][]float64, len(list))
	for l := range list {
		sums[l] = make([]float64, bins)
	}
	for b := range bins {
		from, to := end*time.Duration(b)/time.Duration(bins), end*time.Duration(b+1)/time.Duration(bins)
		for l := range list {
			for _, k := range list[l].of {
				sums[l][b] += (serviceAt(s, k, to) - serviceAt(s, k, from)) / (to - from).Seconds()
			}
		}
	}
	return sums
}

// serviceAt returns what tenant k had got at a time, straight between samples.
func serviceAt(s *sim.Series, k int, at time.Duration) float64 {
	i, _ := slices.BinarySearchFunc(s.Samples, at, func(x sim.Sample, at time.Duration) int { return cmp.Compare(x.Time, at) })
	switch {
	case len(s.Samples) == 0:
		return 0
	case i == 0:
		return s.Samples[0].Service[k]
	case i == len(s.Samples):
		return s.Samples[i-1].Service[k]
	}
	a, b := &s.Samples[i-1], &s.Samples[i]
	part := (at - a.Time).Seconds() / (b.Time - a.Time).Seconds()
	return a.Service[k] + part*(b.Service[k]-a.Service[k])
}

func plotOccupancy(x *outcome, list []layer, a axis) (template.HTML, error) {
	p := newPlot(a.label, "GPUs held")
	a.apply(p)
	p.Y.Min, p.Y.Max = 0, float64(x.GPUs)
	p.Y.Tick.Marker = rounds(0, p.Y.Max, 4, amountTick)
	heights := occupancy(&x.Series, list, time.Duration(a.end*float64(a.unit)), occupancyBins)
	p.Add(drawing(func(c draw.Canvas, p *plot.Plot) {
		trX, trY := p.Transforms(&c)
		at := func(b int) vg.Length { return trX(a.end * float64(b) / occupancyBins) }
		base := make([]float64, occupancyBins)
		for l := range list {
			var lower, upper []vg.Point
			top := make([]float64, occupancyBins)
			for b := range base {
				top[b] = base[b] + heights[l][b]
				lower = append(lower, vg.Point{X: at(b), Y: trY(base[b])}, vg.Point{X: at(b + 1), Y: trY(base[b])})
				upper = append(upper, vg.Point{X: at(b), Y: trY(top[b])}, vg.Point{X: at(b + 1), Y: trY(top[b])})
			}
			slices.Reverse(lower)
			c.FillPolygon(list[l].ink.rgb(), slices.Concat(upper, lower))
			c.StrokeLines(draw.LineStyle{Color: surface.rgb(), Width: 0.4}, upper)
			labelBand(c, list[l].Name, base, top, at, trY)
			base = top
		}
	}))
	return render(p, 190, "GPUs held by each tenant over time under "+x.Title,
		fmt.Sprintf("Stacked areas, one for each tenant, out of %d GPUs. %s of them are held on average. The table below gives the figures.", x.GPUs, percentWhole(x.Utilization)))
}

// labelBand writes a name where its band is highest, if it has room there.
func labelBand(c draw.Canvas, name string, base, top []float64, at func(int) vg.Length, trY func(float64) vg.Length) {
	style := textStyle(surface, draw.XCenter, draw.YCenter)
	width := int(math.Ceil(float64((style.Width(name) + 4) / (at(1) - at(0)))))
	best, where, middle := vg.Length(fontSize), -1, vg.Length(0)
	for b := 0; b+width <= len(base); b++ {
		lo, hi := slices.Max(base[b:b+width]), slices.Min(top[b:b+width])
		if h := trY(hi) - trY(lo); h > best {
			best, where, middle = h, b, (trY(hi)+trY(lo))/2
		}
	}
	if where >= 0 {
		c.FillText(style, vg.Point{X: (at(where) + at(where+width)) / 2, Y: middle}, name)
	}
}

// plotService shows what each tenant was entitled to and what it got.
func plotService(x *outcome, least, most float64) (template.HTML, error) {
	p := newPlot("GPU-hours (log)", "")
	var rows []*sim.Tenant
	for i := range x.Tenants {
		if x.Tenants[i].Jobs > 0 {
			rows = append(rows, &x.Tenants[i])
		}
	}
	n := len(rows)
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = least/1.3, most*1.3
	p.X.Tick.Marker = powers(p.X.Min, p.X.Max)
	p.Y.Min, p.Y.Max = -0.6, float64(n)+0.2
	var ticks plot.ConstantTicks
	for i, t := range rows {
		ticks = append(ticks, plot.Tick{Value: float64(n - 1 - i), Label: string(t.ID)})
	}
	p.Y.Tick.Marker = ticks
	k := policyInks[x.Flag]
	p.Add(drawing(func(c draw.Canvas, p *plot.Plot) {
		trX, trY := p.Transforms(&c)
		for i, t := range rows {
			y := trY(float64(n - 1 - i))
			from := vg.Point{X: trX(max(gpuHours(t.Entitlement), least)), Y: y}
			to := vg.Point{X: trX(max(gpuHours(t.Service), least)), Y: y}
			c.StrokeLines(draw.LineStyle{Color: k.rgb(), Width: 1.5}, []vg.Point{from, to})
			c.DrawGlyph(draw.GlyphStyle{Color: muted.rgb(), Radius: 4, Shape: draw.RingGlyph{}}, from)
			c.DrawGlyph(draw.GlyphStyle{Color: k.rgb(), Radius: 3.2, Shape: draw.CircleGlyph{}}, to)
			right := textStyle(muted, draw.XLeft, draw.YCenter)
			label, pt := three(t.Index), vg.Point{X: max(from.X, to.X) + 8, Y: y}
			if pt.X+right.Width(label) > c.Max.X {
				right.XAlign, pt.X = draw.XRight, min(from.X, to.X)-8
			}
			c.FillText(right, pt, label)
		}
	}))
	return render(p, vg.Length(44+17*n), "Service and entitlement of each tenant under "+x.Title,
		fmt.Sprintf("A row for each tenant: a ring at what it was entitled to, a dot at what it got, and the ratio of the two. The least ratio is %s.", three(worstIndex(x))))
}

// colorOf returns the colour of tenant k.
func colorOf(list []layer, k int) ink {
	for i := range list {
		if slices.Contains(list[i].of, k) {
			return list[i].ink
		}
	}
	return text
}

// plotTimeline shows one job under every policy.
func plotTimeline(t *story) (template.HTML, error) {
	p := newPlot("hours since the job was submitted", "")
	n := len(t.Ways)
	end := time.Minute
	for i := range t.Ways {
		end = max(end, t.Ways[i].Record.End-t.Record.Submit)
	}
	unit := time.Hour
	if end < 3*time.Hour {
		unit, p.X.Label.Text = time.Minute, "minutes since the job was submitted"
	}
	of := func(d time.Duration) float64 { return float64(d-t.Record.Submit) / float64(unit) }
	p.X.Min, p.X.Max = 0, float64(end)/float64(unit)
	p.X.Tick.Marker = rounds(0, p.X.Max, 5, amountTick)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	var ticks plot.ConstantTicks
	for i := range t.Ways {
		ticks = append(ticks, plot.Tick{Value: float64(n - 1 - i), Label: t.Ways[i].Title})
	}
	p.Y.Tick.Marker = ticks
	p.Add(drawing(func(c draw.Canvas, p *plot.Plot) {
		trX, trY := p.Transforms(&c)
		for i := range t.Ways {
			y := trY(float64(n - 1 - i))
			k := policyInks[t.Ways[i].Flag]
			for _, s := range t.Ways[i].Spans {
				half, color := vg.Length(8), k
				if s.State == waiting {
					half, color = 1.5, faint
				}
				from, to := trX(of(s.From)), trX(of(s.To))
				to = max(to, from+0.6)
				c.FillPolygon(color.rgb(), []vg.Point{{X: from, Y: y - half}, {X: to, Y: y - half}, {X: to, Y: y + half}, {X: from, Y: y + half}})
			}
		}
	}))
	return render(p, vg.Length(48+26*n), fmt.Sprintf("Job %s over time under each policy", t.Job),
		"A row for each policy: thin where the job waits, thick where it holds GPUs. The table below gives the figures.")
}
