package main

// spot is where a task went.
type spot struct {
	node    int   // the trace's number; -1: refused
	devices []int // numbers on the node
}

// outcome is what a run of arrivals came to.
type outcome struct {
	at      [len(marks)]float64 // percent of all devices' milli allocated when so much demand had arrived
	refused int
	placed  []spot  // of each arrival, when asked for
	nanos   []int64 // of each decision, when asked for
}

// tally follows a run and fills an outcome.
type tally struct {
	outcome
	capacity, arrived, allocated int64
	next                         int // index into marks
}

// add counts a task. A mark is reached half a device early, as the published
// evaluation does, which rounds.
func (t *tally) add(p *shape, placed bool) {
	t.arrived += p.demand()
	if placed {
		t.allocated += p.demand()
	} else {
		t.refused++
	}
	for t.next < len(marks) && t.arrived*100 >= t.capacity*marks[t.next]-500*100 {
		t.at[t.next] = 100 * float64(t.allocated) / float64(t.capacity)
		t.next++
	}
}

// replay lets tasks arrive in order (indices into l.tasks). Nothing leaves; what
// does not fit is refused for good. Nodes are tried in the order of nodes.
func replay(t *trace, l *list, r rule, order, nodes []int, record bool, clock func() int64) outcome {
	c := newCluster(t, l, nodes)
	r.begin(c, l)
	out := tally{capacity: t.capacity}
	rec := newRecorder(t, record)
	for _, i := range order {
		start := int64(0)
		if clock != nil {
			start = clock()
		}
		at, was := c.place(r, l.shape[i])
		if clock != nil {
			out.nanos = append(out.nanos, clock()-start)
		}
		p := l.shapeOf(i)
		out.add(p, at >= 0)
		if !record {
			continue
		}
		if at < 0 {
			out.placed = append(out.placed, spot{node: -1})
			continue
		}
		out.placed = append(out.placed, rec.place(nodes[at], p, was.free[was.costs[l.shape[i]].option]))
	}
	return out.outcome
}

// recorder numbers the devices that placements take.
type recorder struct{ free [][]int64 }

func newRecorder(t *trace, on bool) *recorder {
	if !on {
		return nil
	}
	r := &recorder{free: make([][]int64, len(t.nodes))}
	for x, n := range t.nodes {
		r.free[x] = make([]int64, n.devices)
		for d := range r.free[x] {
			r.free[x][d] = milli
		}
	}
	return r
}

// place takes the devices with the lowest numbers: untouched ones for whole
// devices, one with exactly free milli left for a share.
func (r *recorder) place(x int, p *shape, free int64) spot {
	out := spot{node: x}
	for d := range r.free[x] {
		if len(out.devices) == p.devices {
			break
		}
		if f := r.free[x][d]; f == free && p.milli < milli || f == milli && p.milli == milli {
			r.free[x][d] -= p.milli
			out.devices = append(out.devices, d)
		}
	}
	return out
}
