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
// differences, by job and rank. It changes nothing: what to do about each is the
// host's to decide, with Adopt, Release or an end to the process. A job that was
// observed twice counts as its first entry. O(members·log members).
func (s *State) Reconcile(observed []Observed) []Drift {
	seen := make(map[lockstep.JobID]*Observed, len(observed))
	taken := make(map[lockstep.NodeID]lockstep.DeviceSet) // observed devices
	twice := make(map[lockstep.NodeID]lockstep.DeviceSet) // observed more than once
	for i := range observed {
		o := &observed[i]
		if _, ok := seen[o.Job]; ok {
			continue
		}
		seen[o.Job] = o
		for _, m := range o.Members {
			twice[m.Node] |= taken[m.Node] & m.Devices
			taken[m.Node] |= m.Devices
		}
	}
	var out []Drift
	for id, o := range seen { // in any order: sorted below
		rec, ok := s.byID[id]
		for rank := range o.Members {
			var want *seat
			if ok && rank < len(s.jobs[rec].seats) {
				want = &s.jobs[rec].seats[rank]
			}
			if d, differs := s.drift(want, &o.Members[rank], twice[o.Members[rank].Node]); differs {
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
		for rank := n; rank < len(j.seats); rank++ {
			out = append(out, Drift{Kind: DriftMissing, Job: id, Rank: rank, Want: s.memberOf(&j.seats[rank])})
		}
	}
	slices.SortFunc(out, func(a, b Drift) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank)) })
	return out
}

func (s *State) memberOf(t *seat) lockstep.Member {
	return lockstep.Member{Role: t.role, Node: s.nodeOf(t), Devices: t.devices}
}

// drift compares one member; want is nil where the state does not know it.
func (s *State) drift(want *seat, have *lockstep.Member, twice lockstep.DeviceSet) (Drift, bool) {
	var d Drift
	own := lockstep.DeviceSet(0)
	if want != nil {
		d.Want = s.memberOf(want)
		if d.Want == *have && have.Devices&twice == 0 {
			return d, false
		}
		if d.Want.Node == have.Node {
			own = want.devices
		}
	}
	if have.Node == "" {
		d.Kind = DriftMissing
		return d, want != nil
	}
	d.Have = *have
	x, ok := s.slotOf(have.Node)
	switch {
	case !ok || have.Devices&^(s.slots[x].free|own) != 0 || have.Devices&twice != 0:
		d.Kind = DriftConflict
	case want == nil:
		d.Kind = DriftExtra
	default:
		d.Kind = DriftMoved
	}
	return d, true
}
