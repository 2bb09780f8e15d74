package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/pipeline"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth = 1100
	labelWidth   = 110
	rowHeight    = 16
	panelGap     = 34
)

// picture writes the pipelines before and after as SVG, on one time axis.
func (r *result) picture(w io.Writer) error {
	before, err := reconfig.Timeline(r.Job, r.Devices, r.old)
	if err != nil {
		return err
	}
	after, err := reconfig.Timeline(r.Job, r.faulty, r.new)
	if err != nil {
		return err
	}
	end := time.Duration(1)
	for _, slots := range [][]reconfig.Slot{before, after} {
		for _, s := range slots {
			end = max(end, s.End)
		}
	}
	var b strings.Builder
	y := panel(&b, 0, "before", r.old, before, end)
	y = panel(&b, y, "after", r.new, after, end)
	_, err = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n%s</svg>\n", pictureWidth, y+8, b.String())
	return err
}

// panel draws one plan below y and returns where it ends.
func panel(b *strings.Builder, y int, title string, p *reconfig.Plan, slots []reconfig.Slot, end time.Duration) int {
	fmt.Fprintf(b, `<text x="4" y="%d" font-weight="bold">%s: a step takes %s (forward blue, backward orange, weight gradients green, another replica's work edged)</text>`+"\n", y+20, title, p.Estimate.Iteration.Round(time.Microsecond))
	y += panelGap - 6
	row := map[[2]int]int{}
	for i, rep := range p.Replicas {
		for s := range rep.Stages {
			row[[2]int{i, s}] = y
			fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#eee"/><text x="4" y="%d">replica %d stage %d</text>`+"\n",
				labelWidth, y+1, pictureWidth-labelWidth-4, rowHeight-2, y+12, rep.Number, s)
			y += rowHeight
		}
		y += 4
	}
	scale := float64(pictureWidth-labelWidth-4) / float64(end)
	for _, s := range slots {
		stroke := "#fff"
		if s.Owner != s.Replica {
			stroke = "#000" // another replica's micro-batch
		}
		fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="%s" stroke-width="0.4"/>`+"\n",
			labelWidth+float64(s.Start)*scale, row[[2]int{s.Replica, s.Stage}]+1, float64(s.End-s.Start)*scale, rowHeight-2, ink(s.Op.Kind), stroke)
	}
	return y
}

// ink is the colour of a kind of op.
func ink(k pipeline.Kind) string {
	switch k {
	case pipeline.Forward:
		return "#4575b4"
	case pipeline.Backward:
		return "#fdae61"
	default:
		return "#66bd63"
	}
}
