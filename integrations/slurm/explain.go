package slurm

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// explain notes why jobs that did not start now wait.
func (p *planner) explain() {
	like := make(map[string]lockstep.Reason)
	for _, r := range p.rows {
		if r.Planned > 0 || r.first == nil {
			continue
		}
		if st, ok := p.s.Status(r.first.gang.ID); r.Reason == "" {
			switch v := st.Gang.Verdict; {
			case !ok:
				r.Reason = ReasonTurn
			case v.Reason != "":
				r.Reason, r.Detail = v.Reason, v.String()
			default:
				r.Reason = p.likely(like, r.first.gang)
			}
		}
		if slices.Contains(p.c.cfg.Explain, r.ID) {
			if e, ok := p.s.Explain(r.first.gang.ID); ok {
				p.rename(&e)
				r.Explanation = &e
			}
		}
	}
	if p.ledger != nil {
		p.statements, _ = p.ledger.AppendStatements(nil, p.now) // no earlier than its latest event
	}
}

// rename puts Slurm's names of jobs for those of gangs. What is explained is the caller's own.
func (p *planner) rename(e *lockstep.Explanation) {
	slurm := func(id lockstep.JobID) lockstep.JobID {
		if known := p.entries[id]; known != nil {
			return lockstep.JobID(known.job.String())
		}
		return id
	}
	e.Job = slurm(e.Job)
	for i := range e.Changes {
		for k, id := range e.Changes[i].Jobs {
			e.Changes[i].Jobs[k] = slurm(id)
		}
	}
}

// likely says why a gang that no pass came to would not fit, by what nodes have when nobody uses them: each role by
// itself, which is less exact than a pass, and cheaper. O(roles × nodes) for each kind of gang.
func (p *planner) likely(known map[string]lockstep.Reason, g *lockstep.Gang) lockstep.Reason {
	key := fmt.Sprint(g.Roles)
	why, ok := known[key]
	if ok {
		return why
	}
	why = lockstep.ReasonBusy
	for i := range g.Roles {
		r := &g.Roles[i]
		all, suited, open := p.c.holds(r)
		switch {
		case all < r.Min:
			why = lockstep.ReasonCapacity
		case suited < r.Min:
			why = lockstep.ReasonConstraint
		case open < r.Min && why == lockstep.ReasonBusy:
			why = lockstep.ReasonUnhealthy
		}
		if suited < r.Min {
			break
		}
	}
	known[key] = why
	return why
}
