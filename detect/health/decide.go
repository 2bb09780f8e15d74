package health

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// dwell returns how long t has to be quiet in its state.
func (m *Machine) dwell(t *target) time.Duration {
	base := m.cfg.Dwell
	if t.mild() {
		base = m.cfg.Watch
	}
	for range t.level {
		if base >= m.cfg.MaxDwell/2 {
			return m.cfg.MaxDwell
		}
		base *= 2
	}
	return base
}

// mild reports whether t is a suspect that time alone clears: not one whose evidence
// would have closed it, had there been room.
func (t *target) mild() bool { return t.state == Suspect && t.worst().rank() < ActionCordon.rank() }

// quiet returns when t has been quiet for long enough.
func (m *Machine) quiet(t *target) int64 { return instant.Add(max(t.bad, t.since), m.dwell(t)) }

// evaluate moves t to where it belongs, in as many steps as it takes.
func (m *Machine) evaluate(t *target, at int64) {
	for !t.pinned() && m.move(t, at) {
	}
}

// move takes one step and reports whether there was one to take. It has one case a
// state, each of which says what leads out of it.
func (m *Machine) move(t *target, at int64) bool {
	bad := t.worst()
	switch t.state {
	case Unknown:
		return m.fromUnknown(t, bad, at)
	case Healthy:
		return bad.rank() >= ActionWatch.rank() && m.worsen(t, bad, at)
	case Suspect:
		if bad.rank() >= ActionCordon.rank() && m.worsen(t, bad, at) {
			return true
		}
		if t.lasts() || at < m.quiet(t) || !t.mild() && !t.cleared(never) {
			return false
		}
		m.recover(t, at)
	case Cordoned:
		if bad.rank() >= ActionDrain.rank() {
			return m.worsen(t, bad, at)
		}
		if t.lasts() || at < m.quiet(t) || !t.cleared(never) {
			return false
		}
		m.recover(t, at)
	case Draining, Quarantined:
		return m.repair(t, bad, at)
	case Probation:
		if bad != nil {
			return m.worsen(t, bad, at)
		}
		if at < m.quiet(t) || !t.cleared(t.since) {
			return false
		}
		m.recover(t, at)
	default:
		return false
	}
	return true
}

// fromUnknown leaves Unknown where there is reason to.
func (m *Machine) fromUnknown(t *target, bad *incident, at int64) bool {
	vouched := slices.ContainsFunc(t.passes, func(p pass) bool { return p.at > max(t.bad, t.blind) }) && t.cleared(never)
	switch {
	case bad.rank() >= ActionCordon.rank():
		return m.worsen(t, bad, at)
	case t.prior != "" && (vouched || t.seen > t.blind):
		m.to(t, t.prior, reasonVouched, bad, at)
	case t.prior == "" && (vouched || m.cfg.Lenient && t.seen > t.blind && bad == nil):
		to := Healthy
		if bad != nil {
			to = Suspect
		}
		m.to(t, to, reasonVouched, bad, at)
	default:
		return false
	}
	return true
}

// recover makes t Healthy again.
func (m *Machine) recover(t *target, at int64) {
	t.settleDown(true)
	t.left = at
	m.to(t, Healthy, reasonQuiet, nil, at)
}

// worsen takes t to what bad asks for, and reports whether it may.
func (m *Machine) worsen(t *target, bad *incident, at int64) bool {
	from, to := t.state, Suspect
	switch {
	case bad.rank() >= ActionDrain.rank():
		to = Draining
	case bad.rank() >= ActionCordon.rank() || from == Probation:
		to = Cordoned
	}
	if to != Suspect && !bad.entry.Certain && !m.room(t) {
		return m.cap(t, bad, at)
	}
	reason := reasonEvidence
	if bad.sticky {
		reason = reasonRepeated
	}
	if m.recovered(t, at) && m.relapsed(t, bad, at) {
		reason, to = reasonRelapse, Draining
	}
	if from == Healthy || from == Probation || from == Unknown {
		t.level = t.count("", at-int64(m.cfg.Relapse), false)
	}
	if to == Draining {
		t.need = bad.action
		if from == Probation { // there is no work on it, and to wait did not help
			to, t.need = Quarantined, worse(t.need, ActionReset)
		}
	}
	m.to(t, to, reason, bad, at)
	return true
}

// recovered reports whether t is on its way back, or came back of late, so that to fall
// ill is a relapse.
func (m *Machine) recovered(t *target, at int64) bool {
	return t.state == Probation || t.state == Healthy && t.left != never && at-t.left < int64(m.cfg.Relapse)
}

// cap keeps t open, or unknown, though bad asks for more than its domain has room
// for. It reports whether that moves t.
func (m *Machine) cap(t *target, bad *incident, at int64) bool {
	m.hold(t, true)
	if t.state != Healthy {
		return false
	}
	m.to(t, Suspect, reasonCapped, bad, at)
	return true
}

// relapsed counts that t fell ill again, and reports whether that makes it ask for
// inspection.
func (m *Machine) relapsed(t *target, bad *incident, at int64) bool {
	t.relapses = append(t.relapses, relapse{at, bad.code, bad.rank() >= ActionCordon.rank()})
	if len(t.relapses) > most {
		t.relapses = slices.Delete(t.relapses, 0, 1)
	}
	since := at - int64(m.cfg.Relapse)
	if bad.rank() < ActionCordon.rank() || t.count(bad.code, since, true) < m.cfg.SameRelapses && t.count("", since, true) < m.cfg.AnyRelapses {
		return false
	}
	bad.action, bad.sticky = ActionInspect, true
	return true
}

// count returns the relapses after a time, of a code or of any, all or grave ones.
func (t *target) count(c Code, after int64, grave bool) int {
	n := 0
	for _, r := range t.relapses {
		if r.at > after && (c == "" || r.code == c) && (r.grave || !grave) {
			n++
		}
	}
	return n
}

// repair follows t on its way out and back.
func (m *Machine) repair(t *target, bad *incident, at int64) bool {
	reason := reasonEvidence
	if bad != nil && bad.sticky {
		reason = reasonRepeated
	}
	switch drained := t.drained >= t.since; {
	case bad == nil && t.fixed >= t.since:
		m.to(t, Probation, reasonRepaired, nil, at)
	case bad == nil && t.state == Quarantined:
		m.to(t, Probation, reasonCleared, nil, at)
	case bad == nil:
		m.to(t, Cordoned, reasonCleared, nil, at)
	case bad.rank() > t.need.rank():
		t.need = bad.action
		m.emit(t, t.state, reason, bad, at)
	case t.state == Draining && drained && t.need == ActionDrain && !t.lasts():
		t.settleDown(false)
		m.to(t, Probation, reasonDrained, bad, at)
	case t.state == Draining && drained:
		m.to(t, Quarantined, reasonDrained, bad, at)
	default:
		return false
	}
	return true
}

// to moves t.
func (m *Machine) to(t *target, to State, reason lockstep.Reason, bad *incident, at int64) {
	from := t.state
	t.state, t.since = to, at
	leaves := to == Draining || to == Quarantined
	if leaves && from != Draining && from != Quarantined {
		t.asked = at
	}
	if !leaves {
		t.need = ActionNone
	}
	if to != Unknown {
		t.prior = ""
	}
	if reason != reasonCapped {
		m.hold(t, false)
	}
	m.recount(t)
	if t.counted && t.node.closed == 1 { // one closed node more or less: its others may follow
		for _, o := range t.node.all() {
			if o.capped {
				m.touch(o)
			}
		}
	}
	m.emit(t, from, reason, bad, at)
}

// recount keeps the count of what is closed in t's node and domain.
func (m *Machine) recount(t *target) {
	now := t.state.closed() && !t.pinned()
	if now == t.counted {
		return
	}
	t.counted = now
	n, d := t.node, t.node.domain
	before := n.closed > 0
	if now {
		n.closed++
	} else {
		n.closed--
	}
	switch after := n.closed > 0; {
	case after && !before:
		d.closed++
	case before && !after:
		d.closed--
		d.freed = true
	}
}

// room reports whether another target of t's node may be closed.
func (m *Machine) room(t *target) bool {
	d := t.node.domain
	return t.node.closed > 0 || int64(d.closed) < max(1, int64(d.nodes)*int64(m.cfg.Blast)/thousand)
}

// hold notes whether t's domain holds it back.
func (m *Machine) hold(t *target, on bool) {
	if t.capped == on {
		return
	}
	t.capped = on
	if d := t.node.domain; on {
		d.capped.ReplaceOrInsert(t)
	} else {
		d.capped.Delete(t)
	}
}

// blind takes in that nobody sees t any more.
func (m *Machine) blind(t *target, at int64, reason lockstep.Reason) {
	t.blind = max(t.blind, at)
	if t.pinned() || !t.state.Open() {
		return
	}
	prior := t.state
	m.to(t, Unknown, reason, nil, at)
	t.prior = prior
}

// override takes in what somebody wants.
func (m *Machine) override(t *target, e *Event, of, at int64) {
	p := pin{e.State, e.Source, e.Note, of}
	if t.state == Retired || t.pin != nil && t.pin.compare(p) >= 0 {
		return // also where it is told again after it was ended
	}
	t.pin = &p
	if e.State == "" {
		m.recount(t)
		return
	}
	if e.State == Healthy { // somebody vouches for it
		t.settleDown(true)
	}
	m.recount(t)
	if t.state != e.State {
		m.to(t, e.State, reasonManual, nil, at)
		m.out[len(m.out)-1].Source = e.Source
		if e.State == Draining || e.State == Quarantined {
			t.need = ActionDrain
		}
	}
}

// emit records a transition.
func (m *Machine) emit(t *target, from State, reason lockstep.Reason, bad *incident, at int64) {
	tr := Transition{
		Time: lockstep.FromNanos(at), Node: t.node.id, Device: t.device,
		From: from, To: t.state, Action: t.action(), Reason: reason,
	}
	if bad != nil {
		tr.Code, tr.Count = bad.code, len(bad.bursts)
		if n := len(bad.bursts); n > 0 {
			b := bad.bursts[n-1]
			tr.First, tr.Last, tr.Job = lockstep.FromNanos(b.first), lockstep.FromNanos(b.last), b.job
		}
	}
	m.out = append(m.out, tr)
}

// action returns what is to be done to t.
func (t *target) action() Action {
	switch t.state {
	case Suspect:
		return ActionWatch
	case Unknown, Cordoned, Probation:
		return ActionCordon
	case Draining, Quarantined:
		a := worse(t.need, ActionDrain)
		if bad := t.worst(); bad != nil && t.pinned() { // else need says so
			a = worse(a, bad.action)
		}
		return a
	case Retired:
		return ActionInspect
	}
	return ActionNone
}

// schedule finds when time alone changes something about t.
func (m *Machine) schedule(t *target, at int64) {
	next := int64(forever)
	by := func(d int64) { next = min(next, max(d, at+1)) }
	for k := range t.incidents {
		i := &t.incidents[k]
		if i.held != never {
			by(instant.Add(i.held, m.cfg.Hold))
		}
		if i.above != never && !i.lasts {
			by(instant.Add(i.above, i.entry.For))
		}
	}
	if !t.pinned() {
		switch {
		case t.state == Suspect && !t.lasts() && (t.mild() || t.cleared(never)), t.state == Cordoned && !t.lasts() && t.cleared(never), t.state == Probation && t.cleared(t.since):
			by(m.quiet(t))
		}
		if t.state.Open() && t.seen != never {
			by(instant.Add(t.seen, m.cfg.Stale))
		}
	}
	if t.capped && t.node.domain.freed {
		by(at + 1)
	}
	if next == t.deadline {
		return
	}
	if t.deadline != forever {
		m.timers.Delete(t)
	}
	if t.deadline = next; next != forever {
		m.timers.ReplaceOrInsert(t)
	}
}
