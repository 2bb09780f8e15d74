package reconfig

// holding is what a unit has of the plan before: a slice of some layers.
type holding struct {
	spans  []Span
	degree int32 // 0 is nothing
	rank   int32
}

// hold notes what units have of a plan.
func (w *world) hold(prev *Plan) []holding {
	held := make([]holding, len(w.units))
	for _, r := range prev.Replicas {
		for _, s := range r.Stages {
			for i, id := range s.Devices {
				if u, ok := w.index[id]; ok && w.units[u].holds {
					held[u] = holding{s.Spans, int32(len(s.Devices)), int32(i)}
				}
			}
		}
	}
	return held
}

// has returns how many of layers a to b-1 the unit has.
func (h *holding) has(a, b int) int {
	n := 0
	for _, s := range h.spans {
		n += max(0, min(b, s.End())-max(a, s.First))
	}
	return n
}

// missing returns, in parts of which a whole layer has scale, what a unit lacks to be
// rank of degree for layers a to b-1.
func (h *holding) missing(rank, degree int32, a, b int, scale int64) int64 {
	need := int64(b-a) * scale / int64(degree)
	if h.degree == 0 {
		return need
	}
	k, o := int64(degree), int64(h.degree)
	lo := max(int64(rank)*o, int64(h.rank)*k)
	hi := min(int64(rank+1)*o, int64(h.rank+1)*k)
	if hi <= lo {
		return need
	}
	return need - int64(h.has(a, b))*scale*(hi-lo)/(k*o)
}

// moving returns what has to move to get to l, in bytes of parameters.
func (p *planner) moving(l *layout) int64 {
	if p.held == nil {
		return 0
	}
	sum := int64(0)
	for i, q := range l.pipes {
		d := p.layers(l, i)
		if d == nil {
			continue
		}
		virt := make([]int32, len(d)*p.w.chunks)
		p.w.virtual(d, virt)
		at := 0
		for v, n := range virt {
			g := q.groups[v%len(d)]
			for r, u := range g.devs {
				sum += p.held[u].missing(int32(r), int32(len(g.devs)), at, at+int(n), p.w.layerSize)
			}
			at += int(n)
		}
	}
	return sum
}
