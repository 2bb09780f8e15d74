package health

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Machine holds the state of devices and nodes. Make one with New or Restore.
type Machine struct {
	cfg   Config
	codes map[Code]*Entry // of cfg.Policy

	now     int64 // everything before it is decided; never before the first Step
	nodes   map[lockstep.NodeID]*node
	domains map[string]*domain
	sources map[string]int // devices that each observer was the last to see

	queue  []queued // what is not decided; sorted iff sorted
	head   int      // how much of it is, within Step
	sorted bool
	hits   []hit // by at; those from past on are of the last 2 Hold
	past   int
	crowd  map[crowd]int
	timers *btree.BTreeG[*target] // targets with a deadline, by deadline and name

	touched []*target // those that this instant concerns
	spare   []*target // memory for them
	out     []Transition
}

// node is a host and what is on it.
type node struct {
	id      lockstep.NodeID
	domain  *domain
	boot    string
	self    *target
	devices []*target // by name
	closed  int       // targets of it that count against Config.Blast
}

// domain is a set of nodes that fail together.
type domain struct {
	name   string
	nodes  int
	closed int                    // nodes with a target that counts
	capped *btree.BTreeG[*target] // those that it holds back, by name
	freed  bool                   // there is room again since they were looked at
}

// queued is an event that is not decided.
type queued struct {
	event Event
	at    int64 // its time
	due   int64 // the instant at which it is decided
}

// hit is the beginning of a hold.
type hit struct {
	at  int64
	key crowd
}

// crowd tells what makes devices alike: a code and a job, or lost and an observer.
type crowd struct {
	code Code
	by   string
}

const in instant.In = "health"

const (
	never    = -1            // before every time
	forever  = instant.Never // after every time
	degree   = 32
	maxQueue = 1 << 16
)

// New returns a machine that tracks nothing, or the faults of cfg.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		now: never, sorted: true,
		nodes: make(map[lockstep.NodeID]*node), domains: make(map[string]*domain),
		sources: make(map[string]int), crowd: make(map[crowd]int),
		timers: btree.NewG(degree, func(a, b *target) bool {
			return cmp.Or(cmp.Compare(a.deadline, b.deadline), a.compare(b)) < 0
		}),
	}
	m.configure(cfg)
	return m, nil
}

func (m *Machine) configure(cfg Config) {
	m.cfg = cfg.withDefaults()
	m.codes = make(map[Code]*Entry, len(m.cfg.Policy.Entries))
	for i := range m.cfg.Policy.Entries {
		m.codes[m.cfg.Policy.Entries[i].Code] = &m.cfg.Policy.Entries[i]
	}
}

// entry is Policy.Lookup without a copy.
func (m *Machine) entry(c Code) *Entry {
	for ; c != ""; c = c.parent() {
		if e := m.codes[c]; e != nil {
			return e
		}
	}
	return &m.cfg.Policy.Unknown
}

// Configure gives the machine another configuration, for all that comes; what was
// decided stays, though devices that Config.Blast held back are looked at again. Domain is asked only for nodes that are tracked later.
func (m *Machine) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	m.configure(cfg)
	for _, n := range m.sortedNodes() {
		for _, t := range n.all() {
			for i := range t.incidents {
				t.incidents[i].entry = m.entry(t.incidents[i].code)
			}
			m.schedule(t, m.now-1)
		}
		m.free(n.domain, true)
	}
	return nil
}

// free notes whether d may have room again, for the next Step to look at those that it
// holds back.
func (m *Machine) free(d *domain, room bool) {
	d.freed = room
	d.capped.Ascend(func(t *target) bool {
		m.schedule(t, m.now-1)
		return true
	})
}

// sortedNodes returns the nodes by name.
func (m *Machine) sortedNodes() []*node {
	out := make([]*node, 0, len(m.nodes))
	for _, n := range m.nodes { // in any order: they are sorted
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.id, b.id) })
	return out
}

// all returns the node itself and its devices.
func (n *node) all() []*target { return append([]*target{n.self}, n.devices...) }

// find returns the target of a device, the node itself for "", nil where it is not
// tracked.
func (n *node) find(id lockstep.DeviceID) *target {
	if id == "" {
		return n.self
	}
	if i, ok := slices.BinarySearchFunc(n.devices, id, func(t *target, id lockstep.DeviceID) int { return cmp.Compare(t.device, id) }); ok {
		return n.devices[i]
	}
	return nil
}

// Track begins to hold a node and devices of it, all Unknown, from now on. What is
// held already stays as it is, and so do devices that are not named.
func (m *Machine) Track(now time.Time, id lockstep.NodeID, devices ...lockstep.DeviceID) error {
	const op = "track"
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, m.now)
	}
	if err != nil {
		return err
	}
	if id.Validate() != nil {
		return fault(lockstep.ErrInvalid, op, "node", errtext.Quote(id), "is no ID")
	}
	for i, d := range devices {
		if d.Validate() != nil {
			return fault(lockstep.ErrInvalid, op, "devices["+strconv.Itoa(i)+"]", errtext.Quote(d), "is no ID")
		}
	}
	n := m.nodes[id]
	if n == nil {
		name := ""
		if m.cfg.Domain != nil {
			name = strings.ToValidUTF8(m.cfg.Domain(id), "?")
		}
		n = m.add(id, name, newTarget(ns))
	}
	for _, d := range devices {
		if n.find(d) == nil {
			t := newTarget(ns)
			t.device = d
			n.put(t)
		}
	}
	return nil
}

// add takes in a node with its own target.
func (m *Machine) add(id lockstep.NodeID, name string, self *target) *node {
	d := m.domains[name]
	if d == nil {
		d = &domain{name: name, capped: btree.NewG(degree, func(a, b *target) bool { return a.compare(b) < 0 })}
		m.domains[name] = d
	}
	d.nodes++
	m.free(d, true)
	n := &node{id: id, domain: d, self: self}
	self.node = n
	m.nodes[id] = n
	return n
}

func (n *node) put(t *target) {
	t.node = n
	i, _ := slices.BinarySearchFunc(n.devices, t.device, func(o *target, id lockstep.DeviceID) int { return cmp.Compare(o.device, id) })
	n.devices = slices.Insert(n.devices, i, t)
}

// Forget ends the hold of devices of a node, or of the node and all of them where
// none is named. ErrUnknown where something is not tracked.
func (m *Machine) Forget(id lockstep.NodeID, devices ...lockstep.DeviceID) error {
	n := m.nodes[id]
	if n == nil {
		return fault(lockstep.ErrUnknown, "forget", "node", errtext.Quote(id), "is not tracked")
	}
	for _, d := range devices {
		if d == "" || n.find(d) == nil {
			return fault(lockstep.ErrUnknown, "forget", "devices", errtext.Quote(d), "is not tracked")
		}
	}
	if len(devices) > 0 {
		for _, d := range devices {
			if t := n.find(d); t != nil { // else it was named twice
				m.drop(t)
				n.devices = slices.DeleteFunc(n.devices, func(o *target) bool { return o == t })
			}
		}
		if n.domain.freed {
			m.free(n.domain, true)
		}
		return nil
	}
	for _, t := range n.all() {
		m.drop(t)
	}
	n.domain.nodes--
	m.free(n.domain, true)
	if n.domain.nodes == 0 {
		delete(m.domains, n.domain.name)
	}
	delete(m.nodes, id)
	return nil
}

// drop takes t out of all that knows of it.
func (m *Machine) drop(t *target) {
	if t.deadline != forever {
		m.timers.Delete(t)
		t.deadline = forever
	}
	m.saw(t, "")
	t.pin = nil
	t.state = Unknown
	m.recount(t)
	m.hold(t, false)
}
