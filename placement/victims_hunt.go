package placement

import "github.com/lockstep-gpu/lockstep"

// hunt is the memory of one search for victims.
type hunt struct {
	s *State
	r *lockstep.Request
	q *query

	jobs       []lockstep.Candidate
	recs       []int32 // by candidate
	order      []int32 // candidates by tier
	starts     []int32 // by tier: where in order its next one goes, while sorting
	tiers      []int32 // that they have, sorted, each once
	max        int32   // jobs that may be touched
	quantities []quantity
	seen       []uint32 // by job record: the age at which it was named
	which      []int32  // by job record: the candidate that it was then
	age        uint32

	moving  int32 // 1 where those who go are moved rather than stopped
	chains  bool  // also jobs that are not in the way may move
	dearest int64 // what a set may cost at the most
	moves   mover

	gauges []gauge
	any    bool // room for one role is enough
	vague  bool // the gauges say only what cannot be, so that a set must be tried
	blind  bool // not even that, since parts of devices are to be left alone
	wide   bool // candidates outside a domain matter to it as well
	weak   bool // there is no bound on what a member that goes is worth

	big    int64 // the worth of a member of which nothing is known
	worths [128]worth
	even   [lockstep.MaxDevicesPerNode + 1]int64 // worth by devices, on a node with none free that are odd

	quarries []quarry // by domain of the required level
	reached  []int32  // those with stakes
	stakes   []stake
	heap     []int32
	plots    []plot
	plotted  []int32 // by slot: its plot, where that is of the slot

	ground
	fill
	lifted  []int32 // where members that were lifted sat
	best    prize
	draft   prize
	found   bool
	cut     bool // some search was not complete
	steps   int  // that are left in the domain at hand
	few     int  // steps before the search by sums
	many    int  // steps where that does not apply
	left    int  // such steps that are left for further domains
	hasty   bool // for tests: no steps at all
	trials  int  // of a whole set that are left
	reserve int  // of those that are not for the search at hand
}

// gauge measures the room for one role.
type gauge struct {
	v     *view
	role  int32
	need  int32 // units at the required level
	size  int32 // members of an inner group that share a domain above nodes, else 1
	node  int32 // members of an inner group that share a node, else 1
	first int32 // the lowest inner domain of the domain at hand
}

// toll is what a set costs, apart from its tier: less is better, in this order.
type toll struct {
	moves   int32 // jobs, where they are moved rather than stopped; else 0
	cost    int64
	jobs    int32
	devices int64
	members int32
}

func (a *toll) compare(b *toll) int {
	switch {
	case a.moves != b.moves:
		return sign(a.moves < b.moves)
	case a.cost != b.cost:
		return sign(a.cost < b.cost)
	case a.jobs != b.jobs:
		return sign(a.jobs < b.jobs)
	case a.devices != b.devices:
		return sign(a.devices < b.devices)
	case a.members != b.members:
		return sign(a.members < b.members)
	}
	return 0
}

// and returns the toll of a set with one job more.
func (a toll) and(moves int32, cost, devices int64, members int32) toll {
	return toll{a.moves + moves, plusCost(a.cost, cost), a.jobs + 1, a.devices + devices, a.members + members}
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// reset begins a search.
func (h *hunt) reset(s *State, r *lockstep.Request) {
	h.s, h.r, h.q, h.jobs, h.max = s, r, &s.work.query, nil, 0
	h.recs, h.tiers, h.quantities = h.recs[:0], h.tiers[:0], h.quantities[:0]
	h.order = h.order[:0]
	h.moving, h.chains, h.dearest, h.cut, h.trials = 0, false, 1<<63-1, false, maxTrials
	h.anew()
}

// anew begins to search again for the same candidates.
func (h *hunt) anew() {
	if h.age++; h.age == 0 { // the stamps of old start over
		clear(h.seen)
		clear(h.quarries)
		h.age = 1
	}
	h.gauges, h.stakes, h.plots, h.reached, h.found = h.gauges[:0], h.stakes[:0], h.plots[:0], h.reached[:0], false
	h.few, h.many, h.left = fewSteps, manySteps, allSteps
	if h.hasty { // tests see to the other searches
		h.few, h.many = 0, 0
	}
}

// Bounds on the search.
const (
	fewVictims = 24      // in a domain, up to which all sets are tried first
	fewSteps   = 1 << 10 // in a domain, before the search by sums
	manySteps  = 1 << 15 // in a domain where that does not apply
	allSteps   = 1 << 17 // in all such domains
	maxTrials  = 1 << 11 // of whole sets
)

// search looks for the best set, tier by tier. It reports whether there is any.
func (h *hunt) search() bool {
	h.measure()
	for len(h.quarries) < h.s.tree.Domains(h.q.stop) {
		h.quarries = append(h.quarries, quarry{})
	}
	from := 0
	for _, tier := range h.tiers {
		h.heap = h.heap[:0]
		to := from
		for to < len(h.order) && h.jobs[h.order[to]].Tier == tier {
			to++
		}
		if h.wide {
			for d := range h.s.tree.Domains(h.q.stop) {
				h.quarries[d] = quarry{}
				h.heap = append(h.heap, int32(d))
			}
		} else {
			h.scan(h.order[from:to])
			for _, d := range h.reached {
				if o := &h.quarries[d]; o.tier == tier && h.bounded(o, d) {
					h.heap = append(h.heap, d)
				}
			}
			h.heapify()
		}
		from = to
		h.searchTier(tier)
		if h.found {
			return true
		}
	}
	return false
}

// searchTier searches the domains in the heap, cheapest bound first.
func (h *hunt) searchTier(tier int32) {
	for len(h.heap) > 0 {
		d := h.pop()
		o := &h.quarries[d]
		if h.found && !h.wide {
			c := h.best.toll.compare(&o.bound)
			if c < 0 {
				return
			}
			if c == 0 && h.jobs[h.best.picks[0].cand].Job < h.jobs[o.low].Job {
				continue
			}
		}
		if !o.tight && !h.weak {
			h.tighten(o, d)
			h.push(d)
			continue
		}
		h.gather(d, tier)
		h.solve()
		h.now.clear(h.s)
		h.most.clear(h.s)
	}
}

// measure readies the gauges.
func (h *hunt) measure() {
	s, q := h.s, h.q
	worst := s.worst()
	h.any, h.wide = q.least == 0, h.chains
	for _, i := range q.order {
		if n := q.need(i); n > 0 {
			v := s.viewFor(q.gang, &q.gang.Roles[i], q.inner[i], worst)
			h.gauges = append(h.gauges, s.gaugeOf(v, i, n, q.stop))
			h.wide = h.wide || len(v.terms) > 0
		}
	}
	h.blind = false
	for i := range h.r.Busy {
		h.blind = h.blind || h.r.Busy[i].Share > 0
	}
	h.vague = h.any || h.wide || h.blind || len(h.gauges) > 1 || h.moving > 0
	h.weak = h.any || h.wide || h.blind || h.gauges[0].v.ranked || h.gauges[0].v.kind.gpus == 0
	h.appoint()
}

// gaugeOf is the gauge of n members of a role in domains of a level.
func (s *State) gaugeOf(v *view, role, n int32, level int) gauge {
	g := gauge{v: v, role: role, need: n / v.unit(level), size: 1, node: 1}
	switch {
	case v.unit(level) == 1:
	case int(v.kind.inner) == s.depth-1:
		g.node = v.kind.size
	default:
		g.size = v.kind.size
	}
	return g
}
