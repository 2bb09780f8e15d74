package gang

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// The reasons that this package gives beside those of the root package.
const (
	ReasonLapsed    lockstep.Reason = "lapsed"    // ReasonLapsed: not every member confirmed before the hold's deadline.
	ReasonRefused   lockstep.Reason = "refused"   // ReasonRefused: a node failed preflight and there is no other room now.
	ReasonLost      lockstep.Reason = "lost"      // ReasonLost: a node of the gang is down.
	ReasonTerm      lockstep.Reason = "term"      // ReasonTerm: its term is over and its room goes to another.
	ReasonCancelled lockstep.Reason = "cancelled" // ReasonCancelled: it is no longer wanted.
	ReasonFinished  lockstep.Reason = "finished"  // ReasonFinished: it ended by itself.
	ReasonFailed    lockstep.Reason = "failed"    // ReasonFailed: it died.
	ReasonInvalid   lockstep.Reason = "invalid"   // ReasonInvalid: the placer can never place it, such as for a level that does not exist.
	ReasonBackoff   lockstep.Reason = "backoff"   // ReasonBackoff: its last hold lapsed; it is tried again later.
	ReasonPreempted lockstep.Reason = "preempted" // ReasonPreempted: its room goes to another of its queue that comes first.
	ReasonReclaimed lockstep.Reason = "reclaimed" // ReasonReclaimed: its room goes to one of another tenant or queue.
)

// Apply takes note of e by the method of its kind. An attempt in an event is that of
// the action it answers, so that late ones are told apart (lockstep.ErrStale); 0
// means whichever is present.
func (a *Admission) Apply(e lockstep.Event) error {
	switch e.Kind {
	case lockstep.EventSubmit:
		return a.Submit(e.Time, e.Gang)
	case lockstep.EventCancel:
		return a.Cancel(e.Time, e.Job)
	case lockstep.EventConfirm:
		return a.Confirm(e.Time, e.Job, e.Attempt, e.Rank)
	case lockstep.EventRefuse:
		return a.Refuse(e.Time, e.Job, e.Attempt, e.Node)
	case lockstep.EventFinish:
		return a.Finish(e.Time, e.Job, e.Attempt)
	case lockstep.EventFail:
		return a.Fail(e.Time, e.Job, e.Attempt, e.Reason)
	case lockstep.EventEvicted:
		return a.Evicted(e.Time, e.Job, e.Attempt)
	case lockstep.EventDue:
		return a.Due(e.Time, e.Job, e.Attempt)
	case lockstep.EventDown:
		return a.Down(e.Time, e.Node)
	case lockstep.EventUp:
		return a.Up(e.Time, e.Node)
	case lockstep.EventCordon:
		return a.Cordon(e.Time, e.Node)
	case lockstep.EventOpen:
		return a.Open(e.Time, e.Node)
	}
	return fault(lockstep.ErrInvalid, "apply", "Kind", strconv.Quote(string(e.Kind)), "not an event")
}

// Submit queues g, which belongs to a from now on. A name in use is
// lockstep.ErrDuplicate; one whose job has left may be used again.
func (a *Admission) Submit(now time.Time, g *lockstep.Gang) error {
	t, err := a.at("submit", now)
	if err != nil {
		return err
	}
	if g == nil {
		return fault(lockstep.ErrInvalid, "submit", "Gang", "nil", "required")
	}
	if err := g.Validate(); err != nil {
		return err
	}
	if err := a.vacant("submit", g.ID); err != nil {
		return err
	}
	a.vacate(g.ID)
	a.now = t
	j := newJob(g, t)
	a.addShape(j)
	a.jobs[g.ID] = j
	a.enqueue(j)
	a.stale = true
	return nil
}

// vacant checks that a new job may have the name id.
func (a *Admission) vacant(op string, id lockstep.JobID) error {
	if old := a.jobs[id]; old != nil && old.phase != Gone {
		return fault(lockstep.ErrDuplicate, op, "ID", strconv.Quote(string(id)), "is "+string(old.phase))
	}
	return nil
}

// vacate forgets the job of name id that left.
func (a *Admission) vacate(id lockstep.JobID) {
	if old := a.jobs[id]; old != nil {
		a.forget(old)
	}
}

// Adopt takes in a gang that runs already, since started, on a plan that the
// placer has taken in too. Its quota is charged, whatever Check would say.
func (a *Admission) Adopt(now time.Time, plan *lockstep.Plan, started time.Time) error {
	t, err := a.at("adopt", now)
	if err != nil {
		return err
	}
	s, err := lockstep.Nanos(started)
	if err != nil || s > t {
		return fault(lockstep.ErrInvalid, "adopt", "started", started.String(), "must not be after now")
	}
	if err := adoptable(plan); err != nil {
		return err
	}
	if err := a.vacant("adopt", plan.Job); err != nil {
		return err
	}
	j := newJob(plan.Gang, t)
	if err := a.charge(j, plan.AppendCounts(nil, len(plan.Gang.Roles))); err != nil {
		return err
	}
	a.vacate(plan.Job)
	a.now = t
	a.addShape(j)
	a.jobs[j.id] = j
	a.attempts++
	j.attempt, j.plan, j.phase, j.begun, j.start = a.attempts, plan.Clone(), Running, true, s
	a.setEnd(j, later(s, j.wall()))
	a.runs++
	a.freed() // and the placer's room changed under reservations
	return nil
}

// adoptable checks that plan is one that a pass could have made.
func adoptable(plan *lockstep.Plan) error {
	invalid := func(field, value, reason string) error {
		return fault(lockstep.ErrInvalid, "adopt", "plan"+field, value, reason)
	}
	if plan == nil || plan.Gang == nil {
		return invalid("", "nil", "want a plan with its gang")
	}
	if err := plan.Gang.Validate(); err != nil {
		return err
	}
	if plan.Job != plan.Gang.ID {
		return invalid(".Job", strconv.Quote(string(plan.Job)), "its gang is "+string(plan.Gang.ID))
	}
	for _, list := range []struct {
		field   string
		members []lockstep.Member
	}{{".Members[", plan.Members}, {".Spares[", plan.Spares}} {
		last := lockstep.Member{}
		for i, m := range list.members {
			at := list.field + strconv.Itoa(i) + "]"
			switch {
			case m.Role < last.Role || int(m.Role) >= len(plan.Gang.Roles):
				return invalid(at+".Role", strconv.Itoa(int(m.Role)), "want the gang's roles in their order")
			case m.Node.Validate() != nil:
				return invalid(at+".Node", strconv.Quote(string(m.Node)), "not the name of a node")
			}
			last = m
		}
	}
	for i, n := range plan.AppendCounts(nil, len(plan.Gang.Roles)) {
		if r := &plan.Gang.Roles[i]; n < r.Min || n > r.Limit() {
			return invalid(".Members", strconv.Itoa(n), "want "+strconv.Itoa(r.Min)+" to "+strconv.Itoa(r.Limit())+" of role "+strconv.Itoa(i))
		}
	}
	return nil
}

// Cancel drops job: a waiting one at once, one with a hold by giving that back,
// a running one by eviction. It may be repeated.
func (a *Admission) Cancel(now time.Time, job lockstep.JobID) error {
	j, t, err := a.find("cancel", now, job, 0)
	if err != nil {
		return err
	}
	switch j.phase {
	case Queued:
		a.now = t
		a.retire(j, ReasonCancelled)
		a.stale = true
	case Awaiting, Held:
		return a.endHold(j, t, ReasonCancelled, true)
	case Running, Resizing:
		a.now = t
		a.stop(j, ReasonCancelled, false)
	case Moving:
		if err := a.giveBack(j, t); err != nil {
			return err
		}
		a.now = t
		a.setReplan(j, false)
		a.setWaits(j, nil)
		a.leave(j, ReasonCancelled, false)
	case Leaving:
		a.now = t
		j.requeue = false
	case Gone:
		a.now = t
	}
	return nil
}

// stop tells the running job j to leave; its room stays its own until it has.
func (a *Admission) stop(j *job, reason lockstep.Reason, requeue bool) {
	a.setDue(j, false)
	a.setReplan(j, false)
	j.waitFor, j.lost = "", nil
	c := &j.gang.Capabilities
	a.setEnd(j, later(a.now, later(int64(c.Grace), int64(c.Save))))
	a.leave(j, reason, requeue)
}

// endHold gives back the whole hold of j, which is then queued again or gone.
func (a *Admission) endHold(j *job, t int64, reason lockstep.Reason, gone bool) error {
	if err := a.giveBack(j, t); err != nil {
		return err
	}
	a.now = t
	a.setWaits(j, nil)
	a.setReplan(j, false)
	a.endApart(j)
	if j.told {
		a.emit(j, lockstep.Action{Kind: lockstep.ActionRelease, Reason: reason})
	}
	j.confirmed, j.missing, j.told = nil, 0, false
	if gone {
		a.retire(j, reason)
		return nil
	}
	a.requeueNow(j, reason)
	return nil
}

// requeueNow makes j wait again, in its old place in the default order.
func (a *Admission) requeueNow(j *job, reason lockstep.Reason) {
	j.phase, j.reason, j.requeue, j.waitFor, j.tried = Queued, reason, false, "", false
	j.end = forever
	j.failed, j.roomless, j.delays = 0, delay{}, delay{}
	a.expireRefusals(j)
	for _, r := range j.refused {
		a.timers.set(a, r.Until, j)
	}
	a.enqueue(j)
	a.stale = true
}

// Confirm says that the member of rank is ready. When all are whom the reserve named,
// the gang starts or, if those were tried first, all of it is held. To repeat one is
// no error, nor is one for a gang that started. One for a hold that is over, by its
// deadline or before, is lockstep.ErrStale or lockstep.ErrConflict and brings nothing
// back.
func (a *Admission) Confirm(now time.Time, job lockstep.JobID, attempt lockstep.Attempt, rank int) error {
	j, t, err := a.find("confirm", now, job, attempt)
	switch {
	case err != nil:
		return err
	case j.phase == Running || j.phase == Resizing:
		a.now = t
		return nil
	case j.phase != Held:
		return conflict("confirm", j, string(Held))
	case rank < 0 || rank >= len(j.confirmed):
		return fault(lockstep.ErrInvalid, "confirm", "rank", strconv.Itoa(rank), "the gang has ranks 0 to "+strconv.Itoa(len(j.confirmed)-1))
	case j.deadline <= t:
		return fault(lockstep.ErrStale, "confirm", "now", now.UTC().Format(time.RFC3339Nano), "the hold is over")
	case j.replan:
		return fault(lockstep.ErrStale, "confirm", "attempt", strconv.FormatUint(uint64(j.attempt), 10), "the hold is about to get other room")
	}
	a.now = t
	if j.confirmed[rank] {
		return nil
	}
	j.confirmed[rank] = true
	switch j.missing--; {
	case j.missing > 0:
	case j.trial > 0:
		a.passTrial(j)
	default:
		a.begin(j)
	}
	return nil
}

// Refuse says that preflight failed on node. The gang is kept off it for
// Config.Exclude, or until the node is reported up or open, and the next Step
// finds it other room within the same deadline or gives the hold back.
func (a *Admission) Refuse(now time.Time, job lockstep.JobID, attempt lockstep.Attempt, node lockstep.NodeID) error {
	j, t, err := a.find("refuse", now, job, attempt)
	switch {
	case err != nil:
		return err
	case j.phase != Held:
		return conflict("refuse", j, string(Held))
	case node.Validate() != nil:
		return fault(lockstep.ErrInvalid, "refuse", "node", strconv.Quote(string(node)), "not the name of a node")
	}
	a.now = t
	i, found := slices.BinarySearchFunc(j.refused, node, func(r refusal, n lockstep.NodeID) int { return cmp.Compare(r.Node, n) })
	if !found {
		j.refused = slices.Insert(j.refused, i, refusal{Node: node})
	}
	j.refused[i].Until = later(t, int64(a.cfg.Exclude))
	if onNode(j.plan.Members, node) || onNode(j.plan.Spares, node) {
		a.setReplan(j, true)
	}
	return nil
}

func (a *Admission) setReplan(j *job, replan bool) {
	switch {
	case replan && !j.replan:
		a.replans = insertSorted(a.replans, j, byID)
	case !replan && j.replan:
		a.replans = removeSorted(a.replans, j, byID)
	}
	j.replan = replan
}

// Finish says that job ended by itself and that its devices are clean. It may
// be repeated.
func (a *Admission) Finish(now time.Time, job lockstep.JobID, attempt lockstep.Attempt) error {
	return a.over("finish", now, job, attempt, ReasonFinished)
}

// Fail says that job died, of reason, and that its devices are clean. It leaves
// for good: whether and when to submit it again is for the host to say. A held
// job may fail as well. It may be repeated.
func (a *Admission) Fail(now time.Time, job lockstep.JobID, attempt lockstep.Attempt, reason lockstep.Reason) error {
	if reason == "" {
		reason = ReasonFailed
	}
	return a.over("fail", now, job, attempt, reason)
}

func (a *Admission) over(op string, now time.Time, job lockstep.JobID, attempt lockstep.Attempt, reason lockstep.Reason) error {
	j, t, err := a.find(op, now, job, attempt)
	if err != nil {
		return err
	}
	switch j.phase {
	case Gone:
		a.now = t
		return nil
	case Held:
		if op == "fail" {
			return a.endHold(j, t, reason, true)
		}
		return conflict(op, j, string(Running))
	case Queued, Awaiting:
		return conflict(op, j, string(Running))
	case Running:
		if slices.ContainsFunc(a.out, func(x lockstep.Action) bool { return x.Job == job && x.Kind == lockstep.ActionStart }) {
			return conflict(op, j, "to have been told to start")
		}
	}
	if err := a.giveBack(j, t); err != nil {
		return err
	}
	a.now = t
	a.setReplan(j, false)
	a.setWaits(j, nil)
	a.clean(j)
	a.retire(j, reason)
	return nil
}

// Evicted says that job has done what it was told, by an evict, move or resize:
// the members that had to go are gone and their devices are clean. An evicted
// job is queued again, in its old place, unless it was cancelled. A second report
// of a resize is no error while the job runs; orders of one attempt are not told
// apart, so one that comes behind the next order is taken for the report of that.
func (a *Admission) Evicted(now time.Time, job lockstep.JobID, attempt lockstep.Attempt) error {
	j, t, err := a.find("evicted", now, job, attempt)
	if err != nil {
		return err
	}
	switch j.phase {
	case Resizing:
		a.now = t
		j.phase, j.reason, j.shrunk = Running, "", true
		a.runs++
		a.clean(j)
	case Moving:
		a.now = t
		j.phase = Awaiting
		a.clean(j)
	case Leaving:
		if err := a.giveBack(j, t); err != nil {
			return err
		}
		a.now = t
		a.clean(j)
		if j.requeue {
			a.requeueNow(j, j.reason)
		} else {
			a.retire(j, j.reason)
		}
	case Gone:
		a.now = t
	default:
		if j.shrunk { // a report that has had its effect
			a.now = t
			return nil
		}
		return conflict("evicted", j, "to leave")
	}
	return nil
}

// Due says that the term of job is over: the next Step decides whether it keeps
// its devices. It may be repeated, and means nothing for a job that leaves. Who may
// be taken from before its term is over, Preempt says.
//
// Until its turn in the order a due holder is soft if it is Preemptible: a job
// proposed ahead of it that has no other room may take its room. If it is enough
// that Resizable holders shrink, nobody is stopped. Else the least deserving
// stop, as far up as it takes: lower priority, later start, later ID; and none of
// them without need. At its turn a holder in place is extended, a shrunk one
// resized, a displaced one, or one in a Window, moved if there is room elsewhere
// and else evicted; for quota it competes as well. At the end, if nobody was blocked,
// extended Resizable holders grow in place. A job waits for who leaves a node of
// its room, also when they leave other devices of it, and its hold begins when all have.
func (a *Admission) Due(now time.Time, job lockstep.JobID, attempt lockstep.Attempt) error {
	j, t, err := a.find("due", now, job, attempt)
	if err != nil {
		return err
	}
	switch j.phase {
	case Running, Resizing:
		a.now = t
		a.setDue(j, true)
		a.stale = true
	case Queued, Awaiting, Held:
		return conflict("due", j, string(Running))
	default:
		a.now = t
	}
	return nil
}
