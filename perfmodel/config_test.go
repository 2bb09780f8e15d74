package perfmodel

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// The configurations are written for the tests, with the published numbers.
const (
	configLlama3 = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
		"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
		"max_position_embeddings": 131072, "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
		"rope_scaling": {"factor": 8.0}, "torch_dtype": "bfloat16", "hidden_act": "silu", "head_dim": null}`
	configLlama1 = `{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
		"num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}`
	configMistral = `{"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "sliding_window": 4096,
		"max_position_embeddings": 32768}`
	configMixtral = `{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "sliding_window": null,
		"num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768}`
	configQwen2 = `{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
		"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
		"use_sliding_window": false, "sliding_window": 131072, "max_window_layers": 28}`
	configQwen3 = `{"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
		"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}`
	configQwen3MoE = `{"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 48,
		"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
		"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
		"decoder_sparse_step": 1, "mlp_only_layers": []}`
	configGPT2 = `{"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
		"vocab_size": 50257, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "activation_function": "gelu_new"}`
)

func TestConfigsOfPublishedModels(t *testing.T) {
	for text, params := range map[string]int64{ // the order does not matter: each case stands alone
		configLlama3:   8_030_261_248,
		configLlama1:   6_738_415_616,
		configMistral:  7_241_732_096,
		configMixtral:  46_702_792_704,
		configQwen2:    7_615_616_512,
		configQwen3:    8_190_735_360,
		configQwen3MoE: 30_532_122_624,
		configGPT2:     124_439_808,
	} {
		m, err := ReadConfig(strings.NewReader(text))
		require.NoError(t, err, text)
		require.Equal(t, params, m.Parameters(m.Whole()), text)
	}
	m, err := ReadConfig(strings.NewReader(configMistral))
	require.NoError(t, err)
	require.Equal(t, Mask{Window: 4096}, m.Mask)
	require.Equal(t, 32768, m.MaxDoc)
	m, err = ReadConfig(strings.NewReader(configQwen2))
	require.NoError(t, err)
	require.Equal(t, Mask{}, m.Mask)
	m, err = ReadConfig(strings.NewReader(configGPT2))
	require.NoError(t, err)
	require.True(t, m.Dropout && m.Tied && m.Bias && !m.Gated)
	require.Equal(t, 1024, m.MaxDoc)
}

func TestWindowsOfQwenAreReadWhereAllLayersAgree(t *testing.T) {
	windowed := strings.Replace(configQwen2, `"use_sliding_window": false`, `"use_sliding_window": true`, 1)
	m, err := ReadConfig(strings.NewReader(windowed))
	require.NoError(t, err)
	require.Equal(t, Mask{}, m.Mask, "no layer is beyond max_window_layers")
	m, err = ReadConfig(strings.NewReader(strings.Replace(windowed, `"max_window_layers": 28`, `"max_window_layers": 0`, 1)))
	require.NoError(t, err)
	require.Equal(t, Mask{Window: 131072}, m.Mask)
	m, err = ReadConfig(strings.NewReader(strings.Replace(windowed, `, "max_window_layers": 28`, ``, 1)))
	require.NoError(t, err)
	require.Equal(t, Mask{}, m.Mask, "28 where it is not given")
	_, err = ReadConfig(strings.NewReader(strings.Replace(windowed, `"max_window_layers": 28`, `"max_window_layers": 21`, 1)))
	requireFault(t, err, lockstep.ErrInvalid, "max_window_layers", "21")
}

func TestBadConfigsAreNamed(t *testing.T) {
	for _, c := range []struct {
		text         string
		kind         error
		field, value string
	}{
		{``, lockstep.ErrInvalid, "", ""},
		{`[]`, lockstep.ErrInvalid, "", `"array"`},
		{`{"hidden_size": "4096"}`, lockstep.ErrInvalid, "hidden_size", `"string"`},
		{`{"hidden_size": 4096.5}`, lockstep.ErrInvalid, "hidden_size", `"number 4096.5"`},
		{`{"hidden_size": 1e400}`, lockstep.ErrInvalid, "hidden_size", `"number 1e400"`},
		{`{"hidden_size": 99999999999999999999999999999999999999999999}`, lockstep.ErrInvalid, "hidden_size", `"number 999999999999999999999999999999999"...`},
		{`{"hidden_size": {"hidden_size": 4096}}`, lockstep.ErrInvalid, "hidden_size", `"object"`},
		{`{"model_type": ["llama"]}`, lockstep.ErrInvalid, "model_type", `"array"`},
		{`{"text_config": ` + configLlama3 + `}`, lockstep.ErrUnknown, "model_type", `""`},
		{`{"Model_Type": "llama"}`, lockstep.ErrUnknown, "model_type", `""`},
		{`null`, lockstep.ErrUnknown, "model_type", `""`},
		{`{"a": ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, lockstep.ErrInvalid, "", ""},
		{strings.Replace(configLlama3, `"hidden_size"`, `"HIDDEN_SIZE"`, 1), lockstep.ErrInvalid, "hidden_size", ""},
		{strings.Replace(configLlama3, `"hidden_size"`, `"hidden_ſize"`, 1), lockstep.ErrInvalid, "hidden_size", ""},
		{strings.Replace(configLlama3, `"head_dim": null`, `"head_dim": -128`, 1), lockstep.ErrInvalid, "head_dim", "-128"},
		{strings.Replace(configMixtral, `"num_local_experts": 8`, `"num_local_experts": 0`, 1), lockstep.ErrInvalid, "TopK", "2"},
		{configLlama3 + "{}", lockstep.ErrInvalid, "", ""},
		{strings.Repeat(" ", 1<<20+1), lockstep.ErrInvalid, "", ""},
		{`{}`, lockstep.ErrUnknown, "model_type", `""`},
		{`{"model_type": "mamba"}`, lockstep.ErrUnknown, "model_type", `"mamba"`},
		{`{"architectures": ["T5ForConditionalGeneration"]}`, lockstep.ErrUnknown, "model_type", `"t5forconditionalgeneration"`},
		{strings.Replace(configMistral, `"num_key_value_heads": 8,`, ``, 1), lockstep.ErrInvalid, "num_key_value_heads", ""},
		{`{"model_type": "llama"}`, lockstep.ErrInvalid, "hidden_size", ""},
		{`{"model_type": "gpt2", "n_embd": 768}`, lockstep.ErrInvalid, "n_layer", ""},
		{strings.Replace(configLlama3, "14336", "-7", 1), lockstep.ErrInvalid, "intermediate_size", "-7"},
		{strings.Replace(configLlama3, "14336", "4294967296", 1), lockstep.ErrInvalid, "intermediate_size", "4294967296"},
		{strings.Replace(configLlama3, "14336", "0", 1), lockstep.ErrInvalid, "FFN", "0"},
		{strings.Replace(configLlama3, `"attention_bias": false`, `"attention_bias": true`, 1), lockstep.ErrInvalid, "attention_bias", "true"},
		{strings.Replace(configLlama3, `"mlp_bias": false`, `"mlp_bias": true`, 1), lockstep.ErrInvalid, "mlp_bias", "true"},
		{strings.Replace(configQwen3MoE, `_step": 1`, `_step": 2`, 1), lockstep.ErrInvalid, "decoder_sparse_step", "2"},
		{strings.Replace(configQwen3MoE, `[]`, `[0]`, 1), lockstep.ErrInvalid, "mlp_only_layers", ""},
		{strings.Replace(configMixtral, `"num_experts_per_tok": 2`, `"num_experts_per_tok": 9`, 1), lockstep.ErrInvalid, "TopK", "9"},
	} {
		m, err := ReadConfig(strings.NewReader(c.text))
		requireFault(t, err, c.kind, c.field, c.value)
		require.Zero(t, m)
	}
	// Whatever is in a field, the error stays on one line that can be read.
	_, err := ReadConfig(strings.NewReader(`{"hidden_size": ` + strings.Repeat("9", 1<<19) + `}`))
	require.Less(t, len(err.Error()), 200)
	_, err = ReadConfig(strings.NewReader(`{"model_type": "` + strings.Repeat("x", 1<<19) + `"}`))
	require.Less(t, len(err.Error()), 200)
	broken := errors.New("broken")
	_, err = ReadConfig(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func TestNamesOfAConfigCountAsTheyAreWritten(t *testing.T) {
	want, err := ReadConfig(strings.NewReader(configLlama3))
	require.NoError(t, err)
	for _, more := range []string{
		`"HIDDEN_SIZE": 1`, `"Hidden_Size": "wide"`, `"hidden_\u017fize": 2`, `"num_hidden_layerS": 3`, `"x": {"hidden_size": 4}`,
	} {
		m, err := ReadConfig(strings.NewReader(configLlama3[:len(configLlama3)-1] + ", " + more + "}"))
		require.NoError(t, err, more)
		require.Equal(t, want, m, more)
	}
	m, err := ReadConfig(strings.NewReader(configLlama3[:len(configLlama3)-1] + `, "hidden_size": 8192}`))
	require.NoError(t, err)
	require.Equal(t, 8192, m.Hidden, "of two equal names the last one counts")
	m, err = ReadConfig(strings.NewReader(strings.Replace(configGPT2, `"n_head": 12`, `"n_head": 12, "n_inner": 1000`, 1)))
	require.NoError(t, err)
	require.Equal(t, 1000, m.FFN)
}

// FuzzReadConfig reads any text: the answer is a valid model, of which everything else can be asked, or a typed error.
func FuzzReadConfig(f *testing.F) {
	for _, text := range []string{
		configLlama3, configLlama1, configMistral, configMixtral, configQwen2, configQwen3, configQwen3MoE, configGPT2,
		`{"model_type":"gpt2","n_embd":2147483647,"n_layer":1,"n_head":1,"vocab_size":1}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ReadConfig(strings.NewReader(text))
		if err != nil {
			var fault *lockstep.Error
			require.ErrorAs(t, err, &fault)
			require.Zero(t, m)
			return
		}
		require.NoError(t, m.Validate())
		require.Positive(t, m.Parameters(m.Whole()))
		require.LessOrEqual(t, m.ActiveParameters(m.Whole()), m.Parameters(m.Whole()))
		if mem, err := m.Memory(Layout{}, m.Whole(), Load{Tokens: 1024}); err != nil {
			requireFault(t, err, lockstep.ErrInvalid, "Tokens", "1024") // a valid model may need more than int64 bytes
		} else {
			require.Positive(t, mem.Total())
		}
	})
}
