package liveness

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// partition is a domain of which too many nodes are silent together to be dead.
type partition struct {
	Domain string `json:"domain"`
	Until  int64  `json:"until"` // when its nodes may die of silence after all
}

// tally is how many nodes of a domain are judged, how many of those are overdue, and
// how many were found silent.
type tally struct{ count, silent, quiet int }

func (n *tally) add(overdue, quiet bool) {
	n.count++
	if overdue {
		n.silent++
	}
	if quiet {
		n.quiet++
	}
}

// partitions looks for domains that fell silent, and at those that had.
func (c *Coordinator) partitions(dst []Event, ns int64) []Event {
	all, domains := c.tallies(ns)
	kept := c.parts[:0]
	for _, p := range c.parts {
		n := all
		if p.Domain != "" {
			n = domains[p.Domain]
		}
		// It is over at half the share at which it began, so that it does not flicker.
		if ns < p.Until && n.silent > 0 && 2*int64(n.silent)*million > int64(c.t.cfg.Partition)*int64(n.count) {
			c.holdAll(p)
			kept = append(kept, p)
			continue
		}
		dst = append(dst, part(PartitionResolved, ns, p.Domain, n, c.resolve(p, ns)))
	}
	clear(c.parts[len(kept):])
	c.parts = kept
	if c.covers("") || len(c.due) == 0 && !c.news {
		return dst
	}
	if c.cut(all) {
		return c.suspect(dst, ns, "", all)
	}
	for _, d := range slices.Sorted(maps.Keys(domains)) {
		if !c.covers(d) && c.cut(domains[d]) {
			dst = c.suspect(dst, ns, d, domains[d])
		}
	}
	return dst
}

// tallies counts the nodes that were heard of and live, in all and by domain,
// without those that were held for as long as may be and die now.
func (c *Coordinator) tallies(ns int64) (all tally, domains map[string]tally) {
	domains = make(map[string]tally)
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.life != live || max(s.hold, s.cohort) > 0 && ns >= s.endAt() {
			continue
		}
		overdue := c.t.overdue(s, ns)
		all.add(overdue, s.quiet)
		if d := c.nodes[s.key].domain; d != "" {
			n := domains[d]
			n.add(overdue, s.quiet)
			domains[d] = n
		}
	}
	return all, domains
}

// cut says whether so many of a domain are silent that it is a partition.
func (c *Coordinator) cut(n tally) bool {
	return n.quiet > 0 && n.silent >= c.t.cfg.PartitionNodes && int64(n.silent)*million > int64(c.t.cfg.Partition)*int64(n.count)
}

func (c *Coordinator) covers(domain string) bool {
	return slices.ContainsFunc(c.parts, func(p partition) bool { return p.Domain == domain })
}

func (c *Coordinator) suspect(dst []Event, ns int64, domain string, n tally) []Event {
	p := partition{domain, instant.Add(ns, c.t.cfg.Hold)}
	at, _ := slices.BinarySearchFunc(c.parts, domain, func(p partition, d string) int { return cmp.Compare(p.Domain, d) })
	c.parts = slices.Insert(c.parts, at, p)
	c.holdAll(p)
	return append(dst, part(PartitionSuspected, ns, domain, n, ReasonCohort))
}

// holdAll keeps the silent nodes of p from dying of it.
func (c *Coordinator) holdAll(p partition) {
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.life == live && s.quiet && s.cohort < p.Until && c.within(s, p) {
			s.cohort = p.Until
			c.t.at[i] = c.t.due(s)
		}
	}
}

func (c *Coordinator) within(s *slot[lockstep.NodeID], p partition) bool {
	return p.Domain == "" || c.nodes[s.key].domain == p.Domain
}

// resolve ends p and says why it is over. Nodes that are still silent have as long
// as any silent node has to come back as well.
func (c *Coordinator) resolve(p partition, ns int64) lockstep.Reason {
	why := ReasonBeating
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.cohort == 0 || !c.within(s, p) {
			continue
		}
		if s.life == dead {
			why = ReasonConfirmed
		}
		_, grace := c.t.timeouts(s)
		s.cohort = min(s.cohort, instant.Add(ns, time.Duration(grace)))
		c.t.at[i] = c.t.due(s)
	}
	if ns >= p.Until {
		return ReasonExpired
	}
	return why
}

func part(kind Kind, ns int64, domain string, n tally, why lockstep.Reason) Event {
	return Event{Kind: kind, At: lockstep.FromNanos(ns), Domain: domain, Silent: n.silent, Count: n.count, Reason: why}
}
