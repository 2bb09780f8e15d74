package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// bin is a GPU whose sessions take turns.
type bin struct {
	parts  []part // by session
	duty   int64  // of a turn, in nanoseconds
	used   int64  // what batches take of it
	memory lockstep.Bytes
	first  ID    // the first session, which names the bin
	least  int64 // what its requests take at least of a second, in 1/1000 ns
}

// part is what a bin does of a session.
type part struct {
	s     Session
	micro int64 // millionths of a request a second
}

// batch returns how many requests come in a turn, rounded up, since they do not come evenly.
func (p part) batch(duty int64) int64 {
	return int128.MulDivUp(duty, p.micro, million*int64(time.Second))
}

// fits sets the turn to duty nanoseconds, and says whether all batches fit it and keep their objectives. A request may
// just miss a batch: it waits for a turn, and rides in the next.
func (b *bin) fits(duty int64) bool {
	used := int64(0)
	for _, p := range b.parts {
		n := max(p.batch(duty), 1)
		if n > math.MaxInt32 {
			return false
		}
		took := int64(p.s.Latency.Batch(int(n)))
		if used = addSat(used, took); used > duty || duty > int64(p.s.Objective)-took {
			return false
		}
	}
	b.duty, b.used = duty, used
	return true
}

// longest returns the longest turn up to most in which exactly whole batches come for one of the sessions, and which
// fits; turns between two such serve no more with a batch.
func (b *bin) longest(most int64) (duty int64, ok bool) {
	for tries := 0; tries < 128 && most > 0; tries++ {
		if b.fits(most) {
			return most, true
		}
		next := int64(0) // the longest turn below at which some batch is one smaller
		for _, p := range b.parts {
			if n := p.batch(most) - 1; n >= 1 {
				next = max(next, int128.MulDiv(n, million*int64(time.Second), p.micro))
			}
		}
		if next >= most {
			next = most - 1
		}
		most = next
	}
	return 0, false
}

// join returns a and b on one GPU, if that can be: with the shorter of both turns, or else the longest that there is.
func join(a, b *bin, memory lockstep.Bytes) *bin {
	sum, least := a.memory+b.memory, addSat(a.least, b.least)
	if memory > 0 && sum > memory || least > int64(time.Second)*1000 {
		return nil // also where no turn is long enough
	}
	out := &bin{parts: append(slices.Clone(a.parts), b.parts...), memory: sum, first: min(a.first, b.first), least: least}
	slices.SortFunc(out.parts, func(x, y part) int { return cmp.Compare(x.s.ID, y.s.ID) })
	if out.fits(min(a.duty, b.duty)) {
		return out
	}
	most := int64(math.MaxInt64) // what leaves room for a batch of one of each
	for _, p := range out.parts {
		most = min(most, int64(p.s.Objective-p.s.Latency.Batch(1)))
	}
	if _, ok := out.longest(most); !ok {
		return nil
	}
	return out
}

// fuller orders bins by occupancy, the highest first, then by name.
func fuller(a, b *bin) int {
	return cmp.Or(compareProducts(b.used, a.duty, a.used, b.duty), cmp.Compare(a.first, b.first))
}

// fewBins is up to how many bins all ways to pack them are tried: there are 4140 ways for 8.
const fewBins = 8

// pack packs bins together: by merge in a few orders, and where there are few bins in all ways, if fewer GPUs do.
func pack(bins []*bin, memory lockstep.Bytes) []*bin {
	best := merge(bins, memory, fuller)
	for _, order := range []func(a, b *bin) int{
		func(a, b *bin) int { return cmp.Or(cmp.Compare(a.duty, b.duty), fuller(a, b)) },     // the most hurried first
		func(a, b *bin) int { return cmp.Or(cmp.Compare(b.memory, a.memory), fuller(a, b)) }, // the largest first
		func(a, b *bin) int { return cmp.Or(cmp.Compare(b.least, a.least), fuller(a, b)) },   // the busiest first
	} {
		if other := merge(bins, memory, order); len(other) < len(best) {
			best = other
		}
	}
	if len(bins) <= fewBins && len(best) > 1 {
		s := &seating{bins: slices.SortedFunc(slices.Values(bins), fuller), memory: memory, best: best}
		s.walk(0)
		return s.best
	}
	return best
}

// seating tries all ways.
type seating struct {
	bins   []*bin
	memory lockstep.Bytes
	now    []*bin
	best   []*bin
}

func (s *seating) walk(i int) {
	if len(s.now) >= len(s.best) {
		return
	}
	if i == len(s.bins) {
		s.best = slices.Clone(s.now)
		return
	}
	for k, o := range s.now {
		if j := join(o, s.bins[i], s.memory); j != nil {
			s.now[k] = j
			s.walk(i + 1)
			s.now[k] = o
		}
	}
	s.now = append(s.now, s.bins[i])
	s.walk(i + 1)
	s.now = s.now[:len(s.now)-1]
}

// merge packs bins together: in that order, each into the one with which it comes to the highest occupancy. It goes over
// what came of it again, until nothing more is merged.
func merge(bins []*bin, memory lockstep.Bytes, order func(a, b *bin) int) []*bin {
	for {
		bins = slices.SortedFunc(slices.Values(bins), order)
		var out []*bin
		for _, b := range bins {
			best, at := (*bin)(nil), -1
			for i, o := range out {
				if j := join(o, b, memory); j != nil && (best == nil || compareProducts(j.used, best.duty, best.used, j.duty) > 0) {
					best, at = j, i
				}
			}
			if best != nil {
				out[at] = best
			} else {
				out = append(out, b)
			}
		}
		if len(out) == len(bins) {
			return out
		}
		bins = out
	}
}

// gpu returns b as it is shown.
func (b *bin) gpu() GPU {
	g := GPU{Duty: time.Duration(b.duty), Occupancy: int128.MulDivUp(b.used, million, max(b.duty, 1))}
	for _, p := range b.parts {
		g.Parts = append(g.Parts, Part{Session: p.s.ID, Rate: float64(p.micro) / million, Batch: int(max(p.batch(b.duty), 1))})
	}
	return g
}
