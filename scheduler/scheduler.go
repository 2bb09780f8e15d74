package scheduler

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/placement"
)

// Scheduler is the composition. Make one with New or Restore.
type Scheduler struct {
	cfg Config

	room   *placement.State   // which devices
	gangs  *gang.Admission    // all or nothing, now or later
	policy Policy             // whose turn it is
	quota  *static            // who may use how much; nil is no limit
	leases *lease.Table       // until when; nil where terms never end
	lives  *lifecycle.Machine // which moves are legal, and where the time went

	placer *placer
	now    int64
	opened bool // tenants have joined
	seq    uint64
	jobs   map[lockstep.JobID]*job
	gone   []lockstep.JobID // jobs that have left and are remembered, oldest first
	again  int              // jobs that failed and are to be tried again

	foreign map[lockstep.JobID]bool // names under which others occupy devices

	moves []lifecycle.Event
	steps []lifecycle.Step
	due   []lease.Lease
	over  []lockstep.JobID // held over, by ID
}

// Apply takes note of what the host observed at e.Time. It decides nothing: call
// Step behind it, once for all events of one time.
func (s *Scheduler) Apply(e lockstep.Event) error {
	before := s.now
	if err := s.at("apply", e.Time); err != nil {
		return err
	}
	var err error
	switch j := s.jobs[e.Job]; {
	case e.Kind == lockstep.EventSubmit:
		err = s.submit(e)
	case e.Kind == lockstep.EventCancel && j != nil && j.retry:
		err = s.live(s.lives.ForEvent(s.moves[:0], &e)) // admission does not have it
	default:
		err = s.report(&e)
	}
	if err != nil {
		s.now = before
		return err
	}
	if s.seq++; s.cfg.Log != nil {
		taken := e
		s.cfg.Log(Entry{Seq: s.seq, Event: &taken})
	}
	return nil
}

// Step decides all that can be decided at now and returns what the host is to
// do, in order. Terms that are over are decided here: their holders compete with
// those who wait in one pass, and those who stay do so in place.
func (s *Scheduler) Step(now time.Time) ([]lockstep.Action, error) {
	if err := s.at("step", now); err != nil {
		return nil, err
	}
	if err := s.open(now); err != nil {
		return nil, err
	}
	if err := s.revive(now); err != nil {
		return nil, err
	}
	if err := s.boundary(now); err != nil {
		return nil, err
	}
	if at, ok := s.policyWake(now); ok && !at.After(now) {
		if err := s.gangs.Reconsider(now); err != nil {
			return nil, err
		}
	}
	actions, err := s.gangs.Step(now)
	s.placer.rivals = 0
	for i := range actions {
		if carry := s.carry(&actions[i]); carry != nil && err == nil {
			err = carry
		}
	}
	if s.cfg.Floor > 0 {
		actions = slices.DeleteFunc(actions, s.held)
	}
	s.record(Entry{Step: now})
	return actions, err
}

// boundary puts the holders whose term is over up for decision.
func (s *Scheduler) boundary(now time.Time) error {
	if s.cfg.Floor > 0 {
		return s.holdOver(now)
	}
	if s.leases == nil || !s.onGrid(now) {
		return nil
	}
	s.due = s.leases.AppendDue(s.due[:0], now)
	for i := range s.due {
		id := s.due[i].Job
		if err := s.gangs.Due(now, id, 0); err != nil {
			return err
		}
		if err := s.policy.Due(now, id); err != nil {
			return err
		}
	}
	s.placer.rivals += len(s.due)
	return nil
}

// holdOver lets holders whose term is over keep what they have, and puts all that
// do so up for decision while somebody presses.
func (s *Scheduler) holdOver(now time.Time) error {
	s.due = s.leases.AppendDue(s.due[:0], now)
	for i := range s.due {
		id := s.due[i].Job
		if _, err := s.leases.HoldOver(now, id); err != nil {
			return err
		}
		at, _ := slices.BinarySearch(s.over, id)
		s.over = slices.Insert(s.over, at, id)
	}
	f, ok := s.policy.(*floored)
	if !ok || len(s.over) == 0 || !f.presses(now) {
		return nil
	}
	for _, id := range s.over {
		if st, ok := s.gangs.State(id); !ok || st.Phase != gang.Running {
			continue
		}
		if err := s.gangs.Due(now, id, 0); err != nil {
			return err
		}
		if err := s.policy.Due(now, id); err != nil {
			return err
		}
		s.placer.rivals++
	}
	return nil
}

// held reports whether an action says that a job which is held over stays so, of
// which the host need not know.
func (s *Scheduler) held(a lockstep.Action) bool {
	_, over := slices.BinarySearch(s.over, a.Job)
	return over && a.Kind == lockstep.ActionExtend
}

// carry tells lifecycle, leases and policy what was decided. The action goes on
// to the host with a plan that no longer names the state it was made from. What
// was decided with an event before this step, whose parts may have heard of more
// since, reaches them as of now.
func (s *Scheduler) carry(a *lockstep.Action) error {
	if s.cfg.Floor > 0 && s.held(*a) {
		return nil
	}
	told := *a
	told.Time = lockstep.FromNanos(s.now)
	if err := s.live(s.translate(&told)); err != nil {
		return err
	}
	if s.leases != nil {
		if err := s.let(&told); err != nil {
			return err
		}
	}
	if a.Plan != nil {
		a.Plan = s.jobs[a.Job].show(a.Plan)
	}
	switch a.Kind {
	case lockstep.ActionExtend, lockstep.ActionEvict, lockstep.ActionMove:
		return nil // it holds what it held
	}
	return s.settle(told.Time, a.Job)
}

// NextWake returns when Step is to be called next if nothing happens before;
// false means not until something does.
func (s *Scheduler) NextWake(now time.Time) (time.Time, bool) {
	at, ok := s.gangs.NextWake(now)
	earlier := func(t time.Time, some bool) {
		if some && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if s.leases != nil {
		t, some := s.leases.NextWake(now)
		if s.cfg.Floor == 0 {
			t, some = s.grid(t, some)
		}
		earlier(t, some)
	}
	if s.again > 0 {
		earlier(s.lives.NextWake(now))
	}
	earlier(s.policyWake(now))
	if ok && at.UnixNano() < s.now && s.now != math.MinInt64 {
		at = lockstep.FromNanos(s.now)
	}
	return at, ok
}
