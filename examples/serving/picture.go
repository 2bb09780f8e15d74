package main

import (
	"fmt"
	"strings"
	"time"
)

// Sizes of a histogram, in the units of its view box; a page shows it as wide as it has room.
const (
	width, height = 400, 110
	bins          = 30 // up to one and a half times the objective; the last one has what took longer, too
)

// style has colours that are told apart without red and green, for light and dark; hatching tells them apart without any.
const style = `:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f26;--soft:#5b6470;--grid:#dfe3e8;--good:#0961bb;--late:#b35900}
@media(prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#e6e9ee;--soft:#9aa4b1;--grid:#2b313a;--good:#70adfb;--late:#ffb36b}}
body{margin:0 auto;padding:1rem;max-width:72rem;background:var(--paper);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(19rem,1fr));gap:1rem}section{display:flex;flex-direction:column}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin:.5rem 0 0}p{margin:.3rem 0;max-width:44rem}svg{width:100%;margin-top:auto}
text{font-size:13px;fill:var(--soft)}.good{fill:var(--good)}.late{fill:var(--late)}.lost{fill:url(#hatch);stroke:var(--soft)}
.line{stroke:var(--ink);stroke-dasharray:4 3}.axis{stroke:var(--soft)}.grid{stroke:var(--grid)}`

// page draws how long requests took at each door.
func page(o options, sites []*site) []byte {
	counts, most := make([][]int, len(sites)), 1
	for i, s := range sites {
		counts[i] = make([]int, bins)
		for _, took := range s.tally.took {
			b := min(int(took*bins*2/(3*o.slo)), bins-1)
			counts[i][b]++
			most = max(most, counts[i][b])
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Latency at three doors</title><style>%s</style>
<svg style="position:absolute;width:0;height:0" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="var(--soft)" stroke-width="3"/></pattern></defs></svg>
<h1>Latency at three doors</h1><p>The same requests, %g a second, %g in a burst, and %g again, went to all of them. They are to be answered within %v.
Bars: how many requests took how long. Strip: which part was answered in time (blue), late (orange), or refused (hatched).</p><main>
`, style, o.calm, o.burst, o.calm, o.slo)
	for i, s := range sites {
		n := &s.books
		_, share := s.tally.inTime()
		fmt.Fprintf(&b, "<section><h2>%s</h2><p>%.1f %% in time; p50 %d ms, p95 %d ms, p99 %d ms; batches of %.1f; %.1f replica-seconds</p>\n", s.name, 100*share,
			s.tally.quantile(.5), s.tally.quantile(.95), s.tally.quantile(.99), n.mean(), n.cost.Seconds())
		histogram(&b, o.slo, s, counts[i], most)
	}
	b.WriteString("</main></html>\n")
	return []byte(b.String())
}

// histogram draws one door, with as many requests at the top as the highest bar of all of them has.
func histogram(b *strings.Builder, slo time.Duration, s *site, counts []int, most int) {
	const each = float64(width) / bins
	fmt.Fprintf(b, `<svg viewBox="-2 -16 %d %d" role="img" aria-label="Histogram of latencies: %s">`, width+4, height+70, s.name)
	fmt.Fprintf(b, `<path class="grid" d="M0 .5H%d"/><text y="-4">%d requests</text>`, width, most)
	for i, n := range counts {
		class := "good"
		if i*3 >= bins*2 {
			class = "late"
		}
		h := float64(n) * height / float64(most)
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%d</title></rect>`, class, float64(i)*each+.5, height-h, each-1, h, n)
	}
	good, _ := s.tally.inTime()
	late := len(s.tally.took) - good
	fmt.Fprintf(b, `<path class="axis" d="M0 %d.5H%d"/><path class="line" d="M%.1f -14V%d"/><text x="%.1f" y="-4">objective</text>`,
		height, width, width/1.5, height, width/1.5+5)
	for i, anchor := range []string{"start", "middle", "middle", "end"} {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s">%d ms</text>`, width*i/3, height+17, anchor, (slo * time.Duration(i) / 2).Milliseconds())
	}
	x := 0.0
	for _, part := range []struct {
		class string
		n     int
	}{{"good", good}, {"late", late}, {"lost", s.books.refused}} {
		w := width * float64(part.n) / float64(max(s.books.arrived, 1))
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="12"><title>%d</title></rect>`, part.class, x, height+26, w, part.n)
		x += w
	}
	fmt.Fprintf(b, `<text y="%d">%d in time, %d late, %d refused</text></svg></section>`+"\n", height+52, good, late, s.books.refused)
}
