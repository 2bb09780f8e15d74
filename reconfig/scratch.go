package reconfig

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// groups returns all groups that the live devices make.
func (p *planner) groups(wide bool) []*group {
	none := &layout{used: make([]bool, len(p.w.units))}
	p.room(none)
	return p.groupsOf(p.free, wide)
}

// groupsOf makes groups of the units of each node, sorted by worth: either the
// fastest that can be made, again and again, or, if wide, the largest. Fast groups
// come first, among equals those of lower units.
func (p *planner) groupsOf(free [][]int32, wide bool) []*group {
	var out []*group
	for _, pool := range p.pools(free) {
		for len(pool) > 0 {
			k := p.bestDegree(pool)
			if wide {
				k = p.largestDegree(len(pool))
			}
			if k == 0 {
				break
			}
			out = append(out, p.pick(pool, k))
			pool = pool[k:]
		}
	}
	slices.SortStableFunc(out, func(a, b *group) int { return cmp.Compare(b.rate, a.rate) })
	return out
}

// pools returns the sets of units from which one group may be made: nodes, or leaves
// where a group may be over several nodes.
func (p *planner) pools(free [][]int32) [][]int32 {
	if !p.w.job.Allow.AllowCrossNodeTP {
		return free
	}
	var out [][]int32
	for _, units := range free {
		if len(units) == 0 {
			continue
		}
		if n := len(out); n > 0 && p.w.units[out[n-1][0]].leaf == p.w.units[units[0]].leaf {
			out[n-1] = append(out[n-1], units...)
		} else {
			out = append(out, slices.Clone(units))
		}
	}
	return out
}

// largestDegree returns the largest degree of at most n; 0 if there is none.
func (p *planner) largestDegree(n int) int32 {
	best := int32(0)
	for _, k := range p.w.degrees {
		if int(k) <= n {
			best = k
		}
	}
	return best
}

// scratch returns layouts that owe nothing to a plan before: groups from the fastest
// down, dealt out to various numbers of replicas of various lengths.
func (p *planner) scratch() []*layout {
	p.s.use(nil)
	w := p.w
	stop := w.ops + (p.budget-w.ops)*3/4
	var out []*layout
	for _, wide := range []bool{true, false} {
		groups := p.groups(wide)
		if len(groups) <= maxPartitioned && !w.job.Allow.FixedStages && !w.job.Allow.Uniform {
			for _, g := range p.divided(groups) {
				out = append(out, p.partitioned(g, stop)...)
			}
			continue
		}
		out = append(out, p.dealt(groups, stop, len(out) == 0)...)
	}
	slices.SortStableFunc(out, func(a, b *layout) int { return cmp.Compare(a.iter, b.iter) })
	return distinct(out)
}

// dealt returns layouts of replicas of equal length, for several numbers of them, until
// stop; if must is set, at least until one of them has a split.
func (p *planner) dealt(groups []*group, stop int64, must bool) []*layout {
	w, tried, small := p.w, 0, len(p.w.units) <= deepUnits
	var out []*layout
	add := func(pipes []*pipe) {
		l := p.layout(pipes)
		must = must && l.iter >= forever
		out = append(out, l)
	}
	for r := w.job.Allow.MaxReplicas; r >= w.job.Allow.MinReplicas; r-- {
		if len(groups) < r || r%w.job.Layout.EP != 0 {
			continue
		}
		if tried++; tried > maxSeedReplicas && !small && !must {
			break
		}
		for _, n := range p.lengths(len(groups), r) {
			if w.ops >= stop && !must {
				return out
			}
			add(deal(groups, r, n, false))
			if small {
				add(deal(groups, r, n, true))
			}
		}
	}
	return out
}

// distinct drops layouts whose pipes have the same shapes as those of one before.
func distinct(all []*layout) []*layout {
	seen := map[string]bool{}
	var key []byte
	return slices.DeleteFunc(all, func(l *layout) bool {
		ids := make([]int, len(l.pipes))
		for i, q := range l.pipes {
			ids[i] = q.shape.id
		}
		slices.Sort(ids)
		key = key[:0]
		for _, id := range ids {
			key = binary.AppendUvarint(key, uint64(id))
		}
		again := seen[string(key)]
		seen[string(key)] = true
		return again
	})
}

// maxPartitioned is up to how many groups all lengths of replicas are tried.
const maxPartitioned = 16

// divided returns groups, and where there are few the same with one group, or two,
// of each kind cut in halves.
func (p *planner) divided(groups []*group) [][]*group {
	out := [][]*group{groups}
	if len(groups) > maxDivided {
		return out
	}
	add := func(from []*group) {
		var last slot
		for i, g := range from {
			k := int32(len(g.devs) / 2)
			if k == 0 || len(g.devs)%2 != 0 || g.slot() == last || !slices.Contains(p.w.degrees, k) {
				continue
			}
			last = g.slot()
			units := slices.Clone(g.devs)
			p.byWorth(units)
			next := spliced(from, i, 1, p.pick(units, k), p.pick(units[k:], k))
			slices.SortStableFunc(next, func(a, b *group) int { return cmp.Compare(b.rate, a.rate) })
			out = append(out, next)
		}
	}
	add(groups)
	for _, g := range slices.Clone(out[1:]) {
		add(g)
	}
	return out
}

// maxDivided is up to how many groups halves are tried.
const maxDivided = 8

// partitioned returns layouts for every way to make replicas of so many groups, and
// of fewer, until stop: the longest replica gets the fastest groups, or the slowest.
func (p *planner) partitioned(groups []*group, stop int64) []*layout {
	var out []*layout
	a := p.w.job.Allow
	least := max(1, len(groups)-2)
	if len(groups) <= maxDivided {
		least = 1
	}
	for n := len(groups); n >= least; n-- {
		var sizes []int
		var split func(left, most int)
		split = func(left, most int) {
			if p.w.ops >= stop {
				return // the rest is for the search
			}
			if left == 0 {
				if len(sizes) >= a.MinReplicas && len(sizes)%p.w.job.Layout.EP == 0 {
					out = append(out, p.layout(dealSizes(groups, sizes, false)))
					if len(groups) <= maxDivided && len(sizes) > 1 {
						out = append(out, p.layout(dealInTurn(groups, sizes)))
					}
					if sizes[0] != sizes[len(sizes)-1] {
						out = append(out, p.layout(dealSizes(groups, sizes, true)))
					}
				}
				return
			}
			if len(sizes) == p.w.job.Allow.MaxReplicas {
				return
			}
			for k := min(left, most); k > 0; k-- {
				sizes = append(sizes, k)
				split(left-k, k)
				sizes = sizes[:len(sizes)-1]
			}
		}
		split(n, p.w.stages)
	}
	return out
}

// dealSizes makes pipelines of these sizes, the fastest groups going to the first of
// them, or to the last.
func dealSizes(groups []*group, sizes []int, last bool) []*pipe {
	out := make([]*pipe, len(sizes))
	for i := range out {
		at := i
		if last {
			at = len(sizes) - 1 - i
		}
		out[at] = &pipe{number: at, groups: groups[:sizes[at]:sizes[at]], own: true}
		groups = groups[sizes[at]:]
	}
	return out
}

// dealInTurn makes pipelines of these sizes, one group to each in turn.
func dealInTurn(groups []*group, sizes []int) []*pipe {
	out := make([]*pipe, len(sizes))
	for i := range out {
		out[i] = &pipe{number: i, own: true}
	}
	for round, at := 0, 0; round < sizes[0]; round++ {
		for i := range out {
			if round < sizes[i] {
				out[i].groups = append(out[i].groups, groups[at])
				at++
			}
		}
	}
	return out
}

// Bounds of the starts at random.
const (
	maxShuffled = 200 // starts
	maxVain     = 30  // starts in a row that were of no use
)

// shuffled searches from layouts at random, always the same ones, for small jobs.
func (p *planner) shuffled(best **layout) {
	a := p.w.job.Allow
	if !p.s.deep || a.FixedStages || a.Uniform || p.w.job.Layout.EP > 1 {
		return
	}
	all := p.divided(p.groups(true))
	all = append(all, p.divided(p.groups(false))...)
	r := rand.New(rand.NewPCG(1, uint64(len(p.w.units))))
	vain := 0
	for range maxShuffled {
		if p.spent() || vain == maxVain {
			return
		}
		groups := slices.Clone(all[r.IntN(len(all))])
		r.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		n := min(len(groups), p.w.job.Allow.MaxReplicas)
		if n < a.MinReplicas {
			return
		}
		n = a.MinReplicas + r.IntN(n-a.MinReplicas+1)
		pipes := make([]*pipe, n)
		for i := range pipes {
			pipes[i] = &pipe{number: i, own: true, groups: groups[i : i+1 : i+1]}
		}
		for _, g := range groups[n:] {
			if q := pipes[r.IntN(n)]; len(q.groups) < p.w.stages {
				q.groups = append(q.groups, g)
			}
		}
		before := *best
		p.keep(best, p.seek(p.layout(pipes), true))
		if vain++; before == nil || (*best).iter < before.iter {
			vain = 0
		}
	}
}

// lengths returns how many stages r replicas may have each, of so many groups.
func (p *planner) lengths(groups, r int) []int {
	most := min(groups/r, p.w.stages)
	if p.w.job.Allow.FixedStages {
		if most < p.w.job.Layout.PP {
			return nil
		}
		return []int{p.w.job.Layout.PP}
	}
	out := []int{min(most, p.w.job.Layout.PP)}
	if most > out[0] {
		out = append(out, most)
	}
	return out
}

// deal makes r pipelines of n of the first groups each: the fast ones together, or,
// if mixed, one to each in turn and back.
func deal(groups []*group, r, n int, mixed bool) []*pipe {
	out := make([]*pipe, r)
	for i := range out {
		out[i] = &pipe{number: i, own: true}
	}
	for i, g := range groups[:r*n] {
		at := i / n
		if mixed {
			at = i % r
			if i/r%2 == 1 {
				at = r - 1 - at
			}
		}
		out[at].groups = append(out[at].groups, g)
	}
	return out
}
