package goodput

// Limits bound the batches that a model may choose.
type Limits struct {
	MaxSamples int64 `json:"maxSamples,omitempty"` // MaxSamples is the largest batch over all GPUs, at least the initial one; 0 means the initial one.
	MinBatch   int64 `json:"minBatch,omitempty"`   // MinBatch is the least that one GPU takes in a pass; 0 means 1.
	MaxBatch   int64 `json:"maxBatch,omitempty"`   // MaxBatch is the most that fits on one GPU in a pass; 0 means MaxSamples.

	// Accumulate lets a GPU run several passes a step where one does not hold its
	// part of the batch. On one GPU every batch above the initial one then takes at
	// least two passes, since one alone tells nothing of the noise.
	Accumulate bool `json:"accumulate,omitempty"`
}

func (l Limits) filled(initial int64) Limits {
	if l.MaxSamples == 0 {
		l.MaxSamples = initial
	}
	if l.MaxBatch == 0 {
		l.MaxBatch = l.MaxSamples
	}
	l.MinBatch = max(l.MinBatch, 1)
	return l
}

func (l Limits) check(f *faults, initial int64) {
	if l.MaxSamples != 0 {
		f.count("Limits.MaxSamples", l.MaxSamples, initial, maxBatch)
	}
	most := max(l.MaxSamples, initial)
	f.count("Limits.MaxBatch", l.MaxBatch, 0, maxBatch)
	if l.MaxBatch > 0 {
		most = min(most, l.MaxBatch)
	}
	f.count("Limits.MinBatch", l.MinBatch, 0, most)
}

// Choice is the best way to run on so many GPUs.
type Choice struct {
	Shape      Shape   `json:"shape"`      // Shape has the batch and the passes that were chosen.
	Throughput float64 `json:"throughput"` // Throughput is its samples a second.
	Efficiency float64 `json:"efficiency"` // Efficiency is what one of its samples is worth.
	Goodput    float64 `json:"goodput"`    // Goodput is the product of the two.
}

// Best returns the shape with the greatest goodput on that many nodes and GPUs: no
// fewer samples a step than the initial batch, no more passes than the batch needs, and
// the fewest samples of those that come within a millionth of the greatest. Ok is false
// where the counts cannot be or no batch is inside the limits. It allocates nothing.
func (m *Model) Best(nodes, gpus int) (c Choice, ok bool) {
	if nodes < 1 || gpus < nodes || gpus > maxGPUs {
		return Choice{}, false
	}
	s := search{m: m, l: m.cfg.Limits, nodes: nodes, gpus: gpus}
	s.least = (max(m.cfg.Initial, s.l.MinBatch*int64(gpus)) + int64(gpus) - 1) / int64(gpus)
	s.most = s.l.MaxSamples / int64(gpus)
	if s.least > s.most {
		return Choice{}, false
	}
	s.run()
	return s.best, s.found
}

// Speedup returns the goodput of the best shape on that many nodes and GPUs over that of
// the best on one GPU. Ok is false where there is none of either.
func (m *Model) Speedup(nodes, gpus int) (x float64, ok bool) {
	c, ok := m.Best(nodes, gpus)
	if !ok || m.base == 0 {
		return 0, false
	}
	return c.Goodput / m.base, true
}

// Points returns the goodput of the best shape on 1 to most GPUs, on as few nodes of
// perNode GPUs as hold them, and at most 64 counts, for NewTable. Counts on which no
// batch fits are left out; for arguments below 1 there are none.
func (m *Model) Points(perNode, most int) []Point {
	var out []Point
	for n := 1; perNode > 0 && n <= min(most, maxPoints); n++ {
		if c, ok := m.Best((n-1)/perNode+1, n); ok {
			out = append(out, Point{GPUs: n, Rate: c.Goodput})
		}
	}
	return out
}

// search is one search for a best shape. With as few passes as a batch needs, the time
// of a step is convex in the samples that a GPU takes: within k passes it grows like
// computing does, and between two numbers of passes along a chord. Goodput is
// therefore quasi-concave in them, and the greatest lies beside the best full batch.
type search struct {
	m           *Model
	l           Limits
	nodes, gpus int
	least, most int64 // samples that one GPU takes in a step
	best        Choice
	found       bool
}

// span is the shapes of from to to samples for each GPU that take as many passes, and no
// fewer.
type span struct{ passes, from, to int64 }

func (s *search) run() {
	full := s.l.MaxBatch
	if !s.l.Accumulate {
		s.choose(span{1, s.least, min(full, s.most)})
		return
	}
	var initial span
	from := s.least
	if s.gpus == 1 && from == s.m.cfg.Initial { // the initial batch alone may do with one pass
		initial = span{(from + full - 1) / full, from, from}
		from++
	}
	low := max(1, (from+full-1)/full)
	if s.gpus == 1 {
		low = max(low, 2)
	}
	high := max(low, s.most/full)
	at := func(k int64) float64 { return s.goodput(k, full) }
	k := peak(low, high, at)
	// The best full batch has k passes: what is better has fewer samples and as many
	// passes, or more samples and one pass more. What is as good may have fewer passes.
	first := k
	if goal := s.greatest(initial, span{low, from, s.most}, span{k, from, s.most}, span{k + 1, from, s.most}); good(at(k), goal) {
		first = rise(low, k, func(k int64) bool { return good(at(k), goal) })
	}
	s.choose(initial, span{low, from, s.most}, span{first, from, s.most}, span{k, from, s.most}, span{k + 1, from, s.most})
}

// choose makes the best of the first of spans, which are in the order of their samples,
// that comes within a millionth of the greatest goodput in them, and of that the one
// with the fewest samples.
func (s *search) choose(spans ...span) {
	goal := s.greatest(spans...)
	for _, sp := range spans {
		lo, hi := s.batches(sp)
		if lo > hi {
			continue
		}
		at := func(batch int64) float64 { return s.goodput(sp.passes, batch) }
		top := peak(lo, hi, at)
		if !good(at(top), goal) {
			continue
		}
		shape := s.shape(sp.passes, rise(lo, top, func(batch int64) bool { return good(at(batch), goal) }))
		s.best = Choice{Shape: shape, Throughput: s.m.Throughput(shape), Efficiency: s.m.Efficiency(shape.Samples()), Goodput: s.m.Goodput(shape)}
		s.found = true
		return
	}
}

// greatest returns the greatest goodput in spans, 0 if they are empty.
func (s *search) greatest(spans ...span) float64 {
	most := 0.0
	for _, sp := range spans {
		if lo, hi := s.batches(sp); lo <= hi {
			at := func(batch int64) float64 { return s.goodput(sp.passes, batch) }
			most = max(most, at(peak(lo, hi, at)))
		}
	}
	return most
}

// batches returns the least and the most that a GPU takes in a pass of sp; the least is
// the greater one where there is none.
func (s *search) batches(sp span) (lo, hi int64) {
	k, full := sp.passes, s.l.MaxBatch
	if k < 1 {
		return 1, 0
	}
	lo = max(s.l.MinBatch, (sp.from+k-1)/k)
	if k > 1 && !(s.gpus == 1 && k == 2) {
		lo = max(lo, full*(k-1)/k+1) // fewer would fit in k-1 passes
	}
	return lo, min(full, sp.to/k)
}

func (s *search) shape(k, batch int64) Shape {
	return Shape{Nodes: s.nodes, GPUs: s.gpus, Batch: batch, Accumulate: k - 1}
}

func (s *search) goodput(k, batch int64) float64 { return s.m.Goodput(s.shape(k, batch)) }

// good says whether a goodput comes within a millionth of the greatest.
func good(g, greatest float64) bool { return quantise(g/greatest) >= quantum }

// rise returns the least from lo to hi that ok says yes to, which it goes on to do up to
// hi.
func rise(lo, hi int64, ok func(int64) bool) int64 {
	for lo < hi {
		if mid := lo + (hi-lo)/2; ok(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// peak returns where f, which rises and then falls, is greatest from lo to hi.
func peak(lo, hi int64, f func(int64) float64) int64 {
	for lo < hi {
		mid := lo + (hi-lo)/2
		if f(mid) < f(mid+1) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
