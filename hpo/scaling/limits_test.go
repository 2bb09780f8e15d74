package scaling

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestGroupsThatShrinkKeepTheirFanIn(t *testing.T) {
	depthwise := Param{Name: "w", Role: Hidden, In: 512, Out: 512, Groups: 512}
	plan, err := New([]Param{depthwise}, 8, Options{})
	require.NoError(t, err)
	got := plan.Rules[0]
	require.Equal(t, [3]int64{64, 64, 64}, [3]int64{got.SurrogateIn, got.SurrogateOut, got.SurrogateGroups})
	require.Equal(t, []float64{1, 1, 1, 0.125}, []float64{got.InitStd, got.Forward, got.Adam.LR, got.SGD.LR}, "its weights have one width, as those of an input")
	whole := Param{Name: "w", Role: Hidden, In: 512, Out: 512, Groups: 1}
	plan, err = New([]Param{whole}, 8, Options{})
	require.NoError(t, err)
	require.Equal(t, []float64{8, 1}, []float64{plan.Rules[0].Adam.LR, plan.Rules[0].SGD.LR})
	same, err := Between(depthwise, 256, 256, CompatNone) // the groups stay
	require.NoError(t, err)
	require.Equal(t, []float64{2, 1}, []float64{same.Adam.LR, same.SGD.LR})
	hydro, err := New([]Param{depthwise}, 8, Options{Compat: CompatHydro})
	require.NoError(t, err)
	require.Equal(t, 8.0, hydro.Rules[0].SGD.LR, "by the ratio, whatever it is of")
}

func TestGainIsComparedInMillionths(t *testing.T) {
	params := []Param{{Name: "w", Role: Hidden, In: 1 << 20, Out: 1 << 20}}
	for _, speed := range []float64{0.1, 0.3, 0.7, 1, 3, 7, 1e-9, 1e9} {
		got, err := Choose(params, func(r int64) (float64, bool) {
			return speed * math.Pow(1.3, math.Log2(float64(r))), true // a hair less than 1.3 for some
		}, 0, Options{})
		require.NoError(t, err)
		require.Equal(t, int64(maxRatio), got.Ratio)
	}
	got, err := Choose(params, func(r int64) (float64, bool) { return math.Pow(1.2999, math.Log2(float64(r))), true }, 0, Options{})
	require.NoError(t, err)
	require.Equal(t, StopGain, got.Stop)
	got, err = Choose(params, func(r int64) (float64, bool) { return map[int64]float64{1: 1e-300, 2: 1e300}[r], r < 3 }, 0, Options{})
	require.NoError(t, err)
	require.Equal(t, Choice{Ratio: 2, Stop: StopUnknown, Reason: got.Reason}, got, "a gain without end is one")
}

func TestAllFaultsAreReportedTogether(t *testing.T) {
	_, err := New([]Param{{Name: "a", Role: Hidden, In: 100, Out: 30}, {Name: "a", Role: "x"}, {Role: Scalar}}, 8, Options{})
	for _, want := range []string{"params[0].In", "params[0].Out", "params[1].Name", "params[1].Role", "params[2].Name"} {
		require.ErrorContains(t, err, want)
	}
	for _, ratio := range []int64{-1, math.MinInt64, math.MaxInt64, maxAxis + 1} {
		_, err := New(nil, ratio, Options{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestToleranceParts(t *testing.T) {
	sizes := func(power float64) []Coordinate {
		var out []Coordinate
		for _, w := range []int64{64, 128, 4096} {
			out = append(out, Coordinate{"a", w, 1, math.Pow(float64(w), power)})
		}
		return out
	}
	for power, want := range map[float64][2]bool{0.16: {true, false}, 0.14: {false, false}, -0.14: {false, false}, -0.16: {false, true}} {
		got, err := Check(sizes(power), 0)
		require.NoError(t, err)
		require.Equal(t, want, [2]bool{got[0].Grows, got[0].Fades})
		require.InDelta(t, power, got[0].Slope, 1e-9)
	}
}

func TestGroupsOfWhatHasNoWidthStay(t *testing.T) {
	plan, err := New([]Param{{Name: "w", Role: Scalar, In: 9, Out: 9, Groups: 3}}, 8, Options{})
	require.NoError(t, err)
	require.Equal(t, int64(3), plan.Rules[0].SurrogateGroups)
	require.Equal(t, [2]int64{9, 9}, [2]int64{plan.Rules[0].SurrogateIn, plan.Rules[0].SurrogateOut})
}
