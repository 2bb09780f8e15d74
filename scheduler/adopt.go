package scheduler

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Adoption is a gang that ran before the scheduler came, as data for the log.
type Adoption struct {
	Time    time.Time      `json:"time"`    // Time is when it was adopted.
	Plan    *lockstep.Plan `json:"plan"`    // Plan is where it runs, with its gang.
	Started time.Time      `json:"started"` // Started is since when it runs.
}

// Occupation is devices that others own, as data for the log.
type Occupation struct {
	Time time.Time      `json:"time"`           // Time is when they were taken, or given back.
	Plan *lockstep.Plan `json:"plan,omitempty"` // Plan is what was taken; nil where it was given back.
	Job  lockstep.JobID `json:"job,omitempty"`  // Job is what was given back.
}

// Rebasing is a change of the cluster, as data for the log.
type Rebasing struct {
	Time  time.Time        `json:"time"`            // Time is when it changed.
	Tree  *topology.Tree   `json:"tree"`            // Tree is the cluster from then on.
	Nodes []placement.Node `json:"nodes,omitempty"` // Nodes are what nodes offer from then on, where that is new.
}

// Adopt takes in a gang that runs already, since started, where plan says: on a
// platform that the scheduler comes to, or that it comes back to without its
// snapshot. The plan's gang belongs to the scheduler from then on. The room must
// be free and the name not in use; whether levels and constraints hold is not
// looked at, and quota is charged whatever is left of it. Accounts, and the first
// term, begin at now; a walltime counts from started. Events about it carry
// Status's Attempt, or 0.
//
// It returns what Apply would of a submission, placement.State.Adopt of the plan and
// Config.Quota of a charge; then nothing has changed, but that plans made before are
// stale, and that a job of its name which had left may be forgotten. Behind the last of several call Step, once.
func (s *Scheduler) Adopt(now time.Time, plan *lockstep.Plan, started time.Time) error {
	return s.take("adopt", now, plan, func() error {
		if err := s.adopt(now, plan, started); err != nil {
			return err
		}
		s.record(Entry{Adopt: &Adoption{Time: now, Plan: plan.Clone(), Started: started}})
		return nil
	})
}

// take runs do at now for a plan whose gang no part knows, and takes back that
// time has passed if it fails.
func (s *Scheduler) take(op string, now time.Time, plan *lockstep.Plan, do func() error) error {
	before := s.now
	if err := s.at(op, now); err != nil {
		return err
	}
	err := s.unknown(op, plan)
	if err == nil {
		err = do()
	}
	if err != nil {
		s.now = before
	}
	return err
}

// unknown checks that a plan has a gang whose name is not in use.
func (s *Scheduler) unknown(op string, plan *lockstep.Plan) error {
	if plan == nil || plan.Gang == nil {
		return fault(lockstep.ErrInvalid, op, "plan", "nil", "want a plan with its gang")
	}
	return s.vacant(op, plan.Gang.ID)
}

// vacant checks that a new job may have the name id.
func (s *Scheduler) vacant(op string, id lockstep.JobID) error {
	old := s.jobs[id]
	switch {
	case s.foreign[id]:
		return fault(lockstep.ErrDuplicate, op, "Gang.ID", quote(id), "is of others")
	case old != nil && (!old.gone || old.retry):
		return fault(lockstep.ErrDuplicate, op, "Gang.ID", quote(id), "has not left")
	}
	return nil
}

// adopt lets every part know of a gang that runs, or none.
func (s *Scheduler) adopt(now time.Time, plan *lockstep.Plan, started time.Time) error {
	g := plan.Gang
	e := lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g}
	if err := s.admissible(&e); err != nil {
		return err
	}
	at, err := lockstep.Nanos(started)
	if err != nil {
		return err
	}
	if at > s.now {
		return fault(lockstep.ErrInvalid, "adopt", "started", started.UTC().Format(time.RFC3339Nano), "must not be after now")
	}
	if err := enough(plan); err != nil {
		return err
	}
	if err := s.open(now); err != nil {
		return err
	}
	if err := s.placer.adopt(plan); err != nil {
		return err
	}
	if old := s.jobs[g.ID]; old != nil {
		s.forget(g.ID)
	}
	if err := s.policy.Submit(now, g); err != nil {
		return errors.Join(err, s.placer.Release(g.ID))
	}
	if s.quota != nil {
		if err := s.quota.join(g.Tenant); err != nil {
			return err
		}
	}
	if err := s.gangs.Adopt(now, plan, started); err != nil { // a quota may not know its queue
		return errors.Join(err, s.policy.Finish(now, g.ID), s.policy.Forget(g.ID), s.placer.Release(g.ID))
	}
	s.jobs[g.ID] = &job{gang: g, since: at}
	s.loosen(g)
	if err := s.live(s.lives.ForEvent(s.moves[:0], &e)); err != nil {
		return err
	}
	st, _ := s.gangs.State(g.ID)
	return s.carry(&lockstep.Action{Kind: lockstep.ActionStart, Time: now, Job: g.ID, Plan: st.Plan, Attempt: st.Attempt})
}

// enough checks that a plan has as many members of each role as must run.
func enough(plan *lockstep.Plan) error {
	counts := plan.AppendCounts(nil, len(plan.Gang.Roles))
	for i := range plan.Gang.Roles {
		if r := &plan.Gang.Roles[i]; counts[i] < r.Min {
			return fault(lockstep.ErrInvalid, "adopt", "plan.Members", strconv.Itoa(counts[i]), "want at least "+strconv.Itoa(r.Min)+" of role "+strconv.Itoa(i))
		}
	}
	return nil
}

// Occupy takes devices, and what else the plan's gang demands, that others own:
// another scheduler beside this one, or an operator. Nothing is ever placed on
// them, nobody is charged, and they do not count as capacity, until Vacate. The
// plan's gang serves only to say what its members take.
//
// It returns ErrDuplicate for a name in use and what placement.State.Adopt returns
// of the plan; then nothing has changed.
func (s *Scheduler) Occupy(now time.Time, plan *lockstep.Plan) error {
	return s.take("occupy", now, plan, func() error {
		if err := s.room.Adopt(plan); err != nil {
			return err
		}
		s.foreign[plan.Job] = true
		s.record(Entry{Occupy: &Occupation{Time: now, Plan: plan.Clone()}})
		return s.changed(now)
	})
}

// Vacate gives back what Occupy took under this name. A name that it did not take
// is lockstep.ErrUnknown.
func (s *Scheduler) Vacate(now time.Time, id lockstep.JobID) error {
	if !s.foreign[id] {
		return fault(lockstep.ErrUnknown, "vacate", "job", quote(id), "occupies nothing")
	}
	if err := s.at("vacate", now); err != nil {
		return err
	}
	if err := s.room.Release(id); err != nil {
		return err
	}
	delete(s.foreign, id)
	s.record(Entry{Occupy: &Occupation{Time: now, Job: id}})
	return s.changed(now)
}

// changed lets the parts know that the room is other than before.
func (s *Scheduler) changed(now time.Time) error {
	if err := s.open(now); err != nil {
		return err
	}
	if err := s.recount(now); err != nil {
		return err
	}
	return s.gangs.Reconsider(now)
}

// recount counts what is free and tells the policy what capacity that makes.
func (s *Scheduler) recount(now time.Time) error {
	s.placer.count()
	if c, ok := s.policy.(capacity); ok {
		return c.setCapacity(now, lockstep.WholeGPU.Mul(int64(s.placer.free)).Add(s.placer.heldGPUs()))
	}
	return nil
}

// Rebase goes over to another tree of the cluster, as nodes join, leave, are
// relabelled or change what they offer; see placement.State.Rebase for what stays
// with a node. A node that leaves counts as down first, with all that ran on it;
// so does one that loses devices which somebody holds, and it is up again behind
// that. Behind it call Step: who waits may have room now.
//
// It returns ErrInvalid for a nil tree and each fault of nodes, joined; then
// nothing has changed. O(slots + members).
func (s *Scheduler) Rebase(now time.Time, tree *topology.Tree, nodes []placement.Node) error {
	before := s.now
	if err := s.at("rebase", now); err != nil {
		return err
	}
	old := s.cfg.Tree
	displaced, err := s.room.Rebase(tree, nodes)
	if err != nil {
		s.now = before
		return err
	}
	s.cfg.Tree = tree
	s.record(Entry{Rebase: &Rebasing{Time: now, Tree: tree, Nodes: nodes}})
	if err := s.open(now); err != nil {
		return err
	}
	for _, id := range absent(old, tree) {
		if err := s.without(now, id); err != nil {
			return err
		}
	}
	for i := range displaced {
		id := displaced[i].Node
		st, stays := s.room.Node(id)
		if !stays || !st.Healthy || i > 0 && slices.ContainsFunc(displaced[:i], func(d placement.Displaced) bool { return d.Node == id }) {
			continue
		}
		for _, kind := range [...]lockstep.EventKind{lockstep.EventDown, lockstep.EventUp} {
			if err := s.report(&lockstep.Event{Kind: kind, Time: now, Node: id}); err != nil {
				return err
			}
		}
	}
	return s.changed(now)
}

// absent returns the nodes of a tree that another does not have, by slot.
func absent(tree, other *topology.Tree) (ids []lockstep.NodeID) {
	for slot := range int32(tree.Slots()) {
		if id, ok := tree.NodeAt(slot); ok {
			if _, stays := other.Slot(id); !stays {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// without lets the parts know that a node is no more, which the room has heard.
// Admission forgets that it was down or cordoned: one of its name that comes
// later is another.
func (s *Scheduler) without(now time.Time, id lockstep.NodeID) error {
	down := lockstep.Event{Kind: lockstep.EventDown, Time: now, Node: id}
	if err := s.gangs.Apply(down); err != nil {
		return err
	}
	if err := s.lose(&down); err != nil {
		return err
	}
	for _, kind := range [...]lockstep.EventKind{lockstep.EventUp, lockstep.EventOpen} {
		if err := s.gangs.Apply(lockstep.Event{Kind: kind, Time: now, Node: id}); err != nil {
			return err
		}
	}
	return nil
}

// Tree returns the cluster as it is now. It is immutable.
func (s *Scheduler) Tree() *topology.Tree { return s.cfg.Tree }

// Node returns how a node stands; false if the tree does not have it.
func (s *Scheduler) Node(id lockstep.NodeID) (placement.Status, bool) { return s.room.Node(id) }

// Usage returns how full the cluster is, with what others occupy. O(1) or
// O(nodes), as placement says.
func (s *Scheduler) Usage() placement.Usage { return s.room.Usage() }
