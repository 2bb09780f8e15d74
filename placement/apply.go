package placement

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Apply gives a plan's devices to its gang, all or none. The plan must come
// from the present version, else it is refused with lockstep.ErrStale; a job
// that holds room already is ErrDuplicate, a node that the tree lacks
// ErrUnknown, a plan that no Fit could have made (roles, counts, port, devices that
// are not the node's or not as many as the demand) ErrInvalid, and room that is
// not free, or taken twice in the plan, ErrConflict. Whether levels, groups and
// constraints hold is not looked at again.
//
// The gang is kept until the job is released; the plan is not. O(members), and the
// nodes of the domains where an affinity that is indexed comes to be met, or ceases.
func (s *State) Apply(p *lockstep.Plan) error {
	if p != nil && p.Version != s.version {
		return fault(lockstep.ErrStale, "apply", "Plan.Version", strconv.FormatUint(uint64(p.Version), 10),
			"the state is at "+strconv.FormatUint(uint64(s.version), 10))
	}
	return s.admit("apply", p)
}

// Adopt is Apply for what already runs: it takes a plan of any version.
func (s *State) Adopt(p *lockstep.Plan) error { return s.admit("adopt", p) }

func (s *State) admit(call string, p *lockstep.Plan) error {
	if err := s.checkPlan(call, p); err != nil {
		return err
	}
	rec := s.newJob(len(p.Members) + len(p.Spares))
	j := &s.jobs[rec]
	j.id, j.gang, j.port, j.ranks = p.Job, p.Gang, p.Port, int32(len(p.Members))
	for i := range j.seats {
		err := s.seatFor(call, p, i, &j.seats[i])
		if err == nil {
			s.occupy(rec, int32(i))
			continue
		}
		for i--; i >= 0; i-- {
			s.vacate(rec, int32(i))
		}
		s.freeJob(rec)
		return err
	}
	s.byID[j.id] = rec
	s.countTerms(j, 1)
	s.log(entry{kind: tookJob, index: rec})
	s.advance()
	return nil
}

// checkPlan checks a plan by itself, and that its job holds nothing.
func (s *State) checkPlan(call string, p *lockstep.Plan) error {
	if p == nil || p.Gang == nil || len(p.Members) == 0 {
		return fault(lockstep.ErrInvalid, call, "Plan", "", "want a gang and at least one member")
	}
	g := p.Gang
	if p.Job != g.ID {
		return fault(lockstep.ErrInvalid, call, "Plan.Job", strconv.Quote(string(p.Job)), "not the gang's ID")
	}
	if p.Port < 0 || p.Port > 65535 {
		return fault(lockstep.ErrInvalid, call, "Plan.Port", strconv.Itoa(p.Port), "want 0 to 65535")
	}
	if _, ok := s.byID[p.Job]; ok {
		return fault(lockstep.ErrDuplicate, call, "Plan.Job", strconv.Quote(string(p.Job)), "holds room already")
	}
	if !plain(g) {
		if err := g.Validate(); err != nil {
			return err
		}
	}
	if err := checkMembers(call, "Plan.Members", g, p.Members, (*lockstep.Role).Limit); err != nil {
		return err
	}
	return checkMembers(call, "Plan.Spares", g, p.Spares, spareLimit)
}

// spareLimit returns how many spares of a role there may be: whole inner groups.
func spareLimit(r *lockstep.Role) int {
	size := max(1, r.Inner.Size)
	return (r.Spares + size - 1) / size * size
}

// checkMembers checks members, or spares, of which each role may have so many.
func checkMembers(call, field string, g *lockstep.Gang, list []lockstep.Member, limit func(*lockstep.Role) int) error {
	role, n, most := int32(-1), 0, 0
	for i := range list {
		m := &list[i]
		if m.Role < max(role, 0) || int(m.Role) >= len(g.Roles) {
			return fault(lockstep.ErrInvalid, call, at(field, i)+".Role", strconv.Itoa(int(m.Role)), "want a role of the gang, role by role")
		}
		if m.Role != role {
			role, n, most = m.Role, 0, limit(&g.Roles[m.Role])
		}
		o := &g.Roles[role]
		if n++; n > most {
			return fault(lockstep.ErrInvalid, call, field, strconv.Itoa(n), "more of role "+strconv.Itoa(int(role))+" than its limit")
		}
		if m.Devices.Len() != o.Demand.GPUs {
			return fault(lockstep.ErrInvalid, call, at(field, i)+".Devices", strconv.Quote(m.Devices.String()), "want "+strconv.Itoa(o.Demand.GPUs)+" devices")
		}
		if m.Start != 0 && (o.Demand.Profile == "" || m.Start < 0) {
			return fault(lockstep.ErrInvalid, call, at(field, i)+".Start", strconv.Itoa(int(m.Start)), "want 0, or where a MIG instance may start")
		}
	}
	return nil
}

// seatFor writes the seat of member i, or of the spare that follows the members as the
// i-th, into t, where there is room for it now.
func (s *State) seatFor(call string, p *lockstep.Plan, i int, t *seat) error {
	field, k, list := "Plan.Members", i, p.Members
	if i >= len(list) {
		field, k, list = "Plan.Spares", i-len(list), p.Spares
	}
	m := &list[k]
	d := &p.Gang.Roles[m.Role].Demand
	x, ok := int32(-1), false
	if i < len(s.work.hint) {
		x = s.work.hint[i] // as the last Fit wrote it
		ok = int(x) < len(s.ids) && s.ids[x] == m.Node && m.Node != ""
	}
	if !ok {
		if x, ok = s.slotOf(m.Node); !ok {
			return unknownNode(call, m.Node)
		}
	}
	c := &s.slots[x]
	*t = seat{slot: x, role: int16(m.Role), devices: m.Devices}
	if c.slots > 0 && c.holds(d) {
		if simple(d) && c.mig == 0 && m.Devices&c.free == m.Devices {
			return nil
		}
		if *t = seatOf(m, x, d); s.accepts(x, c, t, d) {
			return nil
		}
	}
	if m.Devices&^c.all != 0 {
		return fault(lockstep.ErrInvalid, call, at(field, k)+".Devices", strconv.Quote(m.Devices.String()), "not devices of node "+string(m.Node))
	}
	return fault(lockstep.ErrConflict, call, at(field, k), string(m.Node), "no room there")
}

// holds reports whether c has what d counts, devices and slots apart.
func (c *slot) holds(d *lockstep.Demand) bool {
	return (d.CPU == 0 || int64(d.CPU) <= c.cpu) && (d.Memory == 0 || int64(d.Memory) <= c.memory) &&
		(d.RDMA == 0 || int32(d.RDMA) <= c.rdma)
}

// Release gives back what a job holds. A job that holds nothing is
// lockstep.ErrUnknown. It costs what Apply does.
func (s *State) Release(id lockstep.JobID) error {
	rec, ok := s.byID[id]
	if !ok {
		return fault(lockstep.ErrUnknown, "release", "job", strconv.Quote(string(id)), "holds nothing")
	}
	s.unseat(rec)
	s.log(entry{kind: gaveJob, index: rec})
	s.advance()
	return nil
}
