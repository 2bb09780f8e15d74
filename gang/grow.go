package gang

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// grow gives a due holder that stays the room that nobody waits for.
func (a *Admission) grow(j *job) error {
	counts := a.countsOf(j.plan.Members, j)
	if a.what == nil || !j.gang.Capabilities.Resizable || slices.Equal(counts, j.limits) {
		return nil
	}
	mark := a.what.Mark()
	old := j.plan
	ok, err := a.findGrowth(j, counts)
	err = a.rollback(mark, err)
	if err != nil || !ok {
		return err
	}
	// What the what-if has shown is done again for good.
	if err := a.giveBack(j, a.now); err != nil {
		return err
	}
	if ok, err = a.refit(j, counts, old); err == nil && ok {
		err = a.take(j, &a.scratch.plan)
	}
	if err != nil || !ok { // the placer contradicts itself
		a.setOld(j, old.Members)
		a.leave(j, ReasonTerm, true)
		return err
	}
	a.setEnd(j, later(j.start, j.wall()))
	a.emit(j, lockstep.Action{Kind: lockstep.ActionResize, Plan: j.plan, Reason: ReasonTerm})
	return nil
}

// findGrowth sees whether j could have more members beside those it has.
func (a *Admission) findGrowth(j *job, counts []int) (bool, error) {
	if err := a.cfg.Placer.Release(j.id); err != nil {
		return false, fmt.Errorf("gang: release %s: %w", j.id, err)
	}
	ok, err := a.refit(j, counts, j.plan)
	if err != nil || !ok {
		return false, err
	}
	grown := a.scratch.plan.Members
	_, within := missing(grown, j.plan.Members)
	if !within || len(grown) == len(j.plan.Members) || a.touchesDirty(room(&a.scratch.plan)) {
		return false, nil
	}
	if a.cfg.Quota == nil {
		return true, nil
	}
	// The charge stands beside the check, so that quota is never overdrawn; a
	// gang may grow by as much as the quota allows it twice.
	a.scratch.counts = a.scratch.plan.AppendCounts(a.scratch.counts[:0], len(j.gang.Roles))
	return a.cfg.Quota.Check(j.gang, a.scratch.counts).Feasible, nil
}

// refit fits j around where it sits, with counts members or more.
func (a *Admission) refit(j *job, counts []int, sits *lockstep.Plan) (bool, error) {
	end := later(j.start, j.wall())
	if end <= a.now { // it outstayed its estimate, and nobody knows by how much
		end = a.latestEnd(j)
	}
	r := a.request(j, a.now, end)
	r.Min, r.Max, r.Prefer = counts, j.limits, sits
	v, err := a.fit(r, &a.scratch.plan)
	return v.Feasible, err
}
