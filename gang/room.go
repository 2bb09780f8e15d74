package gang

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// request starts the request for j on the scratch memory: its own counts and
// the nodes that a stay until end must not touch.
func (a *Admission) request(j *job, start, end int64) *lockstep.Request {
	r := &a.scratch.request
	*r = lockstep.Request{Gang: j.gang}
	out := a.scratch.exclude[:0]
	for i := range a.closed {
		out = append(out, a.closed[i].node)
	}
	for i := range a.windows {
		if w := &a.windows[i]; w.from < end && w.to > start {
			out = append(out, w.Nodes...)
		}
	}
	for i := range j.refused {
		out = append(out, j.refused[i].Node)
	}
	a.scratch.exclude = out
	if len(out) > 0 {
		r.Exclude = out
	}
	return r
}

// appendBusy appends the room of members, which are of gang g.
func appendBusy(dst []lockstep.Busy, g *lockstep.Gang, members []lockstep.Member) []lockstep.Busy {
	for i := range members {
		m := &members[i]
		d := &g.Roles[m.Role].Demand
		dst = append(dst, lockstep.Busy{Node: m.Node, Devices: m.Devices, CPU: d.CPU, Memory: d.Memory, RDMA: d.RDMA, Slots: 1})
	}
	return dst
}

// fit asks the placer and gives a collaborator's error its context.
func (a *Admission) fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	out.Reset()
	v, err := a.cfg.Placer.Fit(r, out)
	if err != nil {
		err = fmt.Errorf("gang: fit %s: %w", r.Gang.ID, err)
		if errors.Is(err, lockstep.ErrInvalid) || errors.Is(err, lockstep.ErrUnknown) {
			return v, &unplaceable{job: r.Gang.ID, err: err}
		}
		return v, &stumble{err}
	}
	if v.Feasible {
		out.Job, out.Gang = r.Gang.ID, r.Gang
	}
	return v, nil
}

// unplaceable is what the placer says of a gang that it can never place.
type unplaceable struct {
	job lockstep.JobID
	err error
}

func (u *unplaceable) Error() string { return u.err.Error() }

func (u *unplaceable) Unwrap() error { return u.err }

// stumble is an error that concerns one job and left everything as it was, so that
// a pass may go on to the next.
type stumble struct{ err error }

func (s *stumble) Error() string { return s.err.Error() }

func (s *stumble) Unwrap() error { return s.err }

// latestEnd is when j is over at the latest if it is granted room now and its
// estimate is true.
func (a *Admission) latestEnd(j *job) int64 {
	return later(later(a.now, a.hold(j)), j.wall())
}

// hold is how long the room of j is kept for it to confirm.
func (a *Admission) hold(j *job) int64 {
	switch {
	case a.cfg.StartAtOnce:
		return 0
	case j.gang.Hold != 0:
		return int64(j.gang.Hold)
	}
	return int64(a.cfg.Hold)
}

// limit sets r.Max by quota: all that j may have, else its least; v is why not
// even that.
func (a *Admission) limit(j *job, r *lockstep.Request, least, most []int) (v lockstep.Verdict, ok bool) {
	r.Min, r.Max = least, most
	if a.cfg.Quota == nil {
		return v, true
	}
	if v = a.cfg.Quota.Check(j.gang, least); !v.Feasible {
		if v.Reason == "" {
			v.Reason = lockstep.ReasonQuota
		}
		return v, false
	}
	if !slices.Equal(least, most) && !a.cfg.Quota.Check(j.gang, most).Feasible {
		r.Max = least
	}
	return v, true
}

// take applies plan for j and charges it; with an error nothing has changed.
func (a *Admission) take(j *job, plan *lockstep.Plan) error {
	if err := a.cfg.Placer.Apply(plan); err != nil {
		return fmt.Errorf("gang: apply %s: %w", j.id, err)
	}
	if a.cfg.Quota != nil {
		a.scratch.counts = plan.AppendCounts(a.scratch.counts[:0], len(j.gang.Roles))
		if err := a.cfg.Quota.Charge(j.gang, a.scratch.counts); err != nil {
			if undo := a.cfg.Placer.Release(j.id); undo != nil {
				return fmt.Errorf("gang: charge %s: %w (and release: %w)", j.id, err, undo)
			}
			return &stumble{fmt.Errorf("gang: charge %s: %w", j.id, err)}
		}
		j.charged = true
	}
	j.plan = plan.Clone()
	a.grants++
	a.setEnd(j, later(a.latestEnd(j), 0))
	if len(a.res) < a.depth() {
		a.tight++ // nothing has checked that this leaves later reservations their room
	}
	return nil
}

// giveBack releases all that j holds in placer and quota at time t.
// The refund comes first, since a charge can be made again where then the
// release fails; with an error nothing has changed.
func (a *Admission) giveBack(j *job, t int64) error {
	charged := j.charged
	if err := a.refund(j); err != nil || !j.holds() {
		return err
	}
	if err := a.release(j); err != nil {
		if charged {
			err = errors.Join(err, a.charge(j, a.countsOf(j.plan.Members, j)))
		}
		return err
	}
	onTime := j.end == t && j.phase == Running
	a.dropEnd(j)
	j.plan = nil
	if a.freedOnTime(); !onTime {
		a.flow++
	}
	return nil
}

func (a *Admission) refund(j *job) error {
	if !j.charged {
		return nil
	}
	if err := a.cfg.Quota.Refund(j.id); err != nil {
		return fmt.Errorf("gang: refund %s: %w", j.id, err)
	}
	j.charged = false
	a.freedOnTime() // reservations do not look at quota
	return nil
}

// setEnd files j, which holds room, under its expected end.
func (a *Admission) setEnd(j *job, end int64) {
	if i, found := slices.BinarySearchFunc(a.ends, j, byEnd); found && a.ends[i] == j {
		if j.end == end {
			return
		}
		a.ends = deleteAt(a.ends, i)
		a.flow++
	}
	j.end = end
	a.ends = insertSorted(a.ends, j, byEnd)
}

func (a *Admission) dropEnd(j *job) { a.ends = removeSorted(a.ends, j, byEnd) }

// setOld marks members, and no others any more, as still dirty with j. Whoever
// waits for j goes on waiting.
func (a *Admission) setOld(j *job, members []lockstep.Member) {
	a.unsoil(j)
	j.old = slices.Clone(members)
	for i := range j.old {
		list := a.dirty[j.old[i].Node]
		if k, found := slices.BinarySearchFunc(list, j, byID); !found {
			a.dirty[j.old[i].Node] = slices.Insert(list, k, j)
		}
	}
}

// clean takes note that j has left its old room, for those who wait for it.
func (a *Admission) clean(j *job) {
	if len(j.old) == 0 {
		return
	}
	a.unsoil(j)
	j.old = nil
	waiting := slices.Clone(a.awaiting)
	for _, w := range waiting {
		i, found := slices.BinarySearch(w.waits, j.id)
		if !found {
			continue
		}
		w.waits = slices.Delete(w.waits, i, i+1)
		if len(w.waits) == 0 {
			a.setWaits(w, nil)
			if w.phase == Awaiting && !w.replan {
				a.settle(w)
			}
		}
	}
	a.freed() // room that backfill took for endless is not any more
}

// unsoil takes j off the nodes of its old room.
func (a *Admission) unsoil(j *job) {
	for i := range j.old {
		node := j.old[i].Node
		list := removeSorted(a.dirty[node], j, byID)
		if len(list) == 0 {
			delete(a.dirty, node)
		} else {
			a.dirty[node] = list
		}
	}
}

// touchesDirty reports whether others are still leaving nodes of members.
func (a *Admission) touchesDirty(members []lockstep.Member) bool {
	if len(a.dirty) == 0 {
		return false
	}
	for i := range members {
		if len(a.dirty[members[i].Node]) > 0 {
			return true
		}
	}
	return false
}

// await lists who must leave before the room of j is clean: whoever is still
// leaving one of its nodes. Devices alone would not do, since processor and
// memory of the node are promised as well.
func (a *Admission) await(j *job) {
	var waits []lockstep.JobID
	for i := range j.plan.Members {
		for _, d := range a.dirty[j.plan.Members[i].Node] {
			waits = append(waits, d.id)
		}
	}
	slices.Sort(waits)
	a.setWaits(j, slices.Compact(waits))
}

func (a *Admission) setWaits(j *job, waits []lockstep.JobID) {
	i, found := slices.BinarySearchFunc(a.awaiting, j, byID)
	switch {
	case len(waits) > 0 && !found:
		a.awaiting = slices.Insert(a.awaiting, i, j)
	case len(waits) == 0 && found:
		a.awaiting = slices.Delete(a.awaiting, i, i+1)
	}
	j.waits = waits
}

// settle begins the hold of j, whose room is clean, or starts it at once.
func (a *Admission) settle(j *job) {
	a.attempts++
	j.attempt, j.told = a.attempts, true
	if a.cfg.StartAtOnce {
		a.begin(j)
		return
	}
	j.phase = Held
	j.deadline = later(a.now, a.hold(j))
	j.missing = len(j.plan.Members)
	j.confirmed = make([]bool, j.missing)
	a.timers.set(a, j.deadline, j)
	a.setEnd(j, later(j.deadline, j.wall()))
	a.emit(j, lockstep.Action{Kind: lockstep.ActionReserve, Plan: j.plan, Deadline: lockstep.FromNanos(j.deadline)})
}

// begin starts j, all of whose members are ready.
func (a *Admission) begin(j *job) {
	j.phase, j.confirmed, j.missing, j.lapses = Running, nil, 0, 0
	a.dropEnd(j)
	j.begun, j.shrunk, j.start = true, false, a.now
	end := later(j.start, j.wall())
	if end != j.end { // all members were ready before the deadline
		a.flow++
	}
	a.setEnd(j, end)
	j.spot = nil
	a.emit(j, lockstep.Action{Kind: lockstep.ActionStart, Plan: j.plan})
	a.observe(MetricWait, j, a.now-j.submit)
}

// emit puts an action about j into the answer of the next Step.
func (a *Admission) emit(j *job, x lockstep.Action) {
	x.Time, x.Job, x.Attempt = lockstep.FromNanos(a.now), j.id, j.attempt
	a.out = append(a.out, x)
	a.count(MetricActions, j, lockstep.Reason(x.Kind))
}

// overlaps reports whether any of members sits on a node of others.
func overlaps(members, others []lockstep.Member) bool {
	for i := range members {
		for k := range others {
			if members[i].Node == others[k].Node {
				return true
			}
		}
	}
	return false
}
