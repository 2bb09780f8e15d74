package liveness

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Coordinator judges the nodes of one job by the reports of their monitors, and
// keeps the one list of faults that all members read. Make one with NewCoordinator
// or RestoreCoordinator.
type Coordinator struct {
	t      *table[lockstep.NodeID]
	domain func(lockstep.NodeID) string
	nodes  map[lockstep.NodeID]*node
	ranks  map[int]*rank
	due    []int32 // scratch of Check
	news   bool    // whether something was said that a check has to weigh

	touched  []*rank     // ranks to look at again
	open     []accused   // accusations, by whom they are of and then by who makes them
	blamed   []*rank     // ranks suspect for an accusation, in no order
	faultAt  int64       // when a rank was found suspect, hung or dead last, not for an accusation; -1 before
	standing int         // how many ranks are suspect or hung so
	parts    []partition // those suspected, by domain
	lists    []List      // the latest last
	epoch    uint64      // no list has a higher one
}

// node is what the table does not hold of a node.
type node struct {
	domain string
	ranks  []int // in increasing order
}

// rank is one rank of the job.
type rank struct {
	number int
	inc    uint64
	node   lockstep.NodeID

	own   Member // what its monitor says, or evidence
	told  State
	said  lockstep.Reason
	since time.Time // of what was told
	of    uint64    // the incarnation of which it was told

	blame lockstep.Reason // why it is suspect for an accusation; "" where it is not
	until int64           // until when
	dirty bool            // whether it is in touched
}

// NewCoordinator returns a coordinator without nodes, or the faults of cfg.
func NewCoordinator(cfg Config) (*Coordinator, error) {
	t, err := newTable[lockstep.NodeID](cfg, false)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{t: t, nodes: make(map[lockstep.NodeID]*node), ranks: make(map[int]*rank), faultAt: -1}
	c.domain, t.cfg.Domain = cfg.Domain, nil
	c.lists = append(c.lists, List{})
	return c, nil
}

// Join makes node a member whose first report is awaited, and ranks, of which Rank
// and Incarnation are read, those that run there. A node that is known joins anew as
// a higher incarnation, with these ranks beside those it has; with the incarnation
// that it has, only ranks are added. A rank that is known joins anew as a higher
// incarnation, and leaves the node where it was; with the one that it has, on the
// same node, it stays as it is.
func (c *Coordinator) Join(now time.Time, id lockstep.NodeID, incarnation uint64, ranks []Member) error {
	const op = "join"
	ns, err := c.t.enter(op, now)
	if err != nil {
		return err
	}
	if err := id.Validate(); err != nil {
		return err
	}
	if err := c.mayJoin(op, id, ranks); err != nil {
		return err
	}
	i, known := c.t.index[id]
	known = known && c.t.slots[i].inc == incarnation && c.t.slots[i].life <= live
	if !known {
		if err := c.t.join(op, "node", string(id), id, incarnation); err != nil {
			return err
		}
	}
	c.t.pass(ns)
	if !known {
		c.t.add(ns, id, incarnation)
	}
	n := c.nodes[id]
	if n == nil {
		n = &node{}
		c.nodes[id] = n
		if c.domain != nil {
			n.domain = strings.ToValidUTF8(c.domain(id), "?")
		}
	}
	for _, m := range ranks {
		c.place(ns, id, m)
	}
	c.touchAll(n)
	return nil
}

// mayJoin says what keeps ranks from joining on node id.
func (c *Coordinator) mayJoin(op string, id lockstep.NodeID, ranks []Member) error {
	seen := make(map[int]bool, len(ranks))
	for k, m := range ranks {
		field := "ranks[" + strconv.Itoa(k) + "]"
		if err := checkRank(op, m.Rank); err != nil {
			return err
		}
		if seen[m.Rank] {
			return fault(lockstep.ErrDuplicate, op, field, strconv.Itoa(m.Rank), "stands twice")
		}
		seen[m.Rank] = true
		r := c.ranks[m.Rank]
		switch {
		case r == nil || m.Incarnation > r.inc, m.Incarnation == r.inc && r.node == id:
		case m.Incarnation == r.inc:
			return fault(lockstep.ErrDuplicate, op, field, strconv.Itoa(m.Rank), "this incarnation has joined on "+string(r.node))
		default:
			return fault(lockstep.ErrStale, op, field, strconv.Itoa(m.Rank), "a later incarnation has joined")
		}
	}
	return nil
}

// Leave takes node out in good order, with its ranks, so that its silence means
// nothing. It stays known until Forget.
func (c *Coordinator) Leave(now time.Time, id lockstep.NodeID, incarnation uint64) (Outcome, error) {
	return c.to("leave", now, id, func(i int32, _ int64) Outcome {
		s := &c.t.slots[i]
		if out, no := s.refuse(incarnation); no {
			return out
		}
		s.life = gone
		c.t.set(i)
		c.end(s)
		return Accepted
	})
}

// Forget removes what is known of a node that is dead or has left, as Check has
// told, and of the ranks there; of another it is ErrConflict.
func (c *Coordinator) Forget(id lockstep.NodeID) error {
	const op = "forget"
	i, ok := c.t.index[id]
	if !ok {
		return fault(lockstep.ErrUnknown, op, "node", string(id), "never joined")
	}
	if s := &c.t.slots[i]; s.told != Dead && s.told != Left || s.life <= live {
		return fault(lockstep.ErrConflict, op, "node", string(id), "is "+s.told.String())
	}
	forgotten := c.nodes[id].ranks
	for _, number := range forgotten {
		c.unblame(c.ranks[number])
		c.dropAccusations(number)
		delete(c.ranks, number)
	}
	c.touched = slices.DeleteFunc(c.touched, func(r *rank) bool { return r.node == id })
	c.t.drop(i)
	delete(c.nodes, id)
	c.relist(c.t.now, nil, forgotten)
	return nil
}

// Report takes in what the monitor of a node says. It is what the node lives by, and
// what is known of its ranks: of one that it does not name nothing is.
func (c *Coordinator) Report(now time.Time, r Report) (Outcome, error) {
	const op = "report"
	if err := checkReport(op, &r); err != nil {
		return 0, err
	}
	return c.to(op, now, r.Node, func(i int32, ns int64) Outcome {
		s := &c.t.slots[i]
		if out, no := s.refuse(r.Incarnation); no {
			return out
		}
		if s.life == live && r.Sequence <= s.progress {
			return Repeated
		}
		c.t.beat(i, ns, &Beat{Incarnation: r.Incarnation, Progress: r.Sequence})
		c.hear(c.nodes[r.Node], r.Members)
		c.stir(true)
		return Accepted
	})
}

func checkReport(op string, r *Report) error {
	for k := range r.Members {
		m, field := &r.Members[k], "Members["+strconv.Itoa(k)+"]"
		if err := checkRank(op, m.Rank); err != nil {
			return err
		}
		if k > 0 && m.Rank <= r.Members[k-1].Rank {
			return fault(lockstep.ErrInvalid, op, field+".Rank", strconv.Itoa(m.Rank), "want increasing ranks")
		}
		if m.State >= states {
			return fault(lockstep.ErrInvalid, op, field+".State", m.State.String(), "is no state")
		}
		if m.Reason == "" || len(m.Reason) > maxReason || !utf8.ValidString(string(m.Reason)) {
			return fault(lockstep.ErrInvalid, op, field+".Reason", errtext.Quote(m.Reason), "want 1 to "+strconv.Itoa(maxReason)+" bytes of UTF-8")
		}
		if _, err := lockstep.Nanos(m.Since); err != nil {
			return fault(lockstep.ErrInvalid, op, field+".Since", m.Since.UTC().String(), "must lie between 1677-09-21 and 2262-04-11")
		}
	}
	return nil
}

// Evidence takes in what somebody else knows of a node. Check tells what follows,
// and NextWake is then now.
func (c *Coordinator) Evidence(now time.Time, id lockstep.NodeID, incarnation uint64, e Evidence) (Outcome, error) {
	if e > Seen {
		return 0, fault(lockstep.ErrInvalid, "evidence", "e", e.String(), "is no evidence")
	}
	return c.to("evidence", now, id, func(i int32, ns int64) Outcome {
		out := c.t.report(i, ns, incarnation, e)
		c.end(&c.t.slots[i])
		return out
	})
}

// to does f to the slot of node id.
func (c *Coordinator) to(op string, now time.Time, id lockstep.NodeID, f func(i int32, ns int64) Outcome) (Outcome, error) {
	ns, err := c.t.enter(op, now)
	if err != nil {
		return 0, err
	}
	c.t.pass(ns)
	i, ok := c.t.index[id]
	if !ok {
		return Stranger, nil
	}
	return f(i, ns), nil
}

// Pause excuses all nodes until a time, as Monitor.Pause does ranks.
func (c *Coordinator) Pause(now, until time.Time) error {
	ns, end, err := c.t.pausing("pause", now, until)
	if err != nil {
		return err
	}
	c.t.pass(ns)
	c.t.pause(end)
	c.stir(true)
	return nil
}

// stir has a check look at the partitions again, if there are any and something
// changed that they depend on.
func (c *Coordinator) stir(changed bool) { c.news = c.news || changed && len(c.parts) > 0 }

// Tune replaces the configuration from now on, all but Window; a Domain of nil
// keeps the one that there is.
func (c *Coordinator) Tune(now time.Time, cfg Config) error {
	const op = "tune"
	ns, err := c.t.enter(op, now)
	if err != nil {
		return err
	}
	domain := cfg.Domain
	cfg.Domain = nil
	if err := c.t.tune(op, cfg); err != nil {
		return err
	}
	c.t.pass(ns)
	c.stir(true)
	if domain != nil {
		c.domain = domain
	}
	return nil
}

// Check decides at now, and appends what changed to dst: that the caller was late,
// then partitions by domain, nodes by ID, and ranks by number. What changes in one
// check is one new list. Give the reports and the evidence of an instant first.
func (c *Coordinator) Check(dst []Event, now time.Time) ([]Event, error) {
	ns, err := c.t.enter("check", now)
	if err != nil {
		return dst, err
	}
	c.t.pass(ns)
	c.t.refresh()
	c.due = c.t.list(c.due[:0], ns)
	dst = c.t.tellLate(dst, ns)
	for _, i := range c.due {
		c.t.hush(&c.t.slots[i], ns)
	}
	if len(c.due) > 0 || len(c.parts) > 0 {
		dst = c.partitions(dst, ns)
	}
	changed := false
	for _, i := range c.due {
		s := &c.t.slots[i]
		c.t.step(s, ns)
		if s.unsaid() {
			changed = true
			dst = append(dst, Event{Kind: NodeChanged, At: lockstep.FromNanos(ns), Node: s.key})
			s.tell(&dst[len(dst)-1])
			c.touchAll(c.nodes[s.key])
			c.end(s)
		}
		c.t.at[i] = c.t.due(s)
	}
	dst = c.settle(dst, ns)
	c.stir(changed)
	c.t.seeing(ns)
	return dst, nil
}

// NextWake returns the earliest time at which Check can tell something, or now if it
// can already; false if there is none.
func (c *Coordinator) NextWake(now time.Time) (time.Time, bool) {
	at := c.t.wake()
	if len(c.touched) > 0 || c.news {
		at = 0
	}
	for _, p := range c.parts {
		at = min(at, p.Until)
	}
	for _, a := range c.open {
		if ripe := c.ripe(a); ripe > c.t.now {
			at = min(at, ripe)
		} else {
			at = min(at, c.stale(a))
		}
	}
	for _, r := range c.blamed {
		at = min(at, r.until)
	}
	return c.t.nextWake(now, at)
}

// Node returns all that is known of a node, seen from now.
func (c *Coordinator) Node(now time.Time, id lockstep.NodeID) (Status, bool) {
	i, ok := c.t.index[id]
	if !ok {
		return Status{}, false
	}
	s := c.t.status(i, now)
	s.Node, s.Rank = id, -1
	return s, true
}

// Rank returns what Check last told of a rank.
func (c *Coordinator) Rank(number int) (Member, bool) {
	r, ok := c.ranks[number]
	if !ok {
		return Member{}, false
	}
	return r.member(), true
}
