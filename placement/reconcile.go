package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Observed is what a host sees of one job.
type Observed struct {
	Job     lockstep.JobID    `json:"job"`     // Job is its name.
	Members []lockstep.Member `json:"members"` // Members are by rank; one with an empty Node is not there.
}

// DriftKind says how what is differs from what should be.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing  DriftKind = "missing"  // DriftMissing: the state holds room for a member that was not observed.
	DriftExtra    DriftKind = "extra"    // DriftExtra: a member was observed that the state does not know, on room that is free.
	DriftMoved    DriftKind = "moved"    // DriftMoved: a member was observed on another node or other devices, which are free.
	DriftConflict DriftKind = "conflict" // DriftConflict: as extra or moved, on room that is held by another member or does not exist.
)

// Drift is one member that is not where the state has it.
type Drift struct {
	Kind DriftKind       `json:"kind"`          // Kind says how it differs.
	Job  lockstep.JobID  `json:"job"`           // Job is whose member it is.
	Rank int             `json:"rank"`          // Rank is its number.
	Want lockstep.Member `json:"want,omitzero"` // Want is where the state has it; zero where it does not know it.
	Have lockstep.Member `json:"have,omitzero"` // Have is where it was observed; zero where it was not.
}

// Reconcile compares the state with what was observed and returns the
// differences, by job and rank; spares are not looked for. It changes nothing: what to do about each is the
// host's to decide, with Adopt, Release or an end to the process. A job that was
// observed twice counts as its first entry. O(members·log members).
func (s *State) Reconcile(observed []Observed) []Drift {
	seen := make(map[lockstep.JobID]*Observed, len(observed))
	claims := make(claims)
	for i := range observed {
		o := &observed[i]
		if _, ok := seen[o.Job]; ok {
			continue
		}
		seen[o.Job] = o
		for k := range o.Members {
			s.claim(claims, &o.Members[k], s.demandOf(o.Job, o.Members[k].Role))
		}
	}
	var out []Drift
	for id, o := range seen { // in any order: sorted below
		rec, ok := s.byID[id]
		for rank := range o.Members {
			m := &o.Members[rank]
			at := sighting{have: m, takes: s.demandOf(id, m.Role), clash: claims.clash(m)}
			if ok && rank < int(s.jobs[rec].ranks) {
				at.want = &s.jobs[rec].seats[rank]
				at.took = &s.jobs[rec].gang.Roles[at.want.role].Demand
			}
			if d, differs := s.drift(&at); differs {
				d.Job, d.Rank = id, rank
				out = append(out, d)
			}
		}
	}
	for id, rec := range s.byID { // in any order: sorted below
		n := 0
		if o := seen[id]; o != nil {
			n = len(o.Members)
		}
		j := &s.jobs[rec]
		for rank := n; rank < int(j.ranks); rank++ {
			out = append(out, Drift{Kind: DriftMissing, Job: id, Rank: rank, Want: s.memberOf(&j.seats[rank])})
		}
	}
	slices.SortFunc(out, func(a, b Drift) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank)) })
	return out
}

func (s *State) memberOf(t *seat) lockstep.Member {
	return lockstep.Member{Role: int32(t.role), Node: s.nodeOf(t), Devices: t.devices, Start: int32(t.start)}
}

// demandOf returns what a member of a job takes, as far as the state knows; else that
// is whole devices.
func (s *State) demandOf(job lockstep.JobID, role int32) *lockstep.Demand {
	if rec, ok := s.byID[job]; ok && role >= 0 && int(role) < len(s.jobs[rec].gang.Roles) {
		return &s.jobs[rec].gang.Roles[role].Demand
	}
	return &lockstep.Demand{}
}

// claims are what observed members have of devices together.
type claims map[lockstep.NodeID]*[lockstep.MaxDevicesPerNode]claimed

type claimed struct {
	portion
	clash bool // more than the device has
}

// claim adds an observed member.
func (s *State) claim(all claims, m *lockstep.Member, d *lockstep.Demand) {
	if m.Devices == 0 {
		return
	}
	on := all[m.Node]
	if on == nil {
		on = new([lockstep.MaxDevicesPerNode]claimed)
		all[m.Node] = on
	}
	x, ok := s.slotOf(m.Node)
	for i := range m.Devices.All {
		o := &on[i]
		switch {
		case !ok || modeOf(d) == takesWhole:
			o.clash = o.clash || o.milli > 0 || o.held != 0
			o.milli = int16(lockstep.WholeGPU)
		case modeOf(d) == takesShare:
			o.milli = min(o.milli, 1000) + int16(d.Share) // no further, lest it turn over
			o.memory = addUp(o.memory, int64(d.GPUMemory))
			o.clash = o.clash || o.held != 0 || o.milli > 1000 || d.GPUMemory > 0 && o.memory > s.memoryOf(x)
		default:
			after, fits := s.slice(&s.slots[x], o.held, int(seatOf(m, x, d).start), d)
			o.clash = o.clash || o.milli > 0 || !fits
			o.held = after
		}
	}
}

// clash reports whether more was observed on a member's devices than they have.
func (c claims) clash(m *lockstep.Member) bool {
	on := c[m.Node]
	for i := range m.Devices.All {
		if on[i].clash {
			return true
		}
	}
	return false
}

// sighting is one observed member beside what the state has of it.
type sighting struct {
	want  *seat            // nil where the state does not know it
	took  *lockstep.Demand // of want
	have  *lockstep.Member
	takes *lockstep.Demand
	clash bool // more was observed on its devices than they have
}

// drift compares one member.
func (s *State) drift(at *sighting) (Drift, bool) {
	var d Drift
	if at.want != nil {
		d.Want = s.memberOf(at.want)
		if d.Want == *at.have && !at.clash {
			return d, false
		}
	}
	if at.have.Node == "" {
		d.Kind = DriftMissing
		return d, at.want != nil
	}
	d.Have = *at.have
	switch {
	case at.clash || !s.couldSit(at):
		d.Kind = DriftConflict
	case at.want == nil:
		d.Kind = DriftExtra
	default:
		d.Kind = DriftMoved
	}
	return d, true
}

// couldSit reports whether the devices of a member that was observed are free for it,
// or its own.
func (s *State) couldSit(at *sighting) bool {
	x, ok := s.slotOf(at.have.Node)
	if !ok {
		return false
	}
	c := s.slots[x]
	s.ownBlock(&c)
	if at.want != nil && at.want.slot == x {
		s.give(&c, at.want, at.took)
	}
	t := seatOf(at.have, x, at.takes)
	ok = s.accepts(x, &c, &t, at.takes)
	s.dropBlock(&c)
	return ok
}
