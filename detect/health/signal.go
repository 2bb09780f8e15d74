package health

import (
	"cmp"
	"math"
	"math/bits"
)

// read takes in a value.
func (m *Machine) read(t *target, i *incident, e *Event, of, at int64) {
	switch i.entry.Signal {
	case signalCounter, signalTotal:
		if i.grew(e, of, at) {
			m.report(t, i, e, of, at)
		}
	default:
		m.compare(t, i, e, of, at)
	}
}

// grew takes in the value of a counter and reports whether what it grew by is
// evidence.
func (i *incident) grew(e *Event, of, at int64) bool {
	late := i.valued && of <= i.read
	if late && e.Value <= i.value {
		return false // read before the latest, or the same again
	}
	growth := int64(0)
	switch began := !i.valued || e.Value < i.value || i.boot != "" && e.Boot != "" && i.boot != e.Boot; {
	case i.entry.Signal == signalCounter && began:
		growth = e.Value
	case !began:
		growth = e.Value - i.value
	case i.entry.Signal == signalTotal && i.valued && e.Value >= i.value:
		growth = e.Value - i.value // a total outlives a reboot
	}
	i.valued, i.value, i.read, i.boot = true, e.Value, max(i.read, of), cmp.Or(e.Boot, i.boot)
	i.level -= min(i.level, leak(i.entry.limit(), at-i.filled, int64(i.entry.Window)))
	i.level, i.filled = satAdd(i.level, growth), at
	return growth > 0 && i.level >= i.entry.limit()
}

// leak returns limit × elapsed / window, held at the end of int64; a window of 0
// leaks nothing.
func leak(limit, elapsed, window int64) int64 {
	if window == 0 || elapsed <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(limit), uint64(elapsed))
	if hi >= uint64(window) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(window))
	return int64(min(q, math.MaxInt64))
}

// satAdd returns a+b, held at the end of int64; neither is negative.
func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// compare takes in a level.
func (m *Machine) compare(t *target, i *incident, e *Event, of, at int64) {
	beyond := e.Value >= i.entry.limit()
	if i.entry.Below {
		beyond = e.Value <= i.entry.Limit
	}
	if i.valued && (of < i.read || of == i.read && !beyond) {
		return // read before the latest, or at once with one that is no better
	}
	i.valued, i.value, i.read, i.boot = true, e.Value, of, cmp.Or(e.Boot, i.boot)
	switch {
	case !beyond && i.lasts:
		i.lasts = false
		m.clear(t, i.code, of)
	case !beyond:
		i.above = never
	case i.lasts:
		i.again(t, of, at)
	default:
		if i.above == never {
			i.above = at
		}
		m.lasting(t, i, e, of, at)
	}
}

// again is more of a level that lasts.
func (i *incident) again(t *target, of, at int64) {
	if n := len(i.bursts); n > 0 {
		i.bursts[n-1].last = max(i.bursts[n-1].last, of)
	}
	i.at = max(i.at, at)
	if i.active {
		t.bad = max(t.bad, at)
	}
}

// lasting makes a level evidence once it was beyond its limit for long enough.
func (m *Machine) lasting(t *target, i *incident, e *Event, of, at int64) {
	if at-i.above < int64(i.entry.For) {
		return
	}
	i.lasts = true
	m.report(t, i, e, of, at)
	if i.entry.Action != ActionNone && !i.entry.waits() {
		m.activate(t, i, at) // also where the same occurrence was cleared before
	}
}
