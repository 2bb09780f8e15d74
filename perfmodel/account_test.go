package perfmodel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// A second account of memory and traffic, written down tensor by tensor from the papers that the package names. It shares no code
// with the package, has no shortcuts, and is compared with it over random shapes and layouts.

// tensor is a parameter of one rank.
type tensor struct {
	size   int64
	group  byte // 'l' of a layer, 'x' of its routed experts, 'e' embedding, 'h' head, 'n' final norm
	copies int64
}

// tensors lists what a rank of stage s has.
func tensors(m Model, l Layout, s Stage) (all []tensor) {
	t, h, d := int64(l.TP), int64(m.Hidden), int64(m.HeadDim)
	q, kv := int64(m.Heads)/t, max(1, int64(m.KVHeads)/t)
	add := func(group byte, copies int64, sizes ...int64) {
		for _, size := range sizes {
			all = append(all, tensor{size, group, copies})
		}
	}
	block := func(group byte, copies, f int64) {
		up := []int64{h * f}
		if m.Gated {
			up = append(up, h*f)
		}
		add(group, copies, up...)
		add(group, copies, f*h)
		if m.Bias {
			add(group, copies, int64(len(up))*f, h)
		}
	}
	layers := int64(s.Layers)
	add('l', layers, h*q*d, h*kv*d, h*kv*d, q*d*h, h, h) // the projections and two norms
	if m.Bias || m.QKVBias {
		add('l', layers, q*d, kv*d, kv*d)
	}
	if m.Bias {
		add('l', layers, h, h, h) // of the output projection and the norms
	}
	if m.QKNorm {
		add('l', layers, d, d)
		if m.Bias {
			add('l', layers, d, d)
		}
	}
	if m.Experts == 0 {
		block('l', layers, int64(m.FFN)/t)
	} else {
		add('l', layers, h*int64(m.Experts))
		block('l', layers*int64(m.SharedExperts), int64(m.ExpertFFN)/t)
		block('x', layers*int64(m.Experts/l.EP), int64(m.ExpertFFN)/t)
	}
	rows := (int64(m.Vocab) + t - 1) / t
	if s.First {
		add('e', 1, rows*h, int64(m.Learned)*h)
	}
	if s.Last {
		add('n', 1, h)
		if m.Bias {
			add('n', 1, h)
		}
		if !m.Tied || !s.First {
			add('h', 1, rows*h)
		}
	}
	return all
}

// countOf adds up tensors of some groups.
func countOf(all []tensor, groups string) (n int64) {
	for _, x := range all {
		for _, g := range groups {
			if x.group == byte(g) {
				n += x.size * x.copies
			}
		}
	}
	return n
}

func up(a, b int64) int64 { return (a + b - 1) / b }

// states is what is kept of the parameters, by lines, and what ZeRO 3 gathers.
func states(m Model, l Layout, s Stage) (lines [4]int64, gathered int64) {
	all, p := tensors(m, l, s), l.Precision
	groups := []struct{ params, ranks int64 }{{countOf(all, "lehn"), int64(l.DP)}, {countOf(all, "x"), int64(l.DP / l.EP)}}
	for _, g := range groups {
		for i, size := range []int{p.Weight, p.Gradient, p.Optimizer, p.Master} {
			from := []int{3, 2, 1, 1}[i]
			params := g.params
			if l.ZeRO >= from {
				params = up(params, g.ranks)
			}
			lines[i] += params * int64(size)
		}
	}
	if l.ZeRO < 3 || l.DP == 1 {
		return lines, 0
	}
	unit := int64(0)
	if s.Layers > 0 {
		s.Layers = 1
		layer := tensors(m, l, s)
		unit = countOf(layer, "l")
		if l.DP > l.EP {
			unit += countOf(layer, "x")
		}
	}
	unit = max(unit, countOf(all, "e"), countOf(all, "h"))
	return lines, unit * int64(2*p.Weight+p.Gradient)
}

// keeps is what a layer keeps of a micro-batch: all of it without scores, and the scores.
func keeps(m Model, l Layout, u Load) (plain, scores int64) {
	t, e, h, d := int64(l.TP), int64(l.Precision.Activation), int64(m.Hidden), int64(m.HeadDim)
	q, kv := int64(m.Heads)/t, max(1, int64(m.KVHeads)/t)
	whole := e*h + e*h + e*h + e*h // the input of each norm, of attention and of the feed-forward block
	mine := e*q*d + e*kv*d + e*kv*d + e*q*d
	inner := int64(2)
	if m.Gated {
		inner = 3
	}
	score := e * q
	if m.Dropout {
		whole += h + h // a mask of one byte behind each of the two
		score += q + e*q
	}
	if m.Experts == 0 {
		mine += inner * e * int64(m.FFN) / t
	} else {
		mine += int64(m.TopK+m.SharedExperts) * inner * e * int64(m.ExpertFFN) / t
		whole += int64(m.TopK)*(e*h+e*h) + 4*int64(m.Experts)
	}
	whole *= u.Tokens
	if l.SequenceParallel {
		whole = up(whole, t)
	}
	return whole + u.Tokens*mine, u.Tokens * u.Sequence * score
}

// account is Memory once more.
func account(m Model, l Layout, s Stage, u Load) (r Memory) {
	b := func(n int64) lockstep.Bytes { return lockstep.Bytes(n) }
	lines, gathered := states(m, l, s)
	r.Parameters = countOf(tensors(m, l, s), "lehnx")
	r.Weights, r.Gradients, r.Optimizer, r.Master, r.Gathered = b(lines[0]), b(lines[1]), b(lines[2]), b(lines[3]), b(gathered)
	e, h, t, held := int64(l.Precision.Activation), int64(m.Hidden), int64(l.TP), int64(u.InFlight)
	whole := func(n int64) int64 {
		if l.SequenceParallel {
			return up(n, t)
		}
		return n
	}
	plain, scores := keeps(m, l, u)
	if s.Flash {
		scores = 0
	}
	each, again := plain+scores, int64(0)
	switch s.Recompute {
	case RecomputeSelective:
		each, again = plain, scores
	case RecomputeFull:
		each, again = whole(u.Tokens*e*h), plain+scores
	}
	if s.Layers == 0 {
		again = 0
	}
	r.Activations, r.Recomputed = b(up(int64(s.Layers)*held*each, int64(u.Chunks))), b(again)
	if s.First {
		r.Embedding = b(8 * u.Tokens * held)
		if m.Dropout {
			r.Embedding += b(whole(u.Tokens * h * held))
		}
	}
	if s.Last { // the input of the final norm and of the head, the logits, and the loss's fp32 copy of them
		rows := up(int64(m.Vocab), t)
		r.Logits = b(int64(u.Losses) * (whole(u.Tokens*2*e*h) + u.Tokens*rows*(e+4)))
	}
	r.Context, r.Reserve = u.Context, u.Reserve
	return r
}

// traffic is Transfers once more.
func traffic(m Model, l Layout, s Stage, u Load, micros int64) (out []Transfer) {
	put := func(d Dimension, op Collective, ranks int, size, times int64) {
		if ranks > 1 && size > 0 && times > 0 {
			out = append(out, Transfer{d, op, ranks, lockstep.Bytes(size), times})
		}
	}
	t, p := int64(l.TP), l.Precision
	act := u.Tokens * int64(m.Hidden) * int64(p.Activation)
	passes := int64(2) // of a layer: forward, backward, and perhaps forward again
	if s.Recompute == RecomputeFull {
		passes = 3
	}
	ends := int64(0)
	for _, end := range []bool{s.First, s.Last} {
		if end {
			ends++
		}
	}
	sums := micros * (2*passes*int64(s.Layers) + ends)
	if l.SequenceParallel {
		put(Tensor, AllGather, l.TP, act, sums)
		put(Tensor, ReduceScatter, l.TP, act, sums)
	} else {
		put(Tensor, AllReduce, l.TP, act, sums)
	}
	if l.PP > 1 {
		sends := micros * (2*int64(u.Chunks) - ends)
		switch {
		case l.SequenceParallel:
			put(Pipeline, PointToPoint, 2, up(act, t), sends)
		case l.ScatterGather:
			put(Tensor, AllGather, l.TP, act, sends)
			put(Pipeline, PointToPoint, 2, up(act, t), sends)
		default:
			put(Pipeline, PointToPoint, 2, act, sends)
		}
		if m.Tied && ends == 1 {
			put(Pipeline, AllReduce, 2, up(int64(m.Vocab), t)*int64(m.Hidden)*int64(p.Gradient), 1)
		}
	}
	if m.Experts > 0 {
		rows := act * int64(m.TopK)
		if l.SequenceParallel {
			rows = up(rows, t)
		}
		put(Expert, AllToAll, l.EP, rows, micros*2*passes*int64(s.Layers))
	}
	all := tensors(m, l, s)
	replicas := func(d Dimension, ranks int, params int64) {
		g, w := params*int64(p.Gradient), params*int64(p.Weight)
		if l.ZeRO == 0 {
			put(d, AllReduce, ranks, g, 1)
			return
		}
		put(d, ReduceScatter, ranks, g, []int64{1, micros, micros}[l.ZeRO-1])
		put(d, AllGather, ranks, w, []int64{1, 1, 2 * micros}[l.ZeRO-1])
	}
	replicas(Data, l.DP, countOf(all, "lehn"))
	replicas(ExpertData, l.DP/l.EP, countOf(all, "x"))
	return out
}

// anyShape draws a valid shape, layout, stage and load, with all defaults spelled out.
func anyShape(r *rand.Rand) (m Model, l Layout, s Stage, u Load) {
	coin := func() bool { return r.IntN(2) == 0 }
	l = Layout{
		TP: 1 << r.IntN(4), PP: 1 + r.IntN(4), EP: 1, ZeRO: r.IntN(4), SequenceParallel: coin(), ScatterGather: coin(),
		Precision: Precision{Weight: 1 + r.IntN(5), Gradient: r.IntN(5), Optimizer: r.IntN(9), Master: r.IntN(5), Activation: 1 + r.IntN(4)},
	}
	m = Model{
		Layers: l.PP + r.IntN(9), Hidden: 1 + r.IntN(300), Heads: 8 << r.IntN(2), KVHeads: 1 << r.IntN(4), HeadDim: 1 + r.IntN(40),
		Vocab: 1 + r.IntN(5000), Learned: r.IntN(2) * r.IntN(2000), Gated: coin(), Tied: coin(), Bias: coin(), QKVBias: coin(), QKNorm: coin(), Dropout: coin(),
	}
	if coin() {
		m.Experts, m.ExpertFFN = 4*(1+r.IntN(4)), 8*(1+r.IntN(40))
		m.TopK, m.SharedExperts = 1+r.IntN(m.Experts), r.IntN(3)
		l.EP = 1 << r.IntN(3)
	} else {
		m.FFN = 8 * (1 + r.IntN(100))
	}
	l.DP = l.EP * (1 + r.IntN(4))
	s = Stage{Layers: r.IntN(m.Layers + 1), First: coin(), Last: coin(), Flash: coin(), Recompute: Recompute(r.IntN(3))}
	u = Load{
		Tokens: 1 + r.Int64N(5000), InFlight: 1 + r.IntN(9), Chunks: 1 + r.IntN(3), Losses: 1 + r.IntN(9),
		Context: lockstep.Bytes(r.Int64N(1 << 30)), Reserve: lockstep.Bytes(r.Int64N(1 << 30)),
	}
	u.Sequence = 1 + r.Int64N(u.Tokens)
	return m, l, s, u
}

func TestAccountsAgreeWithThoseMadeTensorByTensor(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range 5000 {
		m, l, s, u := anyShape(r)
		got, err := m.Memory(l, s, u)
		require.NoError(t, err)
		require.Equal(t, account(m, l, s, u), got, "%+v %+v %+v %+v", m, l, s, u)
		micros := 1 + r.IntN(20)
		sent, err := m.Transfers(nil, l, s, u, micros)
		require.NoError(t, err)
		require.Equal(t, traffic(m, l, s, u, int64(micros)), sent, "%+v %+v %+v %+v", m, l, s, u)

		alone := Layout{TP: 1, PP: 1, DP: 1, EP: 1}
		all := tensors(m, alone, s)
		require.Equal(t, countOf(all, "lehnx"), m.Parameters(s))
		active := countOf(all, "lehn")
		if m.Experts > 0 {
			active += countOf(all, "x") / int64(m.Experts) * int64(m.TopK)
		}
		require.Equal(t, active, m.ActiveParameters(s))
	}
}
