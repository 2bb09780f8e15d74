package resize_test

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

func randomElastic(rng *rand.Rand) resize.Elastic {
	e := resize.Elastic{
		Mode:  []resize.BatchMode{resize.FixedBatch, resize.ScaledBatch, resize.NoResize}[rng.IntN(3)],
		Micro: 1 + rng.Int64N(3), Replicas: 1 + rng.IntN(6), Min: 1 + rng.IntN(3), Uneven: rng.IntN(2) == 0,
	}
	e.Max = e.Min + rng.IntN(8)
	e.Global = e.Micro * (1 + rng.Int64N(40))
	if e.Mode == resize.ScaledBatch {
		e.Global = e.Micro * int64(e.Replicas) * (1 + rng.Int64N(5))
		e.Rule = []resize.RateRule{resize.LinearRate, resize.SqrtRate}[rng.IntN(2)]
	}
	return e
}

// TestSizesAreThoseThatAtAllows compares with the definition, size by size.
func TestSizesAreThoseThatAtAllows(t *testing.T) {
	for seed := range uint64(2000) {
		e := randomElastic(rand.New(rand.NewPCG(seed, 1)))
		if e.Validate() != nil {
			require.Equal(t, resize.NoResize, e.Mode)
			require.True(t, e.Replicas < e.Min || e.Replicas > e.Max)
			continue
		}
		var want []int
		for n := 1; n <= 20; n++ {
			ok := n >= e.Min && n <= e.Max && (e.Mode != resize.NoResize || n == e.Replicas)
			if micros := e.Global / e.Micro; e.Mode != resize.ScaledBatch {
				ok = ok && micros >= int64(n) && (e.Uneven || micros%int64(n) == 0)
			}
			if ok {
				want = append(want, n)
			}
			b, v, err := e.At(n, 0)
			require.NoError(t, err)
			require.Equal(t, ok, v.Feasible, "%+v at %d", e, n)
			fit := 0
			if len(want) > 0 {
				fit = want[len(want)-1]
			}
			require.Equal(t, fit, v.Fit, "%+v at %d", e, n)
			if !ok {
				require.Equal(t, resize.Batch{}, b)
				require.NotEmpty(t, v.Reason)
				continue
			}
			requireBatch(t, e, n, b)
		}
		require.Equal(t, want, e.Sizes())
	}
}

// requireBatch checks the invariants of a batch with n replicas.
func requireBatch(t *testing.T, e resize.Elastic, n int, b resize.Batch) {
	t.Helper()
	sum := 0
	for _, k := range b.Split {
		sum += k
	}
	require.Len(t, b.Split, n)
	require.Equal(t, b.Micros, sum)
	require.Equal(t, b.Global, int64(b.Micros)*e.Micro)
	require.LessOrEqual(t, slices.Max(b.Split)-slices.Min(b.Split), 1)
	require.True(t, slices.IsSortedFunc(b.Split, func(x, y int) int { return y - x }))
	if e.Mode != resize.ScaledBatch {
		require.Equal(t, e.Global, b.Global)
		require.Equal(t, int64(1_000_000), b.Rate)
		require.Equal(t, int64(1_000_000), b.Counts)
		return
	}
	require.Equal(t, e.Global*int64(n), b.Global*int64(e.Replicas))
	exact := big.NewRat(int64(n)*1_000_000, int64(e.Replicas))
	off := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(b.Counts))
	require.LessOrEqual(t, off.Abs(off).Cmp(big.NewRat(1, 2)), 0, "to the nearest")
	if e.Rule == resize.LinearRate {
		require.Equal(t, b.Counts, b.Rate)
	}
}

// TestGuardComparesExactly asks with rationals.
func TestGuardComparesExactly(t *testing.T) {
	allowed := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		g := resize.Guard{Dwell: resize.NoDwell, Horizon: time.Duration(1+rng.Int64N(1000)) * time.Millisecond, Margin: []float64{resize.AnyGain, 0, 0.25}[rng.IntN(3)]}
		margin := map[float64]int64{resize.AnyGain: 0, 0: 10_000, 0.25: 250_000}[g.Margin]
		pace := func() resize.Pace {
			return resize.Pace{Samples: rng.Int64N(9), Step: time.Duration(1 + rng.Int64N(9))}
		}
		c := resize.Change{Old: pace(), New: pace(), Pause: time.Duration(rng.Int64N(1200)) * time.Millisecond}
		per := func(p resize.Pace, d time.Duration) *big.Rat {
			return new(big.Rat).Mul(big.NewRat(p.Samples, int64(p.Step)), big.NewRat(int64(d), 1))
		}
		with := per(c.New, max(0, g.Horizon-c.Pause))
		without := new(big.Rat).Mul(per(c.Old, g.Horizon), big.NewRat(1_000_000+margin, 1_000_000))
		v, err := g.Allow(c)
		require.NoError(t, err)
		require.Equal(t, with.Cmp(without) > 0, v.Feasible, "%+v %+v", g, c)
		if v.Feasible {
			allowed++
		}
	}
	require.NotZero(t, allowed)
}

func TestJobThatStandsStillDoesNotDwell(t *testing.T) {
	c := resize.Change{New: resize.Pace{Samples: 1, Step: time.Second}, Pause: time.Minute}
	v, err := resize.Guard{}.Allow(c)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	c.Old = resize.Pace{Samples: 1, Step: time.Hour}
	v, err = resize.Guard{}.Allow(c)
	require.NoError(t, err)
	require.Equal(t, resize.ReasonDwell, v.Reason)
	c.Since = 10 * time.Minute
	v, err = resize.Guard{}.Allow(c)
	require.NoError(t, err)
	require.True(t, v.Feasible, "the dwell is over at its end")
}

func TestDealRefusesPlacesThatCannotBe(t *testing.T) {
	for _, r := range []resize.Range{{First: -1, Count: 2}, {First: 1 << 62, Count: 2}, {Epoch: -1, Count: 2}} {
		_, err := resize.Deal([]resize.Range{r}, 1, []int{1, 1})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, _, err := resize.Cursor{Step: 1 << 60}.Take(1, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "the next one would be out of range")
	parts, err := resize.Deal([]resize.Range{{First: 8, Count: 2}, {Epoch: 1, Count: 4}}, 2, []int{0, 2, 0, 1})
	require.NoError(t, err)
	require.Equal(t, [][]resize.Range{nil, {{First: 8, Count: 2}, {Epoch: 1, Count: 2}}, nil, {{Epoch: 1, First: 2, Count: 2}}}, parts)
}
