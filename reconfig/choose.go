package reconfig

import (
	"cmp"
	"slices"
)

// choose returns the layout to go to, nil if there is none; and if that changes replicas
// that lost nothing, the best one that does not.
func (p *planner) choose(prev *Plan, o Options) (l, calm *layout) {
	local := p.local(prev)
	if prev == nil && local != nil && p.healthy() && o.Disturb != AnyGain {
		p.polish(local)
		return local, nil
	}
	global := p.global(prev, local)
	for _, l := range []*layout{local, global} {
		if l != nil {
			p.polish(l)
		}
	}
	if local == nil || global == nil {
		return cmp.Or(local, global), nil
	}
	if global.iter < local.iter && local.iter-global.iter >= quotient(local.iter, o.disturb(), whole) {
		return global, local
	}
	return local, nil
}

// local returns the best layout that changes only what was hurt, for a first plan the
// job's own; nil if there is none. It may use half the budget.
func (p *planner) local(prev *Plan) *layout {
	var best *layout
	if prev == nil {
		p.keep(&best, p.asked())
		return best
	}
	budget := p.budget
	p.budget = p.w.ops + (budget-p.w.ops)/2
	for _, l := range p.repairs(prev) {
		p.keep(&best, p.seek(l, false))
	}
	p.budget = budget
	return best
}

// global returns the best layout that may change everything, from the local one and
// from scratch.
func (p *planner) global(prev *Plan, local *layout) *layout {
	var best *layout
	switch {
	case local != nil:
		p.keep(&best, p.seek(p.freed(local), true))
	case prev != nil:
		for _, l := range p.repairs(prev) {
			p.keep(&best, p.seek(p.freed(l), true))
		}
	}
	budget := p.budget
	for _, l := range p.scratch() {
		p.budget = min(budget, p.w.ops+(budget-p.w.ops)/seedShare)
		p.keep(&best, p.seek(l, true))
	}
	p.budget = budget
	p.shuffled(&best)
	return best
}

// healthy says that every device is there and at full speed.
func (p *planner) healthy() bool {
	return !slices.ContainsFunc(p.w.units, func(u unit) bool { return u.speed < whole })
}

// asked returns the job's own layout: groups of TP neighbours of a node, PP of them in
// a replica, DP replicas; nil if there are not as many, or it is not allowed.
func (p *planner) asked() *layout {
	w := p.w
	l := w.job.Layout
	if !slices.Contains(w.degrees, int32(l.TP)) || l.PP > w.stages || l.DP > w.job.Allow.MaxReplicas {
		return nil
	}
	p.room(&layout{used: make([]bool, len(w.units))})
	var groups []*group
	for _, units := range p.pools(p.free) {
		slices.Sort(units)
		for ; len(units) >= l.TP && len(groups) < l.PP*l.DP; units = units[l.TP:] {
			groups = append(groups, w.group(slices.Clone(units[:l.TP])))
		}
	}
	if len(groups) < l.PP*l.DP {
		return nil
	}
	pipes := make([]*pipe, l.DP)
	for d := range pipes {
		pipes[d] = &pipe{number: d, groups: groups[d*l.PP : (d+1)*l.PP], own: true}
	}
	if !w.job.Allow.Uniform {
		return p.layout(pipes)
	}
	var best *layout
	from := p.layout(pipes)
	for _, d := range p.common(from) {
		p.s.use(d)
		c := *from
		c.fixed = d
		p.keep(&best, p.copyOf(&c))
	}
	p.s.use(nil)
	return best
}

// keep replaces best by l, without its idle replicas, if that is better.
func (p *planner) keep(best **layout, l *layout) {
	if l != nil {
		l = p.drop(l)
	}
	if l == nil {
		return
	}
	l.moved = p.moving(l)
	if l.better(*best) {
		*best = l
	}
}

// seek improves l, by search and by further replicas. Where all replicas must have
// the same layers it tries several ways to deal them out, and has to copy l.
func (p *planner) seek(l *layout, all bool) *layout {
	if !p.w.job.Allow.Uniform {
		p.search(l, all)
		return p.grown(l)
	}
	var best *layout
	for range 2 {
		from := cmp.Or(best, l)
		for _, d := range p.common(from) {
			p.s.use(d)
			c := *from
			c.fixed = d
			next := p.copyOf(&c)
			p.search(next, all)
			p.keep(&best, p.grown(next))
		}
		if best == nil {
			break
		}
	}
	return best
}

// common returns divisions that all pipes of l might have: those of plans before, the
// even one, and those best for the slowest group of each place and for each pipe.
func (p *planner) common(l *layout) []division {
	n := len(l.pipes[0].groups)
	var out []division
	add := func(d division) {
		if !slices.ContainsFunc(out, func(o division) bool { return slices.Equal(o, d) }) {
			out = append(out, slices.Clone(d))
		}
	}
	worst := make([]lane, n)
	for i, q := range l.pipes {
		if len(q.groups) != n {
			return nil
		}
		for _, h := range q.shape.hints {
			add(h)
		}
		if !p.s.measure(q.shape, p.s.stepOf(q.shape)) {
			return out
		}
		d := make(division, n)
		if len(out) < maxCommon && p.w.divide(p.s.lanes, d) {
			add(d)
		}
		for s, lane := range p.s.lanes {
			if i == 0 {
				worst[s] = lane
			}
			worst[s].rate, worst[s].wire, worst[s].room = min(worst[s].rate, lane.rate), max(worst[s].wire, lane.wire), min(worst[s].room, lane.room)
		}
	}
	d := make(division, n)
	if p.w.divide(worst, d) {
		add(d)
	}
	p.w.even(n, d)
	add(d)
	return out
}

// maxCommon is how many ways to deal out layers are tried for all replicas, about.
const maxCommon = 8

// freed returns a copy of l in which all pipes may part with their layers.
func (p *planner) freed(l *layout) *layout {
	c := *l
	c.pipes = make([]*pipe, len(l.pipes))
	for i, q := range l.pipes {
		free := *q
		free.keeps = nil
		c.pipes[i] = &free
	}
	return p.copyOf(&c)
}

// copyOf returns a layout that can be searched without changing l.
func (p *planner) copyOf(l *layout) *layout {
	p.s.use(l.fixed)
	pipes := make([]*pipe, len(l.pipes))
	for i, q := range l.pipes {
		c := *q
		pipes[i] = &c
	}
	return p.layout(pipes)
}

// grown returns l with as many further replicas as the free devices carry and are of
// use.
func (p *planner) grown(l *layout) *layout {
	step := p.w.job.Layout.EP // replicas come in multiples of it
	for len(l.pipes)+step <= p.w.job.Allow.MaxReplicas && !p.spent() {
		p.room(l)
		groups := p.groupsOf(p.free, false)
		n := min(len(groups)/step, p.w.job.Layout.PP)
		if n == 0 || p.w.job.Allow.FixedStages && n < p.w.job.Layout.PP {
			return l
		}
		pipes := make([]*pipe, 0, len(l.pipes)+step)
		for _, q := range l.pipes {
			c := *q
			pipes = append(pipes, &c)
		}
		for range step {
			pipes = append(pipes, &pipe{number: unused(pipes), groups: groups[:n:n], own: true})
			groups = groups[n:]
		}
		next := p.layout(pipes)
		if next.iter >= l.iter {
			return l
		}
		p.search(next, false)
		l = next
	}
	return l
}

// unused returns the least number that none of pipes has.
func unused(pipes []*pipe) int {
	for n := 0; ; n++ {
		if !slices.ContainsFunc(pipes, func(q *pipe) bool { return q.number == n }) {
			return n
		}
	}
}

// polish improves the divisions of the slowest replicas by simulation.
func (p *planner) polish(l *layout) {
	if p.s.deep || l.top >= forever {
		return
	}
	for range 8 {
		top, better := l.top, false
		for i, q := range l.pipes {
			took, d := p.s.time(q.shape, int(l.split[i]))
			if took < top || d == nil {
				continue
			}
			t := timed{micros: l.split[i], took: took, layers: d}
			p.s.improve(q.shape, &t)
			if t.took < took {
				q.shape.hint(t.layers)
				better = true
			}
		}
		if !better {
			return
		}
		p.settle(l)
		if l.top >= top {
			return
		}
	}
}
