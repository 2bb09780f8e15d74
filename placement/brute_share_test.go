package placement

import (
	"maps"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// plainDevice is what members have of one device: shares or instances, not both.
type plainDevice struct {
	milli  int
	memory int64
	held   sharing.Occupancy
}

// plainGeometries are the MIG layouts of the nodes of worlds.
type plainGeometries map[string]*sharing.Geometry

func (g plainGeometries) of(name string) *sharing.Geometry {
	if name == "" {
		return nil
	}
	if g[name] == nil {
		cfg, _ := sharing.ModelConfig(name)
		g[name], _ = sharing.NewGeometry(cfg)
	}
	return g[name]
}

// devicesFor lists the devices of a node that a demand could have a part of.
func (f *plainFit) devicesFor(x int32, d *lockstep.Demand) (out []int) {
	n := &f.left[x]
	for i := range f.tree.Shape(x).All().All {
		o := &n.devices[i]
		apart := n.apart.Has(i)
		switch {
		case n.hidden.Has(i):
		case d.Profile != "":
			if g := f.mig.of(n.mig); g == nil || o.milli > 0 || n.apart != 0 && !apart {
				continue
			}
			out = append(out, i)
		case !apart && o.held == 0:
			out = append(out, i)
		}
	}
	return out
}

// onDevice returns how many members one device has room for.
func (f *plainFit) onDevice(x int32, i int, d *lockstep.Demand) int {
	o := &f.left[x].devices[i]
	if d.Profile != "" {
		g := f.mig.of(f.left[x].mig)
		p, ok := g.Lookup(d.Profile)
		if !ok {
			return 0
		}
		return g.Count(o.held, p)
	}
	k := 0
	for o.milli+(k+1)*int(d.Share) <= 1000 && (d.GPUMemory == 0 || o.memory+int64(k+1)*int64(d.GPUMemory) <= f.left[x].memoryEach) {
		k++
	}
	return k
}

// partMembers returns how many members the devices of a node have room for: as many
// as can be dealt out, each to the devices with most room.
func (f *plainFit) partMembers(x int32, d *lockstep.Demand) int {
	var room []int
	for _, i := range f.devicesFor(x, d) {
		room = append(room, f.onDevice(x, i, d))
	}
	return dealt(room, d.GPUs)
}

// dealt deals members out, each to the k devices with most room left.
func dealt(room []int, k int) (n int) {
	for room = slices.Clone(room); len(room) >= k; n++ {
		slices.SortFunc(room, func(a, b int) int { return b - a })
		if room[k-1] == 0 {
			break
		}
		for i := range k {
			room[i]--
		}
	}
	return n
}

// subsets lists the choices of devices for one member, by index.
func subsets(of []int, k int) (out []lockstep.DeviceSet) {
	if k == 0 {
		return []lockstep.DeviceSet{0}
	}
	for i, d := range of {
		for _, rest := range subsets(of[i+1:], k-1) {
			out = append(out, rest|1<<d)
		}
	}
	return out
}

// fragmentation is the definition: what each shape cannot use of the idle thousandths of a
// node, by its count.
func (f *plainFit) fragmentation(x int32) (sum float64) {
	n := &f.left[x]
	var idle []int
	total := 0
	for i := range f.tree.Shape(x).All().All {
		if n.hidden.Has(i) || n.apart.Has(i) || n.devices[i].held != 0 {
			continue
		}
		idle = append(idle, 1000-n.devices[i].milli)
		total += 1000 - n.devices[i].milli
	}
	for _, h := range f.shapes() {
		count := float64(max(1, h.Count))
		size, fits, small := int(h.Share), 0, 0
		if size == 0 {
			size = 1000
		}
		for _, g := range idle {
			if g >= size {
				fits++
			} else {
				small += g
			}
		}
		if h.GPUs == 0 || len(h.Classes) > 0 && !slices.Contains(h.Classes, n.class) || n.cpu < int64(h.CPU) || fits < h.GPUs {
			sum += count * float64(total)
		} else {
			sum += count * float64(small)
		}
	}
	return sum
}

// shapes is the mix, which is of one whole device where none was given.
func (f *plainFit) shapes() []Shape {
	if len(f.mix) == 0 {
		return []Shape{{GPUs: 1}}
	}
	return f.mix
}

func (f *plainFit) weight() (sum float64) {
	for _, h := range f.shapes() {
		sum += float64(max(1, h.Count))
	}
	return sum
}

// choice is where one member of a ranked kind would go on a node.
type choice struct {
	set   lockstep.DeviceSet
	start int
	cost  float64 // growth of fragmentation, or what an instance costs
	tight []int   // what decides among equals
}

func (a *choice) less(b *choice) bool {
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return slices.Compare(a.tight, b.tight) < 0
}

// bestPart returns the best devices for one of the members that still have to have room
// on a node.
func (f *plainFit) bestPart(x int32, d *lockstep.Demand, members int) choice {
	if d.Profile != "" {
		return f.bestSlice(x, d, members)
	}
	var best choice
	found := false
	before := f.fragmentation(x)
	keep := f.left[x]
	for _, set := range subsets(f.devicesFor(x, d), d.GPUs) {
		fits := true
		var tight []int
		for i := range set.All {
			fits = fits && f.onDevice(x, i, d) > 0
			tight = append(tight, keep.devices[i].milli*-100+i)
		}
		if !fits {
			continue
		}
		slices.Sort(tight)
		f.left[x].take(set, 0, d, f.mig)
		o := choice{set: set, tight: tight}
		if d.GPUs == 1 && f.rule == RuleGradient {
			o.cost = math.Round(f.fragmentation(x) - before)
		}
		if d.GPUs == 1 && f.rule == RulePrices {
			after := f.left[x]
			f.left[x] = keep
			o.cost = float64(f.cost(x, d, set))
			f.left[x] = after
		}
		if f.partMembers(x, d) >= members-1 && (!found || o.less(&best)) {
			best, found = o, true
		}
		f.left[x] = keep
	}
	return best
}

func (f *plainFit) bestSlice(x int32, d *lockstep.Demand, members int) choice {
	var best choice
	found := false
	keep := f.left[x]
	g := f.mig.of(keep.mig)
	p, _ := g.Lookup(d.Profile)
	for _, i := range f.devicesFor(x, d) {
		for start := range 8 {
			held := keep.devices[i].held
			after, ok := g.Take(held, p, start)
			if !ok {
				continue
			}
			o := choice{set: 1 << i, start: start, cost: float64((g.Room(held) - g.Room(after)) * 4095 / g.Room(0))}
			if held == 0 && keep.apart == 0 {
				o.cost += 4096
			}
			o.tight = []int{-held.Slices(), i, int(-g.Room(after)), start}
			f.left[x].take(o.set, start, d, f.mig)
			if f.partMembers(x, d) >= members-1 && (!found || o.less(&best)) {
				best, found = o, true
			}
			f.left[x] = keep
		}
	}
	return best
}

// rank is what nodes with room are chosen by, for members of a ranked kind.
func (f *plainFit) rank(x int32, r *lockstep.Role) int {
	if f.members(x, r) == 0 {
		return 0
	}
	if r.Demand.Profile != "" {
		return int(f.bestPart(x, &r.Demand, 1).cost)
	}
	if f.rule == RulePrices {
		return f.rankByPrice(x, &r.Demand)
	}
	keep := f.left[x]
	before := f.fragmentation(x)
	best := math.Inf(1)
	o := f.bestPartOn(x, &r.Demand)
	for _, set := range o {
		f.left[x].take(set, 0, &r.Demand, f.mig)
		best = min(best, f.fragmentation(x)-before)
		f.left[x] = keep
	}
	return 100 - int(math.Floor(100/(1+math.Exp(best/f.weight()/1000))))
}

// bestPartOn lists the sets that a rank looks at: every device of one share, else the
// tightest.
func (f *plainFit) bestPartOn(x int32, d *lockstep.Demand) (out []lockstep.DeviceSet) {
	if !parted(d) {
		free := f.left[x].free &^ f.left[x].apart
		for free.Len() > d.GPUs {
			free &= free - 1
		}
		return []lockstep.DeviceSet{free}
	}
	if d.GPUs > 1 {
		return []lockstep.DeviceSet{f.bestPart(x, d, 1).set}
	}
	for _, i := range f.devicesFor(x, d) {
		if f.onDevice(x, i, d) > 0 {
			out = append(out, 1<<i)
		}
	}
	return out
}

// seatParts chooses devices for n members of a role on one node and takes their room.
func (f *plainFit) seatParts(role int32, x int32, n int) (out []lockstep.Member) {
	d := &f.gang.Roles[role].Demand
	id, _ := f.tree.NodeAt(x)
	for i := range n {
		o := f.bestPart(x, d, n-i)
		f.left[x].take(o.set, o.start, d, f.mig)
		out = append(out, lockstep.Member{Role: role, Node: id, Devices: o.set, Start: int32(o.start)})
	}
	return out
}

// resettle decides anew who is away after a rebase: members of nodes that were
// touched sit down again, those that sat there first, then by job and rank.
func (p *plainState) resettle(changes []topology.Change, nodes []Node) {
	touched := map[lockstep.NodeID]bool{}
	for _, c := range changes {
		touched[c.Node.ID] = true
	}
	for _, n := range nodes {
		touched[n.ID] = true
	}
	was := p.away
	p.away = map[lockstep.JobID]map[int]bool{}
	type seated struct {
		job  lockstep.JobID
		rank int
	}
	var sit []seated
	for _, id := range slices.Sorted(maps.Keys(p.jobs)) {
		p.away[id] = map[int]bool{}
		for rank, m := range everyone(p.jobs[id]) {
			p.away[id][rank] = was[id][rank] || touched[m.Node]
			if _, ok := p.tree.Slot(m.Node); touched[m.Node] && ok {
				sit = append(sit, seated{id, rank})
			}
		}
	}
	slices.SortStableFunc(sit, func(a, b seated) int { return boolInt(was[a.job][a.rank]) - boolInt(was[b.job][b.rank]) })
	for _, o := range sit {
		m := &everyone(p.jobs[o.job])[o.rank]
		d := &p.jobs[o.job].Gang.Roles[m.Role].Demand
		left := p.left(nil)
		x, _ := p.tree.Slot(m.Node)
		if m.Devices&^p.tree.Shape(x).All() == 0 && left[x].bears(m, d, p.mig, was[o.job][o.rank]) {
			p.away[o.job][o.rank] = false
		}
	}
}

// bears reports whether a member's devices can have it; a stranger must find memory too, and
// no device set aside for others.
func (n *plainNode) bears(m *lockstep.Member, d *lockstep.Demand, mig plainGeometries, stranger bool) bool {
	for i := range m.Devices.All {
		o := &n.devices[i]
		switch {
		case n.hidden.Has(i):
			return false
		case d.Profile != "":
			g := mig.of(n.mig)
			if g == nil || o.milli > 0 {
				return false
			}
			p, ok := g.Lookup(d.Profile)
			if !ok || !g.Starts(o.held, p).Has(int(m.Start)) || stranger && n.apart != 0 && !n.apart.Has(i) {
				return false
			}
		case d.Share%1000 != 0:
			if o.held != 0 || o.milli+int(d.Share) > 1000 || stranger && (n.apart.Has(i) || d.GPUMemory > 0 && o.memory+int64(d.GPUMemory) > n.memoryEach) {
				return false
			}
		case o.milli > 0 || o.held != 0 || stranger && n.apart.Has(i):
			return false
		}
	}
	return true
}
