package moves

import (
	"cmp"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// unit is a device as transfers see it.
type unit struct {
	id    lockstep.DeviceID
	node  int32
	leaf  int32
	live  bool  // it may have a role
	holds bool  // what it holds can be read
	mem   int64 // bytes; math.MaxInt64 if it does not limit
}

// fleet is the devices, checked and numbered.
type fleet struct {
	units []unit // by leaf, node and ID; nodes and leaves are numbered in that order
	index map[lockstep.DeviceID]int32
	nodes [][]int32 // by node: its units
}

// newFleet orders and numbers devices.
func newFleet(f *faults, devs []reconfig.Device) *fleet {
	f.wrap(reconfig.ValidateDevices(devs))
	if len(f.errs) > 0 {
		return nil
	}
	sorted := slices.Clone(devs)
	slices.SortFunc(sorted, func(a, b reconfig.Device) int {
		return cmp.Or(cmp.Compare(a.Leaf, b.Leaf), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	w := &fleet{units: make([]unit, len(sorted)), index: make(map[lockstep.DeviceID]int32, len(sorted))}
	node, leaf := int32(-1), int32(-1)
	for i, d := range sorted {
		if i == 0 || d.Leaf != sorted[i-1].Leaf {
			leaf++
		}
		if i == 0 || d.Node != sorted[i-1].Node || d.Leaf != sorted[i-1].Leaf {
			node++
			w.nodes = append(w.nodes, nil)
		}
		runs := math.Round(float64(d.Speed*1_000_000)) > 0 // speeds count in millionths
		u := unit{id: d.ID, node: node, leaf: leaf, mem: int64(d.Memory)}
		u.live = d.State == reconfig.Up && runs
		u.holds = u.live || d.State == reconfig.Cordoned
		if u.mem == 0 {
			u.mem = math.MaxInt64
		}
		w.units[i], w.index[d.ID] = u, int32(i)
		w.nodes[node] = append(w.nodes[node], int32(i))
	}
	return w
}
