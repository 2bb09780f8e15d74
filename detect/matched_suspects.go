package detect

import (
	"cmp"
	"math"

	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Detectable returns the smallest factor of a place that would be found within the horizon with
// the power configured, for iterations like those seen; false where not even the largest factor
// looked for would be, while nothing is known yet, and for a place that there is not.
func (t *MatchedTest) Detectable(replica, stage int) (factor float64, ok bool) {
	c := &t.cfg
	if t.learning() || replica < 0 || replica >= c.Replicas || stage < 0 || stage >= c.Stages {
		return 0, false
	}
	at := (replica*c.Stages + stage) * len(c.Factors)
	want := math.Sqrt(t.needed)
	// What a fault shows as a convex function of its factor, known at the factors looked for.
	var before, left point
	left.x = 1
	for i := range c.Factors {
		right := t.shown(at, i)
		if right.y >= want {
			return solve(before, left, right, t.shown(at, min(i+1, len(c.Factors)-1)), want), true
		}
		before, left = left, right
	}
	return 0, false
}

// point is a factor and the root of the information that a fault of that size gives.
type point struct{ x, y float64 }

func (t *MatchedTest) shown(at, i int) point {
	return point{float64(t.cfg.Factors[i]) / float64(pipeline.Same), math.Sqrt(t.information(&t.moments[at+i]))}
}

// solve returns the x between left and right at which a convex function through four points is y.
// It lies above the chords on either side drawn on, which are taken for it, so that the x is not
// too small.
func solve(before, left, right, after point, y float64) float64 {
	slope := func(a, b point, none float64) float64 {
		if b.x <= a.x || a.x < 1 {
			return none
		}
		return (b.y - a.y) / (b.x - a.x)
	}
	chord := slope(left, right, 0)
	rise, fall := slope(before, left, 0), slope(right, after, chord)
	low, high := left.x, right.x
	for range 30 {
		x := float64((low + high) / 2)
		if max(left.y+float64(rise*(x-left.x)), right.y-float64(fall*(right.x-x))) < y {
			low = x
		} else {
			high = x
		}
	}
	return high
}

// information returns the mean of the logarithm of a fault's odds after a horizon of it.
func (t *MatchedTest) information(m *moments) float64 {
	s := &t.series
	keep := s.keep
	each := float64((1+float64(keep*keep))*m.square) - float64(2*keep*m.product)
	all := float64(each*float64(t.cfg.Horizon-1)) + m.square
	// What all shifts have in common may as well be a level that was learned too low.
	steady := float64(m.mean*m.mean) * s.weight(t.cfg.Horizon)
	lost := s.unsure / (s.unsure + s.sure(t.cfg.Horizon))
	// Where few iterations show a fault, often fewer do within the horizon than in the mean.
	rare := 1.0
	if m.square > 0 {
		rare += max(m.fourth/float64(m.square*m.square)-1, 0) / float64(t.cfg.Horizon)
	}
	return max(all-float64(steady*lost), 0) / float64(2*s.fresh()*math.Sqrt(rare))
}

// AppendSuspects appends to dst the places that the evidence points to, likeliest first, at most
// limit of them, and those below a tenth of the likeliest left out. Score is the chance of the
// place, given that there is a fault; what is missing to 1 is with other places or with none: the
// whole iteration is slower. Ties go to the larger Factor, then to the lower replica, then stage. It
// allocates nothing where dst has room.
func (t *MatchedTest) AppendSuspects(dst []Suspect, limit int) []Suspect {
	if t.learning() || !(t.total > 0) {
		return dst
	}
	c := &t.cfg
	from := len(dst)
	for place := range c.Replicas * c.Stages {
		odds, factor := 0.0, 0.0
		for i, f := range c.Factors {
			b := &t.branches[place*len(c.Factors)+i]
			odds += b.odds
			factor += float64(b.odds * float64(b.size*float64(f-pipeline.Same)))
		}
		s := Suspect{
			Replica: place / c.Stages, Stage: place % c.Stages, Rank: Everywhere,
			Factor: 1 + factor/odds/float64(pipeline.Same), Score: odds * t.own / t.total,
		}
		dst = rank(dst, from, limit, s)
	}
	return thin(dst, from, 0.1)
}

// rank inserts a suspect among the worst of dst[from:], of which there are at most limit.
func rank(dst []Suspect, from, limit int, s Suspect) []Suspect {
	if !(s.Score > 0) || limit < 1 {
		return dst
	}
	if len(dst)-from < limit {
		dst = append(dst, s)
	} else if dst[len(dst)-1].below(&s) {
		dst[len(dst)-1] = s
	} else {
		return dst
	}
	for i := len(dst) - 1; i > from && dst[i-1].below(&dst[i]); i-- {
		dst[i-1], dst[i] = dst[i], dst[i-1]
	}
	return dst
}

// below says that s comes after o where o was found later.
func (s *Suspect) below(o *Suspect) bool {
	return cmp.Or(cmp.Compare(s.Score, o.Score), cmp.Compare(s.Factor, o.Factor)) < 0
}

// thin drops the suspects whose score is below a part of the worst one's.
func thin(dst []Suspect, from int, part float64) []Suspect {
	for len(dst) > from && dst[len(dst)-1].Score < part*dst[from].Score {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// Places returns the chance, given that there is a fault, that it is a place rather than the whole
// iteration.
func (t *MatchedTest) Places() float64 {
	if !(t.total > 0) {
		return 0
	}
	whole := 0.0
	for _, b := range t.branches[len(t.moments):] {
		whole += b.odds
	}
	return 1 - whole*t.whole/t.total
}
