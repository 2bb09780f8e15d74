package gang

import (
	"errors"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// pass is what one walk along the order keeps.
type pass struct {
	before    []reservation // of the pass before, to be used again while nothing changed
	same      bool          // so far the reservations are those of before
	rest      []reservation // those of before whose jobs the order has not reached
	keep      bool          // so far nothing came in ahead of rest, so that it still counts
	tried     int           // waiting jobs that were put to the placer
	stumble   error         // the first
	blocked   bool          // somebody waits for room
	open      []*shape      // those of the waiting jobs that may have room, for orderers
	openAt    uint64        // room when open was made; 0 before
	soft      int           // due holders that may be displaced
	undecided int           // due holders that are not decided yet
	shifted   bool          // to let the job pass whose turn it is, reservations got other room
	strict    bool          // nothing may pass any more
	cut       bool          // MaxAttempts ended the pass
	cuts      []cut         // holders cut down for the job whose turn it is
	stayed    []*job        // due holders that stay as they are
	victims   []*job        // others from whom room was taken
	walking   bool          // turns are being given

	partial bool           // some were no candidates for the job whose turn it is, but may be for others
	later   bool           // some were none in this pass, but may be in the next
	aim     *lockstep.Plan // the room that it takes from others
	keeps   *lockstep.Plan // that room, where only its first members are given theirs for now
	trial   int            // how many they are
}

// runPass walks along the order once. Grants and decisions that were made
// before an error stand.
func (a *Admission) runPass() error {
	a.pass++
	a.stale, a.walked = false, a.epoch
	before := append(a.p.before[:0], a.res...)
	a.p = pass{before: before, same: true, open: a.p.open[:0], stayed: a.p.stayed[:0], victims: a.p.victims[:0]}
	if a.depth() > 1 {
		a.scratch.rest = append(a.scratch.rest[:0], before...)
		a.p.rest, a.p.keep = a.scratch.rest, true
	}
	a.res = a.res[:0]
	if len(a.ends) > 0 && a.ends[0].end <= a.now && a.walkedAt != a.now {
		a.flow++ // somebody outstays an estimate: all starts move on with the time
	}
	a.walkedAt = a.now
	err := a.beginBoundary()
	a.p.walking = true
	if err == nil && len(a.passed) > 0 {
		err = a.expandTrials(before)
	}
	if err == nil {
		err = a.walkOrder()
	}
	a.p.walking = false
	end := a.endBoundary(err != nil)
	if err == nil {
		err = end
	}
	if a.p.stumble != nil {
		a.stale = true
	}
	if err == nil && !a.p.cut && a.depth() > 1 && slices.ContainsFunc(before, func(r reservation) bool { return r.job.phase == Queued && r.job.kept != a.pass }) {
		a.flow++
	}
	if err != nil || a.p.cut {
		a.stale = true
		for i := len(a.res); a.p.same && i < len(before); i++ {
			if before[i].job.phase == Queued {
				a.res = append(a.res, before[i]) // not reached, not given up
			}
		}
	}
	if a.p.stumble != nil {
		return a.p.stumble
	}
	return err
}

// walkOrder lets the jobs have their turns, until nothing is left to decide.
func (a *Admission) walkOrder() error {
	if a.cfg.Orderer != nil {
		return a.walkProposals()
	}
	q := &a.queue
	q.begin(a)
	for !a.cutOff() {
		j := q.take(a)
		if j == nil {
			return nil
		}
		if _, err := a.turn(j); err != nil {
			return err
		}
		if q.left && q.epoch != a.epoch {
			q.resume(a, j)
		}
	}
	return nil
}

// walkProposals is walkOrder by the orderer of the configuration.
func (a *Admission) walkProposals() error {
	o := a.cfg.Orderer
	o.Begin(lockstep.FromNanos(a.now))
	idle, most := 0, 2*len(a.jobs)+maxIdle
	for idle < most && !a.cutOff() && !a.settled() {
		id, ok := o.Next()
		if !ok {
			return nil
		}
		outcome, err := a.turn(a.jobs[id])
		if err != nil {
			return err
		}
		if idle++; outcome != lockstep.Dropped {
			idle = 0
		}
		o.Outcome(id, outcome)
	}
	return nil
}

// maxIdle and twice the jobs known are how many proposals in a row may name
// nobody who has a turn before the pass ends: orderers that repeat themselves
// must not hang a Step.
const maxIdle = 100

// cutOff reports whether MaxAttempts ends the pass.
func (a *Admission) cutOff() bool {
	a.p.cut = a.cfg.MaxAttempts > 0 && a.p.tried >= a.cfg.MaxAttempts
	return a.p.cut
}

// reservedAll reports whether jobs that are blocked from now on change nothing:
// all reservations are given out, or none is to come.
func (a *Admission) reservedAll() bool {
	return !a.plain && (a.p.strict || a.what != nil && len(a.res) >= a.depth())
}

// settled reports whether no proposal could change anything any more: no waiting
// job can have room, and all due holders are decided.
func (a *Admission) settled() bool {
	p := &a.p
	if p.undecided > 0 || !a.reservedAll() {
		return false
	}
	if p.openAt != a.epoch {
		p.openAt = a.epoch
		p.open = append(p.open[:0], a.queue.shapes...)
	}
	for n := len(p.open); n > 0; n-- {
		if !a.spent(p.open[n-1]) {
			return false
		}
		p.open = p.open[:n-1]
	}
	return true
}

// spent reports whether it is known that no job waiting in the line of s can have
// room in this pass until some is freed, once all reservations are given out.
func (a *Admission) spent(s *shape) bool {
	switch {
	case len(s.line) == 0 || a.p.strict || a.cfg.Backfill == Strict && s.placeable:
		return true
	case !a.alike(s) || a.mayTakeSoon(s):
		return false
	}
	return s.failed == a.epoch || a.stillDelays(s.delays) && a.outlasts(later(a.now, s.spans[0].span))
}

// alike reports whether what is known of s holds for every job in its line, also
// of room that others would have to leave.
func (a *Admission) alike(s *shape) bool {
	return !s.affinity && s.refusing == 0 && len(a.windows) == 0 && (a.p.soft == 0 || s.hopeless == a.pass)
}

// firstAble returns the place in the line of s, from its next on, of the first
// job of which it is not known that its stay would delay a reservation.
func (a *Admission) firstAble(s *shape) int {
	i := s.next
	if a.alike(s) && a.stillDelays(s.delays) && !a.mayTakeSoon(s) {
		for i < len(s.line) && a.outlasts(later(a.now, s.line[i].span)) {
			i++
		}
	}
	return i
}

// turn is propose that takes a stumble for an outcome; the pass returns the first.
func (a *Admission) turn(j *job) (lockstep.Outcome, error) {
	waited := j != nil && j.phase == Queued
	outcome, err := a.propose(j)
	if err == nil || !isStumble(err) {
		return outcome, err
	}
	if a.p.stumble == nil {
		a.p.stumble = err
	}
	a.p.cuts = nil // those set aside are placed at their own turns
	switch {
	case !j.holds():
		return lockstep.Blocked, nil
	case waited:
		return lockstep.Granted, nil
	}
	return lockstep.Kept, nil
}

func isStumble(err error) bool {
	var s *stumble
	return errors.As(err, &s)
}

// propose gives the job whose turn it is what it can have; nil is one that is
// not there.
func (a *Admission) propose(j *job) (lockstep.Outcome, error) {
	if j == nil || j.seen == a.pass || j.victim {
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
	v, within := a.limit(j, &quota, j.minima, j.limits)
	a.p.shifted, a.p.keeps = false, nil
	ok, err := false, error(nil)
	if within {
		ok, err = a.findRoom(j, quota.Min, quota.Max)
		if !ok && err == nil && a.overdue(j) {
			ok, err = a.findRoom(j, quota.Min, quota.Max)
		}
	} else {
		j.verdict = v
	}
	if !ok && err == nil {
		if ok, err = a.makeRoom(j, &quota, within); ok {
			a.p.keep = false
		}
	}
	switch {
	case err != nil:
		return false, err
	case !ok && within:
		return false, a.blocks(j)
	case !ok:
		return false, nil // quota, not room: nothing is kept for j and nobody waits behind it
	}
	if !a.expected(j) {
		a.flow++
	}
	a.reached(j, minTime)
	if err := a.grant(j); err != nil {
		return false, err
	}
	return true, a.settleCuts()
}

// makeRoom looks for room for j that others have: due holders, which are asked
// first, or those from whom it may take.
func (a *Admission) makeRoom(j *job, quota *lockstep.Request, within bool) (ok bool, err error) {
	if within {
		ok, err = a.displace(j, quota)
	}
	if !ok && err == nil {
		ok, err = a.preempt(j, quota, within)
	}
	return ok, err
}

// grant gives j the room of the scratch plan.
func (a *Admission) grant(j *job) error {
	if err := a.take(j, &a.scratch.plan); err != nil {
		return err
	}
	if a.p.keeps != nil {
		a.keepApart(j, a.p.keeps)
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
