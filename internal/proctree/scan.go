package proctree

import (
	"errors"
	"maps"
	"slices"
)

// join makes p a member.
func (t *Tree) join(p Process) *member {
	m := &member{Process: p}
	t.members[p.PID] = m
	if p.Group == p.PID {
		t.groups[p.PID] = true
	}
	if p.Session == p.PID {
		t.sessions[p.PID] = true
	}
	return m
}

// hold takes hold of a member, and says whether it could.
func (t *Tree) hold(m *member) bool {
	if m.handle == nil {
		h, ok := t.kernel.open(m.Identity)
		if !ok {
			return false
		}
		m.handle = h
	}
	return true
}

// drop lets go of a member.
func (m *member) drop() {
	if m.handle != nil {
		m.handle.close()
		m.handle = nil
	}
}

// scan brings the members up to date. It reads all processes once and then goes over
// them until none joins any more: a child of a member, one in a group or session that
// a member founded, one in the cage, or one whose environment names the tree.
// The states of the members' threads are read after that, so that whoever was found
// halted was halted at a time when all members were known.
func (t *Tree) scan() error {
	table, err := t.kernel.table()
	if err != nil {
		return fault(ErrFailed, "scan", "/proc", "", err.Error())
	}
	t.refresh(table)
	var caged map[int]bool
	if t.cage != nil {
		caged = t.cage.members()
	}
	self := t.kernel.self()
	root := t.root.Start
	foreign := make(map[Identity]bool)
	// Nobody in the tree is older than its root, but for a cgroup that was there before.
	table = slices.DeleteFunc(table, func(p Process) bool {
		return p.PID <= 1 || p.PID == self || p.Start < root && !caged[p.PID] || p.flags&kernelThread != 0
	})
	for joined := true; joined; {
		joined = false
		for _, p := range table {
			if t.members[p.PID] != nil || !t.related(p, caged) && !t.named(p, foreign) {
				continue
			}
			t.join(p)
			joined = true
		}
	}
	t.foreign = foreign
	for pid, m := range t.members { // order does not matter
		m.caged = caged[pid]
		m.threads = summary(t.kernel.states(pid))
	}
	return nil
}

// refresh drops the members that are gone, and what they founded if nobody is left in it.
func (t *Tree) refresh(table []Process) {
	seen := make(map[int]bool, len(t.members))
	groups, sessions := make(map[int]bool), make(map[int]bool)
	for _, p := range table {
		m := t.members[p.PID]
		if m == nil || m.Start != p.Start {
			continue
		}
		seen[p.PID] = true
		m.Process = p
		// A group keeps its number from others only as long as somebody is in it.
		if t.groups[p.Group] || p.Group == p.PID {
			groups[p.Group] = true
		}
		if t.sessions[p.Session] || p.Session == p.PID {
			sessions[p.Session] = true
		}
	}
	for pid, m := range t.members { // order does not matter
		if !seen[pid] {
			m.drop()
			delete(t.members, pid)
		}
	}
	t.groups, t.sessions = groups, sessions
}

// related says whether a process is a member by where it is.
func (t *Tree) related(p Process, caged map[int]bool) bool {
	if parent := t.members[p.Parent]; parent != nil && parent.Start <= p.Start {
		return true
	}
	return t.groups[p.Group] || t.sessions[p.Session] || caged[p.PID]
}

// named says whether a process is a member by its environment. That it is not is
// remembered, as its environment is its parent's or one that its parent chose.
func (t *Tree) named(p Process, foreign map[Identity]bool) bool {
	if t.token == "" || foreign[p.Identity] {
		return false
	}
	if t.foreign[p.Identity] {
		foreign[p.Identity] = true
		return false
	}
	named, sure := t.kernel.tagged(p.PID, t.token)
	if !named && sure {
		foreign[p.Identity] = true
	}
	return named
}

// sorted returns the members that a filter lets through, by pid.
func (t *Tree) sorted(keep func(*member) bool) []*member {
	var list []*member
	for _, pid := range slices.Sorted(maps.Keys(t.members)) {
		if m := t.members[pid]; keep(m) {
			list = append(list, m)
		}
	}
	return list
}

// send signals members: a whole process group at once where it is the tree's, which a
// fork cannot slip through, and one by one whoever is in another's group. All are
// signalled, whoever refuses; the errors are joined.
func (t *Tree) send(what order, to []*member) error {
	done := make(map[int]bool)
	var errs []error
	for _, m := range to {
		if t.groups[m.Group] {
			if !done[m.Group] {
				done[m.Group] = true
				if err := t.kernel.group(m.Group, what); err != nil {
					errs = append(errs, refusal("group", m.Identity, err))
				}
			}
			continue
		}
		if !t.hold(m) {
			continue // it is gone
		}
		if err := m.handle.signal(what); err != nil {
			errs = append(errs, refusal("process", m.Identity, err))
		}
	}
	return errors.Join(errs...)
}

// processes returns what is told of members.
func processes(list []*member) []Process {
	out := make([]Process, len(list))
	for i, m := range list {
		out[i] = m.Process
	}
	return out
}
