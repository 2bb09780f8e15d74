package hpo

import (
	"math"
	"slices"
	"sort"
)

// continues says whether a trial goes on that has been recorded with this key, which was raw as reported.
func (g *rung) continues(cfg *ASHA, raw, key float64) bool {
	nan := math.IsNaN(raw)
	switch cfg.Variant {
	case Ray:
		// A comparison with NaN is false: such a trial goes on, and so does one before which there is none.
		return nan || !(key < g.before)
	case SyneQuantile:
		return g.recorded < 2 || !nan && !g.poisoned && key >= g.quantile(cfg.Eta)
	case Syne:
		if nan || g.poisoned && g.recorded < shortList {
			return g.leading(key)*uint64(cfg.Eta) <= g.recorded
		}
	case Optuna:
		if nan {
			return false
		}
	default:
		if !finite(raw) {
			return false
		}
	}
	least, ok := g.cut.floor()
	return ok && key >= least
}

// position returns between which two of n numbers, in ascending order, their 1-1/eta quantile lies: at weight of the
// way from the low-th, from 0, to the next. It is the position that numpy computes for (1-1/eta)*100 percent.
func position(n int, eta uint32) (low int, weight float64) {
	if n < 2 {
		return 0, 0
	}
	at := float64(float64(n-1) * ((1 - 1/float64(eta)) * 100 / 100))
	low = min(int(math.Floor(at)), n-2)
	return low, at - float64(low)
}

// quantile returns the 1-1/eta quantile of the recorded, interpolated as numpy does; NaN if there are none. It is
// NaN also between an infinity and another number.
func (g *rung) quantile(eta uint32) float64 {
	n := g.cut.len()
	switch n {
	case 0:
		return math.NaN()
	case 1:
		return g.cut.rest.e[0].key
	}
	_, weight := position(n, eta)
	a, b := g.cut.rest.e[0].key, g.cut.top.e[0].key
	diff := b - a
	if weight >= 0.5 {
		return b - float64(diff*(1-weight))
	}
	return a + float64(diff*weight)
}

// insert puts key where Determined's binary search finds its place, which NaN leads astray, and returns the place.
func (g *rung) insert(key float64) int32 {
	i := g.place(key)
	g.plain = slices.Insert(g.plain, i, key)
	return int32(i)
}

// place returns how many of the recorded are better than key, if all are numbers.
func (g *rung) place(key float64) int {
	return sort.Search(len(g.plain), func(i int) bool { return -g.plain[i] >= -key })
}

// ranked is continues of Determined: for a trial with this key, which was put at this place.
func (g *rung) ranked(cfg *ASHA, key float64, place int32) bool {
	if !g.poisoned {
		place = int32(g.place(key))
	}
	return int64(place) < max(1, int64(len(g.plain))/int64(cfg.Eta))
}

// shortList is below how many elements Python sorts by inserting.
const shortList = 64

// leading returns how many numpy's binary search takes for better than key, after Python's sort has put the recorded in
// order; both are led astray by NaN. Of a longer list it is how many are numbers, for a key that is none.
func (g *rung) leading(key float64) uint64 {
	if g.recorded >= shortList {
		return uint64(g.cut.len())
	}
	v := make([]float64, len(g.plain))
	for i := range v {
		v[i] = -g.plain[i]
	}
	insertionSort(v)
	less := func(a, b float64) bool { return a < b || math.IsNaN(b) && !math.IsNaN(a) }
	return uint64(sort.Search(len(v), func(i int) bool { return !less(v[i], -key) }))
}

// insertionSort sorts v as Python does: it leaves the run at the beginning, turned around if it falls, and inserts each
// other element where a binary search finds its place.
func insertionSort(v []float64) {
	n := 1
	if len(v) > 1 && v[1] < v[0] {
		for n < len(v) && v[n] < v[n-1] {
			n++
		}
		slices.Reverse(v[:n])
	} else {
		for n < len(v) && !(v[n] < v[n-1]) {
			n++
		}
	}
	for ; n < len(v); n++ {
		x := v[n]
		i := sort.Search(n, func(i int) bool { return x < v[i] })
		copy(v[i+1:n+1], v[i:n])
		v[i] = x
	}
}
