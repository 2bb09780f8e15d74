package detect

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFunctionsAgreeWithPackageMath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		x := math.Exp(80*r.Float64() - 40)
		require.InDelta(t, math.Log(x), logOf(x), 1e-14*max(1, math.Abs(math.Log(x))))
		y := 1200*r.Float64() - 600
		require.InEpsilon(t, math.Exp(y), expOf(y), 1e-13)
		z := 12*r.Float64() - 6
		require.InDelta(t, math.Erfc(-z/math.Sqrt2)/2, normal(z), 1e-7)
	}
	require.Zero(t, logOf(1))
	require.Equal(t, 1.0, expOf(0))
	require.Zero(t, expOf(-1000))
	require.Equal(t, math.Inf(1), expOf(1000))
	require.InDelta(t, 1.6448536, quantile(0.95), 1e-5)
}
