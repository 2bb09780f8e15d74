package main

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A plot is drawn for a column of about this width, in CSS pixels: that of a phone.
// Where there is more room there are more columns.
const (
	plotWidth = 380
	fontSize  = 11.5
)

// sans is the font that text is measured with. The page shows it, or Arial or
// Helvetica, whose letters are as wide.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newPlot returns an empty plot in the style of the report. A label is a quantity
// with its unit.
func newPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = sans(fontSize), muted.rgb()
		a.Tick.Label.Font, a.Tick.Label.Color = sans(fontSize), muted.rgb()
		a.LineStyle.Color, a.LineStyle.Width = faint.rgb(), 0.75
		a.Tick.LineStyle.Color, a.Tick.LineStyle.Width = faint.rgb(), 0.75
		a.Tick.Length = 4
		a.Padding = 0
	}
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.Y.LineStyle.Width, p.Y.Tick.Length = 0, 0
	p.Y.Tick.Label.XAlign = draw.XRight
	lines := plotter.NewGrid()
	lines.Vertical.Color = nil
	lines.Horizontal.Color, lines.Horizontal.Width = grid.rgb(), 0.75
	p.Add(lines)
	return p
}

// Patterns in what vgsvg writes. Immutable.
var (
	svgHead  = regexp.MustCompile(`(?s)^.*?<svg [^>]*>`)
	svgFont  = regexp.MustCompile(`font-family:[^;]*;font-variant:normal;font-weight:normal;font-style:normal;`)
	svgColor = regexp.MustCompile(`#[0-9A-F]{6}`)
	svgBreak = regexp.MustCompile(`>\s+<`)
)

// render draws p as an SVG element that stands in a page: it takes its font and
// colours from there, and says in words what it shows.
func render(p *plot.Plot, height vg.Length, title, description string) (template.HTML, error) {
	c := vgsvg.NewWith(vgsvg.UseWH(plotWidth, height))
	// A margin, so that the last label of an axis is not cut.
	p.Draw(draw.Crop(draw.New(c), 1, -14, 1, -6))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	return dress(b.String(), height, title, description)
}

func dress(svg string, height vg.Length, title, description string) (template.HTML, error) {
	head := fmt.Sprintf(`<svg viewBox="0 0 %d %g" role="img"><title>%s</title><desc>%s</desc>`,
		plotWidth, float64(height), html.EscapeString(title), html.EscapeString(description))
	svg = svgHead.ReplaceAllLiteralString(svg, head)
	svg = svgFont.ReplaceAllLiteralString(svg, "")
	names := make(map[string]string)
	for _, k := range inks() {
		names[k.Light] = k.Name
	}
	var unknown string
	svg = svgColor.ReplaceAllStringFunc(svg, func(c string) string {
		if names[c] == "" {
			unknown = c
		}
		return "var(--" + names[c] + ")"
	})
	if unknown != "" {
		return "", fmt.Errorf("plot %q uses the colour %s, which has no name", title, unknown)
	}
	// Letters on a filled area, in the colour of the surface, need no halo.
	svg = strings.ReplaceAll(svg, `px;fill:var(--surface)"`, `px;fill:var(--surface);stroke:none"`)
	svg = svgBreak.ReplaceAllString(svg, "><")
	//nolint:gosec // Everything that is not ours was escaped, above or by vgsvg.
	return template.HTML(svg), nil
}
