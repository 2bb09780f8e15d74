package gang

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Forecast is what a waiting gang is promised, so that images and data can be
// fetched ahead. It may change with every Step.
type Forecast struct {
	Start   time.Time         `json:"start,omitzero"`    // Start is when it is expected to get its room; zero when no end is known of who is in it.
	Overdue bool              `json:"overdue,omitempty"` // Overdue says that who is in the way ran past its estimate, so that Start is only "any moment".
	Members []lockstep.Member `json:"members"`           // Members are where it would sit, in rank order, with its least members. They are the caller's.
	Spares  []lockstep.Member `json:"spares,omitempty"`  // Spares are where its spares would be.
}

// Nodes returns the nodes of f's members, each once, by lowest rank.
func (f *Forecast) Nodes() []lockstep.NodeID {
	var out []lockstep.NodeID
	seen := make(map[lockstep.NodeID]bool, len(f.Members))
	for i := range f.Members {
		if n := f.Members[i].Node; !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// Forecast returns when and where job is expected to start by its reservation;
// false when it has none. Reservations are those of the latest Step.
func (a *Admission) Forecast(job lockstep.JobID) (Forecast, bool) {
	for i := range a.res {
		r := &a.res[i]
		if r.job.id != job {
			continue
		}
		n := min(r.job.gang.MinMembers(), len(r.members))
		f := Forecast{Overdue: r.overdue, Members: slices.Clone(r.members[:n])}
		if n < len(r.members) {
			f.Spares = slices.Clone(r.members[n:])
		}
		if r.start != forever {
			f.Start = lockstep.FromNanos(max(r.start, a.now))
		}
		return f, true
	}
	return Forecast{}, false
}

// AppendIdle appends those of nodes that may be powered down until t, in their
// order, and returns dst: on which, as of the latest Step, nobody holds room, is still
// leaving it or has it set apart, no reservation begins before t or has no time,
// no window reaches before t, and which are not down. Jobs that wait without a
// reservation count for nothing. Cordon a node before powering it down. O(holders' members
// + reservations + windows + nodes).
func (a *Admission) AppendIdle(dst, nodes []lockstep.NodeID, until time.Time) []lockstep.NodeID {
	t, err := lockstep.Nanos(until)
	if err != nil {
		t = latest
	}
	used := make(map[lockstep.NodeID]bool)
	mark := func(members []lockstep.Member) {
		for i := range members {
			used[members[i].Node] = true
		}
	}
	for _, h := range a.ends {
		mark(h.plan.Members)
		mark(h.plan.Spares)
	}
	for _, h := range a.trials {
		mark(h.keeps.Members)
		mark(h.keeps.Spares)
	}
	for i := range a.res {
		if r := &a.res[i]; r.start == forever || r.start < t {
			mark(r.members)
		}
	}
	for i := range a.windows {
		if w := &a.windows[i]; w.from < t {
			for _, n := range w.Nodes {
				used[n] = true
			}
		}
	}
	for _, n := range nodes {
		i, closed := a.closedAt(n)
		if !used[n] && len(a.dirty[n]) == 0 && !(closed && a.closed[i].down) {
			dst = append(dst, n)
		}
	}
	return dst
}
