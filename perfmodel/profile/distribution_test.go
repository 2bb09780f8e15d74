package profile

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

func distribution(t *testing.T, sizes ...time.Duration) *Distribution {
	t.Helper()
	d, err := NewDistribution(sizes)
	require.NoError(t, err)
	return d
}

// Three jobs of 1 s and one of 9 s: who has attained a second has a long way to go, and is
// the better the farther it is.
func TestGittinsIndexFallsAndRises(t *testing.T) {
	d := distribution(t, time.Second, time.Second, time.Second, 9*time.Second)
	index := func(attained time.Duration, want float64) {
		t.Helper()
		x, ok := d.Gittins(attained)
		require.True(t, ok)
		require.InDelta(t, want, x.PerSecond(), 1e-12)
	}
	index(0, .75)
	index(time.Second, 1./8)
	index(5*time.Second, 1./4)
	index(8*time.Second, 1)
	index(-time.Hour, .75)
	x, ok := d.Gittins(9 * time.Second)
	require.False(t, ok)
	require.Equal(t, Index{}, x)
	require.Zero(t, x.PerSecond())
}

// gittins tries every amount up to the next size after all.
func gittins(sizes []time.Duration, attained, longest time.Duration) *big.Rat {
	best := new(big.Rat)
	for amount := time.Duration(1); amount <= longest; amount++ {
		ends, work := int64(0), int64(0)
		for _, s := range sizes {
			if s > attained {
				if s-attained <= amount {
					ends++
				}
				work += int64(min(s-attained, amount))
			}
		}
		if work > 0 {
			if r := big.NewRat(ends, work); r.Cmp(best) > 0 {
				best = r
			}
		}
	}
	return best
}

func TestGittinsIndexIsTheGreatestOverAllAmounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 500 {
		sizes := make([]time.Duration, 1+rng.IntN(8))
		for i := range sizes {
			sizes[i] = time.Duration(1 + rng.IntN(30))
		}
		d := distribution(t, sizes...)
		for a := range time.Duration(32) {
			want := gittins(sizes, a, 31)
			x, ok := d.Gittins(a)
			require.Equal(t, want.Sign() > 0, ok)
			if ok {
				hi, lo := x.work.Words()
				require.Zero(t, hi)
				require.Zero(t, want.Cmp(new(big.Rat).SetFrac(new(big.Int).SetUint64(x.ends), new(big.Int).SetUint64(lo))))
			}
			y, _ := d.Gittins(a + 1)
			require.Equal(t, -x.Compare(y), y.Compare(x))
			require.Zero(t, x.Compare(x))
		}
	}
}

// TestGittinsOracle: of sizes 1, 1, 1 and 9 the index is not monotone, unlike attained service.
func TestGittinsOracle(t *testing.T) {
	d := distribution(t, time.Second, time.Second, time.Second, 9*time.Second)
	for _, c := range []struct {
		attained, amount time.Duration
		want             float64
	}{{0, 1, .75}, {0, 9, 1. / 3}, {1, 8, 1. / 8}, {1, 1, 0}, {8, 1, 1}} {
		x, ok := d.GittinsWithin(c.attained*time.Second, c.amount*time.Second)
		require.True(t, ok)
		require.InDelta(t, c.want, x.PerSecond(), 1e-12, "%v", c)
	}
	for _, c := range [][2]time.Duration{{9 * time.Second, time.Second}, {0, 0}, {0, -1}} {
		_, ok := d.GittinsWithin(c[0], c[1])
		require.False(t, ok)
	}
}

func TestGittinsWithinIsTheIndexOfOneAmount(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		sizes := make([]time.Duration, 1+rng.IntN(8))
		for i := range sizes {
			sizes[i] = time.Duration(1 + rng.IntN(30))
		}
		d := distribution(t, sizes...)
		for a := range time.Duration(32) {
			best, found := Index{}, false
			for amount := time.Duration(1); amount < 40; amount++ {
				ends, work := uint64(0), int64(0)
				for _, s := range sizes {
					if s > a {
						work += int64(min(s-a, amount))
						if s-a <= amount {
							ends++
						}
					}
				}
				x, ok := d.GittinsWithin(a, amount)
				require.Equal(t, work > 0, ok)
				if ok {
					require.Equal(t, Index{ends, int128.Of(work)}, x)
				}
				if !found || x.Compare(best) < 0 {
					best, found = x, ok
				}
			}
			x, _ := d.Gittins(a)
			require.Zero(t, x.Compare(best), "the greatest over all amounts")
		}
	}
	x, ok := distribution(t, lockstep.MaxWalltime).GittinsWithin(lockstep.MaxWalltime-1, math.MaxInt64)
	require.True(t, ok)
	require.Equal(t, Index{1, int128.Of(1)}, x)
}

func TestGittinsIndexIsExactForTheLongestJobs(t *testing.T) {
	sizes := make([]time.Duration, maxSizes)
	for i := range sizes {
		sizes[i] = lockstep.MaxWalltime
	}
	sizes[0]--
	d := distribution(t, sizes...)
	x, ok := d.Gittins(0)
	require.True(t, ok)
	require.Equal(t, uint64(maxSizes), x.ends)
	require.InEpsilon(t, 1/lockstep.MaxWalltime.Seconds(), x.PerSecond(), 1e-9)
	y, _ := d.Gittins(1)
	require.Positive(t, x.Compare(y), "one nanosecond makes a difference")
}

func TestQuantilesAndMeans(t *testing.T) {
	d := distribution(t, 40, 10, 30, 20)
	for mille, want := range map[int64]time.Duration{-5: 10, 0: 10, 1: 10, 250: 10, 251: 20, 500: 20, 750: 30, 751: 40, 1000: 40, 5000: 40} { // the order does not matter
		require.Equal(t, want, d.Quantile(mille), "%d", mille)
	}
	require.Equal(t, 4, d.Len())
	require.Equal(t, time.Duration(25), d.Mean())
	left, ok := d.Remaining(20)
	require.True(t, ok)
	require.Equal(t, time.Duration(15), left)
	_, ok = d.Remaining(40)
	require.False(t, ok)
	left, ok = d.Remaining(-1)
	require.True(t, ok)
	require.Equal(t, time.Duration(25), left)

	var none Distribution
	require.Zero(t, none.Mean()+none.Quantile(500)+time.Duration(none.Len()))
	_, ok = none.Gittins(0)
	require.False(t, ok)
}
