package gang

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Explain says why job waits, or where it stands. For a waiting job its notes go
// stage by stage: quota, placer (as the placer tells, if it is an Explainer), gang
// (nodes closed, refused or kept for windows; reservations) and preemption (who
// would make room, or why nobody does, also where Config.Preempt is off). Changes
// are what would let it in at its turn, beside the reservations of others as they
// are; those ahead of it may take what a change brings, or be promised it. Each was
// tried, but what only the placer can try: adding, moving, and opening nodes that it
// has closed. It changes nothing, and costs some tens of fits and one Victims.
func (a *Admission) Explain(job lockstep.JobID) (lockstep.Explanation, bool) {
	j := a.jobs[job]
	if j == nil {
		return lockstep.Explanation{}, false
	}
	e := lockstep.Explanation{Job: j.id, Verdict: a.verdictOf(j)}
	a.explainPhase(j, &e)
	return e, true
}

// verdictOf returns the verdict of j's last try or, where the latest pass left j
// out, that of the failure of its like that j was left out for.
func (a *Admission) verdictOf(j *job) lockstep.Verdict {
	if j.phase != Queued || j.seen == a.pass || j.notUntil > a.now {
		return j.verdict
	}
	reserved := lockstep.Verdict{Reason: lockstep.ReasonReserved, Want: j.gang.MaxMembers()}
	if a.p.strict {
		return reserved
	}
	var r lockstep.Request
	s := j.shape
	if v, ok := a.limit(j, &r, j.minima, j.limits); !ok {
		return v
	}
	switch {
	case s.affinity || len(j.refused) > 0 || len(a.windows) > 0:
	case s.failed >= a.walked:
		return s.verdict
	case s.delays.Count != 0 && s.delays.Epoch >= a.walked, a.cfg.Backfill == Strict && len(a.res) > 0:
		return reserved
	}
	return j.verdict
}

func (a *Admission) note(e *lockstep.Explanation, stage string, reason lockstep.Reason, detail string) {
	e.Notes = append(e.Notes, lockstep.Note{Stage: stage, Reason: reason, Detail: detail})
}

func (a *Admission) explainPhase(j *job, e *lockstep.Explanation) {
	const stage = "gang"
	switch j.phase {
	case Queued:
		a.explainWait(j, e)
	case Awaiting, Moving:
		for _, id := range j.waits {
			a.note(e, stage, lockstep.ReasonBusy, string(id)+" is still leaving its room")
		}
	case Held:
		a.note(e, stage, lockstep.Reason(Held), strconv.Itoa(j.missing)+" of "+strconv.Itoa(len(j.confirmed))+" members have not confirmed")
	case Leaving, Gone:
		a.note(e, stage, j.reason, "is "+string(j.phase))
	}
}

func (a *Admission) explainWait(j *job, e *lockstep.Explanation) {
	const stage = "gang"
	if j.reason != "" {
		a.note(e, stage, j.reason, "why it is queued again")
	}
	if j.notUntil > a.now {
		a.note(e, stage, ReasonBackoff, "not tried before "+lockstep.FromNanos(j.notUntil).Format(time.RFC3339))
	}
	for _, r := range j.refused {
		a.note(e, stage, ReasonRefused, "kept off "+string(r.Node)+" until "+lockstep.FromNanos(r.Until).Format(time.RFC3339))
	}
	if j.shape.impossible == a.opens && e.Verdict.Reason != lockstep.ReasonCapacity {
		a.note(e, stage, lockstep.ReasonCapacity, "would not fit if everybody left")
	}
	if j.notUntil > a.now {
		return
	}
	x := &inquiry{a: a, j: j, e: e}
	x.quota()
	x.placer()
	x.nodes()
	x.reservations()
	x.preemption()
	x.changes()
}
