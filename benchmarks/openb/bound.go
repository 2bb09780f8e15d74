package main

import (
	"math"
	"slices"
)

// bounds holds limits that no rule can pass, for one list on one cluster.
//
// The packing is relaxed to a linear program. All nodes of one kind are one pool of
// devices and one of CPU; a device of a pool is cut by patterns of shares that fit
// into it, in any fraction; tasks may be placed in part. Any feasible values of its
// dual variables, whatever counts they were found for, limit what can be allocated
// for all counts: the sum of resources and tasks at their prices. So a few
// solutions serve for every order of arrivals, and an inexact solution makes a
// limit that is loose, not one that is wrong.
//
// A rule that refuses only what does not fit is limited more. Take one shape that
// any model can serve, the probe, and the moment at which a probe is refused for the
// first time. Nothing leaves, so every probe that came before was placed, and no
// task is placed after that needs as much as the probe of CPU and devices, or more.
// Whoever knows all arrivals may choose the moment: the limit is the largest over
// all of them.
type bounds struct {
	shapes []shape
	pools  []pool
	probe  int    // shape
	above  []bool // shapes that need as much as the probe or more
	duals  []dual
	work   pricer
}

// pool is all nodes of a kind.
type pool struct {
	node
	nodes int
}

// dual is a feasible solution of the dual program.
type dual struct {
	base   float64   // devices and CPU of all pools at their prices
	price  []float64 // of a task of each shape, less what a placed probe gained
	forced bool      // placed probes gained more than they took: the limit holds only where all are placed
}

// probeGain is what a probe is worth to the program, in devices, beyond what it
// takes, so that it places those that must be.
const probeGain = 1.0

func newBounds(t *trace, l *list) *bounds {
	b := &bounds{shapes: l.shapes}
	for _, n := range t.nodes {
		n.name = ""
		at := slices.IndexFunc(b.pools, func(p pool) bool { return p.node == n })
		if at < 0 {
			at = len(b.pools)
			b.pools = append(b.pools, pool{node: n})
		}
		b.pools[at].nodes++
	}
	b.choose(l, uint64(1)<<len(t.models)-1)
	b.work = newPricer(b)
	b.duals = append(b.duals, b.trivial())
	demand := int64(0)
	for i, n := range l.counts {
		demand += n * l.shapes[i].demand()
	}
	full := make([]float64, len(l.counts)) // tasks of each shape when all devices are asked for
	for i, n := range l.counts {
		full[i] = float64(n) * float64(t.capacity) / float64(demand)
	}
	for _, m := range []float64{1, 1.3} {
		b.refine(full, m)
	}
	return b
}

// choose makes that shape the probe that can be served by any model and has the
// largest number of tasks times demand of all tasks that need as much or more.
func (b *bounds) choose(l *list, anyModel uint64) {
	b.probe, b.above = -1, make([]bool, len(b.shapes))
	most := int64(-1)
	for i := range b.shapes {
		p := &b.shapes[i]
		if p.devices != 1 || p.models != anyModel {
			continue
		}
		above, sum := make([]bool, len(b.shapes)), int64(0)
		for j := range b.shapes {
			q := &b.shapes[j]
			if above[j] = q.devices > 0 && q.milli >= p.milli && q.cpu >= p.cpu; above[j] {
				sum += l.counts[j] * q.demand() / milli
			}
		}
		if v := l.counts[i] * sum; v > most {
			most, b.probe, b.above = v, i, above
		}
	}
}

// trivial is the solution that says: no more than has arrived.
func (b *bounds) trivial() dual {
	var d dual
	for i := range b.shapes {
		d.price = append(d.price, float64(b.shapes[i].demand())/milli)
	}
	return d
}

// limit is what d says when the first probe is refused after early tasks of each
// shape, of all that come.
func (b *bounds) limit(d *dual, early, all []float64) float64 {
	sum := d.base
	for s, n := range all {
		if b.above[s] {
			n = early[s]
		}
		sum += d.price[s] * n
	}
	return sum
}

// refine adds solutions for arrivals in the list's own proportions, up to the part
// mark of the capacity, until they do not lower the limit of that case any more.
func (b *bounds) refine(full []float64, mark float64) {
	const grid = 200
	scaled := func(f float64, whole []float64) []float64 {
		part := make([]float64, len(full))
		for s, n := range full {
			part[s] = n * f
			if whole != nil && !b.above[s] {
				part[s] = whole[s]
			}
		}
		return part
	}
	all := scaled(mark, nil)
	b.duals = append(b.duals, b.work.solve(all, 0))
	for range 8 {
		worst, at := 0.0, all
		for k := range grid + 1 {
			early := scaled(mark*float64(k)/grid, all)
			least := math.Inf(1)
			for i := range b.duals {
				least = min(least, b.limit(&b.duals[i], early, all))
			}
			if least > worst {
				worst, at = least, early
			}
		}
		d := b.work.solve(at, probeGain)
		b.duals = append(b.duals, d)
		if b.limit(&d, at, all) > worst-0.1 { // of a device
			return
		}
	}
}

// limits are what can be allocated at the marks, in percent.
type limits struct {
	any      [len(marks)]float64 // by whoever knows the arrivals and may refuse what it likes
	obedient [len(marks)]float64 // by whoever knows the arrivals but refuses only what does not fit
}

// of returns the limits for an order of arrivals.
func (b *bounds) of(t *trace, l *list, order []int) limits {
	var out limits
	counts := make([]float64, len(b.shapes))
	arrived, next := int64(0), 0
	for i, x := range order {
		counts[l.shape[x]]++
		arrived += l.shapeOf(x).demand()
		for next < len(marks) && arrived*100 >= t.capacity*marks[next]-500*100 {
			percent := 100 * milli / float64(t.capacity)
			out.any[next] = percent * b.anyLimit(counts)
			out.obedient[next] = percent * b.obedientLimit(l, order[:i+1], counts)
			next++
		}
	}
	return out
}

func (b *bounds) anyLimit(counts []float64) float64 {
	least := math.Inf(1)
	for i := range b.duals {
		if d := &b.duals[i]; !d.forced {
			least = min(least, b.limit(d, counts, counts))
		}
	}
	return least
}

// obedientLimit walks over the moments at which the first probe may be refused.
func (b *bounds) obedientLimit(l *list, order []int, counts []float64) float64 {
	sums := make([]float64, len(b.duals))
	none := make([]float64, len(counts))
	for i := range sums {
		sums[i] = b.limit(&b.duals[i], none, counts)
	}
	limit := slices.Min(sums)
	for _, x := range order {
		s := l.shape[x]
		if !b.above[s] {
			continue
		}
		least := math.Inf(1)
		for i := range sums {
			sums[i] += b.duals[i].price[s]
			least = min(least, sums[i])
		}
		limit = max(limit, least)
	}
	return limit
}
