package scaling

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// transformer returns the parameters of a small target.
func transformer() []Param {
	return []Param{
		{Name: "embed", Role: Input, In: 50257, Out: 1024},
		{Name: "norm", Role: Vector, Out: 1024},
		{Name: "query", Role: Hidden, In: 1024, Out: 1024, Heads: 16},
		{Name: "up", Role: Hidden, In: 1024, Out: 4096},
		{Name: "head", Role: Output, In: 1024, Out: 50257},
		{Name: "temperature", Role: Scalar},
	}
}

func TestRulesAreThoseOfTheTable(t *testing.T) {
	plan, err := New(transformer(), 8, Options{})
	require.NoError(t, err)
	one := Multipliers{1, 1, 1}
	for i, want := range []Rule{
		{InitStd: 1, Forward: 1, Adam: one, SGD: Multipliers{0.125, 8, 1}},
		{InitStd: 1, Forward: 1, Adam: one, SGD: Multipliers{0.125, 8, 1}},
		{InitStd: math.Sqrt(8), Forward: 1, Adam: Multipliers{8, 0.125, 1}, SGD: one},
		{InitStd: math.Sqrt(8), Forward: 1, Adam: Multipliers{8, 0.125, 1}, SGD: one},
		{InitStd: 1, InitZero: true, Forward: 8, Adam: one, SGD: Multipliers{0.125, 8, 1}},
		{InitStd: 1, Forward: 1, Adam: one, SGD: one},
	} {
		got := plan.Rules[i]
		require.Equal(t, transformer()[i], got.Param)
		want.Param, want.SurrogateIn, want.SurrogateOut = got.Param, got.SurrogateIn, got.SurrogateOut
		require.Equal(t, want, got)
	}
	require.InDelta(t, 2.828427, plan.Rules[2].InitStd, 1e-6)
	require.Equal(t, int64(512), plan.Rules[3].SurrogateOut)
	require.Equal(t, int64(50257), plan.Rules[4].SurrogateOut)
}

func TestMixedRatios(t *testing.T) {
	r, err := Between(Param{Name: "w", Role: Hidden, In: 1024, Out: 4096}, 128, 1024, CompatNone)
	require.NoError(t, err)
	require.Equal(t, 8.0, r.Adam.LR)
	require.Equal(t, 2.0, r.SGD.LR)
	require.InDelta(t, 2.828427, r.InitStd, 1e-6)
}

func TestAttentionScaleOfTheSurrogate(t *testing.T) {
	s, err := AttentionScale(64, 8)
	require.NoError(t, err)
	require.Equal(t, 1.0, s) // 1/sqrt(8) would be 0.353553
	same, err := AttentionScale(64, 64)
	require.NoError(t, err)
	require.Equal(t, 1/math.Sqrt(64), same)
	for _, bad := range [][2]int64{{0, 8}, {64, 0}, {-1, 8}, {64, math.MaxInt64}} {
		_, err := AttentionScale(bad[0], bad[1])
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestHydroDiffersInTwoRules(t *testing.T) {
	plain, err := New(transformer(), 8, Options{})
	require.NoError(t, err)
	hydro, err := New(transformer(), 8, Options{Compat: CompatHydro})
	require.NoError(t, err)
	require.Equal(t, 8.0, hydro.Rules[2].SGD.LR)
	require.InDelta(t, math.Sqrt(8), hydro.Rules[0].InitStd, 1e-12)
	for _, i := range []int{1, 4, 5} {
		require.Equal(t, plain.Rules[i], hydro.Rules[i])
	}
}

func TestPlanForOneChangesNothing(t *testing.T) {
	plan, err := New(transformer(), 1, Options{MinWidth: 1 << 20})
	require.NoError(t, err)
	for _, r := range plan.Rules {
		require.Equal(t, [2]int64{r.In, r.Out}, [2]int64{r.SurrogateIn, r.SurrogateOut})
		require.Equal(t, []float64{1, 1, 1, 1, 1, 1, 1, 1}, []float64{
			r.InitStd, r.Forward, r.Adam.LR, r.Adam.Coupled, r.Adam.Decoupled, r.SGD.LR, r.SGD.Coupled, r.SGD.Decoupled,
		})
	}
}

func TestPlansCompose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := int64(1)<<rng.IntN(4), int64(1)<<rng.IntN(4)
		p := Param{Name: "w", Role: []Role{Input, Vector, Hidden, Output, Scalar}[rng.IntN(5)]}
		in, out := p.Role.widths()
		width := func() int64 { return a * b * int64(2+rng.IntN(100)) }
		if in || p.Role == Input {
			p.In = width()
		}
		if out || p.Role == Output {
			p.Out = width()
		}
		o := Options{MinWidth: 2}
		whole, err := New([]Param{p}, a*b, o)
		require.NoError(t, err)
		first, err := New([]Param{p}, a, o)
		require.NoError(t, err)
		middle := p
		middle.In, middle.Out = first.Rules[0].SurrogateIn, first.Rules[0].SurrogateOut
		second, err := New([]Param{middle}, b, o)
		require.NoError(t, err)
		w, f, s := whole.Rules[0], first.Rules[0], second.Rules[0]
		require.Equal(t, [2]int64{w.SurrogateIn, w.SurrogateOut}, [2]int64{s.SurrogateIn, s.SurrogateOut})
		require.InEpsilon(t, w.InitStd, f.InitStd*s.InitStd, 1e-12)
		require.Equal(t, w.Forward, f.Forward*s.Forward)
		for _, m := range [][3]Multipliers{{w.Adam, f.Adam, s.Adam}, {w.SGD, f.SGD, s.SGD}} {
			require.InEpsilon(t, m[0].LR, m[1].LR*m[2].LR, 1e-12)
			require.InEpsilon(t, 1.0, m[0].LR*m[0].Coupled, 1e-15)
			require.Equal(t, 1.0, m[0].Decoupled)
			require.False(t, m[0].LR <= 0 || math.IsInf(m[0].LR, 0) || math.IsNaN(m[0].LR))
		}
	}
}

func TestBadShapesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		param Param
		ratio int64
		o     Options
		field string
	}{
		{"too narrow becomes 0", Param{Name: "w", Role: Hidden, In: 64, Out: 4}, 8, Options{MinWidth: 2}, "params[0].Out"},
		{"below the least width", Param{Name: "w", Role: Hidden, In: 128, Out: 512}, 8, Options{}, "params[0].In"},
		{"groups become 0", Param{Name: "w", Role: Hidden, In: 512, Out: 512, Groups: 4}, 8, Options{}, "params[0].Groups"},
		{"heads do not divide", Param{Name: "w", Role: Hidden, In: 768, Out: 768, Heads: 12}, 128, Options{MinWidth: 2}, "params[0].In"},
		{"not a multiple of 8", Param{Name: "w", Role: Hidden, In: 672, Out: 672}, 16, Options{Multiple: 8}, "params[0].In"},
		{"three widths", Param{Name: "w", Role: Hidden, In: 512, Out: 512, Widths: 3}, 2, Options{}, "params[0].Widths"},
		{"tied", Param{Name: "w", Role: Input, In: 50257, Out: 1024, Tied: true}, 2, Options{}, "params[0].Tied"},
		{"no role", Param{Name: "w"}, 2, Options{}, "params[0].Role"},
		{"no name", Param{Role: Scalar}, 2, Options{}, "params[0].Name"},
		{"vector with fan-in", Param{Name: "w", Role: Vector, In: 3, Out: 64}, 2, Options{}, "params[0].In"},
		{"no width", Param{Name: "w", Role: Output, Out: 10}, 2, Options{}, "params[0].In"},
		{"negative", Param{Name: "w", Role: Hidden, In: -8, Out: 64}, 2, Options{}, "params[0].In"},
		{"ratio 0", Param{Name: "w", Role: Scalar}, 0, Options{}, "ratio"},
		{"least width 1", Param{Name: "w", Role: Scalar}, 2, Options{MinWidth: 1}, "MinWidth"},
		{"multiple -1", Param{Name: "w", Role: Scalar}, 2, Options{Multiple: -1}, "Multiple"},
		{"compat", Param{Name: "w", Role: Scalar}, 2, Options{Compat: "ray"}, "Compat"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := New([]Param{tt.param}, tt.ratio, tt.o)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.ErrorContains(t, err, tt.field)
			require.Zero(t, plan)
		})
	}
	_, err := New([]Param{{Name: "w", Role: Scalar}, {Name: "w", Role: Scalar}}, 1, Options{})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = Between(Param{Name: "w", Role: Input, In: 10, Out: 64}, 5, 32, CompatNone)
	require.ErrorContains(t, err, "surrogateIn")
	_, err = Between(Param{Name: "w", Role: Hidden, In: 10, Out: 64}, 0, 32, CompatNone)
	require.ErrorContains(t, err, "surrogateIn")
}

func TestChooseSaysWhyItStops(t *testing.T) {
	params := []Param{{Name: "w", Role: Hidden, In: 2048, Out: 2048, Heads: 32}}
	for _, tt := range []struct {
		name  string
		speed func(int64) (float64, bool)
		o     Options
		want  Choice
	}{
		{"largest", nil, Options{}, Choice{Ratio: 32, Stop: StopLargest}},
		{"shape", nil, Options{MinWidth: 512}, Choice{Ratio: 4, Stop: StopShape}},
		{"gain", func(r int64) (float64, bool) { return min(float64(r), 5), true }, Options{}, Choice{Ratio: 4, Stop: StopGain, Gain: 1.25}},
		{"unknown", func(r int64) (float64, bool) { return float64(r), r < 4 }, Options{}, Choice{Ratio: 2, Stop: StopUnknown}},
		{"no number", func(r int64) (float64, bool) { return math.NaN(), true }, Options{}, Choice{Ratio: 1, Stop: StopUnknown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Choose(params, tt.speed, 0, tt.o)
			require.NoError(t, err)
			require.NotEmpty(t, got.Reason)
			got.Reason = ""
			require.Equal(t, tt.want, got)
		})
	}
	for _, gain := range []float64{-1, 0.5, math.NaN(), math.Inf(1)} {
		_, err := Choose(params, nil, gain, Options{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := Choose([]Param{{Name: "w"}}, nil, 0, Options{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestRegularisersDoNotTransfer(t *testing.T) {
	for h, want := range map[Hyper]bool{
		LearningRate: true, Momentum: true, BatchSize: true, InitScale: true, Multiplier: true,
		Dropout: false, WeightDecay: false, Regularizer: false, Depth: false, "colour": false,
	} {
		got, why := Transfers(h)
		require.Equal(t, want, got, h)
		require.NotEmpty(t, why)
	}
}

func TestCheckFindsWhatDependsOnTheWidth(t *testing.T) {
	var sizes []Coordinate
	for _, w := range []int64{512, 64, 256, 128} {
		sizes = append(sizes,
			Coordinate{"fades", w, 2, 1 / math.Sqrt(float64(w))},
			Coordinate{"fades", w, 0, 1 / math.Sqrt(float64(w))},
			Coordinate{"flat", w, 2, 3 + 0.01*float64(w%3)},
			Coordinate{"grows", w, 0, math.Sqrt(float64(w))})
	}
	got, err := Check(sizes, 0)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, []bool{false, true, false, false}, []bool{got[0].Fades, got[1].Fades, got[2].Fades, got[3].Fades})
	require.Equal(t, []bool{false, false, false, true}, []bool{got[0].Grows, got[1].Grows, got[2].Grows, got[3].Grows})
	require.InDelta(t, -0.5, got[0].Slope, 1e-12)

	for _, bad := range [][]Coordinate{
		{{"a", 64, 0, 1}},
		{{"a", 64, 0, 1}, {"a", 64, 0, 2}},
		{{"a", 0, 0, 1}},
		{{"a", 64, -1, 1}},
		{{"a", 64, 0, 0}},
		{{"a", 64, 0, math.NaN()}},
		{{"a", 64, 0, math.Inf(1)}},
	} {
		_, err := Check(bad, 0)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = Check(nil, math.NaN())
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	none, err := Check(nil, 0)
	require.NoError(t, err)
	require.Empty(t, none)
}

// Complaint 40: mup #1 (a decoupled decay was scaled), mup #56 and PR #73 (decay by L2 under Adam degrades with width),
// gpt-neox #956 (a wrong parametrization goes unseen without a coordinate check).
func TestComplaint40DecayKeepsItsMeaningAndWrongRolesShow(t *testing.T) {
	plan, err := New(transformer(), 8, Options{})
	require.NoError(t, err)
	for _, r := range plan.Rules {
		for _, m := range []Multipliers{r.Adam, r.SGD} {
			require.Equal(t, 1.0, m.Decoupled, r.Name)
			require.Equal(t, 1.0, m.LR*m.Coupled, r.Name)
		}
	}
	transfers, _ := Transfers(WeightDecay)
	require.False(t, transfers)
	// A readout that was taken for a hidden matrix lacks its multiplier, and its logits grow with the width.
	var sizes []Coordinate
	for _, w := range []int64{128, 256, 512, 1024} {
		wrong, err := Between(Param{Name: "head", Role: Hidden, In: 1024, Out: 1024}, w, w, CompatNone)
		require.NoError(t, err)
		right, err := Between(Param{Name: "head", Role: Output, In: 1024, Out: 512}, w, 512, CompatNone)
		require.NoError(t, err)
		// After an update the products of a layer's weights and inputs add up: fan-in times what multiplies them.
		sizes = append(sizes,
			Coordinate{Layer: "right", Width: w, Step: 1, Size: float64(w) * right.Forward},
			Coordinate{Layer: "wrong", Width: w, Step: 1, Size: float64(w) * wrong.Forward})
	}
	slopes, err := Check(sizes, 0)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, []bool{slopes[0].Grows, slopes[1].Grows})
}
