package placement

import "github.com/lockstep-gpu/lockstep"

// holdSpares chooses the room that is kept beside the picks, which sit in domain d of
// a level: on nodes without members of the gang where there are such, in the finest
// domain around d that has room, out to the required level. It reports whether there
// is enough, and leaves the state as it was.
func (s *State) holdSpares(q *query, level int, d int32) bool {
	w := &s.work
	n := len(w.picks)
	w.spares = part{int32(n), int32(n)}
	if !q.spared {
		return true
	}
	base := len(w.saved)
	for i := range n {
		s.reserve(&w.picks[i], &q.gang.Roles[w.picks[i].role].Demand)
	}
	ok := true
	first, _ := s.tree.Range(level, d)
	for _, role := range q.order {
		if w.counts[role] == 0 {
			continue
		}
		rest := q.spares[role]
		s.avoid(n, true)
		for l := level; l >= q.stop && rest > 0; l-- {
			rest = s.spareIn(q, role, l, s.tree.DomainOf(l, first), rest)
		}
		s.avoid(n, false)
		if ok = s.spareIn(q, role, q.stop, s.tree.DomainOf(q.stop, first), rest) == 0; !ok {
			break
		}
	}
	s.restore(base)
	for _, v := range w.views {
		s.sync(v)
	}
	w.spares.to = int32(len(w.picks))
	return ok
}

// avoid keeps further members off the nodes of the first n picks, which are reserved.
func (s *State) avoid(n int, on bool) {
	for _, t := range s.work.picks[:n] {
		c := &s.slots[t.slot]
		if on {
			c.flags |= excluded
		} else {
			c.flags &^= excluded
		}
		s.push(t.slot)
	}
}

// spareIn reserves as many spares of a role in a domain as there is room for, in whole
// inner groups, and returns how many are missing.
func (s *State) spareIn(q *query, role int32, level int, d, rest int32) int32 {
	w := &s.work
	v := w.views[role]
	s.sync(v)
	unit := v.unit(level)
	n := min(rest, s.unitsOf(v, level, d)*unit) / v.kind.size * v.kind.size
	if n == 0 {
		return rest
	}
	from := len(w.picks)
	s.fill(v, role, level, d, n/unit, false)
	for k := from; k < len(w.picks); k++ {
		s.reserve(&w.picks[k], &q.gang.Roles[role].Demand)
	}
	return rest - n
}

// emitSpares writes the room that is kept into out, role by role.
func (s *State) emitSpares(out *lockstep.Plan) {
	w := &s.work
	spares := w.picks[w.spares.from:w.spares.to]
	for role := range out.Gang.Roles {
		for i := range spares {
			if t := &spares[i]; int(t.role) == role {
				out.Spares = append(out.Spares, lockstep.Member{Role: int32(t.role), Node: s.ids[t.slot], Devices: t.devices, Start: int32(t.start)})
			}
		}
	}
}
