package policy

import (
	"errors"
	"math"
	"math/bits"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Demand is a wished size that need not be whole, in thousandths of one.
type Demand int64

// One is a demand for one.
const One Demand = 1000

// DemandOf returns how many it takes to serve load when each serves so much:
// load/each, to the nearest thousandth, at most MaxCount. Neither may be
// negative, infinite or not a number, and each must not be zero.
func DemandOf(load, each float64) (Demand, error) {
	var errs []error
	fault := func(field string, v float64, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: demand", Field: field, Value: number(v), Reason: reason})
	}
	if !(load >= 0) || math.IsInf(load, 1) {
		fault("load", load, "want a finite number of at least 0")
	}
	if !(each > 0) || math.IsInf(each, 1) {
		fault("each", each, "want a finite number above 0")
	}
	if errs != nil {
		return 0, errors.Join(errs...)
	}
	v := load / each
	if v >= MaxCount {
		return MaxCount * One, nil
	}
	return Demand(math.Round(v * float64(One))), nil
}

// Ceil returns the least whole number that is not below d; 0 for one below 0.
func (d Demand) Ceil() int {
	if d <= 0 {
		return 0
	}
	return int(min((d-1)/One+1, MaxCount))
}

// String returns d as a decimal number: "2.5".
func (d Demand) String() string {
	return strconv.FormatFloat(float64(d)/float64(One), 'f', -1, 64)
}

// Bounded says which sizes are legal: those from Min to Max that are multiples of
// Step or powers of two; 0 is legal where Min is 0. It has no state.
type Bounded struct {
	Min         int  // Min is the least legal size or below it; 0 lets a size be none.
	Max         int  // Max is the largest legal size or above it; 0 means MaxCount.
	Step        int  // Step divides every legal size; 0 means 1. It excludes PowersOfTwo.
	PowersOfTwo bool // PowersOfTwo makes 1, 2, 4, ... the legal sizes.
	RoundUp     bool // RoundUp brings a wish to the next legal size above it, if there is one; false: below.
}

// Validate reports every fault, joined: ErrInvalid. There must be a legal size
// above zero.
func (b Bounded) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"Bounded.Min", b.Min}, {"Bounded.Max", b.Max}, {"Bounded.Step", b.Step}} {
		if f.value < 0 || f.value > MaxCount {
			errs = append(errs, invalid(f.name, strconv.Itoa(f.value), "want 0 to 2^30"))
		}
	}
	if b.PowersOfTwo && b.Step > 1 {
		errs = append(errs, invalid("Bounded.Step", strconv.Itoa(b.Step), "excludes PowersOfTwo"))
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	if least := b.above(max(b.Min, 1)); least > b.max() {
		return invalid("Bounded.Max", strconv.Itoa(b.Max), "no legal size above 0 is between Min and Max")
	}
	return nil
}

// Legal returns the legal size for a wish: itself, or the next one in the
// direction of rounding, or failing that the nearest legal one on the other side.
// A Bounded that Validate refuses returns want.
func (b Bounded) Legal(want int) int {
	if b.Validate() != nil || want > MaxCount {
		return want
	}
	return b.legal(want)
}

// legal is Legal of a valid Bounded.
func (b Bounded) legal(want int) int {
	if b.RoundUp {
		if up := b.atLeast(want); up >= 0 {
			return up
		}
	}
	if down := b.atMost(want); down >= 0 {
		return down
	}
	return b.atLeast(want)
}

// towards returns the legal size nearest to target on the way there from have, so
// that rounding never makes more of a change; have itself if nothing legal is in
// between, unless it is out of Min to Max.
func (b Bounded) towards(have, target int) int {
	n := have
	switch {
	case have < target:
		n = max(have, b.atMost(target))
	case have > target:
		if up := b.atLeast(target); up >= 0 && up < have {
			n = up
		}
	}
	switch {
	case n < b.Min:
		return b.atLeast(b.Min)
	case n > b.max():
		return b.atMost(b.max())
	}
	return n
}

// atMost returns the largest legal size up to n, -1 if there is none.
func (b Bounded) atMost(n int) int {
	n = min(n, b.max())
	down := n - n%b.step()
	if b.PowersOfTwo && n > 0 {
		down = 1 << (bits.Len(uint(n)) - 1)
	}
	if n < 0 || down < b.Min {
		return -1
	}
	return down
}

// atLeast returns the least legal size from n on, -1 if there is none.
func (b Bounded) atLeast(n int) int {
	n = max(n, b.Min)
	if n > 0 {
		n = b.above(n)
	}
	if n > b.max() {
		return -1
	}
	return max(n, 0)
}

// above returns the least multiple or power that is not below n, which is above 0.
func (b Bounded) above(n int) int {
	if b.PowersOfTwo {
		return 1 << bits.Len(uint(n-1))
	}
	// At most 2^30 - 1 + 2^30, which an int of 32 bits holds.
	return (n - 1) - (n-1)%b.step() + b.step()
}

func (b Bounded) max() int {
	if b.Max == 0 {
		return MaxCount
	}
	return b.Max
}

func (b Bounded) step() int { return max(b.Step, 1) }

// Hysteresis makes a whole number of a demand without flapping where it crosses
// an edge: with have replicas, it rises only when the demand passes have by a
// band, and falls only to what the demand, raised by a band, still needs. It has
// no state but have.
type Hysteresis struct {
	UpFraction   float64 // UpFraction of have is the band above it, 0 to 1; 0 means that any excess counts. It is kept to the millionth.
	DownFraction float64 // DownFraction of have is what a fall must leave free, 0 to 1; 0 means nothing. It is kept to the millionth.
}

// Validate reports every fault, joined: ErrInvalid.
func (h Hysteresis) Validate() error {
	var errs []error
	if !(h.UpFraction >= 0 && h.UpFraction <= 1) {
		errs = append(errs, invalid("Hysteresis.UpFraction", number(h.UpFraction), "want 0 to 1"))
	}
	if !(h.DownFraction >= 0 && h.DownFraction <= 1) {
		errs = append(errs, invalid("Hysteresis.DownFraction", number(h.DownFraction), "want 0 to 1"))
	}
	return errors.Join(errs...)
}

// Step returns the size for a demand when have are had.
func (h Hysteresis) Step(have int, want Demand) (int, error) {
	if err := errors.Join(h.Validate(), checkCount("have", have)); err != nil {
		return 0, err
	}
	if want < 0 || want > MaxCount*One {
		return 0, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: step", Field: "want", Value: want.String(), Reason: "want 0 to 2^30"}
	}
	return h.step(have, want), nil
}

// millionths keep fractions and factors exact once they are taken in.
const millionths = 1_000_000

func millionth(v float64) int64 { return int64(math.Round(v * millionths)) }

func (h Hysteresis) step(have int, want Demand) int {
	n := want.Ceil()
	switch {
	case n > have:
		// have × 10^6 × 10^3 / 10^6 stays below 2^61.
		if int64(want) <= int64(have)*int64(One)+int64(have)*millionth(h.UpFraction)/(millionths/int64(One)) {
			return have
		}
	case n < have:
		band := int64(have) * millionth(h.DownFraction) / (millionths / int64(One))
		return min(have, Demand(int64(want)+band).Ceil())
	}
	return n
}
