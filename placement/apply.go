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
	rec := s.newJob(len(p.Members))
	j := &s.jobs[rec]
	j.id, j.gang, j.port = p.Job, p.Gang, p.Port
	for i := range p.Members {
		m := &p.Members[i]
		x, err := s.seatFor(call, p, i)
		if err == nil {
			j.seats[i] = seat{slot: x, role: m.Role, devices: m.Devices}
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
	role, n := int32(-1), 0
	for i := range p.Members {
		m := &p.Members[i]
		if m.Role < max(role, 0) || int(m.Role) >= len(g.Roles) {
			return fault(lockstep.ErrInvalid, call, at("Plan.Members", i)+".Role", strconv.Itoa(int(m.Role)), "want a role of the gang, role by role")
		}
		if m.Role != role {
			role, n = m.Role, 0
		}
		o := &g.Roles[role]
		if n++; n > o.Limit() {
			return fault(lockstep.ErrInvalid, call, "Plan.Members", strconv.Itoa(n), "more members of role "+strconv.Itoa(int(role))+" than its limit")
		}
		if m.Devices.Len() != o.Demand.GPUs {
			return fault(lockstep.ErrInvalid, call, at("Plan.Members", i)+".Devices", strconv.Quote(m.Devices.String()), "want "+strconv.Itoa(o.Demand.GPUs)+" devices")
		}
		if o.Demand.DeviceShare() != lockstep.WholeGPU {
			return fault(lockstep.ErrInvalid, call, at("Gang.Roles", int(role))+".Demand.Share", o.Demand.Share.String(), "want whole devices")
		}
	}
	return nil
}

// seatFor returns the slot of member i, where there is room for it now.
func (s *State) seatFor(call string, p *lockstep.Plan, i int) (int32, error) {
	m := &p.Members[i]
	d := &p.Gang.Roles[m.Role].Demand
	x, ok := int32(-1), false
	if i < len(s.work.hint) {
		x = s.work.hint[i] // as the last Fit wrote it
		ok = int(x) < len(s.ids) && s.ids[x] == m.Node && m.Node != ""
	}
	if !ok {
		if x, ok = s.slotOf(m.Node); !ok {
			return 0, unknownNode(call, m.Node)
		}
	}
	c := &s.slots[x]
	if m.Devices&c.free == m.Devices && c.slots > 0 && c.holds(d) {
		return x, nil
	}
	if m.Devices&^c.all != 0 {
		return 0, fault(lockstep.ErrInvalid, call, at("Plan.Members", i)+".Devices", strconv.Quote(m.Devices.String()), "not devices of node "+string(m.Node))
	}
	return 0, fault(lockstep.ErrConflict, call, at("Plan.Members", i), string(m.Node), "no room there")
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
