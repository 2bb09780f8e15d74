package placement

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// verify recomputes every counter of a state from its jobs and compares.
func (s *State) verify() error {
	want := make([]slot, len(s.slots))
	parts := map[int32]*[lockstep.MaxDevicesPerNode]portion{}
	for x := range want {
		want[x] = s.slots[x]
		if s.slots[x].flags&vacant == 0 {
			want[x] = s.empty(int32(x))
		}
	}
	for _, rec := range s.byID { // in any order: sums
		j := &s.jobs[rec]
		for i := range j.seats {
			t := &j.seats[i]
			if t.slot < 0 {
				continue
			}
			d := &j.gang.Roles[t.role].Demand
			c := &want[t.slot]
			if modeOf(d) == takesWhole && c.free&t.devices != t.devices {
				return fmt.Errorf("devices %v of slot %d held twice", t.devices, t.slot)
			}
			if modeOf(d) != takesWhole {
				if parts[t.slot] == nil {
					parts[t.slot] = new([lockstep.MaxDevicesPerNode]portion)
				}
				if err := s.addPart(parts[t.slot], t, d, c); err != nil {
					return fmt.Errorf("slot %d: %w", t.slot, err)
				}
			}
			c.free &^= t.devices
			c.cpu -= int64(d.CPU)
			c.memory -= int64(d.Memory)
			c.rdma -= int32(d.RDMA)
			c.slots--
			c.members++
		}
	}
	for x := range want {
		got := s.slots[x]
		n := int32(0)
		for r := got.head; r.rec >= 0; r = s.jobs[r.rec].seats[r.idx].next {
			n++
		}
		if err := s.sameParts(int32(x), parts[int32(x)]); err != nil {
			return fmt.Errorf("slot %d: %w", x, err)
		}
		got.head, want[x].head, got.part = nowhere(), nowhere(), 0
		if got != want[x] || n != got.members {
			return fmt.Errorf("slot %d: %+v, want %+v", x, got, want[x])
		}
	}
	for _, t := range s.terms {
		counts, total := make([]int32, len(t.counts)), int32(0)
		for _, rec := range s.byID { // in any order: sums
			j := &s.jobs[rec]
			for i := range j.seats {
				if x := j.seats[i].slot; x >= 0 && matches(t.match, j.gang.Labels) {
					counts[s.tree.DomainOf(t.level, x)]++
					total++
				}
			}
		}
		if !slices.Equal(counts, t.counts) || total != t.total {
			return fmt.Errorf("term %v: %v, want %v", t.match, t.counts, counts)
		}
	}
	for _, v := range s.views.list {
		if err := s.verifyView(v); err != nil {
			return err
		}
	}
	return s.verifyBlocks()
}

// addPart adds what a seat has of devices to what others have, by plain sums.
func (s *State) addPart(portions *[lockstep.MaxDevicesPerNode]portion, t *seat, d *lockstep.Demand, c *slot) error {
	for i := range t.devices.All {
		o := &portions[i]
		if d.Profile != "" {
			g := s.layouts[c.mig].geometry
			p, ok := g.Lookup(d.Profile)
			profile, _ := g.Profile(p)
			if !ok || !profile.Starts.Has(int(t.start)) || o.milli > 0 {
				return fmt.Errorf("no instance of %s on device %d at %d", d.Profile, i, t.start)
			}
			mask := sharing.Occupancy(1<<profile.Slices-1) << t.start
			if profile.Media {
				mask |= 1 << 8
			}
			if o.held&mask != 0 {
				return fmt.Errorf("device %d: slices %v held twice", i, o.held&mask)
			}
			o.held |= mask
			continue
		}
		o.milli += int16(d.Share)
		o.memory += int64(d.GPUMemory)
		if o.held != 0 || o.milli > 1000 {
			return fmt.Errorf("device %d: %d thousandths held", i, o.milli)
		}
	}
	return nil
}

// sameParts compares what members have of a slot's devices with want.
func (s *State) sameParts(x int32, want *[lockstep.MaxDevicesPerNode]portion) error {
	if want == nil {
		want = new([lockstep.MaxDevicesPerNode]portion)
	}
	set, portions := s.parts(&s.slots[x])
	for i := range want {
		var have portion
		if i < len(portions) {
			have = portions[i]
		}
		if have != want[i] || set.Has(i) != (have != portion{}) {
			return fmt.Errorf("device %d: %+v, want %+v", i, have, want[i])
		}
	}
	if set == 0 && s.slots[x].part != 0 {
		return fmt.Errorf("an empty block is kept")
	}
	return nil
}

// verifyBlocks holds that each block is some slot's or unused.
func (s *State) verifyBlocks() error {
	used := 0
	for x := range s.slots {
		used += boolInt(s.slots[x].part != 0)
	}
	for n := range s.rest {
		used += len(s.rest[n])
	}
	if used != max(0, len(s.blocks)-1) {
		return fmt.Errorf("%d blocks used or unused, want %d", used, len(s.blocks)-1)
	}
	return nil
}

// verifyView compares a view with one built anew.
func (s *State) verifyView(v *view) error {
	s.sync(v)
	fresh := &view{kind: v.kind, class: v.class, terms: v.terms, per: v.per, bound: v.bound, ranked: v.ranked}
	s.build(fresh)
	for x := range v.units {
		if v.units[x] != fresh.units[x] || v.mood[x] != fresh.mood[x] {
			return fmt.Errorf("slot %d: units %d mood %d, want %d %d", x, v.units[x], v.mood[x], fresh.units[x], fresh.mood[x])
		}
		if v.ranked && v.marks[x] != fresh.marks[x] {
			return fmt.Errorf("slot %d: %+v, want %+v", x, v.marks[x], fresh.marks[x])
		}
	}
	for l := range v.sums {
		for d := range v.sums[l] {
			if v.sums[l][d] != fresh.sums[l][d] {
				return fmt.Errorf("level %d domain %d: %d, want %d", l, d, v.sums[l][d], fresh.sums[l][d])
			}
		}
		if l > 0 {
			if err := sameSet(&v.sets[l], &fresh.sets[l]); err != nil {
				return fmt.Errorf("level %d: %w", l, err)
			}
		}
	}
	if v.free != fresh.free {
		return fmt.Errorf("free %d, want %d", v.free, fresh.free)
	}
	for i := range v.open {
		o := &v.open[i]
		f := s.opening(fresh, o.units)
		if !slices.Equal(o.counts, f.counts) || !slices.Equal(o.listed, f.listed) {
			return fmt.Errorf("opening of %d units: %v, want %v", o.units, o.counts, f.counts)
		}
		if err := sameSet(&o.set, &f.set); err != nil {
			return fmt.Errorf("opening of %d units: %w", o.units, err)
		}
	}
	return sameSet(&v.nodes, &fresh.nodes)
}

func sameSet(a, b *ordset) error {
	for k := uint64(0); ; k++ {
		x, ok := a.next(k)
		y, yes := b.next(k)
		if x != y || ok != yes {
			return fmt.Errorf("set has %d %v, want %d %v from %d", x, ok, y, yes, k)
		}
		if !ok {
			return nil
		}
		k = x
	}
}
