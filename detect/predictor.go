package detect

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Predictor says what an iteration should take: the makespan of the slowest replica's
// pipeline at the rates given, and the rest of the iteration. Replicas may have
// different numbers of micro-batches, where the schedule is a named one.
type Predictor struct {
	shape pipeline.Config
	parts int              // model chunks a stage
	lines []*pipeline.Line // by replica; those with as many micro-batches share one
	rates Rates
	costs []pipeline.Costs // by replica, reused
	none  Expectation      // without factors
}

// NewPredictor returns a Predictor for a pipeline, that of every replica, at some rates,
// of which it keeps the slices. ErrInvalid for configurations of several replicas that
// run each other's micro-batches.
func NewPredictor(p pipeline.Config, r Rates) (*Predictor, error) {
	if p.Replicas > 1 {
		return nil, invalid("predictor", "Replicas", strconv.Itoa(p.Replicas), "want the pipeline of one replica")
	}
	line, err := pipeline.New(p)
	if err != nil {
		return nil, err
	}
	p.Stages = line.Stages()
	out := &Predictor{shape: p, parts: max(partsOf(line), p.Chunks), lines: []*pipeline.Line{line}}
	if err := out.SetRates(r); err != nil {
		return nil, err
	}
	return out, nil
}

// partsOf returns how many model chunks a stage of l has.
func partsOf(l *pipeline.Line) int {
	n := 1
	for s := range l.Stages() {
		for _, op := range l.Order(s) {
			n = max(n, int(op.Chunk)+1)
		}
	}
	return n
}

// SetRates changes the rates. After an error they are as they were.
func (p *Predictor) SetRates(r Rates) error {
	if err := r.Validate(p.shape.Stages * p.parts); err != nil {
		return err
	}
	if p.lines[0].Splits() && r.Weight == nil {
		return invalid("rates", "Weight", "nil", "the schedule has ops of this kind")
	}
	p.rates = r
	return nil
}

// Expect returns what an iteration with these micro-batches, by replica, should take.
func (p *Predictor) Expect(batches [][]perfmodel.Batch) (time.Duration, error) {
	if err := p.Evaluate(batches, []pipeline.Factor{}, &p.none); err != nil {
		return 0, err
	}
	return p.none.Took, nil
}

// Evaluate works out into e what an iteration with these micro-batches, by replica,
// should take, and what it would take with each stage of each replica slower by factors,
// as Expectation.Evaluate has them. Another number of micro-batches than that of the call
// before compiles the schedule anew. ErrInvalid for batches that cannot be, and numbers
// of them that the schedule cannot have.
func (p *Predictor) Evaluate(batches [][]perfmodel.Batch, factors []pipeline.Factor, e *Expectation) error {
	if len(batches) == 0 {
		return invalid("predict", "batches", "", "want at least one replica")
	}
	for d, micros := range batches {
		for i := range micros {
			if err := checkBatch(&micros[i], d, i); err != nil {
				return err
			}
		}
	}
	if err := p.fit(batches); err != nil {
		return err
	}
	for d, micros := range batches {
		p.price(&p.costs[d], micros)
	}
	e.Fixed = p.rates.Rest
	return e.Evaluate(p.lines, p.costs, factors)
}

// fit makes lines and costs for as many replicas and micro-batches.
func (p *Predictor) fit(batches [][]perfmodel.Batch) error {
	if len(p.costs) == len(batches) {
		same := true
		for d := range batches {
			same = same && len(p.costs[d].Forward) == p.shape.Stages*p.parts*len(batches[d])
		}
		if same {
			return nil
		}
	}
	lines := make([]*pipeline.Line, len(batches))
	for d, micros := range batches {
		if i := slices.IndexFunc(batches[:d], func(o []perfmodel.Batch) bool { return len(o) == len(micros) }); i >= 0 {
			lines[d] = lines[i]
			continue
		}
		shape := p.shape
		shape.Micros = len(micros)
		line, err := pipeline.New(shape)
		if err != nil {
			return err
		}
		lines[d] = line
	}
	p.lines = lines
	p.costs = make([]pipeline.Costs, len(batches))
	for d, micros := range batches {
		n := p.shape.Stages * p.parts * len(micros)
		p.costs[d] = pipeline.Costs{Forward: make([]time.Duration, n), Backward: make([]time.Duration, n), Weight: make([]time.Duration, n)}
	}
	return nil
}

// price fills in what the chunks of a replica take.
func (p *Predictor) price(c *pipeline.Costs, micros []perfmodel.Batch) {
	m := len(micros)
	for v := range p.shape.Stages * p.parts {
		fill(c.Forward[v*m:(v+1)*m], p.rates.Forward[v], micros)
		fill(c.Backward[v*m:(v+1)*m], p.rates.Backward[v], micros)
		if p.rates.Weight != nil {
			fill(c.Weight[v*m:(v+1)*m], p.rates.Weight[v], micros)
		}
	}
	if p.rates.Weight == nil {
		clear(c.Weight)
	}
	c.Send, c.Return = p.rates.Send, p.rates.Return
}

func fill(out []time.Duration, c fit.Coeff, micros []perfmodel.Batch) {
	for i := range micros {
		out[i] = c.Time(micros[i])
	}
}

const (
	maxTokens = 1 << 48               // most tokens of a micro-batch
	maxPairs  = maxTokens * maxTokens // most pairs of one
	mostPairs = 1e30                  // most pairs of all of an iteration, which a fit takes
)

func checkBatch(b *perfmodel.Batch, replica, micro int) error {
	field := func() string { return at(at("Batches", replica), micro) }
	switch {
	case b.Tokens < 1 || b.Tokens > maxTokens:
		return invalid("predict", field()+".Tokens", strconv.FormatInt(b.Tokens, 10), "want 1 to "+strconv.FormatInt(maxTokens, 10))
	case !(b.Pairs >= 0 && b.Pairs <= maxPairs):
		return invalid("predict", field()+".Pairs", text(b.Pairs), "want 0 to "+text(maxPairs))
	}
	return nil
}
