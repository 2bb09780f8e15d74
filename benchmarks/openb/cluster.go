package main

import "math"

// marks are the percents of the cluster's devices at which the demand that has
// arrived is looked at.
var marks = [...]int64{90, 95, 100, 110, 130}

// state is what a node may be in: equal nodes share one. Rules see nothing else of
// a node.
type state struct {
	room
	whole int // devices nobody has any part of
	costs []costed
	memo  int64 // whatever a rule keeps of the state
	known int   // the epoch in which memo was made; -1: never
}

// room is what is free on a node.
type room struct {
	cpu     int64
	free    [maxDevices]int64 // milli, most first
	devices int
	model   int
}

// costed is the best way to place a shape on a state.
type costed struct {
	cost   int64
	option int // position in free of the device that a share takes
	epoch  int // in which it was found; -1: never
}

// never is the cost of what does not fit.
const never = math.MaxInt64

// rule says where a task goes: where the cost is least, among equals on the node
// that comes first, there on the device with least free.
type rule interface {
	// begin prepares for a run over l.
	begin(c *cluster, l *list)
	// arrive tells that a task comes, before cost is asked about it. It returns
	// the epoch: costs of another one are not asked for again.
	arrive(shape int) int
	// cost is asked for placements that fit only. from and to are the node before
	// and after; device is the position in from.free of the device a share takes.
	cost(from, to *state, shape, device int) int64
	// grain is how many low bits of costs do not tell nodes apart.
	grain() uint
}

// cluster keeps the states that nodes are in.
type cluster struct {
	trace  *trace
	list   *list
	states map[room]*state
	at     []*state // of each node, in the order in which they are tried
	order  []int    // the trace's number of each node in at
}

// newCluster returns the empty cluster with its nodes in the given order.
func newCluster(t *trace, l *list, order []int) *cluster {
	c := &cluster{trace: t, list: l, states: map[room]*state{}, order: order, at: make([]*state, len(order))}
	for i, x := range order {
		n := &t.nodes[x]
		r := room{cpu: n.cpu, devices: n.devices, model: n.model}
		for d := range n.devices {
			r.free[d] = milli
		}
		c.at[i] = c.state(r)
	}
	return c
}

func (c *cluster) state(r room) *state {
	s := c.states[r]
	if s == nil {
		s = &state{room: r, costs: make([]costed, len(c.list.shapes)), known: -1}
		for i := range s.costs {
			s.costs[i].epoch = -1
		}
		for d := 0; d < r.devices && r.free[d] == milli; d++ {
			s.whole++
		}
		c.states[r] = s
	}
	return s
}

// fits reports whether a task of shape p can be placed on a node in s.
func (s *state) fits(p *shape) bool {
	if s.cpu < p.cpu || p.models>>s.model&1 == 0 {
		return false
	}
	return p.devices == 0 || p.devices <= s.devices && s.free[p.devices-1] >= p.milli
}

// after returns the state that a node in s comes to by a task of shape p; a share
// takes the device at position device.
func (c *cluster) after(s *state, p *shape, device int) *state {
	r := s.room
	r.cpu -= p.cpu
	switch {
	case p.devices == 1:
		left := r.free[device] - p.milli
		for ; device+1 < r.devices && r.free[device+1] > left; device++ {
			r.free[device] = r.free[device+1]
		}
		r.free[device] = left
	case p.devices > 1:
		copy(r.free[:], s.free[p.devices:s.devices])
		clear(r.free[s.devices-p.devices : s.devices])
	}
	return c.state(r)
}

// best finds the cheapest way to place a shape on a state that it fits.
func (c *cluster) best(r rule, s *state, shape int) (cost int64, option int) {
	p := &c.list.shapes[shape]
	if p.devices != 1 || p.milli == milli {
		return r.cost(s, c.after(s, p, 0), shape, 0) >> r.grain(), 0
	}
	cost = never
	for d := s.devices - 1; d >= 0; d-- {
		if s.free[d] < p.milli || d > 0 && s.free[d-1] == s.free[d] {
			continue
		}
		if v := r.cost(s, c.after(s, p, d), shape, d); v < cost {
			cost, option = v, d
		}
	}
	return cost >> r.grain(), option
}

// place puts a task of a shape where r wants it and returns the position of the
// node in c.at and the state that it left; -1 when the task fits nowhere.
func (c *cluster) place(r rule, shape int) (at int, was *state) {
	epoch := r.arrive(shape)
	p := &c.list.shapes[shape]
	least, at := int64(never), -1
	for i, s := range c.at {
		k := &s.costs[shape]
		if k.epoch != epoch {
			*k = costed{cost: never, epoch: epoch}
			if s.fits(p) {
				k.cost, k.option = c.best(r, s, shape)
			}
		}
		if k.cost < least {
			least, at = k.cost, i
		}
	}
	if at < 0 {
		return -1, nil
	}
	was = c.at[at]
	c.at[at] = c.after(was, p, was.costs[shape].option)
	return at, was
}
