package perfmodel

import (
	"math"
)

// Bounds that keep every product inside int64. They lie far beyond any model.
const (
	maxLayers  = 1 << 14
	maxWidth   = 1 << 24
	maxHeads   = 1 << 14
	maxExperts = 1 << 14
	maxVocab   = 1 << 28
	maxParams  = 1 << 52 // parameters of a model
)

// Model is the shape of a transformer. Layers, Hidden, Heads and Vocab must be
// there, and FFN unless the layers are made of experts that have ExpertFFN.
type Model struct {
	Layers  int  `json:"layers"`            // Layers is the number of transformer layers.
	Hidden  int  `json:"hidden"`            // Hidden is the width of the residual stream.
	Heads   int  `json:"heads"`             // Heads is the number of query heads.
	KVHeads int  `json:"kvHeads,omitempty"` // KVHeads is the number of key and value heads, which divides Heads; 0 means Heads.
	HeadDim int  `json:"headDim,omitempty"` // HeadDim is the width of a head; 0 means Hidden/Heads.
	FFN     int  `json:"ffn,omitempty"`     // FFN is the inner width of a dense feed-forward block.
	Vocab   int  `json:"vocab"`             // Vocab is the number of tokens there are.
	MaxDoc  int  `json:"maxDoc,omitempty"`  // MaxDoc is the longest document that the model takes, its context length; 0 means no limit.
	Learned int  `json:"learned,omitempty"` // Learned is the number of learned position embeddings; 0 means none, as with rotary ones.
	Gated   bool `json:"gated,omitempty"`   // Gated says that a feed-forward block has a gate (SwiGLU, GeGLU), so three matrices and not two.
	Tied    bool `json:"tied,omitempty"`    // Tied says that the language-model head is the embedding.
	Bias    bool `json:"bias,omitempty"`    // Bias says that all projections and norms have biases.
	QKVBias bool `json:"qkvBias,omitempty"` // QKVBias says that the query, key and value projections have biases; Bias includes it.
	QKNorm  bool `json:"qkNorm,omitempty"`  // QKNorm says that queries and keys are normed by head before they meet.
	Dropout bool `json:"dropout,omitempty"` // Dropout says that it is trained with dropout, whose masks are kept for the backward pass.

	Experts       int `json:"experts,omitempty"`       // Experts is the number of routed experts of a layer; 0 means a dense model.
	TopK          int `json:"topK,omitempty"`          // TopK is how many of them a token goes through, 1 to Experts.
	SharedExperts int `json:"sharedExperts,omitempty"` // SharedExperts is how many more every token goes through.
	ExpertFFN     int `json:"expertFFN,omitempty"`     // ExpertFFN is the inner width of one expert; 0 means FFN.

	Mask Mask `json:"mask"` // Mask says which keys a query sees; zero is causal without a window.
}

// Stage is what one pipeline stage, or one model chunk of it, holds.
type Stage struct {
	Layers    int       `json:"layers"`              // Layers is how many it has; 0 is a stage that passes through.
	First     bool      `json:"first,omitempty"`     // First says that it has the embedding.
	Last      bool      `json:"last,omitempty"`      // Last says that it has the final norm, the language-model head and the loss.
	Flash     bool      `json:"flash,omitempty"`     // Flash says that attention never stores its scores, and makes them again in the backward pass.
	Recompute Recompute `json:"recompute,omitempty"` // Recompute is what else the backward pass makes again; zero is RecomputeNone.
}

// Recompute is what the backward pass makes again so that it need not be kept.
type Recompute uint8

// What is made again.
const (
	RecomputeNone      Recompute = iota // RecomputeNone: nothing.
	RecomputeSelective                  // RecomputeSelective: attention, without its projections.
	RecomputeFull                       // RecomputeFull: each layer from its input.
)

// Whole returns the stage that is the whole model.
func (m Model) Whole() Stage { return Stage{Layers: m.Layers, First: true, Last: true} }

// Split returns the model as n stages of equal size, where the first ones have a
// layer more if it cannot be. Each has Flash and Recompute of like. It returns an
// *lockstep.Error of kind ErrInvalid if n is not 1 to Layers.
func (m Model) Split(n int, like Stage) ([]Stage, error) {
	if n < 1 || n > min(m.Layers, maxLayers) {
		return nil, invalid("perfmodel: split", "n", text(n), "want 1 to Layers = "+text(m.Layers))
	}
	stages := make([]Stage, n)
	for i := range stages {
		like.Layers, like.First, like.Last = m.Layers/n, i == 0, i == n-1
		if i < m.Layers%n {
			like.Layers++
		}
		stages[i] = like
	}
	return stages, nil
}

// Parameters returns how many parameters a stage has, over all ranks of its
// tensor-parallel and expert-parallel groups. A tied head is counted where it is: on a
// last stage that is not the first as well, since both then hold the embedding.
func (m Model) Parameters(s Stage) int64 {
	p := m.parts(1)
	return int64(s.Layers)*(p.layer+p.norms+int64(m.Experts)*p.expert) + p.ends(m, s)
}

// ActiveParameters returns how many parameters of a stage one token goes through:
// of the routed experts only TopK.
func (m Model) ActiveParameters(s Stage) int64 {
	idle := int64(m.Experts-m.TopK) * m.parts(1).expert
	return m.Parameters(s) - int64(s.Layers)*max(0, idle)
}

// parts are the parameters of a model that one rank of a tensor-parallel group has.
type parts struct {
	layer     int64 // of one layer without its routed experts and norms
	expert    int64 // of one routed expert
	norms     int64 // of the norms of one layer
	finalNorm int64
	embedding int64 // tokens and learned positions
	head      int64
}

// parts divides m by a degree t that Check accepts: matrices by their columns or rows,
// with the biases of columns; the rest is whole on every rank.
func (m Model) parts(t int64) parts {
	h, q, kv := int64(m.Hidden), int64(m.Heads)*m.headDim()/t, ceil(m.kvHeads(), t)*m.headDim()
	rows := ceil(int64(m.Vocab), t)
	p := parts{
		layer:     2*h*q + 2*h*kv,
		norms:     2 * h,
		finalNorm: h,
		embedding: rows*h + int64(m.Learned)*h,
		head:      rows * h,
	}
	if m.QKNorm {
		p.norms += 2 * m.headDim()
	}
	if m.Bias || m.QKVBias {
		p.layer += q + 2*kv
	}
	if m.Bias {
		p.layer += h
		p.norms, p.finalNorm = 2*p.norms, 2*p.finalNorm
	}
	if m.Experts == 0 {
		p.layer += m.block(int64(m.FFN) / t)
		return p
	}
	p.expert = m.block(m.expertFFN() / t)
	p.layer += h*int64(m.Experts) + int64(m.SharedExperts)*p.expert
	return p
}

// block returns the parameters of one feed-forward block of inner width f.
func (m Model) block(f int64) int64 {
	n := m.matrices() * int64(m.Hidden) * f
	if m.Bias {
		n += (m.matrices()-1)*f + int64(m.Hidden)
	}
	return n
}

// matrices returns how many matrices a feed-forward block has.
func (m Model) matrices() int64 {
	if m.Gated {
		return 3
	}
	return 2
}

func (m Model) kvHeads() int64 {
	if m.KVHeads == 0 {
		return int64(m.Heads)
	}
	return int64(m.KVHeads)
}

func (m Model) headDim() int64 {
	if m.HeadDim == 0 && m.Heads > 0 {
		return int64(m.Hidden / m.Heads)
	}
	return int64(m.HeadDim)
}

func (m Model) expertFFN() int64 {
	if m.ExpertFFN == 0 {
		return int64(m.FFN)
	}
	return int64(m.ExpertFFN)
}

// Validate reports every fault of m, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (m Model) Validate() error {
	f := faults{op: "perfmodel: model"}
	f.within("Layers", int64(m.Layers), 1, maxLayers)
	f.within("Hidden", int64(m.Hidden), 1, maxWidth)
	f.within("Heads", int64(m.Heads), 1, maxHeads)
	f.within("KVHeads", int64(m.KVHeads), 0, maxHeads)
	f.within("HeadDim", int64(m.HeadDim), 0, maxWidth)
	f.within("Vocab", int64(m.Vocab), 1, maxVocab)
	f.within("MaxDoc", int64(m.MaxDoc), 0, math.MaxInt32)
	f.within("Learned", int64(m.Learned), 0, maxVocab)
	if m.KVHeads > 0 {
		f.divides("Heads", int64(m.Heads), int64(m.KVHeads), "KVHeads")
	}
	if m.HeadDim == 0 {
		f.divides("Hidden", int64(m.Hidden), int64(m.Heads), "Heads")
	}
	m.validateFFN(&f)
	m.Mask.validate("Mask.", &f)
	if len(f.errs) == 0 && m.size() > maxParams {
		f.bad("Layers", text(m.Layers), "the model has more than 2^52 parameters")
	}
	return f.err()
}

// validateFFN checks the fields of the feed-forward blocks.
func (m Model) validateFFN(f *faults) {
	f.within("Experts", int64(m.Experts), 0, maxExperts)
	if m.Experts == 0 {
		f.within("FFN", int64(m.FFN), 1, maxWidth)
		f.within("TopK", int64(m.TopK), 0, 0)
		f.within("SharedExperts", int64(m.SharedExperts), 0, 0)
		f.within("ExpertFFN", int64(m.ExpertFFN), 0, 0)
		return
	}
	f.within("FFN", int64(m.FFN), 0, maxWidth)
	f.within("TopK", int64(m.TopK), 1, int64(max(1, m.Experts)))
	f.within("SharedExperts", int64(m.SharedExperts), 0, maxExperts)
	f.within("ExpertFFN", int64(m.ExpertFFN), 0, maxWidth)
	if m.FFN == 0 && m.ExpertFFN == 0 {
		f.bad("ExpertFFN", "0", "want at least 1, here or in FFN")
	}
}

// size returns about how many parameters m has, without overflow.
func (m Model) size() float64 {
	h, d, blocks := float64(m.Hidden), float64(m.headDim()), float64(max(1, m.Experts+m.SharedExperts))
	width := max(float64(m.FFN), float64(m.expertFFN()))
	layer := float64(2*h*d*(float64(m.Heads)+float64(m.kvHeads()))) + float64(blocks*3*(h+2)*(width+2))
	return float64(float64(m.Layers)*layer) + float64(2*h*(float64(m.Vocab)+float64(m.Learned)))
}
