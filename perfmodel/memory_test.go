package perfmodel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const gb = lockstep.Bytes(1e9)

func TestStatesOfSevenBillionParameters(t *testing.T) {
	const params = 7_000_000_000
	noMaster := Precision{Weight: 2, Gradient: 2, Optimizer: 8}
	for _, c := range []struct {
		p     Precision
		ranks int
		want  [4]lockstep.Bytes // by stage of ZeRO
	}{
		{Precision{}, 1, [4]lockstep.Bytes{112 * gb, 112 * gb, 112 * gb, 112 * gb}},
		{Precision{}, 8, [4]lockstep.Bytes{112 * gb, 38_500_000_000, 26_250_000_000, 14 * gb}},
		{Precision{}, 64, [4]lockstep.Bytes{112 * gb, 29_312_500_000, 15_531_250_000, 1_750_000_000}},
		{noMaster, 8, [4]lockstep.Bytes{84 * gb, 35 * gb, 22_750_000_000, 10_500_000_000}},
		{noMaster, 64, [4]lockstep.Bytes{84 * gb, 28_875_000_000, 15_093_750_000, 1_312_500_000}},
	} {
		for zero, want := range c.want {
			m, err := c.p.States(params, zero, c.ranks)
			require.NoError(t, err)
			require.Equal(t, want, m.Total(), "%+v ZeRO %d on %d", c.p, zero, c.ranks)
		}
	}
	m, err := Precision{}.States(params, 0, 1)
	require.NoError(t, err)
	require.Equal(t, Memory{Parameters: params, Weights: 14 * gb, Gradients: 14 * gb, Optimizer: 56 * gb, Master: 28 * gb}, m)
	m, err = Precision{Weight: 2}.States(7, 3, 2)
	require.NoError(t, err)
	require.Equal(t, Memory{Parameters: 7, Weights: 8}, m, "what is divided is rounded up; what is not kept is nothing")
}

func TestOneRankHasTheParametersOfTheFormula(t *testing.T) {
	for _, m := range []Model{llama7B(), llama13B(), llama70B(), llama3(), gpt3()} {
		for _, tp := range []int{1, 2, 4, 8} {
			stages, err := m.Split(4, Stage{Flash: true})
			require.NoError(t, err)
			for _, s := range stages {
				r, err := m.Memory(Layout{TP: tp, PP: 4}, s, Load{Tokens: 1})
				require.NoError(t, err)
				// The formula divides everything but the final norm; the norms of a layer are whole on every rank as well.
				t64, h, v := int64(tp), int64(m.Hidden), int64(m.Vocab)
				one := m.Parameters(Stage{Layers: 1})
				want := int64(s.Layers) * ((one-2*h)/t64 + 2*h)
				if s.First {
					want += v * h / t64
				}
				if s.Last {
					want += v*h/t64 + h
				}
				require.Equal(t, want, r.Parameters)
			}
		}
	}
}

func TestActivationsOfOneLayer(t *testing.T) {
	m, mib := gpt7B(), lockstep.MiB
	for _, c := range []struct {
		l    Layout
		s    Stage
		want lockstep.Bytes
	}{
		{Layout{}, Stage{}, 3104 * mib},
		{Layout{}, Stage{Flash: true}, 544 * mib},
		{Layout{}, Stage{Recompute: RecomputeSelective}, 544 * mib},
		{Layout{TP: 8}, Stage{Flash: true}, 208 * mib},
		{Layout{TP: 8, SequenceParallel: true}, Stage{Flash: true}, 68 * mib},
		{Layout{}, Stage{Recompute: RecomputeFull}, 32 * mib},
		{Layout{TP: 8}, Stage{Recompute: RecomputeFull}, 32 * mib},
		{Layout{TP: 8, SequenceParallel: true}, Stage{Recompute: RecomputeFull}, 4 * mib},
	} {
		c.s.Layers = 1
		r, err := m.Memory(c.l, c.s, Load{Tokens: 4096})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Activations, "%+v %+v", c.l, c.s)
	}
	// The scores of several sequences are those of each.
	r, err := m.Memory(Layout{}, Stage{Layers: 1}, Load{Tokens: 4096, Sequence: 1024})
	require.NoError(t, err)
	require.Equal(t, (544+2560/4)*mib, r.Activations)
	// Full recompute has one layer in full, selective the scores of one.
	r, err = m.Memory(Layout{}, Stage{Layers: 9, Recompute: RecomputeFull}, Load{Tokens: 4096, InFlight: 3})
	require.NoError(t, err)
	require.Equal(t, 3104*mib, r.Recomputed)
	require.Equal(t, 9*3*32*mib, r.Activations)
	r, err = m.Memory(Layout{}, Stage{Layers: 9, Recompute: RecomputeSelective}, Load{Tokens: 4096})
	require.NoError(t, err)
	require.Equal(t, 2560*mib, r.Recomputed)
}

// TestActivationsFollowTheShape counts a gated layer with grouped queries by hand, which the published constants do not cover.
func TestActivationsFollowTheShape(t *testing.T) {
	m := llama3()
	r, err := m.Memory(Layout{TP: 4}, Stage{Layers: 1, Flash: true}, Load{Tokens: 10})
	require.NoError(t, err)
	perToken := 2*4*4096 + // inputs of norms and blocks
		2*(4096+4096+2*8*128)/4 + // queries, input of the projection, keys, values
		2*3*14336/4
	require.Equal(t, lockstep.Bytes(10*perToken), r.Activations)

	// More ranks than key and value heads: each has one of them whole.
	r, err = m.Memory(Layout{TP: 16}, Stage{Layers: 1, Flash: true}, Load{Tokens: 10})
	require.NoError(t, err)
	perToken = 2*4*4096 + 2*(2*4096/16+2*128) + 2*3*14336/16
	require.Equal(t, lockstep.Bytes(10*perToken), r.Activations)
	require.Equal(t, int64(4096*(2*256+2*128)+3*4096*14336/16+2*4096), r.Parameters)

	m = mixtral()
	r, err = m.Memory(Layout{DP: 8, EP: 4}, Stage{Layers: 1, Flash: true}, Load{Tokens: 10})
	require.NoError(t, err)
	perToken = 2*4*4096 + 2*(2*4096+2*8*128) + 2*3*14336*2 + 2*2*4096*2 + 4*8
	require.Equal(t, lockstep.Bytes(10*perToken), r.Activations)
	require.Equal(t, int64(2*4096*(4096+1024)+4096*8+2*4096+2*3*4096*14336), r.Parameters, "2 of 8 experts")
}

func TestExpertsAreDividedOverTheirOwnReplicas(t *testing.T) {
	m, s := mixtral(), Stage{Layers: 1, Flash: true}
	r, err := m.Memory(Layout{DP: 8, EP: 4, ZeRO: 3}, s, Load{Tokens: 1})
	require.NoError(t, err)
	dense := int64(2*4096*(4096+1024) + 4096*8 + 2*4096)
	expert := int64(2 * 3 * 4096 * 14336)
	require.Equal(t, lockstep.Bytes(2*(ceil(dense, 8)+expert/2)), r.Weights)
	require.Equal(t, lockstep.Bytes(6*(dense+expert)), r.Gathered)

	r, err = m.Memory(Layout{DP: 8, EP: 8, ZeRO: 3}, s, Load{Tokens: 1})
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(2*(ceil(dense, 8)+expert/2)), r.Weights, "one expert a rank, which nobody else has")
	require.Equal(t, lockstep.Bytes(6*dense), r.Gathered)
}

func TestEndsOfTheModel(t *testing.T) {
	m := gpt7B()
	u := Load{Tokens: 100, InFlight: 4, Losses: 3}
	first, err := m.Memory(Layout{TP: 8}, Stage{First: true}, u)
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(4*100*(8+4096)), first.Embedding)
	require.Zero(t, first.Logits+first.Activations+first.Recomputed)
	last, err := m.Memory(Layout{TP: 8}, Stage{Last: true}, u)
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(3*100*(2*2*4096+51200/8*6)), last.Logits)
	require.Zero(t, last.Embedding)

	m.Vocab, m.Tied = 50257, true
	last, err = m.Memory(Layout{TP: 8}, Stage{Last: true}, u)
	require.NoError(t, err)
	require.Equal(t, int64(6283*4096+4096), last.Parameters, "the last rank pads its rows")
	whole, err := m.Memory(Layout{TP: 8}, Stage{First: true, Last: true}, u)
	require.NoError(t, err)
	require.Equal(t, int64(6283*4096+4096), whole.Parameters, "a tied head on one stage is one")
}

func TestLinesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		m := [...]Model{llama7B(), llama70B(), mixtral(), gpt7B()}[r.IntN(4)]
		l := Layout{
			TP: 1 << r.IntN(4), PP: 1 << r.IntN(3), DP: 1 << r.IntN(5), ZeRO: r.IntN(4),
			SequenceParallel: r.IntN(2) == 0, ScatterGather: r.IntN(2) == 0,
		}
		if m.Experts > 0 {
			l.EP = min(1<<r.IntN(4), l.DP)
		}
		stages, err := m.Split(l.PP, Stage{Flash: r.IntN(2) == 0, Recompute: Recompute(r.IntN(3))})
		require.NoError(t, err)
		u := Load{
			Tokens: 1 + r.Int64N(20000), InFlight: r.IntN(9), Chunks: r.IntN(3), Losses: r.IntN(3),
			Context: lockstep.Bytes(r.Int64N(1 << 30)), Reserve: lockstep.Bytes(r.Int64N(1 << 30)),
		}
		for _, s := range stages {
			got, err := m.Memory(l, s, u)
			require.NoError(t, err)
			sum, names := lockstep.Bytes(0), map[string]bool{}
			for name, b := range got.Lines() {
				require.GreaterOrEqual(t, b, lockstep.Bytes(0))
				require.False(t, names[name])
				names[name], sum = true, sum+b
			}
			require.Len(t, names, 11)
			require.Equal(t, sum, got.Total())
			require.Equal(t, u.Context, got.Context)
			require.Equal(t, u.Reserve, got.Reserve)
			require.True(t, got.Fit(sum).Feasible)
			require.Equal(t, lockstep.Verdict{
				Want: 1, Reason: lockstep.ReasonCapacity, Resource: lockstep.ResourceGPUMemory,
				Requested: int64(sum), Available: int64(sum) - 1,
			}, got.Fit(sum-1))
		}
	}
}

// TestMoreOfAnythingNeverTakesMoreMemory checks that each way to save memory saves, and more work never takes less.
func TestSavingSaves(t *testing.T) {
	total := func(l Layout, s Stage, u Load) lockstep.Bytes {
		m, err := llama70B().Memory(l, s, u)
		require.NoError(t, err)
		return m.Total() - m.Gathered
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		l := Layout{TP: 1 << r.IntN(3), PP: 1 + r.IntN(8), DP: 1 + r.IntN(16), ZeRO: r.IntN(3), SequenceParallel: r.IntN(2) == 0}
		s := Stage{Layers: 1 + r.IntN(20), First: r.IntN(2) == 0, Last: r.IntN(2) == 0, Flash: r.IntN(2) == 0, Recompute: Recompute(r.IntN(2))}
		u := Load{Tokens: 1 + r.Int64N(1<<14), InFlight: 1 + r.IntN(16)}
		at := total(l, s, u)

		less := l
		less.TP *= 2
		require.LessOrEqual(t, total(less, s, u), at)
		less = l
		less.ZeRO++
		require.LessOrEqual(t, total(less, s, u), at)
		less = l
		less.SequenceParallel = true
		require.LessOrEqual(t, total(less, s, u), at)
		flash := s
		flash.Flash = true
		require.LessOrEqual(t, total(l, flash, u), at)

		more := u
		more.InFlight++
		require.Greater(t, total(l, s, more), at)
		more = u
		more.Tokens++
		require.Greater(t, total(l, s, more), at)
		deeper := s
		deeper.Layers++
		require.Greater(t, total(l, deeper, u), at)
	}
}

func TestChunksDivideWhatIsInFlight(t *testing.T) {
	m := gpt7B()
	s := Stage{Layers: 8, Flash: true}
	plain, err := m.Memory(Layout{PP: 4}, s, Load{Tokens: 4096, InFlight: 4})
	require.NoError(t, err)
	chunks, err := m.Memory(Layout{PP: 4}, s, Load{Tokens: 4096, InFlight: 11, Chunks: 2})
	require.NoError(t, err)
	require.Equal(t, plain.Activations*11/8, chunks.Activations)
}

// Each line of the account is in range here, but not the sum that chunks then divide.
func TestAmountsBeyondTheRangeAreRefusedEvenIfDivided(t *testing.T) {
	m := Model{Layers: 1, Hidden: 1 << 14, Heads: 1, FFN: 1, Vocab: 1}
	for _, c := range []struct {
		u  Load
		ok bool
	}{
		{Load{Tokens: 1 << 44, Chunks: 4}, true},
		{Load{Tokens: 1 << 45, Chunks: 4}, false},
		{Load{Tokens: 1 << 44, InFlight: 2, Chunks: 4}, false},
		{Load{Tokens: 1 << 47, Chunks: 1 << 20}, false},
	} {
		r, err := m.Memory(Layout{}, Stage{Layers: 1, Flash: true}, c.u)
		if c.ok {
			require.NoError(t, err)
			require.Equal(t, lockstep.Bytes(c.u.Tokens*(2*8<<14+4)/4), r.Activations)
			continue
		}
		requireFault(t, err, lockstep.ErrInvalid, "Tokens", text(c.u.Tokens))
	}
}

func TestKVCacheOfPublishedModels(t *testing.T) {
	for _, c := range []struct {
		m    Model
		tp   int
		want lockstep.Bytes
	}{
		{llama7B(), 0, 512 * lockstep.KiB},
		{llama3(), 1, 128 * lockstep.KiB},
		{llama3(), 8, 16 * lockstep.KiB},
		{llama3(), 16, 16 * lockstep.KiB}, // each rank has a head of its own at least
		{llama70B(), 8, 40 * lockstep.KiB},
	} {
		got, err := c.m.KVCache(c.m.Whole(), c.tp, 2, 1000)
		require.NoError(t, err)
		require.Equal(t, 1000*c.want, got)
	}
	m := llama3()
	for _, c := range []struct {
		layers, tp, element int
		tokens              int64
		field, value        string
	}{
		{32, 3, 2, 1, "Heads", "32"},
		{33, 1, 2, 1, "s.Layers", "33"},
		{32, 1, 0, 1, "element", "0"},
		{32, 1, 2, -1, "tokens", "-1"},
		{32, 1, 2, 1 << 48, "tokens", "281474976710656"},
	} {
		_, err := m.KVCache(Stage{Layers: c.layers}, c.tp, c.element, c.tokens)
		requireFault(t, err, lockstep.ErrInvalid, c.field, c.value)
	}
}

func TestBadLayoutsAndLoadsAreNamed(t *testing.T) {
	type in struct {
		m Model
		l Layout
		s Stage
		u Load
	}
	for _, c := range []struct {
		change       func(*in)
		field, value string
	}{
		{func(x *in) { x.m.Layers = 0 }, "Layers", "0"},
		{func(x *in) { x.l.TP = 3 }, "Heads", "32"},
		{func(x *in) { x.l.TP = 64 }, "Heads", "32"},
		{func(x *in) { x.m.Heads, x.m.KVHeads, x.l.TP = 32, 8, 16; x.m.FFN = 14344 }, "FFN", "14344"},
		{func(x *in) { x.m.Heads, x.m.Hidden, x.m.KVHeads, x.l.TP = 24, 3072, 6, 4 }, "KVHeads", "6"},
		{func(x *in) { x.m.Heads, x.m.Hidden, x.m.KVHeads, x.l.TP = 24, 3072, 6, 8 }, "TP", "8"},
		{func(x *in) { x.l.PP = 33 }, "Layers", "32"},
		{func(x *in) { x.l.TP = -1 }, "TP", "-1"},
		{func(x *in) { x.l.PP = -1 }, "PP", "-1"},
		{func(x *in) { x.l.DP = 1<<20 + 1 }, "DP", "1048577"},
		{func(x *in) { x.l.ZeRO = 4 }, "ZeRO", "4"},
		{func(x *in) { x.l.DP, x.l.EP = 8, 3 }, "DP", "8"},
		{func(x *in) { x.l.DP, x.l.EP = 8, 2 }, "EP", "2"},
		{func(x *in) { x.m.Experts, x.m.TopK, x.l.DP, x.l.EP = 6, 2, 8, 4 }, "Experts", "6"},
		{func(x *in) { x.m.Experts, x.m.TopK, x.m.ExpertFFN, x.l.TP = 8, 2, 1001, 2 }, "ExpertFFN", "1001"},
		{func(x *in) { x.m.Experts, x.m.TopK, x.m.FFN, x.l.TP = 8, 2, 1001, 2 }, "FFN", "1001"},
		{func(x *in) { x.l.Precision.Weight = -2 }, "Precision.Weight", "-2"},
		{func(x *in) { x.l.Precision.Activation = 65 }, "Precision.Activation", "65"},
		{func(x *in) { x.s.Layers = -1 }, "Stage.Layers", "-1"},
		{func(x *in) { x.s.Layers = 33 }, "Stage.Layers", "33"},
		{func(x *in) { x.s.Recompute = 3 }, "Stage.Recompute", "Recompute(3)"},
		{func(x *in) { x.u.Tokens = 0 }, "Tokens", "0"},
		{func(x *in) { x.u.Tokens = 1 << 48 }, "Tokens", "281474976710656"},
		{func(x *in) { x.u.Sequence = 4097 }, "Sequence", "4097"},
		{func(x *in) { x.u.Sequence = -1 }, "Sequence", "-1"},
		{func(x *in) { x.u.InFlight = -1 }, "InFlight", "-1"},
		{func(x *in) { x.u.Chunks = -1 }, "Chunks", "-1"},
		{func(x *in) { x.u.Losses = 1<<20 + 1 }, "Losses", "1048577"},
		{func(x *in) { x.u.Context = -1 }, "Context", "-1"},
		{func(x *in) { x.u.Reserve = -lockstep.GiB }, "Reserve", "-1Gi"},
		{func(x *in) { x.u.Reserve = math.MaxInt64 }, "Tokens", "4096"},
	} {
		x := in{m: llama7B(), s: Stage{Layers: 32, First: true, Last: true}, u: Load{Tokens: 4096}}
		c.change(&x)
		got, err := x.m.Memory(x.l, x.s, x.u)
		requireFault(t, err, lockstep.ErrInvalid, c.field, c.value)
		require.Zero(t, got)
	}
	require.Len(t, flatten(Layout{TP: -1, PP: -1, DP: -1, EP: -1, ZeRO: -1}.Validate()), 5)
	require.NoError(t, Layout{}.Validate())
	require.Equal(t, int64(1), Layout{}.Ranks())
	require.Equal(t, int64(1<<60), Layout{TP: 1 << 20, PP: 1 << 20, DP: 1 << 20}.Ranks())
	requireFault(t, Precision{Master: -1}.Validate(), lockstep.ErrInvalid, "Master", "-1")
	_, err := Precision{}.States(-1, 0, 1)
	requireFault(t, err, lockstep.ErrInvalid, "params", "-1")
	_, err = Precision{}.States(1, 4, 0)
	requireFault(t, err, lockstep.ErrInvalid, "zero", "4")
	requireFault(t, err, lockstep.ErrInvalid, "ranks", "0")
}
