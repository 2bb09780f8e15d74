package gang

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// reservation is room that a blocked job is to have from a future time on.
type reservation struct {
	job     *job
	start   int64 // forever when no time is known: then the room is left alone by all
	end     int64
	overdue bool              // start is only "any moment": who is in the way ran past its estimate
	members []lockstep.Member // with spares behind

	id           uint64 // tells it and those before it from all others
	epoch, tight uint64 // the state it was found in
	flow         uint64 // what was expected of the future when it was found
}

// harm remembers a try of a job to run on plan beside the reservations: the one
// to start at first had no room then. It counts for its like on the same plan,
// while the state is the same, if neither their stays nor their own reservations
// come before that.
type harm struct {
	state [4]uint64 // epoch, flow, rooms given and reservations made
	now   int64
	first int64
	plan  []lockstep.Member // with spares behind
}

// timed reports whether r has a start that is worth waking up for.
func (r *reservation) timed() bool { return r.start != forever && !r.overdue }

// meets reports whether r needs its room at some time in [from, to).
func (r *reservation) meets(from, to int64) bool {
	return r.start == forever || r.start < to && from < r.end
}

// depth is how many blocked jobs may have reservations.
func (a *Admission) depth() int {
	switch {
	case a.what == nil:
		return 0
	case a.cfg.Backfill <= 1: // EASY, Strict
		return 1
	}
	return int(a.cfg.Backfill)
}

// appendReserved appends the room of the reservations, other than of skip, that
// a stay in [from, to) would meet; with blind only those without a time.
func (a *Admission) appendReserved(dst []lockstep.Busy, from, to int64, blind bool) []lockstep.Busy {
	for i := range a.res {
		r := &a.res[i]
		if r.meets(from, to) && (!blind || r.start == forever) {
			dst = appendBusy(dst, r.job.gang, r.members)
		}
	}
	return dst
}

// findRoom looks for room for the waiting job j that delays no reservation, and
// leaves it in the scratch plan. Where there is none, j.verdict says why.
func (a *Admission) findRoom(j *job, least, most []int) (bool, error) {
	if a.knownToFail(j) {
		return false, nil
	}
	end := a.latestEnd(j)
	a.p.tried++
	a.count(MetricFits, j, "")
	plan := &a.scratch.plan
	r := a.request(j, a.now, end)
	r.Min, r.Max, r.Prefer = least, most, a.preferred(j)
	v, err := a.fit(r, plan)
	if err != nil {
		return false, err
	}
	j.verdict, j.shape.placeable = v, true
	if !v.Feasible {
		a.noteFailed(j)
		return false, nil
	}
	ok := false
	if !a.harms(j, end) {
		n := a.countRest(j)
		ok = len(a.res) == 0
		if !ok {
			ok, err = a.fitAround(j, least, most, end)
		}
		a.res = a.res[:n]
	}
	if ok || err != nil {
		return ok, err
	}
	j.verdict.Feasible, j.verdict.Reason = false, lockstep.ReasonReserved
	a.noteDelays(j, end)
	return false, nil
}

// fitAround completes findRoom where there are reservations: the scratch plan
// holds what fits but for them.
func (a *Admission) fitAround(j *job, least, most []int, end int64) (bool, error) {
	plan := &a.scratch.plan
	if a.cfg.Backfill == Strict {
		return false, nil
	}
	// Room that others are still leaving is clean at an unknown time.
	if a.touchesDirty(room(plan)) {
		end = forever
	}
	busy := a.appendReserved(a.scratch.busy[:0], a.now, end, false)
	a.scratch.busy = busy
	if len(busy) == 0 {
		return true, nil
	}
	shadow := &a.scratch.shadow
	for !a.stands(j) { // else the search for its reservation has tried this
		r := a.request(j, a.now, end)
		r.Min, r.Max, r.Busy, r.Prefer = least, most, busy, a.preferred(j)
		v, err := a.fit(r, shadow)
		if err != nil {
			return false, err
		}
		if !v.Feasible {
			break
		}
		if end == forever || !a.touchesDirty(room(shadow)) {
			a.scratch.plan, a.scratch.shadow = a.scratch.shadow, a.scratch.plan
			return true, nil
		}
		end = forever
		busy = a.appendReserved(a.scratch.busy[:0], a.now, end, false)
		a.scratch.busy = busy
	}
	return a.harmless(j, least, most, end)
}

// harmless is the exact check: with j placed, and the holders gone that end
// before a reservation starts, does the reserved gang still fit at that time?
// Where all do, they keep their starts and may get other room.
func (a *Admission) harmless(j *job, least, most []int, end int64) (bool, error) {
	plan := &a.scratch.plan
	if busy := a.appendReserved(a.scratch.busy[:0], a.now, end, true); len(busy) > 0 {
		a.scratch.busy = busy
		r := a.request(j, a.now, end)
		r.Min, r.Max, r.Busy = least, most, busy
		if v, err := a.fit(r, plan); err != nil || !v.Feasible {
			return false, err
		}
	}
	mark := a.what.Mark()
	rooms, err := a.replay(j, plan, end)
	err = a.rollback(mark, err)
	if rooms == nil || err != nil {
		return false, err
	}
	for i := range a.res {
		if r := &a.res[i]; rooms[i] != nil && !slices.Equal(r.members, rooms[i]) {
			r.members, r.job.spot = rooms[i], rooms[i]
			a.p.shifted = true
		}
	}
	return true, nil
}

// replay applies plan of j and lets the holders end in order up to each timed
// reservation; it returns the room that each then has, or nil if one has none.
func (a *Admission) replay(j *job, plan *lockstep.Plan, end int64) ([][]lockstep.Member, error) {
	if err := a.cfg.Placer.Apply(plan); err != nil {
		return nil, fmt.Errorf("gang: apply %s: %w", j.id, err)
	}
	rooms := make([][]lockstep.Member, len(a.res))
	order, busy := a.byStart()
	endless := len(busy)
	released, ended := 0, false
	for n, i := range order {
		r := &a.res[i]
		first := released
		for released < len(a.ends) && a.ends[released].end <= r.start {
			released++
		}
		if err := a.letEnd(first, released); err != nil {
			return nil, err
		}
		if end <= r.start && !ended {
			ended = true
			if err := a.release(j); err != nil {
				return nil, err
			}
		}
		busy = busy[:endless]
		for _, k := range order[:n] {
			if o := &a.res[k]; o.meets(r.start, r.end) {
				busy = appendBusy(busy, o.job.gang, rooms[k])
			}
		}
		q := a.request(r.job, r.start, r.end)
		q.Busy, q.Max, q.Prefer = busy, r.job.minima, a.preferred(r.job)
		v, err := a.fit(q, &a.scratch.shadow)
		if err != nil || !v.Feasible {
			a.noteHarm(j, plan, end, r.start)
			return nil, err
		}
		rooms[i] = slices.Clone(room(&a.scratch.shadow))
	}
	return rooms, nil
}

// byStart returns the reservations that have a start, in the order of it, and the
// room of the others.
func (a *Admission) byStart() (order []int, endless []lockstep.Busy) {
	order, endless = make([]int, 0, len(a.res)), a.scratch.busy[:0]
	for i := range a.res {
		if r := &a.res[i]; r.start != forever {
			order = append(order, i)
		} else {
			endless = appendBusy(endless, r.job.gang, r.members)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return compareTimes(a.res[x].start, a.res[y].start) })
	return order, endless
}

func compareTimes(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// knownToFail reports whether an earlier try, of j or of a job of its shape,
// proves that j has no room now.
func (a *Admission) knownToFail(j *job) bool {
	s := j.shape
	switch {
	case s.affinity && j.grants != a.grants:
		return false
	case j.failed == a.epoch:
		return true
	case a.stillDelays(j.delays):
		return true
	case s.affinity || len(a.windows) > 0 || len(j.refused) > 0:
		return false
	case s.failed == a.epoch:
		j.verdict = s.verdict
		return true
	case a.stillDelays(s.delays) && a.outlasts(a.latestEnd(j)):
		j.verdict.Feasible, j.verdict.Reason, j.verdict.Want = false, lockstep.ReasonReserved, j.gang.MaxMembers()
		return true
	}
	return false
}

// outlasts reports whether a stay from now to end meets every reservation.
func (a *Admission) outlasts(end int64) bool {
	for i := range a.res {
		if !a.res[i].meets(a.now, end) {
			return false
		}
	}
	return true
}

// noteFailed remembers that j does not fit until room is freed.
func (a *Admission) noteFailed(j *job) {
	j.failed, j.grants = a.epoch, a.grants
	if len(a.windows) == 0 && len(j.refused) == 0 {
		j.shape.failed, j.shape.verdict = a.epoch, j.verdict
	}
}

// noteHarm remembers that plan, for j until end, leaves the reservation that
// starts at start without room.
func (a *Admission) noteHarm(j *job, plan *lockstep.Plan, end, start int64) {
	i := a.promised(j)
	if !a.p.keep || i >= 0 && a.p.rest[i].start <= start || end <= start {
		return
	}
	h := &j.shape.harm
	h.state, h.now, h.first = a.harmState(), a.now, start
	h.plan = append(append(h.plan[:0], plan.Members...), plan.Spares...)
}

func (a *Admission) harmState() [4]uint64 { return [4]uint64{a.epoch, a.flow, a.grants, a.gen} }

// harms reports whether it is known that j, until end on the scratch plan, leaves
// some reservation without room.
func (a *Admission) harms(j *job, end int64) bool {
	h := &j.shape.harm
	if h.state != a.harmState() || h.now != a.now || !a.p.keep || end <= h.first {
		return false
	}
	i := a.promised(j)
	return i >= 0 && a.p.rest[i].start > h.first && a.stands(j) && slices.Equal(h.plan, room(&a.scratch.plan))
}

// stands reports whether j was promised a start that is still to come and the
// earliest there is beside all reservations, since nothing else is expected of
// the future than when it was found.
func (a *Admission) stands(j *job) bool {
	if i := a.promised(j); i >= 0 {
		r := &a.p.rest[i]
		return r.flow == a.flow && r.start > a.now && r.start != forever && !r.overdue &&
			len(a.windows) == 0 && len(j.refused) == 0 && !j.shape.affinity
	}
	return false
}

// delay is the present reservations as a delay remembers them.
func (a *Admission) delay() delay {
	if a.restCounts() {
		return delay{Epoch: a.epoch, ID: a.flow, Count: -1}
	}
	n := len(a.res)
	return delay{Epoch: a.epoch, ID: a.res[n-1].id, Count: n}
}

func (a *Admission) stillDelays(d delay) bool {
	if d.Count < 0 {
		return a.restCounts() && d.Epoch == a.epoch && d.ID == a.flow
	}
	return d.Count > 0 && d.Epoch == a.epoch && len(a.res) >= d.Count && a.res[d.Count-1].id == d.ID
}

// noteDelays remembers that j would delay a reservation until one changes.
func (a *Admission) noteDelays(j *job, end int64) {
	j.delays, j.grants = a.delay(), a.grants
	if !a.restCounts() && len(a.windows) == 0 && len(j.refused) == 0 && a.outlasts(end) {
		j.shape.delays = j.delays
	}
}
