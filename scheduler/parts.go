package scheduler

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/placement"
)

// at checks a time and takes note of it.
func (s *Scheduler) at(op string, now time.Time) error {
	t, err := lockstep.Nanos(now)
	if err != nil {
		return err
	}
	if t < s.now {
		return fault(lockstep.ErrPast, op, "now", now.UTC().Format(time.RFC3339Nano), "before "+lockstep.FromNanos(s.now).Format(time.RFC3339Nano))
	}
	s.now = t
	return nil
}

// open opens the tenants' accounts, with the first input that is not refused:
// they count from then.
func (s *Scheduler) open(now time.Time) error {
	if s.opened {
		return nil
	}
	if o, ok := s.policy.(opener); ok {
		if err := o.open(now); err != nil {
			return err
		}
	}
	s.opened = true
	return nil
}

// live makes lifecycle moves and acts on what they led to: a job that is to be
// tried again is submitted anew, one that has used up its budgets is dropped.
func (s *Scheduler) live(moves []lifecycle.Event) error {
	s.moves = moves
	for i := range moves {
		var err error
		if s.steps, err = s.lives.Apply(s.steps[:0], &moves[i]); err != nil {
			return err
		}
		for k := range s.steps {
			if err := s.follow(&s.steps[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Scheduler) follow(st *lifecycle.Step) error {
	if st.From == st.To {
		return nil
	}
	j := s.jobs[st.Job]
	if j == nil {
		return nil
	}
	switch {
	case st.To == lifecycle.Queued && j.retry:
		at := lockstep.FromNanos(max(s.now, st.Time.UnixNano()))
		if err := s.policy.Submit(at, j.gang); err != nil {
			return err
		}
		if err := s.gangs.Submit(at, j.gang); err != nil {
			return err
		}
		j.retry, j.gone = false, false
		s.loosen(j.gang)
		s.again--
	case st.To == lifecycle.Backoff || st.To == lifecycle.Held:
		if g, ok := s.gangs.State(st.Job); ok && g.Phase == gang.Gone && !j.retry {
			j.retry = true
			s.again++
		}
	case st.To.Terminal():
		if j.retry {
			j.retry = false
			s.again--
			s.retire(st.Job)
		} else if g, ok := s.gangs.State(st.Job); ok && g.Phase == gang.Queued {
			if err := s.gangs.Cancel(lockstep.FromNanos(s.now), st.Job); err != nil {
				return err
			}
			return s.settle(lockstep.FromNanos(s.now), st.Job)
		}
	}
	return nil
}

// loosen counts a job that may fit where no device is free.
func (s *Scheduler) loosen(g *lockstep.Gang) {
	if loose(g) {
		s.placer.loose++
	}
}

// loose says whether g may fit where no device is free: it wants none, or a part of one.
func loose(g *lockstep.Gang) bool { return mostGPUs(g) == 0 || parted(g) }

// parted says whether a member of g wants a part of a device.
func parted(g *lockstep.Gang) bool {
	for i := range g.Roles {
		if partial(&g.Roles[i].Demand) {
			return true
		}
	}
	return false
}

func partial(d *lockstep.Demand) bool {
	return d.GPUs != 0 && (d.Profile != "" || d.DeviceShare() != lockstep.WholeGPU)
}

// revive lets the deadlines of lifecycle pass, such as those of backoffs, so that
// what is translated for it suits the states that jobs are in now.
func (s *Scheduler) revive(now time.Time) error {
	if at, ok := s.lives.NextWake(now); !ok || at.After(now) {
		return nil
	}
	return s.live(append(s.moves[:0], lifecycle.Event{Move: lifecycle.MoveTick, Time: now}))
}

// translate returns the moves that an action stands for. What is rejected will
// not be tried again, so it ends rather than being held.
func (s *Scheduler) translate(a *lockstep.Action) []lifecycle.Event {
	if a.Kind == lockstep.ActionReject {
		return append(s.moves[:0], lifecycle.Event{Move: lifecycle.MoveCancel, Time: a.Time, Job: a.Job, Reason: a.Reason})
	}
	plain := *a
	plain.Deadline = time.Time{} // gang keeps it
	return s.lives.ForAction(s.moves[:0], &plain)
}

// policyWake returns when the policy's order changes by itself.
func (s *Scheduler) policyWake(now time.Time) (time.Time, bool) {
	if w, ok := s.policy.(Waker); ok {
		return w.NextWake(now)
	}
	return time.Time{}, false
}

// saved notes that a job which can be preempted saved its work before it left.
func (s *Scheduler) saved(e *lockstep.Event) error {
	j, ok := s.lives.Job(e.Job)
	if !ok || j.State != lifecycle.Draining || !s.jobs[e.Job].gang.Capabilities.Preemptible {
		return nil
	}
	return s.live(append(s.moves[:0], lifecycle.Event{Move: lifecycle.MoveSaved, Time: e.Time, Job: e.Job, Attempt: e.Attempt}))
}

// node takes note of a node that comes or goes. Gang admission has done so.
func (s *Scheduler) node(e *lockstep.Event) error {
	var err error
	switch e.Kind {
	case lockstep.EventDown:
		err = s.room.SetHealth(e.Node, false)
	case lockstep.EventUp:
		err = s.room.SetHealth(e.Node, true)
	case lockstep.EventCordon:
		err = s.room.Cordon(e.Node)
	case lockstep.EventOpen:
		err = s.room.Open(e.Node)
	}
	if err != nil && !errors.Is(err, lockstep.ErrUnknown) {
		return err
	}
	if e.Kind == lockstep.EventDown {
		if err := s.lose(e); err != nil {
			return err
		}
	}
	return s.recount(e.Time)
}

// lose tells lifecycle whose members sat on the node.
func (s *Scheduler) lose(e *lockstep.Event) error {
	for _, id := range s.gangs.AppendJobs(nil, gang.Leaving) {
		st, _ := s.gangs.State(id)
		if st.Reason != gang.ReasonLost || st.Plan == nil {
			continue
		}
		lost := *e
		lost.Job, lost.Attempt = id, 0
		if err := s.live(s.lives.ForEvent(s.moves[:0], &lost)); err != nil {
			return err
		}
	}
	return nil
}

// leave closes the accounts of a job that has left gang admission.
func (s *Scheduler) leave(now time.Time, j *job) error {
	id := j.gang.ID
	j.on, j.held, j.gone, j.plan, j.shown = false, 0, true, nil, nil
	if err := s.unlease(now, id); err != nil {
		return err
	}
	if err := s.policy.Finish(now, id); err != nil {
		return err
	}
	if loose(j.gang) {
		s.placer.loose--
	}
	if !j.retry {
		s.retire(id)
		return nil
	}
	return s.policy.Forget(id)
}

// retire remembers a job that has left, and forgets the oldest beyond Retain.
func (s *Scheduler) retire(id lockstep.JobID) {
	s.gone = append(s.gone, id)
	for len(s.gone) > s.cfg.Retain {
		s.drop(s.gone[0])
		s.gone[0] = ""
		s.gone = s.gone[1:]
	}
}

// Forget drops a job that has left before its time. One that has not left is
// lockstep.ErrConflict, one that is not known lockstep.ErrUnknown.
func (s *Scheduler) Forget(id lockstep.JobID) error {
	j := s.jobs[id]
	switch {
	case j == nil:
		return fault(lockstep.ErrUnknown, "forget", "job", quote(id), "not submitted, or forgotten")
	case !j.gone || j.retry:
		return fault(lockstep.ErrConflict, "forget", "job", quote(id), "has not left")
	}
	s.forget(id)
	s.record(Entry{Forget: id})
	return nil
}

func (s *Scheduler) forget(id lockstep.JobID) {
	for i := len(s.gone) - 1; i >= 0; i-- {
		if s.gone[i] == id {
			s.gone = append(s.gone[:i], s.gone[i+1:]...)
			break
		}
	}
	_ = s.gangs.Forget(id)
	s.drop(id)
}

// drop forgets a job in every part but admission, which has a limit of its own;
// a part may have forgotten it already.
func (s *Scheduler) drop(id lockstep.JobID) {
	delete(s.jobs, id)
	_ = s.lives.Forget(id)
	_ = s.policy.Forget(id)
}

func (s *Scheduler) lease(id lockstep.JobID) (lease.Lease, bool) {
	if s.leases == nil {
		return lease.Lease{}, false
	}
	return s.leases.Get(id)
}

func (s *Scheduler) unlease(now time.Time, id lockstep.JobID) error {
	l, held := s.lease(id)
	if !held {
		return nil
	}
	s.overNoMore(id)
	_, err := s.leases.Release(now, id, l.Token)
	return err
}

// overNoMore takes id from the jobs that are held over.
func (s *Scheduler) overNoMore(id lockstep.JobID) {
	if i, found := slices.BinarySearch(s.over, id); found {
		s.over = slices.Delete(s.over, i, i+1)
	}
}

// term returns how long a job may hold devices before it competes for them.
func (s *Scheduler) term(overhead time.Duration) time.Duration {
	if s.cfg.Loss == 0 {
		return s.cfg.Term
	}
	return lease.Config{Term: s.cfg.Term, Loss: s.cfg.Loss}.TermFor(overhead)
}

// grid returns the first time at or after t at which terms are decided.
func (s *Scheduler) grid(t time.Time, ok bool) (time.Time, bool) {
	g := int64(s.cfg.Round)
	if !ok || g <= 1 {
		return t, ok
	}
	ns := t.UnixNano()
	if rest := ((ns % g) + g) % g; rest != 0 {
		if ns > math.MaxInt64-g {
			return t, ok
		}
		ns += g - rest
	}
	return lockstep.FromNanos(ns), true
}

func (s *Scheduler) onGrid(now time.Time) bool {
	return s.cfg.Round <= 1 || now.UnixNano()%int64(s.cfg.Round) == 0
}

// placer is the placement state with a count of what is free, so that a pass may
// end when nothing is left to give.
type placer struct {
	*placement.State
	held   map[lockstep.JobID]int  // whole devices, of every job that holds room
	parts  map[lockstep.JobID]bool // the jobs of those that hold parts of devices
	free   int                     // devices of open nodes that nobody holds any part of
	shared int                     // devices of open nodes that jobs hold parts of
	closed bool                    // some node is not open
	rivals int                     // holders whose term is over and that this pass has not decided
	loose  int                     // jobs that may fit where none is free: they want none, or a part of one
	marks  []lockstep.Mark         // open what-ifs
}

func (p *placer) Apply(plan *lockstep.Plan) error {
	if err := p.State.Apply(plan); err != nil {
		return err
	}
	if len(p.marks) == 0 {
		p.take(plan)
		p.change(-p.held[plan.Job], plan.Job)
	}
	return nil
}

// adopt is Apply for what runs already.
func (p *placer) adopt(plan *lockstep.Plan) error {
	if err := p.State.Adopt(plan); err != nil {
		return err
	}
	p.take(plan)
	p.count()
	return nil
}

func (p *placer) Release(id lockstep.JobID) error {
	if err := p.State.Release(id); err != nil {
		return err
	}
	if len(p.marks) == 0 {
		p.change(p.held[id], id)
		delete(p.held, id)
		delete(p.parts, id)
	}
	return nil
}

// take notes what a plan that was applied holds.
func (p *placer) take(plan *lockstep.Plan) {
	p.held[plan.Job] = devices(plan)
	if parted(plan.Gang) {
		p.parts[plan.Job] = true
	}
}

// change counts devices that became free, or were taken, by job.
func (p *placer) change(n int, job lockstep.JobID) {
	if p.closed || p.parts[job] {
		p.count() // some of them may sit on a node that is closed, or have others on them
		return
	}
	p.free += n
}

// count counts afresh. O(nodes).
func (p *placer) count() {
	usage := p.Usage()
	p.free, p.shared, p.closed = usage.Free, usage.Shared, usage.Open != usage.Nodes
}

func (p *placer) Mark() lockstep.Mark {
	m := p.State.Mark()
	p.marks = append(p.marks, m)
	return m
}

func (p *placer) Rollback(m lockstep.Mark) error {
	if i := slices.Index(p.marks, m); i >= 0 {
		p.marks = p.marks[:i] // it, and those made after it
	}
	return p.State.Rollback(m)
}

// heldGPUs returns the devices that jobs hold, those with parts wholly.
func (p *placer) heldGPUs() lockstep.MilliGPU {
	sum := int64(p.shared)
	for _, n := range p.held { // a sum, so order cannot matter
		sum += int64(n)
	}
	return lockstep.WholeGPU.Mul(sum)
}

// devices returns how many devices a plan takes wholly, with those of its spares.
func devices(p *lockstep.Plan) int {
	n := 0
	for _, list := range [...][]lockstep.Member{p.Members, p.Spares} {
		for i := range list {
			if !partial(&p.Gang.Roles[list[i].Role].Demand) {
				n += list[i].Devices.Len()
			}
		}
	}
	return n
}

// planGPUs returns the devices that a plan takes.
func planGPUs(p *lockstep.Plan) lockstep.MilliGPU {
	var sum lockstep.MilliGPU
	if p == nil {
		return sum
	}
	for i := range p.Members {
		d := &p.Gang.Roles[p.Members[i].Role].Demand
		sum = sum.Add(d.DeviceShare().Mul(int64(d.GPUs)))
	}
	return sum
}
