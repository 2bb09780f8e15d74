package main

import (
	"errors"
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// plan is a layout with what it costs.
type plan struct {
	GPUs   int              `json:"gpus"`
	Layout perfmodel.Layout `json:"layout"`
	Micros int              `json:"micros"` // micro-batches of a replica and step
	Stages []stage          `json:"stages"`
	Step   *step            `json:"step,omitempty"`
}

// stage is a pipeline stage of a plan.
type stage struct {
	perfmodel.Stage
	InFlight int              `json:"inFlight"`
	Memory   perfmodel.Memory `json:"memory"`
	Total    lockstep.Bytes   `json:"total"`
}

// fullest returns the stage that needs the most memory, the first of equal ones.
func (p *plan) fullest() (int, lockstep.Bytes) {
	at, most := 0, lockstep.Bytes(-1)
	for i := range p.Stages {
		if p.Stages[i].Total > most {
			at, most = i, p.Stages[i].Total
		}
	}
	return at, most
}

// bill is the answer.
type bill struct {
	job   *job
	Best  *plan // the shortest step on the fewest GPUs that fit; nil if none fits
	Close *plan // of the numbers that were tried before, on the largest, what needs the least; nil if there is none
	Wider []wider
}

// wider is what another setting would change.
type wider struct {
	Setting string `json:"setting"`
	GPUs    int    `json:"gpus"` // the fewest that fit; 0 if none
}

func (j *job) bill() (*bill, error) {
	b := &bill{job: j}
	var err error
	if b.Best, b.Close, err = j.search(); err != nil {
		return nil, err
	}
	if j.gpus == 0 {
		b.Wider, err = j.levers(b.Best)
	}
	return b, err
}

// search tries numbers of GPUs from the smallest.
func (j *job) search() (best, nearest *plan, err error) {
	s := searcher{job: j, peaks: map[peakKey]peak{}}
	for _, n := range j.sizes() {
		fits, least, err := s.on(n)
		if err != nil || fits != nil {
			return fits, nearest, err
		}
		if least != nil {
			nearest = least
		}
	}
	if nearest == nil {
		return nil, nil, s.nothing()
	}
	return nil, nearest, nil
}

// sizes are the numbers of GPUs to try, in order.
func (j *job) sizes() []int {
	if j.gpus > 0 {
		return []int{j.gpus}
	}
	var sizes []int
	for n := 1; n <= j.max; {
		sizes = append(sizes, n)
		if n < j.node {
			n++
		} else {
			n += j.node
		}
	}
	return sizes
}

// searcher keeps what layouts have in common.
type searcher struct {
	*job
	peaks map[peakKey]peak // what peak found
	why   error            // why a layout was refused
}

type peakKey struct{ stages, micros int }

// peak is what a schedule has begun and not ended at the worst moment.
type peak struct {
	inFlight []int // by stage: micro-batches of its chunks, where a chunk counts by how many layers it has
	losses   int   // micro-batches of which the last stage keeps the logits
}

// nothing says why there is no layout at all.
func (s *searcher) nothing() error {
	switch {
	case s.why != nil:
		return s.why
	case s.tp > s.node:
		return fmt.Errorf("-tp %d: more than the GPUs of a node, %d", s.tp, s.node)
	case s.pp*s.chunks > s.model.Layers:
		return fmt.Errorf("-pp %d: want at most %d, so that each of %d chunks a stage has a layer", s.pp, s.model.Layers/s.chunks, s.chunks)
	}
	if s.tp > 0 {
		l := s.layout
		l.TP = s.tp
		if err := s.model.Check(l); err != nil {
			return fmt.Errorf("-tp %d: %w", s.tp, err)
		}
	}
	return errors.New("no layout to try: no degree inside a node, number of stages and equal shares of -batch come out at these GPUs")
}

// on returns the layout of n GPUs that fits with the shortest step, and else the one whose fullest stage needs the least.
func (s *searcher) on(n int) (fits, least *plan, err error) {
	limit := s.memory
	for _, l := range s.layouts(n) {
		p, err := s.plan(n, l)
		if err != nil {
			s.why = err
			continue
		}
		_, most := p.fullest()
		if most > limit {
			if least == nil {
				least = p
			} else if _, other := least.fullest(); most < other {
				least = p
			}
			continue
		}
		if p.Step, err = s.step(p); err != nil {
			return nil, nil, err
		}
		if fits == nil || p.Step.Total < fits.Step.Total {
			fits = p
		}
	}
	return fits, least, nil
}

// layouts returns the ways to divide the job over n GPUs, in a fixed order.
func (s *searcher) layouts(n int) []perfmodel.Layout {
	var all []perfmodel.Layout
	for tp := 1; tp <= min(n, s.node); tp++ {
		if n%tp != 0 || s.node%tp != 0 && tp != n || s.tp != 0 && tp != s.tp {
			continue
		}
		for pp := 1; pp <= min(n/tp, s.model.Layers/s.chunks); pp++ {
			dp := n / tp / pp
			if n/tp%pp != 0 || s.pp != 0 && pp != s.pp || s.batch/s.micro%dp != 0 {
				continue
			}
			if s.schedule == pipeline.Interleaved && s.batch/s.micro/dp%pp != 0 {
				continue
			}
			for ep := 1; ep <= max(1, min(dp, s.model.Experts)); ep++ {
				l := s.layout
				l.TP, l.PP, l.DP, l.EP = tp, pp, dp, ep
				if dp%ep == 0 && s.model.Check(l) == nil {
					all = append(all, l)
				}
			}
		}
	}
	return all
}

// line returns the compiled schedule.
func (j *job) line(stages, micros int) (*pipeline.Line, error) {
	return pipeline.New(pipeline.Config{Schedule: j.schedule, Stages: stages, Micros: micros, Chunks: j.chunks})
}

// peak replays a schedule. But for GPipe no more is in flight with more micro-batches than four for each stage, so no longer
// schedule is replayed.
func (s *searcher) peak(stages, micros int) (peak, error) {
	if s.schedule != pipeline.GPipe {
		micros = min(micros, 4*stages)
	}
	key := peakKey{stages, micros}
	if p, ok := s.peaks[key]; ok {
		return p, nil
	}
	line, err := s.line(stages, micros)
	if err != nil {
		return peak{}, err
	}
	parts, err := s.parts(stages)
	if err != nil {
		return peak{}, err
	}
	p, err := replay(line, parts, stages)
	if err == nil {
		s.peaks[key] = p
	}
	return p, err
}

// replay counts layers, since chunks may differ by one, and turns them into micro-batches of chunks, rounded up.
func replay(line *pipeline.Line, parts []perfmodel.Stage, stages int) (p peak, err error) {
	layers, sum := make([]lockstep.Bytes, len(parts)), make([]int, stages)
	for v, part := range parts {
		layers[v] = lockstep.Bytes(part.Layers)
		sum[v%stages] += part.Layers
	}
	p.inFlight = make([]int, stages)
	for i := range p.inFlight {
		held, err := most(line, i, layers)
		if err != nil {
			return p, err
		}
		chunks := len(parts) / stages
		p.inFlight[i] = (held*chunks + sum[i] - 1) / sum[i]
	}
	clear(layers)
	layers[len(parts)-1] = 1
	p.losses, err = most(line, stages-1, layers)
	return p, err
}

// most returns the most of something that a stage holds for micro-batches in flight. Where the gradients of the weights are put
// off, so is the end of what they need: the inputs of the layers, and the gradient of the logits.
func most(line *pipeline.Line, stage int, of []lockstep.Bytes) (int, error) {
	if line.Splits() {
		n, err := line.PeakBytes(stage, nil, of)
		return int(n), err
	}
	n, err := line.PeakBytes(stage, of, nil)
	return int(n), err
}

// plan returns a layout with the memory of its stages.
func (s *searcher) plan(n int, l perfmodel.Layout) (*plan, error) {
	p := &plan{GPUs: n, Layout: l, Micros: s.batch / s.micro / l.DP}
	peak, err := s.peak(l.PP, p.Micros)
	if err != nil {
		return nil, err
	}
	parts, err := s.parts(l.PP)
	if err != nil {
		return nil, err
	}
	for i := range l.PP {
		st := stage{Stage: parts[i], InFlight: peak.inFlight[i]}
		for chunk := 1; chunk < s.chunks; chunk++ {
			st.Layers += parts[chunk*l.PP+i].Layers
		}
		st.Last = i == l.PP-1
		load := s.load()
		load.InFlight, load.Losses, load.Reserve = st.InFlight, peak.losses, s.reserve
		if st.Memory, err = s.model.Memory(l, st.Stage, load); err != nil {
			return nil, err
		}
		st.Total = st.Memory.Total()
		p.Stages = append(p.Stages, st)
	}
	return p, nil
}

// load is what a micro-batch asks of a stage.
func (j *job) load() perfmodel.Load {
	return perfmodel.Load{Tokens: int64(j.seq) * int64(j.micro), Sequence: int64(j.seq), Chunks: j.chunks, Context: j.context}
}

// parts divides the model into its virtual stages.
func (j *job) parts(stages int) ([]perfmodel.Stage, error) {
	return j.model.Split(stages*j.chunks, perfmodel.Stage{Flash: j.flash, Recompute: j.recompute})
}

// levers returns on how many GPUs the job would fit with one setting changed, where that is fewer.
func (j *job) levers(best *plan) ([]wider, error) {
	var all []wider
	try := func(setting string, change func(*job)) error {
		other := *j
		change(&other)
		p, _, err := other.search()
		if err == nil && p != nil && (best == nil || p.GPUs < best.GPUs) {
			all = append(all, wider{setting, p.GPUs})
		}
		return err
	}
	if best != nil && best.GPUs == 1 {
		return nil, nil
	}
	for zero := j.zero + 1; zero <= 3; zero++ {
		if err := try("-zero "+string(rune('0'+zero)), func(o *job) { o.layout.ZeRO = zero }); err != nil {
			return nil, err
		}
	}
	if j.recompute != perfmodel.RecomputeFull {
		if err := try("-recompute full", func(o *job) { o.recompute = perfmodel.RecomputeFull }); err != nil {
			return nil, err
		}
	}
	if !j.flash {
		if err := try("-flash=true", func(o *job) { o.flash = true }); err != nil {
			return nil, err
		}
	}
	return all, nil
}
