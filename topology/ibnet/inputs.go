package ibnet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// maxTiers is as many levels as topology.New takes.
const maxTiers = 16

// Config says what Inputs makes of a fabric. The zero Config counts all adapters
// and fills in no shapes.
type Config struct {
	HCAs []string // HCAs are the names of the adapters that count; nil means all.

	// Tiers is how many tiers of switches make a level, 1 to 16, the units among
	// them; a host that reads its fabric again and again sets it, so that the levels
	// stay. 0 means as many as part the nodes, and always the units.
	Tiers int

	Shape  *topology.Shape                     // Shape is the devices of hosts that Shapes does not name; nil means none.
	Shapes map[lockstep.NodeID]*topology.Shape // Shapes are the devices of other kinds of hosts; nil means none.
}

// Miswire is an adapter that is on another rail than those of its name in the
// unit.
type Miswire struct {
	Host lockstep.NodeID // Host is where it is.
	HCA  string          // HCA is its name.
	Rail int             // Rail is where it is.
	Most int             // Most is the rail that most of its name are on.
}

// Inputs returns levels and nodes as topology.New takes them. The finest level is
// "unit"; it has rails and the lowest rate of the ports that count. Above it are
// "tier2" and so on, without figures. The nodes are the hosts, each with its shape,
// into which the rails are filled by the names of its devices' network cards;
// hosts that come out alike share a shape. A host none of whose adapters counts is
// in a unit of its own. The slices are the caller's.
func (f *Fabric) Inputs(cfg Config) (levels []topology.Level, nodes []topology.Node, err error) {
	if cfg.Tiers < 0 || cfg.Tiers > maxTiers {
		return nil, nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "ibnet: inputs", Field: "Tiers", Value: strconv.Itoa(cfg.Tiers), Reason: "want 0 to " + strconv.Itoa(maxTiers)}
	}
	w := f.wiring(cfg.HCAs)
	tiers := w.partition(cfg.Tiers)
	for _, t := range slices.Backward(tiers[1:]) {
		levels = append(levels, topology.Level{Name: lockstep.Level("tier" + strconv.Itoa(t.tier))})
	}
	levels = append(levels, topology.Level{Name: "unit", Rails: true, Bandwidth: w.rate})
	s := shaper{made: make(map[shapeKey]*topology.Shape)}
	for i, host := range w.hosts {
		var path []string
		for _, t := range slices.Backward(tiers) {
			path = append(path, t.names[t.of[i]])
		}
		shape, ok := cfg.Shapes[host]
		if !ok {
			shape = cfg.Shape
		}
		if shape, err = s.shape(shape, w, i); err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, topology.Node{ID: host, Path: path, Shape: shape})
	}
	return levels, nodes, nil
}

// Miswired returns the adapters that are not where most of their name are in the
// unit, by host in the order of Inputs, then by name. HCAs are as in Config. Where
// two rails have as many, the lower counts.
func (f *Fabric) Miswired(hcas []string) (out []Miswire) {
	w := f.wiring(hcas)
	type kind struct {
		unit int
		hca  string
	}
	type place struct {
		kind
		rail int
	}
	counts, most := make(map[place]int), make(map[kind]place)
	for _, p := range w.ports {
		at := place{kind{w.unit[p.host], p.hca}, p.rail}
		counts[at]++
	}
	for _, p := range w.ports {
		at := place{kind{w.unit[p.host], p.hca}, p.rail}
		best, ok := most[at.kind]
		if n := counts[at] - counts[best]; !ok || n > 0 || n == 0 && at.rail < best.rail {
			most[at.kind] = at
		}
	}
	for _, p := range w.ports {
		if best := most[kind{w.unit[p.host], p.hca}]; p.hca != "" && best.rail != p.rail {
			out = append(out, Miswire{Host: w.hosts[p.host], HCA: p.hca, Rail: p.rail, Most: best.rail})
		}
	}
	return out
}

// wiring is the hosts of a fabric and how they are wired.
type wiring struct {
	fabric *Fabric
	hosts  []lockstep.NodeID // by natural order of names
	ports  []wire            // that count, by host, adapter and port
	rate   lockstep.BytesPerSecond

	unit  []int // by host; that of a host without ports is its own
	units int   // how many there are
}

// wire is a port of a host.
type wire struct {
	host, at int
	hca      string
	number   int
	rail     int
}

// wiring finds hosts, units and rails.
func (f *Fabric) wiring(hcas []string) *wiring {
	w := &wiring{fabric: f}
	for _, p := range f.Ports {
		w.hosts = append(w.hosts, p.Host)
	}
	slices.SortFunc(w.hosts, func(a, b lockstep.NodeID) int { return natural(string(a), string(b)) })
	w.hosts = slices.Compact(w.hosts)
	index := make(map[lockstep.NodeID]int, len(w.hosts))
	for i, h := range w.hosts {
		index[h] = i
	}
	for i, p := range f.Ports {
		if hcas != nil && !slices.Contains(hcas, p.HCA) {
			continue
		}
		w.ports = append(w.ports, wire{host: index[p.Host], at: p.Switch, hca: p.HCA, number: i})
		if p.Rate > 0 && (w.rate == 0 || p.Rate < w.rate) {
			w.rate = p.Rate
		}
	}
	slices.SortFunc(w.ports, func(a, b wire) int {
		return cmp.Or(
			cmp.Compare(a.host, b.host), natural(a.hca, b.hca),
			cmp.Compare(f.Ports[a.number].GUID, f.Ports[b.number].GUID),
			cmp.Compare(f.Ports[a.number].Number, f.Ports[b.number].Number))
	})
	sets := newSets(len(w.hosts) + len(f.Switches))
	for _, p := range w.ports {
		sets.join(p.host, len(w.hosts)+p.at)
	}
	w.unit, w.units = sets.number(len(w.hosts))
	w.rails()
	return w
}

// rails numbers the leaves of each unit.
func (w *wiring) rails() {
	counts := make([]map[string]int, len(w.fabric.Switches)) // by leaf: adapters of a name
	unit := make([]int, len(w.fabric.Switches))              // by leaf
	var leaves []int
	for _, p := range w.ports {
		if counts[p.at] == nil {
			counts[p.at] = make(map[string]int)
			unit[p.at] = w.unit[p.host]
			leaves = append(leaves, p.at)
		}
		counts[p.at][p.hca]++
	}
	usual := make([]string, len(w.fabric.Switches))
	for _, leaf := range leaves {
		most := 0
		for hca, n := range counts[leaf] { // the order cannot matter: the greatest count wins, then the first name
			if n > most || n == most && natural(hca, usual[leaf]) < 0 {
				usual[leaf], most = hca, n
			}
		}
	}
	slices.SortFunc(leaves, func(a, b int) int {
		return cmp.Or(cmp.Compare(unit[a], unit[b]), natural(usual[a], usual[b]), cmp.Compare(w.fabric.Switches[a].GUID, w.fabric.Switches[b].GUID))
	})
	rail := make([]int, len(w.fabric.Switches))
	for i, leaf := range leaves {
		if i > 0 && unit[leaf] == unit[leaves[i-1]] {
			rail[leaf] = rail[leaves[i-1]] + 1
		}
	}
	for i := range w.ports {
		w.ports[i].rail = rail[w.ports[i].at]
	}
}

// tier is how the switches of a tier and below part the hosts.
type tier struct {
	tier  int
	of    []int    // by host: its domain
	names []string // by domain
}

// partition returns the tiers that make levels, the units first.
func (w *wiring) partition(want int) []tier {
	f := w.fabric
	height := w.heights()
	top := 1
	for _, h := range height {
		top = max(top, h)
	}
	top = min(top, maxTiers)
	out := []tier{w.named(1, w.unit, w.units)}
	sets := newSets(len(w.hosts) + len(f.Switches))
	for _, p := range w.ports {
		sets.join(p.host, len(w.hosts)+p.at)
	}
	for t := 2; t <= max(top, want); t++ {
		for _, trunk := range f.Trunks {
			a, b := height[trunk.A], height[trunk.B]
			if a > 0 && b > 0 && (max(a, b) <= t || t == maxTiers) {
				sets.join(len(w.hosts)+trunk.A, len(w.hosts)+trunk.B)
			}
		}
		of, n := sets.number(len(w.hosts))
		last := &out[len(out)-1]
		if want > 0 && t <= want || want == 0 && n > 1 && n < len(last.names) {
			out = append(out, w.named(t, of, n))
		}
	}
	return out
}

// heights returns the tier of each switch: 1 for leaves, 0 for one that no leaf
// reaches.
func (w *wiring) heights() []int {
	f := w.fabric
	next := make([][]int, len(f.Switches))
	for _, t := range f.Trunks {
		next[t.A] = append(next[t.A], t.B)
		next[t.B] = append(next[t.B], t.A)
	}
	height := make([]int, len(f.Switches))
	var queue []int
	for _, p := range w.ports {
		if height[p.at] == 0 {
			height[p.at] = 1
			queue = append(queue, p.at)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, o := range next[s] {
			if height[o] == 0 {
				height[o] = height[s] + 1
				queue = append(queue, o)
			}
		}
	}
	return height
}

// named returns a tier whose domains are named after the lowest GUID of their
// leaves; that of a host without ports has no name, which makes it the host's own.
func (w *wiring) named(t int, of []int, n int) tier {
	lowest := make([]GUID, n)
	seen := make([]bool, n)
	for _, p := range w.ports {
		if d, g := of[p.host], w.fabric.Switches[p.at].GUID; !seen[d] || g < lowest[d] {
			lowest[d], seen[d] = g, true
		}
	}
	names := make([]string, n)
	for d := range names {
		if seen[d] {
			names[d] = lowest[d].String()
		}
	}
	return tier{tier: t, of: of, names: names}
}

// shaper fills rails into shapes.
type shaper struct {
	made map[shapeKey]*topology.Shape
}

// shapeKey is a shape and the rails that go into it, as text.
type shapeKey struct {
	shape *topology.Shape
	rails string
}

// shape returns a host's shape with its rails.
func (s *shaper) shape(shape *topology.Shape, w *wiring, host int) (*topology.Shape, error) {
	if shape.Devices() == 0 {
		return shape, nil
	}
	first, _ := slices.BinarySearchFunc(w.ports, host, func(p wire, host int) int { return cmp.Compare(p.host, host) })
	rails, known := make([]int, shape.Devices()), false
	var text strings.Builder
	for d := range rails {
		rails[d] = -1
		for _, p := range w.ports[first:] {
			if p.host != host {
				break
			}
			if p.hca != "" && p.hca == shape.NIC(d) {
				rails[d], known = p.rail, true
				break
			}
		}
		text.WriteString(strconv.Itoa(rails[d]) + " ")
	}
	k := shapeKey{shape, text.String()}
	if made, ok := s.made[k]; ok {
		return made, nil
	}
	if !known {
		rails = nil
	}
	made, err := shape.WithRails(rails)
	if err != nil {
		return nil, err
	}
	s.made[k] = made
	return made, nil
}

// sets are disjoint sets of numbers.
type sets []int

func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (s sets) find(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

// join makes one set of those of a and b. The lower number stands for it.
func (s sets) join(a, b int) {
	a, b = s.find(a), s.find(b)
	s[max(a, b)] = min(a, b)
}

// number numbers the sets that the first n numbers are in, in their order.
func (s sets) number(n int) (of []int, count int) {
	of = make([]int, n)
	seen := make(map[int]int, n)
	for i := range n {
		root := s.find(i)
		k, ok := seen[root]
		if !ok {
			k = count
			seen[root] = k
			count++
		}
		of[i] = k
	}
	return of, count
}
