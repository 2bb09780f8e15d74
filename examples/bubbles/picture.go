package main

import (
	"bytes"
	"fmt"
	"time"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth = 1200
	labelWidth   = 70
	rowHeight    = 34
	headHeight   = 30
	iterations   = 3 // as many are shown
)

// picture draws the last iterations as SVG.
func (j *job) picture() []byte {
	from := j.starts[max(0, len(j.starts)-iterations)]
	end := from + 1
	for _, s := range j.stages {
		for _, b := range s.bars {
			end = max(end, b.end)
		}
	}
	scale := float64(pictureWidth-labelWidth-4) / float64(end-from)
	x := func(t time.Duration) float64 { return labelWidth + float64(t-from)*scale }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n", pictureWidth, headHeight+rowHeight*len(j.stages)+24)
	fmt.Fprintf(&b, `<text x="4" y="18" font-weight="bold">The last %v of the job: forward blue, backward orange, bubbles grey, trials in them (narrow green, wide violet), overruns red</text>`+"\n",
		(end - from).Round(time.Millisecond))
	for i, s := range j.stages {
		y := headHeight + i*rowHeight
		fmt.Fprintf(&b, `<text x="4" y="%d">stage %d</text>`+"\n", y+19, i)
		for _, over := range []bool{false, true} { // trials and overruns lie over the bubbles
			for _, k := range s.bars {
				if k.start < from || (k.what >= barTrial) != over {
					continue
				}
				top, height := y+2, rowHeight-6
				if k.what == barTrial {
					top, height = y+rowHeight/2, rowHeight/2-6
				}
				fmt.Fprintf(&b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#fff" stroke-width="0.3"><title>%s</title></rect>`+"\n",
					x(k.start), top, max(float64(k.end-k.start)*scale, 0.5), height, k.ink(), (k.end - k.start).Round(10*time.Microsecond))
			}
		}
	}
	bottom := headHeight + rowHeight*len(j.stages)
	for _, t := range j.starts {
		if t >= from {
			fmt.Fprintf(&b, `<line x1="%.2f" y1="%d" x2="%.2f" y2="%d" stroke="#000" stroke-width="0.6"/><text x="%.2f" y="%d">%.2f s</text>`+"\n",
				x(t), headHeight-4, x(t), bottom+6, x(t)+2, bottom+16, t.Seconds())
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// ink is the colour of a bar.
func (b bar) ink() string {
	switch {
	case b.what == barForward:
		return "#4575b4"
	case b.what == barBackward:
		return "#fdae61"
	case b.what == barBubble:
		return "#ddd"
	case b.what == barOverrun:
		return "#d73027"
	case b.trial == "wide":
		return "#762a83"
	}
	return "#1b7837"
}
