package num

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFunctionsAgreeWithPackageMath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		x := math.Exp(80*r.Float64() - 40)
		require.InDelta(t, math.Log(x), Log(x), 1e-14*max(1, math.Abs(math.Log(x))))
		y := 1200*r.Float64() - 600
		require.InEpsilon(t, math.Exp(y), Exp(y), 1e-13)
		z := 12*r.Float64() - 6
		require.InDelta(t, math.Erfc(-z/math.Sqrt2)/2, Normal(z), 1e-7)
	}
	require.Zero(t, Log(1))
	require.Equal(t, 1.0, Exp(0))
	require.Zero(t, Exp(-1000))
	require.Equal(t, math.Inf(1), Exp(1000))
}

func TestDurationsAreRoundedAndHeld(t *testing.T) {
	require.Zero(t, Duration(-1))
	require.Zero(t, Duration(math.NaN()))
	require.Equal(t, time.Duration(2), Duration(1.5))
	require.Equal(t, time.Duration(math.MaxInt64), Duration(1e19))
}
