package reconfig

import (
	"cmp"
	"slices"
)

// pipe is a replica in the making.
type pipe struct {
	number int
	groups []*group
	shape  *shape
	own    bool     // lost something, so that it may be changed freely
	keeps  division // the layers that it must not part with; nil for none
}

// layout is a plan in the making. Invariant: no device is in two groups.
type layout struct {
	pipes []*pipe
	split []int32
	top   int64    // the slowest pipe's time; forever if there is no split
	iter  int64    // top and the exchange of gradients
	used  []bool   // by unit
	count int      // how many are used
	fixed division // that of all pipes; nil for none
	moved int64    // bytes that must move to get here from the plan before
}

// planner is one call of Replan.
type planner struct {
	w      *world
	s      shapes
	budget int64
	extra  int64     // more of it, for the migrations of one plan
	held   []holding // by unit: what it has of the plan before; nil without one
	free   [][]int32 // by node: usable units without a role in the layout under search
	spares []*group  // the best group that free makes of each node, fastest first
	spared bool      // spares is of free
	shapes []*shape  // scratch
	taken  []int32   // scratch
}

// layout builds one from pipes: shapes, split and times.
func (p *planner) layout(pipes []*pipe) *layout {
	l := &layout{pipes: pipes, fixed: p.s.fixed, used: make([]bool, len(p.w.units))}
	for _, q := range pipes {
		q.shape = p.s.keeping(q.groups, len(pipes), q.keeps)
		for _, g := range q.groups {
			for _, d := range g.devs {
				l.used[d] = true
				l.count++
			}
		}
	}
	p.settle(l)
	return l
}

// settle splits the micro-batches anew.
func (p *planner) settle(l *layout) {
	if len(l.pipes) == 0 {
		l.top, l.iter = forever, forever
		return
	}
	l.split = slices.Grow(l.split[:0], len(l.pipes))[:len(l.pipes)]
	p.shapes = p.shapes[:0]
	for _, q := range l.pipes {
		p.shapes = append(p.shapes, q.shape)
	}
	l.top = p.s.split(p.shapes, p.w.job.Micros, l.split)
	l.iter = forever
	if l.top < forever {
		l.iter = l.top + p.sync(l)
	}
}

// layers returns how a pipe of l deals out its layers.
func (p *planner) layers(l *layout, i int) division {
	_, d := p.s.time(l.pipes[i].shape, max(int(l.split[i]), p.s.stepOf(l.pipes[i].shape)))
	return d
}

// sync returns what the exchange of gradients takes.
func (p *planner) sync(l *layout) int64 {
	if p.w.job.Costs.Exchange == 0 {
		return 0
	}
	most := int64(0)
	for i, q := range l.pipes {
		d := p.layers(l, i)
		for s, g := range q.groups {
			if d != nil {
				most = max(most, p.w.sync(g, d[s], s == 0, s == len(d)-1, len(l.pipes)))
			}
		}
	}
	return most
}

// drop returns l without the pipes that take no micro-batches; nil if none would be
// left.
func (p *planner) drop(l *layout) *layout {
	if l.top >= forever {
		return nil
	}
	p.s.use(l.fixed)
	for slices.Contains(l.split, 0) {
		var kept []*pipe
		for i, q := range l.pipes {
			if l.split[i] > 0 {
				c := *q
				kept = append(kept, &c)
			}
		}
		l = p.layout(kept)
		if l.top >= forever {
			return nil
		}
	}
	if len(l.pipes) < p.w.job.Allow.MinReplicas || len(l.pipes)%p.w.job.Layout.EP != 0 {
		return nil
	}
	return l
}

// room lists the usable units that l leaves free, by node and in the order in which
// groups are made of them.
func (p *planner) room(l *layout) {
	if p.free == nil {
		p.free = make([][]int32, len(p.w.nodes))
	}
	p.spared = false
	for n, units := range p.w.nodes {
		p.free[n] = p.free[n][:0]
		for _, u := range units {
			if !l.used[u] && p.w.units[u].speed > 0 {
				p.free[n] = append(p.free[n], u)
			}
		}
		p.byWorth(p.free[n])
	}
}

// byWorth sorts units: faster first, then the more memory, then by ID.
func (p *planner) byWorth(units []int32) {
	slices.SortFunc(units, func(a, b int32) int {
		x, y := &p.w.units[a], &p.w.units[b]
		return cmp.Or(cmp.Compare(y.speed, x.speed), cmp.Compare(y.mem, x.mem), cmp.Compare(a, b))
	})
}

// pick makes the group of degree k that the first k of units are; they are sorted by
// worth. Its ranks follow what they held before.
func (p *planner) pick(units []int32, k int32) *group {
	devs := slices.Clone(units[:k])
	p.byRank(devs)
	return p.w.group(devs)
}

// byRank puts units into the order of the ranks they had, others behind them.
func (p *planner) byRank(devs []int32) {
	slices.SortFunc(devs, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.rank(a), p.rank(b)), cmp.Compare(a, b))
	})
}

func (p *planner) rank(u int32) int32 {
	if p.held == nil || p.held[u].degree == 0 {
		return int32(len(p.w.units))
	}
	return p.held[u].rank
}

// bestDegree returns the degree whose group of the first of units is fastest, of
// several the one with the fewest devices; 0 if there is none.
func (p *planner) bestDegree(units []int32) int32 {
	best, rate := int32(0), int64(0)
	for _, k := range p.w.degrees {
		if int(k) > len(units) {
			break
		}
		if r := p.w.units[units[k-1]].speed * int64(k); r > rate {
			best, rate = k, r
		}
	}
	return best
}

// better says whether a is to be preferred to b.
func (l *layout) better(b *layout) bool {
	if b == nil {
		return true
	}
	if l.iter != b.iter {
		return l.iter < b.iter
	}
	if l.count != b.count {
		return l.count < b.count
	}
	return l.moved < b.moved
}
