package placement

import (
	"cmp"
	"slices"
)

// prize is the best set so far.
type prize struct {
	toll  toll
	picks []pick // by ID
	ranks []int32
}

// solve looks for the best set on the ground at hand, better than the best so far.
func (h *hunt) solve() {
	if !h.may(&h.most) {
		return
	}
	h.line()
	cut := h.cut // in an earlier domain
	h.cut = false
	if h.moving == 0 {
		h.reserve = maxTrials / 4 // for the greedy search
	}
	if len(h.victims) <= fewVictims {
		h.walkAll(h.few)
	}
	h.reserve = 0
	if h.cut || len(h.victims) > fewVictims {
		h.cut = false
		if !h.fillUp() {
			h.greedy()
			h.walkAll(min(h.many, h.left))
			h.left -= min(h.many, h.left)
		}
	}
	h.cut = h.cut || cut
}

// walkAll searches the ground at hand in so many steps; cut says that they were not
// enough.
func (h *hunt) walkAll(steps int) {
	h.steps = steps
	for i := range h.quantities {
		h.quantities[i].used = 0
	}
	h.walk(0, toll{}, h.lacks(h.at), false)
}

// line puts the victim in the order of the search: cheapest for its worth first.
func (h *hunt) line() {
	h.dfs = h.dfs[:0]
	for i := range h.victims {
		p := &h.victims[i]
		p.rate = cheaper(ratio{p.cost, p.worth}, ratio{p.shrink, min(p.worth, h.worthFrom(p, p.kinds.from))})
		h.dfs = append(h.dfs, int32(i))
	}
	slices.SortFunc(h.dfs, func(a, b int32) int {
		p, o := &h.victims[a], &h.victims[b]
		switch {
		case p.rate.less(o.rate):
			return -1
		case o.rate.less(p.rate):
			return 1
		}
		return cmp.Or(cmp.Compare(p.devices, o.devices), cmp.Compare(p.members, o.members), cmp.Compare(p.home, o.home), cmp.Compare(a, b))
	})
	n := len(h.dfs)
	h.after = slices.Grow(h.after[:0], n+1)[:n+1]
	h.after[n] = rest{}
	for i := n - 1; i >= 0; i-- {
		p, r := &h.victims[h.dfs[i]], h.after[i+1]
		r.worth = plusCost(r.worth, p.worth)
		r.most = max(r.most, p.worth)
		devices, members := p.devices, p.members
		if p.kinds.from < p.kinds.to {
			devices, members = 0, 0
		}
		r.devices = cheaper(r.devices, ratio{devices, p.worth})
		r.members = cheaper(r.members, ratio{int64(members), p.worth})
		h.after[i] = r
		p.like = false
	}
	for i := 1; i < n; i++ {
		h.victims[h.dfs[i]].like = h.alike(&h.victims[h.dfs[i-1]], &h.victims[h.dfs[i]])
	}
}

// alike reports whether two victim differ in nothing but the ID, so that the second
// goes only where the first does.
func (h *hunt) alike(a, b *victim) bool {
	if !a.own || !b.own || a.home < 0 || a.home != b.home || a.gain != b.gain || a.cost != b.cost ||
		a.devices != b.devices || a.members != b.members || a.kinds.from < a.kinds.to || b.kinds.from < b.kinds.to {
		return false
	}
	return slices.Equal(h.uses[a.uses.from:a.uses.to], h.uses[b.uses.from:b.uses.to])
}

// walk decides about the victim from position i on. So far, t is what the set costs
// and lacks what it is short of in worth; fresh says that the set has grown since it
// was last looked at.
func (h *hunt) walk(i int, t toll, lacks int64, fresh bool) {
	if !h.step(i, t, lacks, fresh) {
		return
	}
	p := &h.victims[h.dfs[i]]
	if t.jobs < h.max && !(p.like && h.victims[h.dfs[i-1]].took == stays) {
		if p.kinds.from < p.kinds.to && p.shrink <= p.cost {
			h.walkShrink(i, t, lacks)
			h.walkWhole(i, t, lacks)
		} else {
			h.walkWhole(i, t, lacks)
			h.walkShrink(i, t, lacks)
		}
	}
	h.most.all(h, p, -1)
	h.walk(i+1, t, lacks, false)
	h.most.all(h, p, 1)
}

// step looks at the set as it is. It reports whether to go on from it.
func (h *hunt) step(i int, t toll, lacks int64, fresh bool) bool {
	if h.steps--; h.steps < 0 {
		h.cut = true
		return false
	}
	if fresh && h.enough() {
		h.record(t)
		return false
	}
	return i < len(h.dfs) && h.may(&h.most) && h.promising(i, t, lacks)
}

// walkWhole lets the victim at position i go.
func (h *hunt) walkWhole(i int, t toll, lacks int64) {
	p := &h.victims[h.dfs[i]]
	uses := h.uses[p.uses.from:p.uses.to]
	if !h.charge(uses) {
		return
	}
	p.took = goes
	h.now.all(h, p, 1)
	t = t.and(h.moving, p.cost, p.devices, p.members)
	h.walk(i+1, t, lacks-p.worth, true)
	h.now.all(h, p, -1)
	p.took = stays
	h.discharge(uses)
}

// walkShrink lets the victim at position i give back a part, if it has chunks.
func (h *hunt) walkShrink(i int, t toll, lacks int64) {
	p := &h.victims[h.dfs[i]]
	if p.kinds.from == p.kinds.to {
		return
	}
	p.took = shrinks
	h.most.all(h, p, -1)
	t = t.and(h.moving, p.shrink, 0, 0)
	h.walkKind(i, p.kinds.from, t, lacks, false, false)
	h.most.all(h, p, 1)
	p.took = stays
}

// walkKind decides how many chunks of a kind go, and of those after it; some says
// that there are any so far, fresh that the last one was not looked at.
func (h *hunt) walkKind(i int, k int32, t toll, lacks int64, some, fresh bool) {
	p := &h.victims[h.dfs[i]]
	if h.steps--; h.steps < 0 {
		h.cut = true
		return
	}
	if fresh && h.enough() {
		h.record(t)
		return
	}
	if !h.worthwhile(i, k, t, lacks) {
		return
	}
	if k == p.kinds.to {
		if some {
			h.walk(i+1, t, lacks, false)
		}
		return
	}
	from := h.kinds[k].chunks.from
	n := from
	for n < h.kinds[k].chunks.to && h.giveBack(p, k, n) {
		c := &h.chunks[n]
		h.most.some(h, c, 1)
		t.devices, t.members, lacks = t.devices+c.devices, t.members+c.members, lacks-c.worth
		n++
	}
	for ; n > from; n-- { // most first: what costs the same and frees more finds a set sooner
		h.walkKind(i, k+1, t, lacks, true, true)
		c := &h.chunks[n-1]
		h.takeBack(p, k, n-1)
		h.most.some(h, c, -1)
		t.devices, t.members, lacks = t.devices-c.devices, t.members-c.members, lacks+c.worth
	}
	h.walkKind(i, k+1, t, lacks, some, false)
}

// worthwhile is promising with the chunks of the victim at position i from kind k on.
func (h *hunt) worthwhile(i int, k int32, t toll, lacks int64) bool {
	if lacks -= h.worthFrom(&h.victims[h.dfs[i]], k); lacks > 0 {
		return h.promising(i+1, t, lacks)
	}
	return !h.found || h.best.toll.compare(&t) >= 0
}

// worthFrom returns the worth of the chunks of a victim's kinds from k on.
func (h *hunt) worthFrom(p *victim, k int32) (worth int64) {
	for ; k < p.kinds.to; k++ {
		worth = plusCost(worth, h.kinds[k].worth)
	}
	return worth
}

// giveBack lets the next chunk of a kind go, unless the job or a limit cannot bear it.
func (h *hunt) giveBack(p *victim, k, n int32) bool {
	c := &h.chunks[n]
	given, all := int32(0), c.members
	for i := p.kinds.from; i < p.kinds.to; i++ {
		o := &h.chunks[h.kinds[i].chunks.from]
		all += h.kinds[i].taken * o.members
		if o.key.role == c.key.role {
			given += h.kinds[i].taken * o.members
		}
	}
	d := &h.s.jobs[h.recs[p.cand]].gang.Roles[c.key.role].Demand
	if given+c.members > c.spare || all >= p.ranks || !h.chargeMembers(h.uses[p.uses.from:p.uses.to], d, c.members) {
		return false
	}
	h.kinds[k].taken++
	h.now.some(h, c, 1)
	return true
}

// takeBack undoes giveBack.
func (h *hunt) takeBack(p *victim, k, n int32) {
	c := &h.chunks[n]
	h.now.some(h, c, -1)
	d := &h.s.jobs[h.recs[p.cand]].gang.Roles[c.key.role].Demand
	h.dischargeMembers(h.uses[p.uses.from:p.uses.to], d, c.members)
	h.kinds[k].taken--
}

// promising reports whether a set that goes on from the one at hand may be the best.
func (h *hunt) promising(i int, t toll, lacks int64) bool {
	r := &h.after[i]
	switch {
	case h.weak || lacks <= 0:
		t.jobs, t.moves = t.jobs+1, t.moves+h.moving
	case r.worth < lacks:
		return false
	default:
		jobs := int32(max(1, (lacks+r.most-1)/r.most))
		t.jobs, t.moves = t.jobs+jobs, t.moves+jobs*h.moving
		t.devices += r.devices.of(lacks)
		t.members += int32(min(r.members.of(lacks), 1<<30))
		t.cost = h.atLeast(i, t.cost, lacks)
	}
	return t.jobs <= h.max && t.cost <= h.dearest && (!h.found || t.compare(&h.best.toll) <= 0)
}

// atLeast returns what covering a worth with victim from position i on costs at
// least, on top of cost: as if a part of a victim could go at a part of its price.
func (h *hunt) atLeast(i int, cost, lacks int64) int64 {
	for ; lacks > 0 && i < len(h.dfs); i++ {
		p := &h.victims[h.dfs[i]]
		if p.worth >= lacks {
			return plusCost(cost, p.rate.of(lacks))
		}
		cost = plusCost(cost, p.rate.upTo(p.worth))
		lacks -= p.worth
	}
	return cost
}

// trial reports whether the gang really fits without the set at hand.
func (h *hunt) trial() (ok bool) {
	if h.trials <= h.reserve {
		h.cut = true
		return false
	}
	h.trials--
	h.list(&h.draft)
	if h.moving > 0 {
		return h.settle(h.draft.picks, nil)
	}
	h.without(h.draft.picks, h.draft.ranks, func() { ok = h.s.fitsNow(h.q) })
	return ok
}

// record keeps the set at hand where it is better than the best so far.
func (h *hunt) record(t toll) {
	c := -1
	if h.found {
		c = t.compare(&h.best.toll)
	}
	if c > 0 {
		return
	}
	h.list(&h.draft)
	h.draft.toll = t
	if c < 0 || h.earlier(&h.draft, &h.best) {
		h.draft, h.best = h.best, h.draft
		h.found = true
	}
}

// list writes the set at hand, by ID.
func (h *hunt) list(out *prize) {
	out.picks, out.ranks = out.picks[:0], out.ranks[:0]
	for i := range h.victims {
		p := &h.victims[i]
		if p.took == stays {
			continue
		}
		o := pick{cand: p.cand, whole: p.took == goes, from: int32(len(out.ranks))}
		if !o.whole {
			for k := p.kinds.from; k < p.kinds.to; k++ {
				kind := &h.kinds[k]
				for n := range kind.taken {
					r := h.chunks[kind.chunks.from+n].ranks
					out.ranks = append(out.ranks, h.ranks[r.from:r.to]...)
				}
			}
			slices.Sort(out.ranks[o.from:])
		}
		o.to = int32(len(out.ranks))
		out.picks = append(out.picks, o)
	}
}

// earlier reports whether a, which costs what b does, has the lower IDs, and then
// the higher ranks.
func (h *hunt) earlier(a, b *prize) bool {
	for i := range a.picks {
		if c := cmp.Compare(h.jobs[a.picks[i].cand].Job, h.jobs[b.picks[i].cand].Job); c != 0 {
			return c < 0
		}
	}
	for i := range a.picks {
		p, o := &a.picks[i], &b.picks[i]
		x, y := a.ranks[p.from:p.to], b.ranks[o.from:o.to]
		for len(x) > 0 && len(y) > 0 {
			if c := cmp.Compare(x[len(x)-1], y[len(y)-1]); c != 0 {
				return c > 0
			}
			x, y = x[:len(x)-1], y[:len(y)-1]
		}
		if len(x) != len(y) {
			return len(x) < len(y)
		}
	}
	return false
}
