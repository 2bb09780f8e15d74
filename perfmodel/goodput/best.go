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

func (s *search) run() {
	full := s.l.MaxBatch
	if !s.l.Accumulate {
		s.passes(1, s.least, min(full, s.most))
		return
	}
	from := s.least
	if s.gpus == 1 && from == s.m.cfg.Initial { // the initial batch alone may do with one pass
		k := (from + full - 1) / full
		s.passes(k, from, from)
		from++
	}
	low := max(1, (from+full-1)/full)
	if s.gpus == 1 {
		low = max(low, 2)
	}
	high := max(low, s.most/full)
	k := peak(low, high, func(k int64) float64 { return s.goodput(k, full) })
	// The best full batch has k passes: what is better has fewer samples and as many
	// passes, or more samples and one pass more.
	for _, k := range [3]int64{low, k, k + 1} {
		s.passes(k, from, s.most)
	}
}

// passes tries what takes k passes and no fewer, of from to most samples for each GPU.
func (s *search) passes(k, from, most int64) {
	full := s.l.MaxBatch
	lo := max(s.l.MinBatch, (from+k-1)/k)
	if k > 1 && !(s.gpus == 1 && k == 2) {
		lo = max(lo, full*(k-1)/k+1) // fewer would fit in k-1 passes
	}
	hi := min(full, most/k)
	if lo > hi {
		return
	}
	at := func(batch int64) float64 { return s.goodput(k, batch) }
	top := peak(lo, hi, at)
	g := at(top)
	for lo < top { // goodput rises up to top: the least batch that is as good, up to a millionth
		if mid := lo + (top-lo)/2; quantise(at(mid)/g) >= quantum {
			top = mid
		} else {
			lo = mid + 1
		}
	}
	s.offer(s.shape(k, top))
}

func (s *search) shape(k, batch int64) Shape {
	return Shape{Nodes: s.nodes, GPUs: s.gpus, Batch: batch, Accumulate: k - 1}
}

func (s *search) goodput(k, batch int64) float64 { return s.m.Goodput(s.shape(k, batch)) }

// offer keeps the better of the best so far and shape; of equals the one with fewer
// samples, then with fewer passes.
func (s *search) offer(shape Shape) {
	g := s.m.Goodput(shape)
	if s.found {
		now, was := quantise(g/s.best.Goodput), int64(quantum)
		if now < was || now == was && shape.Samples() >= s.best.Shape.Samples() {
			return
		}
	}
	n := shape.Samples()
	s.best = Choice{Shape: shape, Throughput: s.m.Throughput(shape), Efficiency: s.m.Efficiency(n), Goodput: g}
	s.found = true
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
