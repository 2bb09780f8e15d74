package search

import (
	"cmp"
	"slices"
)

// gkey is what trials must share to be fused.
type gkey struct {
	key, bracket int32
	from, until  uint64
}

// group is trials that are ready and may be fused with each other, in the order in which they came.
type group struct {
	gkey
	queue []int32
	since uint64 // picks made when it was last taken from, or came to be
}

// patience is after how many picks a group is taken though it fills no bundle.
const patience = 1000

// put makes a trial ready.
func (s *Search) put(n int32, k gkey) {
	g := s.group[k]
	if g == nil {
		g = &group{gkey: k, since: s.picks}
		s.group[k] = g
		s.groups = append(s.groups, g)
	}
	g.queue = append(g.queue, n)
	s.trials[n].state = ready
	s.ready++
}

// take removes the first members of a group, which the receiver owns.
func (s *Search) take(g *group, count int) []int32 {
	out := slices.Clone(g.queue[:count])
	s.ready -= count
	s.picks++
	g.since = s.picks
	if g.queue = g.queue[count:]; len(g.queue) == 0 {
		delete(s.group, g.gkey)
		s.groups = slices.DeleteFunc(s.groups, func(x *group) bool { return x == g })
	}
	return out
}

// draw asks the rule for trials to start and reports whether there were any.
func (s *Search) draw() bool {
	if s.dry {
		return false
	}
	starts, decisions := s.rule.Next(max(s.largest, 8))
	s.others(decisions)
	s.decisions = append(s.decisions, decisions...)
	for _, x := range starts {
		n := s.index[x.Trial]
		s.trials[n].attempt = x.Attempt
		k := gkey{key: s.trials[n].key, from: x.From, until: x.Until}
		if len(s.levels) > 0 { // elsewhere trials of all brackets pause where they are told to
			k.bracket = int32(x.Bracket)
		}
		s.put(n, k)
	}
	s.dry = len(starts) == 0
	return !s.dry
}

// rated is how well a group suits a slot.
type rated struct {
	g        *group
	c        *cost
	overdue  bool
	filled   int    // share of a full bundle in thousandths
	strength uint64 // step reached, for a bubble's sake the other way round
	suit     int64  // rate here as a share of the best, in thousandths
	work     uint64 // nanoseconds a bundle takes until its rung
}

func (s *Search) compare(a, b *rated) int {
	late := 0
	if a.overdue != b.overdue {
		if late = 1; a.overdue {
			late = -1
		}
	}
	return cmp.Or(
		late, cmp.Compare(b.filled, a.filled), cmp.Compare(b.strength, a.strength), cmp.Compare(b.suit, a.suit), cmp.Compare(b.work, a.work),
		cmp.Compare(s.keys[a.g.key], s.keys[b.g.key]), cmp.Compare(a.g.from, b.g.from), cmp.Compare(a.g.until, b.g.until),
		cmp.Compare(a.g.bracket, b.g.bracket),
	)
}

// choose returns the group that suits a slot best, nil if none does; with full, only one that fills a bundle.
func (s *Search) choose(x *slot, full bool) (*group, *cost) {
	var best rated
	spare := s.tables[x.class].kind == Bubble && s.surplus(x.class)
	for _, g := range s.groups {
		c := s.cost(x.class, g.key)
		if c == nil {
			continue
		}
		r := rated{g: g, c: c, overdue: s.picks-g.since > patience, filled: 1000, strength: g.from}
		if len(g.queue) < c.full {
			if full && !r.overdue {
				continue
			}
			r.filled = len(g.queue) * 1000 / c.limit
		}
		if s.tables[x.class].kind == Bubble && !spare {
			r.strength = ^r.strength
		}
		r.suit = c.rate * 1000 / max(1, s.fastest(g.key))
		step, _ := c.step(c.limit)
		r.work = satMul(uint64(step), max(g.until, g.from+1)-g.from)
		if best.g == nil || s.compare(&r, &best) < 0 {
			best = r
		}
	}
	return best.g, best.c
}

// surplus says whether more full bundles of promoted trials wait than there are exclusive slots to take them next.
// Then bubbles take the longest of them too, or they would be left to the end.
func (s *Search) surplus(class int32) bool {
	places, full := 0, 0
	for _, x := range s.slots {
		if s.tables[x.class].kind != Exclusive {
			break // those come first
		}
		if !x.lost {
			places++
		}
	}
	for _, g := range s.groups {
		if c := s.cost(class, g.key); c != nil && g.from > 0 {
			full += len(g.queue) / c.limit
		}
	}
	return full > places
}

// fastest returns the highest rate of a key on any class.
func (s *Search) fastest(key int32) int64 {
	most := int64(0)
	for i := range s.tables {
		if c := s.cost(int32(i), key); c != nil {
			most = max(most, c.rate)
		}
	}
	return most
}

func satMul(a, b uint64) uint64 {
	if a > 0 && b > ^uint64(0)/a {
		return ^uint64(0)
	}
	return a * b
}
