package gang

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// A Replaceable gang that loses a node goes on: the next Step gives the members that
// were there the room of its spares, or other room, while the others stay where they
// are; where that cannot be done it leaves whole.

// loseMembers notes which ranks of the running job j the node took with it.
func (a *Admission) loseMembers(j *job, node lockstep.NodeID) {
	for rank, m := range j.plan.Members {
		if m.Node == node && !slices.Contains(j.lost, rank) {
			j.lost = append(j.lost, rank)
		}
	}
	slices.Sort(j.lost)
	a.setReplan(j, true)
}

// replace gives the lost members of the running job j other room, or stops it.
func (a *Admission) replace(j *job) error {
	a.setReplan(j, false)
	lost := j.lost
	j.lost = nil
	mark := a.what.Mark()
	err := a.release(j)
	ok := false
	if err == nil {
		ok, err = a.fitReplaced(j, j.plan, lost)
	}
	err = a.rollback(mark, err)
	if !ok || err != nil {
		a.stop(j, ReasonLost, true)
		return err
	}
	// What the what-if has shown is done again for good.
	old := j.plan
	if err := a.giveBack(j, a.now); err != nil {
		a.stop(j, ReasonLost, true)
		return err
	}
	if ok, err = a.fitReplaced(j, old, lost); ok && err == nil {
		err = a.take(j, &a.scratch.plan)
	}
	if err != nil || !ok { // the placer contradicts itself
		a.setOld(j, old.Members)
		a.leave(j, ReasonLost, true)
		return err
	}
	a.setEnd(j, later(j.start, j.wall()))
	gone := make([]lockstep.Member, 0, len(lost))
	for _, rank := range lost {
		gone = append(gone, old.Members[rank])
	}
	a.setOld(j, gone)
	j.phase, j.reason = Resizing, ReasonLost
	a.emit(j, lockstep.Action{Kind: lockstep.ActionResize, Plan: j.plan, Reason: ReasonLost, Eviction: a.eviction(j, lost, gone, ReasonLost)})
	return nil
}

// fitReplaced fits j, which sat on old, with other room for the lost ranks and the
// same for the others, and leaves it in the scratch plan.
func (a *Admission) fitReplaced(j *job, old *lockstep.Plan, lost []int) (bool, error) {
	r, closed := a.requestReplaced(j, old, lost)
	v, err := a.fit(r, &a.scratch.plan)
	if err != nil || !v.Feasible {
		return false, err
	}
	p := &a.scratch.plan
	if !rearrange(j.gang, p.Members, old.Members, lost) {
		return false, nil
	}
	fresh := make([]lockstep.Member, 0, len(lost))
	for _, rank := range lost {
		if slices.Contains(closed, p.Members[rank].Node) {
			return false, nil
		}
		fresh = append(fresh, p.Members[rank])
	}
	return !a.touchesDirty(fresh), nil
}

// requestReplaced is the request of fitReplaced. Closed are nodes that nobody new may
// go to, though whoever survives there stays.
func (a *Admission) requestReplaced(j *job, old *lockstep.Plan, lost []int) (r *lockstep.Request, closed []lockstep.NodeID) {
	target, left := a.useSpares(old, lost)
	some := withoutSpares(j.gang) // asks for no more than are left
	for i := range left {
		some.Roles[left[i].Role].Spares++
	}
	end := later(j.start, j.wall())
	if end <= a.now {
		end = a.latestEnd(j)
	}
	r = a.request(j, a.now, end)
	closed = slices.Clone(r.Exclude)
	survives := func(n lockstep.NodeID) bool {
		for rank := range old.Members {
			if old.Members[rank].Node == n && !slices.Contains(lost, rank) {
				return true
			}
		}
		return false
	}
	r.Exclude = slices.DeleteFunc(r.Exclude, survives)
	for _, rank := range lost {
		r.Exclude = append(r.Exclude, old.Members[rank].Node)
	}
	busy := a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	a.scratch.busy = slices.DeleteFunc(busy, func(b lockstep.Busy) bool { return survives(b.Node) })
	counts := a.countsOf(old.Members, j)
	r.Gang, r.Min, r.Max, r.Busy = some, counts, counts, a.scratch.busy
	r.Prefer = &lockstep.Plan{Job: j.id, Gang: some, Members: target, Spares: left}
	return r, closed
}

// withoutSpares returns g asking for no spares.
func withoutSpares(g *lockstep.Gang) *lockstep.Gang {
	some := *g
	some.Roles = slices.Clone(g.Roles)
	for i := range some.Roles {
		some.Roles[i].Spares = 0
	}
	return &some
}

// useSpares puts the lost ranks of p where it has spares for their roles, and
// returns the spares that are left. Those on closed nodes are of no use.
func (a *Admission) useSpares(p *lockstep.Plan, lost []int) (members, left []lockstep.Member) {
	members = slices.Clone(p.Members)
	left = slices.DeleteFunc(slices.Clone(p.Spares), func(m lockstep.Member) bool {
		_, closed := a.closedAt(m.Node)
		return closed
	})
	for _, rank := range lost {
		i := slices.IndexFunc(left, func(m lockstep.Member) bool { return m.Role == members[rank].Role })
		if i >= 0 {
			members[rank] = left[i]
			left = slices.Delete(left, i, i+1)
		}
	}
	return members, left
}

// rearrange orders fitted so that all ranks of old but the lost ones are as they
// were; false where they are not all there, or sit in inner groups that this would mix.
func rearrange(g *lockstep.Gang, fitted, old []lockstep.Member, lost []int) bool {
	rest := slices.Clone(fitted)
	inPlace := true
	for rank, m := range old {
		if slices.Contains(lost, rank) {
			continue
		}
		i := slices.Index(rest, m)
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
		inPlace = inPlace && fitted[rank] == m
	}
	if inPlace {
		return true
	}
	copy(fitted, old)
	for i, rank := range lost {
		if rest[i].Role != old[rank].Role || g.Roles[old[rank].Role].Inner.Size > 1 {
			return false
		}
		fitted[rank] = rest[i]
	}
	return true
}
