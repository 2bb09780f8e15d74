package placement

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// quarry is what the candidates have in one domain of the required level.
type quarry struct {
	age     uint32
	head    int32 // of its stakes
	plots   int32 // the first of its plots, or -1
	rough   bool  // something else than devices is lacking on one of them
	worth   int64 // the sum of theirs
	most    int64 // the greatest of them
	cost    ratio // the least cost of one's worth
	devices ratio
	members ratio
	low     int32 // the candidate with the lowest ID
	tier    int32 // the last one that has an stake
	bound   toll  // no set costs less
	tight   bool  // the bound is as good as the prices of all its candidates allow
}

// stake is a candidate in a domain. Worth is how many units, in fractions of unitWorth,
// its members there can add at the most, whoever else goes.
type stake struct {
	cand, next int32
	d          int32
	worth      int64
	plotted    bool // its nodes are among the plots
}

// plot is a node on which candidates have part of the devices, or several have some.
type plot struct {
	x, next int32
	set     lockstep.DeviceSet // that they have
	price   int64              // of all of them, each candidate's spread over its nodes
	low     ratio              // the least for one device
}

const (
	worthBits = 20
	unitWorth = 1 << worthBits
)

// ratio is a price for a worth; the zero ratio is none.
type ratio struct{ price, worth int64 }

// less reports whether a's price of one worth is lower.
func (a ratio) less(b ratio) bool {
	if a.worth == 0 || b.worth == 0 {
		return b.worth == 0 && a.worth != 0
	}
	h1, l1 := bits.Mul64(uint64(a.price), uint64(b.worth))
	h2, l2 := bits.Mul64(uint64(b.price), uint64(a.worth))
	return h1 < h2 || h1 == h2 && l1 < l2
}

// of returns the price of a worth, rounded up: not more than what it must cost.
func (a ratio) of(worth int64) int64 {
	if a.worth == 0 || worth <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a.price), uint64(worth))
	lo, carry := bits.Add64(lo, uint64(a.worth)-1, 0)
	hi += carry
	if hi >= uint64(a.worth) {
		return 1<<63 - 1
	}
	n, _ := bits.Div64(hi, lo, uint64(a.worth))
	return int64(min(n, 1<<63-1))
}

// upTo is of, rounded down.
func (a ratio) upTo(worth int64) int64 {
	if a.worth == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a.price), uint64(worth))
	if hi >= uint64(a.worth) {
		return 1<<63 - 1
	}
	n, _ := bits.Div64(hi, lo, uint64(a.worth))
	return int64(min(n, 1<<63-1))
}

func plusCost(a, b int64) int64 {
	if a > 1<<63-1-b {
		return 1<<63 - 1
	}
	return a + b
}

// scan enters candidates into the domains that they have members in.
func (h *hunt) scan(cands []int32) {
	s, stop := h.s, h.q.stop
	for _, i := range cands {
		base := len(h.stakes)
		j := &s.jobs[h.recs[i]]
		if j.digest.tree != s.tree {
			j.digest = s.digestOf(j)
		}
		if b := &j.digest; b.each > 0 && !h.weak {
			if d := s.tree.DomainOf(stop, b.lo); d == s.tree.DomainOf(stop, b.hi) {
				e := h.enter(i, d, base)
				e.worth = int64(len(j.seats)) * h.even[b.each]
				h.weigh(i, e, b.milli, int32(len(j.seats)))
				continue
			}
		}
		devices, e := int64(0), (*stake)(nil)
		at, milli, role := int32(-1), int64(0), int32(-1)
		for k := range j.seats {
			t := &j.seats[k]
			if int32(t.role) != role {
				role = int32(t.role)
				milli = milliOf(&j.gang.Roles[role].Demand)
			}
			devices += milli
			if t.slot < 0 {
				continue
			}
			if d := s.tree.DomainOf(stop, t.slot); d != at {
				at, e = d, h.enter(i, d, base)
				e.plotted = true
			}
			e.worth += h.worthOf(t)
			if !h.weak {
				h.plot(t, at, h.cheapest(i)/int64(len(j.seats)))
			}
		}
		for k := base; k < len(h.stakes); k++ {
			h.weigh(i, &h.stakes[k], devices, int32(len(j.seats)))
		}
	}
}

// digest is what can be said of a job in short, as long as the tree stays.
type digest struct {
	tree   *topology.Tree
	lo, hi int32
	each   int32 // devices of every member, where each has all of its node; else 0
	milli  int64
}

func (s *State) digestOf(j *job) digest {
	b := digest{tree: s.tree, lo: j.seats[0].slot, hi: j.seats[0].slot, each: int32(j.seats[0].devices.Len())}
	for i := range j.seats {
		t := &j.seats[i]
		d := &j.gang.Roles[t.role].Demand
		b.lo, b.hi = min(b.lo, t.slot), max(b.hi, t.slot)
		b.milli += milliOf(d)
		if t.slot < 0 || modeOf(d) != takesWhole || t.devices != s.slots[t.slot].all || int32(t.devices.Len()) != b.each {
			b.each = 0
		}
	}
	return b
}

// enter returns the stake of a candidate in a domain; those from base on are its.
func (h *hunt) enter(cand, d int32, base int) *stake {
	o := &h.quarries[d]
	if o.age != h.age {
		*o = quarry{age: h.age, head: -1, plots: -1, low: cand}
		h.reached = append(h.reached, d)
	}
	if int(o.head) >= base {
		return &h.stakes[o.head]
	}
	h.stakes = append(h.stakes, stake{cand: cand, next: o.head, d: d})
	o.head = int32(len(h.stakes) - 1)
	o.tier = h.jobs[cand].Tier
	if h.jobs[cand].Job < h.jobs[o.low].Job {
		o.low = cand
	}
	return &h.stakes[o.head]
}

// worthOf bounds the units that one member adds for the first gauge where it goes.
// Where devices are what a node lacks now, f of which are free and b of which make a
// unit, sets that hold k devices there add no more than k/(b - f mod b) units.
func (h *hunt) worthOf(t *seat) int64 {
	if h.weak {
		return h.big
	}
	g := h.gauges[0].v
	free := g.mood[t.slot] &^ idleBit
	w := &h.worths[free&127]
	if g.units[t.slot] != w.units {
		return h.big // something else is lacking
	}
	devices := int64(bits.OnesCount64(uint64(t.devices)))
	if w.step == h.worths[0].step {
		return h.even[devices]
	}
	return (devices<<worthBits + w.step - 1) / w.step
}

// plot adds a member to its node's plot.
func (h *hunt) plot(t *seat, d int32, price int64) {
	for len(h.plotted) < len(h.s.slots) {
		h.plotted = append(h.plotted, 0)
	}
	o := &h.quarries[d]
	i := h.plotted[t.slot]
	if int(i) >= len(h.plots) || h.plots[i].x != t.slot {
		i = int32(len(h.plots))
		h.plotted[t.slot] = i
		h.plots = append(h.plots, plot{x: t.slot, next: o.plots})
		o.plots = i
		v := h.gauges[0].v
		o.rough = o.rough || v.units[t.slot] != h.worths[v.mood[t.slot]&^idleBit].units
	}
	p := &h.plots[i]
	p.set |= t.devices
	p.price = plusCost(p.price, price)
	if n := t.devices.Len(); n > 0 {
		p.low = cheaper(p.low, ratio{price, int64(n)})
	}
}

// priceOf returns a price for room on a node such that no set adds room there for less:
// that of all candidates there where all must go, else by the least for one device.
func (h *hunt) priceOf(p *plot) (r ratio) {
	g := &h.gauges[0]
	free, block := int64(g.v.mood[p.x]&^idleBit), int64(g.v.kind.gpus*g.node)
	have := int64(p.set.Len())
	most := (free%block + have) / block
	for k := int64(1); k <= most; k++ {
		o := ratio{p.price, k << worthBits}
		if needed := k*block - free%block; needed < have {
			o.price = min(o.price, p.low.upTo(needed))
		}
		r = cheaper(r, o)
	}
	return ratio{r.upTo(most << worthBits), most << worthBits}
}

// worth says what devices are worth on a node, by how many are free there.
type worth struct {
	units uint16 // that the free ones make
	step  int64  // devices that the next one takes
}

// appoint readies the tables for worthOf.
func (h *hunt) appoint() {
	g := &h.gauges[0]
	h.big = int64(g.need) * int64(g.size) << worthBits
	if h.weak {
		return
	}
	block := g.v.kind.gpus * g.node
	for f := range h.worths {
		n := int32(min(f, lockstep.MaxDevicesPerNode))
		h.worths[f] = worth{uint16(n / block), int64(block - n%block)}
	}
	for d := range h.even {
		h.even[d] = (int64(d)<<worthBits + int64(block) - 1) / int64(block)
	}
}

// weigh adds an stake to the figures of its domain.
func (h *hunt) weigh(cand int32, e *stake, devices int64, members int32) {
	o, c := &h.quarries[e.d], &h.jobs[cand]
	if e.worth == 0 {
		return
	}
	o.worth = plusCost(o.worth, e.worth)
	o.most = max(o.most, e.worth)
	cost := h.cheapest(cand)
	if c.Min != nil { // of a part of its members little is known
		devices, members = 0, 0
	}
	o.cost = cheaper(o.cost, ratio{cost, e.worth})
	o.devices = cheaper(o.devices, ratio{devices, e.worth})
	o.members = cheaper(o.members, ratio{int64(members), e.worth})
}

func cheaper(a, b ratio) ratio {
	if b.less(a) {
		return b
	}
	return a
}

// bounded sets the bound of a domain. It reports whether a set there may do at all.
func (h *hunt) bounded(o *quarry, d int32) bool {
	lacks := h.lacks(d)
	if lacks > 0 && o.worth < lacks {
		return false
	}
	o.bound, o.tight = toll{moves: h.moving, jobs: 1}, false
	if !h.weak && lacks > 0 {
		jobs := int32(max(1, (lacks+o.most-1)/o.most))
		o.bound = toll{
			moves: h.moving * jobs, cost: o.cost.of(lacks), jobs: jobs,
			devices: o.devices.of(lacks), members: int32(min(o.members.of(lacks), 1<<31-1)),
		}
	}
	return true
}

// lacks returns the worth that a domain lacks for the first gauge, at least.
func (h *hunt) lacks(d int32) int64 {
	s, g := h.s, &h.gauges[0]
	units := int64(g.need - s.unitsOf(g.v, h.q.stop, d))
	if g.size > 1 { // members of groups that are not whole now may become so
		first, end := s.tree.Range(h.q.stop, d)
		inner := int(g.v.kind.inner)
		n := s.tree.DomainOf(inner, end-1) - s.tree.DomainOf(inner, first) + 1
		units = units*int64(g.size) - int64(g.size-1)*int64(n)
	}
	return max(0, units) << worthBits
}

func (h *hunt) heapify() {
	for i := len(h.heap)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// tighten raises the bound of a domain to what its candidates cost, were they to go in
// parts, the cheapest for its worth first.
func (h *hunt) tighten(o *quarry, d int32) {
	o.tight = true
	if o.rough {
		return
	}
	h.prices = h.prices[:0]
	for e := o.head; e >= 0; e = h.stakes[e].next {
		if st := &h.stakes[e]; st.worth > 0 && !st.plotted {
			h.prices = append(h.prices, ratio{h.cheapest(st.cand), st.worth})
		}
	}
	for i := o.plots; i >= 0; i = h.plots[i].next {
		if r := h.priceOf(&h.plots[i]); r.worth > 0 {
			h.prices = append(h.prices, r)
		}
	}
	slices.SortFunc(h.prices, func(a, b ratio) int {
		switch {
		case a.less(b):
			return -1
		case b.less(a):
			return 1
		}
		return 0
	})
	lacks, cost := h.lacks(d), int64(0)
	for _, p := range h.prices {
		if p.worth >= lacks {
			cost = plusCost(cost, p.of(lacks))
			break
		}
		cost = plusCost(cost, p.price)
		lacks -= p.worth
	}
	o.bound.cost = max(o.bound.cost, cost)
}

// cheapest returns the least that taking from a candidate can cost.
func (h *hunt) cheapest(cand int32) int64 {
	c := &h.jobs[cand]
	if c.Min != nil {
		return min(c.Cost.Total(), c.Shrink.Total())
	}
	return c.Cost.Total()
}

// push puts a domain into the heap.
func (h *hunt) push(d int32) {
	h.heap = append(h.heap, d)
	for i := len(h.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(h.heap[i], h.heap[up]) {
			return
		}
		h.heap[i], h.heap[up] = h.heap[up], h.heap[i]
		i = up
	}
}

// pop takes the domain with the least bound out of the heap; ties to the lowest.
func (h *hunt) pop() int32 {
	n := len(h.heap) - 1
	d := h.heap[0]
	h.heap[0] = h.heap[n]
	h.heap = h.heap[:n]
	h.sink(0)
	return d
}

func (h *hunt) sink(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.heap) {
			return
		}
		if c+1 < len(h.heap) && h.before(h.heap[c+1], h.heap[c]) {
			c++
		}
		if !h.before(h.heap[c], h.heap[i]) {
			return
		}
		h.heap[i], h.heap[c] = h.heap[c], h.heap[i]
		i = c
	}
}

func (h *hunt) before(a, b int32) bool {
	c := h.quarries[a].bound.compare(&h.quarries[b].bound)
	return c < 0 || c == 0 && a < b
}
