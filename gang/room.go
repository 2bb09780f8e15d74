package gang

import (
	"cmp"
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

// room returns all the room of p: that of its members, then that of its spares.
func room(p *lockstep.Plan) []lockstep.Member {
	if len(p.Spares) == 0 {
		return p.Members
	}
	return slices.Concat(p.Members, p.Spares)
}

// appendBusy appends the room of members or spares, which are of gang g. A MIG
// instance has its device left alone wholly.
func appendBusy(dst []lockstep.Busy, g *lockstep.Gang, members []lockstep.Member) []lockstep.Busy {
	for i := range members {
		m := &members[i]
		d := &g.Roles[m.Role].Demand
		b := lockstep.Busy{Node: m.Node, Devices: m.Devices, CPU: d.CPU, Memory: d.Memory, RDMA: d.RDMA, Slots: 1}
		if d.Share < lockstep.WholeGPU {
			b.Share = d.Share
		}
		if b.Share > 0 {
			b.GPUMemory = d.GPUMemory
		}
		dst = append(dst, b)
	}
	return dst
}

// fit asks the placer and gives a collaborator's error its context.
func (a *Admission) fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	out.Reset()
	if len(a.trials) > 0 {
		a.setApart(r)
	}
	v, err := a.cfg.Placer.Fit(r, out)
	if err != nil {
		return v, fitFault("fit", r.Gang.ID, err)
	}
	if v.Feasible {
		out.Job, out.Gang = r.Gang.ID, r.Gang
	}
	return v, nil
}

// fitFault gives an error of the placer about one gang its context.
func fitFault(what string, id lockstep.JobID, err error) error {
	invalid := errors.Is(err, lockstep.ErrInvalid) || errors.Is(err, lockstep.ErrUnknown)
	if err = fmt.Errorf("gang: %s %s: %w", what, id, err); invalid {
		return &unplaceable{job: id, err: err}
	}
	return &stumble{err}
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
	return later(later(a.now, a.lead(j)), j.wall())
}

// lead is how long it is at the most from room to start: one hold, or two with a
// trial before.
func (a *Admission) lead(j *job) int64 {
	hold := a.hold(j)
	if j.gang.Canary > 0 {
		return later(hold, hold)
	}
	return hold
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
		if v.Want == 0 {
			v.Want = j.gang.MaxMembers()
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
	j.plan = own(plan, j)
	a.grants++
	a.setEnd(j, later(a.latestEnd(j), 0))
	if len(a.res) < a.depth() {
		a.tight++ // nothing has checked that this leaves later reservations their room
	}
	return nil
}

// own returns a copy of plan for j, which may have been fitted for less.
func own(plan *lockstep.Plan, j *job) *lockstep.Plan {
	p := plan.Clone()
	if p.Gang = j.gang; len(p.Spares) == 0 {
		p.Spares = nil
	}
	return p
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
	err := a.uncharge(j)
	if err == nil {
		a.freedOnTime() // reservations do not look at quota
	}
	return err
}

// uncharge is refund without taking note that there is more quota now.
func (a *Admission) uncharge(j *job) error {
	if !j.charged {
		return nil
	}
	if err := a.cfg.Quota.Refund(j.id); err != nil {
		return fmt.Errorf("gang: refund %s: %w", j.id, err)
	}
	j.charged = false
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
	} else {
		a.countLevel(j, 1)
	}
	j.end = end
	a.ends = insertSorted(a.ends, j, byEnd)
}

func (a *Admission) dropEnd(j *job) {
	n := len(a.ends)
	if a.ends = removeSorted(a.ends, j, byEnd); len(a.ends) < n {
		a.countLevel(j, -1)
	}
}

// countLevel counts the holder j in or out, where that is of use.
func (a *Admission) countLevel(j *job, n int) {
	if !a.takes || !j.gang.Capabilities.Preemptible {
		return
	}
	p := j.gang.Priority
	i, found := slices.BinarySearchFunc(a.levels, p, func(l level, p lockstep.Priority) int { return cmp.Compare(l.priority, p) })
	if !found {
		a.levels = slices.Insert(a.levels, i, level{priority: p})
	}
	if a.levels[i].holders += n; a.levels[i].holders == 0 {
		a.levels = slices.Delete(a.levels, i, i+1)
	}
}

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
	for _, m := range room(j.plan) {
		for _, d := range a.dirty[m.Node] {
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
	told, last := j.plan, j.deadline
	if j.keeps == nil {
		j.trial = a.trialSize(j, j.plan)
	}
	switch {
	case j.keeps != nil:
		last = forever
	case j.trial > 0:
		told = j.plan.Clone()
		told.Members, told.Spares = told.Members[:j.trial], nil
		last = later(j.deadline, a.hold(j))
	}
	j.missing = len(told.Members)
	j.confirmed = make([]bool, j.missing)
	a.timers.set(a, j.deadline, j)
	a.setEnd(j, later(last, j.wall()))
	a.emit(j, lockstep.Action{Kind: lockstep.ActionReserve, Plan: told, Deadline: lockstep.FromNanos(j.deadline)})
}

// begin starts j, all of whose members are ready.
func (a *Admission) begin(j *job) {
	j.phase, j.confirmed, j.missing, j.lapses, j.tried, j.taken = Running, nil, 0, 0, false, 0
	a.runs++
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
