package int128

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMulDivIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	draw := func() int64 { return rng.Int64() >> rng.IntN(63) }
	most := big.NewInt(math.MaxInt64)
	for range 20_000 {
		a, b, c := draw(), draw(), max(draw(), 1)
		down, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		up := new(big.Int).Set(down)
		if rest.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		for _, v := range []*big.Int{down, up} {
			if v.Cmp(most) > 0 {
				v.Set(most)
			}
		}
		require.Equal(t, down.Int64(), MulDiv(a, b, c), "%d × %d / %d", a, b, c)
		require.Equal(t, up.Int64(), MulDivUp(a, b, c), "%d × %d / %d", a, b, c)
	}
	require.Zero(t, MulDiv(-5, 3, 1))
	require.Zero(t, MulDivUp(5, -3, 1))
	require.Equal(t, int64(math.MaxInt64), MulDiv(math.MaxInt64, math.MaxInt64, 1))
	require.Equal(t, int64(math.MaxInt64), MulDivUp(math.MaxInt64, 2, 2))
}

func TestFloorDivRoundsDown(t *testing.T) {
	for a := int64(-20); a <= 20; a++ {
		for b := int64(1); b < 8; b++ {
			require.Equal(t, int64(math.Floor(float64(a)/float64(b))), FloorDiv(a, b))
		}
	}
	require.Equal(t, int64(math.MinInt64), FloorDiv(math.MinInt64, 1))
	require.Equal(t, int64(-1), FloorDiv(math.MinInt64, math.MaxInt64)+1)
}
