package quota

import (
	"cmp"
	"math/bits"
	"slices"
)

// filler divides an amount among claims by weighted water-filling in whole units:
// each gets its weight times the level, but no less than its lo and no more than its
// hi, and the level is such that the amount is used up, or all have their hi. Parts
// that are no whole units are rounded down, and the units that are left go by largest
// remainder, then to the claim that was added first. A claim of weight 0 gets its lo.
// The sum of all lo must not be more than the amount.
//
// Invariant: a claim that gets less than its hi gets the same, and all others do
// too, if its hi is raised.
type filler struct {
	claims []claim
	events []event
	rest   []int32 // claims on the level, for the order of their remainders
}

type claim struct {
	lo, hi, weight int64
	state          state
	got            int64
	remainder      uint64
}

// state says where a claim stands to the level.
type state uint8

const (
	below  state = iota // the claim gets lo
	on                  // the claim gets weight × level
	filled              // the claim gets hi
)

// event is the level num/den at which a claim comes on the level, or is filled.
type event struct {
	num, den uint64
	claim    int32
	to       state
}

func (f *filler) reset() { f.claims = f.claims[:0] }

func (f *filler) add(lo, hi, weight int64) {
	f.claims = append(f.claims, claim{lo: lo, hi: hi, weight: weight})
}

// got returns what the claim that was added as the i-th got.
func (f *filler) got(i int) int64 { return f.claims[i].got }

// pour divides total.
func (f *filler) pour(total int64) {
	f.scale()
	fixed, slope := f.start()
	for i := range f.events {
		e := &f.events[i]
		c := &f.claims[e.claim]
		// Does the total reach this level? slope × num/den <= total - fixed
		if less(uint64(total-fixed), e.den, slope, e.num) {
			break
		}
		c.state = e.to
		if e.to == on {
			fixed -= c.lo
			slope += uint64(c.weight)
		} else {
			fixed += c.hi
			slope -= uint64(c.weight)
		}
	}
	f.finish(total-fixed, slope)
}

// less reports whether a×b < c×d.
func less(a, b, c, d uint64) bool {
	h1, l1 := bits.Mul64(a, b)
	h2, l2 := bits.Mul64(c, d)
	return h1 < h2 || h1 == h2 && l1 < l2
}

// scale halves all weights until their sum is below 2^62: weights may be amounts.
func (f *filler) scale() {
	var hi, lo uint64
	for i := range f.claims {
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(f.claims[i].weight), 0)
		hi += carry
	}
	shift := 0
	for ; hi != 0 || lo >= 1<<62; shift++ {
		lo, hi = lo>>1|hi<<63, hi>>1
	}
	if shift == 0 {
		return
	}
	for i := range f.claims {
		f.claims[i].weight >>= shift
	}
}

// start puts every claim at level 0, and the events in order. It returns what claims
// get that are not on the level, and the weights of those that are.
func (f *filler) start() (fixed int64, slope uint64) {
	f.events = f.events[:0]
	for i := range f.claims {
		c := &f.claims[i]
		if c.weight == 0 || c.lo == c.hi {
			c.state = below
			fixed += c.lo
			continue
		}
		if c.lo == 0 {
			c.state = on
			slope += uint64(c.weight)
		} else {
			c.state = below
			fixed += c.lo
			f.events = append(f.events, event{uint64(c.lo), uint64(c.weight), int32(i), on})
		}
		if c.hi != noLimit {
			f.events = append(f.events, event{uint64(c.hi), uint64(c.weight), int32(i), filled})
		}
	}
	slices.SortFunc(f.events, func(a, b event) int {
		switch {
		case less(a.num, b.den, b.num, a.den):
			return -1
		case less(b.num, a.den, a.num, b.den):
			return 1
		}
		return cmp.Or(cmp.Compare(a.claim, b.claim), cmp.Compare(a.to, b.to))
	})
	return fixed, slope
}

// finish gives every claim its part, where those on the level, of weights slope
// together, share left.
func (f *filler) finish(left int64, slope uint64) {
	f.rest = f.rest[:0]
	units := left
	for i := range f.claims {
		c := &f.claims[i]
		switch c.state {
		case below:
			c.got = c.lo
		case filled:
			c.got = c.hi
		case on:
			hi, lo := bits.Mul64(uint64(left), uint64(c.weight))
			got, remainder := bits.Div64(hi, lo, slope) // hi < slope, since left < 2^64 and weight <= slope
			c.got, c.remainder = int64(got), remainder
			units -= c.got
			if remainder != 0 {
				f.rest = append(f.rest, int32(i))
			}
		}
	}
	if slope == 0 || units == 0 {
		return
	}
	// There are fewer units than claims with a remainder.
	slices.SortFunc(f.rest, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.claims[b].remainder, f.claims[a].remainder), cmp.Compare(a, b))
	})
	for _, i := range f.rest[:units] {
		f.claims[i].got++
	}
}
