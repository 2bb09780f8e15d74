package moves

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// hop is a transfer in the making.
type hop struct {
	run
	from, to int32 // units; from is -1 for the checkpoint
	level    int8  // index in links
	host     bool  // from has it in host memory from before
	relay    bool  // from receives it first
	piece    int32 // what of from's spare state it reads; -1 for none
}

// loads are bytes by unit.
type loads []int64

// claim is a run of one slot that a unit has or wants.
type claim struct {
	a, b int64
	unit int32 // of what is there: twice the unit, and 1 more for its host memory
}

// Loads are told apart by link, since those inside a node are not those that leave it,
// and by way.
const (
	inside = iota
	outside

	sends    = 0
	receives = 1
)

// The levels of links.
const (
	fromHost = iota
	inNode
	inLeaf
	overFabric
	fromStore
)

// route finds a source for everything that is missing.
func (m *mover) route() {
	slots := 2 * (m.a.layers + 2)
	wants, haves := make([][]claim, slots), make([][]claim, slots)
	for u, missing := range m.missing {
		m.out.Kept = m.out.Kept.Add(lockstep.Bytes(m.a.sizes(m.need[u]) - m.a.sizes(missing)))
		for _, r := range missing {
			wants[r.slot] = append(wants[r.slot], claim{r.a, r.b, int32(u)})
		}
	}
	for u := range m.have {
		for host, list := range [][]run{m.have[u], m.host[u]} {
			for _, r := range list {
				if len(wants[r.slot]) > 0 {
					haves[r.slot] = append(haves[r.slot], claim{r.a, r.b, int32(2*u + host)})
				}
			}
		}
	}
	for slot := range slots {
		m.sweep(int32(slot), haves[slot], wants[slot])
	}
	m.join()
	for i := range m.hops {
		h := &m.hops[i]
		sum := m.out.Traffic.level(h.level)
		*sum = sum.Add(lockstep.Bytes(m.a.size(h.run)))
	}
}

// sweep goes over the parameters of a slot, run by run with the same units.
func (m *mover) sweep(slot int32, haves, wants []claim) {
	if len(wants) == 0 {
		return
	}
	cuts := make([]int64, 0, 2*(len(haves)+len(wants)))
	for _, list := range [][]claim{haves, wants} {
		for _, c := range list {
			cuts = append(cuts, c.a, c.b)
		}
		slices.SortFunc(list, func(x, y claim) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.unit, y.unit)) })
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	holding, wanting := front{claims: haves}, front{claims: wants}
	for i := range len(cuts) - 1 {
		from, to := holding.at(cuts[i]), wanting.at(cuts[i])
		if len(to) > 0 {
			m.routeRun(run{slot, cuts[i], cuts[i+1]}, from, to)
		}
	}
}

// front walks over claims in their order and keeps those that hold at a place.
type front struct {
	claims []claim
	next   int
	open   []claim // by unit
	units  []int32
}

// at returns the units with a claim at x, sorted; x never goes back.
func (f *front) at(x int64) []int32 {
	n := len(f.open)
	f.open = slices.DeleteFunc(f.open, func(c claim) bool { return c.b <= x })
	changed := n != len(f.open)
	for ; f.next < len(f.claims) && f.claims[f.next].a <= x; f.next++ {
		f.open = append(f.open, f.claims[f.next])
		changed = true
	}
	if changed {
		slices.SortFunc(f.open, func(a, b claim) int { return cmp.Compare(a.unit, b.unit) })
		f.units = f.units[:0]
		for _, c := range f.open {
			f.units = append(f.units, c.unit)
		}
	}
	return f.units
}

// routeRun brings a run to all of to, from any of from. Both are sorted, so that the
// units of a leaf, and of a node, follow each other.
func (m *mover) routeRun(r run, from, to []int32) {
	to = m.local(r, from, to)
	if len(to) == 0 {
		return
	}
	first := int32(-1) // who reads the checkpoint
	if len(from) == 0 {
		first = m.pick(to, outside)
		m.add(hop{run: r, from: -1, to: first, level: fromStore})
	}
	for len(to) > 0 {
		leaf := m.w.units[to[0]].leaf
		lo, hi := m.leaves[leaf], m.leaves[leaf+1]
		here, holders := between(to, lo, hi), between(from, 2*lo, 2*hi)
		to = to[len(here):]
		gate := int32(-1) // who receives for the leaf
		switch {
		case first >= lo && first < hi:
			gate = first
		case first >= 0:
			gate = m.pick(here, outside)
			m.add(hop{run: r, from: first, to: gate, level: overFabric, relay: true})
		case len(holders) == 0:
			gate = m.pick(here, outside)
			m.fetch(r, from, gate, overFabric)
		}
		m.routeLeaf(r, holders, here, gate)
	}
}

// local serves those that have the run in their own host memory, and returns the others.
func (m *mover) local(r run, from, to []int32) []int32 {
	rest := to
	for i, u := range to {
		if _, ok := slices.BinarySearch(from, 2*u+1); ok {
			if len(rest) == len(to) {
				rest = slices.Clone(to[:i])
			}
			m.add(hop{run: r, from: u, to: u, level: fromHost, host: true})
		} else if len(rest) < len(to) {
			rest = append(rest, u)
		}
	}
	return rest
}

// routeLeaf does the same inside a leaf; gate is who has it besides from, or -1.
func (m *mover) routeLeaf(r run, from, to []int32, gate int32) {
	for len(to) > 0 {
		node := m.w.nodes[m.w.units[to[0]].node]
		lo, hi := node[0], node[0]+int32(len(node))
		here, holders := between(to, lo, hi), between(from, 2*lo, 2*hi)
		to = to[len(here):]
		door := int32(-1) // who receives for the node
		switch {
		case gate >= lo && gate < hi:
			door = gate
		case len(holders) == 0 && gate >= 0:
			door = m.pick(here, outside)
			m.add(hop{run: r, from: gate, to: door, level: inLeaf, relay: true})
		case len(holders) == 0:
			door = m.pick(here, outside)
			m.fetch(r, from, door, inLeaf)
		}
		for _, u := range here {
			switch {
			case u == door:
			case door >= 0:
				m.add(hop{run: r, from: door, to: u, level: inNode, relay: true})
			default:
				m.fetch(r, holders, u, inNode)
			}
		}
	}
}

// between returns those of sorted numbers that are lo to hi-1.
func between(sorted []int32, lo, hi int32) []int32 {
	i, _ := slices.BinarySearch(sorted, lo)
	j, _ := slices.BinarySearch(sorted, hi)
	return sorted[i:j]
}

// pick returns the unit that has received least, the first of several.
func (m *mover) pick(units []int32, link int) int32 {
	best, load := units[0], m.load[link][receives]
	for _, u := range units[1:] {
		if load[u] < load[best] {
			best = u
		}
	}
	return best
}

// fetch gets a run from the one of from that has sent least, the first of several.
func (m *mover) fetch(r run, from []int32, to int32, level int8) {
	best, load := from[0], m.load[class(level)][sends]
	for _, f := range from[1:] {
		if load[f/2] < load[best/2] {
			best = f
		}
	}
	m.add(hop{run: r, from: best / 2, to: to, level: level, host: best%2 == 1})
}

// class returns which loads a level counts among.
func class(level int8) int {
	if level <= inNode {
		return inside
	}
	return outside
}

// add notes a transfer.
func (m *mover) add(h hop) {
	link, size := class(h.level), m.a.size(h.run)
	if h.from >= 0 {
		m.load[link][sends][h.from] += size
	}
	m.load[link][receives][h.to] += size
	h.piece = -1
	m.hops = append(m.hops, h)
}

// join makes one transfer of those that follow each other between the same units.
func (m *mover) join() {
	slices.SortFunc(m.hops, hop.compare)
	out := m.hops[:0]
	for _, h := range m.hops {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if last.slot == h.slot && last.to == h.to && last.from == h.from && last.level == h.level &&
				last.host == h.host && last.relay == h.relay && last.b == h.a {
				last.b = h.b
				continue
			}
		}
		out = append(out, h)
	}
	m.hops = out
}

// compare orders hops by slot, receiver and parameter, which tells them apart.
func (h hop) compare(o hop) int {
	return cmp.Or(cmp.Compare(h.slot, o.slot), cmp.Compare(h.to, o.to), cmp.Compare(h.a, o.a))
}
