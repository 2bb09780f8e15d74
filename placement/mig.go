package placement

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// layout is how some devices divide into MIG instances.
type layout struct {
	name     string
	geometry *sharing.Geometry
}

// maxLayouts bounds Config.Layouts: with sharing.Models, they are numbered in a byte.
const maxLayouts = 200

// cloneLayouts copies what New is given.
func cloneLayouts(in map[string]sharing.GeometryConfig) map[string]sharing.GeometryConfig {
	out := maps.Clone(in)
	for name, c := range out { // in any order: each by itself
		c.Profiles = slices.Clone(c.Profiles)
		out[name] = c
	}
	return out
}

// checkLayouts returns the faults of Config.Layouts, joined.
func checkLayouts(in map[string]sharing.GeometryConfig) error {
	var errs []error
	if len(in) > maxLayouts {
		errs = append(errs, fault(lockstep.ErrInvalid, "new", "Layouts", strconv.Itoa(len(in)), "want at most "+strconv.Itoa(maxLayouts)))
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if lockstep.Profile(name).Validate() != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, "new", "Layouts", strconv.Quote(name), "want a name as profiles have"))
		}
		if err := in[name].Validate(); err != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, "new", "Layouts["+strconv.Quote(name)+"]", "", err.Error()))
		}
	}
	return errors.Join(errs...)
}

// knowsLayout reports whether a node may name a layout.
func knowsLayout(name string, extra map[string]sharing.GeometryConfig) bool {
	if _, ok := extra[name]; ok || name == "" {
		return true
	}
	_, ok := sharing.ModelConfig(name)
	return ok
}

// layoutOf returns the index of a layout, made when it is new.
func (s *State) layoutOf(name string) uint8 {
	if name == "" {
		return 0
	}
	for i := range s.layouts {
		if s.layouts[i].name == name {
			return uint8(i)
		}
	}
	cfg, ok := s.cfg.Layouts[name]
	if !ok {
		cfg, _ = sharing.ModelConfig(name)
	}
	g, _ := sharing.NewGeometry(cfg) // was checked
	s.layouts = append(s.layouts, layout{name, g})
	return uint8(len(s.layouts) - 1)
}

// offers reports whether the devices of a node have a profile.
func (s *State) offers(n *Node, profile lockstep.Profile) bool {
	g := s.layouts[s.layoutOf(n.MIG)].geometry
	if g == nil {
		return false
	}
	_, ok := g.Lookup(profile)
	return ok
}

// instance returns the geometry of c's devices and the index in it of d's profile.
func (s *State) instance(c *slot, d *lockstep.Demand) (*sharing.Geometry, int) {
	g := s.layouts[c.mig].geometry
	if g == nil {
		return nil, 0
	}
	p, ok := g.Lookup(d.Profile)
	if !ok {
		return nil, 0
	}
	return g, p
}

// slice returns what is held of a device of c with an instance for d at start more.
func (s *State) slice(c *slot, held sharing.Occupancy, start int, d *lockstep.Demand) (after sharing.Occupancy, ok bool) {
	g, p := s.instance(c, d)
	if g == nil {
		return held, false
	}
	return g.Take(held, p, start)
}

// divisible returns the devices of a node that may have instances, whoever has them now.
func (s *State) divisible(x int32, c *slot) lockstep.DeviceSet {
	if only := s.specs[x].node.Partitioned; only != 0 {
		return c.all & only
	}
	return c.all
}

// sliceRoom returns how many instances of v's profile the devices of c have room
// for. Devices that members have wholly or in shares have none.
func (s *State) sliceRoom(v *view, x int32, c *slot) int32 {
	p := v.profileAt(s, c.mig)
	if p < 0 {
		return 0
	}
	g, may := s.layouts[c.mig].geometry, s.divisible(x, c)
	n := bits.OnesCount64(uint64(c.free&may)) * g.Count(0, p)
	set, portions := s.parts(c)
	for set &= may; set != 0; set &= set - 1 {
		if l := &portions[bits.TrailingZeros64(uint64(set))]; l.milli == 0 {
			n += g.Count(l.held, p)
		}
	}
	return int32(min(n, MaxSlots))
}

// profileAt returns the index of v's profile in a layout, or -1.
func (v *view) profileAt(s *State, layout uint8) int {
	for len(v.profiles) < len(s.layouts) {
		p := -1
		if g := s.layouts[len(v.profiles)].geometry; g != nil {
			if i, ok := g.Lookup(v.kind.profile); ok {
				p = i
			}
		}
		v.profiles = append(v.profiles, int8(p))
	}
	return int(v.profiles[layout])
}

// sliceCost says what it costs to put an instance of a profile on a device with so much
// held: the room for others that it takes away, in 4,095ths of an empty device, and
// more than any of that where the device is idle. It is put where that is least, then
// lowest, and where more of the profile fit after it.
func sliceCost(g *sharing.Geometry, p int, held sharing.Occupancy, idle bool, more int) (cost uint32, start int, ok bool) {
	var most int64
	for at := range g.Starts(held, p).All {
		after, _ := g.Take(held, p, at)
		if left := g.Room(after); g.Count(after, p) >= more && (!ok || left > most) {
			start, most, ok = at, left, true
		}
	}
	cost = uint32((g.Room(held) - most) * 4095 / g.Room(0))
	if idle {
		cost += 4096
	}
	return cost, start, ok
}

// rankSlice is rankOf for a MIG instance: what it costs on the best device.
func (s *State) rankSlice(v *view, x int32, c *slot) uint32 {
	g, p := s.layouts[c.mig].geometry, v.profileAt(s, c.mig)
	may := s.divisible(x, c)
	best := uint32(1<<sliceBits - 1)
	if c.free&may != 0 {
		best, _, _ = sliceCost(g, p, 0, s.specs[x].node.Partitioned == 0, 0)
	}
	set, portions := s.parts(c)
	for set &= may; set != 0; set &= set - 1 {
		l := &portions[bits.TrailingZeros64(uint64(set))]
		if l.milli != 0 {
			continue
		}
		if cost, _, ok := sliceCost(g, p, l.held, false, 0); ok {
			best = min(best, cost)
		}
	}
	return best
}

// seatSlices picks the devices and starts of n instances on a slot that has room for
// them: each where it costs least, then where least is free, then the lowest, as long
// as that leaves room for the others.
func (s *State) seatSlices(x, role int32, v *view, n int32) {
	w, c := &s.work, &s.slots[x]
	g, p := s.layouts[c.mig].geometry, v.profileAt(s, c.mig)
	s.all(&v.kind, x, c)
	room := 0
	for i := range w.devices {
		room += g.Count(w.devices[i].held, p)
	}
	anyIdle := s.specs[x].node.Partitioned == 0
	for i := range int(n) {
		spare := room - (int(n) - i) // instances that need not have room any more
		pick, least, at := -1, uint32(0), 0
		for j := range w.devices {
			o := &w.devices[j]
			cost, start, ok := sliceCost(g, p, o.held, o.idle && anyIdle, g.Count(o.held, p)-1-spare)
			if ok && (pick < 0 || cost < least || cost == least && o.held.Slices() > w.devices[pick].held.Slices()) {
				pick, least, at = j, cost, start
			}
		}
		o := &w.devices[pick]
		room -= g.Count(o.held, p)
		o.held, _ = g.Take(o.held, p, at)
		o.idle = false
		room += g.Count(o.held, p)
		w.picks = append(w.picks, seat{slot: x, role: int16(role), start: int8(at), devices: 1 << uint(o.index)})
	}
}
