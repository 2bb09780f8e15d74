package scheduler

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
)

// job is what the composition itself knows of a job: what the policy was told.
type job struct {
	gang  *lockstep.Gang
	since int64             // when it was submitted
	on    bool              // it holds devices
	held  lockstep.MilliGPU // what it is charged for meanwhile
	gone  bool              // it has left
	retry bool              // it failed, and lifecycle will have it tried again

	plan, shown *lockstep.Plan // the plan of the latest action, and what the host has of it
}

// show returns plan as it goes to the host: without the version of the state
// that it was made from, which is over.
func (j *job) show(plan *lockstep.Plan) *lockstep.Plan {
	if j.plan != plan {
		p := *plan
		p.Version = 0
		j.plan, j.shown = plan, &p
	}
	return j.shown
}

// let records the outcome of a decision in the lease table.
func (s *Scheduler) let(a *lockstep.Action) error {
	l, held := s.leases.Get(a.Job)
	var err error
	switch a.Kind {
	case lockstep.ActionStart:
		c := &a.Plan.Gang.Capabilities
		_, err = s.leases.Grant(a.Time, a.Job, max(planGPUs(a.Plan), 1), s.term(c.Save+c.Restore))
	case lockstep.ActionExtend:
		if held && !l.Boundary.After(a.Time) {
			_, err = s.leases.Extend(a.Time, a.Job)
		}
	case lockstep.ActionEvict, lockstep.ActionMove:
		s.overNoMore(a.Job)
		if held && l.State != lease.Yielding && a.Eviction != nil {
			_, err = s.leases.Yield(a.Time, a.Job, a.Time.Add(max(a.Eviction.Grace+a.Eviction.Cost.Save, 1)), a.Reason)
		}
	case lockstep.ActionResize:
		if !held {
			break
		}
		// Members that are started elsewhere in place of lost ones leave the size as it is.
		if keep := planGPUs(a.Plan); a.Eviction == nil || keep >= l.Amount {
			_, _, err = s.leases.Resize(a.Time, a.Job, keep)
		} else {
			_, err = s.leases.Shrink(a.Time, a.Job, keep, a.Time.Add(max(a.Eviction.Grace, 1)), a.Reason)
		}
	}
	return err
}

// settle tells the policy and the lease table what job holds now, if that is not
// what they were told before.
func (s *Scheduler) settle(now time.Time, id lockstep.JobID) error {
	j := s.jobs[id]
	if j == nil || j.gone {
		return nil
	}
	st, _ := s.gangs.State(id)
	on, holds := false, lockstep.MilliGPU(0)
	switch st.Phase {
	case gang.Leaving, gang.Moving, gang.Resizing:
		return nil // as before, until the host reports them gone
	case gang.Held, gang.Running:
		on, holds = true, planGPUs(st.Plan)
	case gang.Gone:
		return s.leave(now, j)
	}
	was := *j
	j.on, j.held = on, holds
	switch {
	case on && !was.on:
		return s.policy.Start(now, id, holds)
	case was.on && !on:
		return s.stop(now, j)
	case holds == was.held:
		return nil
	}
	if l, held := s.lease(id); held && l.Amount != holds {
		if _, _, err := s.leases.Resize(now, id, holds); err != nil {
			return err
		}
	}
	return s.policy.Resize(now, id, holds)
}

// stop ends what job holds in the eyes of the policy and the lease table.
func (s *Scheduler) stop(now time.Time, j *job) error {
	j.on, j.held = false, 0
	if err := s.unlease(now, j.gang.ID); err != nil {
		return err
	}
	return s.policy.Stop(now, j.gang.ID)
}
