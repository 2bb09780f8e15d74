package reconfig

import (
	"cmp"
	"slices"
)

// worth is how much a pipe can do in a given time: whole micro-batches, and the
// part of the next one in millionths. More is better.
type worth struct{ count, part int64 }

// worth returns that of a shape for a layout whose slowest pipe takes top: what it
// can do in less time decides, and what it nearly can.
func (p *planner) worth(sh *shape, top int64) worth {
	if sh.worthAt != top {
		sh.worth = p.worthOf(sh, top)
		sh.worthAt = top
	}
	return sh.worth
}

func (p *planner) worthOf(sh *shape, top int64) worth {
	limit := p.w.job.Micros
	n := p.s.capacity(sh, top-1, limit)
	took, _ := p.s.time(sh, n)
	if n == 0 {
		step := p.s.stepOf(sh)
		next, _ := p.s.time(sh, step)
		if next >= forever {
			return worth{}
		}
		return worth{0, quotient(max(0, top), whole-1, max(next, top, 1))}
	}
	part := min(quotient(max(0, top-1-took), whole, p.s.bottleneck(sh, n)), whole-1)
	return worth{int64(n), part}
}

// change is a new list of groups for a pipe; none drops it.
type change struct {
	pipe   int
	groups []*group
	keeps  division // as in pipe
}

// try makes the changes if they gain something. Pipes are never removed here: one
// without groups can do nothing.
func (p *planner) try(l *layout, changes ...change) bool {
	var before, after worth
	var news [2]*shape
	devices, most := 0, int64(0)
	p.w.ops += tryCost
	for i, c := range changes {
		if len(c.groups) == 0 || len(c.groups) > p.w.stages {
			return false
		}
		q := l.pipes[c.pipe]
		if len(q.keeps) == len(c.groups) {
			changes[i].keeps = q.keeps
		}
		news[i] = p.s.keeping(c.groups, len(l.pipes), changes[i].keeps)
		a := p.worth(q.shape, l.top)
		before = worth{before.count + a.count, before.part + a.part}
		most += p.s.most(news[i], l.top-1)
		devices += size(c.groups) - size(q.groups)
	}
	if most < before.count {
		return false
	}
	for _, sh := range news[:len(changes)] {
		b := p.worth(sh, l.top)
		after = worth{after.count + b.count, after.part + b.part}
	}
	if after.count < before.count || after.count == before.count && (after.part < before.part || after.part == before.part && devices >= 0) {
		return false
	}
	top, back := l.top, make([]change, len(changes))
	for i, c := range changes {
		back[i] = change{c.pipe, l.pipes[c.pipe].groups, l.pipes[c.pipe].keeps}
	}
	p.make(l, changes)
	if l.top > top {
		p.make(l, back)
		return false
	}
	return true
}

// make makes changes.
func (p *planner) make(l *layout, changes []change) {
	for _, c := range changes {
		for _, g := range l.pipes[c.pipe].groups {
			for _, d := range g.devs {
				l.used[d] = false
			}
			l.count -= len(g.devs)
		}
	}
	for _, c := range changes {
		q := *l.pipes[c.pipe]
		q.groups, q.shape, q.keeps = c.groups, p.s.keeping(c.groups, len(l.pipes), c.keeps), c.keeps
		l.pipes[c.pipe] = &q
		for _, g := range q.groups {
			for _, d := range g.devs {
				l.used[d] = true
			}
			l.count += len(g.devs)
		}
	}
	p.settle(l)
	p.room(l)
}

func size(groups []*group) int {
	n := 0
	for _, g := range groups {
		n += len(g.devs)
	}
	return n
}

// spent says whether the budget is used up.
func (p *planner) spent() bool { return p.w.ops >= p.budget }

// search improves l until no single move does, or the budget is spent. Only pipes
// that are own are changed, unless all is set.
func (p *planner) search(l *layout, all bool) {
	p.s.use(l.fixed)
	p.room(l)
	for better := true; better && !p.spent(); {
		better = false
		for i := range l.pipes {
			if all || l.pipes[i].own {
				better = p.alone(l, i) || better
			}
			if p.spent() {
				return
			}
		}
		better = p.pairs(l, all) || better
	}
}

// pairs tries the moves that change two pipes.
func (p *planner) pairs(l *layout, all bool) bool {
	better := false
	for i := range l.pipes {
		for j := range l.pipes {
			if p.spent() {
				return better
			}
			if i != j && (all || l.pipes[i].own && l.pipes[j].own) {
				better = p.pair(l, i, j) || better
			}
		}
	}
	return better
}

// alone tries the moves that change one pipe.
func (p *planner) alone(l *layout, i int) bool {
	better := false
	for s := 0; s < len(l.pipes[i].groups) && !p.spent(); s++ {
		better = p.regroup(l, i, s) || better
		better = p.remove(l, i, s) || better
	}
	for s := 0; s <= len(l.pipes[i].groups) && !p.spent(); s++ {
		if p.insert(l, i, s) {
			better = true
			break // others may have more use for the next one
		}
	}
	return p.reorder(l, i) || better
}

// within returns the units that a stage's group may be made of without touching
// another group, by worth: its own, and the free ones of its nodes.
func (p *planner) within(g *group) []int32 {
	p.taken = append(p.taken[:0], g.devs...)
	if !g.spread {
		p.taken = append(p.taken, p.free[g.node]...)
	} else {
		seen := make([]int32, 0, 4)
		for _, d := range g.devs {
			if n := p.w.units[d].node; !slices.Contains(seen, n) {
				seen = append(seen, n)
				p.taken = append(p.taken, p.free[n]...)
			}
		}
	}
	p.byWorth(p.taken)
	return p.taken
}

// spliced returns groups with n of them from s on replaced.
func spliced(groups []*group, s, n int, in ...*group) []*group {
	out := make([]*group, 0, len(groups)-n+len(in))
	out = append(out, groups[:s]...)
	out = append(out, in...)
	return append(out, groups[s+n:]...)
}

// regroup tries other groups of the devices at hand for one stage: one of any
// degree, and a chain of several, each the best of what is left.
func (p *planner) regroup(l *layout, i, s int) bool {
	better := false
	for _, k := range p.w.degrees {
		q := l.pipes[i]
		units := slices.Clone(p.within(q.groups[s]))
		if int(k) > len(units) {
			break
		}
		first := p.pick(units, k)
		if p.try(l, change{pipe: i, groups: spliced(q.groups, s, 1, first)}) {
			better = true
			continue
		}
		chain := []*group{first}
		for rest := units[k:]; len(chain) < 4; {
			d := p.bestDegree(rest)
			if d == 0 {
				break
			}
			chain = append(chain, p.pick(rest, d))
			rest = rest[d:]
			if p.try(l, change{pipe: i, groups: spliced(q.groups, s, 1, slices.Clone(chain)...)}) {
				better = true
				break
			}
		}
	}
	return better
}

// remove tries a pipe without one of its stages.
func (p *planner) remove(l *layout, i, s int) bool {
	q := l.pipes[i]
	return len(q.groups) > 1 && p.try(l, change{pipe: i, groups: spliced(q.groups, s, 1)})
}

// insert tries free groups as a further stage in front of stage s, and in its place.
func (p *planner) insert(l *layout, i, s int) bool {
	better := false
	for _, g := range p.spare(l.pipes[i]) {
		q := l.pipes[i]
		if len(q.groups) < p.w.stages && p.try(l, change{pipe: i, groups: spliced(q.groups, s, 0, g)}) ||
			s < len(q.groups) && p.try(l, change{pipe: i, groups: spliced(q.groups, s, 1, g)}) {
			better = true
			break // what is free has changed
		}
	}
	return better
}

// Bounds of the free groups that are tried in one place.
const (
	maxNear = 4 // on nodes of the pipeline
	maxFar  = 2 // elsewhere
)

// spare returns free groups to try in a pipe: of its nodes, and the fastest of all.
func (p *planner) spare(q *pipe) []*group {
	if !p.spared {
		p.spares = p.spares[:0]
		for n := range p.free {
			if k := p.bestDegree(p.free[n]); k > 0 {
				p.spares = append(p.spares, p.pick(p.free[n], k))
			}
		}
		slices.SortStableFunc(p.spares, func(a, b *group) int { return cmp.Compare(b.rate, a.rate) })
		p.spared = true
	}
	if len(p.spares) <= maxNear {
		return p.spares
	}
	var out []*group
	for _, o := range q.groups {
		if k := p.bestDegree(p.free[o.node]); k > 0 && len(out) < maxNear && !slices.ContainsFunc(out, func(g *group) bool { return g.node == o.node }) {
			out = append(out, p.pick(p.free[o.node], k))
		}
	}
	slices.SortStableFunc(out, func(a, b *group) int { return cmp.Compare(b.rate, a.rate) })
	for _, g := range p.spares[:maxFar] {
		if !slices.ContainsFunc(out, func(o *group) bool { return g.node == o.node }) {
			out = append(out, g)
		}
	}
	return out
}

// reorder tries to swap two stages of a pipe.
func (p *planner) reorder(l *layout, i int) bool {
	better := false
	n := len(l.pipes[i].groups)
	for a := range n {
		for b := a + 1; b < n && !p.spent(); b++ {
			q := l.pipes[i]
			if q.groups[a].slot() == q.groups[b].slot() && len(q.groups) == n && p.flat() {
				continue
			}
			groups := slices.Clone(q.groups)
			groups[a], groups[b] = groups[b], groups[a]
			better = p.try(l, change{pipe: i, groups: groups}) || better
		}
	}
	return better
}

// flat says that all hops take as long as each other.
func (p *planner) flat() bool {
	h := p.w.job.Costs.Hop
	return h.Node == h.Leaf && h.Leaf == h.Fabric
}

// pair tries the moves that change two pipes: to swap a stage of each, to hand one
// over, and to deal out the devices of two stages of one node anew.
func (p *planner) pair(l *layout, i, j int) bool {
	better := false
	if l.pipes[i].shape == l.pipes[j].shape && p.uniformPipe(l.pipes[i]) {
		return false
	}
	for a := 0; a < len(l.pipes[i].groups); a++ {
		for b := 0; b <= len(l.pipes[j].groups) && !p.spent(); b++ {
			if a >= len(l.pipes[i].groups) {
				break
			}
			x, y := l.pipes[i].groups, l.pipes[j].groups
			if len(x) > 1 && p.try(l, change{pipe: i, groups: spliced(x, a, 1)}, change{pipe: j, groups: spliced(y, b, 0, x[a])}) {
				better = true
				continue
			}
			if b == len(y) || i > j {
				continue
			}
			if x[a].slot() != y[b].slot() && p.try(l, change{pipe: i, groups: spliced(x, a, 1, y[b])}, change{pipe: j, groups: spliced(y, b, 1, x[a])}) {
				better = true
				continue
			}
			better = p.trade(l, i, a, j, b) || better
		}
	}
	return better
}

// uniformPipe says whether all stages of a pipe are alike.
func (p *planner) uniformPipe(q *pipe) bool {
	for _, g := range q.groups {
		if g.slot() != q.groups[0].slot() {
			return false
		}
	}
	return true
}

// trade tries to deal out the devices of two stages of one node anew, the faster ones
// to either.
func (p *planner) trade(l *layout, i, a, j, b int) bool {
	x, y := l.pipes[i].groups, l.pipes[j].groups
	if x[a].node != y[b].node || x[a].spread || y[b].spread || x[a].slot() == y[b].slot() && x[a].rate == whole*int64(len(x[a].devs)) {
		return false
	}
	units := append(slices.Clone(p.within(x[a])), y[b].devs...)
	p.byWorth(units)
	for _, k := range p.w.degrees {
		if int(k) >= len(units) {
			break
		}
		rest := units[k:]
		for _, m := range p.w.degrees {
			if int(m) > len(rest) {
				break
			}
			one, two := p.pick(units, k), p.pick(rest, m)
			if p.try(l, change{pipe: i, groups: spliced(x, a, 1, one)}, change{pipe: j, groups: spliced(y, b, 1, two)}) ||
				p.try(l, change{pipe: i, groups: spliced(x, a, 1, two)}, change{pipe: j, groups: spliced(y, b, 1, one)}) {
				return true
			}
		}
	}
	return false
}
