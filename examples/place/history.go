package main

import "time"

// history is what the cluster looked like over the time of a replay: a step
// function, each entry lasting until the next.
type history struct {
	total   int // devices there are
	moments []moment
}

// moment is how things stand from a time on.
type moment struct {
	at        time.Duration
	busy      int // devices held
	scattered int // free devices on nodes that are partly held
	waiting   int // jobs
}

func (h *history) add(at time.Duration, busy, scattered, waiting int) {
	h.moments = append(h.moments, moment{at: at, busy: busy, scattered: scattered, waiting: waiting})
}

// span returns when the history begins and ends.
func (h *history) span() (first, last time.Duration) {
	if len(h.moments) == 0 {
		return 0, 0
	}
	return h.moments[0].at, h.moments[len(h.moments)-1].at
}

// each calls f for every moment with how long it lasted.
func (h *history) each(f func(m moment, lasts time.Duration)) {
	for i := 1; i < len(h.moments); i++ {
		f(h.moments[i-1], h.moments[i].at-h.moments[i-1].at)
	}
}

// utilization returns the part of all devices that was held, on average over
// the whole time.
func (h *history) utilization() float64 {
	var busy, all float64
	h.each(func(m moment, lasts time.Duration) {
		busy += float64(m.busy) * lasts.Seconds()
		all += float64(h.total) * lasts.Seconds()
	})
	return ratio(busy, all)
}

// idleWhileWaiting returns, over the time that jobs wait, the part of all
// devices that is free, and of that the part that is scattered over nodes
// partly held: the fragmentation that keeps whole-node gangs out.
func (h *history) idleWhileWaiting() (free, scattered float64) {
	var all, idle, broken float64
	h.each(func(m moment, lasts time.Duration) {
		if m.waiting == 0 {
			return
		}
		all += float64(h.total) * lasts.Seconds()
		idle += float64(h.total-m.busy) * lasts.Seconds()
		broken += float64(m.scattered) * lasts.Seconds()
	})
	return ratio(idle, all), ratio(broken, idle)
}

// bins returns the utilisation of n equal parts of the whole time.
func (h *history) bins(n int) []float64 {
	out := make([]float64, n)
	first, last := h.span()
	width := float64(last-first) / float64(n)
	if width <= 0 || h.total == 0 {
		return out
	}
	h.each(func(m moment, lasts time.Duration) {
		from := float64(m.at-first) / width
		to := from + float64(lasts)/width
		for i := int(from); i < n && float64(i) < to; i++ {
			overlap := min(to, float64(i+1)) - max(from, float64(i))
			out[i] += overlap * float64(m.busy) / float64(h.total)
		}
	})
	return out
}

// ratio returns a/b, and 0 of nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
