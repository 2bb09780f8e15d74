package quota

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// reclamation is one call of Reclaim.
type reclamation struct {
	q    *Quota
	gang *lockstep.Gang
	out  *lockstep.Candidates
	way  way
	need lockstep.Vector

	asked resources       // asked are the resources that the gang needs.
	short resources       // short are those of which it cannot borrow enough; victims give them up.
	own   lockstep.Vector // own is what the candidates in its own queue use.

	found []found
	chain []limit // chain are the limits that hold for the victims looked at, outermost first
}

// found is a candidate with what orders it.
type found struct {
	job      *job
	same     bool // in the gang's own queue
	weighted bool // its side has a weight
	tier     int32
	limits   []int32
}

// limit is how much may be taken from below a node, or from outside of one.
type limit struct {
	amount lockstep.Vector
	index  int32 // index is its place in Candidates.Limits; -1 until a candidate needs it.
}

// Reclaim writes to out from whom room may be taken for counts members of g; nil
// counts stand for each role's Min. Candidates come in the order in which they
// should go; see the package's Order of decision. Costs are left to the caller. It
// says nothing of whether the room would be enough.
func (q *Quota) Reclaim(g *lockstep.Gang, counts []int, out *lockstep.Candidates) {
	out.Jobs, out.Limits, out.Max = out.Jobs[:0], out.Limits[:0], 0
	leaf := q.leaf(g)
	if leaf == nil || !fits(g, counts) || g.Preemption == lockstep.PreemptNever {
		return
	}
	c := &q.reclaim
	*c = reclamation{q: q, gang: g, out: out, way: newWay(q, leaf), found: c.found[:0], chain: c.chain[:0]}
	c.need, _ = q.total(g, counts)
	for r := range q.schema.Len() {
		if c.need[r] > 0 {
			c.asked.add(r)
			if m := q.measure(&c.way, r, false); m.free[0] < c.need[r] {
				c.short.add(r)
			}
		}
	}
	if c.short == 0 {
		c.short = c.asked // there is enough, but not where the gang can use it
	}
	c.preempt(leaf)
	if c.asked != 0 {
		boosted := q.boost(&c.way, c.asked)
		c.reclaim()
		q.calm(leaf, boosted)
	}
	c.emit()
	*c = reclamation{found: c.found[:0], chain: c.chain[:0]} // keep no one else's memory
}

// preempt finds the jobs of lower priority in the gang's own queue.
func (c *reclamation) preempt(leaf *node) {
	for j := leaf.last; j != nil; j = j.prev {
		if j.preemptible && j.priority < c.gang.Priority && j.id != c.gang.ID {
			c.found = append(c.found, found{job: j, same: true})
			c.own = c.own.Add(j.charged())
		}
	}
}

// boost makes the queue at the bottom of w ask for everything there is, so that
// shares are what others deserve against a queue that wants all it can get, and brings
// shares along w up to date. It returns the resources for which it did; those of which
// the queue gets less than it wants anyway need none, since asking for more changes
// nothing. Until calm undoes it nothing else must change.
func (q *Quota) boost(w *way, asked resources) (boosted resources) {
	leaf := w.nodes[0]
	for r := range q.schema.Len() {
		if !asked.has(r) {
			continue
		}
		q.refresh(w, r)
		if leaf.got(r) == leaf.wants(r) {
			leaf.addAsked(r, q.root.nominal[r])
			boosted.add(r)
			q.refresh(w, r)
		}
	}
	return boosted
}

// calm undoes boost.
func (q *Quota) calm(leaf *node, boosted resources) {
	for r := range q.schema.Len() {
		if boosted.has(r) {
			leaf.addAsked(r, -q.root.nominal[r])
		}
	}
}

// reclaim finds the jobs in other queues. It goes up from the gang's queue, and at
// each node looks at the queues beside the way. What a node is entitled to bounds what
// it may take from outside of it.
func (c *reclamation) reclaim() {
	for i := range c.way.length {
		n := c.way.nodes[i]
		after := c.q.grown(&c.way, i, &c.need)
		if !c.entitled(n, &after) {
			return
		}
		var nominal resources
		for r := range c.q.schema.Len() {
			if after[r] <= n.nominal[r] {
				nominal.add(r)
			}
		}
		for _, side := range n.parent.children {
			if side != n {
				c.descend(side, side, nominal)
			}
		}
	}
}

// grown returns the load of the i-th node of w once need is added at the bottom.
func (q *Quota) grown(w *way, i int, need *lockstep.Vector) (after lockstep.Vector) {
	for r := range q.schema.Len() {
		d := need[r]
		for k := range i + 1 {
			n := w.nodes[k]
			after[r] = n.load[r] + d
			d = max(after[r], n.kept[r]) - n.held(r)
		}
	}
	return after
}

// entitled reports whether n may take from outside of it. Where it would have more
// than it is entitled to, but for the jobs in the gang's own queue that go as well,
// a limit is added that keeps it within.
func (c *reclamation) entitled(n *node, after *lockstep.Vector) bool {
	var l limit
	l.index = -1
	bounded := false
	for r := range c.q.schema.Len() {
		l.amount[r] = noLimit
		due := n.deserves(r, true)
		if !c.asked.has(r) || after[r] <= due {
			continue
		}
		// All that is free and all that is taken from outside may come on top of the load.
		most := due - n.load[r] - max(c.q.root.nominal[r]-c.q.root.used[r], 0)
		if after[r]-due > c.own[r] || most <= 0 {
			return false
		}
		l.amount[r] = most
		bounded = true
	}
	if bounded {
		c.chain = append(c.chain, l)
	}
	return true
}

// descend finds candidates in and below n, which is beside the way or below side,
// which is. Of the resources in nominal, the claim is within the nominal quota, so that all that
// others have above theirs can be taken; of others, only what they have above what they deserve too.
func (c *reclamation) descend(side, n *node, nominal resources) {
	if n.spec.NotReclaimable {
		return
	}
	l := limit{index: -1}
	over := false
	for r := range c.q.schema.Len() {
		l.amount[r] = noLimit
		if c.short.has(r) {
			l.amount[r] = max(n.load[r]-n.deserves(r, !nominal.has(r)), 0)
			over = over || l.amount[r] > 0
		}
	}
	if !over {
		return
	}
	depth := len(c.chain)
	c.chain = append(c.chain, l)
	if len(n.children) == 0 {
		c.take(side, n)
	} else {
		for r := range c.q.schema.Len() {
			if c.short.has(r) {
				c.q.distribute(n, r)
			}
		}
		for _, child := range n.children {
			c.descend(side, child, nominal)
		}
	}
	c.chain = c.chain[:depth]
}

// take finds the candidates in the leaf n.
func (c *reclamation) take(side, n *node) {
	var limits []int32 // the same for all
	for j := n.last; j != nil; j = j.prev {
		if !j.preemptible || !c.useful(j) {
			continue
		}
		for i := len(limits); i < len(c.chain); i++ {
			limits = append(slices.Grow(limits, len(c.chain)-i), c.name(&c.chain[i]))
		}
		c.found = append(c.found, found{job: j, weighted: side.spec.Weight > 0, tier: side.spec.Tier, limits: limits})
	}
}

// useful reports whether j holds something that the gang is short of, and some of
// it may be taken.
func (c *reclamation) useful(j *job) bool {
	least := j.charged()
	holds := false
	for r := range c.q.schema.Len() {
		holds = holds || c.short.has(r) && least[r] > 0
	}
	if j.elastic {
		least = j.smallest()
	}
	for i := range c.chain {
		if _, ok := least.Fits(c.chain[i].amount); !ok {
			return false
		}
	}
	return holds
}

// smallest returns the least that taking a member from j, or all of it where it has
// no more than it must, frees of each resource.
func (j *job) smallest() lockstep.Vector {
	var least lockstep.Vector
	found := false
	for i := range j.parts {
		p := &j.parts[i]
		if p.members <= p.least {
			continue
		}
		if !found {
			least, found = p.each, true
		}
		for r := range least {
			least[r] = min(least[r], p.each[r])
		}
	}
	if !found {
		return j.charged()
	}
	return least
}

// name returns the place of l in Candidates.Limits.
func (c *reclamation) name(l *limit) int32 {
	if l.index < 0 {
		l.index = int32(len(c.out.Limits))
		amounts := make(lockstep.Resources)
		for r := range c.q.schema.Len() {
			if l.amount[r] != noLimit {
				amounts[c.q.schema.Name(r)] = l.amount[r]
			}
		}
		c.out.Limits = append(c.out.Limits, amounts)
	}
	return l.index
}

// emit puts what was found into out, in order.
func (c *reclamation) emit() {
	slices.SortFunc(c.found, func(a, b found) int {
		return cmp.Or(a.compare(&b), cmp.Compare(b.job.seq, a.job.seq))
	})
	tier := int32(0)
	for i := range c.found {
		f := &c.found[i]
		if i > 0 && f.compare(&c.found[i-1]) != 0 {
			tier++
		}
		x := lockstep.Candidate{Job: f.job.id, Tier: tier, Limits: f.limits}
		if f.job.elastic {
			x.Min = f.job.least()
		}
		c.out.Jobs = append(c.out.Jobs, x)
	}
}

// compare orders a before b if it should be taken rather than b.
func (a *found) compare(b *found) int {
	return cmp.Or(
		order(a.same, b.same),
		order(a.weighted, b.weighted),
		cmp.Compare(a.tier, b.tier),
		cmp.Compare(a.job.priority, b.job.priority),
	)
}

// order puts what is false first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// least returns the members with which j can go on, nil where that is all it has.
func (j *job) least() []int {
	var least []int
	for i := range j.parts {
		if p := &j.parts[i]; p.members > p.least {
			least = make([]int, len(j.parts))
			break
		}
	}
	for i := range least {
		least[i] = min(j.parts[i].members, j.parts[i].least)
	}
	return least
}
