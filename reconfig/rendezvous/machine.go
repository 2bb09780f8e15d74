package rendezvous

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

const in = instant.In("rendezvous")

// none is the rank of a node that was not in the last round.
const none = -1

// Machine forms rounds. See the package comment.
type Machine struct {
	cfg     Config // with its defaults
	now     int64  // of the last call
	state   State
	nodes   []entry  // by ID
	gone    []former // of the last round that formed and left since, by ID
	number  uint64   // of the last round that formed
	since   int64    // when the state began; of Gathering the start of the deadline Join
	call    int64    // end of the last call, Never while a round cannot form
	started bool     // a call was accepted, so now and since are real
}

// entry is a node that has joined.
type entry struct {
	id     lockstep.NodeID
	slots  int
	joined int64 // when
	heard  int64 // when last
	rank   int   // in the last round that formed, or none
	member bool  // of the running round
}

// former is a node of the last round that has left; it has its rank again if it joins before the next one.
type former struct {
	id   lockstep.NodeID
	rank int
}

// New returns a Machine that gathers.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Machine{cfg: cfg.withDefaults(), state: Gathering, call: instant.Never}, nil
}

// State returns what m is doing.
func (m *Machine) State() State { return m.state }

// Len returns how many nodes have joined, members or not.
func (m *Machine) Len() int { return len(m.nodes) }

// Waiting returns how many nodes have joined that the running round does not have; if none runs, all.
func (m *Machine) Waiting() int { return len(m.nodes) - m.members() }

// Round returns the round that runs.
func (m *Machine) Round() (Round, bool) {
	if m.state != Running {
		return Round{}, false
	}
	return m.round(), true
}

// NextWake returns when time alone changes something next; the caller calls Step with a Tick then.
func (m *Machine) NextWake(now time.Time) (time.Time, bool) {
	due := m.due()
	if due == instant.Never {
		return time.Time{}, false
	}
	if ns, err := lockstep.Nanos(now); err == nil && due < ns {
		due = ns
	}
	return lockstep.FromNanos(due), true
}

// Step lets time pass to now and then takes c. It appends what happened to dst, in order.
func (m *Machine) Step(dst []Event, now time.Time, c Call) ([]Event, error) {
	ns, err := in.SinceEpoch(step, "now", now)
	if err != nil {
		return dst, err
	}
	if m.started {
		if err := in.NotBefore(step, "now", now, ns, m.now); err != nil {
			return dst, err
		}
	}
	next := m
	if m.due() <= ns {
		// What falls due may forbid c, and an error changes nothing, so time passes in a copy first.
		copied := *m
		copied.nodes, copied.gone = slices.Clone(m.nodes), slices.Clone(m.gone)
		next = &copied
	}
	out := dst
	if next != m {
		out = next.pass(out, ns)
	}
	if err := next.check(c); err != nil {
		return dst, err
	}
	out = next.pass(out, ns)
	out = next.take(out, c)
	out = next.pass(out, ns) // what c made possible at this instant
	*m = *next
	return out, nil
}

// take applies c, which check has passed.
func (m *Machine) take(dst []Event, c Call) []Event {
	i, known := m.find(c.Node)
	switch c.Kind {
	case Join:
		return m.join(dst, i, known, c)
	case Heard:
		m.nodes[i].heard = m.now
	case Leave:
		return m.part(dst, CauseLeft, func(e *entry) bool { return e.id == c.Node })
	case Fail:
		m.nodes[i].heard = m.now
		return m.stop(dst, CauseFailed, c.Node)
	case Retry:
		if m.state == Running {
			dst = m.stop(dst, CauseRetry, "")
		}
		if m.state == Stopped {
			m.gather()
		}
	case Close:
		return m.close(dst, CauseClosed)
	}
	return dst
}

// join adds the node of c, or notes that it is still there.
func (m *Machine) join(dst []Event, i int, known bool, c Call) []Event {
	if !known {
		e := entry{id: c.Node, slots: c.Slots, joined: m.now, heard: m.now, rank: none}
		if at, ok := findFormer(m.gone, c.Node); ok {
			e.rank = m.gone[at].rank
			m.gone = slices.Delete(m.gone, at, at+1)
		}
		m.nodes = slices.Insert(m.nodes, i, e)
		m.recall()
		return dst
	}
	e := &m.nodes[i]
	e.heard, e.slots = m.now, c.Slots
	if e.member {
		return m.stop(dst, CauseRejoin, c.Node)
	}
	return dst
}

// part takes out the nodes that are leaving, and ends the round if one of them is a member: by the first, by ID.
func (m *Machine) part(dst []Event, cause lockstep.Reason, leaving func(*entry) bool) []Event {
	var culprit lockstep.NodeID
	m.nodes = slices.DeleteFunc(m.nodes, func(e entry) bool {
		if !leaving(&e) {
			return false
		}
		if e.member && culprit == "" {
			culprit = e.id
		}
		if e.rank != none {
			at, _ := findFormer(m.gone, e.id)
			m.gone = slices.Insert(m.gone, at, former{id: e.id, rank: e.rank})
		}
		return true
	})
	if culprit != "" {
		return m.stop(dst, cause, culprit)
	}
	m.recall()
	return dst
}

// pass lets time pass to ns: what falls due on the way happens at its own time.
func (m *Machine) pass(dst []Event, ns int64) []Event {
	if !m.started {
		m.started, m.since = true, ns
	}
	for {
		due := m.due()
		if due > ns || due == instant.Never { // Never is also the last instant there is
			break
		}
		m.now = max(m.now, due)
		dst = m.fire(dst)
	}
	m.now = ns
	return dst
}

// due returns when fire has something to do next, or Never.
func (m *Machine) due() int64 {
	if m.state == Closed || !m.started {
		return instant.Never
	}
	due := int64(instant.Never)
	for i := range m.nodes {
		due = min(due, instant.Add(m.nodes[i].heard, m.cfg.Silence))
	}
	switch m.state {
	case Gathering:
		due = min(due, m.call)
		if m.cfg.size(len(m.nodes)) == 0 {
			due = min(due, instant.Add(m.since, m.cfg.Join))
		}
	case Running:
		if m.cfg.size(len(m.nodes)) > m.members() {
			due = min(due, instant.Add(m.since, m.cfg.Dwell))
		}
	}
	return due
}

// fire does the one thing that is due at m.now: silence before anything else.
func (m *Machine) fire(dst []Event) []Event {
	silent := func(e *entry) bool { return instant.Add(e.heard, m.cfg.Silence) <= m.now }
	for i := range m.nodes {
		if silent(&m.nodes[i]) {
			return m.part(dst, CauseSilent, silent)
		}
	}
	switch {
	case m.state == Running:
		dst = m.stop(dst, CauseGrow, "")
		m.gather()
		return dst
	case m.call <= m.now:
		return m.form(dst)
	default:
		return m.close(dst, CauseFew)
	}
}

// gather begins to gather, with whoever is still there.
func (m *Machine) gather() {
	m.state, m.since, m.call = Gathering, m.now, instant.Never
	m.recall()
}

// recall sets the end of the last call after the nodes have changed.
func (m *Machine) recall() {
	switch {
	case m.state != Gathering:
	case m.cfg.size(len(m.nodes)) == 0:
		m.call = instant.Never
	case len(m.nodes) >= m.cfg.Max-m.cfg.Max%m.cfg.Multiple:
		m.call = m.now
	case m.call == instant.Never:
		m.call = instant.Add(m.now, m.cfg.LastCall)
	}
}

// form makes a round of the nodes that are there.
func (m *Machine) form(dst []Event) []Event {
	order := make([]*entry, len(m.nodes))
	for i := range m.nodes {
		order[i] = &m.nodes[i]
	}
	slices.SortFunc(order, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(uint(a.rank), uint(b.rank)), // none comes last
			cmp.Compare(a.joined, b.joined),
			cmp.Compare(a.id, b.id),
		)
	})
	n := m.cfg.size(len(order))
	assign(order, n)
	m.number++
	m.gone = nil
	m.state, m.since, m.call = Running, m.now, instant.Never
	r := m.round()
	return append(dst, Event{Kind: EventFormed, Time: lockstep.FromNanos(m.now), Number: r.Number, Round: &r})
}

// assign makes the first n of order members and ranks them; the others have no rank.
func assign(order []*entry, n int) {
	taken := make([]bool, n)
	for i, e := range order {
		e.member = i < n
		if e.member && e.rank != none && e.rank < n {
			taken[e.rank] = true
		}
	}
	free := 0
	for _, e := range order {
		switch {
		case !e.member:
			e.rank = none
		case e.rank == none || e.rank >= n:
			for taken[free] {
				free++
			}
			e.rank, taken[free] = free, true
		}
	}
}

// stop ends the running round.
func (m *Machine) stop(dst []Event, cause lockstep.Reason, node lockstep.NodeID) []Event {
	m.state, m.since = Stopped, m.now
	for i := range m.nodes {
		m.nodes[i].member = false
	}
	return append(dst, Event{Kind: EventStopped, Time: lockstep.FromNanos(m.now), Number: m.number, Cause: cause, Node: node})
}

// close ends the machine, and first the round that runs.
func (m *Machine) close(dst []Event, cause lockstep.Reason) []Event {
	if m.state == Closed {
		return dst
	}
	if m.state == Running {
		dst = m.stop(dst, cause, "")
	}
	m.state, m.since, m.call, m.nodes, m.gone = Closed, m.now, instant.Never, nil, nil
	return append(dst, Event{Kind: EventClosed, Time: lockstep.FromNanos(m.now), Number: m.number, Cause: cause})
}

// round returns the members of the running round by rank.
func (m *Machine) round() Round {
	r := Round{Number: m.number, Members: make([]Member, m.members())}
	for i := range m.nodes {
		if e := &m.nodes[i]; e.member {
			r.Members[e.rank] = Member{Node: e.id, Slots: e.slots}
		}
	}
	for rank := range r.Members {
		r.Members[rank].First = r.World
		r.World += r.Members[rank].Slots
	}
	return r
}

// members returns how many nodes the running round has.
func (m *Machine) members() int {
	n := 0
	for i := range m.nodes {
		if m.nodes[i].member {
			n++
		}
	}
	return n
}

// find returns where the node is in m.nodes, or would be.
func (m *Machine) find(id lockstep.NodeID) (int, bool) {
	return slices.BinarySearchFunc(m.nodes, id, func(e entry, id lockstep.NodeID) int { return cmp.Compare(e.id, id) })
}

// findFormer returns where the node is in gone, or would be.
func findFormer(gone []former, id lockstep.NodeID) (int, bool) {
	return slices.BinarySearchFunc(gone, id, func(f former, id lockstep.NodeID) int { return cmp.Compare(f.id, id) })
}
