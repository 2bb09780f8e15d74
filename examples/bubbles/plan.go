package main

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// miss is in what share of windows the job may have to wait: large, so that few samples do and a machine that is busy with
// something else for a moment does not spoil them.
const miss = 0.1

// quanta is how many safe points a step has.
const quanta = 4

// plan is the job as it is predicted.
type plan struct {
	options
	line   *pipeline.Line
	length time.Duration // of an iteration
	cfg    bubble.Config
	ends   [][]int // by stage and index of the op that ends it, the window, or -1
	bound  float64 // trial-steps of an iteration
}

func newPlan(o options) (*plan, error) {
	line, err := pipeline.New(pipeline.Config{Stages: o.stages, Micros: o.micros})
	if err != nil {
		return nil, err
	}
	costs := line.Uniform(o.forward, o.backward, 0)
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		return nil, err
	}
	p := &plan{options: o, line: line, length: r.Makespan, ends: make([][]int, o.stages)}
	pause := 2 * time.Millisecond
	if o.signals {
		pause = 8 * time.Millisecond // all processes are looked at, a few times
	}
	p.cfg = bubble.Config{
		Bundles: bundles(o.forward + o.backward), Quanta: quanta, MissFraction: miss,
		Resume: pause, Pause: pause, Samples: 100,
	}
	for stage := range o.stages {
		// A stage holds the activations of the micro-batches that are in flight: the first stage has most, and least to spare.
		peak := (30 + 8*lockstep.Bytes(line.Peak(stage))) * lockstep.GiB
		memory := (38 + 8*lockstep.Bytes(line.Peak(0))) * lockstep.GiB
		p.cfg.Devices = append(p.cfg.Devices, bubble.Device{Memory: memory, Peak: peak})
		p.ends[stage] = make([]int, len(line.Order(stage))+1)
		for i := range p.ends[stage] {
			p.ends[stage][i] = -1
		}
		for _, w := range r.AppendWindows(nil, stage) {
			p.ends[stage][w.Next] = len(p.cfg.Windows)
			p.cfg.Windows = append(p.cfg.Windows, bubble.Window{Stage: stage, Start: w.Start, End: w.End, Kind: w.Kind})
		}
	}
	p.bound, err = bubble.Bound(p.cfg, 0)
	return p, err
}

// bundles are the trials, whose steps are short beside that of the job.
func bundles(micro time.Duration) []bubble.Bundle {
	return []bubble.Bundle{
		{ID: "narrow", Points: []fusion.Point{
			{Fused: 1, Step: micro / 4, Memory: 2 * lockstep.GiB},
			{Fused: 8, Step: micro / 2, Memory: 4 * lockstep.GiB},
			{Fused: 16, Step: micro * 3 / 4, Memory: 7 * lockstep.GiB},
		}},
		{ID: "wide", Points: []fusion.Point{
			{Fused: 1, Step: micro / 2, Memory: 5 * lockstep.GiB},
			{Fused: 24, Step: micro, Memory: 18 * lockstep.GiB},
		}},
	}
}

// before returns the op that an op waits for, as a stage and an index in its order; false if it waits for nobody else.
func (p *plan) before(stage int, op pipeline.Op) (int, int, bool) {
	from := stage - 1
	if op.Kind == pipeline.Backward {
		from = stage + 1
	}
	i, ok := p.line.Index(from, op)
	return from, i, ok
}
