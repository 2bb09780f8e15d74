package placement

import (
	"cmp"
	"slices"
)

// maxSwaps bounds the exchanges that are tried in one domain.
const maxSwaps = 1 << 12

// greedy finds some set of the ground at hand, where the search for the best is not
// complete: node by node, the cheapest for its room first, until the gang fits. Then
// it leaves out whoever is not needed, takes parts where those do, and exchanges
// single victims for cheaper ones.
func (h *hunt) greedy() {
	h.lineUp()
	for i := range h.quantities {
		h.quantities[i].used = 0
	}
	var t toll
	ok := false
	for _, i := range h.line2 {
		if h.takeWhole(i, &t) {
			if ok = h.enough(); ok {
				break
			}
		}
	}
	if ok {
		h.thin(&t)
		h.swap(&t)
		h.thin(&t)
		h.record(t)
	}
	for i := range h.victims {
		h.letBe(int32(i), &t)
	}
}

// enough reports whether the gang fits without what is taken.
func (h *hunt) enough() bool { return h.may(&h.now) && (!h.vague || h.trial()) }

// lineUp sorts the victims by the price of room on the nodes they are on: of those that
// share nodes, the price of all on the cheapest one together.
func (h *hunt) lineUp() {
	h.line2, h.keys = h.line2[:0], slices.Grow(h.keys[:0], len(h.victims))[:len(h.victims)]
	price := h.prices[:0]
	for range h.spots {
		price = append(price, ratio{})
	}
	for i := range h.victims {
		p := &h.victims[i]
		for k := p.touches.from; k < p.touches.to; k++ {
			o := &price[h.touches[k].spot]
			o.price = plusCost(o.price, p.cost/int64(p.touches.to-p.touches.from))
		}
	}
	for n := range price {
		price[n].worth = 1
		for g := range h.gauges {
			at := g*len(h.spots) + n
			price[n].worth += int64(h.most.rooms[at]-h.now.rooms[at]) << worthBits
		}
	}
	h.prices = price
	for i := range h.victims {
		p := &h.victims[i]
		h.line2 = append(h.line2, int32(i))
		h.keys[i] = int32(-1)
		for k := p.touches.from; k < p.touches.to; k++ {
			if n := h.touches[k].spot; h.keys[i] < 0 || price[n].less(price[h.keys[i]]) {
				h.keys[i] = n
			}
		}
	}
	slices.SortFunc(h.line2, func(a, b int32) int {
		x, y := h.keys[a], h.keys[b]
		switch {
		case x < 0 || y < 0:
			return cmp.Or(cmp.Compare(y, x), cmp.Compare(a, b))
		case price[x].less(price[y]):
			return -1
		case price[y].less(price[x]):
			return 1
		}
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
}

// takeWhole takes a victim that is not taken, unless the limits forbid it.
func (h *hunt) takeWhole(i int32, t *toll) bool {
	p := &h.victims[i]
	if t.jobs >= h.max || !h.charge(h.uses[p.uses.from:p.uses.to]) {
		return false
	}
	p.took = goes
	h.now.all(h, p, 1)
	*t = t.and(h.moving, p.cost, p.devices, p.members)
	return true
}

// takePart takes as much of a victim as it may give back.
func (h *hunt) takePart(i int32, t *toll) bool {
	p := &h.victims[i]
	if t.jobs >= h.max {
		return false
	}
	some := false
	for k := p.kinds.from; k < p.kinds.to; k++ {
		for n := h.kinds[k].chunks.from; n < h.kinds[k].chunks.to && h.giveBack(p, k, n); n++ {
			t.devices, t.members = t.devices+h.chunks[n].devices, t.members+h.chunks[n].members
			some = true
		}
	}
	if some {
		p.took = shrinks
		t.jobs++
		h.total(t)
	}
	return some
}

// letBe gives a victim back whatever is taken of it.
func (h *hunt) letBe(i int32, t *toll) {
	p := &h.victims[i]
	switch p.took {
	case stays:
		return
	case goes:
		h.now.all(h, p, -1)
		h.discharge(h.uses[p.uses.from:p.uses.to])
		t.devices, t.members = t.devices-p.devices, t.members-p.members
	case shrinks:
		for k := p.kinds.from; k < p.kinds.to; k++ {
			for h.kinds[k].taken > 0 {
				h.letOne(p, k, t)
			}
		}
	}
	p.took = stays
	t.jobs--
	h.total(t)
}

// letOne gives back the last chunk taken of a kind.
func (h *hunt) letOne(p *victim, k int32, t *toll) {
	n := h.kinds[k].chunks.from + h.kinds[k].taken - 1
	h.takeBack(p, k, n)
	t.devices, t.members = t.devices-h.chunks[n].devices, t.members-h.chunks[n].members
}

// total adds up the cost anew, since sums that were held at the end of int64 cannot
// be taken apart.
func (h *hunt) total(t *toll) {
	t.cost, t.moves = 0, t.jobs*h.moving
	for i := range h.victims {
		switch p := &h.victims[i]; p.took {
		case goes:
			t.cost = plusCost(t.cost, p.cost)
		case shrinks:
			t.cost = plusCost(t.cost, p.shrink)
		}
	}
}

// thin leaves out what is not needed, the dearest first, and takes a part where that
// does and costs no more.
func (h *hunt) thin(t *toll) {
	h.byCost()
	for _, i := range h.line2 {
		p := &h.victims[i]
		if p.took == stays {
			continue
		}
		was, took := *t, h.keep(p)
		h.letBe(i, t)
		if h.enough() {
			continue
		}
		if took == goes && p.shrink <= p.cost && h.takePart(i, t) {
			if h.enough() {
				h.peel(i, t)
				continue
			}
			h.letBe(i, t)
		}
		h.retake(i, took)
		*t = was
	}
}

// keep remembers what is taken of a victim, for retake.
func (h *hunt) keep(p *victim) state {
	h.kept = h.kept[:0]
	for k := p.kinds.from; k < p.kinds.to; k++ {
		h.kept = append(h.kept, h.kinds[k].taken)
	}
	return p.took
}

// retake takes again what keep remembered, of the same victim that nothing is taken of.
func (h *hunt) retake(i int32, took state) {
	p := &h.victims[i]
	p.took = took
	if took == goes {
		h.charge(h.uses[p.uses.from:p.uses.to])
		h.now.all(h, p, 1)
		return
	}
	for k := p.kinds.from; k < p.kinds.to; k++ {
		for n := range h.kept[k-p.kinds.from] {
			h.giveBack(p, k, h.kinds[k].chunks.from+n)
		}
	}
}

// peel gives back the chunks of a victim that are not needed.
func (h *hunt) peel(i int32, t *toll) {
	p := &h.victims[i]
	for k := p.kinds.from; k < p.kinds.to; k++ {
		for h.kinds[k].taken > 0 {
			n := h.kinds[k].chunks.from + h.kinds[k].taken - 1
			h.letOne(p, k, t)
			if !h.enough() {
				h.giveBack(p, k, n)
				t.devices, t.members = t.devices+h.chunks[n].devices, t.members+h.chunks[n].members
				break
			}
		}
	}
}

// byCost sorts the victims, the dearest first.
func (h *hunt) byCost() {
	slices.SortFunc(h.line2, func(a, b int32) int {
		p, o := &h.victims[a], &h.victims[b]
		return cmp.Or(cmp.Compare(o.cost, p.cost), cmp.Compare(o.devices, p.devices), cmp.Compare(o.members, p.members), cmp.Compare(b, a))
	})
}

// swap exchanges single victims that are taken for cheaper ones.
func (h *hunt) swap(t *toll) {
	tries := maxSwaps
	for _, i := range h.line2 {
		p := &h.victims[i]
		if p.took == stays {
			continue
		}
		was, took := *t, h.keep(p)
		h.letBe(i, t)
		done := false
		for k := len(h.line2) - 1; k >= 0 && !done && tries > 0; k-- {
			o := h.line2[k]
			if o == i || h.victims[o].took != stays {
				continue
			}
			tries--
			done = h.takePart(o, t) && h.better(o, t, &was) || h.takeWhole(o, t) && h.better(o, t, &was)
		}
		if !done {
			h.retake(i, took)
			*t = was
		} else {
			h.thinPart(t)
		}
	}
}

// better reports whether what was just taken of a victim will do at less than was;
// else it is let be.
func (h *hunt) better(i int32, t, was *toll) bool {
	if t.compare(was) < 0 && h.enough() {
		return true
	}
	h.letBe(i, t)
	return false
}

// thinPart gives back the chunks that are not needed.
func (h *hunt) thinPart(t *toll) {
	for i := range h.victims {
		if h.victims[i].took == shrinks {
			h.peel(int32(i), t)
		}
	}
}
