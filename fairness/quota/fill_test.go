package quota

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainFill is filler.pour in rational numbers, by rounds: everyone that is not
// settled gets a part by weight of what those leave that are; whoever would get
// less than lo, or else more than hi, is settled at that; until nobody is.
func plainFill(total int64, claims []claim) []int64 {
	got := make([]int64, len(claims))
	settled := make([]bool, len(claims))
	for i, c := range claims {
		if c.weight == 0 {
			got[i], settled[i] = c.lo, true
		}
	}
	level := new(big.Rat)
	for {
		left, weights := big.NewInt(total), new(big.Int)
		for i, c := range claims {
			if settled[i] {
				left.Sub(left, big.NewInt(got[i]))
			} else {
				weights.Add(weights, big.NewInt(c.weight))
			}
		}
		if weights.Sign() == 0 {
			return got
		}
		level.SetFrac(left, weights)
		// Settle those under lo and those over hi of whichever side is further off in sum: the level is too high for
		// all if those under lo need more than those over hi give back.
		under, over := new(big.Rat), new(big.Rat)
		at := func(c claim) *big.Rat { return new(big.Rat).Mul(level, new(big.Rat).SetInt64(c.weight)) }
		for i, c := range claims {
			if settled[i] {
				continue
			}
			if d := new(big.Rat).Sub(new(big.Rat).SetInt64(c.lo), at(c)); d.Sign() > 0 {
				under.Add(under, d)
			}
			if d := new(big.Rat).Sub(at(c), new(big.Rat).SetInt64(c.hi)); d.Sign() > 0 {
				over.Add(over, d)
			}
		}
		if under.Sign() == 0 && over.Sign() == 0 {
			break
		}
		for i, c := range claims {
			x := at(c)
			switch {
			case settled[i]:
			case under.Cmp(over) >= 0 && x.Cmp(new(big.Rat).SetInt64(c.lo)) < 0:
				got[i], settled[i] = c.lo, true
			case over.Cmp(under) >= 0 && x.Cmp(new(big.Rat).SetInt64(c.hi)) > 0:
				got[i], settled[i] = c.hi, true
			}
		}
	}
	// Largest remainder.
	type rest struct {
		i int
		r *big.Rat
	}
	var rests []rest
	units := total
	for i, c := range claims {
		if !settled[i] {
			x := new(big.Rat).Mul(level, new(big.Rat).SetInt64(c.weight))
			floor := new(big.Int).Quo(x.Num(), x.Denom())
			got[i] = floor.Int64()
			rests = append(rests, rest{i, x.Sub(x, new(big.Rat).SetInt(floor))})
		}
		units -= got[i]
	}
	slices.SortFunc(rests, func(a, b rest) int { return cmp.Or(b.r.Cmp(a.r), cmp.Compare(a.i, b.i)) })
	for _, x := range rests[:min(int(units), len(rests))] {
		got[x.i]++
	}
	return got
}

// randomClaims gives claims, small or near the ends of the range, and a total
// that covers all lo.
func randomClaims(r *rand.Rand) (total int64, claims []claim) {
	n := r.IntN(7)
	most, heaviest := int64(12), int64(5)
	if r.IntN(4) == 0 {
		most, heaviest = MaxAmount/int64(n+1), MaxWeight
	}
	var sum int64
	for range n {
		c := claim{weight: r.Int64N(heaviest + 1)}
		if r.IntN(2) == 0 {
			c.lo = r.Int64N(most/2 + 1)
		}
		c.hi = c.lo + r.Int64N(most/2+1)
		if r.IntN(4) == 0 {
			c.hi = noLimit
		}
		sum += c.lo
		claims = append(claims, c)
	}
	return sum + r.Int64N(most+1), claims
}

func pour(total int64, claims []claim) []int64 {
	var f filler
	for _, c := range claims {
		f.add(c.lo, c.hi, c.weight)
	}
	f.pour(total)
	got := make([]int64, len(claims))
	for i := range claims {
		got[i] = f.got(i)
	}
	return got
}

func rounds(full int) int {
	if testing.Short() {
		return full / 10
	}
	return full
}

func TestFillAgreesWithRationalRounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds(100_000) {
		total, claims := randomClaims(r)
		require.Equal(t, plainFill(total, claims), pour(total, claims), "%d among %+v", total, claims)
	}
}

func TestFillIsExactAndWithinBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds(100_000) {
		total, claims := randomClaims(r)
		got := pour(total, claims)
		var sum int64
		hungry := false
		for i, c := range claims {
			require.GreaterOrEqual(t, got[i], c.lo)
			require.LessOrEqual(t, got[i], c.hi)
			hungry = hungry || c.weight > 0 && got[i] < c.hi
			sum += got[i]
		}
		require.LessOrEqual(t, sum, total)
		require.True(t, sum == total || !hungry, "%d of %d", sum, total)
	}
}

// TestFillIgnoresWhatCannotBeHad is what the proof that reclaim ends rests on: who
// gets less than it asks for changes nothing by asking for more.
func TestFillIgnoresWhatCannotBeHad(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range rounds(100_000) {
		total, claims := randomClaims(r)
		got := pour(total, claims)
		for i := range claims {
			if got[i] < claims[i].hi && claims[i].hi < noLimit {
				more := slices.Clone(claims)
				more[i].hi += 1 + r.Int64N(MaxAmount)
				require.Equal(t, got, pour(total, more), "%d among %+v, then %+v", total, claims, more)
			}
		}
	}
}

func TestFillOfWeightsScaledIsTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range rounds(20_000) {
		total, claims := randomClaims(r)
		scaled := slices.Clone(claims)
		k := 1 + r.Int64N(1<<20)
		for i := range scaled {
			scaled[i].weight *= k
		}
		require.Equal(t, pour(total, claims), pour(total, scaled))
	}
}
