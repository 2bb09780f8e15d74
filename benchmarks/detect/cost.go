package main

import (
	"math"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// costs measures what a sample costs.
func (p *program) costs() error {
	p.Printf("\n## cost\n")
	small, err := p.made(p.Stages, p.Micros, 2)
	if err != nil {
		return err
	}
	large, err := p.made(16, 64, 2)
	if err != nil {
		return err
	}
	scalarTest, err := change.New(change.Config{})
	if err != nil {
		return err
	}
	m, err := detect.NewMatched(detect.MatchedConfig{Replicas: 2, Stages: p.Stages})
	if err != nil {
		return err
	}
	big, err := detect.NewMatched(detect.MatchedConfig{Replicas: 2, Stages: 16})
	if err != nil {
		return err
	}
	c, err := detect.NewChunks(detect.ChunkConfig{Replicas: 2, Stages: p.Stages})
	if err != nil {
		return err
	}
	var only, all detect.Expectation
	lines := []*pipeline.Line{large.line}
	var failed error
	note := func(err error) {
		if err != nil {
			failed = err
		}
	}
	n := 0
	next := func(g *generator) *sample { n++; return &g.samples[n%len(g.samples)] }
	for _, w := range []struct {
		name  string
		limit float64 // microseconds; 0 means that it is only printed
		do    func()
	}{
		{"ratio-test", 2, func() {
			s := next(small)
			_, err := scalarTest.Observe(math.Log(float64(s.took) / float64(s.expect.Took)))
			note(err)
		}},
		{"matched-test/p=4/D=2", 2, func() { s := next(small); _, err := m.Observe(s.took, &s.expect); note(err) }},
		{"matched-test/p=16/D=2", 0, func() { s := next(large); _, err := big.Observe(s.took, &s.expect); note(err) }},
		{"chunk-test/p=4/D=2", 0, func() { s := next(small); _, err := c.Observe(s.observed, s.expected); note(err) }},
		{"expected-time/p=16/m=64/D=1", 200, func() { note(only.Evaluate(lines, large.costs[:1], []pipeline.Factor{})) }},
		{"expected-time/p=16/m=64/D=2", 0, func() { note(only.Evaluate(lines, large.costs, []pipeline.Factor{})) }},
		{"expected-slowed/p=16/m=64/D=2", 0, func() { note(all.Evaluate(lines, large.costs, nil)) }},
		{"matched-whole/p=16/m=64/D=2", 2000, func() {
			s := next(large)
			note(all.Evaluate(lines, large.costs, nil))
			_, err := big.Observe(s.took, &all)
			note(err)
		}},
	} {
		p.time(w.name, w.limit, w.do)
		if failed != nil {
			return failed
		}
	}
	return nil
}

// made returns a generator with one job of a shape.
func (p *program) made(stages, micros, replicas int) (*generator, error) {
	q := p.params
	q.Stages, q.Micros = stages, micros
	if stages > 8 {
		q.Iterations = 130
	}
	g, err := newGenerator(q)
	if err != nil {
		return nil, err
	}
	_, err = g.job(&cell{k32, replicas, false, step, 1.3}, p.Seed, 0, false, nil)
	return g, err
}

// time measures one call, warm: the median of many batches, and the allocations.
func (p *program) time(name string, limit float64, do func()) {
	for range 200 {
		do()
	}
	clock := harness.NewClock()
	cal := harness.NewCalibration(clock)
	each := 1
	for ; ; each *= 2 {
		start := clock.Nanos()
		for range each {
			do()
		}
		if time.Duration(clock.Nanos()-start) > 200*time.Microsecond {
			break
		}
	}
	var took, judged []float64
	for range p.Rounds() {
		before := cal.Slowness()
		var batch []float64
		for range 20 {
			start := clock.Nanos()
			for range each {
				do()
			}
			batch = append(batch, float64(clock.Nanos()-start)/float64(each)/1000)
		}
		slow := (before + cal.Slowness()) / 2
		took = append(took, harness.Median(batch))
		judged = append(judged, harness.Median(batch)/slow)
	}
	allocs := testing.AllocsPerRun(100, do)
	p.Result(name, harness.Median(took), "us")
	p.Result(name+"/quiet", harness.Median(judged), "us")
	if limit > 0 {
		p.Target(harness.Target{Name: name, Value: harness.Median(judged), Unit: "us", Limit: limit})
	}
	p.Target(harness.Target{Name: name + "/allocations", Value: allocs, Unit: "a call", Limit: 0})
}
