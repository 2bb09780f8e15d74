package perfmodel

import (
	"math"

	"github.com/lockstep-gpu/lockstep"
)

// Dimension is a way in which a layout divides a model, and so a group of ranks.
type Dimension uint8

// The dimensions.
const (
	Tensor     Dimension = iota // Tensor: the TP ranks of a stage.
	Pipeline                    // Pipeline: a rank and its like in a neighbouring stage.
	Data                        // Data: the DP ranks that have the same parameters.
	Expert                      // Expert: the EP ranks among which the routed experts are divided.
	ExpertData                  // ExpertData: the DP/EP ranks that have the same routed experts.
)

// Transfer is a collective that a rank takes part in, so many times a step.
type Transfer struct {
	Dimension Dimension      `json:"dimension"` // Dimension is the group.
	Op        Collective     `json:"op"`        // Op is what it does.
	Ranks     int            `json:"ranks"`     // Ranks is how many ranks it has, at least 2.
	Size      lockstep.Bytes `json:"size"`      // Size is that of one message.
	Times     int64          `json:"times"`     // Times is how often it happens in a step.
}

// Wire returns how many bytes one rank sends for t in a step.
func (t Transfer) Wire() lockstep.Bytes { return t.Op.Wire(t.Ranks, t.Size).Mul(t.Times) }

// Transfers appends to dst what one rank of stage s takes part in during a step of so
// many micro-batches under load u, in the order Tensor, Pipeline, Expert, Data,
// ExpertData. What does not happen, or has a single rank, is left out. It returns the
// errors of Memory, and dst as it was.
//
//   - Tensor: a layer sums its activations twice forward and twice backward, and twice more
//     if it is computed again; sequence parallelism gathers and scatters the same bytes.
//     The embedding sums once forward, the head once backward. That sequence parallelism
//     gathers the input of a block again in the backward pass, which frameworks hide
//     behind work, is not counted.
//   - Pipeline: activations to the next model chunk and gradients to the one before.
//     ScatterGather and SequenceParallel send 1/TP of them; with the first alone the stage
//     gathers them again. The two ends sum the gradient of a tied embedding.
//   - Expert: a layer sends the TopK rows of each token to its experts and back, forward
//     and backward, and forward once more if it is computed again.
//   - Data and ExpertData: the gradients are summed once. With ZeRO 1 they are scattered once
//     and the weights gathered once; with 2 they are scattered after each micro-batch; with 3
//     weights are also gathered for each micro-batch, forward and backward.
func (m Model) Transfers(dst []Transfer, l Layout, s Stage, u Load, micros int) ([]Transfer, error) {
	l, u, err := m.admit("perfmodel: transfers", l, s, u)
	if err != nil {
		return dst, err
	}
	f := faults{op: "perfmodel: transfers"}
	f.within("micros", int64(micros), 1, maxCount)
	if len(f.errs) > 0 {
		return dst, f.err()
	}
	x := transfers{dst: dst, m: m, l: l, s: s, u: u, micros: int64(micros)}
	x.tensor()
	x.pipeline()
	x.expert()
	x.data()
	for _, t := range x.dst[len(dst):] {
		x.over = x.over || t.Wire() == math.MaxInt64
	}
	if x.over {
		return dst, invalid("perfmodel: transfers", "Tokens", text(u.Tokens), "the traffic is beyond int64 bytes")
	}
	return x.dst, nil
}

// transfers collects the transfers of one rank.
type transfers struct {
	sizer
	dst    []Transfer
	m      Model
	l      Layout
	s      Stage
	u      Load
	micros int64
}

// put appends a transfer, unless there is nothing to send.
func (x *transfers) put(d Dimension, op Collective, ranks int, size, times int64) {
	if ranks > 1 && size > 0 && times > 0 {
		x.dst = append(x.dst, Transfer{d, op, ranks, lockstep.Bytes(size), times})
	}
}

// activation returns the bytes of one activation of a micro-batch.
func (x *transfers) activation() int64 {
	return x.mul(x.u.Tokens, int64(x.m.Hidden), int64(x.l.Precision.Activation))
}

func (x *transfers) tensor() {
	each := int64(4)
	if x.s.Recompute == RecomputeFull {
		each = 6
	}
	times := each * int64(x.s.Layers)
	if x.s.First {
		times++
	}
	if x.s.Last {
		times++
	}
	times *= x.micros
	if x.l.SequenceParallel {
		x.put(Tensor, AllGather, x.l.TP, x.activation(), times)
		x.put(Tensor, ReduceScatter, x.l.TP, x.activation(), times)
		return
	}
	x.put(Tensor, AllReduce, x.l.TP, x.activation(), times)
}

func (x *transfers) pipeline() {
	if x.l.PP == 1 {
		return
	}
	out, back := int64(x.u.Chunks), int64(x.u.Chunks) // to the chunk after each, and to the one before
	if x.s.Last {
		out--
	}
	if x.s.First {
		back--
	}
	size, t := x.activation(), int64(x.l.TP)
	if x.l.ScatterGather || x.l.SequenceParallel {
		if !x.l.SequenceParallel { // what arrives comes from as many chunks as there are to send to
			x.put(Tensor, AllGather, x.l.TP, size, (out+back)*x.micros)
		}
		size = ceil(size, t)
	}
	x.put(Pipeline, PointToPoint, 2, size, (out+back)*x.micros)
	if x.m.Tied && x.s.First != x.s.Last {
		rows := ceil(int64(x.m.Vocab), t)
		x.put(Pipeline, AllReduce, 2, x.mul(rows, int64(x.m.Hidden), int64(x.l.Precision.Gradient)), 1)
	}
}

func (x *transfers) expert() {
	if x.m.Experts == 0 {
		return
	}
	each := int64(4)
	if x.s.Recompute == RecomputeFull {
		each = 6
	}
	size := x.mul(x.activation(), int64(x.m.TopK))
	if x.l.SequenceParallel {
		size = ceil(size, int64(x.l.TP))
	}
	x.put(Expert, AllToAll, x.l.EP, size, each*int64(x.s.Layers)*x.micros)
}

func (x *transfers) data() {
	p := x.m.parts(int64(x.l.TP))
	dense, expert := p.rank(x.m, x.l, x.s)
	x.reduce(Data, x.l.DP, dense)
	x.reduce(ExpertData, x.l.DP/x.l.EP, expert)
}

// reduce adds what ranks replicas do with the gradients and weights of so many parameters.
func (x *transfers) reduce(d Dimension, ranks int, params int64) {
	gradients := x.mul(params, int64(x.l.Precision.Gradient))
	weights := x.mul(params, int64(x.l.Precision.Weight))
	switch x.l.ZeRO {
	case 0:
		x.put(d, AllReduce, ranks, gradients, 1)
	case 1:
		x.put(d, ReduceScatter, ranks, gradients, 1)
		x.put(d, AllGather, ranks, weights, 1)
	case 2:
		x.put(d, ReduceScatter, ranks, gradients, x.micros)
		x.put(d, AllGather, ranks, weights, 1)
	case 3:
		x.put(d, ReduceScatter, ranks, gradients, x.micros)
		x.put(d, AllGather, ranks, weights, 2*x.micros)
	}
}
