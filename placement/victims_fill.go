package placement

import (
	"cmp"
	"slices"
)

// fill is the memory of the search by sums: candidates that share no node add room
// independently, so that the cheapest set is found by filling up what is lacking.
type fill struct {
	root      []int32 // by victim: another of its cluster, or itself
	members   []int32 // victims by cluster
	groups    []part  // clusters: ranges of members
	bundles   []bundle
	offers    []part // by cluster: its bundles
	taken     []bite
	least     []toll  // by units lacking
	tries     int     // steps that are left for the cluster at hand
	unlimited bool    // limits do not count now
	chosen    []int32 // by cluster and units lacking: the bundle, or -1
}

// bundle is a part of one cluster of victims that adds units.
type bundle struct {
	gain int32
	toll toll
	from part // of taken
}

// bite is what goes of one victim: all of it, or n chunks of a kind.
type bite struct {
	victim int32
	kind   int32 // -1 for all of it
	n      int32
}

// Bounds on the search by sums.
const (
	maxBundles = 1 << 12 // steps to list the ways to take from one cluster
	maxFill    = 1 << 22 // bundles times units
)

// never is more than any set costs.
func never() toll { return toll{cost: 1<<63 - 1, jobs: 1<<31 - 1} }

// fillUp finds the best set of the ground at hand by sums. It fails where that does
// not apply: the room for several roles, or for groups that share a domain above
// nodes, is no sum; and where a limit does not allow what it finds.
func (h *hunt) fillUp() bool {
	g := &h.gauges[0]
	if h.vague || g.size > 1 {
		return false
	}
	lacking := g.need - h.now.units[0]
	h.clusterUp()
	if !h.offer() || int64(len(h.bundles)+len(h.groups))*int64(lacking) > maxFill {
		return false
	}
	width := int(lacking) + 1
	h.least = slices.Grow(h.least[:0], width)[:width]
	h.chosen = slices.Grow(h.chosen[:0], width*len(h.groups))[:width*len(h.groups)]
	for u := range h.least {
		h.least[u] = never()
	}
	h.least[0] = toll{}
	for i := len(h.groups) - 1; i >= 0; i-- { // of equals, the lowest IDs are to go
		h.pour(h.bundles[h.offers[i].from:h.offers[i].to], h.offers[i].from, h.chosen[i*width:(i+1)*width])
	}
	t := h.least[lacking]
	if t.jobs == never().jobs || h.found && h.best.toll.compare(&t) < 0 {
		return true
	}
	ok := h.pickUp(h.chosen, width)
	if ok {
		h.record(t)
	}
	h.putDown()
	return ok
}

// pour adds one cluster's bundles, the first of which has an index, to what covers so
// many units at the least toll, and writes which one is part of it.
func (h *hunt) pour(list []bundle, first int32, row []int32) {
	for u := range row {
		row[u] = -1
	}
	for u := len(row) - 1; u > 0; u-- {
		for b := range list {
			rest := &h.least[max(0, u-int(list[b].gain))]
			if rest.jobs == never().jobs {
				continue
			}
			t := list[b].toll.plus(rest)
			if c := t.compare(&h.least[u]); c < 0 || c == 0 && row[u] < 0 {
				h.least[u], row[u] = t, first+int32(b)
			}
		}
	}
}

func (a *toll) plus(b *toll) toll {
	return toll{a.moves + b.moves, plusCost(a.cost, b.cost), a.jobs + b.jobs, a.devices + b.devices, a.members + b.members}
}

// pickUp takes what was chosen, and reports whether the limits allow it.
func (h *hunt) pickUp(choice []int32, width int) bool {
	ok, jobs := true, int32(0)
	for i := range h.quantities {
		h.quantities[i].used = 0
	}
	for i, u := 0, width-1; i < len(h.groups); i++ {
		b := choice[i*width+u]
		if b < 0 {
			continue
		}
		o := &h.bundles[b]
		u = max(0, u-int(o.gain))
		jobs += o.toll.jobs
		for _, t := range h.taken[o.from.from:o.from.to] {
			p := &h.victims[t.victim]
			uses := h.uses[p.uses.from:p.uses.to]
			if t.kind < 0 {
				p.took = goes
				ok = ok && h.charge(uses)
				continue
			}
			p.took = shrinks
			h.kinds[t.kind].taken = t.n
			c := &h.chunks[h.kinds[t.kind].chunks.from]
			d := &h.s.jobs[h.recs[p.cand]].gang.Roles[c.key.role].Demand
			ok = ok && h.chargeMembers(uses, d, c.members*t.n)
		}
	}
	return ok && jobs <= h.max
}

// putDown forgets what was taken.
func (h *hunt) putDown() {
	for i := range h.victims {
		h.victims[i].took = stays
	}
	for i := range h.kinds {
		h.kinds[i].taken = 0
	}
	for i := range h.quantities {
		h.quantities[i].used = 0
	}
}

// clusterUp puts victims together that share a spot, by way of others too.
func (h *hunt) clusterUp() {
	h.root = h.root[:0]
	for i := range h.victims {
		h.root = append(h.root, int32(i))
	}
	for i := range h.spots {
		h.spots[i].last = -1
	}
	for i := range h.victims {
		p := &h.victims[i]
		for k := p.touches.from; k < p.touches.to; k++ {
			o := &h.spots[h.touches[k].spot]
			if o.last >= 0 {
				a, b := h.rootOf(o.last), h.rootOf(int32(i))
				h.root[max(a, b)] = min(a, b)
			}
			o.last = int32(i)
		}
	}
	h.fill.members, h.groups = h.fill.members[:0], h.groups[:0]
	for i := range h.victims {
		h.root[i] = h.rootOf(int32(i))
		h.fill.members = append(h.fill.members, int32(i))
	}
	slices.SortFunc(h.fill.members, func(a, b int32) int { return cmp.Or(cmp.Compare(h.root[a], h.root[b]), cmp.Compare(a, b)) })
	for from := 0; from < len(h.fill.members); {
		to := from + 1
		for to < len(h.fill.members) && h.root[h.fill.members[to]] == h.root[h.fill.members[from]] {
			to++
		}
		h.groups = append(h.groups, part{int32(from), int32(to)})
		from = to
	}
}

func (h *hunt) rootOf(i int32) int32 {
	for h.root[i] != i {
		h.root[i] = h.root[h.root[i]]
		i = h.root[i]
	}
	return i
}

// offer lists the bundles of every cluster, whatever limits say; it fails where one
// has too many.
func (h *hunt) offer() bool {
	h.bundles, h.offers, h.taken = h.bundles[:0], h.offers[:0], h.taken[:0]
	h.unlimited = true
	defer func() { h.unlimited = false }()
	for _, g := range h.groups {
		h.tries = maxBundles
		c := &cluster{list: h.fill.members[g.from:g.to], base: int32(len(h.bundles)), units: h.now.units[0]}
		for _, i := range c.list {
			h.most.all(h, &h.victims[i], -1)
		}
		c.floor = h.most.units[0]
		for _, i := range c.list {
			h.most.all(h, &h.victims[i], 1)
		}
		h.combine(c, 0, toll{})
		if h.tries < 0 {
			return false
		}
		h.offers = append(h.offers, part{c.base, int32(len(h.bundles))})
	}
	return true
}

// cluster is one of the groups at hand while its bundles are listed.
type cluster struct {
	list  []int32
	base  int32 // its first bundle
	units int32 // that there are now
	floor int32 // that there are at most where none of it goes
}

// combine tries every way to take from the victims of a cluster from position i on, on
// top of what was taken from those before, and keeps those that no other way beats.
func (h *hunt) combine(c *cluster, i int, t toll) {
	if h.tries--; h.tries < 0 || h.most.units[0] <= c.floor {
		return // too many, or whoever may still go adds nothing
	}
	if i == len(c.list) {
		if gain := h.now.units[0] - c.units; gain > 0 {
			h.bundle(c, gain, t)
		}
		return
	}
	p := &h.victims[c.list[i]]
	p.took = goes
	h.now.all(h, p, 1)
	h.combine(c, i+1, t.and(h.moving, p.cost, p.devices, p.members))
	h.now.all(h, p, -1)
	h.most.all(h, p, -1)
	if p.kinds.from < p.kinds.to {
		p.took = shrinks
		h.combineKind(c, i, p.kinds.from, t.and(h.moving, p.shrink, 0, 0), false)
	}
	p.took = stays
	h.combine(c, i+1, t)
	h.most.all(h, p, 1)
}

// combineKind is combine for the chunks of one kind and those after it.
func (h *hunt) combineKind(c *cluster, i int, k int32, t toll, some bool) {
	p := &h.victims[c.list[i]]
	if k == p.kinds.to {
		if some {
			h.combine(c, i+1, t)
		}
		return
	}
	h.combineKind(c, i, k+1, t, some)
	n := h.kinds[k].chunks.from
	for ; n < h.kinds[k].chunks.to && h.giveBack(p, k, n); n++ {
		h.most.some(h, &h.chunks[n], 1)
		t.devices, t.members = t.devices+h.chunks[n].devices, t.members+h.chunks[n].members
		h.combineKind(c, i, k+1, t, true)
	}
	for n--; n >= h.kinds[k].chunks.from; n-- {
		h.most.some(h, &h.chunks[n], -1)
		h.takeBack(p, k, n)
	}
}

// bundle keeps what is taken now as a bundle of a cluster, and drops those that it
// beats.
func (h *hunt) bundle(c *cluster, gain int32, t toll) {
	base := c.base
	for b := base; b < int32(len(h.bundles)); b++ {
		if o := &h.bundles[b]; o.gain >= gain && o.toll.compare(&t) <= 0 {
			return
		}
	}
	kept := base
	for b := base; b < int32(len(h.bundles)); b++ {
		if o := h.bundles[b]; o.gain > gain || o.toll.compare(&t) < 0 {
			h.bundles[kept] = o
			kept++
		}
	}
	h.bundles = append(h.bundles[:kept], bundle{gain: gain, toll: t, from: part{from: int32(len(h.taken))}})
	for _, i := range c.list {
		p := &h.victims[i]
		switch p.took {
		case goes:
			h.taken = append(h.taken, bite{victim: i, kind: -1})
		case shrinks:
			for k := p.kinds.from; k < p.kinds.to; k++ {
				if n := h.kinds[k].taken; n > 0 {
					h.taken = append(h.taken, bite{i, k, n})
				}
			}
		}
	}
	h.bundles[kept].from.to = int32(len(h.taken))
}
