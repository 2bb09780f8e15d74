package placement

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Rule says how members that take shares of devices, and with Config.RankAll all members,
// choose among nodes, which are ranked by the best place that they have for one member, and
// among the devices of a node, in turn.
//
// A share of one device goes where it costs least by the rule, then where least is free,
// then to the lowest. Shares of several go to the tightest devices that leave the other
// members there room, then to the lowest.
//
// A MIG instance goes by no rule: first to a device that has some or is set aside, before
// an idle one; then where it takes least room from others (sharing.Geometry.Room), at
// the start that takes least; then where most slices are held; then to the lowest. Nodes
// are ranked by the first two.
type Rule string

// The rules, for members that take shares and, with Config.RankAll, for all.
const (
	// RulePrices takes the place that costs least. What is left of a device is worth what the
	// shares that arrive pay for it, at the dual prices of cutting them from devices (Gilmore
	// and Gomory, 1961); a member costs the worth that it takes or makes useless, four times;
	// as much of it again as shapes with less to choose from are expected to want of such devices
	// (Littlewood, 1972); what more of the node's worth will lack CPU, by the mean that such
	// remainders need; a tenth of a device where it opens an idle one; and up to as much for the
	// sets of idle devices that it breaks up. In thousandths of a device, by 32nds.
	RulePrices Rule = ""

	// RuleGradient takes the place where fragmentation grows least, in whole points of 100 by
	// 100·sigmoid(-growth/1000): FGD as published (Weng et al., ATC 2023) and as its simulator
	// has it, ties to the lowest slot.
	RuleGradient Rule = "gradient"
)

// Bounds of what is learned. Arrivals are halved when there are that many, so that the
// mix follows the workload.
const (
	maxSeen    = 1 << 16
	maxLearned = 1024 // shapes
	maxAtOnce  = 1024 // members of one role that count
	firstStep  = 32   // arrivals until the first step
	leastGap   = 1024 // steps double up to that, or to the number of nodes
)

// learner counts the members that arrive, by shape, and says when to learn from them.
type learner struct {
	shapes []Shape // by first arrival; none where the mix is given
	seen   int64   // sum of their counts
	since  int64   // arrivals since the last step
	gap    int64   // how many bring the next
	fixed  bool    // the mix is given
}

// Arrived tells the state of a gang that was submitted, whether it will fit or not: the
// mix of its members, each role's least, is what fragmentation is measured by and
// shares are priced by, unless Config.Mix is given. It is to be told once of each gang, before it is tried.
// What is known, and what is left of devices, is looked at anew after 32 members, twice as
// many, and so on up to 1,024 or the number of nodes, whichever is more. Counts are halved
// when they come to 2¹⁶. MIG instances are not counted.
//
// It returns lockstep.ErrInvalid for a nil or malformed gang. O(roles·shapes); what is
// looked at anew costs O(nodes), and again for each kind of demand when next asked for.
func (s *State) Arrived(g *lockstep.Gang) error {
	switch {
	case s.tree == nil:
		return zeroState("arrived")
	case g == nil:
		return fault(lockstep.ErrInvalid, "arrived", "Gang", "nil", "must not be nil")
	}
	if !plain(g) {
		if err := g.Validate(); err != nil {
			return err
		}
	}
	s.logLearner()
	l := &s.learner
	for i := range g.Roles {
		l.count(&g.Roles[i].Demand, int64(min(g.Roles[i].Min, maxAtOnce)))
	}
	if l.since >= l.gap {
		l.gap = max(firstStep, min(l.gap+l.since, max(leastGap, int64(s.tree.Nodes()))))
		l.since = 0
		s.learnFrom(l.shapes)
	}
	return nil
}

// count adds members.
func (l *learner) count(d *lockstep.Demand, n int64) {
	if l.since += n; d.Profile != "" || n == 0 || l.fixed {
		return
	}
	h := Shape{GPUs: d.GPUs, CPU: d.CPU, Classes: d.Classes, Count: n}
	if modeOf(d) == takesShare {
		h.Share = d.Share
	}
	for l.seen+n > maxSeen {
		l.halve()
	}
	l.seen += n
	for i := range l.shapes {
		if l.shapes[i].same(&h) {
			l.shapes[i].Count += n
			return
		}
	}
	if len(l.shapes) == maxLearned {
		l.drop()
	}
	h.Classes = slices.Clone(h.Classes)
	l.shapes = append(l.shapes, h)
}

// same reports whether two shapes ask for the same.
func (h *Shape) same(o *Shape) bool {
	return h.GPUs == o.GPUs && h.Share == o.Share && h.CPU == o.CPU && slices.Equal(h.Classes, o.Classes)
}

// halve halves every count, rounded down, and forgets shapes that come to none.
func (l *learner) halve() {
	l.seen = 0
	l.shapes = slices.DeleteFunc(l.shapes, func(h Shape) bool { return h.Count < 2 })
	for i := range l.shapes {
		l.shapes[i].Count /= 2
		l.seen += l.shapes[i].Count
	}
}

// drop forgets the shape with the least count, of equals the oldest.
func (l *learner) drop() {
	least := 0
	for i := range l.shapes {
		if l.shapes[i].Count < l.shapes[least].Count {
			least = i
		}
	}
	l.seen -= l.shapes[least].Count
	l.shapes = slices.Delete(l.shapes, least, least+1)
}

// checkCounts checks counted shapes.
func checkCounts(list []Shape) error {
	bad := func(i int, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", at("shapes", i), "", reason)
	}
	if len(list) > maxLearned {
		return bad(maxLearned, "too many")
	}
	sum := int64(0)
	for i := range list {
		h := &list[i]
		if h.Count < 1 || h.Count > maxSeen || h.Share >= lockstep.WholeGPU {
			return bad(i, "count or share out of range")
		}
		if err := h.validate(); err != nil {
			return bad(i, err.Error())
		}
		for k := range i {
			if list[k].same(h) {
				return bad(i, "twice")
			}
		}
		sum += h.Count
	}
	if sum > maxSeen {
		return bad(0, "too many in all")
	}
	return nil
}

// clone returns a copy; what shapes name is never changed.
func (l *learner) clone() learner {
	c := *l
	c.shapes = slices.Clone(l.shapes)
	return c
}

// checkRule reports whether there is such a rule.
func checkRule(r Rule) error {
	if r == RulePrices || r == RuleGradient {
		return nil
	}
	return fault(lockstep.ErrInvalid, "new", "Rule", strconv.Quote(string(r)), `want "" or "gradient"`)
}

// learnFrom makes shapes the mix, or looks anew at what is left for one that is given.
func (s *State) learnFrom(shapes []Shape) {
	if s.learner.fixed && s.market != nil {
		shapes = s.market.shapes
	}
	prices := pricesOf(shapes)
	s.trade(newMarket(shapes, prices, s.remains(prices)))
}

// typical returns the most popular shapes that together are 95 % of what arrived, ties
// by what they ask for.
func typical(shapes []Shape) []Shape {
	out := slices.Clone(shapes)
	slices.SortFunc(out, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(b.count(), a.count()), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Share, b.Share),
			cmp.Compare(a.CPU, b.CPU), slices.Compare(a.Classes, b.Classes))
	})
	var all, sum int64
	for i := range out {
		all += out[i].count()
	}
	for i := range out {
		if sum += out[i].count(); sum*20 >= all*19 || i+1 == maxShapes {
			return out[:i+1]
		}
	}
	return out
}
