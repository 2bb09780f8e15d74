package gang

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// blocks takes note that j has no room now: it gets a reservation if there is
// one left to have and if it would fit an otherwise empty cluster at all.
func (a *Admission) blocks(j *job) error {
	switch j.verdict.Reason {
	case lockstep.ReasonCapacity, lockstep.ReasonUnsupported:
		return nil
	}
	a.p.blocked = true
	if a.what == nil {
		switch j.verdict.Reason {
		case lockstep.ReasonBusy, lockstep.ReasonFragmented, lockstep.ReasonReserved:
			a.p.strict = true
		}
		return nil
	}
	i := len(a.res)
	if i >= a.depth() || j.shape.impossible == a.opens && len(j.refused) == 0 {
		return nil
	}
	if i < len(a.p.before) && a.p.same {
		if old := &a.p.before[i]; old.job == j && old.epoch == a.epoch && old.tight == a.tight && !(old.timed() && old.start <= a.now) {
			a.keepReservation(*old)
			return nil
		}
	}
	if a.promised(j) == 0 && a.stands(j) {
		a.keepReservation(a.p.rest[0])
		return nil
	}
	if a.stillDelays(j.roomless) {
		return nil
	}
	return a.reserve(j)
}

// keepReservation makes r, of the pass before, one of this pass.
func (a *Admission) keepReservation(r reservation) {
	r.members = r.job.spot
	r.job.kept = a.pass
	a.res = append(a.res, r)
	a.reached(r.job, r.start)
}

// reserve looks for the earliest start of j and gives it a reservation.
func (a *Admission) reserve(j *job) error {
	spot := j.spot
	n := a.countRest(j)
	r, found, err := a.search(j)
	a.res = a.res[:n]
	if err == nil && a.slips(j, r.start, found) {
		r, found, err = a.search(j)
	}
	if err != nil {
		return err
	}
	if !found {
		a.reached(j, forever)
		a.noteRoomless(j)
		return nil
	}
	i := a.promised(j)
	asBefore := i >= 0 && r.start == a.p.rest[i].start && r.end == a.p.rest[i].end && slices.Equal(spot, r.members)
	if !asBefore && (i >= 0 || len(a.p.rest) > 0) {
		a.flow++
	}
	a.reached(j, r.start)
	a.p.same = false
	a.gen++
	r.id, r.epoch, r.tight, r.flow = a.gen, a.epoch, a.tight, a.flow
	j.kept = a.pass
	a.res = append(a.res, r)
	return nil
}

// expected reports whether that j has the scratch plan from now on changes nothing
// for those who were promised a start: it is what j was promised, or beside it all.
func (a *Admission) expected(j *job) bool {
	if a.p.shifted {
		return false
	}
	i := a.promised(j)
	if i < 0 {
		return len(a.p.rest) == 0
	}
	r := &a.p.rest[i]
	return r.start == a.now && r.end == a.latestEnd(j) && slices.Equal(j.spot, room(&a.scratch.plan))
}

// countRest makes the reservations of the pass before that the order has not
// reached count for j, if j had one of them and nobody new came in ahead: where
// jobs may have several, none may move another back while it moves forward. The
// caller cuts them off again, to the length returned.
func (a *Admission) countRest(j *job) int {
	n := len(a.res)
	if a.promised(j) < 0 {
		return n
	}
	for _, r := range a.p.rest {
		if r.job != j && r.job.phase == Queued {
			r.members = r.job.spot
			a.res = append(a.res, r)
		}
	}
	return n
}

// overdue reports whether the time that j was promised has come, and yet it has no
// room beside the promises made to those behind. Then these count no more: they
// must not hold up whoever they come after.
func (a *Admission) overdue(j *job) bool {
	i := a.promised(j)
	if i < 0 || a.p.rest[i].start > a.now {
		return false
	}
	a.p.keep = false
	return true
}

// slips reports whether j would start later than it was promised, beside the
// promises made to those behind. Then these count no more.
func (a *Admission) slips(j *job, start int64, found bool) bool {
	i := a.promised(j)
	if i < 0 || found && start <= a.p.rest[i].start {
		return false
	}
	a.p.keep = false
	return true
}

// promised is the place of j in the rest, or -1; also where the rest does not count.
func (a *Admission) promised(j *job) int {
	if !a.p.keep {
		return -1
	}
	return slices.IndexFunc(a.p.rest, func(r reservation) bool { return r.job == j })
}

// restCounts reports whether there are promises to jobs that the order has not
// reached, and they count.
func (a *Admission) restCounts() bool { return a.p.keep && len(a.p.rest) > 0 }

// reached takes note of the start that j got in this pass. One that is new, or
// later than j was promised, upsets the promises made to those behind.
func (a *Admission) reached(j *job, start int64) {
	if !a.p.keep {
		return
	}
	i := slices.IndexFunc(a.p.rest, func(r reservation) bool { return r.job == j })
	if i < 0 {
		a.p.keep = start == forever || len(a.p.rest) == 0 // nothing was given to it, or to nobody's loss
		return
	}
	a.p.keep = start <= a.p.rest[i].start
	if i == 0 {
		a.p.rest = a.p.rest[1:]
	} else {
		a.p.rest = slices.Delete(a.p.rest, i, i+1)
	}
}

// noteRoomless remembers that j would not fit even if all holders left: not an
// empty cluster, or not beside reservations without a time.
func (a *Admission) noteRoomless(j *job) {
	switch {
	case j.shape.affinity || len(a.trials) > 0: // what is set apart is so for a while only
	case len(a.res) > 0 || len(a.p.rest) > 0 && a.p.keep:
		j.roomless = a.delay()
	case len(j.refused) == 0:
		j.shape.impossible = a.opens
	}
}

// search finds when and where j has room, by letting the holders end in the
// order of their estimates. It changes nothing.
func (a *Admission) search(j *job) (reservation, bool, error) {
	mark := a.what.Mark()
	r, found, err := a.searchAhead(j)
	err = a.rollback(mark, err)
	return r, found, err
}

func (a *Admission) searchAhead(j *job) (r reservation, found bool, err error) {
	known, _ := slices.BinarySearchFunc(a.ends, int64(forever), func(j *job, t int64) int { return compareTimes(j.end, t) })
	r.job = j
	if len(a.res) == 0 && len(a.windows) == 0 && !j.shape.affinity {
		n, err := a.endsNeeded(j, 0, known, false)
		if err != nil {
			return r, false, err
		}
		if n > 0 {
			last := a.ends[n-1].end
			return a.timedAt(r, max(last, a.now+1), last <= a.now), true, nil
		}
	} else {
		at, overdue, ok, err := a.walk(j, known)
		if err != nil {
			return r, false, err
		}
		if ok {
			return a.timedAt(r, at, overdue), true, nil
		}
	}
	return a.searchEndless(r, known)
}

// searchEndless is for where no known end suffices. Then the room is kept from
// everybody, so that it can only empty; and it stays the same room for as long as
// that will do.
func (a *Admission) searchEndless(r reservation, known int) (reservation, bool, error) {
	j := r.job
	r.start, r.end = forever, forever
	if j.spot != nil {
		ok, err := a.respot(j, known)
		if err != nil {
			return r, false, err
		}
		if ok {
			r.members = a.keepSpot(j)
		} else {
			j.spot = nil
		}
		return r, ok, nil
	}
	n, err := a.endsNeeded(j, known, len(a.ends), true)
	if err != nil || n == 0 {
		return r, false, err
	}
	r.members = a.keepSpot(j)
	return r, true, nil
}

// timedAt completes r with the room in the shadow plan from start on.
func (a *Admission) timedAt(r reservation, start int64, overdue bool) reservation {
	r.start, r.overdue = start, overdue
	r.end = later(later(start, a.lead(r.job)), r.job.wall())
	r.members = a.keepSpot(r.job)
	return r
}

// keepSpot makes the room in the shadow plan the one that j is promised.
func (a *Admission) keepSpot(j *job) []lockstep.Member {
	if r := room(&a.scratch.shadow); !slices.Equal(j.spot, r) {
		j.spot = slices.Clone(r)
	}
	return j.spot
}

// preferred is the room that j was promised last, so that it stays the same for
// as long as that will do, and other promises with it.
func (a *Admission) preferred(j *job) *lockstep.Plan {
	if j.spot == nil {
		return nil
	}
	p := &a.scratch.prefer
	n := min(j.gang.MinMembers(), len(j.spot)) // members before spares
	*p = lockstep.Plan{Job: j.id, Gang: j.gang, Members: j.spot[:n], Spares: j.spot[n:]}
	return p
}

// fitAhead tries j at time t in the state that the what-if has reached. At t
// forever, which is some time unknown, only present windows stand in the way.
func (a *Admission) fitAhead(j *job, t int64) (bool, error) {
	from, to := t, later(later(t, a.lead(j)), j.wall())
	if t == forever {
		from, to = a.now, a.now+1
	}
	r := a.request(j, from, to)
	if t == forever {
		to = forever
	}
	r.Max, r.Prefer = j.minima, a.preferred(j)
	a.scratch.busy = a.appendReserved(a.scratch.busy[:0], from, to, false)
	r.Busy = a.scratch.busy
	v, err := a.fit(r, &a.scratch.shadow)
	return v.Feasible, err
}

func (a *Admission) letEnd(from, to int) error {
	for _, h := range a.ends[from:to] {
		if err := a.release(h); err != nil {
			return err
		}
	}
	return nil
}

// endsNeeded finds the smallest n in (from, to] for which j fits once ends[:n]
// have ended, given that ends[:from] have; 0 if there is none. The room is left
// in the shadow plan.
func (a *Admission) endsNeeded(j *job, from, to int, blind bool) (int, error) {
	fits := func(n int) (bool, error) {
		if blind {
			return a.fitAhead(j, forever)
		}
		return a.fitAhead(j, max(a.ends[n-1].end, a.now+1))
	}
	if blind && from == to {
		// Nobody's end is unknown: what stands in the way is only a window.
		ok, err := fits(to)
		if ok && err == nil {
			return max(to, 1), nil
		}
		return 0, err
	}
	return a.fewest(from, to, func(i int) error { return a.release(a.ends[i]) }, fits)
}

// fewest finds the smallest n in (from, to] for which fits holds once everything
// before n is released, given that everything before from is; 0 if there is
// none. It doubles its steps and then halves them, so it is exact where room
// freed never hinders. It ends in the state of n, with fits asked last of it.
func (a *Admission) fewest(from, to int, release func(i int) error, fits func(n int) (bool, error)) (int, error) {
	lo, hi, step := from, to, 1
	fine := false // hi is known to suffice
	for lo < hi {
		next := min(lo+step, to)
		if fine {
			next = lo + (hi-lo)/2
			if next == lo {
				break
			}
		}
		mark := a.what.Mark()
		ok, err := a.tryAfter(lo, next, release, fits)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			lo, step = next, 2*step
			continue
		case next == lo+1:
			return next, nil
		}
		if err := a.rollback(mark, nil); err != nil {
			return 0, err
		}
		fine, hi = true, next
	}
	if !fine {
		return 0, nil
	}
	if ok, err := a.tryAfter(lo, hi, release, fits); err != nil || !ok {
		return 0, err
	}
	return hi, nil
}

// tryAfter releases everything in [from, to) and asks whether to suffices.
func (a *Admission) tryAfter(from, to int, release func(i int) error, fits func(n int) (bool, error)) (bool, error) {
	for i := from; i < to; i++ {
		if err := release(i); err != nil {
			return false, err
		}
	}
	return fits(to)
}

// walk tries j at every time at which room may come back: a known end of a
// holder, of a reservation or of a window. It is exact, and slower than endsNeeded.
func (a *Admission) walk(j *job, known int) (at int64, overdue, ok bool, err error) {
	times := a.scratch.times[:0]
	for _, h := range a.ends[:known] {
		times = append(times, max(h.end, a.now+1))
	}
	for i := range a.res {
		if e := a.res[i].end; e != forever && e > a.now {
			times = append(times, e)
		}
	}
	for i := range a.windows {
		times = append(times, a.windows[i].to)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	a.scratch.times = times
	n := 0
	earliest := a.notBefore(j)
	for _, t := range times {
		if t < earliest {
			continue
		}
		first := n
		for n < known && a.ends[n].end <= t {
			n++
		}
		if err := a.letEnd(first, n); err != nil {
			return 0, false, false, err
		}
		ok, err := a.fitAhead(j, t)
		if err != nil {
			return 0, false, false, err
		}
		if ok {
			return t, n > first && a.ends[n-1].end <= a.now, true, nil
		}
	}
	return 0, false, false, nil
}

// notBefore returns a time before which j, which was promised nothing yet, cannot
// start beside the reservations: the latest start of its like that run no longer.
func (a *Admission) notBefore(j *job) int64 {
	earliest := int64(minTime)
	if len(a.p.rest) > 0 || len(a.windows) > 0 || len(j.refused) > 0 || j.shape.affinity || a.depth() == 1 {
		return earliest
	}
	for i := range a.res {
		r := &a.res[i]
		if r.job.shape == j.shape && r.flow == a.flow && r.start > earliest && r.timed() && r.job.span <= j.span && len(r.job.refused) == 0 {
			earliest = r.start
		}
	}
	return earliest
}

// respot checks that j would still fit if every holder left, and moves its room
// only as far as the placer must.
func (a *Admission) respot(j *job, known int) (bool, error) {
	if err := a.letEnd(known, len(a.ends)); err != nil {
		return false, err
	}
	return a.fitAhead(j, forever)
}
