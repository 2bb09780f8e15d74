package perfmodel

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// maxConfig bounds the configuration that ReadConfig takes, in bytes.
const maxConfig = 1 << 20

const opConfig = "perfmodel: read config"

// config are the fields of a config.json that matter here. A nil field is absent or null.
type config struct {
	ModelType     *string  `json:"model_type"`
	Architectures []string `json:"architectures"`

	Hidden       *int64   `json:"hidden_size"`
	Layers       *int64   `json:"num_hidden_layers"`
	Heads        *int64   `json:"num_attention_heads"`
	KVHeads      *int64   `json:"num_key_value_heads"`
	HeadDim      *int64   `json:"head_dim"`
	Intermediate *int64   `json:"intermediate_size"`
	Vocab        *int64   `json:"vocab_size"`
	Positions    *int64   `json:"max_position_embeddings"`
	Tied         *bool    `json:"tie_word_embeddings"`
	Dropout      *float64 `json:"attention_dropout"`

	AttentionBias *bool  `json:"attention_bias"`
	MLPBias       *bool  `json:"mlp_bias"`
	Window        *int64 `json:"sliding_window"`
	UseWindow     *bool  `json:"use_sliding_window"`
	WindowLayers  *int64 `json:"max_window_layers"`

	LocalExperts *int64  `json:"num_local_experts"`
	Experts      *int64  `json:"num_experts"`
	TopK         *int64  `json:"num_experts_per_tok"`
	ExpertFFN    *int64  `json:"moe_intermediate_size"`
	SparseStep   *int64  `json:"decoder_sparse_step"`
	DenseLayers  []int64 `json:"mlp_only_layers"`

	// The names that GPT-2 has.
	Embd        *int64   `json:"n_embd"`
	Layer       *int64   `json:"n_layer"`
	Head        *int64   `json:"n_head"`
	Inner       *int64   `json:"n_inner"`
	NPositions  *int64   `json:"n_positions"`
	AttnDropout *float64 `json:"attn_pdrop"`
	ResDropout  *float64 `json:"resid_pdrop"`
}

// ReadConfig reads the shape of a model from a config.json as Hugging Face writes it, of
// the model types llama, mistral, mixtral, qwen2, qwen3, qwen3_moe and gpt2. It reads at
// most 1 MiB. It returns what the reader returned, an *lockstep.Error of kind ErrUnknown
// for another model type, and of kind ErrInvalid for a broken text, for fields that are
// missing or out of range, and for parts that a Model cannot say: layers that differ from
// each other, or biases of only some blocks.
func ReadConfig(r io.Reader) (Model, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return Model{}, err
	}
	if len(data) > maxConfig {
		return Model{}, invalid(opConfig, "", "", "longer than 1Mi")
	}
	c, err := parseConfig(data)
	if err != nil {
		return Model{}, err
	}
	d := decoder{faults: faults{op: opConfig}, c: c}
	kind := c.kind()
	switch kind {
	case "gpt2":
		d.gpt2()
	case "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe":
		d.llama(kind)
	default:
		return Model{}, &lockstep.Error{
			Kind: lockstep.ErrUnknown, Op: opConfig, Field: "model_type", Value: errtext.Quote(kind),
			Reason: "want llama, mistral, mixtral, qwen2, qwen3, qwen3_moe or gpt2",
		}
	}
	if err := d.err(); err != nil {
		return Model{}, err
	}
	if err := d.m.Validate(); err != nil {
		return Model{}, err
	}
	return d.m, nil
}

// parseConfig decodes a config.json. Names count as they are written: those that differ only in
// case, which package json would take as well, are other fields. Of two equal ones the last counts.
func parseConfig(data []byte) (*config, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, badJSON(err)
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != ""
	})
	data, err := json.Marshal(all)
	if err != nil {
		return nil, badJSON(err)
	}
	c := new(config)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, badJSON(err)
	}
	return c, nil
}

// badJSON says what package json found, with the field if it is one of a wrong type.
func badJSON(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid(opConfig, e.Field, errtext.Quote(e.Value), "want a value of another type")
	}
	return invalid(opConfig, "", "", err.Error())
}

// kind returns the model type, by the name of the architecture where it is not given.
func (c *config) kind() string {
	if c.ModelType != nil {
		return *c.ModelType
	}
	if len(c.Architectures) == 0 {
		return ""
	}
	name, causal := strings.CutSuffix(c.Architectures[0], "ForCausalLM")
	if !causal {
		name = strings.TrimSuffix(name, "LMHeadModel")
	}
	name = strings.ToLower(name)
	if dense, ok := strings.CutSuffix(name, "moe"); ok {
		name = dense + "_moe"
	}
	return name
}

// decoder builds a model from a config.
type decoder struct {
	faults
	c *config
	m Model
}

// need returns a number that must be there.
func (d *decoder) need(field string, v *int64) int {
	if v == nil {
		d.bad(field, "", "missing")
		return 0
	}
	return d.maybe(field, v, 0)
}

// maybe returns a number that may be missing; then it is the given one.
func (d *decoder) maybe(field string, v *int64, missing int) int {
	if v == nil {
		return missing
	}
	if *v < 0 || *v > math.MaxInt32 {
		d.bad(field, text(*v), "want 0 to 2^31-1")
		return missing
	}
	return int(*v)
}

// flag returns a boolean that may be missing; then it is the given one.
func flag(v *bool, missing bool) bool {
	if v == nil {
		return missing
	}
	return *v
}

// positive says whether a number is there and above 0.
func positive(v *float64) bool { return v != nil && *v > 0 }

// gpt2 reads the names of GPT-2. Its inner width is 4 times the hidden one unless given.
func (d *decoder) gpt2() {
	c := d.c
	positions := d.maybe("n_positions", c.NPositions, 1024)
	d.m = Model{
		Layers: d.need("n_layer", c.Layer), Hidden: d.need("n_embd", c.Embd), Heads: d.need("n_head", c.Head),
		Vocab: d.need("vocab_size", c.Vocab), MaxDoc: positions, Learned: positions,
		Tied: flag(c.Tied, true), Bias: true,
		Dropout: positive(c.AttnDropout) || positive(c.ResDropout),
	}
	d.m.FFN = d.maybe("n_inner", c.Inner, min(d.m.Hidden, maxWidth/4)*4)
}

// llama reads the names that Llama and its kin have.
func (d *decoder) llama(kind string) {
	c := d.c
	d.m = Model{
		Layers: d.need("num_hidden_layers", c.Layers), Hidden: d.need("hidden_size", c.Hidden),
		Heads: d.need("num_attention_heads", c.Heads), HeadDim: d.maybe("head_dim", c.HeadDim, 0),
		Vocab: d.need("vocab_size", c.Vocab), MaxDoc: d.maybe("max_position_embeddings", c.Positions, 0),
		Tied: flag(c.Tied, false), Gated: true, Dropout: positive(c.Dropout),
		QKVBias: kind == "qwen2", QKNorm: kind == "qwen3" || kind == "qwen3_moe",
	}
	if kind == "llama" { // the first ones had no such field
		d.m.KVHeads = d.maybe("num_key_value_heads", c.KVHeads, 0)
	} else {
		d.m.KVHeads = d.need("num_key_value_heads", c.KVHeads)
	}
	if flag(c.AttentionBias, false) {
		d.bad("attention_bias", "true", "biases of attention alone are not modelled")
	}
	if flag(c.MLPBias, false) {
		d.bad("mlp_bias", "true", "biases of feed-forward blocks alone are not modelled")
	}
	d.window(kind)
	d.experts(kind)
}

// window reads the sliding window of the types that have one.
func (d *decoder) window(kind string) {
	c := d.c
	window := d.maybe("sliding_window", c.Window, 0)
	if kind == "llama" || kind[0] == 'q' && !flag(c.UseWindow, false) {
		return
	}
	if kind[0] == 'q' { // layers from this one on have the window
		switch from := d.maybe("max_window_layers", c.WindowLayers, 28); {
		case from >= d.m.Layers:
			return
		case from > 0:
			d.bad("max_window_layers", text(from), "a window on some of the layers is not modelled")
		}
	}
	d.m.Mask.Window = window
}

// experts reads the feed-forward blocks.
func (d *decoder) experts(kind string) {
	c := d.c
	switch kind {
	case "mixtral":
		d.m.FFN = d.need("intermediate_size", c.Intermediate)
		d.m.Experts = d.need("num_local_experts", c.LocalExperts)
		d.m.TopK = d.need("num_experts_per_tok", c.TopK)
	case "qwen3_moe":
		d.m.ExpertFFN = d.need("moe_intermediate_size", c.ExpertFFN)
		d.m.Experts = d.need("num_experts", c.Experts)
		d.m.TopK = d.need("num_experts_per_tok", c.TopK)
		if d.maybe("decoder_sparse_step", c.SparseStep, 1) != 1 {
			d.bad("decoder_sparse_step", text(*c.SparseStep), "want 1; layers that differ are not modelled")
		}
		if len(c.DenseLayers) > 0 {
			d.bad("mlp_only_layers", "", "want none; layers that differ are not modelled")
		}
	default:
		d.m.FFN = d.need("intermediate_size", c.Intermediate)
	}
}
