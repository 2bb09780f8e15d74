package detect

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Rates say what every chunk and transfer of a job takes. Virtual stage v is
// part*Stages+stage, as in package pipeline.
type Rates struct {
	Forward  []fit.Coeff     `json:"forward"`          // forward pass, by virtual stage
	Backward []fit.Coeff     `json:"backward"`         // gradient of the input, or the whole backward pass where Weight is nil, by virtual stage
	Weight   []fit.Coeff     `json:"weight,omitempty"` // gradient of the weights, by virtual stage; nil means that Backward has it
	Send     []time.Duration `json:"send,omitempty"`   // transfer of an activation from a virtual stage to the next; nil means 0
	Return   []time.Duration `json:"return,omitempty"` // transfer of a gradient back to a virtual stage from the next; nil means 0
	Rest     time.Duration   `json:"rest,omitempty"`   // what an iteration takes besides: gradient synchronisation, optimizer
}

// StageReport is the report of one fit of FitRates.
type StageReport struct {
	Kind   pipeline.Kind // kind of chunk
	Stage  int           // virtual stage; of stages that share a fit, the first
	Report fit.Report    // how good it is
}

// kind returns the coefficients of a kind.
func (r *Rates) kind(k pipeline.Kind) []fit.Coeff {
	switch k {
	case pipeline.Forward:
		return r.Forward
	case pipeline.Backward:
		return r.Backward
	}
	return r.Weight
}

// Validate reports every fault of r for a pipeline of so many virtual stages, joined.
func (r *Rates) Validate(stages int) error {
	var errs []error
	for k := pipeline.Forward; k <= pipeline.Weight; k++ {
		cs := r.kind(k)
		if len(cs) != stages && (k != pipeline.Weight || cs != nil) {
			errs = append(errs, invalid("rates", kindName(k), strconv.Itoa(len(cs))+" entries", "want one for each of "+strconv.Itoa(stages)+" virtual stages"))
		}
		for v, c := range cs {
			if err := c.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at(kindName(k), v), err))
			}
		}
	}
	transfers := func(field string, ds []time.Duration) {
		if ds != nil && len(ds) != stages {
			errs = append(errs, invalid("rates", field, strconv.Itoa(len(ds))+" entries", "want none, or one for each of "+strconv.Itoa(stages)+" virtual stages"))
		}
		for v, d := range ds {
			if d < 0 {
				errs = append(errs, invalid("rates", at(field, v), d.String(), "want at least 0"))
			}
		}
	}
	transfers("Send", r.Send)
	transfers("Return", r.Return)
	if r.Rest < 0 {
		errs = append(errs, invalid("rates", "Rest", r.Rest.String(), "want at least 0"))
	}
	return errors.Join(errs...)
}

func kindName(k pipeline.Kind) string {
	switch k {
	case pipeline.Forward:
		return "Forward"
	case pipeline.Backward:
		return "Backward"
	}
	return "Weight"
}

// FitRates fits the coefficients of every chunk kind and virtual stage to measured
// iterations, over all replicas together. With o.Classes the stages between the first and
// the last share theirs. Gradients of weights are fitted without pairs, since they have
// none. Transfers and Rest cannot be seen in chunks; they are left 0. Iterations without
// chunks or batches, and those of a Phase that is not Training, are passed over.
func FitRates(its []Iteration, p pipeline.Config, o fit.Options) (Rates, []StageReport, error) {
	g := gatherer{parts: max(p.Chunks, 1), stages: p.Stages, classes: o.Classes}
	if p.Stages < 1 || p.Chunks < 0 || p.Stages > most || p.Chunks > most {
		return Rates{}, nil, invalid("fit", "Stages", strconv.Itoa(p.Stages), "want 1 to "+strconv.Itoa(most)+", and as many chunks")
	}
	for i := range its {
		if err := g.gather(&its[i]); err != nil {
			return Rates{}, nil, fmt.Errorf("%s: %w", at("iterations", i), err)
		}
	}
	return g.fit(o)
}

// fit fits what was gathered.
func (g *gatherer) fit(o fit.Options) (Rates, []StageReport, error) {
	n := g.stages * g.parts
	r := Rates{Forward: make([]fit.Coeff, n), Backward: make([]fit.Coeff, n)}
	if g.split {
		r.Weight = make([]fit.Coeff, n)
	}
	var reports []StageReport
	for k := pipeline.Forward; k <= pipeline.Weight; k++ {
		cs := r.kind(k)
		for v := range cs {
			class := g.class(v)
			if class != v {
				cs[v] = cs[class]
				continue
			}
			options := o
			options.Linear = o.Linear || k == pipeline.Weight
			c, report, err := fit.Solve(g.of(k, v), options)
			if err != nil {
				return Rates{}, nil, fmt.Errorf("%s: %w", at(kindName(k), v), err)
			}
			cs[v] = c
			reports = append(reports, StageReport{k, v, report})
		}
	}
	return r, reports, nil
}

// of returns the samples of a kind and virtual stage.
func (g *gatherer) of(k pipeline.Kind, v int) []fit.Sample {
	if g.samples[k] == nil {
		return nil
	}
	return g.samples[k][v]
}

// gatherer sorts chunks by kind and virtual stage.
type gatherer struct {
	stages  int
	parts   int
	classes bool
	split   bool // there are chunks of kind Weight
	samples [3][][]fit.Sample
}

// class returns the first virtual stage that shares the fit of v.
func (g *gatherer) class(v int) int {
	if g.classes && v > 1 && v < g.stages*g.parts-1 {
		return 1
	}
	return v
}

func (g *gatherer) gather(it *Iteration) error {
	if it.Chunks == nil || it.Batches == nil || it.Phase != Training {
		return nil
	}
	for k := range g.samples {
		if g.samples[k] == nil {
			g.samples[k] = make([][]fit.Sample, g.stages*g.parts)
		}
	}
	for i := range it.Chunks {
		c := &it.Chunks[i]
		if err := c.check(i, it.Batches, g.stages, g.parts); err != nil {
			return err
		}
		v := g.class(c.Part*g.stages + c.Stage)
		g.samples[c.Kind][v] = append(g.samples[c.Kind][v], c.sample(it.Batches))
		g.split = g.split || c.Kind == pipeline.Weight
	}
	return nil
}

// check reports a chunk, the i-th of an iteration, that cannot be one of the batches.
func (c *Chunk) check(i int, batches [][]perfmodel.Batch, stages, parts int) error {
	name, value, limit := "", 0, 0
	switch {
	case c.Replica < 0 || c.Replica >= len(batches):
		name, value, limit = "Replica", c.Replica, len(batches)
	case c.Stage < 0 || c.Stage >= stages:
		name, value, limit = "Stage", c.Stage, stages
	case c.Part < 0 || c.Part >= parts:
		name, value, limit = "Part", c.Part, parts
	case c.Kind > pipeline.Weight:
		name, value, limit = "Kind", int(c.Kind), int(pipeline.Weight)+1
	case c.Micro != AllMicros && (c.Micro < 0 || c.Micro >= len(batches[c.Replica])):
		name, value, limit = "Micro", c.Micro, len(batches[c.Replica])
	case c.Took <= 0:
		return invalid("chunk", at("Chunks", i)+".Took", c.Took.String(), "want more than 0")
	default:
		return nil
	}
	return invalid("chunk", at("Chunks", i)+"."+name, strconv.Itoa(value), "want 0 to "+strconv.Itoa(limit-1))
}

// check reports waits, the i-th of an iteration, that cannot be.
func (w *Wait) check(i, replicas, stages int) error {
	field := at("Waits", i)
	switch {
	case w.Replica < 0 || w.Replica >= replicas:
		return invalid("observe", field+".Replica", strconv.Itoa(w.Replica), "want 0 to "+strconv.Itoa(replicas-1))
	case w.Stage < 0 || w.Stage >= stages:
		return invalid("observe", field+".Stage", strconv.Itoa(w.Stage), "want 0 to "+strconv.Itoa(stages-1))
	}
	for r, d := range w.Ranks {
		if d < 0 {
			return invalid("observe", at(field+".Ranks", r), d.String(), "want at least 0")
		}
	}
	return nil
}

// sample returns a checked chunk as a sample to fit.
func (c *Chunk) sample(batches [][]perfmodel.Batch) fit.Sample {
	if c.Micro != AllMicros {
		return fit.Sample{Batch: batches[c.Replica][c.Micro], Took: c.Took}
	}
	s := fit.Sample{Count: len(batches[c.Replica]), Took: c.Took}
	for _, b := range batches[c.Replica] {
		s.Batch.Tokens = min(s.Batch.Tokens, math.MaxInt64-b.Tokens) + b.Tokens
		s.Batch.Pairs = min(s.Batch.Pairs+b.Pairs, mostPairs)
	}
	return s
}
