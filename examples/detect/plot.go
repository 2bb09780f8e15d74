package main

import (
	"errors"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours of the picture: iterations, those while an alarm stands, and the alarm. Immutable.
var (
	inkPoint = color.RGBA{R: 0x45, G: 0x75, B: 0xb4, A: 0xff}
	inkSlow  = color.RGBA{R: 0xd7, G: 0x30, B: 0x27, A: 0xff}
	inkGrid  = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// picture writes observed over expected time with the alarms as SVG.
func picture(w io.Writer, points []point) error {
	if len(points) == 0 {
		return errors.New("no iteration was compared with an expected time: there is nothing to draw")
	}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "iteration", "observed / expected time"
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, inkGrid
	p.Add(grid)
	var healthy, slow plotter.XYs
	low, high := 1.0, 1.0
	for _, pt := range points {
		xy := plotter.XY{X: float64(pt.number), Y: pt.ratio}
		if pt.slow {
			slow = append(slow, xy)
		} else {
			healthy = append(healthy, xy)
		}
		low, high = min(low, pt.ratio), max(high, pt.ratio)
	}
	for _, pt := range points {
		if !pt.alarm {
			continue
		}
		alarm, err := plotter.NewLine(plotter.XYs{{X: float64(pt.number), Y: low}, {X: float64(pt.number), Y: high}})
		if err != nil {
			return err
		}
		alarm.Color, alarm.Width = inkSlow, vg.Points(1)
		alarm.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(alarm)
		p.Legend.Add("alarm", alarm)
	}
	if err := scatter(p, "as expected", healthy, inkPoint); err != nil {
		return err
	}
	if err := scatter(p, "while an alarm stands", slow, inkSlow); err != nil {
		return err
	}
	p.Legend.Top, p.Legend.Left = true, true
	c := vgsvg.New(8*vg.Inch, 3.4*vg.Inch)
	p.Draw(draw.New(c))
	_, err := c.WriteTo(w)
	return err
}

// scatter adds points to p, if there are any.
func scatter(p *plot.Plot, name string, xys plotter.XYs, ink color.Color) error {
	if len(xys) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: vg.Points(1.6), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	p.Legend.Add(name, dots)
	return nil
}
