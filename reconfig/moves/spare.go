package moves

import (
	"cmp"
	"slices"
)

// splitAtSpares cuts what units do not need in the end, and the transfers from it, so
// that each transfer reads one whole spare, or none.
func (x *arranger) splitAtSpares() {
	n := len(x.w.units)
	outgoing := make([][]int32, n)
	for i := range x.hops {
		if h := &x.hops[i]; h.from >= 0 && !h.relay && !h.host {
			outgoing[h.from] = append(outgoing[h.from], int32(i))
		}
	}
	var left, cuts, reads []run
	for u := range n {
		left = subtract(left[:0], x.have[u], x.need[u])
		reads = reads[:0]
		for _, i := range outgoing[u] {
			reads = append(reads, x.hops[i].run)
		}
		cuts = marks(cuts[:0], left, reads)
		for _, r := range left {
			cut(r, cuts, func(r run) { x.spare(int32(u), r) })
		}
		for _, r := range x.spent[u] {
			x.spare(int32(u), r)
		}
		for _, i := range outgoing[u] {
			x.splitHop(i, cuts)
		}
	}
	slices.SortFunc(x.hops, hop.compare)
	for i := range x.hops {
		x.hops[i].piece = x.pieceOf(&x.hops[i])
		if p := x.hops[i].piece; p >= 0 {
			x.spares[p].uses++
		}
	}
	for i := range x.spares {
		if p := &x.spares[i]; p.uses == 0 {
			x.idle[p.unit] += p.size
		}
	}
}

func (x *arranger) spare(u int32, r run) {
	x.of[u] = append(x.of[u], int32(len(x.spares)))
	x.spares = append(x.spares, spare{run: r, unit: u, size: x.a.size(r)})
}

// splitHop cuts hop i; the first part takes its place, the others go behind.
func (x *arranger) splitHop(i int32, cuts []run) {
	h := x.hops[i]
	first := true
	cut(h.run, cuts, func(r run) {
		h.run = r
		if first {
			x.hops[i] = h
			first = false
			return
		}
		x.hops = append(x.hops, h)
	})
}

// pieceOf returns the spare that a hop reads, -1 if its sender keeps what it sends.
func (x *arranger) pieceOf(h *hop) int32 {
	if h.from < 0 || h.relay || h.host || x.out.Restore {
		return -1
	}
	list := x.of[h.from]
	at, ok := slices.BinarySearchFunc(list, h.run, func(i int32, r run) int {
		return cmp.Or(cmp.Compare(x.spares[i].slot, r.slot), cmp.Compare(x.spares[i].a, r.a))
	})
	if !ok {
		return -1
	}
	return list[at]
}

// marks appends the ends of runs, sorted, each as an empty run.
func marks(dst []run, lists ...[]run) []run {
	for _, runs := range lists {
		for _, r := range runs {
			dst = append(dst, run{r.slot, r.a, r.a}, run{r.slot, r.b, r.b})
		}
	}
	slices.SortFunc(dst, run.compare)
	return slices.Compact(dst)
}

// cut calls f with the parts of r between marks.
func cut(r run, marks []run, f func(run)) {
	i, _ := slices.BinarySearchFunc(marks, run{r.slot, r.a + 1, 0}, run.compare)
	for ; i < len(marks) && marks[i].slot == r.slot && marks[i].a < r.b; i++ {
		f(run{r.slot, r.a, marks[i].a})
		r.a = marks[i].a
	}
	f(r)
}
