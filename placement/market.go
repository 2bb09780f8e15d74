package placement

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Units of worth: a whole device is worth whole, so that one of its thousandths is
// worth unit.
const (
	unit  = 1 << 10
	whole = 1000 * unit
)

// mostCPU bounds processor time where it meets worths, so that products keep far from
// overflow.
const mostCPU = 1 << 30

// market is what was learned from a mix of shapes and from what was left of devices
// then. It never changes.
type market struct {
	shapes []Shape
	left   []leftover  // by class: what the state had then
	mix    *mixture    // of the typical shapes
	worth  [1001]int64 // by thousandths of a device that are free: see worths
	need   [1001]int64 // by the same: the CPU that what is free will take
	plural [lockstep.MaxDevicesPerNode + 2]int64
	scarce []scarcity // narrowest first
	load   []int64    // by left: after all of scarce
}

// leftover is what is left of the devices of a class, in thousandths that are worth
// something.
type leftover struct {
	Class lockstep.DeviceClass `json:"class,omitempty"`
	Worth lockstep.MilliGPU    `json:"worth"`
}

// scarcity is the classes of devices that some shapes may use, and how much of each is
// wanted by shapes that have less to choose from.
type scarcity struct {
	classes []lockstep.DeviceClass // empty means any
	supply  int64                  // what is left of them
	demand  int64                  // what those shapes are worth, in thousandths of devices
	load    []int64                // by market.left: what narrower shapes want of it
}

// newMarket learns from shapes that were checked or counted; prices says what devices
// are worth for them, and left what there is of them.
func newMarket(shapes []Shape, prices *[1001]int64, left []leftover) *market {
	m := &market{shapes: cloneShapes(shapes), left: slices.Clone(left), mix: newMixture(typical(shapes)), worth: *prices}
	m.needs()
	m.plurals()
	m.pour()
	return m
}

// pricesOf returns the worths that shapes give to what is left of devices; all are
// nothing before there are shapes.
func pricesOf(shapes []Shape) *[1001]int64 {
	var counts [1000]int64
	for i := range shapes {
		if h := &shapes[i]; h.GPUs == 1 && h.milli() < 1000 {
			counts[h.milli()] += h.count()
		}
	}
	out := worths(&counts)
	for r := range out {
		out[r] = out[r] * whole >> oneBits
	}
	if len(shapes) > 0 {
		out[1000] = whole
	}
	return &out
}

// demand is what the members of a shape are worth together.
func (m *market) demand(h *Shape) int64 {
	each := int64(whole)
	if h.GPUs == 1 {
		each = m.worth[h.milli()]
	}
	return h.count() * int64(h.GPUs) * each / unit
}

// needs finds the mean CPU that a device takes of which so much is free: over all shapes
// that fit there and are worth something, those of several devices where it is idle.
func (m *market) needs() {
	var weight, cpu [1001]int64
	for i := range m.shapes {
		h := &m.shapes[i]
		switch {
		case h.GPUs > 1:
			weight[1000] += h.count() * int64(h.GPUs)
			cpu[1000] += h.count() * min(int64(h.CPU), mostCPU)
		case h.GPUs == 1 && m.worth[h.milli()] > 0:
			weight[h.milli()] += h.count()
			cpu[h.milli()] += h.count() * min(int64(h.CPU), mostCPU)
		}
	}
	var w, c int64
	for r := range m.need {
		w += weight[r]
		c += cpu[r]
		if w > 0 {
			m.need[r] = c / w
		}
	}
}

// plurals adds up which thousandths of all demand are for so many devices of a node, or
// fewer, but for more than one.
func (m *market) plurals() {
	var all int64
	for i := range m.shapes {
		h := &m.shapes[i]
		d := m.demand(h)
		all += d
		if h.GPUs > 1 {
			m.plural[h.GPUs] += d
		}
	}
	sum := int64(0)
	for k := range m.plural {
		sum += m.plural[k] * 1000 / max(1, all)
		m.plural[k] = sum
	}
}

// pour deals out what is left of devices to the shapes that want it, all in all as much
// as there is: those that may use least first, each in 64 drops to the class with
// least load for what is left of it, ties by class.
func (m *market) pour() {
	var demand, all int64
	for i := range m.left {
		all += int64(m.left[i].Worth)
	}
	for i := range m.shapes {
		h := &m.shapes[i]
		if h.GPUs == 0 {
			continue
		}
		at := slices.IndexFunc(m.scarce, func(o scarcity) bool { return slices.Equal(o.classes, h.Classes) })
		if at < 0 {
			at = len(m.scarce)
			m.scarce = append(m.scarce, scarcity{classes: h.Classes, supply: m.covered(h.Classes)})
		}
		d := m.demand(h)
		m.scarce[at].demand += d
		demand += d
	}
	slices.SortFunc(m.scarce, func(a, b scarcity) int { return a.order(b.supply, b.classes) })
	m.load = make([]int64, len(m.left))
	for i := range m.scarce {
		o := &m.scarce[i]
		o.load = slices.Clone(m.load)
		need := scaled(o.demand, all, max(1, demand))
		for drop := range int64(64) {
			if t := m.least(o.classes); t >= 0 {
				m.load[t] += need*(drop+1)/64 - need*drop/64
			}
		}
	}
}

// order is negative where shapes with so much to choose from come after o's.
func (o *scarcity) order(supply int64, classes []lockstep.DeviceClass) int {
	return cmp.Or(cmp.Compare(o.supply, supply), slices.Compare(o.classes, classes))
}

// least returns the class, of some or of all, that has least load for what is left of
// it; -1 where there is none.
func (m *market) least(classes []lockstep.DeviceClass) int {
	best := -1
	for t := range m.left {
		if len(classes) > 0 && !slices.Contains(classes, m.left[t].Class) {
			continue
		}
		if best < 0 || lessRatio(m.load[t], max(1, int64(m.left[t].Worth)), m.load[best], max(1, int64(m.left[best].Worth))) {
			best = t
		}
	}
	return best
}

// covered returns what is left of some classes, or of all.
func (m *market) covered(classes []lockstep.DeviceClass) (sum int64) {
	for i := range m.left {
		if len(classes) == 0 || slices.Contains(classes, m.left[i].Class) {
			sum += int64(m.left[i].Worth)
		}
	}
	return sum
}

// pressure says how much of what is left of a class is wanted by shapes with less to
// choose from than members that may use some classes, or any: in thousandths, up to 1000.
// Those should find it when they come (Littlewood's rule, with means).
func (m *market) pressure(classes []lockstep.DeviceClass, class lockstep.DeviceClass) int64 {
	t, ok := slices.BinarySearchFunc(m.left, class, func(o leftover, c lockstep.DeviceClass) int { return cmp.Compare(o.Class, c) })
	if !ok {
		return 0
	}
	load, supply := m.load, m.covered(classes)
	for i := range m.scarce {
		if m.scarce[i].order(supply, classes) >= 0 {
			load = m.scarce[i].load
			break
		}
	}
	return min(1000, scaled(load[t], 1000, max(1, int64(m.left[t].Worth))))
}

// remains returns what is left of the devices of each class, at so much for each, sorted.
// O(nodes).
func (s *State) remains(prices *[1001]int64) []leftover {
	sums := make([]int64, len(s.models))
	var k kind
	for x := range s.slots {
		c := &s.slots[x]
		if c.flags&vacant != 0 {
			continue
		}
		idle := s.shared(&k, int32(x), c)
		sums[c.model] += idle * prices[1000] / unit
		for _, r := range s.work.left {
			sums[c.model] += prices[r] / unit
		}
	}
	var out []leftover
	for t, class := range s.models {
		if sums[t] > 0 {
			out = append(out, leftover{class, lockstep.MilliGPU(sums[t])})
		}
	}
	slices.SortFunc(out, func(a, b leftover) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

// trade makes a market the one that places are priced by.
func (s *State) trade(m *market) {
	s.market = m
	s.markets++
}

// scaled returns a·b/c, rounded down, of which nothing is negative.
func scaled(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<62 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<62-1))
}

// lessRatio reports whether a/b < c/d, of which nothing is negative.
func lessRatio(a, b, c, d int64) bool {
	h1, l1 := bits.Mul64(uint64(a), uint64(d))
	h2, l2 := bits.Mul64(uint64(c), uint64(b))
	return h1 < h2 || h1 == h2 && l1 < l2
}
