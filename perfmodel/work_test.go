package perfmodel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// slowPairs counts the pairs one query at a time.
func slowPairs(k Mask, lens []int) int64 {
	var n int64
	for _, l := range lens {
		for q := 1; q <= l; q++ {
			switch {
			case k.Full:
				n += int64(l)
			case k.Window > 0:
				n += int64(min(q, k.Window))
			default:
				n += int64(q)
			}
		}
	}
	return n
}

func randomLens(r *rand.Rand) []int {
	lens := make([]int, 1+r.IntN(6))
	for i := range lens {
		lens[i] = 1 + r.IntN(40)
	}
	return lens
}

func TestPairsAreThoseCountedOneByOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		lens, k := randomLens(r), Mask{Full: r.IntN(3) == 0}
		if !k.Full {
			k.Window = r.IntN(50)
		}
		b, err := k.Batch(lens)
		require.NoError(t, err)
		require.Equal(t, float64(slowPairs(k, lens)), b.Pairs, "%+v %v", k, lens)
	}
}

func TestPairsOfHugeDocumentsAreExactUpToOneRounding(t *testing.T) {
	lens := repeat(4096, 1_000_000)
	lens[17] = 999_999
	for i, k := range []Mask{{}, {Full: true}, {Window: 4096}} {
		sum := new(big.Int)
		for _, l := range lens {
			n, term := int64(l), new(big.Int)
			switch i {
			case 0:
				term.Rsh(term.Mul(big.NewInt(n), big.NewInt(n+1)), 1)
			case 1:
				term.Mul(big.NewInt(n), big.NewInt(n))
			case 2:
				term.SetInt64(4096*4097/2 + (n-4096)*4096)
			}
			sum.Add(sum, term)
		}
		want, _ := new(big.Float).SetInt(sum).Float64()
		b, err := k.Batch(lens)
		require.NoError(t, err)
		require.Equal(t, want, b.Pairs)
	}
}

func TestOrderOfDocumentsDoesNotMatterAndMergingNeverLowers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m := llama3()
	for range 1000 {
		lens := make([]int, 2+r.IntN(20))
		for i := range lens {
			lens[i] = 1 + r.IntN(1<<r.IntN(20))
		}
		m.Mask = Mask{Full: r.IntN(3) == 0}
		if !m.Mask.Full {
			m.Mask.Window = r.IntN(3) * 4096
		}
		b, err := m.Batch(lens, 0)
		require.NoError(t, err)
		s := Stage{Layers: 1 + r.IntN(32), Last: r.IntN(2) == 0, Flash: r.IntN(2) == 0, Recompute: Recompute(r.IntN(3))}
		before := m.Work(s, b)

		mixed := slices.Clone(lens)
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		again, err := m.Batch(mixed, b.Tokens)
		require.NoError(t, err)
		require.Equal(t, b, again)

		merged := append([]int{mixed[0] + mixed[1]}, mixed[2:]...)
		one, err := m.Batch(merged, b.Tokens)
		require.NoError(t, err)
		after := m.Work(s, one)
		require.GreaterOrEqual(t, after.Forward.Total(), before.Forward.Total())
		require.GreaterOrEqual(t, after.Input.Total(), before.Input.Total())
		require.Equal(t, before.Weight, after.Weight)
	}
}

func TestBadBatchesAreNamed(t *testing.T) {
	m := llama7B()
	for _, c := range []struct {
		lens         []int
		tokens       int64
		field, value string
	}{
		{nil, 0, "lens", ""},
		{[]int{5, 0}, 0, "lens[1]", "0"},
		{[]int{-3}, 0, "lens[0]", "-3"},
		{[]int{131072, 131073}, 0, "lens[1]", "131073"},
		{[]int{1000, 1000}, 2048, "tokens", "2048"},
		{[]int{1000, 1000}, -1, "tokens", "-1"},
	} {
		_, err := m.Batch(c.lens, c.tokens)
		requireFault(t, err, lockstep.ErrInvalid, c.field, c.value)
	}
	_, err := Mask{Window: -1}.Batch([]int{1})
	requireFault(t, err, lockstep.ErrInvalid, "Window", "-1")
	if strconv.IntSize == 64 {
		tera := int64(1) << 40
		huge := int(tera)
		_, err = Mask{}.Batch(repeat(257, huge))
		requireFault(t, err, lockstep.ErrInvalid, "lens[256]", "1099511627776")
		b, err := Mask{Full: true}.Batch(repeat(256, huge))
		require.NoError(t, err)
		require.Equal(t, Batch{1 << 48, math.Ldexp(1, 88)}, b)
		_, err = Mask{}.Batch([]int{math.MaxInt})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestWorkOfPublishedModels(t *testing.T) {
	for _, c := range []struct {
		m         Model
		linear    float64
		crossover float64 // length at which causal attention costs as much as the linear part
	}{
		{llama7B(), 404_750_336, 49_408},
		{llama13B(), 634_388_480, 61_952},
		{llama70B(), 1_711_276_032, 104_448},
		{llama3(), 436_207_616, 53_248},
	} {
		one := c.m.Work(Stage{Layers: 1}, Batch{Tokens: 1, Pairs: 1})
		require.Equal(t, lockstep.FLOPs(c.linear), one.Forward.Linear)
		require.Equal(t, c.crossover, c.linear/float64(2*c.m.Hidden))
	}
}

func TestForwardOfPackedMicroBatches(t *testing.T) {
	m := llama7B()
	flops := func(n, l int) float64 {
		b, err := m.Batch(repeat(n, l), int64(n*l))
		require.NoError(t, err)
		return float64(m.Work(m.Whole(), b).Forward.Total())
	}
	for _, c := range []struct {
		n, l int
		want float64
	}{
		{1, 4096, 58_524_298_117_120},
		{4, 1024, 55_225_763_233_792},
		{1, 8192, 125_844_689_256_448},
		{8, 1024, 110_451_526_467_584},
		{1, 32768, 714_484_989_558_784},
		{32, 1024, 441_806_105_870_336},
		{8, 4096, 468_194_384_936_960},
	} {
		require.Equal(t, c.want, flops(c.n, c.l))
	}
	round := func(x float64) float64 { return math.Round(x*100) / 100 }
	require.Equal(t, 1.62, round(flops(1, 32768)/flops(32, 1024)))
	require.Equal(t, 1.14, round(flops(1, 8192)/flops(8, 1024)))
	require.Equal(t, 1.06, round(flops(1, 4096)/flops(4, 1024)))
}

func TestAttentionOfOneLongDocumentAndFourShort(t *testing.T) {
	ratio := func(k Mask) float64 {
		long, err := k.Batch([]int{4096})
		require.NoError(t, err)
		short, err := k.Batch(repeat(4, 1024))
		require.NoError(t, err)
		return long.Pairs / short.Pairs
	}
	require.Equal(t, 4.0, ratio(Mask{Full: true}))
	require.Equal(t, 3.997, math.Round(ratio(Mask{})*1000)/1000)
}

func TestStepOfGPT3AgreesWithMegatronsFormula(t *testing.T) {
	m := gpt3()
	b, err := m.Batch([]int{2048}, 0)
	require.NoError(t, err)
	s, l, h, v := 2048.0, 96.0, 12288.0, 51200.0
	step := func(r Recompute) float64 {
		stage := m.Whole()
		stage.Recompute = r
		w := m.Work(stage, b)
		return float64(w.Forward.Total() + w.Backward().Total())
	}
	plain := 72 * s * l * h * h * (1 + s/(6*h) + v/(12*l*h))
	full := 96 * s * l * h * h * (1 + s/(6*h) + v/(16*l*h))
	require.InEpsilon(t, plain, step(RecomputeNone), 1e-14)
	require.InEpsilon(t, full, step(RecomputeFull), 1e-14)
	require.Equal(t, 2.2046, math.Round(step(RecomputeNone)/1e11)/1e4)
	require.Equal(t, 2.9368, math.Round(step(RecomputeFull)/1e11)/1e4)
}

func TestBackwardIsSplit(t *testing.T) {
	m := llama3()
	b, err := m.Batch([]int{4096, 100}, 0)
	require.NoError(t, err)
	plain := m.Work(Stage{Layers: 7, Last: true}, b)
	head := lockstep.FLOPs(2 * 4096 * 128256 * 4196)
	lin, quad := plain.Forward.Linear, plain.Forward.Quadratic
	require.Equal(t, lockstep.FLOPs(2*32*128*(4096*4097+100*101)*7), quad)
	require.Equal(t, Cost{lin, 2 * quad}, plain.Input)
	require.Equal(t, Cost{lin, 0}, plain.Weight)
	require.Equal(t, Cost{2 * lin, 2 * quad}, plain.Backward())
	for _, c := range []struct {
		s    Stage
		want Cost
	}{
		{Stage{Flash: true}, Cost{lin, 2.5 * quad}},
		{Stage{Recompute: RecomputeSelective}, Cost{lin, 3 * quad}},
		{Stage{Recompute: RecomputeFull}, Cost{2*lin - head, 3 * quad}},
		{Stage{Recompute: RecomputeFull, Flash: true}, Cost{2*lin - head, 3.5 * quad}},
	} {
		c.s.Layers, c.s.Last = 7, true
		w := m.Work(c.s, b)
		require.Equal(t, c.want, w.Input)
		require.Equal(t, plain.Forward, w.Forward)
		require.Equal(t, plain.Weight, w.Weight)
	}
	first := m.Work(Stage{Layers: 7, First: true}, b)
	require.Equal(t, lin-head, first.Forward.Linear, "an embedding costs nothing, and a head is the last stage's")
	require.Zero(t, m.Work(Stage{}, b))
}

func TestGroupedQueriesShrinkOnlyProjections(t *testing.T) {
	wide, narrow := llama3(), llama3()
	wide.KVHeads = 32
	b := Batch{Tokens: 10, Pairs: 55}
	w, n := wide.Work(Stage{Layers: 1}, b).Forward, narrow.Work(Stage{Layers: 1}, b).Forward
	require.Equal(t, w.Quadratic, n.Quadratic)
	require.Equal(t, lockstep.FLOPs(10*2*2*4096*24*128), w.Linear-n.Linear)
}

func TestExpertsReplaceTheFeedForwardBlock(t *testing.T) {
	m := llama3()
	dense := m.Work(Stage{Layers: 1}, Batch{Tokens: 1}).Forward.Linear
	m.Experts, m.TopK, m.SharedExperts, m.ExpertFFN = 64, 6, 2, 1408
	got := m.Work(Stage{Layers: 1}, Batch{Tokens: 1}).Forward.Linear
	require.Equal(t, dense-2*3*4096*14336+2*4096*64+2*3*4096*1408*(6+2), got)
	m.Gated = false
	require.Equal(t, got-2*4096*1408*8, m.Work(Stage{Layers: 1}, Batch{Tokens: 1}).Forward.Linear)
}

func TestTimeIsQuantisedOnce(t *testing.T) {
	c := Cost{Linear: 3e12, Quadratic: 1e12}
	require.Equal(t, 4*time.Second, c.Time(Rate{Linear: 1e12}))
	require.Equal(t, 5*time.Second, c.Time(Rate{Linear: 1e12, Quadratic: 5e11}))
	require.Equal(t, time.Duration(3), Cost{Linear: 5}.Time(Rate{Linear: 2e9}), "half a nanosecond goes up")
	require.Zero(t, Cost{}.Time(Rate{Linear: 1}))
	for _, r := range []Rate{{}, {Linear: -1}, {Linear: 1, Quadratic: -1}, {Linear: lockstep.FLOPs(math.NaN())}} {
		require.Equal(t, time.Duration(math.MaxInt64), c.Time(r))
	}
	require.Equal(t, time.Duration(math.MaxInt64), c.Time(Rate{Linear: 1e-9}))
	require.Equal(t, time.Duration(math.MaxInt64), Cost{Linear: lockstep.FLOPs(math.NaN())}.Time(Rate{Linear: 1}))
}

func TestTheModelAllocatesNothing(t *testing.T) {
	m, lens := llama3(), repeat(64, 512)
	g := GroupShape{{8, Link{time.Microsecond, 450e9}}, {4, Link{time.Microsecond, 50e9}}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := m.Memory(Layout{TP: 8, DP: 4, ZeRO: 3}, m.Whole(), Load{Tokens: 4096})
		if _, _, ok := g.Best(AllReduce, 1<<30); !ok || err != nil {
			t.Fail()
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b, err := m.Batch(lens, 64*512)
		if err != nil || m.Work(m.Whole(), b).Forward.Linear == 0 {
			t.Fail()
		}
	}))
}
