package fairness

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Prices turns amounts of devices of several classes into one unit, in which
// capacity, demands and grants are given to a ledger, so that a fast device costs
// more of a tenant's share than a slow one. Speeds of jobs on devices are those of
// Gavel (Narayanan et al., OSDI 2020), where they are throughputs.
type Prices struct {
	Classes map[lockstep.DeviceClass]int64 `json:"classes,omitempty"` // Classes are what a device costs, in thousandths of the unit, 1 to 1000000; one that is not named costs 1000.
	Least   int64                          `json:"least,omitempty"`   // Least is the least that a job's own speed may lower its price to, in thousandths of the class's; 0 means 500.
	Most    int64                          `json:"most,omitempty"`    // Most is the most that it may raise it to; 0 means 2000.
}

const (
	thousand = 1_000
	maxPrice = 1_000_000
)

// Validate reports every fault of p, joined.
func (p Prices) Validate() error {
	var errs []error
	check := func(field string, v, least int64) {
		if v < least || v > maxPrice {
			errs = append(errs, fault(lockstep.ErrInvalid, "prices", field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to 1000000"))
		}
	}
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		if err := class.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		check("Classes."+string(class), p.Classes[class], 1)
	}
	check("Least", p.Least, 0)
	check("Most", p.Most, 0)
	if least, most := p.bounds(); len(errs) == 0 && least > most {
		errs = append(errs, fault(lockstep.ErrInvalid, "prices", "Most", strconv.FormatInt(most, 10), "must not be below Least"))
	}
	return errors.Join(errs...)
}

// Of returns what amount of devices of class costs, rounded up to a MilliGPU and
// held at the largest capacity of a ledger, which is half of int64. Speed is how fast the job runs on them beside the
// class's usual speed, in thousandths: it scales the price within Least and Most, so
// that a wrong one is bounded; 0 means as usual.
func (p *Prices) Of(class lockstep.DeviceClass, amount lockstep.MilliGPU, speed int64) lockstep.MilliGPU {
	price, ok := p.Classes[class]
	if !ok {
		price = thousand
	}
	least, most := p.bounds()
	if speed == 0 {
		speed = thousand
	}
	speed = min(max(speed, least), most)
	cost, _ := int128.Whole(int128.Mul(uint64(max(amount, 0)), uint64(price*speed)).Add(int128.Of(thousand*thousand - 1))).QuoRem(thousand * thousand)
	hi, lo := cost.Words()
	if hi != 0 || lo > maxRate {
		return maxRate
	}
	return lockstep.MilliGPU(lo)
}

func (p *Prices) bounds() (least, most int64) {
	least, most = p.Least, p.Most
	if least == 0 {
		least = 500
	}
	if most == 0 {
		most = 2000
	}
	return least, most
}
