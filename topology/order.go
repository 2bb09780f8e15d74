package topology

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// AppendOrder appends the devices of set in an order in which neighbours are
// near, and returns dst: along the path with the least sum of link costs, among
// equals the one that closes to the better ring, then lowest indices. It is exact
// for shapes that are joined alike throughout and for at most 8 devices; beyond,
// it is the best of the paths that go on to the nearest device from each start.
// Devices that s does not have are left out. O(1) a device for shapes of at most
// 8, else up to O(8!) for 8 devices and O(devices³) for more.
func (s *Shape) AppendOrder(dst []int, set lockstep.DeviceSet) []int {
	set &= s.All()
	switch {
	case set == 0:
		return dst
	case s.uniform:
		for d := range set.All {
			dst = append(dst, d)
		}
		return dst
	case s.near != nil:
		order := s.near.order[set]
		for range set.Len() {
			dst = append(dst, int(order&15))
			order >>= 4
		}
		return dst
	}
	var path pathSearch
	path.run(s, set)
	for _, d := range path.best[:path.m] {
		dst = append(dst, int(d))
	}
	return dst
}

// AppendRankOrder appends devices in an order that keeps neighbours near, so
// that it can be the order of ranks, and returns dst: nodes by slot, which is
// depth-first, and the devices of a node as AppendOrder has them. A device given
// several times stays so, side by side. Devices that stand for the host come
// last on their node, negative indices after the others. dst and devices must
// not overlap. O(n log n) in devices, and AppendOrder once for each run of nodes
// on which the same devices of one Shape are asked for.
func (t *Tree) AppendRankOrder(dst, devices []Device) []Device {
	start := len(dst)
	dst = append(dst, devices...)
	rest := dst[start:]
	slices.SortFunc(rest, func(a, b Device) int {
		// As unsigned, so that hosts are behind the devices.
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(uint(a.Index), uint(b.Index)))
	})
	var o nodeOrder
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].Slot == rest[0].Slot {
			n++
		}
		o.apply(t.Shape(rest[0].Slot), rest[:n])
		rest = rest[n:]
	}
	return dst
}

// nodeOrder is the order of one node's devices, kept for the next node.
type nodeOrder struct {
	shape *Shape
	set   lockstep.DeviceSet
	order [lockstep.MaxDevicesPerNode]int
	n     int // entries of order
}

// apply orders devices, all of one node of shape s and sorted by index.
func (o *nodeOrder) apply(s *Shape, devices []Device) {
	var set lockstep.DeviceSet
	var times [lockstep.MaxDevicesPerNode]int32 // how often each device is given
	for _, d := range devices {
		if uint(d.Index) < uint(s.Devices()) {
			set |= 1 << d.Index
			times[d.Index]++
		}
	}
	if s != o.shape || set != o.set {
		o.shape, o.set, o.n = s, set, len(s.AppendOrder(o.order[:0], set))
	}
	i := 0
	for _, d := range o.order[:o.n] {
		for range times[d] {
			devices[i].Index = d
			i++
		}
	}
}
