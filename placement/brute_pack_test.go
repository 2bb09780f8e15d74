package placement

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// candidates returns the domains of a level with room for n members, best first.
func (f *plainFit) candidates(level, n int, r *lockstep.Role) []int32 {
	var list []plainDomain
	for d := range f.tree.Domains(level) {
		if o := f.domain(level, int32(d), r); o.units > 0 && o.units >= n/f.unit(level, r) {
			list = append(list, o)
		}
	}
	node := level == f.tree.Levels()-1
	slices.SortFunc(list, func(a, b plainDomain) int {
		switch {
		case !node && f.gang.Strategy == lockstep.Spread:
			return cmp.Or(b.units-a.units, int(a.d-b.d))
		case !node:
			return cmp.Or(a.units-b.units, int(a.d-b.d))
		case f.ranked(&r.Demand):
			return cmp.Or(a.rank-b.rank, int(a.d-b.d))
		case a.idle != b.idle:
			return boolInt(a.idle) - boolInt(b.idle)
		case a.idle:
			return cmp.Or(a.rackUnits-b.rackUnits, int(a.rack-b.rack), a.units-b.units, a.free-b.free, int(a.d-b.d))
		}
		return cmp.Or(a.units-b.units, a.free-b.free, int(a.d-b.d))
	})
	out := make([]int32, len(list))
	for i := range list {
		out[i] = list[i].d
	}
	return out
}

// fill places n units into a domain and returns the slots with members, by slot.
func (f *plainFit) fill(level int, d int32, n int, r *lockstep.Role) map[int32]int {
	inner, size := f.innerOf(r)
	last := f.tree.Levels() - 1
	if level == last {
		return map[int32]int{d: n * f.unit(level, r)}
	}
	if level == inner {
		n *= size
	}
	first, end := f.tree.Children(level, d)
	var kids []plainDomain
	for c := first; c < end; c++ {
		if o := f.domain(level+1, c, r); o.units > 0 {
			kids = append(kids, o)
		}
	}
	give := map[int32]int{}
	if f.gang.Strategy == lockstep.Spread && level != inner {
		pour(kids, n, give)
	} else {
		heap(kids, n, level+1 == last, f.ranked(&r.Demand), give)
	}
	out := map[int32]int{}
	for c, k := range give { // in any order: the parts are disjoint
		maps.Copy(out, f.fill(level+1, c, k, r))
	}
	return out
}

// pour deals members one by one: to the child with fewest so far, then with
// most room, then the lowest.
func pour(kids []plainDomain, n int, give map[int32]int) {
	for range n {
		best := -1
		for i := range kids {
			if give[kids[i].d] >= kids[i].units {
				continue
			}
			if best < 0 || cmp.Or(give[kids[i].d]-give[kids[best].d], kids[best].units-kids[i].units) < 0 {
				best = i
			}
		}
		give[kids[best].d]++
	}
}

// heap fills the largest child until one holds the rest.
func heap(kids []plainDomain, n int, node, ranked bool, give map[int32]int) {
	for n > 0 {
		enough := slices.DeleteFunc(slices.Clone(kids), func(o plainDomain) bool { return o.units < n })
		if len(enough) > 0 {
			best := slices.MinFunc(enough, func(a, b plainDomain) int {
				if node && ranked {
					return cmp.Or(a.rank-b.rank, int(a.d-b.d))
				}
				if node {
					return cmp.Or(boolInt(a.idle)-boolInt(b.idle), a.units-b.units, a.free-b.free, int(a.d-b.d))
				}
				return cmp.Or(a.units-b.units, int(a.d-b.d))
			})
			give[best.d] = n
			return
		}
		best := slices.MinFunc(kids, func(a, b plainDomain) int {
			return cmp.Or(b.units-a.units, a.rank-b.rank, boolInt(a.idle)-boolInt(b.idle), a.free-b.free, int(a.d-b.d))
		})
		give[best.d] = best.units
		n -= best.units
		kids = slices.DeleteFunc(kids, func(o plainDomain) bool { return o.d == best.d })
	}
}

// seat chooses devices for a role's members and takes their room.
func (f *plainFit) seat(role int32, slots map[int32]int) []lockstep.Member {
	var out []lockstep.Member
	d := &f.gang.Roles[role].Demand
	for _, x := range slices.Sorted(maps.Keys(slots)) {
		if parted(d) {
			out = append(out, f.seatParts(role, x, slots[x])...)
			continue
		}
		for range slots[x] {
			set := f.tree.Shape(x).Closest(f.left[x].free&^f.left[x].apart, d.GPUs)
			f.left[x].take(set, 0, d, f.mig)
			id, _ := f.tree.NodeAt(x)
			out = append(out, lockstep.Member{Role: role, Node: id, Devices: set})
		}
	}
	return out
}

// search returns the members for counts, or nil.
func (f *plainFit) search(counts []int) []lockstep.Member {
	start, stop := f.tree.Levels()-1, 0
	if f.gang.Required != "" {
		stop, _ = f.tree.LevelIndex(f.gang.Required)
	}
	if f.gang.Strategy == lockstep.Spread {
		start = stop
	}
	if f.gang.Preferred != "" {
		start, _ = f.tree.LevelIndex(f.gang.Preferred)
		start = max(start, stop)
	}
	order := f.packing(counts)
	if len(order) == 0 {
		return nil
	}
	for level := start; level >= stop; level-- {
		for _, d := range f.candidates(level, counts[order[0]], &f.gang.Roles[order[0]]) {
			if m := f.packAll(level, d, order, counts); m != nil {
				return m
			}
		}
	}
	return nil
}

func (f *plainFit) packing(counts []int) (order []int) {
	for i, n := range counts {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &f.gang.Roles[i].Demand, &f.gang.Roles[j].Demand
		return cmp.Or(b.GPUs-a.GPUs, cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), b.RDMA-a.RDMA)
	})
	return order
}

func (f *plainFit) packAll(level int, d int32, order, counts []int) []lockstep.Member {
	keep := slices.Clone(f.left)
	defer func() { f.left = keep }()
	byRole := make([][]lockstep.Member, len(counts))
	for _, i := range order {
		r := &f.gang.Roles[i]
		n := counts[i] / f.unit(level, r)
		if f.units(level, d, r) < n {
			return nil
		}
		byRole[i] = f.seat(int32(i), f.fill(level, d, n, r))
	}
	return slices.Concat(byRole...)
}
