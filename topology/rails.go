package topology

import (
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// maxRail is the greatest number of a rail. A unit has as many leaves as a node
// has network cards, seldom more than 16; one that is cabled without order may
// have more.
const maxRail = 1<<16 - 1

func validateRails(f *faults, rails []int, devices int) {
	if rails != nil && len(rails) != devices {
		f.invalid("Rails", strconv.Itoa(len(rails))+" entries", "want one a device, "+strconv.Itoa(devices))
	}
	for i, rail := range rails {
		if rail < -1 || rail > maxRail {
			f.invalid("Rails["+strconv.Itoa(i)+"]", strconv.Itoa(rail), "want -1 to "+strconv.Itoa(maxRail))
		}
	}
}

// Rail returns the rail of a device, -1 where it is not known.
func (s *Shape) Rail(device int) int {
	if s == nil || uint(device) >= uint(len(s.config.Rails)) {
		return -1
	}
	return s.config.Rails[device]
}

// OnRail returns the devices of a rail; of rail -1, those whose rail is unknown.
func (s *Shape) OnRail(rail int) (set lockstep.DeviceSet) {
	for d := range s.Devices() {
		if s.Rail(d) == rail {
			set |= 1 << d
		}
	}
	return set
}

// WithRails returns s with the rails given, which it copies, in place of its own;
// nil means all unknown. It shares all else with s, and is s where the rails are
// its own. It returns ErrInvalid for what NewShape refuses.
func (s *Shape) WithRails(rails []int) (*Shape, error) {
	f := faults{op: "topology: with rails"}
	validateRails(&f, rails, s.Devices())
	if err := f.err(); err != nil {
		return nil, err
	}
	if s == nil || slices.Equal(rails, s.config.Rails) {
		return s, nil
	}
	c := *s
	c.config.Rails = slices.Clone(rails)
	return &c, nil
}

// railLevels are the levels with rails: top <= level <= low; none where n is 0.
type railLevels struct{ top, low, n int }

func newRailLevels(levels []Level) (r railLevels) {
	for i := range levels {
		if levels[i].Rails {
			if r.n == 0 {
				r.top = i
			}
			r.low = i
			r.n++
		}
	}
	return r
}

// RailLevel returns the coarsest level with rails, whose domains are the units: a
// unit and a rail together name a leaf switch. ok is false where no level has
// rails.
func (t *Tree) RailLevel() (level int, ok bool) { return t.rails.top, t.rails.n > 0 }

// SameRail reports whether a and b are known to be on one leaf switch: they are
// in one unit and their rails are known and equal. O(levels); allocates nothing.
func (t *Tree) SameRail(a, b Device) bool {
	return t.rails.n > 0 && t.LCA(a.Slot, b.Slot) >= t.rails.top && t.oneRail(a, b)
}

// oneRail reports whether the rails of a and b are known and equal.
func (t *Tree) oneRail(a, b Device) bool {
	rail := t.Shape(a.Slot).Rail(a.Index)
	return rail >= 0 && rail == t.Shape(b.Slot).Rail(b.Index)
}

// relay returns the link over which a device reaches the nearest of its node that
// is on a rail. ok is false where there is none.
func (s *Shape) relay(device, rail int) (link Link, ok bool) {
	if rail < 0 {
		return 0, false
	}
	for d := range s.Devices() {
		if l := s.Link(device, d); s.Rail(d) == rail && (!ok || l < link) {
			link, ok = l, true
		}
	}
	return link, ok
}
