package profile

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// ObserveLevel takes how long an iteration of a kind took whose devices were held
// together at level and no finer one. Iterations of unlike work are not for one kind. An
// invalid kind or time is ErrInvalid, a level that Config does not have ErrUnknown.
func (s *Store) ObserveLevel(k Kind, level lockstep.Level, took time.Duration) error {
	f := faults{op: "profile: observe level"}
	f.kind("k", k)
	if took <= 0 || took > lockstep.MaxWalltime {
		f.bad("took", took.String(), "want more than 0, up to ten years")
	}
	at := slices.Index(s.cfg.Levels, level)
	if at < 0 {
		f.errs = append(f.errs, fault(lockstep.ErrUnknown, f.op, "level", errtext.Quote(level), "want one of the store's "+strconv.Itoa(len(s.cfg.Levels))))
	}
	if err := f.err(); err != nil {
		return err
	}
	e := s.touch(k)
	if e.levels == nil {
		e.levels = make([][]float64, len(s.cfg.Levels))
	}
	e.levels[at] = push(e.levels[at], math.Log(took.Seconds()), s.cfg.Keep)
	return nil
}

// span is what is believed of the time of an iteration at one level, as a logarithm.
type span struct {
	belief
	source    Source
	low, high int // levels that bound it: itself when measured, else the nearest finer and coarser ones, -1 for none
	block     int // levels of one block do not differ, as far as is known
}

// spans returns what is believed of each level of e, and the finest level that was
// measured, -1 if none was. Coarser levels are never faster.
func (s *Store) spans(e *known) (all [maxLevels]span, finest int) {
	finest = -1
	if e == nil || e.levels == nil {
		return all, finest
	}
	var space [maxLevels]belief
	var level, block [maxLevels]int
	measured := space[:0]
	for i := len(e.levels) - 1; i >= 0; i-- { // the finest first
		if len(e.levels[i]) > 0 {
			level[len(measured)] = i
			measured = append(measured, believe(e.levels[i], usual))
			finest = max(finest, i)
		}
	}
	rising(measured, block[:])
	for j, b := range measured {
		i := level[j]
		all[i] = span{belief: b, source: Measured, low: i, high: i, block: block[j]}
	}
	for i := range e.levels {
		if all[i].source == Unknown {
			all[i] = between(&all, i, len(e.levels))
		}
	}
	return all, finest
}

// between returns what the levels around level i, which was not measured, say of it.
func between(all *[maxLevels]span, i, levels int) span {
	p := span{low: -1, high: -1}
	for j := i + 1; j < levels && p.low < 0; j++ {
		if all[j].source == Measured {
			p.low = j
		}
	}
	for j := i - 1; j >= 0 && p.high < 0; j-- {
		if all[j].source == Measured {
			p.high = j
		}
	}
	if p.low >= 0 && p.high >= 0 {
		p.source = Inferred
		p.mid = (all[p.low].mid + all[p.high].mid) / 2
	}
	return p
}

// Slowdown returns how many times as long an iteration of kind k takes at level as at the
// finest level that was measured. It never falls from a finer level to a coarser one. A
// level between two that were measured is Inferred to lie between them; one that is
// coarser than all of them is Unknown, though at least as slow as the coarsest; one that
// is finer is Unknown altogether, and so is a level that Config does not have. It
// allocates nothing.
func (s *Store) Slowdown(k Kind, level lockstep.Level) Estimate {
	i := slices.Index(s.cfg.Levels, level)
	all, finest := s.spans(s.kinds.get(k))
	if i < 0 || finest < 0 || i > finest {
		return Estimate{}
	}
	p, base := all[i], all[finest]
	out := Estimate{Samples: p.n, Source: p.source}
	if p.source == Unknown {
		p = all[p.low]
		p.high = -1
	}
	out.Value = exp(p.mid - base.mid)
	out.Low, _ = ratio(all[p.low], base)
	if p.high >= 0 {
		_, out.High = ratio(all[p.high], base)
	}
	return out
}

// ratio returns the least and the most that times of p are of times of base, at least 1.
func ratio(p, base span) (low, high float64) {
	if p.low == base.low {
		return 1, 1
	}
	mid, half := p.mid-base.mid, math.Hypot(p.half, base.half)
	if p.block == base.block {
		mid = 0
	}
	return max(exp(mid-half), 1), exp(mid + half)
}

// Need returns by how much longer an iteration of kind k takes at level far than at level
// near, in thousandths, of which one is sure: the lower bound. It is 0 where far is not
// coarser than near, where one of the two is Unknown, and where measurements do not tell
// them apart. It allocates nothing.
func (s *Store) Need(k Kind, near, far lockstep.Level) int64 {
	i, j := slices.Index(s.cfg.Levels, near), slices.Index(s.cfg.Levels, far)
	if j < 0 || i <= j {
		return 0
	}
	all, _ := s.spans(s.kinds.get(k))
	if all[i].source == Unknown || all[j].source == Unknown {
		return 0
	}
	low, _ := ratio(all[all[j].low], all[all[i].high])
	return mille(low - 1)
}

// Claim is a job that wants devices close together.
type Claim struct {
	Job  lockstep.JobID `json:"job"`  // Job is which.
	Owed int64          `json:"owed"` // Owed is what it is owed, in the unit of whoever keeps the accounts; more comes first.
	Need int64          `json:"need"` // Need is what it loses by devices that are apart, as of Store.Need.
}

// Compare orders claims by who gets devices that are close together: who is owed more,
// then whose need is greater, then by ID.
func (c Claim) Compare(d Claim) int {
	return cmp.Or(cmp.Compare(d.Owed, c.Owed), cmp.Compare(d.Need, c.Need), cmp.Compare(c.Job, d.Job))
}

// mille returns x in thousandths, rounded and held inside int64, at least 0.
func mille(x float64) int64 {
	x = math.Round(x * 1000)
	switch {
	case !(x > 0):
		return 0
	case x >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(x)
}
