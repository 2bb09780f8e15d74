package drf

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

const (
	// ReferencePrice is the price of a device whose class has none.
	ReferencePrice = 1000

	// MaxPrice is the largest price.
	MaxPrice = 1_000_000
)

// Prices say what devices of a class count for, in thousandths of a reference
// device, and how far a job's own speed-ups may depart from them, so that a lie
// about them is bounded. The zero Prices count all devices alike.
type Prices struct {
	Classes map[lockstep.DeviceClass]int64 `json:"classes,omitempty"` // Classes are the prices, 1 to MaxPrice; a class that is absent has ReferencePrice.
	Min     int64                          `json:"min,omitempty"`     // Min is the least that a job's speed-up counts for; 0 means 1.
	Max     int64                          `json:"max,omitempty"`     // Max is the most that a job's speed-up counts for; 0 means MaxPrice.
}

// Validate reports every fault of p, joined.
func (p Prices) Validate() error {
	var errs []error
	check := func(field string, v, least int64) {
		if v < least || v > MaxPrice {
			errs = append(errs, fault(lockstep.ErrInvalid, "prices", field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.Itoa(MaxPrice)))
		}
	}
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		if err := class.Validate(); err != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, "prices", "Classes", "", reason(err)))
		}
		check("Classes."+string(class[:min(len(class), lockstep.MaxIDLength)]), p.Classes[class], 1)
	}
	check("Min", p.Min, 0)
	check("Max", p.Max, 0)
	if p.Min > 0 && p.Max > 0 && p.Min > p.Max {
		errs = append(errs, fault(lockstep.ErrInvalid, "prices", "Min", strconv.FormatInt(p.Min, 10), "is more than Max"))
	}
	return errors.Join(errs...)
}

// Rate returns what a device of class counts for, for a job with the given speed-ups,
// in thousandths: its own where there is one, held within Min and Max, else the price.
func (p Prices) Rate(class lockstep.DeviceClass, speedUps map[lockstep.DeviceClass]int64) int64 {
	if own, ok := speedUps[class]; ok {
		most := p.Max
		if most == 0 {
			most = MaxPrice
		}
		return min(max(own, p.Min, 1), most)
	}
	if price, ok := p.Classes[class]; ok {
		return price
	}
	return ReferencePrice
}
