package placement

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// mode is what a demand takes of each of its devices.
type mode uint8

const (
	takesWhole mode = iota // all of it, or there are no devices
	takesShare             // some thousandths, and memory
	takesSlice             // a MIG instance
)

func modeOf(d *lockstep.Demand) mode {
	switch {
	case d.Share > 0 && d.Share < lockstep.WholeGPU:
		return takesShare
	case d.Profile != "":
		return takesSlice
	}
	return takesWhole
}

// portion is what members have of one device that none of them has wholly.
type portion struct {
	memory int64             // bytes taken by shares
	milli  int16             // thousandths taken by shares
	held   sharing.Occupancy // slices held by MIG instances; a device has either shares or instances
}

// block is the devices of one node of which members have a part. It is there from
// the first such member to the last.
type block struct {
	set      lockstep.DeviceSet // devices with a part taken, and none of them free
	portions []portion          // by device; those outside set are zero
}

// parts returns the devices of c with a part taken, by portion.
func (s *State) parts(c *slot) (lockstep.DeviceSet, []portion) {
	if c.part == 0 {
		return 0, nil
	}
	b := &s.blocks[c.part]
	return b.set, b.portions
}

// shares returns the devices of c, which is slot x as it is or might be, that are shared
// and may be shared further, by portion; those with MIG instances are among them.
func (s *State) shares(x int32, c *slot) (lockstep.DeviceSet, []portion) {
	set, portions := s.parts(c)
	if set != 0 && c.mig != 0 {
		set &^= s.specs[x].node.Partitioned
	}
	return set, portions
}

// newBlock returns the index of an empty block for n devices.
func (s *State) newBlock(n int) int32 {
	if list := s.rest[n]; len(list) > 0 {
		i := list[len(list)-1]
		s.rest[n] = list[:len(list)-1]
		return i
	}
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, block{}) // index 0 means none
	}
	s.blocks = append(s.blocks, block{portions: make([]portion, n)})
	return int32(len(s.blocks) - 1)
}

// dropBlock takes the parts of a slot away, whoever has them.
func (s *State) dropBlock(c *slot) {
	if c.part == 0 {
		return
	}
	b := &s.blocks[c.part]
	clear(b.portions)
	b.set = 0
	s.rest[len(b.portions)] = append(s.rest[len(b.portions)], c.part)
	c.part = 0
}

// ownBlock gives a slot that was copied a block of its own.
func (s *State) ownBlock(c *slot) {
	if c.part == 0 {
		return
	}
	old := c.part
	c.part = s.newBlock(len(s.blocks[old].portions))
	from, to := &s.blocks[old], &s.blocks[c.part]
	to.set = from.set
	copy(to.portions, from.portions)
}

// hide lets nobody have any more of some devices of a slot that was saved.
func (s *State) hide(c *slot, set lockstep.DeviceSet) {
	c.free &^= set
	if c.part == 0 {
		return
	}
	b := &s.blocks[c.part]
	for rest := b.set & set; rest != 0; rest &= rest - 1 {
		b.portions[bits.TrailingZeros64(uint64(rest))] = portion{}
	}
	if b.set &^= set; b.set == 0 {
		s.dropBlock(c)
	}
}

// dim lets nobody have so much of each of some devices of a slot that was saved; where
// there is less left, all of that. Devices that cannot be shared are hidden.
func (s *State) dim(x int32, c *slot, set lockstep.DeviceSet, milli int16, memory int64) {
	apart := lockstep.DeviceSet(0)
	taken, portions := s.shares(x, c)
	for rest := set; rest != 0; rest &= rest - 1 {
		if one := rest & -rest; one&(s.wholes(x, c)|taken) == 0 || one&taken != 0 && portions[bits.TrailingZeros64(uint64(one))].held != 0 {
			apart |= one
		}
	}
	s.hide(c, apart)
	if set &^= apart; set == 0 {
		return
	}
	if c.part == 0 {
		c.part = s.newBlock(bits.Len64(uint64(c.all)))
	}
	b := &s.blocks[c.part]
	for rest := set; rest != 0; rest &= rest - 1 {
		o := &b.portions[bits.TrailingZeros64(uint64(rest))]
		o.milli = min(o.milli+milli, int16(lockstep.WholeGPU))
		o.memory = addUp(o.memory, memory)
	}
	b.set |= set
	c.free &^= set
}

// simple reports whether d surely takes devices wholly: at a glance, for hot paths.
func simple(d *lockstep.Demand) bool { return d.Share == 0 && d.Profile == "" }

// spend takes from c what d counts, devices apart.
func (c *slot) spend(d *lockstep.Demand) {
	c.cpu -= int64(d.CPU)
	c.memory -= int64(d.Memory)
	c.rdma -= int32(d.RDMA)
	c.slots--
	c.members++
}

// earn undoes spend.
func (c *slot) earn(d *lockstep.Demand) {
	c.cpu += int64(d.CPU)
	c.memory += int64(d.Memory)
	c.rdma += int32(d.RDMA)
	c.slots++
	c.members--
}

// take gives a seat's room in c, which is slot x as it is or might be, to its member.
func (s *State) take(c *slot, t *seat, d *lockstep.Demand) {
	if simple(d) || modeOf(d) == takesWhole {
		c.free &^= t.devices
	} else {
		s.takePart(c, t, d)
	}
	c.spend(d)
}

// give undoes take.
func (s *State) give(c *slot, t *seat, d *lockstep.Demand) {
	if simple(d) || modeOf(d) == takesWhole {
		c.free |= t.devices
	} else {
		s.givePart(c, t, d)
	}
	c.earn(d)
}

func (s *State) takePart(c *slot, t *seat, d *lockstep.Demand) {
	if c.part == 0 {
		c.part = s.newBlock(bits.Len64(uint64(c.all)))
	}
	b := &s.blocks[c.part]
	for rest := t.devices; rest != 0; rest &= rest - 1 {
		o := &b.portions[bits.TrailingZeros64(uint64(rest))]
		if d.Profile != "" {
			g, p := s.instance(c, d)
			o.held, _ = g.Take(o.held, p, int(t.start))
			continue
		}
		o.milli += int16(d.Share)
		o.memory += int64(d.GPUMemory)
	}
	b.set |= t.devices
	c.free &^= t.devices
}

func (s *State) givePart(c *slot, t *seat, d *lockstep.Demand) {
	b := &s.blocks[c.part]
	for rest := t.devices; rest != 0; rest &= rest - 1 {
		o := &b.portions[bits.TrailingZeros64(uint64(rest))]
		if d.Profile != "" {
			g, p := s.instance(c, d)
			o.held, _ = g.Give(o.held, p, int(t.start))
		} else {
			o.milli -= int16(d.Share)
			o.memory -= int64(d.GPUMemory)
		}
		if *o == (portion{}) {
			b.set &^= rest & -rest
			c.free |= rest & -rest
		}
	}
	if b.set == 0 {
		s.dropBlock(c)
	}
}

// seatOf is the seat of a member in slot x. A start that no instance has is -1.
func seatOf(m *lockstep.Member, x int32, d *lockstep.Demand) seat {
	t := seat{slot: x, role: int16(m.Role), devices: m.Devices}
	if d.Profile != "" {
		t.start = int8(min(max(m.Start, -1), 127))
	}
	return t
}

// wholes returns the devices of slot x that no member has a part of and that may be
// had wholly or in shares.
func (s *State) wholes(x int32, c *slot) lockstep.DeviceSet {
	if c.mig == 0 {
		return c.free
	}
	return c.free &^ s.specs[x].node.Partitioned
}

// bears reports whether the devices of a seat can have its member beside those that
// c has: as after a rebase, by which memory and what is set aside may have changed.
func (s *State) bears(c *slot, t *seat, d *lockstep.Demand) bool {
	m := modeOf(d)
	if m == takesWhole {
		return t.devices&^c.free == 0
	}
	set, portions := s.parts(c)
	if t.devices&^(c.free|set) != 0 {
		return false
	}
	g, p := s.instance(c, d)
	for rest := t.devices; rest != 0; rest &= rest - 1 {
		var o portion
		if set&(rest&-rest) != 0 {
			o = portions[bits.TrailingZeros64(uint64(rest))]
		}
		if m == takesShare {
			if o.held != 0 || int64(o.milli)+int64(d.Share) > int64(lockstep.WholeGPU) {
				return false
			}
			continue
		}
		if g == nil || o.milli != 0 {
			return false
		}
		if _, ok := g.Take(o.held, p, int(t.start)); !ok {
			return false
		}
	}
	return true
}

// accepts reports whether the devices of a seat have room in c, which is slot x as it
// is or might be, for what d takes of each of them, other amounts apart.
func (s *State) accepts(x int32, c *slot, t *seat, d *lockstep.Demand) bool {
	if !s.bears(c, t, d) {
		return false
	}
	switch modeOf(d) {
	case takesSlice:
		return t.devices&^s.divisible(x, c) == 0
	case takesShare:
		if d.GPUMemory > 0 && !s.remembers(x, c, t.devices, int64(d.GPUMemory)) {
			return false
		}
	}
	return c.mig == 0 || t.devices&s.specs[x].node.Partitioned == 0
}

// remembers reports whether each device of a set has so much memory left for shares.
func (s *State) remembers(x int32, c *slot, set lockstep.DeviceSet, need int64) bool {
	size := s.memoryOf(x)
	_, portions := s.parts(c)
	for ; set != 0; set &= set - 1 {
		left := size
		if portions != nil {
			left -= portions[bits.TrailingZeros64(uint64(set))].memory
		}
		if left < need {
			return false
		}
	}
	return true
}

// memoryOf returns how much memory shares may ask for together on each device of a node.
func (s *State) memoryOf(x int32) int64 {
	n := &s.specs[x].node
	if n.Overcommit == 0 {
		return int64(n.GPUMemory)
	}
	return scaled(int64(n.GPUMemory), 1000+int64(n.Overcommit), 1000)
}

// shareRoom returns how many members of k, which asks for shares, the devices of c
// have room for.
func (s *State) shareRoom(k *kind, x int32, c *slot) int32 {
	var size int64
	if k.memoryEach > 0 {
		size = s.memoryOf(x)
	}
	idle := int32(bits.OnesCount64(uint64(s.wholes(x, c))))
	whole := k.onDevice(1000, size)
	set, portions := s.shares(x, c)
	if k.gpus == 1 {
		n := idle * whole
		for ; set != 0; set &= set - 1 {
			if l := &portions[bits.TrailingZeros64(uint64(set))]; l.held == 0 {
				n += k.onDevice(1000-int32(l.milli), size-l.memory)
			}
		}
		return min(n, MaxSlots)
	}
	var o counts
	for range idle {
		o.add(whole)
	}
	for ; set != 0; set &= set - 1 {
		if l := &portions[bits.TrailingZeros64(uint64(set))]; l.held == 0 {
			o.add(k.onDevice(1000-int32(l.milli), size-l.memory))
		}
	}
	return o.groups(k.gpus)
}

// milliRoom is deviceRoom, were there memory enough.
func (s *State) milliRoom(v *view, x int32, c *slot) int32 {
	if v.kind.memoryEach == 0 {
		return s.deviceRoom(v, x, c)
	}
	k := v.kind
	k.memoryEach = 0
	return s.shareRoom(&k, x, c)
}

// onDevice returns how many members of k one device has room for, that has so much
// left; the memory is not looked at where k takes none.
func (k *kind) onDevice(milli int32, memory int64) int32 {
	n := int32(uint32(milli) / uint32(k.share))
	if k.memoryEach > 0 {
		n = int32(min(int64(n), max(0, memory)/k.memoryEach))
	}
	return n
}

// counts are how many members the devices of a node have room for, each by itself.
type counts struct {
	n    int
	sum  int32
	each [lockstep.MaxDevicesPerNode]int32
}

func (c *counts) add(n int32) {
	c.each[c.n] = n
	c.n++
	c.sum += n
}

// groups returns how many members that take k devices each have room: m of them
// do if and only if the devices, each used at most m times, are used k·m times.
func (c *counts) groups(k int32) int32 {
	if k == 1 {
		return min(c.sum, MaxSlots)
	}
	lo, hi := int32(0), min(c.sum/k, MaxSlots)
	for lo < hi {
		m := (lo + hi + 1) / 2
		sum := int32(0)
		for _, n := range c.each[:c.n] {
			sum += min(n, m)
		}
		if sum >= k*m {
			lo = m
		} else {
			hi = m - 1
		}
	}
	return lo
}
