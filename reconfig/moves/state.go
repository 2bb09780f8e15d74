package moves

import (
	"cmp"
	"iter"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// block is how the parameters of a Block are held.
type block struct {
	whole  int64 // by every rank
	keys   int64 // keys and values: by head
	sliced int64 // by the i-th rank the i-th part

	experts      int64 // how many routed experts there are
	expertWhole  int64 // of one, by every rank
	expertSliced int64
}

func (b *block) length() int64 { return b.dense() + b.experts*(b.expertWhole+b.expertSliced) }
func (b *block) dense() int64  { return b.whole + b.keys + b.sliced }

// accounts are the sizes of a job's state.
type accounts struct {
	job     reconfig.Job
	layers  int
	heads   int64 // of keys and values
	rows    [3]block
	weight  int64 // bytes of a parameter
	moments int64 // bytes of the optimizer's state of one, master weights included
}

// The kinds of block in accounts.rows.
const (
	layerRow = iota
	embeddingRow
	headRow
)

func (a *accounts) block(b Block) *block {
	switch b {
	case Embedding:
		return &a.rows[embeddingRow]
	case Head:
		return &a.rows[headRow]
	}
	return &a.rows[layerRow]
}

// newAccounts takes the sizes from perfmodel's accounts: what a rank has as a function
// of the degree says what is whole and what is divided.
func newAccounts(op string, job reconfig.Job) (*accounts, error) {
	f := faults{op: op}
	f.wrap(job.Validate())
	if err := f.err(); err != nil {
		return nil, err
	}
	a := &accounts{job: job, layers: job.Model.Layers, heads: int64(cmp.Or(job.Model.KVHeads, job.Model.Heads))}
	l := &a.job.Layout
	l.TP, l.EP = max(1, l.TP), max(1, l.EP)
	one, err := job.Layout.Precision.States(1, 0, 1)
	if err != nil {
		return nil, err
	}
	a.weight, a.moments = int64(one.Weights), int64(one.Optimizer+one.Master)
	m := job.Model
	layer := &a.rows[layerRow]
	if m.Experts > 1 {
		others := int64(m.Experts - 1)
		layer.experts = int64(m.Experts)
		layer.expertWhole, layer.expertSliced = a.divide(0, func(k int64) int64 {
			return (a.probe(perfmodel.Stage{Layers: 1}, k, 1) - a.probe(perfmodel.Stage{Layers: 1}, k, m.Experts)) / others
		})
	}
	layer.keys = a.keyParameters()
	layer.whole, layer.sliced = a.divide(layer.keys, func(k int64) int64 {
		return a.probe(perfmodel.Stage{Layers: 1}, k, 1) - layer.experts*(layer.expertWhole+layer.expertSliced/k)
	})
	e, h := &a.rows[embeddingRow], &a.rows[headRow]
	e.whole, e.sliced = a.divide(0, func(k int64) int64 { return a.probe(perfmodel.Stage{First: true}, k, 1) })
	h.whole, h.sliced = a.divide(0, func(k int64) int64 { return a.probe(perfmodel.Stage{Last: true}, k, 1) })
	if m.Tied { // the rows are those of the embedding
		if e.sliced == 0 { // no degree but 1: tell the rows from the positions
			e.sliced = int64(m.Vocab) * int64(m.Hidden)
			e.whole -= e.sliced
			h.whole -= e.sliced
		}
		h.sliced = 0
	}
	return a, nil
}

// probe returns the parameters that a rank has of a stage.
func (a *accounts) probe(s perfmodel.Stage, k int64, ep int) int64 {
	l := perfmodel.Layout{TP: int(k), EP: ep, DP: ep, Precision: a.job.Layout.Precision}
	m, err := a.job.Model.Memory(l, s, perfmodel.Load{Tokens: 1})
	if err != nil { // a valid job has these
		return 0
	}
	return m.Parameters
}

// degree returns the least degree above 1 by which the model can be divided; 1 if
// the job allows none.
func (a *accounts) degree() int64 {
	for k := 2; k <= a.job.Layout.TP; k++ {
		if a.divides(k) {
			return int64(k)
		}
	}
	return 1
}

// divide solves whole + sliced/k + keys/min(k, heads) = at(k) for whole and sliced.
func (a *accounts) divide(keys int64, at func(k int64) int64) (whole, sliced int64) {
	k, all := a.degree(), at(1)-keys
	if k == 1 {
		return all, 0
	}
	own := at(k) - keys/min(k, a.heads)
	sliced = (all - own) / (k - 1) * k
	return all - sliced, sliced
}

// keyParameters returns those of keys and values in one layer where ranks may have to
// share them; 0 where they can be divided like everything else.
func (a *accounts) keyParameters() int64 {
	m := a.job.Model
	if all := int64(m.Heads); a.heads < all {
		full := m
		full.KVHeads = m.Heads
		s := perfmodel.Stage{Layers: 1}
		return (full.Parameters(s) - m.Parameters(s)) / (all - a.heads) * a.heads
	}
	return 0
}

// holder is a place in a plan that holds state.
type holder struct {
	replica, replicas int
	degree, rank      int64
	rowsOnly          bool // of a block only what tensor parallelism divides
}

// piece is a run of parameters of a block.
type piece struct {
	a, b   int64
	expert bool
}

// pieces appends what a holder has of a block before ZeRO divides it.
func (a *accounts) pieces(dst []piece, b *block, h holder) []piece {
	add := func(first, end int64, expert bool) {
		if first < end {
			dst = append(dst, piece{first, end, expert})
		}
	}
	k, i := h.degree, h.rank
	if !h.rowsOnly {
		add(0, b.whole, false)
	}
	n, j := k, i
	if k > a.heads {
		n, j = a.heads, i*a.heads/k
	}
	add(b.whole+part(b.keys, j, n), b.whole+part(b.keys, j+1, n), false)
	at := b.whole + b.keys
	add(at+part(b.sliced, i, k), at+part(b.sliced, i+1, k), false)
	at += b.sliced
	ep := int64(a.job.Layout.EP)
	own := b.experts / ep
	first := int64(h.replica) % ep * own
	for e := first; e < first+own; e++ {
		base := at + e*(b.expertWhole+b.expertSliced)
		add(base, base+b.expertWhole, true)
		base += b.expertWhole
		add(base+part(b.expertSliced, i, k), base+part(b.expertSliced, i+1, k), true)
	}
	return dst
}

// heldRow is what a device holds.
type heldRow struct {
	id   lockstep.DeviceID
	runs []run
}

// held returns what the devices of a plan hold, by ID.
func (a *accounts) held(op string, p *reconfig.Plan) ([]heldRow, error) {
	if err := a.check(op, p); err != nil {
		return nil, err
	}
	cuts := a.cuts(p)
	var out []heldRow
	for i, r := range p.Replicas {
		for j, s := range r.Stages {
			for rank, id := range s.Devices {
				h := holder{replica: i, replicas: len(p.Replicas), degree: int64(len(s.Devices)), rank: int64(rank)}
				b := builder{a: a, cuts: cuts, holder: h}
				for blk, rowsOnly := range a.blocksOf(s, j == 0, j == len(r.Stages)-1) {
					b.holder.rowsOnly = rowsOnly
					b.add(blk)
				}
				slices.SortFunc(b.runs, run.compare)
				out = append(out, heldRow{id, merge(b.runs)})
			}
		}
	}
	slices.SortFunc(out, func(x, y heldRow) int { return cmp.Compare(x.id, y.id) })
	for i := 1; i < len(out); i++ {
		if out[i].id == out[i-1].id {
			return nil, infeasible(reconfig.TensorLevel, reconfig.ReasonTwice, reconfig.Witness{Devices: []lockstep.DeviceID{out[i].id}})
		}
	}
	return out, nil
}

// builder collects what one holder has.
type builder struct {
	a      *accounts
	cuts   map[Block][]int64
	holder holder
	runs   []run
	buf    []piece
}

func (b *builder) add(blk Block) {
	a := b.a
	b.buf = a.pieces(b.buf[:0], a.block(blk), b.holder)
	for _, p := range b.buf {
		if a.weight > 0 {
			b.part(a.slot(false, blk), p, a.job.Layout.ZeRO >= 3, b.cuts[blk])
		}
		if a.moments > 0 {
			b.part(a.slot(true, blk), p, a.job.Layout.ZeRO >= 1, b.cuts[blk])
		}
	}
}

// part adds a piece, or the share of it that is left where ZeRO divides it.
func (b *builder) part(slot int32, p piece, divided bool, cuts []int64) {
	n, i := int64(b.holder.replicas), int64(b.holder.replica)
	if p.expert {
		ep := int64(b.a.job.Layout.EP)
		n, i = n/ep, i/ep
	}
	if !divided || n <= 1 {
		b.runs = append(b.runs, run{slot, p.a, p.b})
		return
	}
	at, _ := slices.BinarySearch(cuts, p.a+1)
	for from := p.a; from < p.b; at++ {
		to := p.b
		if at < len(cuts) {
			to = min(to, cuts[at])
		}
		x, y := from+part(to-from, i, n), from+part(to-from, i+1, n)
		if x < y {
			b.runs = append(b.runs, run{slot, x, y})
		}
		from = to
	}
}

// cuts returns for each block where a piece of any holder begins or ends, sorted;
// nil where nothing is divided among replicas.
func (a *accounts) cuts(p *reconfig.Plan) map[Block][]int64 {
	if a.job.Layout.ZeRO == 0 || len(p.Replicas) < 2 {
		return nil
	}
	degrees := a.degreesOf(p)
	out := make(map[Block][]int64, len(degrees))
	var buf []piece
	for b, list := range degrees { // blocks do not meet, so their order does not matter
		var at []int64
		for _, k := range list {
			for n := range k * a.job.Layout.EP {
				h := holder{replica: n / k, degree: int64(k), rank: int64(n % k)}
				buf = a.pieces(buf[:0], a.block(b), h)
				for _, q := range buf {
					at = append(at, q.a, q.b)
				}
			}
		}
		slices.Sort(at)
		out[b] = slices.Compact(at)
	}
	return out
}

// degreesOf returns the degrees of the stages that hold each block.
func (a *accounts) degreesOf(p *reconfig.Plan) map[Block][]int {
	degrees := map[Block][]int{}
	for _, r := range p.Replicas {
		for j, s := range r.Stages {
			for b := range a.blocksOf(s, j == 0, j == len(r.Stages)-1) {
				if k := len(s.Devices); !slices.Contains(degrees[b], k) {
					degrees[b] = append(degrees[b], k)
				}
			}
		}
	}
	return degrees
}

// blocksOf yields the blocks of a stage, and whether it has of each only what tensor
// parallelism divides: the rows of a tied embedding on a last stage.
func (a *accounts) blocksOf(s reconfig.Stage, first, last bool) iter.Seq2[Block, bool] {
	return func(yield func(Block, bool) bool) {
		for _, span := range s.Spans {
			for n := span.First; n < span.End(); n++ {
				if !yield(Block(n), false) {
					return
				}
			}
		}
		if last && !yield(Head, false) {
			return
		}
		if first || last && a.job.Model.Tied {
			yield(Embedding, !first)
		}
	}
}

// check refuses a plan that does not lay out this job.
func (a *accounts) check(op string, p *reconfig.Plan) error {
	bad := func(field, value, reason string) error {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Value: value, Reason: reason}
	}
	if p == nil || len(p.Replicas) == 0 || len(p.Replicas)%a.job.Layout.EP != 0 {
		return bad("p", "", "want a plan, with a multiple of Layout.EP replicas")
	}
	for i, r := range p.Replicas {
		field := "Replicas[" + text(i) + "]"
		seen := make([]bool, a.layers)
		count := 0
		for j, s := range r.Stages {
			if k := len(s.Devices); !a.divides(k) || slices.Contains(s.Devices, "") {
				return bad(field+".Stages["+text(j)+"]", text(k), "devices cannot divide a layer")
			}
			for _, span := range s.Spans {
				if span.First < 0 || span.Layers < 0 || span.Layers > a.layers-span.First || slices.Contains(seen[span.First:span.End()], true) {
					return bad(field+".Stages["+text(j)+"]", text(span.First), "the model has no such layers, or the replica has them twice")
				}
				for n := span.First; n < span.End(); n++ {
					seen[n] = true
				}
				count += span.Layers
			}
		}
		if count != a.layers {
			return bad(field, text(count)+" layers", "is of another job")
		}
	}
	return nil
}

// divides says whether k ranks can hold a layer together.
func (a *accounts) divides(k int) bool {
	m := a.job.Model
	return k >= 1 && k <= a.job.Layout.TP && m.Vocab%k == 0 && m.Check(perfmodel.Layout{TP: k}) == nil
}
