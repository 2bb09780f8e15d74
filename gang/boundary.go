package gang

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// The boundary: running holders whose term is over compete with those who wait.
//
// A holder starts the pass soft: its room counts as taken, so that nobody is
// moved without need, but a job that the orderer proposes ahead of it and that
// finds no room may displace it, or cut it down to fewer members. At its own
// turn a holder is decided: in place it stays; displaced it gets what it can
// elsewhere, or is told to leave. Holders that are not proposed come last, by
// ID. Until then was keeps where it sat when the pass began.

// beginBoundary makes the due holders soft and hands back their charges, since
// they compete for quota too.
func (a *Admission) beginBoundary() error {
	for _, j := range a.due {
		j.soft, j.moved, j.decided, j.waitFor = false, false, false, ""
	}
	for _, j := range a.due {
		if j.phase != Running {
			continue
		}
		a.p.undecided++
		if a.what == nil || !j.gang.Capabilities.Preemptible {
			continue
		}
		if err := a.refund(j); err != nil {
			return err
		}
		a.soften(j, true)
		j.was = j.plan.Members
	}
	return nil
}

// soften says whether the due holder j may be displaced.
func (a *Admission) soften(j *job, soft bool) {
	switch {
	case soft && !j.soft:
		a.p.soft++
	case !soft && j.soft:
		a.p.soft--
	}
	j.soft = soft
}

// endBoundary decides the holders that nobody proposed. After an error all that
// are still in place stay there.
func (a *Admission) endBoundary(failed bool) error {
	var first error
	for _, j := range a.due { // decided ones stay in the list until all are
		var err error
		switch {
		case j.decided || j.phase != Running && !j.moved:
		case failed && j.soft:
			err = a.settleFailed(j)
		case j.soft || j.moved:
			_, err = a.decide(j, false)
		default:
			a.extend(j)
		}
		if err != nil && !j.decided {
			err = errors.Join(err, a.settleFailed(j))
		}
		if err != nil && first == nil {
			first = err
		}
	}
	a.due = slices.DeleteFunc(a.due, func(j *job) bool { return !j.due })
	if err := a.settleVictims(failed); err != nil && first == nil {
		first = err
	}
	if first == nil && !failed && !a.p.blocked && !a.p.cut {
		for _, j := range a.p.stayed {
			if err := a.grow(j); err != nil {
				return err
			}
		}
	}
	return first
}

// settleFailed decides j without the placer, which failed: where it has room it
// stays, and else it leaves.
func (a *Admission) settleFailed(j *job) error {
	if !j.holds() {
		a.decidedNow(j)
		a.leave(j, ReasonTerm, true)
		return nil
	}
	var err error
	if !j.charged {
		err = a.charge(j, a.countsOf(j.plan.Members, j))
	}
	a.conclude(j)
	return err
}

// decide settles the due holder j: kept reports whether it still holds devices.
// A displaced one may in its turn displace holders that come later, if it was
// proposed.
func (a *Admission) decide(j *job, proposed bool) (kept bool, err error) {
	if j.soft && !a.mayStay(j) {
		if err := a.setAside(j); err != nil {
			return false, err
		}
	}
	if j.soft && a.cfg.Quota == nil {
		a.conclude(j)
		return true, nil
	}
	full := a.countsOf(j.was, j)
	least := full
	if j.gang.Capabilities.Resizable {
		least = j.minima
	}
	var quota lockstep.Request
	v, ok := a.limit(j, &quota, least, full)
	if !ok {
		return false, a.yield(j, v.Reason)
	}
	if j.soft {
		counts := a.countsOf(j.plan.Members, j)
		if within(counts, quota.Max) {
			err := a.charge(j, counts)
			if err == nil {
				a.conclude(j)
			}
			return true, err
		}
		if err := a.setAside(j); err != nil { // its quota no longer allows all of its members
			return false, err
		}
	}
	return a.resettle(j, &quota, proposed)
}

// resettle gives the displaced holder j room elsewhere, or tells it to leave.
func (a *Admission) resettle(j *job, quota *lockstep.Request, proposed bool) (kept bool, err error) {
	ok, err := a.findPlace(j, quota)
	if !ok && proposed && err == nil {
		ok, err = a.displace(j, quota)
	}
	if err != nil {
		return false, err
	}
	if !ok {
		return false, a.yield(j, j.leaves())
	}
	if err := a.take(j, &a.scratch.plan); err != nil {
		return false, err
	}
	a.conclude(j)
	return true, a.settleCuts()
}

// mayStay reports whether no window asks the due holder j to leave its nodes: none
// that it meets by its estimate or, where that is over or unknown, none in force.
func (a *Admission) mayStay(j *job) bool {
	end := later(j.start, j.wall())
	if end == forever || end <= a.now {
		end = a.now + 1
	}
	for i := range a.windows {
		w := &a.windows[i]
		if w.from < end && slices.ContainsFunc(w.Nodes, func(n lockstep.NodeID) bool { return onNode(j.plan.Members, n) }) {
			return false
		}
	}
	return true
}

// within reports whether no count exceeds its limit.
func within(counts, limits []int) bool {
	for i := range counts {
		if counts[i] > limits[i] {
			return false
		}
	}
	return true
}

// countsOf returns how many of members are in each role of j.
func (a *Admission) countsOf(members []lockstep.Member, j *job) []int {
	p := lockstep.Plan{Members: members}
	return p.AppendCounts(nil, len(j.gang.Roles))
}

func (a *Admission) charge(j *job, counts []int) error {
	if a.cfg.Quota == nil {
		return nil
	}
	if err := a.cfg.Quota.Charge(j.gang, counts); err != nil {
		return fmt.Errorf("gang: charge %s: %w", j.id, err)
	}
	j.charged = true
	return nil
}

// leaves is why j leaves its room, in whole or part, in this pass.
func (j *job) leaves() lockstep.Reason {
	if j.victim {
		return j.why
	}
	return ReasonTerm
}

// decidedNow takes note that the due holder, or the victim, j is decided.
func (a *Admission) decidedNow(j *job) {
	if j.victim {
		j.victim, j.moved = false, false
		return
	}
	a.soften(j, false)
	j.due, j.moved, j.decided = false, false, true
	a.p.undecided--
}

// extend lets j stay as it is for another term; a victim just stays.
func (a *Admission) extend(j *job) {
	victim := j.victim
	a.decidedNow(j)
	if victim {
		return
	}
	a.emit(j, lockstep.Action{Kind: lockstep.ActionExtend, Plan: j.plan})
	a.p.stayed = append(a.p.stayed, j)
}

// setAside takes the room of the soft holder j from it; its members are still
// there.
func (a *Admission) setAside(j *job) error {
	if err := a.cfg.Placer.Release(j.id); err != nil {
		return fmt.Errorf("gang: release %s: %w", j.id, err)
	}
	a.dropEnd(j)
	a.setOld(j, j.was)
	a.soften(j, false)
	j.plan, j.moved = nil, true
	a.freed()
	return nil
}

// findPlace looks for room for the displaced holder j, near where it sits and
// clear of all reservations, and leaves it in the scratch plan.
func (a *Admission) findPlace(j *job, quota *lockstep.Request) (bool, error) {
	r := a.request(j, a.now, a.latestEnd(j))
	prefer := lockstep.Plan{Job: j.id, Gang: j.gang, Members: j.was}
	r.Min, r.Max, r.Prefer = quota.Min, quota.Max, &prefer
	a.scratch.busy = a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	r.Busy = a.scratch.busy
	v, err := a.fit(r, &a.scratch.plan)
	return v.Feasible, err
}

// conclude tells the host what the pass decided for j: to stay, to go on with
// fewer members in place, or to move.
func (a *Admission) conclude(j *job) {
	gone, inPlace := missing(j.was, j.plan.Members)
	why := j.leaves()
	if end := later(j.start, j.wall()); inPlace && j.end != end {
		a.setEnd(j, end)
	}
	switch {
	case inPlace && len(gone) == 0:
		a.clean(j)
		a.extend(j)
	case inPlace:
		left := make([]lockstep.Member, 0, len(gone))
		for _, rank := range gone {
			left = append(left, j.was[rank])
		}
		a.decidedNow(j)
		a.setOld(j, left)
		j.phase, j.reason = Resizing, why
		a.emit(j, lockstep.Action{Kind: lockstep.ActionResize, Plan: j.plan, Reason: why, Eviction: a.eviction(j, gone, left, why)})
	default:
		a.decidedNow(j)
		a.setOld(j, j.was)
		j.phase, j.reason, j.told = Moving, why, true
		a.await(j)
		if i, found := slices.BinarySearch(j.waits, j.id); !found { // for itself in any case
			a.setWaits(j, slices.Insert(j.waits, i, j.id))
		}
		a.emit(j, lockstep.Action{Kind: lockstep.ActionMove, Plan: j.plan, Reason: why, Eviction: a.eviction(j, nil, j.was, why)})
	}
}

// missing returns the ranks of old that are not in kept, and whether kept is
// made of members of old alone, in their order.
func missing(old, kept []lockstep.Member) (gone []int, within bool) {
	if len(old) == len(kept) && len(old) > 0 && &old[0] == &kept[0] {
		return nil, true // nobody touched it
	}
	k := 0
	for i := range old {
		if k < len(kept) && old[i] == kept[k] {
			k++
			continue
		}
		gone = append(gone, i)
	}
	return gone, k == len(kept)
}

// yield tells the due holder j to leave; it is queued again once it has.
func (a *Admission) yield(j *job, reason lockstep.Reason) error {
	if j.holds() {
		if err := a.setAside(j); err != nil {
			return err
		}
	}
	a.decidedNow(j)
	a.leave(j, reason, true)
	return nil
}

// leave tells the members of j to stop.
func (a *Admission) leave(j *job, reason lockstep.Reason, requeue bool) {
	members := j.old
	if j.holds() {
		members = j.plan.Members
	}
	j.phase, j.reason, j.requeue, j.told = Leaving, reason, requeue, false
	a.emit(j, lockstep.Action{Kind: lockstep.ActionEvict, Reason: reason, Eviction: a.eviction(j, nil, members, reason)})
}

// eviction describes that ranks of j, where they are all of it nil, must go from
// members.
func (a *Admission) eviction(j *job, ranks []int, members []lockstep.Member, reason lockstep.Reason) *lockstep.Eviction {
	c := &j.gang.Capabilities
	e := &lockstep.Eviction{Job: j.id, For: j.waitFor, Ranks: ranks, Reason: reason, Grace: c.Grace}
	e.Cost = lockstep.EvictionCost{Save: c.Save, Restore: c.Restore, Devices: devicesOf(j.gang, members)}
	if ranks == nil && j.cost != nil {
		e.Cost = *j.cost
	}
	return e
}

// devicesOf is how much of devices members of g hold.
func devicesOf(g *lockstep.Gang, members []lockstep.Member) lockstep.MilliGPU {
	var sum lockstep.MilliGPU
	for i := range members {
		d := &g.Roles[members[i].Role].Demand
		sum = sum.Add(d.DeviceShare().Mul(int64(d.GPUs)))
	}
	return sum
}
