package perfmodel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// The published shapes that the tests compare with.
func llama7B() Model {
	return Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true, MaxDoc: 131072}
}

func llama13B() Model {
	return Model{Layers: 40, Hidden: 5120, Heads: 40, FFN: 13824, Vocab: 32000, Gated: true}
}

func llama70B() Model {
	return Model{Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, FFN: 28672, Vocab: 32000, Gated: true}
}

func llama3() Model {
	return Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Vocab: 128256, Gated: true}
}

func gpt3() Model {
	return Model{Layers: 96, Hidden: 12288, Heads: 96, FFN: 4 * 12288, Vocab: 51200, Mask: Mask{Full: true}}
}

// gpt7B is a shape of seven billion parameters with the blocks of GPT: two matrices, four times as wide, and dropout.
func gpt7B() Model {
	return Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 16384, Vocab: 51200, Dropout: true}
}

func mixtral() Model {
	return Model{
		Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Vocab: 32000, Gated: true,
		Experts: 8, TopK: 2, MaxDoc: 32768,
	}
}

func repeat(n, l int) []int {
	lens := make([]int, n)
	for i := range lens {
		lens[i] = l
	}
	return lens
}

// requireInvalid says that an error is of this kind and names the field with its value, alone or among others.
func requireFault(t *testing.T, err, kind error, field, value string) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var found []string
	for _, e := range flatten(err) {
		var fault *lockstep.Error
		require.ErrorAs(t, e, &fault)
		require.NotEmpty(t, fault.Op)
		require.NotEmpty(t, fault.Reason)
		found = append(found, fault.Field+"="+fault.Value)
	}
	require.Contains(t, found, field+"="+value)
}

// flatten returns the single faults of joined ones.
func flatten(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}

func TestParametersOfPublishedModels(t *testing.T) {
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		m    Model
		want int64
	}{
		"llama2-7b":  {llama7B(), 6_738_415_616},
		"llama2-13b": {llama13B(), 13_015_864_320},
		"llama2-70b": {llama70B(), 68_976_648_192},
		"llama3-8b":  {llama3(), 8_030_261_248},
		"mixtral":    {mixtral(), 46_702_792_704},
	} {
		require.NoError(t, c.m.Validate(), name)
		require.Equal(t, c.want, c.m.Parameters(c.m.Whole()), name)
	}
	m := mixtral()
	require.Equal(t, int64(46_702_792_704-32*6*3*4096*14336), m.ActiveParameters(m.Whole()))
	require.Equal(t, llama3().Parameters(llama3().Whole()), llama3().ActiveParameters(llama3().Whole()))
}

func TestStagesAddUpToTheModel(t *testing.T) {
	for _, tied := range []bool{false, true} {
		m := llama3()
		m.Tied = tied
		for p := 1; p <= m.Layers; p++ {
			stages, err := m.Split(p, Stage{Flash: true})
			require.NoError(t, err)
			var layers int
			var params int64
			for i, s := range stages {
				layers += s.Layers
				params += m.Parameters(s)
				require.Equal(t, i == 0, s.First)
				require.Equal(t, i == p-1, s.Last)
				require.True(t, s.Flash)
				require.LessOrEqual(t, s.Layers, stages[0].Layers)
				require.GreaterOrEqual(t, s.Layers+1, stages[0].Layers)
			}
			want := m.Parameters(m.Whole())
			if tied && p > 1 {
				want += int64(m.Vocab) * int64(m.Hidden) // both ends hold the embedding
			}
			require.Equal(t, m.Layers, layers)
			require.Equal(t, want, params)
		}
	}
	_, err := llama3().Split(33, Stage{})
	requireFault(t, err, lockstep.ErrInvalid, "n", "33")
	_, err = llama3().Split(0, Stage{})
	requireFault(t, err, lockstep.ErrInvalid, "n", "0")
}

func TestModelNamesEveryFault(t *testing.T) {
	for _, c := range []struct {
		change       func(*Model)
		field, value string
	}{
		{func(m *Model) { m.Layers = 0 }, "Layers", "0"},
		{func(m *Model) { m.Layers = 1<<14 + 1 }, "Layers", "16385"},
		{func(m *Model) { m.Hidden = -1 }, "Hidden", "-1"},
		{func(m *Model) { m.Heads = 0 }, "Heads", "0"},
		{func(m *Model) { m.Heads = 33 }, "Hidden", "4096"},
		{func(m *Model) { m.KVHeads = 5 }, "Heads", "32"},
		{func(m *Model) { m.KVHeads = -5 }, "KVHeads", "-5"},
		{func(m *Model) { m.HeadDim = -1 }, "HeadDim", "-1"},
		{func(m *Model) { m.FFN = 0 }, "FFN", "0"},
		{func(m *Model) { m.Vocab = 0 }, "Vocab", "0"},
		{func(m *Model) { m.MaxDoc = -2 }, "MaxDoc", "-2"},
		{func(m *Model) { m.Learned = -2 }, "Learned", "-2"},
		{func(m *Model) { m.TopK = 1 }, "TopK", "1"},
		{func(m *Model) { m.SharedExperts = 1 }, "SharedExperts", "1"},
		{func(m *Model) { m.ExpertFFN = 1 }, "ExpertFFN", "1"},
		{func(m *Model) { m.Experts = -1 }, "Experts", "-1"},
		{func(m *Model) { m.Experts = 8 }, "TopK", "0"},
		{func(m *Model) { m.Experts, m.TopK = 8, 9 }, "TopK", "9"},
		{func(m *Model) { m.Experts, m.TopK, m.FFN = 8, 2, 0 }, "ExpertFFN", "0"},
		{func(m *Model) { m.Mask.Window = -1 }, "Mask.Window", "-1"},
		{func(m *Model) { m.Mask = Mask{Full: true, Window: 4} }, "Mask.Window", "4"},
		{func(m *Model) { m.FFN, m.Hidden, m.Layers = 1<<24, 1<<24, 1<<14 }, "Layers", "16384"},
	} {
		m := llama7B()
		c.change(&m)
		requireFault(t, m.Validate(), lockstep.ErrInvalid, c.field, c.value)
	}
	all := flatten(Model{}.Validate())
	require.Len(t, all, 5, "every fault at once: %v", all)
}

func TestNamesGoThereAndBack(t *testing.T) {
	type all struct {
		R Recompute
		D Dimension
		C Collective
		A Algorithm
	}
	var text []string
	for i := range uint8(6) {
		in := all{Recompute(i % 3), Dimension(i % 5), Collective(i % 5), Algorithm(i % 3)}
		data, err := json.Marshal(in)
		require.NoError(t, err)
		var out all
		require.NoError(t, json.Unmarshal(data, &out))
		require.Equal(t, in, out)
		text = append(text, in.R.String(), in.D.String(), in.C.String(), in.A.String())
	}
	require.Equal(t, "none tensor all-reduce ring selective pipeline reduce-scatter tree full data all-gather hierarchical "+
		"none expert all-to-all ring selective expert-data point-to-point tree full tensor all-reduce hierarchical", strings.Join(text, " "))
	require.Equal(t, "Recompute(3) Dimension(5) Collective(5) Algorithm(3)",
		Recompute(3).String()+" "+Dimension(5).String()+" "+Collective(5).String()+" "+Algorithm(3).String())
	for _, bad := range []all{{R: 3}, {D: 5}, {C: 5}, {A: 3}} {
		_, err := json.Marshal(bad)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	for _, field := range []string{"R", "D", "C", "A"} {
		kept := all{1, 1, 1, 1}
		require.ErrorIs(t, json.Unmarshal([]byte(`{"`+field+`": "nonesuch"}`), &kept), lockstep.ErrInvalid)
		require.Equal(t, all{1, 1, 1, 1}, kept)
	}
}
