package perfmodel

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Cost is an amount of work, by how it grows with the length of documents.
type Cost struct {
	Linear    lockstep.FLOPs `json:"linear"`    // Linear is that of matrix products with weights, which grows with the tokens.
	Quadratic lockstep.FLOPs `json:"quadratic"` // Quadratic is that of attention scores and values, which grows with the pairs.
}

// Work is what a stage does with one micro-batch, over its whole tensor-parallel
// group: the caller divides by the degree.
type Work struct {
	Forward Cost `json:"forward"` // Forward is the forward pass.
	Input   Cost `json:"input"`   // Input is the backward pass for the gradient of the input, with what is computed again for it.
	Weight  Cost `json:"weight"`  // Weight is the backward pass for the gradients of the weights. It has no quadratic part.
}

// Rate is how fast a device, or a group of them, really works: attention and
// matrix products differ.
type Rate struct {
	Linear    lockstep.FLOPs `json:"linear"`    // Linear is per second, for Cost.Linear; above 0.
	Quadratic lockstep.FLOPs `json:"quadratic"` // Quadratic is per second, for Cost.Quadratic; 0 means as Linear.
}

// Work returns what stage s does with micro-batch b. The embedding is a lookup and
// costs nothing; the language-model head is that of the last stage and is never computed
// again. It allocates nothing.
func (m Model) Work(s Stage, b Batch) Work {
	n, layers := float64(b.Tokens), float64(s.Layers)
	layer := float64(float64(n*m.linear()) * layers)
	linear := layer
	if s.Last {
		linear += float64(n * 2 * float64(m.Hidden) * float64(m.Vocab))
	}
	quadratic := float64(layers * 4 * float64(m.Heads) * float64(m.headDim()) * b.Pairs)
	input := Cost{lockstep.FLOPs(linear), lockstep.FLOPs(2 * quadratic)}
	if s.Flash {
		input.Quadratic = lockstep.FLOPs(2.5 * quadratic)
	}
	switch s.Recompute {
	case RecomputeSelective:
		input.Quadratic += lockstep.FLOPs(quadratic)
	case RecomputeFull:
		input.Linear += lockstep.FLOPs(layer)
		input.Quadratic += lockstep.FLOPs(quadratic)
	}
	return Work{
		Forward: Cost{lockstep.FLOPs(linear), lockstep.FLOPs(quadratic)},
		Input:   input,
		Weight:  Cost{Linear: lockstep.FLOPs(linear)},
	}
}

// linear returns the linear work of one layer for one token, forward.
func (m Model) linear() float64 {
	h, d := float64(m.Hidden), float64(m.headDim())
	attention := float64(4*h*d*float64(m.Heads)) + float64(4*h*d*float64(m.kvHeads()))
	g := float64(2 * m.matrices())
	if m.Experts == 0 {
		return attention + float64(g*h*float64(m.FFN))
	}
	router := float64(2 * h * float64(m.Experts))
	return attention + router + float64(g*h*float64(m.expertFFN())*float64(m.TopK+m.SharedExperts))
}

// Total returns the sum of both parts.
func (c Cost) Total() lockstep.FLOPs { return c.Linear + c.Quadratic }

// Add returns c and o together.
func (c Cost) Add(o Cost) Cost { return Cost{c.Linear + o.Linear, c.Quadratic + o.Quadratic} }

// Backward returns the whole backward pass, for schedules that do not split it.
func (w Work) Backward() Cost { return w.Input.Add(w.Weight) }

// Time returns how long c takes at rate r, to the nearest nanosecond. It is held at the
// largest Duration, which is also the answer where the rate is not above 0.
func (c Cost) Time(r Rate) time.Duration {
	if r.Quadratic == 0 {
		r.Quadratic = r.Linear
	}
	if !(r.Linear > 0) || !(r.Quadratic > 0) {
		return math.MaxInt64
	}
	return quantise(float64(c.Linear)/float64(r.Linear) + float64(c.Quadratic)/float64(r.Quadratic))
}

// quantise turns seconds into a Duration.
func quantise(seconds float64) time.Duration {
	ns := math.Round(seconds * 1e9)
	if !(ns < math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(max(0, ns))
}
