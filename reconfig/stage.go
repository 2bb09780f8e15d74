package reconfig

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// group is a tensor-parallel group. Groups are never changed once made.
type group struct {
	devs   []int32 // units in rank order
	rate   int64   // degree × slowest member, in millionths of a device
	mem    int64   // the least memory of a member
	node   int32   // node of the first member
	leaf   int32
	spread bool // over several nodes
}

// group builds the group of these units; it keeps devs.
func (w *world) group(devs []int32) *group {
	u := &w.units[devs[0]]
	g := &group{devs: devs, mem: u.mem, node: u.node, leaf: u.leaf}
	least := u.speed
	for _, d := range devs[1:] {
		u := &w.units[d]
		least, g.mem = min(least, u.speed), min(g.mem, u.mem)
		g.spread = g.spread || u.node != g.node
	}
	g.rate = least * int64(len(devs))
	return g
}

// slot is all that the time and memory of a stage depend on, besides its layers.
type slot struct {
	rate   int64
	mem    int64
	degree int32
	spread bool
}

func (g *group) slot() slot { return slot{g.rate, g.mem, int32(len(g.devs)), g.spread} }

// hop returns what a transfer between two groups takes.
func (w *world) hop(a, b *group) int64 {
	h := &w.job.Costs.Hop
	switch {
	case a.node == b.node && !a.spread && !b.spread:
		return int64(h.Node)
	case a.leaf == b.leaf:
		return int64(h.Leaf)
	}
	return int64(h.Fabric)
}

// collective returns what the collectives of one layer's forward pass take.
func (w *world) collective(s slot) int64 {
	if s.spread {
		return w.across[s.degree]
	}
	return w.coll[s.degree]
}

// took returns what virtual stage v takes for one micro-batch, by kind of op, if it
// computes layers a to b-1.
func (w *world) took(s slot, a, b int, first, last bool) [3]int64 {
	var t [3]int64
	wire := w.collective(s) * int64(b-a)
	for k := range t {
		work := w.prefix[k][b] - w.prefix[k][a]
		if first {
			work += w.ends[0][k]
		}
		if last {
			work += w.ends[1][k]
		}
		t[k] = share(work, s.rate)
		if k < 2 {
			t[k] += wire
		}
	}
	return t
}

// costBuffer is the memory of one simulation.
type costBuffer struct {
	fwd, bwd, wgt, send []time.Duration
	costs               pipeline.Costs
}

// row resizes s to n entries.
func row(s []time.Duration, n int) []time.Duration {
	if cap(s) < n {
		return make([]time.Duration, n)
	}
	return s[:n]
}

// What things take of the budget, in operations simulated: about so many times as
// long as one.
const (
	runCost    = 50  // a simulation, besides its operations
	newCost    = 10  // to compile a schedule, for each operation
	tryCost    = 100 // to look at a change
	divideCost = 200 // to deal out layers
)

// schedule is a compiled pipeline and what its stages have in flight at most.
type schedule struct {
	*pipeline.Line
	peaks []int
}

// schedule returns that of a pipeline alone; nil if the schedule has none such.
func (w *world) schedule(stages, micros int) *schedule {
	key := [2]int32{int32(stages), int32(micros)}
	l, ok := w.lines[key]
	if !ok {
		cfg := pipeline.Config{Schedule: w.job.Schedule, Stages: stages, Micros: micros}
		if w.chunks > 1 {
			cfg.Chunks = w.chunks
		}
		w.ops += int64(newCost * 2 * stages * w.chunks * micros)
		if line, err := pipeline.New(cfg); err == nil {
			l = &schedule{Line: line, peaks: peaks(line)}
		}
		w.lines[key] = l
	}
	return l
}

// peaks returns for each stage for how many micro-batches (of chunks) it keeps
// activations at most: from the forward pass until nothing needs them any more.
func peaks(l *pipeline.Line) []int {
	out := make([]int, l.Stages())
	last := pipeline.Backward
	if l.Splits() {
		last = pipeline.Weight
	}
	for s := range out {
		held := 0
		for _, op := range l.Order(s) {
			switch op.Kind {
			case pipeline.Forward:
				held++
				out[s] = max(out[s], held)
			case last:
				held--
			}
		}
	}
	return out
}

// run simulates one pipeline: slots and hops (of which the last is from the last
// stage back to the first) by stage, layers by virtual stage. It returns forever if
// that is not possible.
func (w *world) run(slots []slot, hops []int64, layers []int32, micros int) int64 {
	if micros == 0 {
		return 0
	}
	l := w.schedule(len(slots), micros)
	if l == nil {
		return forever
	}
	p, b := len(slots), &w.buf
	n := p * w.chunks
	b.fwd, b.bwd, b.wgt, b.send = row(b.fwd, n), row(b.bwd, n), row(b.wgt, n), row(b.send, n)
	at := 0
	for v := range n {
		end := at + int(layers[v])
		t := w.took(slots[v%p], at, end, v == 0, v == n-1)
		at = end
		b.fwd[v], b.bwd[v], b.wgt[v] = time.Duration(t[0]), time.Duration(t[1]), time.Duration(t[2])
		b.send[v] = time.Duration(hops[v%p])
	}
	b.costs = pipeline.Costs{Forward: b.fwd, Backward: b.bwd, Send: b.send, Return: b.send}
	if w.splits {
		b.costs.Weight = b.wgt
	}
	w.ops += int64(2*n*micros) + runCost
	w.ran = l.Line
	if err := l.Run(&b.costs, &w.res); err != nil || w.res.Makespan >= forever {
		return forever
	}
	return int64(w.res.Makespan)
}

// capKey is all that the number of layers which fit on a stage depends on.
type capKey struct {
	mem          int64
	degree       int32
	peak, losses int32
	replicas     int32
	first, last  bool
}

// room returns how many layers fit on a stage at most; -1 if not even none does.
func (w *world) room(s slot, first, last bool, peak, losses, replicas int) int {
	if s.mem == math.MaxInt64 {
		return w.layers
	}
	key := capKey{s.mem, s.degree, int32(peak), int32(losses), int32(replicas), first, last}
	if n, ok := w.caps[key]; ok {
		return int(n)
	}
	lo, hi := -1, w.layers // lo fits, or is -1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if w.memory(s.degree, mid, first, last, peak, losses, replicas) <= s.mem {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	w.caps[key] = int32(lo)
	return lo
}

// memory returns what a device of a stage needs, reserve included.
func (w *world) memory(degree int32, layers int, first, last bool, peak, losses, replicas int) int64 {
	j := &w.job
	l := j.Layout
	l.TP, l.PP, l.DP = int(degree), 1, replicas
	if l.EP > 1 && replicas%l.EP != 0 {
		return math.MaxInt64
	}
	s := perfmodel.Stage{Layers: layers, First: first, Last: last, Flash: j.Flash, Recompute: j.Recompute}
	u := perfmodel.Load{Tokens: j.Batch.Tokens, InFlight: peak, Chunks: w.chunks, Losses: losses, Reserve: j.Reserve}
	m, err := j.Model.Memory(l, s, u)
	if err != nil {
		return math.MaxInt64
	}
	return int64(m.Total())
}

// losses returns for how many micro-batches the last stage keeps logits.
func (w *world) losses(micros int) int {
	if w.job.Schedule == pipeline.GPipe {
		return max(1, micros)
	}
	return 1
}
