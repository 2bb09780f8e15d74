package scheduler

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

// submit lets every part know of a new job, or none.
func (s *Scheduler) submit(e lockstep.Event) error {
	if err := s.admissible(&e); err != nil {
		return err
	}
	if err := s.open(e.Time); err != nil {
		return err
	}
	id := e.Gang.ID
	old := s.jobs[id] // has left, or admissible would have refused
	if old != nil {
		_ = s.policy.Forget(id) // a part may have forgotten it already
	}
	if err := s.policy.Submit(e.Time, e.Gang); err != nil {
		return err
	}
	if old != nil {
		s.forget(id)
	}
	if s.quota != nil {
		if err := s.quota.join(e.Gang.Tenant); err != nil {
			return err
		}
	}
	if err := s.gangs.Submit(e.Time, e.Gang); err != nil {
		return err
	}
	if err := s.room.Arrived(e.Gang); err != nil { // the mix of what is asked for is learned from it
		return err
	}
	s.jobs[id] = &job{gang: e.Gang, since: s.now}
	s.loosen(e.Gang)
	return s.live(s.lives.ForEvent(s.moves[:0], &e))
}

// admissible checks what can be refused of a submission before any part hears of
// it, so that a refusal changes nothing.
func (s *Scheduler) admissible(e *lockstep.Event) error {
	if err := e.Gang.Validate(); err != nil {
		return err
	}
	id := e.Gang.ID
	if e.Job != "" && e.Job != id {
		return fault(lockstep.ErrInvalid, "apply", "Job", quote(e.Job), "want that of Gang, "+quote(id)+", or none")
	}
	if err := s.vacant("apply", id); err != nil {
		return err
	}
	if s.cfg.Policy == nil && s.cfg.DefaultWeight == 0 {
		if _, ok := s.cfg.Weights[e.Gang.Tenant]; !ok {
			return fault(lockstep.ErrUnknown, "apply", "Gang.Tenant", quote(e.Gang.Tenant), "has no weight")
		}
	}
	return nil
}

// report puts an event to gang admission, which may refuse it, and then tells
// the other parts.
func (s *Scheduler) report(e *lockstep.Event) error {
	if e.Node != "" {
		if _, ok := s.cfg.Tree.Slot(e.Node); !ok {
			return fault(lockstep.ErrUnknown, "apply", "Node", quote(e.Node), "is not in the tree")
		}
	}
	was, _ := s.gangs.State(e.Job)
	if err := s.gangs.Apply(*e); err != nil {
		return err
	}
	if err := s.open(e.Time); err != nil {
		return err
	}
	return s.observe(e, was.Phase)
}

// observe takes note of an event that gang admission has accepted.
func (s *Scheduler) observe(e *lockstep.Event, was gang.Phase) error {
	switch e.Kind {
	case lockstep.EventDown, lockstep.EventUp, lockstep.EventCordon, lockstep.EventOpen:
		return s.node(e)
	case lockstep.EventDue:
		if j := s.jobs[e.Job]; !j.on {
			return nil
		}
		s.placer.rivals++
		return s.policy.Due(e.Time, e.Job)
	case lockstep.EventEvicted:
		if err := s.saved(e); err != nil {
			return err
		}
	}
	if err := s.live(s.lives.ForEvent(s.moves[:0], e)); err != nil {
		return err
	}
	if e.Kind == lockstep.EventEvicted && was == gang.Moving {
		if err := s.stop(e.Time, s.jobs[e.Job]); err != nil { // before it has its new room
			return err
		}
	}
	return s.settle(e.Time, e.Job)
}
