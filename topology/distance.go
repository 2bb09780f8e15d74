package topology

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Device is one device of a tree: by slot, and by index in the slot's shape.
type Device struct {
	Slot  int32 // Slot is where its node sits.
	Index int   // Index is 0 to 63; one that the shape does not have stands for the host itself.
}

// Distance orders pairs of devices of one tree, nearest first: as Link inside a
// node, from 0 for a device and itself to SYS; then one more for each level up at
// which their closest common domain is. At levels with rails that goes for
// devices of one rail, and devices of different or unknown rails come after all
// of those, again one more for each level up, before the levels above the unit.
// Where at most one level has rails it is an ultrametric across nodes: of devices
// of three nodes the two greatest distances are equal.
type Distance int32

// Distance returns how far apart a and b are. It is symmetric. O(levels) at
// most; allocates nothing.
func (t *Tree) Distance(a, b Device) Distance {
	if a.Slot == b.Slot {
		return Distance(t.Shape(a.Slot).Link(a.Index, b.Index))
	}
	level := t.LCA(a.Slot, b.Slot)
	d := Distance(SYS) + Distance(t.width-1-level)
	if r := &t.rails; r.n > 0 && level <= r.low && (level < r.top || !t.oneRail(a, b)) {
		d += Distance(r.n)
	}
	return d
}

// Estimate returns the bandwidth of one direction between a and b and the
// latency of a message between them: inside a node by their Link and the
// Shape's figures, else those of the level of their closest common domain.
// Between two rails of a unit the way leads over a device that shares its node
// with one of the two and its rail with the other, and so the figures of that
// link come in; where there is no such device it leads over the spine, with the
// figures of the level above the unit, if there is one. Zero means unknown, or a
// device and itself. They inform models; nothing in this package decides by them.
func (t *Tree) Estimate(a, b Device) (bandwidth lockstep.BytesPerSecond, latency time.Duration) {
	x, y := t.Shape(a.Slot), t.Shape(b.Slot)
	if a.Slot == b.Slot {
		l := x.Link(a.Index, b.Index)
		return x.bandwidth(l), l.latency()
	}
	level := t.LCA(a.Slot, b.Slot)
	if r := &t.rails; r.n == 0 || level < r.top || level > r.low || t.oneRail(a, b) {
		return t.figures(level)
	}
	l, ok := x.relay(a.Index, y.Rail(b.Index))
	if m, also := y.relay(b.Index, x.Rail(a.Index)); also && (!ok || m < l) {
		x, l, ok = y, m, true
	}
	if !ok {
		return t.figures(max(t.rails.top-1, 0))
	}
	bandwidth, latency = t.figures(level)
	if latency > 0 {
		latency = time.Duration(min(uint64(latency)+uint64(l.latency()), math.MaxInt64))
	}
	return min(bandwidth, x.bandwidth(l)), latency
}

// figures returns the bandwidth and latency of a level.
func (t *Tree) figures(level int) (lockstep.BytesPerSecond, time.Duration) {
	return t.levels[level].Bandwidth, t.levels[level].Latency
}
