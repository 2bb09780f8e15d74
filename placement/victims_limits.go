package placement

import (
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// quantity is one amount of one of the limits.
type quantity struct {
	limit int32
	kind  quantityKind
	name  lockstep.ResourceName
	left  int64
	used  int64
}

// quantityKind says what of a demand a quantity counts.
type quantityKind uint8

const (
	countNothing quantityKind = iota // nothing
	countGPU
	countCPU
	countMemory
	countRDMA
	countSlots
	countClass
)

func kindOf(name lockstep.ResourceName) quantityKind {
	switch name {
	case lockstep.ResourceGPU:
		return countGPU
	case lockstep.ResourceCPU:
		return countCPU
	case lockstep.ResourceMemory:
		return countMemory
	case lockstep.ResourceRDMA:
		return countRDMA
	case lockstep.ResourceSlots:
		return countSlots
	}
	if strings.HasPrefix(string(name), string(lockstep.ResourceGPU)+"/") {
		return countClass
	}
	return countNothing
}

// of returns what one member with demand d counts for: lockstep.Demand.Resources
// at the quantity's name, without the map.
func (c *quantity) of(d *lockstep.Demand) int64 {
	switch c.kind {
	case countGPU:
		return milliOf(d)
	case countCPU:
		return int64(d.CPU)
	case countMemory:
		return int64(d.Memory)
	case countRDMA:
		return int64(d.RDMA)
	case countSlots:
		return 1
	case countClass:
		if len(d.Classes) == 1 && string(c.name[len(lockstep.ResourceGPU)+1:]) == string(d.Classes[0]) {
			return milliOf(d)
		}
	}
	return 0
}

// milliOf returns what of devices one member takes.
func milliOf(d *lockstep.Demand) int64 { return int64(d.DeviceShare().Mul(int64(d.GPUs))) }

// use is what a candidate that goes whole counts against a quantity.
type use struct {
	quantity int32
	amount   int64
}

// uses appends what a candidate counts for as a whole.
func (h *hunt) appendUses(dst []use, cand int32) []use {
	for i := range h.quantities {
		c := &h.quantities[i]
		if !slices.Contains(h.jobs[cand].Limits, c.limit) {
			continue
		}
		u := use{quantity: int32(i)}
		j := &h.s.jobs[h.recs[cand]]
		for k := range j.seats {
			u.amount += c.of(&j.gang.Roles[j.seats[k].role].Demand)
		}
		dst = append(dst, u)
	}
	return dst
}

// charge counts what a whole candidate uses, unless a limit forbids it.
func (h *hunt) charge(uses []use) bool {
	if h.unlimited {
		return true
	}
	for _, u := range uses {
		if c := &h.quantities[u.quantity]; u.amount > 0 && u.amount > c.left-c.used {
			return false
		}
	}
	for _, u := range uses {
		h.quantities[u.quantity].used += u.amount
	}
	return true
}

func (h *hunt) discharge(uses []use) {
	for _, u := range uses {
		h.quantities[u.quantity].used -= u.amount
	}
}

// chargeMembers is charge for n members of a candidate with demand d; its uses say
// which cells count.
func (h *hunt) chargeMembers(uses []use, d *lockstep.Demand, n int32) bool {
	if h.unlimited {
		return true
	}
	for _, u := range uses {
		c := &h.quantities[u.quantity]
		if amount := c.of(d) * int64(n); amount > 0 && amount > c.left-c.used {
			return false
		}
	}
	for _, u := range uses {
		h.quantities[u.quantity].used += h.quantities[u.quantity].of(d) * int64(n)
	}
	return true
}

func (h *hunt) dischargeMembers(uses []use, d *lockstep.Demand, n int32) {
	if h.unlimited {
		return
	}
	for _, u := range uses {
		h.quantities[u.quantity].used -= h.quantities[u.quantity].of(d) * int64(n)
	}
}
