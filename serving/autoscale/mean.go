package autoscale

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// pieces is into how many a window is cut: a mean over it is exact at that many times and linear between them.
const pieces = 256

// mean is an integral over time of which the last part is kept, so that means over windows can be read from it.
// Sums wrap around; differences within a window do not.
type mean struct {
	Width int64  `json:"width"` // how long a piece is, in microseconds
	Start int64  `json:"start"` // when it began, in microseconds since 1970
	Last  int64  `json:"last"`  // up to when it was summed
	Value int64  `json:"value"` // what it is since then, for each microsecond
	Sum   uint64 `json:"sum"`   // up to Last
	Marks []mark `json:"marks"` // by time, the first at Start or before the longest window
}

// mark is what the sum was at a time.
type mark struct {
	At  int64  `json:"at"`
	Sum uint64 `json:"sum"`
}

// begin starts m at a time in microseconds, for windows of at most longest.
func (m *mean) begin(at int64, longest time.Duration) {
	*m = mean{Width: max(longest.Microseconds()/pieces, 1), Start: at, Last: at, Marks: []mark{{At: at}}}
}

// advance sums up to now, in microseconds, and adds extra, which came in evenly since the last time.
func (m *mean) advance(now, extra int64) {
	if skip := now - m.Last - time.Hour.Microseconds(); skip > 0 && m.Value > 0 {
		// No window reaches back so far, and a difference over all of it might wrap.
		m.Last += skip
		m.Sum += uint64(m.Value) * uint64(skip)
		m.Marks = append(m.Marks[:0], mark{m.Last, m.Sum})
	}
	m.Sum += uint64(m.Value)*uint64(now-m.Last) + uint64(extra)
	m.Last = now
	last := &m.Marks[len(m.Marks)-1]
	switch {
	case now == last.At:
		last.Sum = m.Sum
	case now-last.At >= m.Width || len(m.Marks) == 1:
		m.Marks = append(m.Marks, mark{now, m.Sum})
	default: // the last mark moves, unless it closes a piece
		if prev := m.Marks[len(m.Marks)-2]; now-prev.At <= m.Width {
			*last = mark{now, m.Sum}
		} else {
			m.Marks = append(m.Marks, mark{now, m.Sum})
		}
	}
	old := now - (pieces+2)*m.Width
	drop := 0
	for drop+1 < len(m.Marks) && m.Marks[drop+1].At <= old {
		drop++
	}
	m.Marks = slices.Delete(m.Marks, 0, drop)
}

// over returns what was summed in the window before Last, and how long of it there was, in microseconds.
func (m *mean) over(window time.Duration) (sum, length int64) {
	from := max(m.Last-window.Microseconds(), m.Start, m.Marks[0].At)
	i, _ := slices.BinarySearchFunc(m.Marks, from, func(k mark, at int64) int {
		if k.At <= at {
			return -1
		}
		return 1
	})
	// Marks[i-1] is the last at or before from.
	before := m.Marks[i-1]
	at := before.Sum
	if i < len(m.Marks) {
		after := m.Marks[i]
		at += uint64(int128.MulDiv(int64(after.Sum-before.Sum), from-before.At, after.At-before.At))
	}
	return int64(m.Sum - at), m.Last - from
}

// level returns the mean of a value over the window, in thousandths; what it is now before any time has passed.
func (m *mean) level(window time.Duration) int64 {
	sum, length := m.over(window)
	if length == 0 {
		return m.Value * thousand
	}
	return int128.MulDiv(sum, thousand, length)
}

// rate returns how much came in for each second of the window, in thousandths. The window counts in full once it was
// begun, so that the first sample is no burst.
func (m *mean) rate(window time.Duration) int64 {
	sum, _ := m.over(window)
	return int128.MulDiv(sum, thousand*1_000_000, max(window.Microseconds(), 1))
}
