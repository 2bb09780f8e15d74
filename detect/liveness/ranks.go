package liveness

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// place puts rank m on node id.
func (c *Coordinator) place(ns int64, id lockstep.NodeID, m Member) {
	r := c.ranks[m.Rank]
	if r == nil {
		r = &rank{number: m.Rank, node: id, told: Unknown, said: reasonJoined, of: m.Incarnation}
		c.ranks[m.Rank] = r
		c.nodes[id].put(m.Rank)
	} else if r.inc == m.Incarnation {
		return
	}
	if r.node != id {
		c.nodes[r.node].take(m.Rank)
		c.nodes[id].put(m.Rank)
		r.node = id
	}
	r.inc = m.Incarnation
	c.unblame(r)
	c.dropAccusations(m.Rank)
	r.own = Member{State: Unknown, Reason: reasonJoined, Since: lockstep.FromNanos(ns)}
	c.touch(r)
}

func (n *node) put(rank int) {
	if i, ok := slices.BinarySearch(n.ranks, rank); !ok {
		n.ranks = slices.Insert(n.ranks, i, rank)
	}
}

func (n *node) take(rank int) {
	if i, ok := slices.BinarySearch(n.ranks, rank); ok {
		n.ranks = slices.Delete(n.ranks, i, i+1)
	}
}

// end takes the ranks of a node that is dead or has left with it, for good: a later
// incarnation of the node does not bring these incarnations of them back.
func (c *Coordinator) end(s *slot[lockstep.NodeID]) {
	to := s.state()
	if to != Dead && to != Left {
		return
	}
	for _, number := range c.nodes[s.key].ranks {
		if r := c.ranks[number]; !r.ended() {
			r.own = Member{State: to, Reason: reasonNode, Since: s.heard(to)}
			c.touch(r)
		}
	}
}

func (r *rank) ended() bool { return r.own.State == Dead || r.own.State == Left }

// hear takes over what the monitor of n says of its ranks. Dead stays dead.
func (c *Coordinator) hear(n *node, said []Member) {
	for _, number := range n.ranks {
		r := c.ranks[number]
		for len(said) > 0 && said[0].Rank < number {
			said = said[1:]
		}
		own := Member{State: Unknown, Reason: reasonUnreported, Since: r.own.Since}
		if len(said) > 0 && said[0].Rank == number && said[0].Incarnation == r.inc {
			own = Member{State: said[0].State, Reason: said[0].Reason, Since: said[0].Since.Round(0).UTC()}
		}
		if r.ended() || own.State == r.own.State && own.Reason == r.own.Reason {
			continue
		}
		r.own = own
		c.touch(r)
	}
}

func (r *rank) member() Member {
	return Member{Rank: r.number, Node: r.node, Incarnation: r.of, State: r.told, Reason: r.said, Since: r.since}
}

func (c *Coordinator) touch(r *rank) {
	if !r.dirty {
		r.dirty = true
		c.touched = append(c.touched, r)
	}
}

func (c *Coordinator) touchAll(n *node) {
	for _, number := range n.ranks {
		c.touch(c.ranks[number])
	}
}

// effective is what r is, given its monitor, its node and its peers.
func (c *Coordinator) effective(r *rank) (State, lockstep.Reason, time.Time) {
	s := &c.t.slots[c.t.index[r.node]]
	own := &r.own
	switch {
	case r.ended():
		return own.State, own.Reason, own.Since
	case s.told == Suspect:
		return Suspect, reasonNode, s.heard(s.told)
	case own.State == Suspect:
		return Suspect, own.Reason, own.Since
	case r.blame != "":
		return Suspect, r.blame, s.heard(s.told)
	case s.told == Unknown && own.State != Unknown: // what an earlier incarnation of its node said of it
		return Unknown, reasonUnreported, own.Since
	}
	return own.State, own.Reason, own.Since
}

// settle looks at the ranks that were touched, weighs the accusations, and makes a
// new list if there is something new in it.
func (c *Coordinator) settle(dst []Event, ns int64) []Event {
	if len(c.touched) == 0 && len(c.open) == 0 && len(c.blamed) == 0 && !c.news {
		return dst
	}
	from := len(dst)
	dst = c.review(dst, ns)
	c.weigh(ns)
	dst = c.review(dst, ns)
	events := dst[from:]
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Rank, b.Rank) })
	if len(events) > 0 {
		c.relist(ns, events, nil)
	}
	return dst
}

// review appends what changed of the ranks that were touched.
func (c *Coordinator) review(dst []Event, ns int64) []Event {
	for _, r := range c.touched {
		r.dirty = false
		to, why, since := c.effective(r)
		if to == r.told && r.inc == r.of {
			continue
		}
		c.count(r, to, why, ns)
		dst = append(dst, Event{
			Kind: RankChanged, At: lockstep.FromNanos(ns), Rank: r.number, Node: r.node,
			Incarnation: r.inc, From: r.told, To: to, Reason: why, Since: since,
		})
		r.told, r.said, r.since, r.of = to, why, since, r.inc
	}
	c.touched = c.touched[:0]
	return dst
}

// count keeps faultAt and standing, which excuse accusers, where r becomes to.
func (c *Coordinator) count(r *rank, to State, why lockstep.Reason, ns int64) {
	if excuses(r.told, r.said) {
		c.standing--
	}
	if excuses(to, why) {
		c.standing++
	}
	if to == Dead || excuses(to, why) {
		c.faultAt = ns
	}
}

// excuses says whether a rank in this state may be what its peers stumble over.
func excuses(s State, why lockstep.Reason) bool {
	return s == Hung || s == Suspect && why != reasonAccused && why != reasonAccuser
}
