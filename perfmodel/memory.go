package perfmodel

import (
	"iter"
	"math"
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
)

// Memory is what one rank holds at the worst moment of a step, line by line.
type Memory struct {
	Parameters int64 `json:"parameters"` // Parameters is how many parameters are the rank's to compute with, before ZeRO divides what is kept of them.

	Weights     lockstep.Bytes `json:"weights"`     // Weights is what the rank keeps of them.
	Gradients   lockstep.Bytes `json:"gradients"`   // Gradients is what it keeps of theirs.
	Optimizer   lockstep.Bytes `json:"optimizer"`   // Optimizer is for the moments.
	Master      lockstep.Bytes `json:"master"`      // Master is for the optimizer's copy of the weights.
	Gathered    lockstep.Bytes `json:"gathered"`    // Gathered is for what ZeRO 3 brings together: the weights of one layer, those of the next, and the gradients of one.
	Activations lockstep.Bytes `json:"activations"` // Activations is what layers keep for the backward pass.
	Recomputed  lockstep.Bytes `json:"recomputed"`  // Recomputed is for what one layer computes again.
	Embedding   lockstep.Bytes `json:"embedding"`   // Embedding is what the embedding keeps: the tokens, and its dropout mask.
	Logits      lockstep.Bytes `json:"logits"`      // Logits is what the head and the loss keep.
	Context     lockstep.Bytes `json:"context"`     // Context is Load.Context.
	Reserve     lockstep.Bytes `json:"reserve"`     // Reserve is Load.Reserve.
}

// Lines yields every line of m with its name, in the order of the fields.
func (m Memory) Lines() iter.Seq2[string, lockstep.Bytes] {
	return func(yield func(string, lockstep.Bytes) bool) {
		_ = yield("weights", m.Weights) && yield("gradients", m.Gradients) && yield("optimizer", m.Optimizer) &&
			yield("master", m.Master) && yield("gathered", m.Gathered) && yield("activations", m.Activations) &&
			yield("recomputed", m.Recomputed) && yield("embedding", m.Embedding) && yield("logits", m.Logits) &&
			yield("context", m.Context) && yield("reserve", m.Reserve)
	}
}

// Total returns the sum of all lines.
func (m Memory) Total() lockstep.Bytes {
	var sum lockstep.Bytes
	for _, b := range m.Lines() {
		sum = sum.Add(b)
	}
	return sum
}

// Fit says whether m fits on a device with this much memory, as a verdict of
// lockstep.ReasonCapacity if it does not.
func (m Memory) Fit(device lockstep.Bytes) lockstep.Verdict {
	v := lockstep.Verdict{Feasible: true, Fit: 1, Want: 1}
	if total := m.Total(); total > device {
		v = lockstep.Verdict{
			Want: 1, Reason: lockstep.ReasonCapacity, Resource: lockstep.ResourceGPUMemory,
			Requested: int64(total), Available: int64(device),
		}
	}
	return v
}

// sizer multiplies and adds amounts, and remembers whether one was too large.
type sizer struct{ over bool }

// mul returns the product of amounts that are not negative.
func (z *sizer) mul(v ...int64) int64 {
	product := uint64(1)
	for _, x := range v {
		if x == 0 {
			return 0
		}
	}
	for _, x := range v {
		hi, lo := bits.Mul64(product, uint64(x))
		if hi != 0 || lo > math.MaxInt64 {
			z.over = true
			return math.MaxInt64
		}
		product = lo
	}
	return int64(product)
}

// add returns the sum of amounts that are not negative.
func (z *sizer) add(v ...int64) int64 {
	var sum lockstep.Bytes
	for _, x := range v {
		sum = sum.Add(lockstep.Bytes(x))
	}
	z.over = z.over || sum == math.MaxInt64
	return int64(sum)
}

// ceil returns a/b, rounded up, for a that is not negative.
func ceil(a, b int64) int64 {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}

// States returns what a rank keeps of so many parameters, which ranks replicas have in
// common, under this stage of ZeRO: the lines Weights, Gradients, Optimizer and Master.
// What is divided is rounded up to whole parameters. It returns an *lockstep.Error of
// kind ErrInvalid for a number out of range.
func (p Precision) States(params int64, zero, ranks int) (Memory, error) {
	f := faults{op: "perfmodel: states"}
	p.validate("", &f)
	f.within("params", params, 0, maxParams)
	f.within("zero", int64(zero), 0, 3)
	f.within("ranks", int64(ranks), 1, maxDegree)
	if len(f.errs) > 0 {
		return Memory{}, f.err()
	}
	var m Memory
	p.filled().states(&m, params, zero, ranks)
	return m, nil
}

func (p Precision) states(m *Memory, params int64, zero, ranks int) {
	kept := func(from, size int) lockstep.Bytes {
		if zero >= from {
			return lockstep.Bytes(ceil(params, int64(ranks)) * int64(size))
		}
		return lockstep.Bytes(params * int64(size))
	}
	m.Parameters += params
	m.Weights += kept(3, p.Weight)
	m.Gradients += kept(2, p.Gradient)
	m.Optimizer += kept(1, p.Optimizer)
	m.Master += kept(1, p.Master)
}

// Memory returns what a rank of stage s holds under load u. Every line is a whole number
// of bytes, rounded up. It returns the errors of Check, and an *lockstep.Error of kind
// ErrInvalid for a stage or a load out of range or for an amount beyond int64.
func (m Model) Memory(l Layout, s Stage, u Load) (Memory, error) {
	l, u, err := m.admit("perfmodel: memory", l, s, u)
	if err != nil {
		return Memory{}, err
	}
	var z sizer
	p := m.parts(int64(l.TP))
	dense, expert := p.rank(m, l, s)
	var r Memory
	l.Precision.states(&r, dense, l.ZeRO, l.DP)
	l.Precision.states(&r, expert, l.ZeRO, l.DP/l.EP)
	if l.ZeRO == 3 && l.DP > 1 {
		r.Gathered = lockstep.Bytes(z.mul(p.unit(m, l, s), int64(2*l.Precision.Weight+l.Precision.Gradient)))
	}
	m.activations(&z, &r, l, s, u)
	r.Context, r.Reserve = u.Context, u.Reserve
	if z.over || r.Total() == math.MaxInt64 {
		return Memory{}, invalid("perfmodel: memory", "Tokens", text(u.Tokens), "the memory is beyond int64 bytes")
	}
	return r, nil
}

// admit checks what Memory and Transfers are given, and fills in defaults.
func (m Model) admit(op string, l Layout, s Stage, u Load) (Layout, Load, error) {
	if err := m.Check(l); err != nil {
		return l, u, err
	}
	f := faults{op: op}
	f.within("Stage.Layers", int64(s.Layers), 0, int64(m.Layers))
	if s.Recompute > RecomputeFull {
		f.bad("Stage.Recompute", s.Recompute.String(), "want none, selective or full")
	}
	u.validate(&f)
	return l.filled(), u.filled(), f.err()
}

// rank returns how many parameters of a stage one rank has: those that all replicas
// have, and those of its routed experts.
func (p parts) rank(m Model, l Layout, s Stage) (dense, expert int64) {
	layers := int64(s.Layers)
	return layers*(p.layer+p.norms) + p.ends(m, s), layers * p.experts(m, l)
}

// experts returns the parameters of the routed experts that a rank has of one layer.
func (p parts) experts(m Model, l Layout) int64 { return int64(m.Experts/l.EP) * p.expert }

// ends returns the parameters outside the layers.
func (p parts) ends(m Model, s Stage) int64 {
	var n int64
	if s.First {
		n += p.embedding
	}
	if s.Last {
		n += p.finalNorm
		if !m.Tied || !s.First {
			n += p.head
		}
	}
	return n
}

// unit returns the largest group of parameters that ZeRO 3 gathers at once.
func (p parts) unit(m Model, l Layout, s Stage) int64 {
	var n int64
	if s.Layers > 0 {
		n = p.layer + p.norms
	}
	if s.Layers > 0 && l.DP > l.EP { // otherwise each routed expert is on one rank only
		n += p.experts(m, l)
	}
	if s.First {
		n = max(n, p.embedding)
	}
	if s.Last {
		n = max(n, p.head)
	}
	return n
}

// kept is what one layer keeps of one token: bytes that every rank of the tensor-parallel
// group keeps, bytes of its own part, and bytes for each key of the stored scores.
type kept struct{ whole, part, score int64 }

func (m Model) kept(l Layout) kept {
	t, e, h := int64(l.TP), int64(l.Precision.Activation), int64(m.Hidden)
	d, heads := m.headDim(), int64(m.Heads)/t
	k := kept{
		whole: 4 * e * h,                                  // the inputs of two norms and two blocks
		part:  e * d * (2*heads + 2*ceil(m.kvHeads(), t)), // queries, keys, values, input of the output projection
		score: e * heads,                                  // after the softmax
	}
	if m.Dropout {
		k.whole += 2 * h
		k.score += (e + 1) * heads // after dropout, and its mask
	}
	if m.Experts == 0 {
		k.part += e * m.matrices() * (int64(m.FFN) / t) // the inner activations: gate, up and their product
		return k
	}
	rows := int64(m.TopK + m.SharedExperts)
	k.part += e * m.matrices() * (m.expertFFN() / t) * rows
	k.whole += 2*e*h*int64(m.TopK) + 4*int64(m.Experts) // rows sent to experts and back, fp32 router scores
	return k
}

// activations fills in the lines of r that grow with the tokens.
func (m Model) activations(z *sizer, r *Memory, l Layout, s Stage, u Load) {
	t, e, h, n := int64(l.TP), int64(l.Precision.Activation), int64(m.Hidden), u.Tokens
	whole := func(b int64) int64 { // what only sequence parallelism divides
		if l.SequenceParallel {
			return ceil(b, t)
		}
		return b
	}
	k := m.kept(l)
	layer := z.add(whole(z.mul(n, k.whole)), z.mul(n, k.part))
	scores := int64(0)
	if !s.Flash {
		scores = z.mul(n, u.Sequence, k.score)
	}
	keeps, again := z.add(layer, scores), int64(0)
	switch s.Recompute {
	case RecomputeSelective:
		keeps, again = layer, scores
	case RecomputeFull:
		keeps, again = whole(z.mul(n, e, h)), keeps
	}
	held := int64(u.InFlight)
	r.Activations = lockstep.Bytes(ceil(z.mul(keeps, int64(s.Layers), held), int64(u.Chunks)))
	if s.Layers > 0 {
		r.Recomputed = lockstep.Bytes(again)
	}
	if s.First {
		r.Embedding = lockstep.Bytes(z.mul(n, held, 8))
		if m.Dropout {
			r.Embedding = lockstep.Bytes(z.add(int64(r.Embedding), whole(z.mul(n, held, h))))
		}
	}
	if s.Last {
		row := z.mul(ceil(int64(m.Vocab), t), e+4)
		r.Logits = lockstep.Bytes(z.mul(z.add(whole(z.mul(n, 2*e, h)), z.mul(n, row)), int64(u.Losses)))
	}
}

// KVCache returns what one rank keeps of the keys and values of so many tokens, for the
// layers of stage s under tensor parallelism tp, with element bytes a number; for a mask
// with a window, tokens are at most Window of each sequence. It returns an
// *lockstep.Error of kind ErrInvalid as Memory does.
func (m Model) KVCache(s Stage, tp, element int, tokens int64) (lockstep.Bytes, error) {
	if err := m.Check(Layout{TP: tp}); err != nil {
		return 0, err
	}
	f := faults{op: "perfmodel: kv cache"}
	f.within("s.Layers", int64(s.Layers), 0, int64(m.Layers))
	f.within("element", int64(element), 1, maxElem)
	f.within("tokens", tokens, 0, maxTokens)
	if len(f.errs) > 0 {
		return 0, f.err()
	}
	var z sizer
	b := z.mul(2, int64(s.Layers), ceil(m.kvHeads(), int64(max(tp, 1))), m.headDim(), tokens, int64(element))
	if z.over {
		return 0, invalid("perfmodel: kv cache", "tokens", text(tokens), "the memory is beyond int64 bytes")
	}
	return lockstep.Bytes(b), nil
}
