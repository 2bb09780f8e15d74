package main

import (
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// The made up job: a pipeline of stages in replicas, whose micro-batches are packed to a context of documents with
// log-normal lengths, as training data has them.
const (
	demoStages   = 4
	demoMicros   = 8
	demoReplicas = 2
	demoContext  = 32768
	demoMedian   = 1500.0 // tokens of a document
	demoSpread   = 1.5    // standard deviation of the logarithm
	demoNoise    = 0.015  // of chunks and of each place over time
)

// fault is what goes wrong in the made up job.
type fault struct {
	Factor   float64 // of the stage; 1 is none
	At       int     // first slow iteration
	Last     int     // last slow iteration
	Replica  int
	Stage    int
	TimeOnly bool // the log has no chunk times
}

// demo writes the log of a made up job.
func demo(w io.Writer, iterations int, seed uint64, f fault) error {
	out := json.NewEncoder(w)
	if err := out.Encode(job{Stages: demoStages, Micros: demoMicros, Replicas: demoReplicas, Schedule: pipeline.OneFOneB.String()}); err != nil {
		return err
	}
	line, err := pipeline.New(pipeline.Config{Stages: demoStages, Micros: demoMicros})
	if err != nil {
		return err
	}
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0)), line: line, fault: f}
	for i := 1; i <= iterations; i++ {
		r, err := g.iteration(i)
		if err != nil {
			return err
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// generator makes iterations.
type generator struct {
	rng    *rand.Rand
	line   *pipeline.Line
	fault  fault
	drift  [demoReplicas * demoStages]float64 // of each place, an autoregression
	result pipeline.Result
}

func (g *generator) iteration(number int) (*record, error) {
	n := uint64(number)
	r := &record{Iteration: &n, Documents: make([][][]int, demoReplicas)}
	var slowest time.Duration
	for d := range demoReplicas {
		for range demoMicros {
			r.Documents[d] = append(r.Documents[d], g.pack())
		}
		costs, chunks, err := g.costs(number, d, r.Documents[d])
		if err != nil {
			return nil, err
		}
		if err := g.line.Run(costs, &g.result); err != nil {
			return nil, err
		}
		slowest = max(slowest, g.result.Makespan)
		if !g.fault.TimeOnly {
			r.Chunks = append(r.Chunks, chunks...)
		}
	}
	took := slowest.Seconds() * (1 + 0.005*g.rng.NormFloat64())
	if g.rng.Float64() < 0.01 {
		took *= 1.05 + 0.35*g.rng.Float64() // a pause, as of a garbage collector
	}
	r.Seconds = round(took)
	loss := 2 + 8*math.Exp(-float64(number)/40) + 0.02*g.rng.NormFloat64()
	loss = round(loss)
	r.Loss = &loss
	return r, nil
}

// pack returns the lengths of documents that fill a micro-batch.
func (g *generator) pack() []int {
	var lens []int
	for left := demoContext; left > 0; {
		n := int(math.Exp(math.Log(demoMedian) + float64(demoSpread*g.rng.NormFloat64())))
		n = min(max(n, 1), left)
		lens = append(lens, n)
		left -= n
	}
	return lens
}

// costs returns what the chunks of a replica take.
func (g *generator) costs(number, replica int, docs [][]int) (*pipeline.Costs, []chunk, error) {
	size := demoStages * demoMicros
	c := &pipeline.Costs{Forward: make([]time.Duration, size), Backward: make([]time.Duration, size)}
	var chunks []chunk
	for s := range demoStages {
		place := replica*demoStages + s
		g.drift[place] = float64(0.5*g.drift[place]) + float64(demoNoise*math.Sqrt(0.75)*g.rng.NormFloat64())
		factor := math.Exp(g.drift[place])
		if f := g.fault; f.Replica == replica && f.Stage == s && number >= f.At && number <= f.Last {
			factor *= f.Factor
		}
		var sum [2]time.Duration
		for m, lens := range docs {
			b, err := perfmodel.Mask{}.Batch(lens)
			if err != nil {
				return nil, nil, err
			}
			for k, out := range [][]time.Duration{c.Forward, c.Backward} {
				// Nanoseconds a token and a pair; a backward pass is twice a forward one.
				ns := (2500*float64(b.Tokens) + 0.4*b.Pairs) * float64(1+k)
				out[s*demoMicros+m] = time.Duration(ns * factor * math.Exp(demoNoise*g.rng.NormFloat64()))
				sum[k] += out[s*demoMicros+m]
			}
		}
		for k, name := range []string{"F", "B"} {
			chunks = append(chunks, chunk{Replica: replica, Stage: s, Kind: name, Seconds: sum[k].Seconds()})
		}
	}
	return c, chunks, nil
}

// round keeps six digits behind the point.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }
