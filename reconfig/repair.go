package reconfig

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// checkPrev refuses a plan that is not of this job.
func (w *world) checkPrev(op string, prev *Plan) error {
	bad := func(reason string) error {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "prev", Reason: reason}
	}
	if len(prev.Replicas) == 0 || len(prev.Split) != len(prev.Replicas) {
		return bad("want replicas, and a split among them")
	}
	if prev.Version == math.MaxUint64 {
		return bad("no version follows")
	}
	if prev.Sum() != prev.Digest {
		return bad("the plan is not the one that its digest is of")
	}
	seen := map[lockstep.DeviceID]bool{}
	for i, r := range prev.Replicas {
		if i > 0 && r.Number <= prev.Replicas[i-1].Number || r.Number < 0 {
			return bad("replicas are not in the order of their numbers")
		}
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				if seen[id] {
					return bad("a device has two roles: " + errtext.Quote(id))
				}
				seen[id] = true
			}
		}
		if j := w.foreign(r); j >= 0 {
			return bad("is of another job: replica " + text(i) + " stage " + text(j))
		}
	}
	return nil
}

// foreign returns the first stage of r that is none of this job, as many as r has if
// layers are missing behind the last one; -1 if there is none.
func (w *world) foreign(r Replica) int {
	at := 0
	for c := range w.chunks {
		for j, s := range r.Stages {
			if len(s.Spans) != w.chunks || len(s.Devices) == 0 {
				return j
			}
			span := s.Spans[c]
			if span.First != at || span.Layers < 0 || span.Layers > w.layers-at {
				return j
			}
			at += span.Layers
		}
	}
	if at != w.layers {
		return len(r.Stages)
	}
	return -1
}

// repairs returns the layouts from which to mend the plan before: its groups without
// the devices that are gone, and the same without the replicas that lost something.
func (p *planner) repairs(prev *Plan) []*layout {
	pipes := p.mend(prev)
	if len(pipes) == 0 {
		return nil
	}
	base := p.layout(pipes)
	out := []*layout{base}
	var own []int
	for i, q := range base.pipes {
		if q.own {
			own = append(own, i)
		}
	}
	without := func(drop func(i int) bool) {
		var kept []*pipe
		for i, q := range base.pipes {
			if !drop(i) {
				c := *q
				kept = append(kept, &c)
			}
		}
		if len(kept) > 0 && len(kept) < len(base.pipes) {
			out = append(out, p.layout(kept))
		}
	}
	if len(own) > 0 {
		without(func(i int) bool { return base.pipes[i].own })
	}
	if len(own) > 1 && len(own) <= maxDropsOneByOne {
		for _, o := range own {
			without(func(i int) bool { return i == o })
		}
	}
	return out
}

// mend returns the replicas of prev on the devices that are left of them: of each
// stage the fastest group, and no stage where nothing is left.
func (p *planner) mend(prev *Plan) []*pipe {
	w := p.w
	l := &layout{used: make([]bool, len(w.units))}
	for _, r := range prev.Replicas {
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				if u, ok := w.index[id]; ok {
					l.used[u] = true
				}
			}
		}
	}
	p.room(l)
	var out []*pipe
	for i, r := range prev.Replicas {
		q := &pipe{number: r.Number, own: slices.ContainsFunc(prev.Migrations, func(m Migration) bool { return m.Owner == i || m.Host == i })}
		var d division
		for _, s := range r.Stages {
			g, lost := p.left(s)
			q.own = q.own || lost
			if g != nil {
				q.groups, d = append(q.groups, g), append(d, int32(s.Layers()))
			}
		}
		if len(q.groups) == 0 {
			continue
		}
		q.shape = p.s.of(q.groups, len(prev.Replicas))
		if len(d) == len(r.Stages) {
			q.shape.hint(d)
			q.own = q.own || !p.intact(q.shape, d, prev, i)
			if !q.own && !w.job.Allow.Uniform {
				q.keeps = d
			}
		}
		out = append(out, q)
	}
	return out
}

// intact says whether replica i of prev, of which no device is missing, has layers that
// it could keep, and takes as long as prev says, where that can be told.
func (p *planner) intact(sh *shape, d division, prev *Plan, i int) bool {
	w := p.w
	virt := make([]int32, len(d)*w.chunks)
	w.virtual(d, virt)
	for v, n := range virt {
		if n < 1 || prev.Replicas[i].Stages[v%len(d)].Spans[v/len(d)].Layers != int(n) {
			return false
		}
	}
	if prev.Split[i] < 0 || prev.Split[i] > w.job.Micros {
		return false
	}
	return len(prev.Migrations) > 0 || len(prev.Estimate.Replicas) != len(prev.Replicas) ||
		w.run(sh.slots, sh.hops, virt, prev.Split[i]) == int64(prev.Estimate.Replicas[i])
}

// left returns the group that is left of a stage, nil if none is, and whether it
// lost something.
func (p *planner) left(s Stage) (*group, bool) {
	var units []int32
	for _, id := range s.Devices {
		if u, ok := p.w.index[id]; ok && p.w.units[u].speed > 0 {
			units = append(units, u)
		}
	}
	if len(units) == len(s.Devices) && slices.Contains(p.w.degrees, int32(len(units))) {
		return p.w.group(units), false
	}
	p.byWorth(units)
	if k := p.bestDegree(units); k > 0 {
		return p.pick(units, k), true
	}
	return nil, true
}

// stay returns the layout that leaves the layers where they are, for migrations to
// make the best of: replicas with the same layers can host each other's work. Those
// that were hurt take the layers of one that was not.
func (p *planner) stay(prev *Plan) *layout {
	p.s.use(nil)
	pipes := p.mend(prev)
	if len(pipes) == 0 {
		return nil
	}
	like := prev.Replicas[0]
	for _, q := range slices.Backward(pipes) {
		if !q.own {
			like = prev.Replicas[slices.IndexFunc(prev.Replicas, func(r Replica) bool { return r.Number == q.number })]
		}
	}
	d := make(division, len(like.Stages))
	for i, s := range like.Stages {
		d[i] = int32(s.Layers())
	}
	if p.w.job.Allow.Uniform {
		p.s.use(d)
		defer p.s.use(nil)
	}
	for _, q := range pipes {
		if q.own && len(q.groups) == len(d) {
			q.keeps = d
		}
	}
	l := p.layout(pipes)
	p.search(l, false)
	return p.drop(l)
}
