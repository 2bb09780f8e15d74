package gang

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Step decides all that can be decided at now and returns what the host is to
// do, in order. An error is a collaborator's; the actions returned with it
// stand, and the next Step goes on from there.
func (a *Admission) Step(now time.Time) ([]lockstep.Action, error) {
	return a.AppendStep(nil, now)
}

// AppendStep is Step that appends the actions to dst.
func (a *Admission) AppendStep(dst []lockstep.Action, now time.Time) ([]lockstep.Action, error) {
	t, err := a.at("step", now)
	if err != nil {
		return dst, err
	}
	a.now = t
	if err = a.fire(); err == nil {
		err = a.findOtherRoom()
	}
	for i := range a.res {
		if r := &a.res[i]; r.timed() && r.start <= a.now {
			a.stale = true
		}
	}
	if err == nil && a.stale {
		if a.queue.waiting > 0 || len(a.due) > 0 || len(a.passed) > 0 {
			err = a.runPass()
		} else {
			a.idle()
		}
	}
	dst = append(dst, a.out...)
	clear(a.out)
	a.out = a.out[:0]
	if r := a.cfg.Recorder; r != nil {
		r.Gauge(MetricQueued, lockstep.MetricLabels{}, float64(a.queue.waiting))
	}
	return dst, err
}

// idle is a pass with nobody to decide.
func (a *Admission) idle() {
	a.stale = false
	a.res = a.res[:0]
}

// fire handles the times that have come.
func (a *Admission) fire() error {
	a.endWindows()
	for len(a.timers.heap) > 0 && a.timers.heap[0].at <= a.now {
		x := a.timers.heap[0]
		if x.job == nil || !x.live(a) {
			a.timers.drop()
			continue
		}
		j := x.job
		if j.phase == Held {
			if err := a.lapse(j); err != nil {
				return err
			}
		} else {
			a.expireRefusals(j)
			j.failed, j.roomless, j.delays = 0, delay{}, delay{}
			if j.notUntil <= a.now {
				j.notUntil = minTime
			}
			a.stale = true
		}
		a.timers.drop()
	}
	return nil
}

// expireRefusals lets j onto nodes again that it refused long enough ago.
func (a *Admission) expireRefusals(j *job) {
	if len(j.refused) > 0 {
		j.refused = slices.DeleteFunc(j.refused, func(r refusal) bool { return r.Until <= a.now })
		a.countRefusing(j)
	}
}

// lapse ends the hold of j, whose deadline has come. All of its room goes back.
func (a *Admission) lapse(j *job) error {
	if err := a.endHold(j, a.now, ReasonLapsed, false); err != nil {
		return err
	}
	pause := int64(a.cfg.Backoff)
	for range min(j.lapses, 6) {
		pause = later(pause, pause)
	}
	j.lapses++
	a.waitUntil(j, later(a.now, pause))
	return nil
}

// waitUntil keeps j from being tried before t.
func (a *Admission) waitUntil(j *job, t int64) {
	j.notUntil = t
	j.verdict = lockstep.Verdict{Reason: ReasonBackoff, Want: j.gang.MaxMembers()}
	a.timers.set(a, t, j)
}

// findOtherRoom moves the holds that a node was lost to or refused by, and gives
// back those for which there is no other room.
func (a *Admission) findOtherRoom() error {
	for len(a.replans) > 0 {
		if err := a.findOther(a.replans[0]); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admission) findOther(j *job) error {
	if j.phase == Running {
		return a.replace(j)
	}
	old, deadline, held, trial := j.plan, j.deadline, j.phase == Held, j.keeps != nil
	if err := a.giveBack(j, a.now); err != nil {
		return err
	}
	a.setReplan(j, false)
	a.setWaits(j, nil)
	a.endApart(j)
	switch {
	case j.phase == Moving: // where it sits it may not stay, and it knew of no other room
		a.leave(j, ReasonLost, true)
		return nil
	case trial: // whoever would have had to leave for the others stays
		a.giveUp(j, ReasonRefused)
		return nil
	}
	a.expireRefusals(j)
	ok, err := a.findRoomLike(j, old, held)
	if ok && err == nil {
		err = a.take(j, &a.scratch.plan)
	}
	if !ok || err != nil {
		a.giveUp(j, ReasonRefused)
		return err
	}
	if !held {
		a.await(j)
		if len(j.waits) > 0 {
			return nil
		}
	}
	a.settle(j)
	if held && j.phase == Held {
		a.keepDeadline(j, deadline)
	}
	return nil
}

// keepDeadline makes the hold of j, which has just begun anew, end when the one before
// was to.
func (a *Admission) keepDeadline(j *job, deadline int64) {
	j.deadline = deadline
	a.timers.set(a, deadline, j)
	last := deadline
	if j.trial > 0 {
		last = later(deadline, a.hold(j))
	}
	a.setEnd(j, later(last, j.wall()))
	a.out[len(a.out)-1].Deadline = lockstep.FromNanos(deadline)
}

// findRoomLike looks for room for as many members of j as old has, beside all
// reservations, and leaves it in the scratch plan; clean says that nobody may
// still be leaving it, since within a deadline there is no time to wait.
func (a *Admission) findRoomLike(j *job, old *lockstep.Plan, clean bool) (bool, error) {
	quota := lockstep.Request{Min: old.AppendCounts(nil, len(j.gang.Roles))}
	if _, ok := a.limit(j, &quota, quota.Min, quota.Min); !ok {
		return false, nil
	}
	r := a.request(j, a.now, a.latestEnd(j))
	r.Min, r.Max, r.Prefer = quota.Min, quota.Max, old
	a.scratch.busy = a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	r.Busy = a.scratch.busy
	v, err := a.fit(r, &a.scratch.plan)
	return v.Feasible && !(clean && a.touchesDirty(room(&a.scratch.plan))), err
}

// giveUp ends the hold of j, whose room is given back already.
func (a *Admission) giveUp(j *job, reason lockstep.Reason) {
	if j.told {
		a.emit(j, lockstep.Action{Kind: lockstep.ActionRelease, Reason: reason})
	}
	j.confirmed, j.missing, j.told = nil, 0, false
	a.requeueNow(j, reason)
}
