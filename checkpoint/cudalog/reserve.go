package cudalog

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Granule is the usual granularity of device memory that is mapped: 2 MiB.
const Granule = 2 << 20

// Range is a piece of the address space.
type Range struct {
	Addr uint64 // Addr is where it begins.
	Size uint64 // Size is how many bytes it has.
}

// end returns the first address behind r.
func (r Range) end() uint64 { return r.Addr + r.Size }

// Reservation is a range to reserve at its address (cuMemAddressReserve) and what to map into it.
type Reservation struct {
	Range           // Range is the whole, in whole granules.
	Maps  []Mapping // Maps fill the range, by address.
}

// Mapping is a piece of physical memory to create on a device (cuMemCreate), to map at an address (cuMemMap), and to
// make accessible there (cuMemSetAccess).
type Mapping struct {
	Range           // Range is what is mapped, in whole granules.
	Device uint32   // Device is the ordinal of the device.
	Holds  []Handle // Holds is the memory that begins, ends or lies in it, by address.
}

// Reserve plans how memory comes back at its addresses: granules that hold any of it are mapped on its device, and
// ranges without a gap are reserved in one piece. granule is a power of two. taken is what the new process has at its
// addresses already, as its memory map tells; a plan that would need any of it is ErrConflict, and so is one in which
// a granule would be on two devices, and one that would begin at address 0, which to the driver means any address.
func Reserve(memory []Allocation, granule uint64, taken []Range) ([]Reservation, error) {
	if granule == 0 || granule&(granule-1) != 0 || granule > MaxAddr {
		return nil, unplanned(lockstep.ErrInvalid, "granule", hex(granule), "want a power of two")
	}
	var out []Reservation
	var last Allocation
	for i, place := range byPlace(memory) {
		a, at := memory[place], "memory["+strconv.Itoa(place)+"]"
		if a.Addr == 0 || a.Size == 0 || a.Addr > MaxAddr || a.Size > MaxAddr-a.Addr {
			return nil, unplanned(lockstep.ErrInvalid, at, hex(a.Addr)+" + "+hex(a.Size), "is no range")
		}
		if i > 0 && last.Addr+last.Size > a.Addr {
			return nil, unplanned(lockstep.ErrConflict, at, hex(a.Addr), "overlaps memory at "+hex(last.Addr))
		}
		last = a
		r := Range{Addr: a.Addr &^ (granule - 1)}
		r.Size = (a.Addr+a.Size+granule-1)&^(granule-1) - r.Addr
		if r.Addr == 0 {
			return nil, unplanned(lockstep.ErrConflict, at, hex(a.Addr), "is in the granule at address 0")
		}
		if n := len(out); n == 0 || out[n-1].end() < r.Addr {
			out = append(out, Reservation{Range: r, Maps: []Mapping{{r, a.Device, []Handle{a.Handle}}}})
			continue
		}
		if err := extend(&out[len(out)-1], r, a, at); err != nil {
			return nil, err
		}
	}
	if err := free(out, taken); err != nil {
		return nil, err
	}
	return out, nil
}

// byPlace returns the places of allocations in a list, by address.
func byPlace(memory []Allocation) []int {
	out := make([]int, len(memory))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(i, k int) int {
		return cmp.Or(cmp.Compare(memory[i].Addr, memory[k].Addr), cmp.Compare(memory[i].Handle, memory[k].Handle), cmp.Compare(i, k))
	})
	return out
}

// extend adds memory, in the granules r, to a reservation that touches them.
func extend(to *Reservation, r Range, a Allocation, at string) error {
	m := &to.Maps[len(to.Maps)-1]
	if m.end() > r.Addr && m.Device != a.Device {
		return unplanned(lockstep.ErrConflict, at, hex(a.Addr), "shares a granule with memory of device "+strconv.Itoa(int(m.Device)))
	}
	switch {
	case m.Device == a.Device:
		m.Size = max(m.end(), r.end()) - m.Addr
		m.Holds = append(m.Holds, a.Handle)
	default:
		to.Maps = append(to.Maps, Mapping{r, a.Device, []Handle{a.Handle}})
	}
	to.Size = max(to.end(), r.end()) - to.Addr
	return nil
}

// free checks a plan against what is taken.
func free(plan []Reservation, taken []Range) error {
	for i, t := range taken {
		if t.Size > 1<<64-1-t.Addr {
			return unplanned(lockstep.ErrInvalid, "taken["+strconv.Itoa(i)+"]", hex(t.Addr)+" + "+hex(t.Size), "is no range")
		}
	}
	taken = slices.Clone(taken)
	slices.SortFunc(taken, func(a, b Range) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Size, b.Size)) })
	i := 0
	for _, t := range taken {
		for i < len(plan) && plan[i].end() <= t.Addr {
			i++
		}
		if i < len(plan) && t.Size > 0 && t.end() > plan[i].Addr {
			return unplanned(lockstep.ErrConflict, "taken", hex(t.Addr), "is wanted for memory at "+hex(plan[i].Addr))
		}
	}
	return nil
}

// unplanned builds the error of a plan.
func unplanned(kind error, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "cudalog: reserve", Field: field, Value: value, Reason: reason}
}

// Active returns the parts of an allocation that hold something, as offsets from its beginning, for a store that
// leaves the rest out. used is what its allocator says is in use, in any order; parts that overlap or touch are
// joined, what lies outside the allocation is left out, and edges are moved outwards to multiples of align, a power of
// two, so that a store's regions stay whole; 1 moves none.
func Active(a Allocation, used []Range, align uint64) ([]Range, error) {
	if align == 0 || align&(align-1) != 0 || align > MaxAddr {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "cudalog: active", Field: "align", Value: hex(align), Reason: "want a power of two"}
	}
	if a.Size == 0 || a.Addr > MaxAddr || a.Size > MaxAddr-a.Addr {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "cudalog: active", Field: "a", Value: hex(a.Addr) + " + " + hex(a.Size), Reason: "is no range"}
	}
	var parts []Range
	for i, u := range used {
		if u.Size > 1<<64-1-u.Addr {
			return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "cudalog: active", Field: "used[" + strconv.Itoa(i) + "]", Value: hex(u.Addr) + " + " + hex(u.Size), Reason: "is no range"}
		}
		lo, hi := max(u.Addr, a.Addr), min(u.end(), a.Addr+a.Size)
		if lo >= hi {
			continue
		}
		lo, hi = (lo-a.Addr)&^(align-1), min((hi-a.Addr+align-1)&^(align-1), a.Size)
		parts = append(parts, Range{lo, hi - lo})
	}
	slices.SortFunc(parts, func(x, y Range) int { return cmp.Compare(x.Addr, y.Addr) })
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].end() >= p.Addr {
			out[n-1].Size = max(out[n-1].end(), p.end()) - out[n-1].Addr
			continue
		}
		out = append(out, p)
	}
	return out, nil
}
