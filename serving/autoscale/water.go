package autoscale

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// tides is into how many pieces Hold is cut: a mark stands for up to one of them longer.
const tides = 256

// mostWork is the most work of a window, in microseconds: 2^20 replicas do less in a day.
const mostWork = int64(1) << 60

// water is what HighWater goes by: the work that came in over the last Load, and the highest of that within Hold.
type water struct {
	load, hold, wait time.Duration
	Work             mean   `json:"work"`              // how long a replica is busy with what came in, in microseconds; its Value is 0
	Tides            []tide `json:"tides"`             // by piece, those that still stand; a piece without samples has none
	Behind           int64  `json:"behind,omitempty"`  // the work that waited at Since, in microseconds
	Since            int64  `json:"since,omitempty"`   // when that was, in microseconds since 1970
	Came             int64  `json:"came,omitempty"`    // the work that came in since then
	Ready            int    `json:"ready,omitempty"`   // how many replicas were ready by the last decision
	Decided          bool   `json:"decided,omitempty"` // there was one
}

// tide is the highest of a piece of Hold.
type tide struct {
	Piece int64 `json:"piece"` // counted from 1970
	Swell int64 `json:"swell"` // the mean load over Load, in thousandths of a replica
	Surge int64 `json:"surge"` // the capacity with which no work had waited longer than Wait, in the same unit
}

// newWater returns what h goes by, with its defaults.
func newWater(h HighWater) *water { return &water{load: h.Load, hold: h.Hold, wait: h.Wait} }

// width is how long a piece of Hold is.
func (w *water) width() int64 { return max(int64(w.hold)/tides, 1) }

// add takes in that work came in since the last time, evenly. The first tells from when on: what came before it did in
// no known time.
func (w *water) add(now int64, busy time.Duration) {
	if w.Work.Width == 0 {
		w.Work.begin(now/1000, w.load)
		w.Since = now / 1000
	}
	if now/1000 == w.Work.Start {
		return
	}
	sum, _ := w.Work.over(w.load)
	came := min(int64(busy)/1000, max(mostWork-sum, 0))
	if now/1000 > w.Work.Last { // those of one instant count together
		w.Behind, w.Since, w.Came = min(w.behind(), mostWork), w.Work.Last, 0
	}
	w.Work.advance(now/1000, came)
	w.Came = min(w.Came+came, mostWork)
	at := now / w.width()
	if n := len(w.Tides); n == 0 || w.Tides[n-1].Piece < at {
		w.drop(at)
		w.Tides = append(w.Tides, tide{Piece: at})
	}
	last := &w.Tides[len(w.Tides)-1]
	last.Swell = max(last.Swell, w.swell())
	last.Surge = max(last.Surge, w.surge())
}

// serve returns the work that waits after what was ready has had its time; ready is so from now on, and present is the
// work of all requests that there are, more than which does not wait.
func (w *water) serve(ready int, present time.Duration) int64 {
	w.Ready = ready
	if !w.Decided { // nobody knows what was ready until now
		w.Decided, w.Behind, w.Came = true, 0, 0
	}
	late := w.behind()
	if over := late - int64(present)/1000; over > 0 {
		w.Behind -= min(over, w.Behind)
		late -= over
	}
	return late
}

// behind returns the work that waits by the last sample.
func (w *water) behind() int64 {
	done := int128.MulDiv(w.Work.Last-w.Since, int64(w.Ready)*fullUse, thousand)
	return max(w.Behind+w.Came-done, 0)
}

// drop forgets what no longer stands in a piece.
func (w *water) drop(at int64) {
	n := 0
	for n < len(w.Tides) && w.Tides[n].Piece < at-tides {
		n++
	}
	w.Tides = append(w.Tides[:0], w.Tides[n:]...)
}

// swell returns the mean load over the last Load. What was before the first sample counts as nothing.
func (w *water) swell() int64 {
	if w.Work.Width == 0 {
		return 0
	}
	sum, _ := w.Work.over(w.load)
	return min(int128.MulDivUp(sum, thousand, max(w.load.Microseconds(), 1)), maxLoad)
}

// surge returns the least capacity with which no work of the last Load had waited longer than Wait: the most that came
// in a stretch, over its length and Wait.
func (w *water) surge() int64 {
	if w.wait == 0 {
		return 0
	}
	m, best := &w.Work, int64(0)
	for i := len(m.Marks) - 1; i >= 0; i-- {
		k := m.Marks[i]
		length := m.Last - k.At
		if length > w.load.Microseconds() {
			break
		}
		sum := min(m.Sum-k.Sum, math.MaxInt64)
		best = max(best, int128.MulDivUp(int64(sum), thousand, max(length+w.wait.Microseconds(), 1)))
	}
	return min(best, maxLoad)
}

// highest returns the marks that stand.
func (w *water) highest(now int64) (swell, surge int64) {
	for _, t := range w.Tides {
		if t.Piece >= now/w.width()-tides {
			swell, surge = max(swell, t.Swell), max(surge, t.Surge)
		}
	}
	return swell, surge
}

// known says whether samples have been seen for as long as a window is.
func (w *water) known(now int64) bool {
	return w.Work.Width > 0 && now/1000-w.Work.Start >= w.load.Microseconds()
}

// take takes saved marks in, or says what is impossible about them; told is when the last sample came.
func (w *water) take(img *water, told int64) string {
	switch {
	case w == nil && img != nil:
		return "marks that are not configured"
	case w == nil:
		return ""
	case img == nil:
		return "no marks"
	}
	if img.Work.Width == 0 && len(img.Tides) > 0 || img.Work.Value != 0 {
		return "marks of nothing"
	}
	if reason := img.Work.bad(told / 1000); reason != "" {
		return reason
	}
	for i, t := range img.Tides {
		if i > 0 && t.Piece <= img.Tides[i-1].Piece || t.Piece < 0 || t.Piece > told/w.width() || beyondLoad(t.Swell) || beyondLoad(t.Surge) {
			return "marks out of range or order"
		}
	}
	if len(img.Tides) > tides+1 {
		return "too many marks"
	}
	if min(img.Behind, img.Came, img.Since) < 0 || max(img.Behind, img.Came) > mostWork || img.Since > img.Work.Last || img.Ready < 0 || img.Ready > MaxReplicas {
		return "a backlog out of range"
	}
	img.load, img.hold, img.wait = w.load, w.hold, w.wait
	*w = *img
	return ""
}
