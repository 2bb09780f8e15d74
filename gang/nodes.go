package gang

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Down says that node is lost with all that runs there. Gangs with a member on
// it are told to leave whole; holds on it, and rooms that gangs are moving to,
// are given back or exchanged by the next Step. A running gang that is Replaceable
// goes on if there is room: its lost members get that of its spares, or other, and
// the others stay. It is told by a resize that names the lost ranks, and is resizing
// until the host reports it evicted: the lost are fenced, the new ones have joined.
//
// Down, Cordon, Up and Open say nothing to the placer. A host that tells it of
// nodes as well does so first, since who failed before is tried again by Up and
// Open; a new node comes into the placer, then Open.
func (a *Admission) Down(now time.Time, node lockstep.NodeID) error {
	t, err := a.node("down", now, node)
	if err != nil {
		return err
	}
	var hit []*job
	for _, j := range a.ends {
		runs := j.phase == Running || j.phase == Resizing
		if j.phase != Leaving && (onNode(j.plan.Members, node) || !runs && onNode(j.plan.Spares, node)) {
			hit = append(hit, j)
		}
	}
	slices.SortFunc(hit, byID)
	a.now = t
	a.close(node, true, false)
	for _, j := range hit {
		switch j.phase {
		case Running, Resizing:
			if j.phase == Running && j.gang.Capabilities.Replaceable && a.what != nil {
				a.loseMembers(j, node)
				continue
			}
			a.stop(j, ReasonLost, true)
		case Moving, Awaiting, Held:
			a.setReplan(j, true)
		}
	}
	return nil
}

// Cordon says that node takes no more members; those on it stay.
func (a *Admission) Cordon(now time.Time, node lockstep.NodeID) error {
	t, err := a.node("cordon", now, node)
	if err != nil {
		return err
	}
	a.now = t
	a.close(node, false, true)
	return nil
}

// Up says that node is healthy again.
func (a *Admission) Up(now time.Time, node lockstep.NodeID) error {
	return a.open("up", now, node, true)
}

// Open says that node takes members again, or that it is new.
func (a *Admission) Open(now time.Time, node lockstep.NodeID) error {
	return a.open("open", now, node, false)
}

func (a *Admission) open(op string, now time.Time, node lockstep.NodeID, up bool) error {
	t, err := a.node(op, now, node)
	if err != nil {
		return err
	}
	a.now = t
	if i, found := a.closedAt(node); found {
		if up {
			a.closed[i].down = false
		} else {
			a.closed[i].cordoned = false
		}
		if !a.closed[i].down && !a.closed[i].cordoned {
			a.closed = slices.Delete(a.closed, i, i+1)
		}
	}
	for _, j := range a.jobs { // the order does not matter: each is changed by itself
		j.refused = slices.DeleteFunc(j.refused, func(r refusal) bool { return r.Node == node })
		a.countRefusing(j)
	}
	a.opened()
	return nil
}

// Reconsider says that something changed which a cannot see: the order, the
// quota, or the placer's room. The next Step tries everybody again, and who made room
// for whom is forgotten (see Preempt).
func (a *Admission) Reconsider(now time.Time) error {
	t, err := a.at("reconsider", now)
	if err != nil {
		return err
	}
	a.now = t
	for _, j := range a.jobs { // the order does not matter: each is changed by itself
		j.made, j.taken = nil, 0
	}
	a.opened()
	return nil
}

func (a *Admission) node(op string, now time.Time, node lockstep.NodeID) (int64, error) {
	t, err := a.at(op, now)
	if err != nil {
		return 0, err
	}
	return t, node.Validate()
}

// close takes note that node takes no members, for one more cause.
func (a *Admission) close(node lockstep.NodeID, down, cordoned bool) {
	i, found := a.closedAt(node)
	if !found {
		a.closed = slices.Insert(a.closed, i, closure{node: node})
	}
	a.closed[i].down = a.closed[i].down || down
	a.closed[i].cordoned = a.closed[i].cordoned || cordoned
	a.flow++
	a.tight++ // reservations may lie there
	a.stale = true
}

func onNode(members []lockstep.Member, node lockstep.NodeID) bool {
	return slices.ContainsFunc(members, func(m lockstep.Member) bool { return m.Node == node })
}
