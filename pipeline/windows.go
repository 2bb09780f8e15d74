package pipeline

import (
	"strconv"
	"time"
)

// WindowKind says what a stage waits for in a window.
type WindowKind uint8

// The kinds of windows.
const (
	Idle     WindowKind = iota // it waits, at least in part, for ops of other stages, or there is nothing to do
	CommWait                   // it waits for transfers only
)

// String returns "idle" or "comm".
func (k WindowKind) String() string {
	switch k {
	case Idle:
		return "idle"
	case CommWait:
		return "comm"
	}
	return "WindowKind(" + strconv.Itoa(int(k)) + ")"
}

// Window is a time in which a stage runs no op: a bubble. Windows of a stage never touch.
type Window struct {
	Start, End time.Duration // from Start up to, and without, End; never empty
	Kind       WindowKind    // what it waits for
	Transfer   time.Duration // how much of it passes in waiting for transfers alone; all of it in a CommWait
	Next       int           // index in the stage's order of the op that ends it; the length of the order for the last window
}

// String returns w as "[4s,10s)", and with its kind unless it is idle.
func (w Window) String() string {
	s := "[" + w.Start.String() + "," + w.End.String() + ")"
	if w.Kind != Idle {
		s += " " + w.Kind.String()
	}
	return s
}

// AppendWindows appends the windows of a stage to dst, by time. Ops that take no time do not part windows.
func (r *Result) AppendWindows(dst []Window, stage int) []Window {
	if r.line == nil || stage < 0 || stage >= len(r.line.rows) {
		return dst
	}
	l := r.line
	from := len(dst)
	deps := l.waits[l.base[stage]:]
	for i := range l.rows[stage] {
		at := l.base[stage] + 1 + int32(i)
		free, start := r.ends[at-1], r.ends[at]-r.took[at]
		if start == free {
			continue
		}
		d := deps[i+1] // a stage that waits, waits for this
		w := Window{Start: free, End: start, Transfer: min(r.hops[d.hop], start-free), Next: i}
		dst = mergeWindow(dst, from, w)
	}
	if free := r.ends[l.base[stage+1]-1]; free < r.Makespan {
		dst = mergeWindow(dst, from, Window{Start: free, End: r.Makespan, Next: len(l.rows[stage])})
	}
	return dst
}

// mergeWindow appends w to the windows from index from on, or to the last of them if they touch.
func mergeWindow(dst []Window, from int, w Window) []Window {
	if n := len(dst); n > from && dst[n-1].End == w.Start {
		w.Start, w.Transfer = dst[n-1].Start, w.Transfer+dst[n-1].Transfer
		dst = dst[:n-1]
	}
	w.Kind = Idle
	if w.Transfer == w.End-w.Start {
		w.Kind = CommWait
	}
	return append(dst, w)
}

// Step is one op of the binding chain.
type Step struct {
	Place                    // the op and where it is
	Start, End time.Duration // when it runs
	Transfer   time.Duration // the transfer that Start waited for, after the op before it in the chain; 0 for none
}

// AppendChain appends the binding chain to dst, first op first: a longest path from the start to Makespan, in which each op
// starts as the one before it, and the transfer between them, ends. Of two ops that bind, the one in the same stage is in the
// chain; of two that end last, the one of the lower stage. An op that takes no time and binds nothing is left out.
func (r *Result) AppendChain(dst []Step) []Step {
	if r.line == nil {
		return dst
	}
	l := r.line
	from := len(dst)
	for at := r.lastOp(); at >= 0; {
		start := r.ends[at] - r.took[at]
		s := Step{Place: l.placeOf(at), Start: start, End: r.ends[at]}
		at = r.binding(at)
		if at >= 0 && int(l.row[at]) != s.Stage {
			s.Transfer = start - r.ends[at]
		}
		dst = append(dst, s)
	}
	for i, j := from, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// lastOp returns the index of the op that ends last, of the lowest row.
func (r *Result) lastOp() int32 {
	best, end := int32(-1), time.Duration(-1)
	for row, ops := range r.line.rows {
		if at := r.line.base[row+1] - 1; len(ops) > 0 && r.ends[at] > end {
			best, end = at, r.ends[at]
		}
	}
	return best
}

// binding returns the index of the op that the one at index at waited for; -1 if it started first.
func (r *Result) binding(at int32) int32 {
	start := r.ends[at] - r.took[at]
	if start == 0 {
		return -1
	}
	if r.ends[at-1] == start {
		return at - 1
	}
	return r.line.waits[at].on
}
