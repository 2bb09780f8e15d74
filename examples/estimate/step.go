package main

import (
	"fmt"
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// step is how long a step takes, and on what.
type step struct {
	Total    time.Duration `json:"total"`
	Compute  time.Duration `json:"compute"`  // of the busiest stage, at the rate given
	Exchange time.Duration `json:"exchange"` // of the same stage: collectives among its ranks for each micro-batch
	Bubble   time.Duration `json:"bubble"`   // the rest of the pipeline: waiting for other stages and transfers
	Sync     time.Duration `json:"sync"`     // gradients and weights among the replicas, the slowest stage's
	Wire     []traffic     `json:"wire"`     // of the stage that sends the most
	Stage    int           `json:"stage"`    // which that is
}

// traffic is a transfer with its price.
type traffic struct {
	perfmodel.Transfer
	Sent      lockstep.Bytes `json:"sent"` // by a GPU in a step
	Algorithm string         `json:"algorithm"`
	Took      time.Duration  `json:"took"` // in a step
}

// step prices a plan.
func (s *searcher) step(p *plan) (*step, error) {
	line, err := s.line(p.Layout.PP, p.Micros)
	if err != nil {
		return nil, err
	}
	costs, exchange, err := s.costs(p)
	if err != nil {
		return nil, err
	}
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		return nil, fmt.Errorf("a step takes too long to be said; -tflops, -nvlink and -network may be too low: %w", err)
	}
	return s.sum(p, &r, exchange)
}

// costs returns what a micro-batch costs in each part of the model, and what of it each stage spends in exchanges.
func (s *searcher) costs(p *plan) (costs pipeline.Costs, exchange []time.Duration, err error) {
	l := p.Layout
	parts, err := s.parts(l.PP)
	if err != nil {
		return costs, nil, err
	}
	batch, err := s.model.Batch(sequences(s.micro, s.seq), 0)
	if err != nil {
		return costs, nil, err
	}
	rate := perfmodel.Rate{Linear: lockstep.FLOPs(s.tflops * 1e12 * float64(l.TP))}
	exchange = make([]time.Duration, l.PP)
	for v, part := range parts {
		w := s.model.Work(part, batch)
		load := s.load()
		load.Chunks = 1
		one, err := s.model.Transfers(nil, l, part, load, 1)
		if err != nil {
			return costs, nil, err
		}
		var inside, between time.Duration
		for _, t := range one {
			switch took := s.time(p, t); {
			case t.Dimension == perfmodel.Tensor, t.Dimension == perfmodel.Expert:
				inside = plus(inside, took)
			case t.Op == perfmodel.PointToPoint:
				between = took / time.Duration(t.Times)
			}
		}
		forward := inside / 2 // half of what a micro-batch exchanges, or a third where the backward pass does it all again
		if part.Recompute == perfmodel.RecomputeFull {
			forward = inside / 3
		}
		exchange[v%l.PP] += inside
		costs.Forward = append(costs.Forward, plus(w.Forward.Time(rate), forward))
		costs.Backward = append(costs.Backward, plus(w.Input.Time(rate), inside-forward))
		costs.Weight = append(costs.Weight, w.Weight.Time(rate))
		costs.Send, costs.Return = append(costs.Send, between), append(costs.Return, between)
	}
	return costs, exchange, nil
}

// plus adds times, held at the longest there is.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// times multiplies a time, held at the longest there is.
func times(d time.Duration, n int64) time.Duration {
	if n > 0 && int64(d) > math.MaxInt64/n {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}

// sum adds to a run of the pipeline what comes after it.
func (s *searcher) sum(p *plan, r *pipeline.Result, exchange []time.Duration) (*step, error) {
	var st step
	busiest, sent := 0, lockstep.Bytes(-1)
	for i := range p.Stages {
		if r.Busy[i] > r.Busy[busiest] {
			busiest = i
		}
		all, err := s.model.Transfers(nil, p.Layout, p.Stages[i].Stage, s.load(), p.Micros)
		if err != nil {
			return nil, err
		}
		var sync time.Duration
		var bytes lockstep.Bytes
		wire := make([]traffic, len(all))
		for k, t := range all {
			a, took, _ := s.group(p, t).Best(t.Op, t.Size)
			wire[k] = traffic{t, t.Wire(), a.String(), times(took, t.Times)}
			bytes = bytes.Add(wire[k].Sent)
			if t.Dimension == perfmodel.Data || t.Dimension == perfmodel.ExpertData || t.Op == perfmodel.AllReduce && t.Dimension == perfmodel.Pipeline {
				sync = plus(sync, wire[k].Took)
			}
		}
		st.Sync = max(st.Sync, sync)
		if bytes > sent {
			sent, st.Wire, st.Stage = bytes, wire, i
		}
	}
	st.Exchange = exchange[busiest] * time.Duration(p.Micros)
	st.Compute = r.Busy[busiest] - st.Exchange
	st.Bubble = r.Makespan - r.Busy[busiest]
	st.Total = plus(r.Makespan, st.Sync)
	return &st, nil
}

// time returns how long a transfer takes in a step.
func (s *searcher) time(p *plan, t perfmodel.Transfer) time.Duration {
	_, took, _ := s.group(p, t).Best(t.Op, t.Size)
	return times(took, t.Times)
}

// group returns the shape of the group of a transfer. Ranks are numbered along TP first, then DP, then PP, and fill node
// after node; experts are divided over neighbours in DP.
func (s *searcher) group(p *plan, t perfmodel.Transfer) perfmodel.GroupShape {
	l, stride := p.Layout, 1 // how far apart neighbours of the group are
	switch t.Dimension {
	case perfmodel.Data, perfmodel.Expert:
		stride = l.TP
	case perfmodel.ExpertData:
		stride = l.TP * max(l.EP, 1)
	}
	inside := min(t.Ranks, max(1, s.node/stride))
	if t.Dimension == perfmodel.Pipeline && p.GPUs > s.node || t.Ranks%inside != 0 {
		inside = 1 // some pair of stages, or some part of the group, crosses nodes
	}
	return perfmodel.GroupShape{{Ranks: inside, Link: s.fast}, {Ranks: t.Ranks / inside, Link: s.slow}}
}

func sequences(n, length int) []int {
	lens := make([]int, n)
	for i := range lens {
		lens[i] = length
	}
	return lens
}
