package placement

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// query is a request in the terms of this package. Its slices are used again.
type query struct {
	gang     *lockstep.Gang
	spread   bool
	stop     int                    // the coarsest level that one domain of may hold the gang
	start    int                    // the finest that is tried
	min, max []int32                // members by role
	inner    []int                  // by role: level of inner groups, that of nodes where there are none
	order    []int32                // roles in packing order
	least    int                    // members at the least
	want     int                    // members at the most
	spares   []int32                // by role: members' room to keep beside, in whole inner groups
	spared   bool                   // there are any
	penalty  uint8                  // the bound on penalties that the views have
	speeds   []lockstep.ClassSpeed  // fastest first
	classes  []lockstep.DeviceClass // of a tier, for one role
}

// read checks a request and writes it as a query. Full validation of the gang
// runs where a cheap look finds something odd, and where its constraints are new.
func (s *State) read(call string, r *lockstep.Request, q *query) error {
	switch {
	case s.tree == nil:
		return zeroState(call)
	case r == nil || r.Gang == nil:
		return fault(lockstep.ErrInvalid, call, "Request.Gang", "nil", "must not be nil")
	}
	g := r.Gang
	if !plain(g) {
		if err := g.Validate(); err != nil {
			return err
		}
	}
	last := s.depth - 1
	q.gang, q.spread, q.stop, q.start = g, g.Strategy == lockstep.Spread, 0, last
	var err error
	if g.Required != "" {
		if q.stop, err = s.level(call, -1, "Required", g.Required); err != nil {
			return err
		}
	}
	if q.spread {
		q.start = q.stop
	}
	if g.Preferred != "" {
		if q.start, err = s.level(call, -1, "Preferred", g.Preferred); err != nil {
			return err
		}
		q.start = max(q.start, q.stop)
	}
	if s.tree.Slots() == 0 { // only the cluster has a domain
		q.stop, q.start = 0, 0
	}
	if err := s.checkAffinities(call, -1, &g.Constraints); err != nil {
		return err
	}
	if err := s.readSpeeds(call, r, q); err != nil {
		return err
	}
	return s.readRoles(call, r, q)
}

// readRoles reads what differs by role.
func (s *State) readRoles(call string, r *lockstep.Request, q *query) error {
	g := r.Gang
	n := len(g.Roles)
	for _, b := range [...]struct {
		field string
		list  []int
	}{{"Request.Min", r.Min}, {"Request.Max", r.Max}} {
		if b.list != nil && len(b.list) != n {
			return fault(lockstep.ErrInvalid, call, b.field, strconv.Itoa(len(b.list))+" entries", "want one for each of "+strconv.Itoa(n)+" roles")
		}
	}
	q.min, q.max, q.inner, q.order, q.want = q.min[:0], q.max[:0], q.inner[:0], q.order[:0], 0
	q.spares, q.spared = q.spares[:0], false
	q.least = 0
	for i := range g.Roles {
		o := &g.Roles[i]
		lo, hi := o.Min, o.Limit()
		if r.Max != nil {
			hi = r.Max[i]
			lo = min(lo, hi)
		}
		if r.Min != nil {
			lo = r.Min[i]
		}
		size := max(1, o.Inner.Size)
		if lo < 0 || lo > hi || hi > o.Limit() || lo%size != 0 || hi%size != 0 {
			field := "Request.Max"
			if r.Min != nil && (lo < 0 || lo > hi || lo%size != 0) {
				field = "Request.Min"
			}
			return fault(lockstep.ErrInvalid, call, at(field, i), strconv.Itoa(lo)+" to "+strconv.Itoa(hi),
				"want 0 <= Min <= Max <= "+strconv.Itoa(o.Limit())+" in whole inner groups")
		}
		inner := s.depth - 1
		if size > 1 && o.Inner.Level != "" {
			var err error
			if inner, err = s.level(call, i, "Inner.Level", o.Inner.Level); err != nil {
				return err
			}
		}
		if err := s.checkAffinities(call, i, &o.Constraints); err != nil {
			return err
		}
		q.min, q.max, q.inner = append(q.min, int32(lo)), append(q.max, int32(hi)), append(q.inner, inner)
		q.spares = append(q.spares, int32((o.Spares+size-1)/size*size))
		q.spared = q.spared || o.Spares > 0
		q.want += hi
		q.least += lo
		q.insert(int32(i))
	}
	if q.want == 0 {
		return fault(lockstep.ErrInvalid, call, "Request.Max", "0", "want at least one member")
	}
	return nil
}

// insert puts a role into the packing order: the greatest demand first, by
// devices, then CPU, memory and endpoints, ties by index.
func (q *query) insert(i int32) {
	q.order = append(q.order, i)
	for k := len(q.order) - 1; k > 0 && heavier(&q.gang.Roles[i].Demand, &q.gang.Roles[q.order[k-1]].Demand); k-- {
		q.order[k], q.order[k-1] = q.order[k-1], i
	}
}

func heavier(a, b *lockstep.Demand) bool {
	switch {
	case a.GPUs != b.GPUs:
		return a.GPUs > b.GPUs
	case a.CPU != b.CPU:
		return a.CPU > b.CPU
	case a.Memory != b.Memory:
		return a.Memory > b.Memory
	}
	return a.RDMA > b.RDMA
}

// level returns the number of a level that a role, or with -1 the gang, names.
func (s *State) level(call string, role int, field string, name lockstep.Level) (int, error) {
	if l, ok := s.tree.LevelIndex(name); ok {
		return l, nil
	}
	if role >= 0 {
		field = at("Roles", role) + "." + field
	}
	return 0, fault(lockstep.ErrUnknown, call, "Gang."+field, strconv.Quote(string(name)), "not a level of the tree")
}

func (s *State) checkAffinities(call string, role int, c *lockstep.Constraints) error {
	for i := range c.Affinity {
		if l := c.Affinity[i].Level; l != "" {
			if _, err := s.level(call, role, "Constraints.Affinity", l); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns the members of a role without whose room the request is refused: its
// least, or one group where no role has a least, with their spares.
func (q *query) need(role int32) int32 {
	n := q.min[role]
	if q.least == 0 {
		n = min(q.max[role], int32(max(1, q.gang.Roles[role].Inner.Size)))
	}
	if n > 0 {
		n += q.spares[role]
	}
	return n
}
