package goodput

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Bounds of what a model takes.
const (
	maxGPUs    = lockstep.MaxMembers
	maxBatch   = 1 << 40 // samples a step
	maxGamma   = 10
	maxFigure  = 1e100 // of noise
	maxRate    = 1e50  // of rates and weights; 1/maxRate is the least, so that products of ratios are in the range of floats
	maxSeconds = 1e9   // of coefficients
	minPass    = 1e-12 // seconds of a pass of one sample
)

// Linear is a time in seconds that grows with a count: Alpha + Beta × count.
type Linear struct {
	Alpha float64 `json:"alpha"` // Alpha is the constant part in seconds, at least 0.
	Beta  float64 `json:"beta"`  // Beta is the part for each of what is counted, in seconds, at least 0.
}

// Params are the seven parameters of Pollux for how long a training step takes.
type Params struct {
	Compute Linear  `json:"compute"`         // Compute is one forward and backward pass, by samples on one GPU; a pass of one must take a picosecond or more.
	Local   Linear  `json:"local"`           // Local is the gradient exchange inside a node, by GPUs beyond two.
	Remote  Linear  `json:"remote"`          // Remote is the gradient exchange between nodes, by GPUs beyond two.
	Gamma   float64 `json:"gamma,omitempty"` // Gamma says how far computing and exchange overlap: 1 not at all, 10 nearly wholly; 0 means 1.
}

// Shape is how a job runs.
type Shape struct {
	Nodes      int   `json:"nodes"`                // Nodes is how many nodes it is on, from 1.
	GPUs       int   `json:"gpus"`                 // GPUs is how many it has in all, at least Nodes.
	Batch      int64 `json:"batch"`                // Batch is the samples that one GPU takes in one pass, from 1.
	Accumulate int64 `json:"accumulate,omitempty"` // Accumulate is the passes of a step before the one whose gradients are exchanged.
}

// Samples returns the samples of one step over all GPUs.
func (s Shape) Samples() int64 { return int64(s.GPUs) * s.Batch * (s.Accumulate + 1) }

// valid says whether a model can speak of s.
func (s Shape) valid() bool {
	return s.Nodes >= 1 && s.GPUs >= s.Nodes && s.GPUs <= maxGPUs && s.Batch >= 1 && s.Accumulate >= 0 &&
		s.Batch <= maxBatch && s.Accumulate < maxBatch && float64(s.GPUs)*float64(s.Batch)*float64(s.Accumulate+1) <= maxBatch
}

// Noise is what gradients of the initial batch were measured to be like. The zero Noise
// means that nothing is known: samples beyond the initial batch then count for nothing.
type Noise struct {
	Norm     float64 `json:"norm"`     // Norm is the squared length of the mean gradient, at least 0.
	Variance float64 `json:"variance"` // Variance is that of the gradients of initial batches, summed over coordinates, at least 0.
}

// Config is what a Model is made of.
type Config struct {
	Params  Params `json:"params"`            // Params are how long a step takes.
	Noise   Noise  `json:"noise"`             // Noise says what a larger batch is worth.
	Initial int64  `json:"initial,omitempty"` // Initial is the batch over all GPUs that the user would train with, at which Noise was measured; 0 means 1.
	Limits  Limits `json:"limits"`            // Limits bound the batches that Best may choose.
}

// Model answers how fast a job progresses in a shape, and in which shape it progresses
// fastest. It is made by New and read only.
type Model struct {
	cfg  Config  // with defaults filled in
	base float64 // goodput of the best shape on one GPU, 0 if there is none
}

// New returns the model of cfg.
func New(cfg Config) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg.filled()}
	if c, ok := m.Best(1, 1); ok {
		m.base = c.Goodput
	}
	return m, nil
}

// filled returns c with its defaults in place of zeros.
func (c Config) filled() Config {
	c.Initial = max(c.Initial, 1)
	c.Params = c.Params.filled()
	c.Limits = c.Limits.filled(c.Initial)
	return c
}

func (p Params) filled() Params {
	if p.Gamma == 0 {
		p.Gamma = 1
	}
	return p
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind ErrInvalid.
func (c Config) Validate() error {
	f := faults{op: "goodput: model"}
	c.Params.check(&f, "Params.")
	f.figure("Noise.Norm", c.Noise.Norm, 0, maxFigure)
	f.figure("Noise.Variance", c.Noise.Variance, 0, maxFigure)
	f.count("Initial", c.Initial, 0, maxBatch)
	c.Limits.check(&f, min(max(c.Initial, 1), maxBatch))
	return f.err()
}

// Validate reports every fault of p, joined, each an *lockstep.Error of kind ErrInvalid.
func (p Params) Validate() error {
	f := faults{op: "goodput: params"}
	p.check(&f, "")
	return f.err()
}

func (p Params) check(f *faults, at string) {
	for _, l := range []struct {
		name string
		line Linear
	}{{"Compute", p.Compute}, {"Local", p.Local}, {"Remote", p.Remote}} {
		f.figure(at+l.name+".Alpha", l.line.Alpha, 0, maxSeconds)
		f.figure(at+l.name+".Beta", l.line.Beta, 0, maxSeconds)
	}
	if one := p.compute(1); one < minPass {
		f.bad(at+"Compute", text(one), "want a pass of one sample to take "+text(minPass)+" seconds or more")
	}
	if p.Gamma != 0 {
		f.figure(at+"Gamma", p.Gamma, 1, maxGamma)
	}
}

// StepTime returns how long a step of shape s takes, to the nanosecond. It is 0 for a
// shape that cannot be: no node, fewer GPUs than nodes, no samples, or more than 2⁴⁰
// samples or 2²⁰ GPUs.
func (m *Model) StepTime(s Shape) time.Duration {
	if !s.valid() {
		return 0
	}
	return duration(m.cfg.Params.step(s))
}

// Throughput returns the samples a second of shape s; 0 for a shape that cannot be.
func (m *Model) Throughput(s Shape) float64 {
	if !s.valid() {
		return 0
	}
	return float64(s.Samples()) / m.cfg.Params.step(s)
}

// Efficiency returns how much progress a sample of a batch of that many samples brings,
// as a part of what one of the initial batch does; for samples from 1, else 0.
func (m *Model) Efficiency(samples int64) float64 {
	if samples < 1 {
		return 0
	}
	q, v := m.cfg.Noise.Norm, m.cfg.Noise.Variance
	scale := float64(samples) / float64(m.cfg.Initial)
	most := v + float64(q*scale)
	if most == 0 { // nothing is known, or too small a figure for a float
		return 1 / scale
	}
	return (v + q) / most
}

// Goodput returns the progress a second of shape s, counted in samples of the initial
// batch; 0 for a shape that cannot be.
func (m *Model) Goodput(s Shape) float64 {
	if !s.valid() {
		return 0
	}
	return m.Throughput(s) * m.Efficiency(s.Samples())
}

// step returns the seconds of a step. It takes a valid shape and a Gamma that is not 0.
func (p Params) step(s Shape) float64 {
	compute := p.compute(s.Batch)
	return float64(float64(s.Accumulate)*compute) + norm(compute, p.network(s), p.Gamma)
}

func (p Params) compute(batch int64) float64 {
	return p.Compute.Alpha + float64(p.Compute.Beta*float64(batch))
}

func (p Params) network(s Shape) float64 {
	if s.GPUs == 1 {
		return 0
	}
	line := p.Local
	if s.Nodes > 1 {
		line = p.Remote
	}
	return line.Alpha + float64(line.Beta*float64(max(s.GPUs-2, 0)))
}

// norm returns (a^gamma + b^gamma)^(1/gamma) without leaving the range of floats.
func norm(a, b, gamma float64) float64 {
	hi, lo := max(a, b), min(a, b)
	switch {
	case lo == 0:
		return hi
	case gamma == 1:
		return hi + lo
	}
	return hi * math.Pow(1+math.Pow(lo/hi, gamma), 1/gamma)
}

// duration returns seconds to the nanosecond, held at the longest Duration.
func duration(seconds float64) time.Duration {
	ns := math.Round(seconds * float64(time.Second))
	if !(ns < math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
