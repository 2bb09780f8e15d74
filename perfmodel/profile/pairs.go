package profile

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Bounds and constants of interference.
const (
	maxPairRate = 10_000 // thousandths
	leastRate   = .05    // below which a slowdown is not told apart
	fewest      = 8      // rates that a fit by usage wants, since it has five coefficients
	sweeps      = 30
	shrink      = .5 // how many measurements the mean of all counts for
	gentle      = 2  // the most that two sharing scores may come to
)

// Usage is how much of a device a kind uses alone. Of a kind that runs on a part of
// a device, it is what it uses of the whole.
type Usage struct {
	Cache  float64 `json:"cache"`  // Cache is the utilisation of the second-level cache, from 0 to 1.
	Memory float64 `json:"memory"` // Memory is the utilisation of the memory's bandwidth, from 0 to 1.
}

// Describe states how much of a device a kind uses, from which its interference with
// others is inferred where it was not measured. An invalid kind or utilisation is
// ErrInvalid.
func (s *Store) Describe(k Kind, u Usage) error {
	f := faults{op: "profile: describe"}
	f.kind("k", k)
	f.figure("u.Cache", u.Cache, 0, 1)
	f.figure("u.Memory", u.Memory, 0, 1)
	if err := f.err(); err != nil {
		return err
	}
	e := s.touch(k)
	e.usage, e.told = u, true
	s.model, s.fit = nil, nil
	return nil
}

// ObservePair takes how fast a job of kind a progressed on a device beside one of kind b,
// and that one beside it, in thousandths of how fast each does alone; 0 is one that
// cannot run there. An invalid kind, or a rate outside of 0 to 10000, is ErrInvalid; two
// kinds in a store for only one are ErrConflict.
func (s *Store) ObservePair(a, b Kind, rateA, rateB int64) error {
	f := faults{op: "profile: observe pair"}
	f.kind("a", a)
	f.kind("b", b)
	f.count("rateA", rateA, 0, maxPairRate)
	f.count("rateB", rateB, 0, maxPairRate)
	if err := f.err(); err != nil {
		return err
	}
	if a != b && s.cfg.Kinds < 2 {
		return fault(lockstep.ErrConflict, f.op, "b", errtext.Quote(b), "the store keeps only one kind")
	}
	if s.kinds.get(b) != nil {
		s.touch(b) // not the oldest any more, so that a does not drive it out
	}
	s.touch(a)
	s.touch(b) // the two last touched, so that neither goes
	s.note(a, b, rateA)
	s.note(b, a, rateB)
	s.model, s.fit = nil, nil
	return nil
}

// note keeps the rate of a beside b. Invariant: b keeps one of it beside a.
func (s *Store) note(a, b Kind, rate int64) {
	e := s.kinds.get(a)
	if e.beside == nil {
		e.beside = newLRU[Kind, []int64]()
	}
	rates := e.beside.touch(b)
	*rates = push(*rates, rate, s.cfg.Keep)
	if e.beside.len() > s.cfg.Partners {
		out := e.beside.oldest()
		e.beside.remove(out)
		if out != a {
			s.kinds.get(out).beside.remove(a)
		}
	}
}

// Beside returns how fast kind a is on a device beside kind b, as a part of how fast it is
// alone. Where the two were never measured together it is Inferred: from what both use
// of a device, if that was described and enough pairs of such kinds were measured; else
// from how much a suffers and how much b disturbs beside others. Else it is Unknown.
func (s *Store) Beside(a, b Kind) Estimate {
	e, o := s.kinds.get(a), s.kinds.get(b)
	if e == nil || o == nil {
		return Estimate{}
	}
	if rates := e.beside.get(b); rates != nil {
		return beliefOf(*rates).around(Measured)
	}
	if e.told && o.told {
		if s.fit == nil {
			s.fit = s.byUsage()
		}
		if s.fit.ok {
			return inferred(1/s.fit.slowdown(e.usage, o.usage), s.fit.miss)
		}
	}
	if e.beside.len() == 0 || o.beside.len() == 0 {
		return Estimate{}
	}
	if s.model == nil {
		s.model = s.byPartners()
	}
	return inferred(s.model.rate(a, b), s.model.miss)
}

// inferred returns the estimate of a rate that is mostly not further off than miss. What
// is inferred is never faster than alone.
func inferred(rate, miss float64) Estimate {
	rate = min(rate, 1)
	return Estimate{Value: rate, Low: max(rate-miss, 0), High: min(rate+miss, 1), Source: Inferred}
}

// beliefOf returns what is believed of a rate that was measured in thousandths.
func beliefOf(rates []int64) belief {
	var space [maxKeep]float64
	for i, r := range rates {
		space[i] = float64(r) / 1000
	}
	return believe(space[:len(rates)], usual)
}

// around returns the estimate that b is of a figure itself.
func (b belief) around(src Source) Estimate {
	return Estimate{Value: b.mid, Low: max(b.mid-b.half, 0), High: b.mid + b.half, Samples: b.n, Source: src}
}

// Packing is what is known of two kinds for a decision whether they should share a device.
type Packing struct {
	Rates  [2]Estimate `json:"rates"`  // Rates are theirs beside each other.
	Gain   int64       `json:"gain"`   // Gain is what the two come to beyond one job alone, in thousandths; below 0 the device does less.
	Scores [2]int      `json:"scores"` // Scores are 0 for a kind that mostly runs beside others at .95 of its speed or more, 1 for .85 or more, else 2; of a kind never measured, 2.
	Source Source      `json:"source"` // Source is the worse of the rates'; if it is Unknown, Gain means nothing.
	Pays   bool        `json:"pays"`   // Pays says that the rates are known and Gain is above 0: pack by it, and unpack without it.
	Gentle bool        `json:"gentle"` // Gentle says that the scores come to at most 2.
}

// Packing returns what is known of kinds a and b beside each other.
func (s *Store) Packing(a, b Kind) Packing {
	p := Packing{Rates: [2]Estimate{s.Beside(a, b), s.Beside(b, a)}, Scores: [2]int{s.score(a), s.score(b)}}
	if x, y := p.Rates[0].Source, p.Rates[1].Source; x != Unknown && y != Unknown {
		p.Source = Inferred
		if x == Measured && y == Measured {
			p.Source = Measured
		}
		p.Gain = mille(p.Rates[0].Value) + mille(p.Rates[1].Value) - 1000
		p.Pays = p.Gain > 0
	}
	p.Gentle = p.Scores[0]+p.Scores[1] <= gentle
	return p
}

// score returns the sharing score of a kind: by the mean speed of the pairs it was
// measured in.
func (s *Store) score(k Kind) int {
	e := s.kinds.get(k)
	if e == nil || e.beside.len() == 0 {
		return gentle
	}
	var sum, n int64
	e.beside.all(func(other Kind, rates *[]int64) {
		sum += mille(beliefOf(*rates).mid) + mille(beliefOf(*s.kinds.get(other).beside.get(k)).mid)
		n += 2
	})
	switch {
	case sum >= 950*n:
		return 0
	case sum >= 850*n:
		return 1
	}
	return 2
}
