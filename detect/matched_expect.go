package detect

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// defaultFactors are the slowdowns that faults are looked for at: close enough to each other that
// a fault between two is found nearly as soon as one at either. Immutable.
var defaultFactors = [...]pipeline.Factor{1150, 1300, 1600, 2200, 4000}

// Expectation is what one iteration should take, and what it would take if one stage of one
// replica were slower. It is worked out by Evaluate, and its memory is used again by the next one.
// The zero value is ready for use.
type Expectation struct {
	Fixed time.Duration // what an iteration takes besides its pipelines, such as the optimizer; set by the caller, not negative
	Took  time.Duration // what the iteration should take: the slowest replica and Fixed

	replicas, stages int // 0 until there is an expectation
	factors          []pipeline.Factor
	results          []pipeline.Result // by replica
	spans            []time.Duration
	shifts           []float64 // by (replica*stages+stage)*factors+factor: logarithm of slowed over Took
}

// Evaluate works out an iteration of which each replica runs its line at its costs; one line may
// stand for all. factors are the slowdowns to work out, ascending and above pipeline.Same; nil
// means the default ones of a MatchedTest, and an empty slice none: then only Took is worked out.
// After an error e holds no expectation.
//
// It evaluates each replica once, and then only the slowed ones that could be slower than the
// slowest replica and that convexity does not settle.
func (e *Expectation) Evaluate(lines []*pipeline.Line, costs []pipeline.Costs, factors []pipeline.Factor) error {
	if factors == nil {
		factors = defaultFactors[:]
	}
	if err := e.check(lines, costs, factors); err != nil {
		return err
	}
	e.Took, e.replicas, e.stages = 0, 0, 0
	for len(e.results) < len(costs) {
		e.results = append(e.results, pipeline.Result{})
	}
	slowest := time.Duration(0)
	for i := range costs {
		if err := lines[min(i, len(lines)-1)].Run(&costs[i], &e.results[i]); err != nil {
			return err
		}
		slowest = max(slowest, e.results[i].Makespan)
	}
	took := slowest + e.Fixed
	if took <= 0 {
		return invalid("expect", "costs", took.String(), "want an iteration that takes time")
	}
	e.Took = took
	e.factors = append(e.factors[:0], factors...)
	e.shifts = e.shifts[:0]
	stages := lines[0].Stages()
	for i := range costs {
		for stage := range stages {
			if err := e.slow(i, stage, slowest); err != nil {
				e.Took = 0
				return err
			}
		}
	}
	e.replicas, e.stages = len(costs), stages
	return nil
}

// slow appends the shifts of one stage of one replica.
func (e *Expectation) slow(replica, stage int, slowest time.Duration) error {
	r := &e.results[replica]
	n := len(e.shifts)
	for range e.factors {
		e.shifts = append(e.shifts, 0)
	}
	if len(e.factors) == 0 {
		return nil
	}
	// A makespan grows no faster than the work that is slowed.
	most := float64(float64(e.factors[len(e.factors)-1]-pipeline.Same) / float64(pipeline.Same) * float64(r.Busy[stage]))
	if float64(r.Makespan)+most <= float64(slowest) {
		return nil
	}
	spans, err := r.AppendSlowed(e.spans[:0], stage, e.factors...)
	if err != nil {
		return err
	}
	e.spans = spans
	for i, span := range spans {
		if span > slowest {
			e.shifts[n+i] = num.Log(float64(saturate(span, e.Fixed)) / float64(e.Took))
		}
	}
	return nil
}

func (e *Expectation) check(lines []*pipeline.Line, costs []pipeline.Costs, factors []pipeline.Factor) error {
	switch {
	case e.Fixed < 0:
		return invalid("expect", "Fixed", e.Fixed.String(), "want 0 or more")
	case len(costs) == 0:
		return invalid("expect", "costs", "", "want those of one replica or more")
	case len(lines) != 1 && len(lines) != len(costs):
		return invalid("expect", "lines", strconv.Itoa(len(lines)), "want one, or one a replica: "+strconv.Itoa(len(costs)))
	}
	for i, l := range lines {
		if l == nil {
			return invalid("expect", at("lines", i), "nil", "want a line")
		}
		if l.Stages() != lines[0].Stages() {
			return invalid("expect", at("lines", i), strconv.Itoa(l.Stages())+" stages", "want as many as the first: "+strconv.Itoa(lines[0].Stages()))
		}
	}
	return checkFactors("expect", factors)
}

// checkFactors reports factors that are not ascending and above 1.
func checkFactors(op string, factors []pipeline.Factor) error {
	before := pipeline.Same
	for i, f := range factors {
		if f <= before || f > 100*pipeline.Same {
			return invalid(op, "factors["+strconv.Itoa(i)+"]", strconv.FormatInt(int64(f), 10), "want ascending factors above 1000, at most 100000")
		}
		before = f
	}
	return nil
}

// Replica returns what one replica should take without Fixed; 0 for one that there is not.
func (e *Expectation) Replica(replica int) time.Duration {
	if replica < 0 || replica >= e.replicas {
		return 0
	}
	return e.results[replica].Makespan
}

// suits says whether e was worked out for these places and factors.
func (e *Expectation) suits(replicas, stages int, factors []pipeline.Factor) bool {
	return e.replicas == replicas && e.stages == stages && slices.Equal(e.factors, factors)
}
