package gang

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// A gang with a Canary has its first members tried before the others: the first
// reserve names only them, and when they have confirmed, a second one names all.
//
// Where there is room for the whole gang, it has all of it applied from the start.
// Where room would have to be taken from others, only what the first members need is
// applied, and taken, and the rest of the room found is set apart: nobody else is
// given it. When they have confirmed, the whole room is looked for anew, near that.

// trialSize is how many members of p, the room of j, are to be tried first, in
// whole inner groups; 0 means none.
func (a *Admission) trialSize(j *job, p *lockstep.Plan) int {
	n := j.gang.Canary
	if n == 0 || a.cfg.StartAtOnce || j.tried {
		return 0
	}
	for n < len(p.Members) && !groupBegins(j.gang, p.Members, n) {
		n++
	}
	if n >= len(p.Members) {
		return 0
	}
	return n
}

// groupBegins reports whether an inner group begins with members[n].
func groupBegins(g *lockstep.Gang, members []lockstep.Member, n int) bool {
	role := members[n].Role
	first := slices.IndexFunc(members, func(m lockstep.Member) bool { return m.Role == role })
	return (n-first)%max(g.Roles[role].Inner.Size, 1) == 0
}

// startTrial sees whether the room in the scratch plan, for which cuts would be
// made, is to be tried with some members of j first. Then it returns those of cuts
// that this takes, and what is to be kept is noted in the pass.
func (a *Admission) startTrial(j *job, cuts []cut) ([]cut, error) {
	n := a.trialSize(j, &a.scratch.plan)
	if n == 0 || len(cuts) == 0 {
		return cuts, nil
	}
	whole := a.scratch.plan.Clone()
	var small []cut
	for _, c := range cuts {
		if overlaps(whole.Members[:n], room(c.job.plan)) {
			small = append(small, c)
		}
	}
	mark := a.what.Mark()
	ok, err := a.tryTrial(j, whole, n, small)
	if err = a.rollback(mark, err); err != nil || !ok {
		return cuts, err
	}
	a.p.keeps, a.p.trial = whole, n
	return small, nil
}

// tryTrial reports whether the first n members of whole get their room, and quota,
// once cuts are made.
func (a *Admission) tryTrial(j *job, whole *lockstep.Plan, n int, cuts []cut) (ok bool, err error) {
	for _, c := range cuts {
		if err := a.release(c.job); err != nil {
			return false, err
		}
	}
	if ok, err = a.fitTrial(j, whole, n, cuts); !ok || err != nil {
		return ok, err
	}
	return a.quotaAfter(j, a.countsOf(whole.Members[:n], j), cuts)
}

// fitTrial fits the first n members of whole, where they are in it, clear of all
// reservations and of what the jobs of cuts keep.
func (a *Admission) fitTrial(j *job, whole *lockstep.Plan, n int, cuts []cut) (bool, error) {
	busy := a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	for i := range cuts {
		busy = cuts[i].appendKept(busy)
	}
	a.scratch.busy = busy
	r := a.request(j, a.now, a.latestEnd(j))
	counts := a.countsOf(whole.Members[:n], j)
	r.Gang, r.Min, r.Max, r.Busy = withoutSpares(j.gang), counts, counts, busy
	r.Prefer = &lockstep.Plan{Job: j.id, Gang: j.gang, Members: whole.Members[:n]}
	v, err := a.fit(r, &a.scratch.plan)
	return v.Feasible && slices.Equal(a.scratch.plan.Members, whole.Members[:n]), err
}

// keepApart takes note that j, which holds the first members' room of whole, has the
// rest set apart for it.
func (a *Admission) keepApart(j *job, whole *lockstep.Plan) {
	j.keeps, j.trial = whole, len(j.plan.Members)
	a.trials = insertSorted(a.trials, j, byID)
}

// endApart ends what keepApart began.
func (a *Admission) endApart(j *job) {
	j.trial = 0
	a.passed = removeSorted(a.passed, j, byID)
	if j.keeps != nil {
		a.trials = removeSorted(a.trials, j, byID)
		j.keeps = nil
		a.freed()
	}
}

// apart is what is set apart for j, which is on trial.
func (j *job) apart() []lockstep.Member { return room(j.keeps)[len(j.plan.Members):] }

// setApart makes r leave alone what is set apart for others.
func (a *Admission) setApart(r *lockstep.Request) {
	for _, t := range a.trials {
		if t.id != r.Gang.ID {
			r.Busy = appendBusy(r.Busy, t.gang, t.apart())
		}
	}
}

// pass takes note that all members of j on trial have confirmed.
func (a *Admission) passTrial(j *job) {
	n := j.trial
	j.trial, j.tried = 0, true
	if j.keeps != nil { // the next pass makes room for the others
		j.deadline = forever
		a.passed = insertSorted(a.passed, j, byID)
		a.stale = true
		return
	}
	a.settle(j)
	for rank := range n {
		j.confirmed[rank] = true
	}
	j.missing -= n
}

// expandTrials makes room for the whole of gangs whose trial went well, beside the
// reservations of the pass before, but for those that count on their leaving. It
// comes before anybody's turn, since they have had theirs.
func (a *Admission) expandTrials(before []reservation) error {
	defer func() { a.res = a.res[:0] }()
	for len(a.passed) > 0 {
		j := a.passed[0]
		a.res = a.res[:0]
		for _, r := range before {
			if !overlaps(r.members, room(j.keeps)) {
				a.res = append(a.res, r)
			}
		}
		if err := a.expand(j); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admission) expand(j *job) error {
	whole := j.keeps
	if err := a.giveBack(j, a.now); err != nil {
		return err
	}
	a.endApart(j)
	j.confirmed, j.missing = nil, 0
	ok, err := a.findWhole(j, whole)
	if ok && err == nil {
		err = a.take(j, &a.scratch.plan)
	}
	if !ok || err != nil {
		a.giveUp(j, lockstep.ReasonBusy)
		return err
	}
	j.phase = Awaiting
	a.await(j)
	if len(j.waits) == 0 {
		a.settle(j)
	}
	return a.settleCuts()
}

// findWhole looks for room for the least of j, where whole has it if that will do,
// beside all reservations, and takes it from others if there is none.
func (a *Admission) findWhole(j *job, whole *lockstep.Plan) (bool, error) {
	var quota lockstep.Request
	_, within := a.limit(j, &quota, j.minima, j.minima)
	if within {
		r := a.request(j, a.now, a.latestEnd(j))
		a.scratch.busy = a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
		r.Min, r.Max, r.Prefer, r.Busy = j.minima, j.minima, whole, a.scratch.busy
		v, err := a.fit(r, &a.scratch.plan)
		if v.Feasible || err != nil {
			return v.Feasible, err
		}
	}
	return a.preempt(j, &quota, within)
}
