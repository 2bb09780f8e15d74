package gang

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Preemption goes the way of the boundary: those whom room is taken from are set
// aside or cut down as due holders are, whoever it is for gets it, and at the end of
// the pass, when all who wait have had their turn, the victims are told what
// becomes of them.

// preempt looks for room for j in what running jobs would have to leave, takes it
// from them, and leaves it in the scratch plan; settleCuts is to follow once j has
// it. Where that does not help nothing changes. Within says that j has quota.
func (a *Admission) preempt(j *job, quota *lockstep.Request, within bool) (bool, error) {
	if !a.mayTake(j) {
		return false, nil
	}
	least := lockstep.Request{Min: quota.Min, Max: quota.Min}
	if !a.listCandidates(j, least.Min) {
		a.noteUntaken(j)
		return false, nil
	}
	a.p.tried++
	a.count(MetricHunts, j, "")
	a.p.aim, a.p.keeps = nil, nil
	mark := a.what.Mark()
	cuts, ok, err := a.chooseVictims(j, &least, within)
	err = a.rollback(mark, err)
	if err != nil || !ok {
		if err == nil {
			a.noteUntaken(j)
		}
		return false, err
	}
	if cuts, err = a.startTrial(j, cuts); err != nil {
		return false, err
	}
	for i := range cuts {
		if err := a.takeFrom(j, &cuts[i]); err != nil {
			return false, err
		}
	}
	a.p.cuts = cuts
	if a.p.keeps != nil {
		return a.fitTrial(j, a.p.keeps, a.p.trial, cuts)
	}
	return a.fitDisplacing(j, &least, cuts)
}

// mayTake reports whether j may take room from others at all, as far as is known.
func (a *Admission) mayTake(j *job) bool {
	return a.takes && j.gang.Preemption != lockstep.PreemptNever && !a.cannotTake(j.shape, j.gang.Priority) &&
		(a.cfg.MaxVictims == 0 || j.taken < a.cfg.MaxVictims) && !(a.cfg.Backfill == Strict && len(a.res) > 0)
}

// listCandidates lists from whom j may take room for counts members, in the order
// in which they go for want of quota.
func (a *Admission) listCandidates(j *job, counts []int) bool {
	c := &a.scratch.from
	*c = lockstep.Candidates{Jobs: c.Jobs[:0], Limits: c.Limits[:0]}
	a.p.partial, a.p.later = false, false
	served := a.servedBy(j)
	if a.reclaimer != nil {
		a.reclaimer.Reclaim(j.gang, counts, c)
		listed := c.Jobs
		c.Jobs = c.Jobs[:0]
		for _, x := range listed {
			if h := a.jobs[x.Job]; h != nil && a.mayLose(h, j, served) {
				c.Jobs = append(c.Jobs, a.complete(x, h))
			}
		}
	} else if a.lowest(j) {
		a.listLower(j, served)
	}
	for _, h := range a.due {
		if h.soft && h != j {
			x := a.complete(lockstep.Candidate{Job: h.id, Tier: math.MinInt32}, h)
			x.Cost.Lost = 0 // its term is over
			c.Jobs = append(c.Jobs, x)
		}
	}
	for i := range c.Jobs {
		a.jobs[c.Jobs[i].Job].listed = i
	}
	c.Max = 0
	if a.cfg.MaxVictims > 0 {
		c.Max = a.cfg.MaxVictims - j.taken
	}
	return len(c.Jobs) > 0
}

// lowest reports whether some holder is of lower priority than j.
func (a *Admission) lowest(j *job) bool {
	return !a.takes || len(a.levels) > 0 && a.levels[0].priority < j.gang.Priority
}

// listLower lists the candidates by priority: lower first, then cheaper, later
// start, ID.
func (a *Admission) listLower(j *job, served map[*job]bool) {
	c := &a.scratch.from
	for _, h := range a.ends {
		switch {
		case h.gang.Priority >= j.gang.Priority:
		case a.cfg.Quota != nil && (h.gang.Tenant != j.gang.Tenant || h.gang.Queue != j.gang.Queue):
		case a.mayLose(h, j, served):
			c.Jobs = append(c.Jobs, a.complete(lockstep.Candidate{Job: h.id, Tier: int32(h.gang.Priority)}, h))
		}
	}
	slices.SortFunc(c.Jobs, func(x, y lockstep.Candidate) int {
		return cmp.Or(cmp.Compare(x.Tier, y.Tier), cmp.Compare(x.Cost.Total(), y.Cost.Total()),
			cmp.Compare(a.jobs[y.Job].start, a.jobs[x.Job].start), cmp.Compare(x.Job, y.Job))
	})
}

// mayLose reports whether the holder h may lose room to j, by its phase and by whom
// it and j made room for before.
func (a *Admission) mayLose(h, j *job, served map[*job]bool) bool {
	if h.phase != Running || !h.gang.Capabilities.Preemptible || h.soft || h.victim || h.replan || h == j {
		return false
	}
	if served[h] || slices.Contains(h.made, j.cause()) {
		a.p.partial = true
		return false
	}
	if a.p.walking && h.seen == a.pass { // it was ahead
		a.p.later = true
		return false
	}
	return true
}

// complete fills in what the candidate x for h costs and may keep.
func (a *Admission) complete(x lockstep.Candidate, h *job) lockstep.Candidate {
	x.Cost = a.costOf(h)
	x.Min, x.Shrink = nil, lockstep.EvictionCost{}
	if h.gang.Capabilities.Resizable && len(h.plan.Members) > h.gang.MinMembers() {
		x.Min = h.minima
		x.Shrink = lockstep.EvictionCost{Save: x.Cost.Save, Restore: x.Cost.Restore, Devices: x.Cost.Devices}
	}
	return x
}

// costOf is what stopping the running job h throws away.
func (a *Admission) costOf(h *job) lockstep.EvictionCost {
	c := lockstep.EvictionCost{Lost: time.Duration(max(a.now-h.start, 0)), Save: h.gang.Capabilities.Save, Restore: h.gang.Capabilities.Restore}
	if a.cfg.Cost != nil {
		if told, ok := a.cfg.Cost.Cost(h.id, lockstep.FromNanos(a.now)); ok {
			c = lockstep.EvictionCost{Lost: max(told.Lost, 0), Save: max(told.Save, 0), Restore: max(told.Restore, 0)}
		}
	}
	c.Devices = devicesOf(h.gang, h.plan.Members)
	return c
}

// chooseVictims finds, in a what-if, who must give up what for j. There may be
// nobody, where only quota was wanted.
func (a *Admission) chooseVictims(j *job, least *lockstep.Request, within bool) (cuts []cut, ok bool, err error) {
	if !within { // room there may be
		if ok, err = a.fitDisplacing(j, least, nil); err != nil {
			return nil, false, err
		}
		if ok {
			a.scratch.plan, a.scratch.made.Plan = a.scratch.made.Plan, a.scratch.plan
			a.p.aim = &a.scratch.made.Plan
		}
	}
	if !ok {
		if cuts, ok, err = a.askVictims(j, least); !ok || err != nil {
			return nil, false, err
		}
	}
	if !within {
		if cuts, ok, err = a.coverQuota(j, least, cuts); !ok || err != nil {
			return nil, false, err
		}
	}
	for _, c := range cuts {
		if err := a.release(c.job); err != nil {
			return nil, false, err
		}
	}
	ok, err = a.fitDisplacing(j, least, cuts)
	return cuts, ok, err
}

// askVictims asks the placer who must give up what for j, and remembers the room.
func (a *Admission) askVictims(j *job, least *lockstep.Request) ([]cut, bool, error) {
	r := a.request(j, a.now, a.latestEnd(j))
	a.scratch.busy = a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	r.Min, r.Max, r.Busy = least.Min, least.Max, a.scratch.busy
	a.setApart(r)
	made := &a.scratch.made
	made.Reset()
	v, err := a.preempter.Victims(r, &a.scratch.from, made)
	if err != nil {
		return nil, false, fitFault("victims for", j.id, err)
	}
	if !v.Feasible {
		return nil, false, nil
	}
	cuts := make([]cut, 0, len(made.Evictions))
	for i := range made.Evictions {
		c, ok := a.cutOf(&made.Evictions[i])
		if !ok {
			return nil, false, &stumble{fmt.Errorf("gang: victims for %s: the placer named %s and its members %v, which may not go",
				j.id, made.Evictions[i].Job, made.Evictions[i].Ranks)}
		}
		cuts = append(cuts, c)
	}
	made.Plan.Job, made.Plan.Gang = j.id, j.gang
	a.p.aim = &made.Plan
	return cuts, true, nil
}

// cutOf is what e does to its job; false where that is no candidate for it.
func (a *Admission) cutOf(e *lockstep.Eviction) (cut, bool) {
	h := a.jobs[e.Job]
	if h == nil {
		return cut{}, false
	}
	x := a.candidate(h)
	if x == nil {
		return cut{}, false
	}
	c := cut{job: h, spares: h.plan.Spares}
	if len(e.Ranks) == 0 || len(e.Ranks) == len(h.plan.Members) {
		return c, true
	}
	if x.Min == nil {
		return cut{}, false
	}
	for rank, m := range h.plan.Members {
		if _, goes := slices.BinarySearch(e.Ranks, rank); !goes {
			c.keep = append(c.keep, m)
		}
	}
	for i, n := range a.countsOf(c.keep, h) {
		if n < h.minima[i] {
			return cut{}, false
		}
	}
	return c, len(c.keep)+len(e.Ranks) == len(h.plan.Members)
}

// candidate returns what is listed of h, or nil where it is no candidate.
func (a *Admission) candidate(h *job) *lockstep.Candidate {
	if jobs := a.scratch.from.Jobs; h.listed < len(jobs) && jobs[h.listed].Job == h.id {
		return &jobs[h.listed]
	}
	return nil
}

// takeFrom sets the job of c aside for j, for as long as it takes to give it what
// it keeps.
func (a *Admission) takeFrom(j *job, c *cut) error {
	h := c.job
	if h.soft {
		h.waitFor = j.id
		return a.setAside(h)
	}
	if err := a.cutCharge(c); err != nil {
		return err
	}
	cost := a.costOf(h)
	h.was = h.plan.Members
	if err := a.setAside(h); err != nil {
		return errors.Join(err, a.recharge(c))
	}
	h.victim, h.waitFor, h.why, h.cost = true, j.id, ReasonPreempted, &cost
	if h.gang.Tenant != j.gang.Tenant || h.gang.Queue != j.gang.Queue {
		h.why = ReasonReclaimed
	}
	a.noteMade(h, j)
	a.p.victims = append(a.p.victims, h)
	return nil
}

// settleVictims tells those from whom room was taken in this pass what becomes of
// them.
func (a *Admission) settleVictims(failed bool) error {
	var first error
	for _, h := range a.p.victims {
		if err := a.settleVictim(h, failed); err != nil && first == nil {
			first = err
		}
	}
	clear(a.p.victims)
	a.p.victims = a.p.victims[:0]
	return first
}

func (a *Admission) settleVictim(h *job, failed bool) error {
	if !h.moved { // cut down in place, and charged for what it keeps
		a.conclude(h)
		h.cost = nil
		return nil
	}
	err := a.refund(h)
	if err == nil && !failed {
		full := a.countsOf(h.was, h)
		least := full
		if h.gang.Capabilities.Resizable {
			least = h.minima
		}
		var quota lockstep.Request
		if _, ok := a.limit(h, &quota, least, full); ok {
			_, err = a.resettle(h, &quota, false)
		}
	}
	if h.victim && h.holds() {
		a.conclude(h)
	} else if h.victim {
		a.decidedNow(h)
		a.leave(h, h.why, true)
	}
	h.cost = nil
	return err
}
