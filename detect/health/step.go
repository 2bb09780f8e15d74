package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Observe takes an event in; Step decides about it. Events may come late, twice and
// in any order. One that is malformed is ErrInvalid, one about what is not tracked
// ErrUnknown, and one more than 65536 that wait for Step is ErrConflict.
func (m *Machine) Observe(e Event) error {
	const op = "observe"
	if err := e.check(); err != nil {
		return err
	}
	ns, err := in.SinceEpoch(op, "Time", e.Time)
	if err != nil {
		return err
	}
	n := m.nodes[e.Node]
	if n == nil {
		return fault(lockstep.ErrUnknown, op, "Node", errtext.Quote(e.Node), "is not tracked")
	}
	if n.find(e.Device) == nil {
		return fault(lockstep.ErrUnknown, op, "Device", errtext.Quote(e.Device), "is not tracked")
	}
	if len(m.queue) >= maxQueue {
		m.sort()
		m.queue = slices.CompactFunc(m.queue, func(a, b queued) bool { return a.due == b.due && a.event.compare(&b.event) == 0 })
		if len(m.queue) >= maxQueue {
			return fault(lockstep.ErrConflict, op, "", "", "too many events wait for Step")
		}
	}
	e.Time = lockstep.FromNanos(ns)
	m.queue = append(m.queue, queued{e, ns, max(ns, m.now)})
	m.sorted = len(m.queue) == 1
	return nil
}

// sort orders the queue.
func (m *Machine) sort() {
	if !m.sorted {
		slices.SortFunc(m.queue, func(a, b queued) int {
			return cmp.Or(cmp.Compare(a.due, b.due), a.event.compare(&b.event))
		})
		m.sorted = true
	}
}

// Step decides about everything before now, and returns what changed, in the order
// of time, then of gravity, then of names. What happens at now itself waits for a
// later Step, so that all of one instant is there. ErrPast where now is before an
// earlier one.
func (m *Machine) Step(now time.Time) ([]Transition, error) {
	const op = "step"
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, m.now)
	}
	if err != nil {
		return nil, err
	}
	for i := range m.queue {
		if q := &m.queue[i]; q.at > instant.Add(ns, m.cfg.Skew) { // its clock is wrong
			q.at, q.due, m.sorted = ns, ns, false
			q.event.Time = lockstep.FromNanos(ns)
		}
	}
	m.sort()
	for {
		at := m.next()
		if at >= ns {
			break
		}
		m.instant(at)
	}
	m.queue, m.head = slices.Delete(m.queue, 0, m.head), 0
	m.now = ns
	out := m.out
	m.out = nil
	return out, nil
}

// next returns the next instant at which there is something to decide.
func (m *Machine) next() int64 {
	at := int64(forever)
	if m.head < len(m.queue) {
		at = m.queue[m.head].due
	}
	if t, ok := m.timers.Min(); ok {
		at = min(at, t.deadline)
	}
	return at
}

// NextWake returns the earliest time at which Step has something to decide, as far
// as is known now.
func (m *Machine) NextWake() (time.Time, bool) {
	m.sort()
	at := m.next()
	if at >= forever-1 {
		return time.Time{}, false
	}
	return lockstep.FromNanos(at + 1), true
}

// instant decides about one instant.
func (m *Machine) instant(at int64) {
	m.prune(at)
	for ; m.head < len(m.queue) && m.queue[m.head].due <= at; m.head++ {
		m.apply(&m.queue[m.head], at)
	}
	for {
		t, ok := m.timers.Min()
		if !ok || t.deadline > at {
			break
		}
		m.timers.DeleteMin()
		t.deadline = forever
		m.expire(t, at)
		m.touch(t)
	}
	m.settle(at)
}

// prune forgets what began more than two holds ago.
func (m *Machine) prune(at int64) {
	for ; m.past < len(m.hits) && m.hits[m.past].at < at-2*int64(m.cfg.Hold); m.past++ {
		key := m.hits[m.past].key
		if m.crowd[key]--; m.crowd[key] == 0 {
			delete(m.crowd, key)
		}
	}
	if m.past > len(m.hits)/2 {
		m.hits, m.past = slices.Delete(m.hits, 0, m.past), 0
	}
}

func (m *Machine) touch(t *target) {
	if !t.touched {
		t.touched = true
		m.touched = append(m.touched, t)
	}
}

// settle moves what was touched: the gravest first, so that they have what room a
// domain has, then by name; then those that a domain held back, where it has room
// again.
func (m *Machine) settle(at int64) {
	for len(m.touched) > 0 {
		now := m.touched
		m.touched = m.spare[:0]
		for _, t := range now {
			t.gravest = t.worst().rank()
		}
		slices.SortFunc(now, func(a, b *target) int { return cmp.Or(cmp.Compare(b.gravest, a.gravest), a.compare(b)) })
		for _, t := range now {
			t.touched = false
			m.evaluate(t, at)
			m.schedule(t, at)
		}
		for _, t := range now {
			if d := t.node.domain; d.freed {
				d.freed = false
				d.capped.Ascend(func(o *target) bool { m.touch(o); return true })
			}
		}
		clear(now)
		m.spare = now[:0]
	}
}

// apply takes an event to those whom it concerns.
func (m *Machine) apply(q *queued, at int64) {
	e := &q.event
	n := m.nodes[e.Node]
	if n == nil || n.find(e.Device) == nil {
		return // forgotten meanwhile
	}
	switch e.Kind {
	case Boot:
		m.booted(n, e, q.at, at)
		return
	case JobEnd:
		t := n.find(e.Device)
		t.ends = keep(t.ends, q.at)
		return
	case Seen, Lost, Drained, Repaired:
		if e.Device == "" {
			for _, t := range n.all() {
				m.take(t, e, q.at, at)
			}
			return
		}
	}
	m.take(n.find(e.Device), e, q.at, at)
}

// take applies an event to one target. The event is of the time of, and decided
// about at the instant at.
func (m *Machine) take(t *target, e *Event, of, at int64) {
	m.touch(t)
	switch e.Kind {
	case Fault:
		m.report(t, t.incident(m, e.Code), e, of, at)
	case Reading:
		m.read(t, t.incident(m, e.Code), e, of, at)
	case Clear:
		m.clear(t, e.Code, of)
	case Probe:
		if e.Passed {
			t.passed(e.Code, of)
		} else {
			m.report(t, t.incident(m, codeProbe+"/"+e.Code), e, of, at)
		}
	case Seen:
		if of > t.blind {
			t.seen = max(t.seen, of)
			m.saw(t, e.Source)
			m.clear(t, codeLost, of)
		}
	case Lost:
		switch {
		case of <= t.seen:
		case e.Device == "" && of <= t.blind: // told before
		case e.Device == "":
			m.blind(t, at, reasonObserver)
		default:
			m.report(t, t.incident(m, codeLost), e, of, at)
		}
	case Drained:
		t.drained = max(t.drained, of)
	case Repaired:
		m.repaired(t, e.Action, "", of)
	case Override:
		m.override(t, e, of, at)
	}
}

// booted takes in that a node began to run anew, which repairs what a reboot can.
func (m *Machine) booted(n *node, e *Event, of, at int64) {
	// Of two boots of one instant the greater counts, in whichever order and however often they are told.
	if n.boot == e.Boot || of < n.self.booted || of == n.self.booted && e.Boot < n.boot {
		return
	}
	first := n.boot == ""
	n.boot, n.self.booted = e.Boot, of
	if first {
		return
	}
	for _, t := range n.all() {
		m.touch(t)
		m.repaired(t, ActionReboot, e.Boot, of)
	}
}

// saw remembers which observer was the last to see t, "" for none.
func (m *Machine) saw(t *target, source string) {
	if t.source == source || t.device == "" {
		return
	}
	if t.source != "" {
		if m.sources[t.source]--; m.sources[t.source] == 0 {
			delete(m.sources, t.source)
		}
	}
	if t.source = source; source != "" {
		m.sources[source]++
	}
}

// keep adds a time to the greatest that are remembered, in order, each once.
func keep(times []int64, at int64) []int64 {
	i, ok := slices.BinarySearch(times, at)
	if ok {
		return times
	}
	times = slices.Insert(times, i, at)
	if len(times) > most {
		times = slices.Delete(times, 0, 1)
	}
	return times
}
