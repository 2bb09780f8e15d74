package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// params are what the jobs of all cells have in common; each is a flag.
type params struct {
	Stages, Micros int     // of every replica
	Iterations     int     // of a job
	Layers         int     // of a stage
	Median, Sigma  float64 // of document lengths, log-normal
	Chunk          float64 // noise of each chunk, log-normal
	Place          float64 // noise of each stage of each replica, autoregressive
	Bias           float64 // error of the model of each stage
	Whole          float64 // noise of the iteration, autoregressive
	Keep           float64 // part of a deviation that the next iteration keeps, of both
	Pauses         float64 // share of iterations with a pause
	Attention      float64 // speed of attention, relative to that of matrix products
	Transfer       float64 // what a transfer takes, relative to the forward pass of a stage without attention
	Ramp           int     // iterations that a ramp takes
	Window         int     // iterations after the onset in which a fault is to be found
}

func defaults() params {
	return params{
		Stages: 4, Micros: 8, Iterations: 300, Layers: 8, Median: 1500, Sigma: 1.5, Chunk: 0.015, Place: 0.015, Bias: 0.015,
		Whole: 0.04, Keep: 0.5, Pauses: 0.01, Attention: 0.5, Transfer: 0.05, Ramp: 30, Window: 30,
	}
}

// Kinds of faults.
const (
	step         = "step"         // slower from the onset on
	ramp         = "ramp"         // slower by and by
	intermittent = "intermittent" // ten iterations slow, ten as before
	recovering   = "recover"      // as before again after sixty iterations
	double       = "two"          // a second place is slow fifteen iterations later
	link         = "link"         // transfers between two stages of one replica are slower, chunks are not
	limit        = "limit"        // a step by the smallest factor that the matched test says it can find there
	chunkLimit   = "chunk-limit"  // a step by the smallest factor that the chunk test says it can find there
)

const (
	pulse      = 10 // iterations of an intermittent fault
	lasting    = 60 // iterations of one that recovers
	apart      = 15 // iterations between two faults
	lossLayers = 9  // layers that the loss of the last stage takes as long as
)

// cell is one kind of job.
type cell struct {
	Context  int // tokens of a micro-batch
	Replicas int
	Loss     bool // the last stage has the loss layer
	Kind     string
	Factor   float64
}

// fault is what is wrong with a job.
type fault struct {
	Onset  int // first iteration; beyond the last one where there is none
	Place  int // replica*stages+stage
	Second int // the other place of double
	Factor float64
	Effect float64 // how much longer the iterations in which it is on take in the mean
}

// sample is one iteration as a detector sees it.
type sample struct {
	took               time.Duration
	expect             detect.Expectation
	observed, expected []time.Duration // by place
}

// generator makes jobs. Its memory is used again by the next one.
type generator struct {
	params
	model   perfmodel.Model
	line    *pipeline.Line
	samples []sample
	costs   []pipeline.Costs // by replica: what the model says
	real    []pipeline.Costs // by replica: what it takes
	result  pipeline.Result
	rest    int // what is left of the document that did not fit
}

func newGenerator(p params) (*generator, error) {
	line, err := pipeline.New(pipeline.Config{Stages: p.Stages, Micros: p.Micros})
	if err != nil {
		return nil, err
	}
	return &generator{
		params:  p,
		model:   perfmodel.Model{Layers: p.Layers * p.Stages, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true},
		line:    line,
		samples: make([]sample, p.Iterations),
	}, nil
}

// rate makes a stage of 8 layers take about 0.1 s for 32K tokens.
const rate = 1e15

// fit gives every slice its size.
func (g *generator) fit(c *cell) {
	n := g.Stages * g.Micros
	costs := func() pipeline.Costs {
		return pipeline.Costs{
			Forward: make([]time.Duration, n), Backward: make([]time.Duration, n),
			Send: make([]time.Duration, g.Stages), Return: make([]time.Duration, g.Stages),
		}
	}
	if len(g.costs) == c.Replicas {
		return
	}
	g.costs, g.real = nil, nil
	for range c.Replicas {
		g.costs, g.real = append(g.costs, costs()), append(g.real, costs())
	}
	for i := range g.samples {
		s := &g.samples[i]
		s.observed, s.expected = make([]time.Duration, c.Replicas*g.Stages), make([]time.Duration, c.Replicas*g.Stages)
	}
}

// draw chooses the fault of a job. Every other one has none.
func (g *generator) draw(c *cell, rng *rand.Rand, faulty bool) fault {
	n := c.Replicas * g.Stages
	f := fault{Onset: 50 + rng.IntN(g.Iterations-99), Place: rng.IntN(n), Factor: c.Factor}
	f.Second = (f.Place + 1 + rng.IntN(n-1)) % n
	if f.Second%g.Stages == f.Place%g.Stages { // one replica's slow stage would hide that of the other
		f.Second = f.Second/g.Stages*g.Stages + (f.Second+1)%g.Stages
	}
	if c.Kind == link {
		f.Place = f.Place/g.Stages*g.Stages + rng.IntN(g.Stages-1)
	}
	if !faulty {
		f.Onset = g.Iterations
	}
	return f
}

// at returns the factors of both places in iteration t.
func (g *generator) at(c *cell, f *fault, t int) (first, second float64) {
	k := t - f.Onset
	if k < 0 || c.Kind == intermittent && k/pulse%2 == 1 || c.Kind == recovering && k >= lasting {
		return 1, 1
	}
	first, second = f.Factor, 1
	if c.Kind == ramp {
		first = 1 + (f.Factor-1)*min(1, float64(k+1)/float64(g.Ramp))
	}
	if c.Kind == double && k >= apart {
		second = f.Factor
	}
	return first, second
}

// over says whether the fault does nothing any more in iteration t, nor did a window ago.
func (g *generator) over(c *cell, f *fault, t int) bool {
	return c.Kind == recovering && t >= f.Onset+lasting+g.Window
}

// job makes a job from a seed. decide, where it is not nil, is called once before the onset with
// the samples up to it and sets the factor; nothing before the onset depends on it.
func (g *generator) job(c *cell, seed, number uint64, faulty bool, decide func(*fault, []sample) error) (fault, error) {
	g.fit(c)
	rng := rand.New(rand.NewPCG(seed, number))
	f := g.draw(c, rng, faulty)
	g.rest = 0
	noise := g.begin(c, rng)
	shown := 0
	for t := range g.samples {
		if t == f.Onset && decide != nil {
			if err := decide(&f, g.samples[:t]); err != nil {
				return f, err
			}
		}
		if err := g.iteration(c, &f, t, rng, noise); err != nil {
			return f, err
		}
		if first, second := g.at(c, &f, t); first != 1 || second != 1 {
			shown++
		}
	}
	f.Effect /= float64(max(shown, 1))
	return f, nil
}

// noises are the states of the noise of one job.
type noises struct {
	bias  []float64 // by stage
	place []float64 // by place
	whole float64
}

func (g *generator) begin(c *cell, rng *rand.Rand) *noises {
	n := &noises{whole: g.Whole * rng.NormFloat64()}
	for range g.Stages {
		n.bias = append(n.bias, g.Bias*rng.NormFloat64())
	}
	for range c.Replicas * g.Stages {
		n.place = append(n.place, g.Place*rng.NormFloat64())
	}
	return n
}

// iteration makes iteration t.
func (g *generator) iteration(c *cell, f *fault, t int, rng *rand.Rand, n *noises) error {
	s := &g.samples[t]
	first, second := g.at(c, f, t)
	fresh := math.Sqrt(1 - g.Keep*g.Keep)
	healthy, slow := time.Duration(0), time.Duration(0)
	n.whole = g.Keep*n.whole + fresh*g.Whole*rng.NormFloat64()
	longer, pause, late := math.Exp(n.whole), 0.0, rng.IntN(len(n.place))
	if rng.Float64() < g.Pauses {
		pause = 0.05 + 0.35*rng.Float64()
	}
	for r := range c.Replicas {
		if err := g.expect(c, r, rng); err != nil {
			return err
		}
		for stage := range g.Stages {
			p := r*g.Stages + stage
			n.place[p] = g.Keep*n.place[p] + fresh*g.Place*rng.NormFloat64()
			g.measure(r, stage, math.Exp(n.bias[stage]+n.place[p]), rng, s)
		}
		without, with, err := g.run(c, f, r, first, second)
		if err != nil {
			return err
		}
		healthy, slow = max(healthy, without), max(slow, with)
	}
	for p, factor := range map[int]float64{f.Place: first, f.Second: second} { // places differ, so order cannot matter
		if factor != 1 && c.Kind != link {
			s.observed[p] = scaled(s.observed[p], factor)
		}
	}
	s.took = scaled(slow, longer*(1+pause))
	s.observed[late] += scaled(slow, longer*pause) // one is late, and all wait
	if first != 1 || second != 1 {
		f.Effect += float64(slow) / float64(healthy)
	}
	return s.expect.Evaluate([]*pipeline.Line{g.line}, g.costs, nil)
}

func scaled(d time.Duration, factor float64) time.Duration {
	return time.Duration(math.Round(float64(d) * factor))
}

// expect draws the micro-batches of a replica and works out what the model says of them.
func (g *generator) expect(c *cell, r int, rng *rand.Rand) error {
	costs := &g.costs[r]
	speed := perfmodel.Rate{Linear: rate, Quadratic: rate * lockstep.FLOPs(g.Attention)}
	for m := range g.Micros {
		batch := g.batch(c.Context, rng)
		work := g.model.Work(perfmodel.Stage{Layers: g.Layers}, batch)
		for stage := range g.Stages {
			forward, backward := work.Forward, work.Backward()
			if c.Loss && stage == g.Stages-1 {
				loss := perfmodel.Cost{Linear: forward.Linear * lossLayers / lockstep.FLOPs(g.Layers)}
				forward, backward = forward.Add(loss), backward.Add(loss).Add(loss)
			}
			costs.Forward[stage*g.Micros+m] = forward.Time(speed)
			costs.Backward[stage*g.Micros+m] = backward.Time(speed)
		}
		if m == 0 {
			hop := perfmodel.Cost{Linear: work.Forward.Linear * lockstep.FLOPs(g.Transfer)}.Time(speed)
			for stage := range g.Stages {
				costs.Send[stage], costs.Return[stage] = hop, hop
			}
		}
	}
	return nil
}

// batch packs documents until there are as many tokens as the context has. What does not fit of
// the last one begins the next micro-batch.
func (g *generator) batch(tokens int, rng *rand.Rand) perfmodel.Batch {
	b := perfmodel.Batch{Tokens: int64(tokens)}
	for left := tokens; left > 0; {
		l := g.rest
		if l == 0 {
			x := g.Median * math.Exp(g.Sigma*rng.NormFloat64())
			l = max(1, int(math.Round(min(x, float64(tokens)))))
		}
		g.rest = max(l-left, 0)
		l = min(l, left)
		left -= l
		b.Pairs += float64(l) * float64(l+1) / 2
	}
	return b
}

// measure draws what the chunks of a stage really take.
func (g *generator) measure(r, stage int, level float64, rng *rand.Rand, s *sample) {
	from, to := &g.costs[r], &g.real[r]
	observed, expected := time.Duration(0), time.Duration(0)
	for m := range g.Micros {
		i := stage*g.Micros + m
		to.Forward[i] = scaled(from.Forward[i], level*math.Exp(g.Chunk*rng.NormFloat64()))
		to.Backward[i] = scaled(from.Backward[i], level*math.Exp(g.Chunk*rng.NormFloat64()))
		observed += to.Forward[i] + to.Backward[i]
		expected += from.Forward[i] + from.Backward[i]
	}
	to.Send[stage], to.Return[stage] = from.Send[stage], from.Return[stage]
	p := r*g.Stages + stage
	s.observed[p], s.expected[p] = observed, expected
}

// run returns what a replica takes without the fault and with it.
func (g *generator) run(c *cell, f *fault, r int, first, second float64) (without, with time.Duration, err error) {
	costs := &g.real[r]
	if err := g.line.Run(costs, &g.result); err != nil {
		return 0, 0, err
	}
	without = g.result.Makespan
	slowed := false
	for i, p := range [...]int{f.Place, f.Second} {
		factor := [...]float64{first, second}[i]
		if factor == 1 || p/g.Stages != r {
			continue
		}
		slowed = true
		stage := p % g.Stages
		if c.Kind == link {
			costs.Send[stage], costs.Return[stage] = scaled(costs.Send[stage], factor), scaled(costs.Return[stage], factor)
			continue
		}
		for m := range g.Micros {
			i := stage*g.Micros + m
			costs.Forward[i], costs.Backward[i] = scaled(costs.Forward[i], factor), scaled(costs.Backward[i], factor)
		}
	}
	if !slowed {
		return without, without, nil
	}
	err = g.line.Run(costs, &g.result)
	return without, g.result.Makespan, err
}
