package perfmodel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestTransfersOfOneStep(t *testing.T) {
	m := llama3() // hidden 4096, so that an activation of 4096 tokens is 32 MiB
	const act = 32 * lockstep.MiB
	inner := Stage{Layers: 8}
	u := Load{Tokens: 4096}
	layers := 8 * m.Parameters(Stage{Layers: 1})
	bytes := func(params int64) lockstep.Bytes { return lockstep.Bytes(2 * params) }
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		l    Layout
		s    Stage
		u    Load
		want []Transfer
	}{
		"one rank": {Layout{}, m.Whole(), u, nil},
		"tensor":   {Layout{TP: 8}, inner, u, []Transfer{{Tensor, AllReduce, 8, act, 4 * 8 * 10}}},
		"tensor, ends and recompute": {
			Layout{TP: 8},
			Stage{Layers: 8, First: true, Last: true, Recompute: RecomputeFull},
			u,
			[]Transfer{{Tensor, AllReduce, 8, act, (6*8 + 2) * 10}},
		},
		"sequence": {Layout{TP: 8, SequenceParallel: true}, inner, u, []Transfer{
			{Tensor, AllGather, 8, act, 320}, {Tensor, ReduceScatter, 8, act, 320},
		}},
		"pipeline":        {Layout{PP: 4}, inner, u, []Transfer{{Pipeline, PointToPoint, 2, act, 20}}},
		"pipeline, first": {Layout{PP: 4}, Stage{Layers: 8, First: true}, u, []Transfer{{Pipeline, PointToPoint, 2, act, 10}}},
		"pipeline, last":  {Layout{PP: 4}, Stage{Layers: 8, Last: true}, u, []Transfer{{Pipeline, PointToPoint, 2, act, 10}}},
		"pipeline, chunks": {
			Layout{PP: 4},
			Stage{Layers: 8, First: true},
			Load{Tokens: 4096, Chunks: 3},
			[]Transfer{{Pipeline, PointToPoint, 2, act, 50}},
		},
		"scatter and gather": {Layout{TP: 8, PP: 4, ScatterGather: true}, inner, u, []Transfer{
			{Tensor, AllReduce, 8, act, 320}, {Tensor, AllGather, 8, act, 20}, {Pipeline, PointToPoint, 2, act / 8, 20},
		}},
		"sequence and pipeline": {Layout{TP: 8, PP: 4, SequenceParallel: true}, inner, u, []Transfer{
			{Tensor, AllGather, 8, act, 320}, {Tensor, ReduceScatter, 8, act, 320}, {Pipeline, PointToPoint, 2, act / 8, 20},
		}},
		"data":   {Layout{DP: 16}, inner, u, []Transfer{{Data, AllReduce, 16, bytes(layers), 1}}},
		"zero 1": {Layout{DP: 16, ZeRO: 1}, inner, u, []Transfer{{Data, ReduceScatter, 16, bytes(layers), 1}, {Data, AllGather, 16, bytes(layers), 1}}},
		"zero 2": {Layout{DP: 16, ZeRO: 2}, inner, u, []Transfer{{Data, ReduceScatter, 16, bytes(layers), 10}, {Data, AllGather, 16, bytes(layers), 1}}},
		"zero 3": {Layout{DP: 16, ZeRO: 3}, inner, u, []Transfer{{Data, ReduceScatter, 16, bytes(layers), 10}, {Data, AllGather, 16, bytes(layers), 20}}},
	} {
		got, err := m.Transfers(nil, c.l, c.s, c.u, 10)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestSequenceParallelismMovesTheSameBytes(t *testing.T) {
	sum := func(sequence bool) (all lockstep.Bytes) {
		ts, err := llama3().Transfers(nil, Layout{TP: 8, SequenceParallel: sequence}, llama3().Whole(), Load{Tokens: 4096}, 3)
		require.NoError(t, err)
		for _, x := range ts {
			all += x.Wire()
		}
		return all
	}
	require.Equal(t, sum(false), sum(true))
	require.Equal(t, 3*130*2*7*32*lockstep.MiB/8, sum(true))
}

func TestGradientsOfSevenBillionAreSummedOnce(t *testing.T) {
	m := llama7B()
	ts, err := m.Transfers(nil, Layout{DP: 8}, m.Whole(), Load{Tokens: 1}, 99)
	require.NoError(t, err)
	require.Len(t, ts, 1)
	require.Equal(t, lockstep.Bytes(2*6_738_415_616*14/8), ts[0].Wire())
}

func TestExpertsMoveTheirTokens(t *testing.T) {
	m := mixtral()
	l := Layout{TP: 2, DP: 8, EP: 4, SequenceParallel: true}
	s := Stage{Layers: 4}
	got, err := m.Transfers(nil, l, s, Load{Tokens: 4096}, 10)
	require.NoError(t, err)
	expert := lockstep.Bytes(2 * 4 * 2 * 3 * 4096 * 14336 / 2) // bf16, 4 layers, 2 of 8 experts, half of each
	dense := lockstep.Bytes(2 * 4 * (2*4096*(4096+1024)/2 + 4096*8 + 2*4096))
	require.Equal(t, []Transfer{
		{Expert, AllToAll, 4, 32 * lockstep.MiB, 4 * 4 * 10}, // two rows of each token, half of the tokens
		{Data, AllReduce, 8, dense, 1},
		{ExpertData, AllReduce, 2, expert, 1},
	}, got[2:])
	require.Equal(t, got[2].Wire(), lockstep.Bytes(160)*24*lockstep.MiB)

	s.Recompute = RecomputeFull
	again, err := m.Transfers(nil, l, s, Load{Tokens: 4096}, 10)
	require.NoError(t, err)
	require.Equal(t, int64(6*4*10), again[2].Times)
}

func TestTiedEndsSumTheirEmbedding(t *testing.T) {
	m := llama3()
	m.Tied = true
	stages, err := m.Split(3, Stage{})
	require.NoError(t, err)
	tied := Transfer{Pipeline, AllReduce, 2, lockstep.Bytes(2 * 128256 / 4 * 4096), 1}
	for i, s := range stages {
		ts, err := m.Transfers(nil, Layout{TP: 4, PP: 3}, s, Load{Tokens: 1}, 1)
		require.NoError(t, err)
		if i == 1 {
			require.NotContains(t, ts, tied)
		} else {
			require.Contains(t, ts, tied)
		}
	}
}

func TestTransfersAppendInOrderAndKeepTheSliceOnErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	kept := []Transfer{{Tensor, AllReduce, 2, 1, 1}}
	for range 300 {
		m := [...]Model{llama3(), mixtral(), gpt7B()}[r.IntN(3)]
		l := Layout{
			TP: 1 << r.IntN(4), PP: 1 << r.IntN(3), DP: 1 << r.IntN(5), ZeRO: r.IntN(4),
			SequenceParallel: r.IntN(2) == 0, ScatterGather: r.IntN(2) == 0,
		}
		if m.Experts > 0 {
			l.EP = min(1<<r.IntN(4), l.DP)
		}
		stages, err := m.Split(l.PP, Stage{Recompute: Recompute(r.IntN(3))})
		require.NoError(t, err)
		got, err := m.Transfers(kept, l, stages[r.IntN(l.PP)], Load{Tokens: 1 + r.Int64N(1<<14)}, 1+r.IntN(64))
		require.NoError(t, err)
		require.Equal(t, kept[0], got[0])
		rank := map[Dimension]int{Tensor: 0, Pipeline: 1, Expert: 2, Data: 3, ExpertData: 4}
		for i, x := range got[1:] {
			require.Greater(t, x.Ranks, 1)
			require.Positive(t, x.Size)
			require.Positive(t, x.Times)
			if i > 0 && !l.ScatterGather {
				require.GreaterOrEqual(t, rank[x.Dimension], rank[got[i].Dimension])
			}
		}
	}
	m := llama3()
	for _, c := range []struct {
		l            Layout
		tokens       int64
		micros       int
		field, value string
	}{
		{Layout{TP: 3}, 1, 1, "Heads", "32"},
		{Layout{}, 0, 1, "Tokens", "0"},
		{Layout{}, 1, 0, "micros", "0"},
		{Layout{}, 1, 1<<20 + 1, "micros", "1048577"},
		{Layout{TP: 8}, 1 << 47, 1 << 20, "Tokens", "140737488355328"},
	} {
		got, err := m.Transfers(kept, c.l, m.Whole(), Load{Tokens: c.tokens}, c.micros)
		requireFault(t, err, lockstep.ErrInvalid, c.field, c.value)
		require.Equal(t, kept, got)
	}
}
