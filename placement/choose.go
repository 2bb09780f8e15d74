package placement

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// chooser is memory that the choice of devices uses again.
type chooser struct {
	devices []device
	left    []int32   // free thousandths of devices, where only they matter
	tallied []tallied // by group of the mix
}

// device is one device of a node that a choice is made from.
type device struct {
	index  int32
	milli  int32             // free for shares
	memory int64             // free for shares, where the kind takes memory
	held   sharing.Occupancy // by MIG instances
	idle   bool              // no member has any part of it
}

// room returns how many members of k, which asks for shares, the device has room for.
func (o *device) room(k *kind) int32 { return k.onDevice(o.milli, o.memory) }

// shared gathers into w.devices the devices of c that have shares, and their free
// thousandths into w.left. It returns how many devices are idle.
func (s *State) shared(k *kind, x int32, c *slot) (idle int64) {
	w := &s.work
	w.devices, w.left = w.devices[:0], w.left[:0]
	var size int64
	if k.memoryEach > 0 {
		size = s.memoryOf(x)
	}
	set, portions := s.shares(x, c)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(uint64(set))
		if l := &portions[i]; l.held == 0 {
			milli := 1000 - int32(l.milli)
			w.devices = append(w.devices, device{index: int32(i), milli: milli, memory: size - l.memory})
			w.left = append(w.left, milli)
		}
	}
	return int64(bits.OnesCount64(uint64(s.wholes(x, c))))
}

// milliFor returns what is free on c for members of v, in thousandths of devices; an
// instance of v's profile counts as a device.
func (s *State) milliFor(v *view, x int32, c *slot) int32 {
	if v.kind.mode == takesSlice {
		return 1000 * s.sliceRoom(v, x, c)
	}
	sum := 1000 * int32(bits.OnesCount64(uint64(s.wholes(x, c))))
	if v.kind.mode == takesWhole {
		return sum
	}
	set, portions := s.shares(x, c)
	for ; set != 0; set &= set - 1 {
		if l := &portions[bits.TrailingZeros64(uint64(set))]; l.held == 0 {
			sum += 1000 - int32(l.milli)
		}
	}
	return sum
}

// trial is what the shapes can use of a node whose devices are as gathered, ready to
// say how that changes with one of them.
type trial struct {
	single []int64 // of the row and CPU
	multi  []int64
	sum    int64
	groups []tallied // in step with mixture.groups
}

// tallied are the devices that have room for one of a group.
type tallied struct {
	n   int64
	all int64 // what is free of them
}

func (s *State) trial(m *mixture, at int, idle int64) trial {
	w := &s.work
	t := trial{single: m.single[at*(m.sizes+1) : (at+1)*(m.sizes+1)], multi: m.multi[at*len(m.groups) : (at+1)*len(m.groups)]}
	t.sum = idle * 1000 * t.single[m.sizes]
	for _, g := range w.left {
		t.sum += int64(g) * t.single[m.step[g]]
	}
	w.tallied = w.tallied[:0]
	for i := range m.groups {
		o := tallied{idle, idle * 1000}
		for _, g := range w.left {
			if g >= m.groups[i].milli {
				o.n++
				o.all += int64(g)
			}
		}
		w.tallied = append(w.tallied, o)
	}
	t.groups = w.tallied
	return t
}

// with returns what the shapes can use once one device has now free, and not was.
func (t *trial) with(m *mixture, was, now int32) int64 {
	sum := t.sum - int64(was)*t.single[m.step[was]] + int64(now)*t.single[m.step[now]]
	for i, weight := range t.multi {
		if weight == 0 {
			continue
		}
		g, o := &m.groups[i], t.groups[i]
		if was >= g.milli {
			o.n--
			o.all -= int64(was)
		}
		if now >= g.milli {
			o.n++
			o.all += int64(now)
		}
		if o.n >= int64(g.gpus) {
			sum += weight * o.all
		}
	}
	return sum
}

// all gathers into w.devices every device of c that members may have a part of, by index.
func (s *State) all(k *kind, x int32, c *slot) {
	w := &s.work
	w.devices = w.devices[:0]
	var size int64
	if k.memoryEach > 0 {
		size = s.memoryOf(x)
	}
	idle := s.wholes(x, c)
	set, portions := s.shares(x, c)
	if k.mode == takesSlice {
		idle = c.free & s.divisible(x, c)
		set, _ = s.parts(c)
		set &= s.divisible(x, c)
	}
	for rest := idle | set; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(uint64(rest))
		o := device{index: int32(i), milli: 1000, memory: size, idle: true}
		if idle.Has(i) {
			w.devices = append(w.devices, o)
			continue
		}
		l := &portions[i]
		if (l.held != 0) != (k.mode == takesSlice) {
			continue
		}
		w.devices = append(w.devices, device{index: int32(i), milli: 1000 - int32(l.milli), memory: size - l.memory, held: l.held})
	}
}

// seatShares picks the devices of n members of v on a slot that has room for them.
func (s *State) seatShares(x, role int32, v *view, n int32) {
	k, w, c := &v.kind, &s.work, &s.slots[x]
	s.all(k, x, c)
	for i := range n {
		var set lockstep.DeviceSet
		if k.gpus == 1 {
			pick := s.bestShare(v, c, c.cpu-int64(i)*k.cpu)
			set = w.devices[pick].takeShare(k)
		} else {
			set = s.tightest(k, n-i)
		}
		w.picks = append(w.picks, seat{slot: x, role: int16(role), devices: set})
	}
}

// bestShare returns the device of w.devices for one share of v on c, which has so much
// CPU.
func (s *State) bestShare(v *view, c *slot, cpu int64) int {
	if s.cfg.Rule == RuleGradient {
		return s.leastGrowth(v, c, cpu)
	}
	return s.cheapest(v, c, cpu)
}

// takeShare takes one share of a device and returns it as a set.
func (o *device) takeShare(k *kind) lockstep.DeviceSet {
	o.milli -= int32(k.share)
	o.memory -= k.memoryEach
	o.idle = false
	return 1 << uint(o.index)
}

// tightest takes shares of several of w.devices for one member, such that members of
// its kind, itself included, have room still: the tightest devices that allow that,
// then the lowest. A device that all members could use must be used by so many of
// them that the rest is enough.
func (s *State) tightest(k *kind, members int32) (set lockstep.DeviceSet) {
	w := &s.work
	slack, ample := int32(0), int32(0)
	for i := range w.devices {
		n := w.devices[i].room(k)
		slack += min(n, members)
		ample += boolCount(n >= members)
	}
	slack -= k.gpus * members
	must := max(0, ample-slack) // of the ample ones
	for taken := range k.gpus {
		pick := -1
		only := k.gpus-taken <= must
		for i := range w.devices {
			o := &w.devices[i]
			n := o.room(k)
			if n == 0 || set.Has(int(o.index)) || only && n < members {
				continue
			}
			if pick < 0 || o.milli < w.devices[pick].milli {
				pick = i
			}
		}
		if w.devices[pick].room(k) >= members {
			must--
		}
		set |= 1 << uint(w.devices[pick].index)
	}
	for i := range w.devices {
		if set.Has(int(w.devices[i].index)) {
			w.devices[i].takeShare(k)
		}
	}
	return set
}

func boolCount(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
