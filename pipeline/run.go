package pipeline

import (
	"strconv"
	"time"
)

// Costs are what each op and each transfer takes; none may be negative. Virtual stage v is chunk*Stages+stage. Forward,
// Backward and Weight have either one entry for each virtual stage, at v, where all micro-batches cost the same, or one for
// each micro-batch as well, at v*Micros+micro. Entries of ops that are in no order are not looked at.
type Costs struct {
	Forward  []time.Duration // the forward pass
	Backward []time.Duration // the gradient of the input, or the whole backward pass where Weight is nil
	// Weight is the gradient of the weights. A schedule that splits it off must have it. In one that does not, it is added to
	// Backward, so that the same Costs do for every schedule.
	Weight []time.Duration
	Send   []time.Duration // the transfer of an activation from v to the next virtual stage, at v; nil means 0
	Return []time.Duration // the transfer of a gradient from the virtual stage after v to v, at v; nil means 0
	Across time.Duration   // what a transfer between two replicas takes on top of that
}

// Uniform returns costs that are the same for all virtual stages and micro-batches, without transfers: what is given is for one op,
// so with several chunks a stage it is that of one chunk. Weight 0 in a schedule that
// does not split weights off means that backward is the whole of it.
func (l *Line) Uniform(forward, backward, weight time.Duration) Costs {
	n := len(l.next)
	c := Costs{Forward: fill(n, forward), Backward: fill(n, backward)}
	if weight != 0 || l.splits {
		c.Weight = fill(n, weight)
	}
	return c
}

func fill(n int, d time.Duration) []time.Duration {
	s := make([]time.Duration, n)
	for i := range s {
		s[i] = d
	}
	return s
}

// Result is one evaluation of a Line. The zero Result is ready for Run, which reuses its memory, whichever Line it came from.
type Result struct {
	Makespan time.Duration   // from the start of the first op to the end of the last one
	Busy     []time.Duration // by stage: time in ops; the rest of Makespan is idle. Run reuses it.

	line *Line
	hops []time.Duration // by transfer
	took []time.Duration // by op
	ends []time.Duration // by op; 0 at origins
	back buffers         // the buffers that the next Run fills
	late []time.Duration // by op: when it may end at the latest; see tails
	tail bool            // late is of this run
	slow slowed
}

// buffers are what a Run writes before it knows that it will succeed.
type buffers struct{ hops, took, ends, busy []time.Duration }

// Run evaluates l at the costs c into r: each op starts as soon as its stage is free and what it needs is there. One pass,
// linear in the ops, and no allocation once r has been used for a Line as large. After an error r is as it was.
func (l *Line) Run(c *Costs, r *Result) error {
	if c == nil || r == nil {
		return invalid("run", "Costs", "nil", "there must be costs and a result")
	}
	if err := l.shape(c); err != nil {
		return err
	}
	b := &r.back
	b.fit(l)
	l.transfers(c, b.hops)
	l.gather(c, b)
	if evaluate(l.nodes, b.took, b.ends, b.hops) < 0 {
		return l.blame(c)
	}
	r.line, r.tail, r.slow.ready = l, false, false
	r.hops, b.hops = b.hops, r.hops
	r.took, b.took = b.took, r.took
	r.ends, b.ends = b.ends, r.ends
	r.Busy, b.busy = b.busy, r.Busy
	r.Makespan = 0
	for row := range l.rows {
		r.Makespan = max(r.Makespan, r.ends[l.base[row+1]-1])
	}
	return nil
}

// fit makes the buffers as large as l needs.
func (b *buffers) fit(l *Line) {
	b.hops = resize(b.hops, 1+len(l.next)*hopKinds)
	b.took = resize(b.took, len(l.ops))
	b.ends = resize(b.ends, len(l.ops))
	b.busy = resize(b.busy, len(l.rows))
}

func resize(s []time.Duration, n int) []time.Duration {
	if cap(s) < n {
		return make([]time.Duration, n)
	}
	return s[:n]
}

// shape checks the lengths of c.
func (l *Line) shape(c *Costs) error {
	n := len(l.next)
	one := func(field string, got int) error {
		return invalid("run", field, strconv.Itoa(got)+" entries", "must have one for each virtual stage, "+strconv.Itoa(n)+", or micro-batch as well, "+
			strconv.Itoa(n*l.cfg.Micros))
	}
	fits := func(got int) bool { return got == n || got == n*l.cfg.Micros }
	switch {
	case !fits(len(c.Forward)):
		return one("Forward", len(c.Forward))
	case !fits(len(c.Backward)):
		return one("Backward", len(c.Backward))
	case !fits(len(c.Weight)) && (l.splits || c.Weight != nil):
		return one("Weight", len(c.Weight))
	case c.Send != nil && len(c.Send) != n && len(c.Send) != n-1:
		return invalid("run", "Send", strconv.Itoa(len(c.Send))+" entries", "must have one for each virtual stage but the last")
	case c.Return != nil && len(c.Return) != n && len(c.Return) != n-1:
		return invalid("run", "Return", strconv.Itoa(len(c.Return))+" entries", "must have one for each virtual stage but the last")
	}
	return nil
}

// transfers writes what each transfer takes.
func (l *Line) transfers(c *Costs, hops []time.Duration) {
	clear(hops)
	for v, d := range c.Send {
		hops[hopOf(v, hopSend)] = d
	}
	for v, d := range c.Return {
		hops[hopOf(v, hopReturn)] = d
	}
	for v := range l.next {
		for k := hopSend; k <= hopReturn; k++ {
			d := hops[hopOf(v, k)]
			sum := d + c.Across
			if d < 0 || c.Across < 0 { // a negative part must not hide in the sum
				sum = -1
			}
			hops[hopOf(v, k+hopSendAcross)] = sum
		}
	}
}

// gather writes what each op takes and the sum by row.
func (l *Line) gather(c *Costs, b *buffers) {
	costs := [4][]time.Duration{Forward: c.Forward, Backward: c.Backward, Weight: c.Weight}
	var where [4][]int32
	for k := range costs {
		where[k] = l.virt
		if len(costs[k]) != len(l.next) {
			where[k] = l.full
		}
	}
	for row, ops := range l.rows {
		base := l.base[row]
		b.took[base], b.ends[base] = 0, 0
		took := b.took[base+1:][:len(ops)]
		for i := range ops {
			k := ops[i].Kind & 3
			took[i] = costs[k][where[k][int(base)+1+i]]
		}
	}
	if c.Weight != nil {
		for _, at := range l.fused {
			d, w := b.took[at], c.Weight[where[Weight][at]]
			b.took[at] = d + w
			if d < 0 || w < 0 {
				b.took[at] = -1
			}
		}
	}
	for row, ops := range l.rows {
		sum := time.Duration(0)
		for _, d := range b.took[l.base[row]+1:][:len(ops)] {
			sum += d
		}
		b.busy[row] = sum
	}
}

// evaluate is the critical path: it fills ends, whose origins are set. What it returns is negative if a cost or transfer
// is, or if a sum passed the range of int64; then ends is worthless.
func evaluate(nodes []node, took, ends, hops []time.Duration) time.Duration {
	signs := time.Duration(0)
	for i := range nodes {
		n := &nodes[i]
		free, there, d := ends[n.at-1], ends[n.dep], took[n.at]
		hop := hops[n.hop]
		there += hop
		signs |= hop | there | d
		free = max(free, there) + d
		signs |= free
		ends[n.at] = free
	}
	return signs
}

// blame says which cost made an evaluation fail.
func (l *Line) blame(c *Costs) error {
	named := []struct {
		field string
		costs []time.Duration
	}{
		{"Forward", c.Forward},
		{"Backward", c.Backward},
		{"Weight", c.Weight},
		{"Send", c.Send},
		{"Return", c.Return},
		{"Across", []time.Duration{c.Across}},
	}
	for _, n := range named {
		for i, d := range n.costs {
			if d < 0 {
				return invalid("run", n.field+"["+strconv.Itoa(i)+"]", d.String(), "must not be negative")
			}
		}
	}
	return invalid("run", "Costs", "", "their sum passes the range of a time.Duration")
}

// slot returns the index of the i-th op of a stage, if there is one.
func (r *Result) slot(stage, i int) (int32, bool) {
	if r.line == nil || stage < 0 || stage >= len(r.line.rows) || i < 0 || i >= len(r.line.rows[stage]) {
		return 0, false
	}
	return r.line.base[stage] + 1 + int32(i), true
}

// Start returns when the i-th op of the order of a stage starts, or 0 if there is none.
func (r *Result) Start(stage, i int) time.Duration {
	at, ok := r.slot(stage, i)
	if !ok {
		return 0
	}
	return r.ends[at] - r.took[at]
}

// End returns when the i-th op of the order of a stage ends, or 0 if there is none.
func (r *Result) End(stage, i int) time.Duration {
	at, ok := r.slot(stage, i)
	if !ok {
		return 0
	}
	return r.ends[at]
}

// Idle returns how long a stage is idle between the start of the iteration and its end, or 0 for a stage that there is not.
func (r *Result) Idle(stage int) time.Duration {
	if stage < 0 || stage >= len(r.Busy) {
		return 0
	}
	return r.Makespan - r.Busy[stage]
}
