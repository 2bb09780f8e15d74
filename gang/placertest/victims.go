package placertest

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// few is how many candidates Victims tries all ways of.
const few = 4

// Victims implements gang.Preempter. For up to four candidates it tries all ways;
// it takes the one that costs least in the highest tier, then in the next, then
// touches fewest; for more it takes one after the other, by tier, cost and ID. Then it
// lets go of all who are not needed, and of their members. Who shrinks gives up its
// highest ranks.
func (p *Reference) Victims(r *lockstep.Request, c *lockstep.Candidates, out *lockstep.Preempted) (lockstep.Verdict, error) {
	out.Reset()
	v, err := p.Fit(r, &out.Plan)
	if v.Feasible || err != nil {
		return v, err
	}
	h := &hunt{p: p, r: r, c: c}
	for i := range c.Jobs {
		if p.now.plans[c.Jobs[i].Job] != nil && c.Jobs[i].Job != r.Gang.ID {
			h.list = append(h.list, &c.Jobs[i])
		}
	}
	slices.SortFunc(h.list, func(a, b *lockstep.Candidate) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Cost.Total(), b.Cost.Total()), cmp.Compare(a.Job, b.Job))
	})
	keep := h.greedy()
	if len(h.list) <= few {
		keep = h.exact()
	}
	if keep == nil {
		return v, nil
	}
	h.giveBack(keep)
	v, _ = h.fits(keep, &out.Plan)
	for i, x := range h.list {
		n := len(p.now.plans[x.Job].Members)
		if keep[i] == n {
			continue
		}
		e := lockstep.Eviction{Job: x.Job, For: r.Gang.ID, Cost: x.Cost}
		if keep[i] > 0 {
			e.Cost = x.Shrink
			kept := p.kept(x, keep[i])
			for rank := range n {
				if !slices.Contains(kept, rank) {
					e.Ranks = append(e.Ranks, rank)
				}
			}
		}
		out.Evictions = append(out.Evictions, e)
	}
	slices.SortFunc(out.Evictions, func(a, b lockstep.Eviction) int { return cmp.Compare(a.Job, b.Job) })
	return v, nil
}

// hunt is one call of Victims. Choices are how many members each of list keeps.
type hunt struct {
	p    *Reference
	r    *lockstep.Request
	c    *lockstep.Candidates
	list []*lockstep.Candidate
}

func (h *hunt) size(i int) int { return len(h.p.now.plans[h.list[i].Job].Members) }

func (h *hunt) least(i int) int { return sum(h.list[i].Min) }

// kept returns the ranks that x keeps where it keeps n members: its Min of each
// role, then the lowest, in whole groups.
func (p *Reference) kept(x *lockstep.Candidate, n int) []int {
	plan := p.now.plans[x.Job]
	have := make([]int, len(plan.Gang.Roles))
	spare := n - sum(x.Min)
	var out []int
	for rank, m := range plan.Members {
		size := max(plan.Gang.Roles[m.Role].Inner.Size, 1)
		switch {
		case have[m.Role] < x.Min[m.Role]:
		case have[m.Role]%size != 0: // the rest of a group that was begun
			spare--
		case spare >= size:
			spare--
		default:
			continue
		}
		have[m.Role]++
		out = append(out, rank)
	}
	return out
}

// fits reports whether the request fits once all keep only so many members.
func (h *hunt) fits(keep []int, out *lockstep.Plan) (lockstep.Verdict, bool) {
	p := h.p
	before := p.now.clone()
	r := *h.r
	r.Busy = slices.Clone(r.Busy)
	for i, x := range h.list {
		plan := p.now.plans[x.Job]
		if keep[i] == len(plan.Members) {
			continue
		}
		if keep[i] > 0 {
			members := plan.Spares
			for _, rank := range p.kept(x, keep[i]) {
				members = append(slices.Clip(members), plan.Members[rank])
			}
			for _, m := range members {
				r.Busy = append(r.Busy, lockstep.Busy{Node: m.Node, Devices: m.Devices, CPU: plan.Gang.Roles[m.Role].Demand.CPU})
			}
		}
		p.undo(plan, len(plan.Members)+len(plan.Spares))
	}
	v, err := p.Fit(&r, out)
	p.now = before
	return v, err == nil && v.Feasible
}

// within reports whether keep respects the limits and Max.
func (h *hunt) within(keep []int) bool {
	touched := 0
	spent := make([]lockstep.Resources, len(h.c.Limits))
	for i, x := range h.list {
		plan := h.p.now.plans[x.Job]
		if keep[i] == len(plan.Members) {
			continue
		}
		touched++
		var kept []int
		if keep[i] > 0 {
			kept = h.p.kept(x, keep[i])
		}
		for _, l := range x.Limits {
			if spent[l] == nil {
				spent[l] = lockstep.Resources{}
			}
			for rank, m := range plan.Members {
				if !slices.Contains(kept, rank) {
					for name, n := range plan.Gang.Roles[m.Role].Demand.Resources() { // the order does not matter: sums
						spent[l][name] += n
					}
				}
			}
		}
	}
	for l, limit := range h.c.Limits {
		for name, most := range limit { // the order does not matter: all must hold
			if spent[l][name] > most {
				return false
			}
		}
	}
	return h.c.Max == 0 || touched <= h.c.Max
}

// greedy stops one after the other, as the limits allow, until the request fits;
// nil where that does not help.
func (h *hunt) greedy() []int {
	keep := make([]int, len(h.list))
	for i := range keep {
		keep[i] = h.size(i)
	}
	for i := range keep {
		n := keep[i]
		if keep[i] = 0; !h.within(keep) {
			keep[i] = n
			continue
		}
		var plan lockstep.Plan
		if _, ok := h.fits(keep, &plan); ok {
			return keep
		}
	}
	return nil
}

// exact returns the best of all ways in which each keeps all, its least, or nothing,
// or where it has limits any number between.
func (h *hunt) exact() []int {
	var best []int
	keep := make([]int, len(h.list))
	var try func(i int)
	try = func(i int) {
		if i < len(keep) {
			keep[i] = h.size(i)
			try(i + 1)
			for n := h.size(i) - 1; h.list[i].Min != nil && n >= h.least(i); n-- {
				if n == h.least(i) || len(h.list[i].Limits) > 0 && len(h.p.kept(h.list[i], n)) == n {
					keep[i] = n
					try(i + 1)
				}
			}
			keep[i] = 0
			try(i + 1)
			return
		}
		var plan lockstep.Plan
		if best != nil && !h.better(keep, best) || !h.within(keep) {
			return
		}
		if _, ok := h.fits(keep, &plan); ok {
			best = slices.Clone(keep)
		}
	}
	try(0)
	return best
}

// better reports whether a costs less than b, the highest tier first, or else
// touches fewer.
func (h *hunt) better(a, b []int) bool {
	for end := len(h.list); end > 0; {
		first := end
		var x, y int64
		for first > 0 && h.list[first-1].Tier == h.list[end-1].Tier {
			first--
			x += h.cost(a, first)
			y += h.cost(b, first)
		}
		if x != y {
			return x < y
		}
		end = first
	}
	x, y := 0, 0
	for i := range a {
		if a[i] != h.size(i) {
			x++
		}
		if b[i] != h.size(i) {
			y++
		}
	}
	return x < y
}

// cost is what the candidate at i loses, and something where that is nothing.
func (h *hunt) cost(keep []int, i int) int64 {
	switch keep[i] {
	case h.size(i):
		return 0
	case 0:
		return h.list[i].Cost.Total() + 2
	}
	return h.list[i].Shrink.Total() + 1
}

// giveBack lets each keep all, or as many more members as will do, the last taken
// first.
func (h *hunt) giveBack(keep []int) {
	var plan lockstep.Plan
	for i := len(keep) - 1; i >= 0; i-- {
		x := h.list[i]
		tries := []int{h.size(i)}
		if x.Min != nil {
			for n := h.size(i) - 1; n > max(keep[i], h.least(i)-1); n-- {
				tries = append(tries, n)
			}
		}
		for _, n := range tries {
			old := keep[i]
			if n <= old {
				break
			}
			if n < h.size(i) && len(h.p.kept(x, n)) != n {
				continue
			}
			keep[i] = n
			if _, ok := h.fits(keep, &plan); ok && h.within(keep) {
				break
			}
			keep[i] = old
		}
	}
}
