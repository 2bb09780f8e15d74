package liveness

import (
	"cmp"
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

// partitions looks at the domains that had fallen silent, and for others that did.
func (c *Coordinator) partitions(dst []Event, ns int64) []Event {
	all, domains := c.tallies(ns)
	size := func(domain string) tally {
		if domain == "" {
			return all
		}
		return domains[domain]
	}
	dst = c.endParts(dst, ns, size)
	if _, whole := c.covers(""); !whole && (len(c.due) > 0 || c.news) {
		var cut []string
		for d, n := range domains { // in any order: sorted
			if c.cut(n) {
				cut = append(cut, d)
			}
		}
		slices.Sort(cut)
		if c.cut(all) {
			cut = []string{""}
		}
		for _, d := range cut {
			if at, old := c.covers(d); !old {
				c.parts = slices.Insert(c.parts, at, partition{d, instant.Add(ns, c.t.cfg.Hold)})
				dst = append(dst, part(PartitionSuspected, ns, d, size(d), reasonCohort))
			}
		}
	}
	c.holdAll(ns)
	return dst
}

// endParts ends the partitions that are over. Nodes that are still silent have as long
// as any silent node has to come back as well.
func (c *Coordinator) endParts(dst []Event, ns int64, size func(string) tally) []Event {
	kept := c.parts[:0]
	var ended []partition
	for _, p := range c.parts {
		n := size(p.Domain)
		// It is over at half the share at which it began, so that it does not flicker.
		if ns < p.Until && n.silent > 0 && 2*int64(n.silent)*million > int64(c.t.cfg.Partition)*int64(n.count) {
			kept = append(kept, p)
		} else {
			ended = append(ended, p)
		}
	}
	c.parts = kept
	if len(ended) == 0 {
		return dst
	}
	why := make(map[string]lockstep.Reason, len(ended))
	for _, p := range ended {
		why[p.Domain] = reasonBeating
	}
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.cohort == 0 {
			continue
		}
		for _, d := range [...]string{"", c.nodes[s.key].domain} {
			if _, over := why[d]; !over {
				continue
			}
			if s.life == dead {
				why[d] = reasonConfirmed
			}
			_, grace := c.t.timeouts(s)
			s.cohort = min(s.cohort, instant.Add(ns, time.Duration(grace)))
			c.t.at[i] = c.t.due(s)
		}
	}
	for _, p := range ended {
		if ns >= p.Until {
			why[p.Domain] = reasonExpired
		}
		dst = append(dst, part(PartitionResolved, ns, p.Domain, size(p.Domain), why[p.Domain]))
	}
	return dst
}

// tallies counts the nodes that were heard of and live, in all and by domain,
// without those that were held for as long as may be and die now.
func (c *Coordinator) tallies(ns int64) (all tally, domains map[string]tally) {
	domains = make(map[string]tally)
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.life != live || s.spent(ns) {
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

// covers says whether a domain is suspected, and where in the list it is, or would be.
func (c *Coordinator) covers(domain string) (int, bool) {
	return slices.BinarySearchFunc(c.parts, domain, func(p partition, d string) int { return cmp.Compare(p.Domain, d) })
}

// holdAll keeps the silent nodes of partitions from dying of it, but for those that
// were held for as long as may be.
func (c *Coordinator) holdAll(ns int64) {
	if len(c.parts) == 0 {
		return
	}
	until := make(map[string]int64, len(c.parts))
	for _, p := range c.parts {
		until[p.Domain] = p.Until
	}
	for i := range c.t.slots {
		s := &c.t.slots[i]
		if s.life != live || !s.quiet || s.spent(ns) {
			continue
		}
		if u := max(until[""], until[c.nodes[s.key].domain]); u > s.cohort {
			s.cohort = u
			c.t.at[i] = c.t.due(s)
		}
	}
}

func part(kind Kind, ns int64, domain string, n tally, why lockstep.Reason) Event {
	return Event{Kind: kind, At: lockstep.FromNanos(ns), Domain: domain, Silent: n.silent, Count: n.count, Reason: why}
}
