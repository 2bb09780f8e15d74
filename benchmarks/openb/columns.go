package main

import "slices"

// patternSteps is how finely patterns measure a device. Shares are rounded down to
// it, which can only raise a limit; those of the trace are whole steps.
const patternSteps = 100

// pricer solves the linear program of bounds by generating columns. Its rows are
// the devices of each pool, the CPU of each pool in cores, the tasks of each shape.
type pricer struct {
	b      *bounds
	sizes  []int // distinct shares, in steps
	size   []int // of each shape: index into sizes; -1: none or several devices
	prices []float64
	forced float64

	// The most that a device of the pool at hand can be filled for.
	best   []int // for each size the shape that gains most; -1: none
	most   []float64
	worth  [patternSteps + 1]float64
	choice [patternSteps + 1]int // the size that worth is reached by; -1: a step stays free
}

func newPricer(b *bounds) pricer {
	w := pricer{b: b, size: make([]int, len(b.shapes)), prices: make([]float64, 2*len(b.pools)+len(b.shapes))}
	for i := range b.shapes {
		w.size[i] = -1
		if b.shapes[i].devices != 1 {
			continue
		}
		steps := int(b.shapes[i].milli * patternSteps / milli)
		at := slices.Index(w.sizes, steps)
		if at < 0 {
			at = len(w.sizes)
			w.sizes = append(w.sizes, steps)
		}
		w.size[i] = at
	}
	w.best, w.most = make([]int, len(w.sizes)), make([]float64, len(w.sizes))
	return w
}

// find is the best column found so far.
type find struct {
	profit float64 // its gain beyond the prices of what it takes
	gain   float64
	column []entry
}

// solve returns a dual solution that is good for so many tasks of each shape, with
// forced gained for a probe.
func (w *pricer) solve(counts []float64, forced float64) dual {
	w.forced = forced
	pools := len(w.b.pools)
	limits := make([]float64, len(w.prices))
	for i, p := range w.b.pools {
		limits[i] = float64(p.nodes * p.devices)
		limits[pools+i] = float64(p.nodes) * float64(p.cpu) / 1000
	}
	copy(limits[2*pools:], counts)
	x := newSimplex(limits)
	for range 6000 {
		x.prices(w.prices)
		f := find{profit: 1e-6}
		for r, v := range w.prices { // a slack variable comes back
			if -v > f.profit {
				f = find{profit: -v, column: []entry{{r, 1}}}
			}
		}
		for i := range w.b.pools {
			w.search(i, &f)
		}
		if f.column == nil || !x.enter(f.column, f.gain) {
			break
		}
	}
	return w.dual(limits)
}

// gain is what placing a task of shape s brings.
func (w *pricer) gain(s int) float64 {
	g := float64(w.b.shapes[s].demand()) / milli
	if s == w.b.probe {
		g += w.forced
	}
	return g
}

// left is what a task of shape s brings in pool i beyond its own price and that of
// its CPU; false where it cannot go.
func (w *pricer) left(i, s int) (float64, bool) {
	p, q := &w.b.pools[i], &w.b.shapes[s]
	if q.models>>p.model&1 == 0 || q.cpu > p.cpu || q.devices > p.devices {
		return 0, false
	}
	pools := len(w.b.pools)
	return w.gain(s) - w.prices[2*pools+s] - w.prices[pools+i]*float64(q.cpu)/1000, true
}

// fill finds what can be made of a device of pool i.
func (w *pricer) fill(i int) {
	for n := range w.best {
		w.best[n], w.most[n] = -1, 0
	}
	for s, n := range w.size {
		if n < 0 {
			continue
		}
		if v, ok := w.left(i, s); ok && v > w.most[n] {
			w.most[n], w.best[n] = v, s
		}
	}
	for r := 1; r <= patternSteps; r++ {
		w.worth[r], w.choice[r] = w.worth[r-1], -1
		for n, m := range w.sizes {
			if w.best[n] < 0 || m > r {
				continue
			}
			if v := w.worth[r-m] + w.most[n]; v > w.worth[r] {
				w.worth[r], w.choice[r] = v, n
			}
		}
	}
}

// search looks for a better column in pool i.
func (w *pricer) search(i int, f *find) {
	w.fill(i)
	if profit := w.worth[patternSteps] - w.prices[i]; profit > f.profit {
		var tasks []int
		for r := patternSteps; r > 0; {
			if n := w.choice[r]; n >= 0 {
				tasks = append(tasks, w.best[n])
				r -= w.sizes[n]
			} else {
				r--
			}
		}
		*f = w.column(i, 1, tasks)
		f.profit = profit
	}
	for s, k := range w.size {
		devices := w.b.shapes[s].devices
		if k >= 0 || devices == 0 { // tasks without a device bring nothing
			continue
		}
		v, ok := w.left(i, s)
		if profit := v - float64(devices)*w.prices[i]; ok && profit > f.profit {
			*f = w.column(i, devices, []int{s})
			f.profit = profit
		}
	}
}

// column places tasks on devices of pool i.
func (w *pricer) column(i, devices int, tasks []int) find {
	pools := len(w.b.pools)
	f := find{column: []entry{{i, float64(devices)}}}
	cpu := int64(0)
	for _, s := range tasks {
		cpu += w.b.shapes[s].cpu
		f.gain += w.gain(s)
		f.column = append(f.column, entry{2*pools + s, 1})
	}
	f.column = append(f.column, entry{pools + i, float64(cpu) / 1000})
	return f
}

// dual makes the prices at hand feasible: those of CPU and tasks are kept, where
// they are not negative, and a device costs as much as can be made of it.
func (w *pricer) dual(limits []float64) dual {
	pools := len(w.b.pools)
	for r := range w.prices {
		w.prices[r] = max(0, w.prices[r])
	}
	d := dual{price: slices.Clone(w.prices[2*pools:]), forced: w.forced != 0}
	for i := range w.b.pools {
		w.fill(i)
		price := w.worth[patternSteps]
		for s, k := range w.size {
			if n := w.b.shapes[s].devices; k < 0 && n > 0 {
				if v, ok := w.left(i, s); ok {
					price = max(price, v/float64(n))
				}
			}
		}
		d.base += price*limits[i] + w.prices[pools+i]*limits[pools+i]
	}
	if w.b.probe >= 0 {
		d.price[w.b.probe] -= w.forced
	}
	return d
}
