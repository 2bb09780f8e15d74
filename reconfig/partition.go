package reconfig

import "slices"

// lane is what dividing the layers needs to know of a stage.
type lane struct {
	rate  int64 // millionths of a device
	wire  int64 // what each layer takes besides, whatever the rate
	extra int64 // work besides the layers: embedding, head
	room  int   // how many layers fit
}

// laneCost returns what a lane takes for layers a to b-1.
func (w *world) laneCost(l *lane, a, b int) int64 {
	return share(w.sum[b]-w.sum[a]+l.extra, l.rate) + l.wire*int64(b-a)
}

// divide deals the layers out to lanes, in order, each at least one, so that the
// slowest takes least; of such divisions the one with the least sum, and of those
// the first in lexical order. It says false if the layers do not fit. A stage of
// several chunks takes one for each, and layers that differ count as the first ones.
func (w *world) divide(lanes []lane, out []int32) bool {
	w.ops += divideCost
	room := 0
	for i := range lanes {
		if lanes[i].room < w.chunks {
			return false
		}
		room += min(lanes[i].room, w.layers)
	}
	if room < w.layers || len(lanes)*w.chunks > w.layers {
		return false
	}
	if w.alike || w.chunks > 1 {
		w.settle(lanes, out, w.deal(lanes, out))
		return true
	}
	return w.divideMixed(lanes, out)
}

// deal deals out layers that all cost the same, and returns what the slowest lane then
// takes. Giving each next layer to the lane that would then take least, the first of
// those that tie, is exactly min-max.
func (w *world) deal(lanes []lane, out []int32) int64 {
	next := w.next[:0]
	bound := int64(0)
	price := func(i, n int) int64 {
		if n > lanes[i].room || n > w.layers {
			return never
		}
		return w.laneCost(&lanes[i], 0, n)
	}
	for i := range lanes {
		out[i] = int32(w.chunks)
		next = append(next, price(i, w.chunks+1))
		bound = max(bound, w.laneCost(&lanes[i], 0, w.chunks))
	}
	w.next = next
	for range w.layers - len(lanes)*w.chunks {
		best := 0
		for i := 1; i < len(next); i++ {
			if next[i] < next[best] {
				best = i
			}
		}
		bound = max(bound, next[best])
		out[best]++
		next[best] = price(best, int(out[best])+1)
	}
	return bound
}

// settle moves layers, none above bound, to where they take least in sum, and then
// to the last of the lanes that are alike.
func (w *world) settle(lanes []lane, out []int32, bound int64) {
	order := w.order[:0]
	for i := range lanes {
		order = append(order, int32(i))
	}
	w.order = order
	one := func(l *lane) int64 { return share(w.sum[1], l.rate) + l.wire }
	slices.SortFunc(order, func(a, b int32) int {
		x, y := one(&lanes[a]), one(&lanes[b])
		switch {
		case x != y && x < y:
			return -1
		case x != y:
			return 1
		}
		return int(b - a)
	})
	left := w.layers - len(lanes)*w.chunks
	for _, i := range order {
		l := &lanes[i]
		n := w.chunks
		for left > 0 && n < l.room && w.laneCost(l, 0, n+1) <= bound {
			n++
			left--
		}
		out[i] = int32(n)
	}
}

// divideMixed deals out layers of different costs: the least bound by bisection,
// then the least sum under it by dynamic programming.
func (w *world) divideMixed(lanes []lane, out []int32) bool {
	lo, hi := int64(0), int64(0) // hi is enough
	for i := range lanes {
		hi = max(hi, w.laneCost(&lanes[i], 0, w.layers))
	}
	if !w.fill(lanes, hi) {
		return false
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		if w.fill(lanes, mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	w.least(lanes, hi, out)
	return true
}

// fill says whether the layers fit under the bound: each lane takes as many as it
// can, but leaves one for each lane behind it.
func (w *world) fill(lanes []lane, bound int64) bool {
	at := 0
	for i := range lanes {
		l := &lanes[i]
		most := min(l.room, w.layers-at-(len(lanes)-1-i))
		if most < 1 || w.laneCost(l, at, at+1) > bound {
			return false
		}
		lo, hi := 1, most
		for lo < hi {
			mid := (lo + hi + 1) / 2
			if w.laneCost(l, at, at+mid) <= bound {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		at += lo
	}
	return at == w.layers
}

// least writes the division under the bound whose sum is least. Table entry (i, a)
// is the least sum of lanes i and on for the layers from a on.
func (w *world) least(lanes []lane, bound int64, out []int32) {
	p, n := len(lanes), w.layers
	if need := (p + 1) * (n + 1); cap(w.table) < need {
		w.table = make([]int64, need)
	}
	table := w.table[:(p+1)*(n+1)]
	for i := range table {
		table[i] = never
	}
	at := func(i, a int) *int64 { return &table[i*(n+1)+a] }
	*at(p, n) = 0
	for i := p - 1; i >= 0; i-- {
		l := &lanes[i]
		for a := i; a <= n-(p-i); a++ {
			for b := a + 1; b <= min(n-(p-1-i), a+l.room); b++ {
				c := w.laneCost(l, a, b)
				if c > bound {
					break
				}
				if rest := *at(i+1, b); rest < never {
					*at(i, a) = min(*at(i, a), c+rest)
				}
			}
		}
	}
	a := 0
	for i := range p {
		for b := a + 1; b <= n; b++ {
			if rest := *at(i+1, b); rest < never && b-a <= lanes[i].room && w.laneCost(&lanes[i], a, b)+rest == *at(i, a) {
				out[i] = int32(b - a)
				a = b
				break
			}
		}
	}
}

// even deals the layers out evenly, the first lanes taking one more where they must.
func (w *world) even(p int, out []int32) {
	for i := range p {
		out[i] = int32(w.layers / p)
		if i < w.layers%p {
			out[i]++
		}
	}
}

// virtual writes the layers of each virtual stage, given those of each stage: the
// first chunks take one more where they must.
func (w *world) virtual(stages, out []int32) {
	for v := range out {
		s, c := v%len(stages), v/len(stages)
		n := int(stages[s])
		out[v] = int32(n / w.chunks)
		if c < n%w.chunks {
			out[v]++
		}
	}
}
