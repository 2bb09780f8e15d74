package quota

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// noLimit stands for a limit that is absent. It is more than any sum of amounts.
const noLimit = math.MaxInt64

// declared are the amounts that a queue is given, by index: noLimit where it is
// given none, for a guarantee 0.
type declared struct {
	nominal, guarantee, borrow, lend, most lockstep.Vector
}

// node is a queue in the tree; the root, which has no name, is all queues together.
//
// For each resource, what a node takes off its parent's room is what it holds: its
// load, or what it keeps where that is more. The load of a leaf is what its jobs use,
// that of another node what its children hold. So room that is kept but idle counts
// as taken all the way up. In the same way it wants what its jobs demand or its
// children want, within its limit, or what it keeps where that is more.
type node struct {
	spec     Queue // as given; its maps are the node's own
	given    declared
	parent   *node   // nil for the root
	children []*node // by name
	turns    []*node // children in the order of their turn: those with a weight first, then by tier, then by name

	nominal lockstep.Vector // nominal is what is given, cut to what the parent has, or the part by weight.
	kept    lockstep.Vector // kept is the part of nominal that is never lent.
	most    lockstep.Vector // most is the lesser of Max and nominal plus BorrowLimit.

	used   lockstep.Vector // used is the sum of all charges in and below.
	demand lockstep.Vector // demand is the sum of the jobs' demands in and below.
	load   lockstep.Vector // load is used of a leaf, the sum of held of the children else.
	asked  lockstep.Vector // asked is the demand of a leaf, the sum of wants of the children else.

	share lockstep.Vector // share is its part of pool of the parent, unless sated there.
	pool  lockstep.Vector // pool is what was divided among the children last.
	sated resources       // sated are those of which the children got all they want.
	stale resources       // stale are those of which wants below changed since.

	first, last   *job // first and last are the charged jobs of a leaf, oldest first.
	jobs, waiting int  // jobs counts those that are charged, waiting those that only ask.
}

// resources is a set of resources by index.
type resources uint32

func (s resources) has(r int) bool { return s>>uint(r)&1 != 0 }

func (s *resources) add(r int) { *s |= 1 << uint(r) }

func (s *resources) drop(r int) { *s &^= 1 << uint(r) }

// held returns what n takes off the room of its parent.
func (n *node) held(r int) int64 { return max(n.load[r], n.kept[r]) }

// wants returns what n would hold if there were no others.
func (n *node) wants(r int) int64 { return max(n.kept[r], min(n.most[r], n.asked[r])) }

// got returns n's part of what was divided last; the parent's division must be
// fresh.
func (n *node) got(r int) int64 {
	if n.parent.sated.has(r) {
		return n.wants(r)
	}
	return n.share[r]
}

// turn is the order in which siblings are served.
func turn(a, b *node) int {
	rank := func(n *node) int { // one of weight 0 comes after all others
		if n.spec.Weight > 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.spec.Tier, a.spec.Tier), byName(a, b))
}

func byName(a, b *node) int { return strings.Compare(string(a.spec.Name), string(b.spec.Name)) }

// height returns how many queues stand one above another from n down.
func (n *node) height() int {
	h := 0
	for _, c := range n.children {
		h = max(h, c.height())
	}
	return h + 1
}

// plant makes the tree from spec of all nodes, and everything that follows from
// it and the jobs.
func (q *Quota) plant() {
	all := make([]*node, 0, len(q.nodes)+1)
	for _, n := range q.nodes { // in any order: sorted below
		all = append(all, n)
	}
	slices.SortFunc(all, byName)
	q.root.children = q.root.children[:0]
	for _, n := range all {
		if len(n.children) > 0 { // it has no jobs, and may be a leaf from now on
			n.used, n.demand = lockstep.Vector{}, lockstep.Vector{}
		}
		n.children = n.children[:0]
	}
	for _, n := range all {
		n.parent = q.root
		if n.spec.Parent != "" {
			n.parent = q.nodes[n.spec.Parent]
		}
		n.parent.children = append(n.parent.children, n)
	}
	// Parents first.
	all = append(all[:0], q.root)
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].children...)
	}
	q.order = all
	q.divide()
}

// divide sets what follows from capacity and specs, parents first, and from the
// jobs, children first.
func (q *Quota) divide() {
	for r := range q.schema.Len() {
		q.root.most[r] = noLimit
	}
	for _, n := range q.order {
		n.turns = append(n.turns[:0], n.children...)
		slices.SortFunc(n.turns, turn)
		q.setNominal(n)
	}
	for i := len(q.order) - 1; i >= 0; i-- {
		n := q.order[i]
		n.stale, n.sated, n.pool = ^resources(0), 0, lockstep.Vector{}
		if len(n.children) == 0 {
			n.load, n.asked = n.used, n.demand
			continue
		}
		n.used, n.demand, n.load, n.asked = lockstep.Vector{}, lockstep.Vector{}, lockstep.Vector{}, lockstep.Vector{}
		for _, c := range n.children {
			n.used, n.demand = n.used.Add(c.used), n.demand.Add(c.demand)
			for r := range q.schema.Len() {
				n.load[r] += c.held(r)
				n.asked[r] += c.wants(r)
			}
		}
	}
}

// setNominal divides the nominal quota of n among its children: guarantees, then
// what is given, then by weight. Where there is not enough for one of these, all
// are cut by the same fraction. Nominal quotas of siblings never add up to more
// than their parent's.
func (q *Quota) setNominal(n *node) {
	f := &q.fill
	for r := range q.schema.Len() {
		f.reset()
		for _, c := range n.children {
			f.add(0, c.given.guarantee[r], c.given.guarantee[r])
		}
		f.pour(n.nominal[r])
		left := n.nominal[r] // for those that are given a figure, guarantees included
		for i, c := range n.children {
			c.kept[r] = f.got(i)
			if c.given.nominal[r] == noLimit {
				left -= c.kept[r]
			}
		}
		left = n.nominal[r] - q.setGiven(n, r, left)
		f.reset()
		for _, c := range n.children {
			if c.given.nominal[r] == noLimit {
				f.add(c.kept[r], c.given.most[r], c.spec.Weight)
			}
		}
		f.pour(left)
		i := 0
		for _, c := range n.children {
			if c.given.nominal[r] == noLimit {
				c.nominal[r] = f.got(i)
				i++
			}
			q.setLimits(c, r)
		}
	}
}

// setGiven sets the nominal quota of those children that are given a figure, from
// total, and returns how much that is.
func (q *Quota) setGiven(n *node, r int, total int64) (sum int64) {
	f := &q.fill
	f.reset()
	for _, c := range n.children {
		if g := c.given.nominal[r]; g != noLimit {
			f.add(c.kept[r], g, g)
		}
	}
	f.pour(total)
	i := 0
	for _, c := range n.children {
		if c.given.nominal[r] != noLimit {
			c.nominal[r] = f.got(i)
			sum += c.nominal[r]
			i++
		}
	}
	return sum
}

// setLimits sets what n keeps and its limit, from its nominal quota and, in kept,
// its guarantee.
func (q *Quota) setLimits(n *node, r int) {
	if n.given.lend[r] != noLimit {
		n.kept[r] = max(n.kept[r], n.nominal[r]-n.given.lend[r])
	}
	borrow := n.given.borrow[r]
	if q.static {
		borrow = 0
	}
	n.most[r] = n.given.most[r]
	if borrow != noLimit {
		n.most[r] = min(n.most[r], n.nominal[r]+borrow)
	}
}

// charge adds v, or takes it off with sign -1, to what n and all above it use.
func (q *Quota) charge(n *node, v *lockstep.Vector, sign int64) {
	for m := n; m != nil; m = m.parent {
		for r := range q.schema.Len() {
			m.used[r] += sign * v[r]
		}
	}
	for r := range q.schema.Len() {
		n.addLoad(r, sign*v[r])
	}
}

// addLoad adds d to the load of n, and what follows from it above.
func (n *node) addLoad(r int, d int64) {
	for d != 0 {
		before := n.held(r)
		n.load[r] += d
		if n.parent == nil {
			return
		}
		d = n.held(r) - before
		n = n.parent
	}
}

// ask adds v, or takes it off with sign -1, to what n and all above it demand.
func (q *Quota) ask(n *node, v *lockstep.Vector, sign int64) {
	for m := n; m != nil; m = m.parent {
		for r := range q.schema.Len() {
			m.demand[r] += sign * v[r]
		}
	}
	for r := range q.schema.Len() {
		n.addAsked(r, sign*v[r])
	}
}

// addAsked adds d to what n asks for, and what follows from it above.
func (n *node) addAsked(r int, d int64) {
	for d != 0 {
		before := n.wants(r)
		n.asked[r] += d
		if n.parent == nil {
			return
		}
		if d = n.wants(r) - before; d != 0 {
			n.parent.stale.add(r)
		}
		n = n.parent
	}
}
