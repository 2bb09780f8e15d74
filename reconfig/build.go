package reconfig

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// plan turns a layout into a plan that follows prev.
func (p *planner) plan(l *layout, prev *Plan, o Options) (*Plan, error) {
	w := p.w
	p.s.use(l.fixed)
	out := &Plan{Version: 1, Basis: w.basis}
	if prev != nil {
		out.Version = prev.Version + 1
	}
	order := make([]int, len(l.pipes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(l.pipes[a].number, l.pipes[b].number) })
	for _, i := range order {
		out.Replicas = append(out.Replicas, p.replica(l, i))
		out.Split = append(out.Split, int(l.split[i]))
	}
	for i := range w.units {
		if u := &w.units[i]; u.speed > 0 && !l.used[i] {
			out.Standby = append(out.Standby, u.id)
		}
	}
	if w.job.Allow.AllowMigration {
		runs, err := w.read("reconfig: replan", out)
		if err != nil {
			return nil, err
		}
		p.budget = w.ops + p.extra
		out.Split, out.Migrations = p.migrations(runs, out.Split, max(1, o.Gap))
	}
	return p.seal(out, prev, o)
}

// replica writes pipe i of l.
func (p *planner) replica(l *layout, i int) Replica {
	q, d := l.pipes[i], p.layers(l, i)
	r := Replica{Number: q.number, Stages: make([]Stage, len(q.groups))}
	virt := make([]int32, len(d)*p.w.chunks)
	p.w.virtual(d, virt)
	at := 0
	for v, n := range virt {
		s := &r.Stages[v%len(d)]
		s.Spans = append(s.Spans, Span{at, int(n)})
		at += int(n)
	}
	for s, g := range q.groups {
		r.Stages[s].Devices = deviceIDs(p.w, g.devs)
	}
	return r
}

// seal fills in what follows from the rest of a plan.
func (p *planner) seal(out, prev *Plan, o Options) (*Plan, error) {
	w := p.w
	slices.Sort(out.Standby)
	runs, err := w.read("reconfig: replan", out)
	if err != nil {
		return nil, err
	}
	if out.Estimate, err = w.evaluate(runs, out.Split, out.Migrations); err != nil {
		return nil, err
	}
	if prev != nil {
		out.Restore = w.lost(prev)
	}
	if len(out.Restore) > 0 && o.NoCheckpoint {
		return nil, &Infeasible{StateLevel, ReasonCheckpoint, Witness{Replica: -1, Stage: -1, Layers: out.Restore[0]}}
	}
	out.Groups = groupsOf(out, w.layers)
	out.Digest = out.Sum()
	return out, nil
}

// lost returns the layers of which no device that can be read holds some part.
func (w *world) lost(prev *Plan) []Span {
	var out []Span
	for layer := range w.layers {
		if w.covered(prev, layer) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].End() == layer {
			out[n-1].Layers++
		} else {
			out = append(out, Span{layer, 1})
		}
	}
	return out
}

// covered says whether readable devices hold all of a layer between them.
func (w *world) covered(prev *Plan, layer int) bool {
	type part struct{ lo, hi, of int64 }
	var parts []part
	for _, r := range prev.Replicas {
		for _, s := range r.Stages {
			if !slices.ContainsFunc(s.Spans, func(sp Span) bool { return sp.First <= layer && layer < sp.End() }) {
				continue
			}
			whole := true
			for i, id := range s.Devices {
				if u, ok := w.index[id]; ok && w.units[u].holds {
					parts = append(parts, part{int64(i), int64(i) + 1, int64(len(s.Devices))})
				} else {
					whole = false
				}
			}
			if whole {
				return true
			}
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.lo*b.of, b.lo*a.of), cmp.Compare(a.of, b.of))
	})
	lo, of := int64(0), int64(1) // covered so far: lo/of
	for _, t := range parts {
		if t.lo*of > lo*t.of {
			return false
		}
		if t.hi*of > lo*t.of {
			lo, of = t.hi, t.of
		}
	}
	return lo == of
}

// groupsOf returns the communicators of a plan: for each replica its pipeline and
// the group of each stage, then those that exchange gradients, by layer and slice.
func groupsOf(p *Plan, layers int) []Group {
	var out []Group
	for _, r := range p.Replicas {
		var all []lockstep.DeviceID
		for _, s := range r.Stages {
			all = append(all, s.Devices...)
		}
		out = append(out, Group{Kind: PipelineGroup, Devices: all})
		for _, s := range r.Stages {
			out = append(out, Group{Kind: TensorGroup, Devices: slices.Clone(s.Devices)})
		}
	}
	if len(p.Replicas) < 2 {
		return out
	}
	return appendExchanges(out, p, layers)
}

// appendExchanges appends the groups that exchange gradients: runs of layers that in
// every replica lie in one stage, each cut into as many slices as all degrees divide.
func appendExchanges(out []Group, p *Plan, layers int) []Group {
	cut := make([]bool, layers+1) // a span of some stage begins there
	for _, r := range p.Replicas {
		for _, s := range r.Stages {
			for _, span := range s.Spans {
				cut[span.First] = true
			}
		}
	}
	holder := make([]*Stage, len(p.Replicas))
	for first := 0; first < layers; {
		end := first + 1
		for end < layers && !cut[end] {
			end++
		}
		slicesOf := 1
		for i := range p.Replicas {
			holder[i] = p.Replicas[i].holder(first)
			slicesOf = lcm(slicesOf, len(holder[i].Devices))
		}
		for slice := range slicesOf {
			g := Group{Kind: DataGroup, Span: Span{first, end - first}, Slice: slice, Slices: slicesOf}
			for _, s := range holder {
				g.Devices = append(g.Devices, s.Devices[slice*len(s.Devices)/slicesOf])
			}
			out = append(out, g)
		}
		first = end
	}
	return out
}

// holder returns the stage of r that has a layer.
func (r *Replica) holder(layer int) *Stage {
	for i := range r.Stages {
		for _, span := range r.Stages[i].Spans {
			if span.First <= layer && layer < span.End() {
				return &r.Stages[i]
			}
		}
	}
	return nil
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
