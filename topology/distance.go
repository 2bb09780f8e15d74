package topology

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Device is one device of a tree: by slot, and by index in the slot's shape.
type Device struct {
	Slot  int32 // Slot is where its node sits.
	Index int   // Index is 0 to 63; one that the shape does not have stands for the host itself.
}

// Distance orders pairs of devices of one tree, nearest first: as Link inside a
// node, from 0 for a device and itself to SYS; then one more for each level up
// at which their closest common domain is. Across nodes it is an ultrametric:
// of three nodes the two greatest distances are equal.
type Distance int32

// Distance returns how far apart a and b are. It is symmetric. O(levels) at
// most; allocates nothing.
func (t *Tree) Distance(a, b Device) Distance {
	if a.Slot == b.Slot {
		return Distance(t.Shape(a.Slot).Link(a.Index, b.Index))
	}
	return Distance(SYS) + Distance(t.width-1-t.LCA(a.Slot, b.Slot))
}

// Estimate returns the bandwidth of one direction between a and b and the
// latency of a message between them: inside a node by their Link and the
// Shape's figures, else those of the level of their closest common domain. Zero
// means unknown, or a device and itself. They inform models; nothing in this
// package decides by them.
func (t *Tree) Estimate(a, b Device) (bandwidth lockstep.BytesPerSecond, latency time.Duration) {
	if a.Slot != b.Slot {
		l := &t.levels[t.LCA(a.Slot, b.Slot)]
		return l.Bandwidth, l.Latency
	}
	s := t.Shape(a.Slot)
	l := s.Link(a.Index, b.Index)
	return s.bandwidth(l), l.latency()
}
