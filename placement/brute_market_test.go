package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// plainMarket prices places by the definitions, for one mix and what was left of each
// class of devices.
type plainMarket struct {
	mix   []Shape
	worth [1001]int64
	left  []leftover
}

func (p *plainState) market() *plainMarket {
	m := &plainMarket{mix: p.mix, left: p.remains}
	var counts [1000]int64
	for _, h := range p.mix {
		if h.GPUs == 1 && h.Share%1000 != 0 {
			counts[h.Share] += max(1, h.Count)
		}
	}
	for r, w := range worths(&counts) { // see TestWorthsAreTheDual
		m.worth[r] = w * 1024_000 >> 24
	}
	if len(p.mix) > 0 {
		m.worth[1000] = 1024_000
	}
	return m
}

// sizeOf returns how much of each device a shape takes.
func sizeOf(h *Shape) int {
	if h.Share == 0 {
		return 1000
	}
	return int(h.Share)
}

// need is the mean CPU for a device of which r thousandths are free.
func (m *plainMarket) need(r int) int64 {
	var cpu, weight int64
	for _, h := range m.mix {
		n := max(1, h.Count)
		switch {
		case h.GPUs == 1 && sizeOf(&h) <= r && m.worth[sizeOf(&h)] > 0:
			weight += n
			cpu += n * int64(h.CPU)
		case h.GPUs > 1 && r == 1000:
			weight += n * int64(h.GPUs)
			cpu += n * int64(h.CPU)
		}
	}
	if weight == 0 {
		return 0
	}
	return cpu / weight
}

// short is the worth of devices that finds no CPU.
func (m *plainMarket) short(cpu int64, devices []int) int64 {
	var worth, need int64
	for _, r := range devices {
		worth += m.worth[r]
		need += m.need(r)
	}
	cpu = min(max(cpu, 0), 1<<30)
	if cpu >= need {
		return 0
	}
	return worth * (need - cpu) / need
}

// demand is what the members of a shape are worth, in thousandths of devices.
func (m *plainMarket) demand(h *Shape) int64 {
	if h.GPUs == 1 {
		return max(1, h.Count) * m.worth[sizeOf(h)] / 1024
	}
	return max(1, h.Count) * int64(h.GPUs) * 1000
}

// plural is the thousandths of demand for n devices of one node.
func (m *plainMarket) plural(n int) (sum int64) {
	var all, some int64
	for _, h := range m.mix {
		all += m.demand(&h)
		if h.GPUs == n {
			some += m.demand(&h)
		}
	}
	return some * 1000 / max(1, all)
}

// pressure is how much of what was left of a class shapes want that may use less than
// members of some classes.
func (m *plainMarket) pressure(classes []lockstep.DeviceClass, class lockstep.DeviceClass) int64 {
	type wish struct {
		classes      []lockstep.DeviceClass
		supply, want int64
	}
	may := func(classes []lockstep.DeviceClass, c lockstep.DeviceClass) bool {
		return len(classes) == 0 || slices.Contains(classes, c)
	}
	covered := func(classes []lockstep.DeviceClass) (sum int64) {
		for _, o := range m.left {
			if may(classes, o.Class) {
				sum += int64(o.Worth)
			}
		}
		return sum
	}
	var list []wish
	var want int64
	for _, h := range m.mix {
		if h.GPUs == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(o wish) bool { return slices.Equal(o.classes, h.Classes) })
		if i < 0 {
			i = len(list)
			list = append(list, wish{classes: h.Classes, supply: covered(h.Classes)})
		}
		list[i].want += m.demand(&h)
		want += m.demand(&h)
	}
	order := func(a, b wish) int {
		return cmp.Or(cmp.Compare(a.supply, b.supply), slices.Compare(a.classes, b.classes))
	}
	slices.SortFunc(list, order)
	load := make([]int64, len(m.left))
	for _, o := range list {
		if order(o, wish{classes: classes, supply: covered(classes)}) >= 0 {
			break
		}
		need := o.want * covered(nil) / max(1, want)
		for k := range int64(64) {
			best := -1
			for t, c := range m.left {
				if may(o.classes, c.Class) && (best < 0 || load[t]*int64(m.left[best].Worth) < load[best]*int64(c.Worth)) {
					best = t
				}
			}
			if best >= 0 {
				load[best] += need*(k+1)/64 - need*k/64
			}
		}
	}
	for t, o := range m.left {
		if o.Class == class {
			return min(1000, load[t]*1000/int64(o.Worth))
		}
	}
	return 0
}

// cost is what a member costs on some devices of a node, of which it takes so much each.
func (f *plainFit) cost(x int32, d *lockstep.Demand, set lockstep.DeviceSet) int64 {
	m, n := f.prices, &f.left[x]
	take := int(d.Share)
	if take%1000 == 0 {
		take = 1000
	}
	var loss, rest int64
	var before, after []int
	idle, left := 0, 0
	for i := range f.tree.Shape(x).All().All {
		o := &n.devices[i]
		if n.hidden.Has(i) || n.apart.Has(i) || o.held != 0 {
			continue
		}
		r := 1000 - o.milli
		before = append(before, r)
		idle += boolInt(r == 1000)
		if !set.Has(i) {
			after = append(after, r)
			left += boolInt(r == 1000)
			continue
		}
		after = append(after, r-take)
		loss += m.worth[r] - m.worth[r-take]
		if take < 1000 && r == 1000 {
			rest += 100 * 1024
		}
	}
	rest += loss * m.pressure(d.Classes, n.class) / 1000
	if take < 1000 {
		rest += 4 * loss // of whole devices it is the same wherever they are
	}
	broken := int64(0)
	for k := left + 1; k <= idle; k++ {
		if k > d.GPUs && d.GPUs > 0 {
			broken += m.plural(k)
		}
	}
	return rest + 1024*min(100, broken) + m.short(n.cpu-int64(d.CPU), after) - m.short(n.cpu, before)
}

// rankByPrice is what nodes with room are chosen by where places are priced.
func (f *plainFit) rankByPrice(x int32, d *lockstep.Demand) int {
	best := int64(math.MaxInt64)
	for _, set := range f.bestPartOn(x, d) {
		best = min(best, f.cost(x, d, set))
	}
	return int(best>>5) + 1<<22
}

// remaining counts what is left of the devices of each class that is worth something.
func (p *plainState) remaining() (out []leftover) {
	m, sums := p.market(), map[lockstep.DeviceClass]int64{}
	for x, n := range p.left(nil) {
		id, ok := p.tree.NodeAt(int32(x))
		if !ok {
			continue
		}
		for i := range p.tree.Shape(int32(x)).All().All {
			if !n.hidden.Has(i) && !n.apart.Has(i) && n.devices[i].held == 0 {
				sums[p.nodes[id].Class] += m.worth[1000-n.devices[i].milli] / 1024
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(sums)) {
		if sums[c] > 0 {
			out = append(out, leftover{c, lockstep.MilliGPU(sums[c])})
		}
	}
	return out
}
