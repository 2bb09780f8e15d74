package drf

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func rounds(full int) int {
	if testing.Short() {
		return full / 10
	}
	return full
}

// rat returns r as a big.Rat; nil if it is infinite.
func rat(r Ratio) *big.Rat {
	switch {
	case r.num == 0:
		return new(big.Rat)
	case r.den == 0:
		return nil
	}
	den := new(big.Int).Mul(new(big.Int).SetUint64(r.den), new(big.Int).SetUint64(r.scale))
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(r.num), den)
}

// edge gives numbers at which carries happen, and random ones.
func edge(r *rand.Rand) int64 {
	edges := []int64{0, 1, 2, math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 1 << 32, -1}
	if r.IntN(2) == 0 {
		return edges[r.IntN(len(edges))]
	}
	return r.Int64() >> r.IntN(63)
}

func TestRatiosCompareAsRationals(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds(100_000) {
		a, b := ratio(edge(r), edge(r), edge(r)), ratio(edge(r), edge(r), edge(r))
		A, B := rat(a), rat(b)
		want := 0
		switch {
		case A == nil && B == nil:
		case A == nil:
			want = 1
		case B == nil:
			want = -1
		default:
			want = A.Cmp(B)
		}
		require.Equal(t, want, a.Cmp(b), "%v ? %v", a, b)
		require.Equal(t, -want, b.Cmp(a))
		require.Equal(t, A == nil, a.Infinite())
		if A == nil {
			require.True(t, math.IsInf(a.Float64(), 1))
			require.Equal(t, "inf", a.String())
			continue
		}
		f, _ := A.Float64()
		require.InEpsilon(t, f+1, a.Float64()+1, 1e-12)
		if A.Sign() != 0 {
			require.Equal(t, A.String(), a.String())
		}
	}
	require.Equal(t, "0", Ratio{}.String())
	require.Equal(t, "3/4", RatioOf(6, 8).String())
	require.Equal(t, 0, RatioOf(1, 3).Cmp(RatioOf(2, 6)))
	require.Equal(t, Ratio{}, RatioOf(-1, 3))
}

func TestDominantShare(t *testing.T) {
	capacity := lockstep.Vector{100, 1000}
	for _, c := range []struct {
		used   lockstep.Vector
		weight int64
		index  int
		share  Ratio
	}{
		{lockstep.Vector{4, 32}, 1, 0, RatioOf(4, 100)},
		{lockstep.Vector{1, 16}, 1, 1, RatioOf(16, 1000)}, // not the devices: 1.0 % is less than 1.6 %
		{lockstep.Vector{0, 64}, 2, 1, RatioOf(64, 2000)},
		{lockstep.Vector{10, 100}, 0, 0, RatioOf(1, 10)},
		{lockstep.Vector{0, 0, 1}, 3, 2, RatioOf(1, 0)},
		{lockstep.Vector{}, 3, 0, Ratio{}},
	} {
		index, share := Dominant(c.used, capacity, c.weight)
		require.Equal(t, c.index, index, "%+v", c)
		require.Zero(t, c.share.Cmp(share), "%+v: %v", c, share)
	}
}

func TestRho(t *testing.T) {
	// Half of the work done in twice the time it would have taken, and the rest to come at that pace.
	require.Zero(t, RatioOf(2, 1).Cmp(Rho(2*time.Hour, 2*time.Hour, 2*time.Hour)))
	require.Equal(t, -1, Rho(time.Hour, time.Hour, 3*time.Hour).Cmp(RatioOf(1, 1)))
	require.True(t, Rho(0, 1, 0).Infinite())
	require.Zero(t, Rho(0, 0, 0).Cmp(Ratio{}))
	require.Zero(t, Rho(-5, -5, 1).Cmp(Ratio{}))
	require.Zero(t, Rho(maxDuration, maxDuration, maxDuration).Cmp(RatioOf(1, 1)), "held at the end")
}

func TestIdealTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds(50_000) {
		run, gpus, capacity, users := edge(r), edge(r), edge(r), int(edge(r)>>33)
		got := IdealTime(time.Duration(run), lockstep.MilliGPU(gpus), lockstep.MilliGPU(capacity), users)
		if run <= 0 || gpus <= 0 || capacity <= 0 || users <= 0 {
			require.EqualValues(t, max(run, 0), got)
			continue
		}
		share := new(big.Int).Mul(big.NewInt(gpus), big.NewInt(int64(users)))
		want := big.NewInt(run)
		if share.Cmp(big.NewInt(capacity)) > 0 {
			want.Mul(want, share)
			want.Add(want, big.NewInt(capacity-1)).Quo(want, big.NewInt(capacity))
		}
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if want.Int64() != int64(got) {
			// With more than 2^64 shares the result is held at the end, though a short run would fit.
			require.Equal(t, maxDuration, got, "%d %d %d %d", run, gpus, capacity, users)
			require.Positive(t, share.Cmp(new(big.Int).Lsh(big.NewInt(1), 64)))
		}
	}
	require.Equal(t, 4*time.Hour, IdealTime(time.Hour, 8000, 64_000, 32), "2 devices for each of 32, where it asks for 8")
	require.Equal(t, time.Hour, IdealTime(time.Hour, 2000, 64_000, 32))
}
