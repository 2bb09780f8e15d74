package gang

import (
	"errors"

	"github.com/lockstep-gpu/lockstep"
)

// pass is what one walk along the order keeps.
type pass struct {
	before  []reservation // of the pass before, to be used again while nothing changed
	same    bool          // so far the reservations are those of before
	rest    []reservation // those of before whose jobs the order has not reached
	keep    bool          // so far nothing came in ahead of rest, so that it still counts
	tried   int           // waiting jobs that were put to the placer
	blocked bool          // somebody waits for room
	strict  bool          // nothing may pass any more
	cut     bool          // MaxAttempts ended the pass
	cuts    []cut         // holders cut down for the job whose turn it is
	stayed  []*job        // due holders that stay as they are
}

// runPass walks along the order once. Grants and decisions that were made
// before an error stand.
func (a *Admission) runPass() error {
	a.pass++
	a.stale = false
	a.queue.compact()
	before := append(a.p.before[:0], a.res...)
	a.p = pass{before: before, same: true, rest: a.p.rest[:0]}
	if a.depth() > 1 {
		a.p.rest, a.p.keep = append(a.p.rest, before...), true
	}
	a.res = a.res[:0]
	err := a.beginBoundary()
	if err == nil {
		err = a.walkOrder()
	}
	if end := a.endBoundary(err != nil); err == nil {
		err = end
	}
	if err != nil || a.p.cut {
		a.stale = true
		for i := len(a.res); a.p.same && i < len(before); i++ {
			if before[i].job.phase == Queued {
				a.res = append(a.res, before[i]) // not reached, not given up
			}
		}
	}
	return err
}

func (a *Admission) walkOrder() error {
	if a.cfg.Orderer == nil {
		a.queue.next = 0
	} else {
		a.cfg.Orderer.Begin(lockstep.FromNanos(a.now))
	}
	for {
		if a.cfg.MaxAttempts > 0 && a.p.tried >= a.cfg.MaxAttempts {
			a.p.cut = true
			return nil
		}
		if a.cfg.Orderer == nil { // the default order gives jobs, not just their names
			j := a.queue.take()
			if j == nil {
				return nil
			}
			if _, err := a.propose(j); err != nil {
				return err
			}
			continue
		}
		id, ok := a.cfg.Orderer.Next()
		if !ok {
			return nil
		}
		outcome, err := a.propose(a.jobs[id])
		if err != nil {
			return err
		}
		a.cfg.Orderer.Outcome(id, outcome)
	}
}

// propose gives the job whose turn it is what it can have; nil is one that is
// not there.
func (a *Admission) propose(j *job) (lockstep.Outcome, error) {
	if j == nil || j.seen == a.pass {
		return lockstep.Dropped, nil
	}
	j.seen = a.pass
	switch {
	case j.phase == Queued:
		granted, err := a.admit(j)
		switch {
		case err != nil && !j.holds() && neverFits(err, j.id):
			a.reject(j, err)
			return lockstep.Dropped, nil
		case err != nil:
			return "", err
		case granted:
			return lockstep.Granted, nil
		}
		return lockstep.Blocked, nil
	case j.soft || j.moved:
		kept, err := a.decide(j, true)
		if err != nil {
			return "", err
		}
		if kept {
			return lockstep.Kept, nil
		}
		return lockstep.Blocked, nil
	case j.due && j.phase == Running: // nothing may be done to it
		a.extend(j)
		return lockstep.Kept, nil
	}
	return lockstep.Dropped, nil
}

// admit tries to give the waiting job j room, by displacing due holders that
// the order has not reached if nothing else will do.
func (a *Admission) admit(j *job) (bool, error) {
	if j.notUntil > a.now {
		return false, nil
	}
	if a.p.strict {
		j.verdict = lockstep.Verdict{Reason: lockstep.ReasonReserved, Want: j.gang.MaxMembers()}
		return false, nil
	}
	var quota lockstep.Request
	if v, ok := a.limit(j, &quota, j.minima, j.limits); !ok {
		j.verdict = v
		return false, nil // quota, not room: nothing is kept for j and nobody waits behind it
	}
	n := a.countRest(j)
	ok, err := a.findRoom(j, quota.Min, quota.Max)
	a.res = a.res[:n]
	if err != nil {
		return false, err
	}
	if !ok {
		if ok, err = a.displace(j, &quota); err != nil {
			return false, err
		}
		if !ok {
			return false, a.blocks(j)
		}
		a.p.keep = false
	}
	a.reached(j, minTime)
	if err := a.grant(j); err != nil {
		return false, err
	}
	return true, a.settleCuts()
}

// grant gives j the room of the scratch plan.
func (a *Admission) grant(j *job) error {
	if err := a.take(j, &a.scratch.plan); err != nil {
		return err
	}
	j.verdict.Feasible, j.verdict.Reason = true, ""
	a.unqueue(j)
	j.phase, j.reason = Awaiting, ""
	a.await(j)
	if len(j.waits) == 0 {
		a.settle(j)
	}
	return nil
}

// neverFits reports whether err says that the gang of id can never be placed.
func neverFits(err error, id lockstep.JobID) bool {
	var u *unplaceable
	return errors.As(err, &u) && u.job == id
}

// reject drops a job that the placer can never place.
func (a *Admission) reject(j *job, err error) {
	j.verdict = lockstep.Verdict{Reason: ReasonInvalid, Want: j.gang.MaxMembers()}
	var e *lockstep.Error
	if errors.As(err, &e) {
		j.verdict.Domain = e.Field
	}
	a.emit(j, lockstep.Action{Kind: lockstep.ActionReject, Reason: ReasonInvalid})
	a.retire(j, ReasonInvalid)
}
