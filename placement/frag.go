package placement

import (
	"errors"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Shape is a kind of member that a workload has, as far as fragmentation is
// concerned.
type Shape struct {
	GPUs    int                    `json:"gpus,omitempty"`    // GPUs is how many devices one takes, 0 to lockstep.MaxDevicesPerNode.
	Share   lockstep.MilliGPU      `json:"share,omitempty"`   // Share is how much of each device, 1 to 1000; 0 means all of it.
	CPU     lockstep.MilliCPU      `json:"cpu,omitempty"`     // CPU is processor time, up to 10⁹ cores; 0 means none.
	Classes []lockstep.DeviceClass `json:"classes,omitempty"` // Classes are the device kinds that will do; none means any.
	Count   int64                  `json:"count,omitempty"`   // Count is how many such members there are, of which only the proportions matter; 0 means 1, and all together are up to 2²⁰.
}

// milli returns how much of each device a shape takes.
func (h *Shape) milli() int32 {
	if h.Share == 0 {
		return int32(lockstep.WholeGPU)
	}
	return int32(h.Share)
}

func (h *Shape) count() int64 { return max(1, h.Count) }

// cloneShapes copies shapes.
func cloneShapes(in []Shape) []Shape {
	out := slices.Clone(in)
	for i := range out {
		out[i].Classes = slices.Clone(out[i].Classes)
	}
	return out
}

// validate reports whether a gang could have members of such a shape.
func (h *Shape) validate() error {
	d := lockstep.Demand{GPUs: h.GPUs, Share: h.Share, CPU: h.CPU, Classes: h.Classes}
	return (&lockstep.Gang{ID: "x", Roles: []lockstep.Role{{Min: 1, Demand: d}}}).Validate()
}

// checkShapes returns every fault of a mix, joined.
func checkShapes(call string, shapes []Shape) error {
	var errs []error
	sum := int64(0)
	if len(shapes) > maxShapes {
		errs = append(errs, fault(lockstep.ErrInvalid, call, "Mix", strconv.Itoa(len(shapes))+" shapes", "want at most "+strconv.Itoa(maxShapes)))
	}
	for i := range shapes {
		h := &shapes[i]
		sum += min(max(1, h.Count), maxCount+1)
		if h.Count < 0 || h.Count > maxCount {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at("Mix", i)+".Count", strconv.FormatInt(h.Count, 10), "want 0 to "+strconv.Itoa(maxCount)))
		}
		if err := h.validate(); err != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at("Mix", i), "", err.Error()))
		}
	}
	if sum > maxCount {
		errs = append(errs, fault(lockstep.ErrInvalid, call, "Mix", strconv.FormatInt(sum, 10), "counts add up to more than "+strconv.Itoa(maxCount)))
	}
	return errors.Join(errs...)
}

// Bounds of a mix: sizes of shares are numbered in a byte, and sums stay far from overflow.
const (
	maxShapes = 255
	maxCount  = 1 << 20
)

// mixture is a mix of shapes, made ready to say how much of a node they can use. It
// never changes. What a shape can use of a node is what is free of the devices that
// have room for it by themselves, if they are enough of them, the model is one of
// its own and the processor suffices.
type mixture struct {
	weight int64 // sum of the counts
	cpus   []int64
	step   [1001]uint8                     // by thousandths free: how many of the sizes of shares are no more
	sizes  int                             // of shares of one device, the whole device included
	groups []group                         // those that take several devices
	kinds  map[lockstep.DeviceClass]uint16 // by class that some shape names: its row; others have row 0
	single []int64                         // by row, CPU and step: the count of shapes of one device, that small or smaller
	multi  []int64                         // by row, CPU and group: the count of its shapes
	limits [99]int64                       // see coarse
}

// group is the shapes that take so much of so many devices.
type group struct{ gpus, milli int32 }

// newMixture prepares shapes that were checked.
func newMixture(shapes []Shape) *mixture {
	if len(shapes) == 0 {
		shapes = []Shape{{GPUs: 1}}
	}
	m := &mixture{kinds: make(map[lockstep.DeviceClass]uint16)}
	var sizes []int32
	names := []lockstep.DeviceClass{""} // by row
	for i := range shapes {
		h := &shapes[i]
		m.weight += h.count()
		if h.GPUs == 0 {
			continue // can use none of the devices
		}
		m.cpus = append(m.cpus, int64(h.CPU))
		if h.GPUs == 1 {
			sizes = append(sizes, h.milli())
		} else if g := (group{int32(h.GPUs), h.milli()}); !slices.Contains(m.groups, g) {
			m.groups = append(m.groups, g)
		}
		for _, c := range h.Classes {
			if _, ok := m.kinds[c]; !ok {
				m.kinds[c] = uint16(len(names))
				names = append(names, c)
			}
		}
	}
	slices.Sort(m.cpus)
	m.cpus = slices.Compact(m.cpus)
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	m.sizes = len(sizes)
	for g := range m.step {
		n, _ := slices.BinarySearch(sizes, int32(g)+1)
		m.step[g] = uint8(n)
	}
	buckets := len(m.cpus) + 1
	m.single = make([]int64, len(names)*buckets*(m.sizes+1))
	m.multi = make([]int64, len(names)*buckets*len(m.groups))
	for i := range shapes {
		m.enter(&shapes[i], names)
	}
	for j := range m.limits {
		m.limits[j] = int128.FloorDiv(stepAt(j+1)*m.weight, 1_000_000)
	}
	return m
}

// enter adds a shape to the tables: it counts wherever the processor suffices.
func (m *mixture) enter(h *Shape, names []lockstep.DeviceClass) {
	if h.GPUs == 0 {
		return
	}
	buckets := len(m.cpus) + 1
	for row, class := range names {
		if len(h.Classes) > 0 && !slices.Contains(h.Classes, class) {
			continue
		}
		for b := m.bucket(int64(h.CPU)); b < buckets; b++ {
			at := row*buckets + b
			if h.GPUs == 1 {
				for step := int(m.step[h.milli()]); step <= m.sizes; step++ {
					m.single[at*(m.sizes+1)+step] += h.count()
				}
				continue
			}
			g := slices.Index(m.groups, group{int32(h.GPUs), h.milli()})
			m.multi[at*len(m.groups)+g] += h.count()
		}
	}
}

// bucket returns how many of the shapes' amounts of CPU are no more than free.
func (m *mixture) bucket(free int64) int {
	lo, hi := 0, len(m.cpus)
	for lo < hi {
		mid := (lo + hi) / 2
		if m.cpus[mid] <= free {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// at returns the place in the tables for a class of devices and free CPU.
func (m *mixture) at(row uint16, cpu int64) int { return int(row)*(len(m.cpus)+1) + m.bucket(cpu) }

// usable returns how many thousandths of the devices, weighed by count, the shapes can
// use: idle devices and what is left of others, at a place in the tables.
func (m *mixture) usable(at int, idle int64, left []int32) int64 {
	single := m.single[at*(m.sizes+1) : (at+1)*(m.sizes+1)]
	sum := idle * 1000 * single[m.sizes]
	for _, g := range left {
		sum += int64(g) * single[m.step[g]]
	}
	for i, w := range m.multi[at*len(m.groups) : (at+1)*len(m.groups)] {
		if w == 0 {
			continue
		}
		o := &m.groups[i]
		n, all := idle, idle*1000
		for _, g := range left {
			if g >= o.milli {
				n++
				all += int64(g)
			}
		}
		if n >= int64(o.gpus) {
			sum += w * all
		}
	}
	return sum
}

// stepAt returns the greatest growth, in millionths of a thousandth of a device, that
// gets at least j of 100 points: 1000·ln(100/j - 1), rounded down.
func stepAt(j int) int64 {
	switch {
	case j < 50:
		return steps[j-1]
	case j > 50:
		return -steps[99-j] - 1
	}
	return 0
}

// steps is where the score 100·sigmoid(-d/1000) comes down to 1, 2 ... 49. Immutable.
var steps = [49]int64{
	4_595_119_850, 3_891_820_298, 3_476_098_689, 3_178_053_830, 2_944_438_979, 2_751_535_313, 2_586_689_344,
	2_442_347_035, 2_313_634_929, 2_197_224_577, 2_090_741_096, 1_992_430_164, 1_900_958_761, 1_815_289_966,
	1_734_601_055, 1_658_228_076, 1_585_627_263, 1_516_347_489, 1_450_010_175, 1_386_294_361, 1_324_925_414,
	1_265_666_373, 1_208_311_205, 1_152_679_509, 1_098_612_288, 1_045_968_555, 994_622_575, 944_461_608,
	895_384_047, 847_297_860, 800_119_300, 753_771_802, 708_185_057, 663_294_217, 619_039_208, 575_364_144,
	532_216_813, 489_548_225, 447_312_218, 405_465_108, 363_965_377, 322_773_392, 281_851_152, 241_162_056,
	200_670_695, 160_342_650, 120_144_311, 80_042_707, 40_005_334,
}

// coarse turns growth, the weighed one, into a rank of 0 to 100: 100 less the whole
// part of 100·sigmoid(-growth/1000).
func (m *mixture) coarse(growth int64) uint32 {
	lo, hi := 0, len(m.limits) // limits fall: how many of them growth keeps
	for lo < hi {
		mid := (lo + hi) / 2
		if growth <= m.limits[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return uint32(100 - lo)
}

// modelOf returns the index of a class of devices, which is new where need be. Past
// 65,535 classes the others count as one.
func (s *State) modelOf(class lockstep.DeviceClass) uint16 {
	i := slices.Index(s.models, class)
	switch {
	case i >= 0:
	case len(s.models) > 1<<16-1:
		i = 0
	default:
		i = len(s.models)
		s.models = append(s.models, class)
	}
	return uint16(i)
}

// Fragmentation is how much of what is idle the workload cannot use.
type Fragmentation struct {
	Idle   lockstep.MilliGPU `json:"idle"`   // Idle is how much of devices that may be shared no member has, on open nodes.
	Unused lockstep.MilliGPU `json:"unused"` // Unused is how much of Idle a member of the workload could not use, on average over them, rounded down.
}

// Fragmentation returns how fragmented the open nodes are for the most popular shapes
// of the workload, which make up 95 % of it, each by its share: Config.Mix, else what was
// learned from arrivals, else members of one whole device. What a member can use of a
// node is what is idle of the devices that have room for a part of it, if the node has
// as many of them as it takes, the CPU, and its class. It is the measure of FGD (ATC
// 2023, section 4). O(nodes·(devices + shapes of several devices)).
func (s *State) Fragmentation() Fragmentation {
	var all, unused int64
	if s.tree == nil {
		return Fragmentation{}
	}
	m, w := s.market.mix, &s.work
	var k kind
	for x := range s.slots {
		c := &s.slots[x]
		if c.flags != 0 {
			continue
		}
		idle := s.shared(&k, int32(x), c)
		free := idle * int64(lockstep.WholeGPU)
		for _, g := range w.left {
			free += int64(g)
		}
		all += free
		// The sum over nodes stays below 2^21 nodes × 64 devices × 1000 × the weight, 2^20 at the most.
		unused += m.weight*free - m.usable(m.at(m.kinds[s.models[c.model]], c.cpu), idle, w.left)
	}
	return Fragmentation{Idle: lockstep.MilliGPU(all), Unused: lockstep.MilliGPU(unused / m.weight)}
}
