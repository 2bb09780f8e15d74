package goodput

import "math"

// What a fit searches through: the logarithms of the six coefficients, so that steps are
// relative, and gamma as it is.
const (
	computeAlpha = iota
	computeBeta
	localAlpha
	localBeta
	remoteAlpha
	remoteBeta
	gamma
	dims
)

// How a descent goes on and when it ends.
const (
	rounds    = 200
	longest   = 3     // the farthest that one step goes in any coordinate
	settled   = 1e-10 // a step that gains less than this part of the loss is the last
	smoothing = 1e-16 // added under the roots, so that they have a slope at 0
)

// Weights of what holds parameters back: a gamma above 1, and exchange that takes longer
// with every GPU (Pollux, as in the authors' code).
const (
	holdGamma = 1e-3
	holdBeta  = 1e-2
)

// vector is a point of the search.
type vector [dims]float64

func (x vector) params() Params {
	return Params{
		Compute: Linear{Alpha: math.Exp(x[computeAlpha]), Beta: math.Exp(x[computeBeta])},
		Local:   Linear{Alpha: math.Exp(x[localAlpha]), Beta: math.Exp(x[localBeta])},
		Remote:  Linear{Alpha: math.Exp(x[remoteAlpha]), Beta: math.Exp(x[remoteBeta])},
		Gamma:   x[gamma],
	}
}

// problem is what a fit minimises: the root mean squared errors of the logarithms of step
// times and of compute times, and what holds parameters back.
type problem struct {
	samples []Sample
	timed   int // samples with a compute time
	lo, hi  vector
	single  float64 // seconds of a pass, on average
}

func newProblem(samples []Sample, r *Fit) *problem {
	p := &problem{samples: samples}
	several := false // more than two GPUs
	for _, s := range samples {
		pass := s.Compute.Seconds()
		if s.Compute > 0 {
			p.timed++
		} else {
			pass = s.Step.Seconds() / float64(s.Shape.Accumulate+1)
		}
		p.single += pass / float64(len(samples))
		several = several || s.Shape.GPUs > 2
	}
	for j := range p.lo {
		p.lo[j], p.hi[j] = math.Log(least), math.Log(maxSeconds)
	}
	p.lo[gamma], p.hi[gamma] = 1, maxGamma
	fix := func(to float64, which ...int) {
		for _, j := range which {
			p.lo[j], p.hi[j] = to, to
		}
	}
	if r.MinBatch == r.MaxBatch {
		fix(math.Log(max(p.single/2, least)), computeAlpha)
	}
	if !r.Remote {
		fix(math.Log(least), remoteAlpha, remoteBeta)
	}
	if !r.Local {
		fix(math.Log(least), localAlpha, localBeta)
	}
	if !several {
		fix(math.Log(least), localBeta, remoteBeta)
	}
	if !r.Local && !r.Remote {
		fix(1, gamma) // nothing depends on it
	}
	return p
}

// starts returns where the search starts: what was measured, split between parts in
// several ways, and the authors' own start.
func (p *problem) starts() []vector {
	batch := float64(p.samples[len(p.samples)/2].Shape.Batch)
	start := func(fixed, exchange, more, g float64) vector {
		x := vector{
			computeAlpha: math.Log(p.single * fixed), computeBeta: math.Log(p.single * (1 - fixed) / batch),
			localAlpha: math.Log(p.single * exchange), localBeta: math.Log(p.single * more),
			remoteAlpha: math.Log(p.single * exchange), remoteBeta: math.Log(p.single * more), gamma: g,
		}
		return p.held(x)
	}
	a, b := math.Log(0.1), math.Log(0.01)
	return []vector{
		p.held(vector{a, b, a, b, a, b, 1.001}),
		start(.5, .3, .01, 1.2), start(.1, .3, .01, 1.2), start(.5, .3, .01, 2.5), start(.1, .05, .001, 2.5),
		start(.1, 1, .05, 1.2), start(.5, 1, .01, 5), start(.01, .01, .0001, 1.2),
	}
}

// held returns x inside the bounds.
func (p *problem) held(x vector) vector {
	for j := range x {
		x[j] = min(max(x[j], p.lo[j]), p.hi[j])
	}
	return x
}

// descend goes down from x and returns where it ends and the loss there. Each round
// stands squares in for the roots, which they touch and are never below, and takes a
// damped Gauss-Newton step (Levenberg and Marquardt) that stays inside the bounds.
func (p *problem) descend(x vector) (vector, float64) {
	loss, damping := p.loss(x), 1e-2
	for range rounds {
		g, h := p.slopes(x)
		next, f, ok := x, loss, false
		for ; damping < 1e10; damping *= 4 {
			step, solved := p.step(x, &g, &h, damping)
			if !solved {
				continue
			}
			next = p.held(step)
			if f = p.loss(next); f < loss {
				ok = true
				break
			}
		}
		if !ok {
			break
		}
		gain := loss - f
		x, loss = next, f
		damping = max(damping/5, 1e-12)
		if gain < settled*loss {
			break
		}
	}
	return x, loss
}

// step returns where the damped step from x leads. What is at a bound and would leave
// it stays.
func (p *problem) step(x vector, g *vector, h *[dims]vector, damping float64) (vector, bool) {
	var free []int
	for j := range x {
		if x[j] <= p.lo[j] && g[j] >= 0 || x[j] >= p.hi[j] && g[j] <= 0 {
			continue
		}
		free = append(free, j)
	}
	if len(free) == 0 {
		return x, false
	}
	a, b := make([][]float64, len(free)), make([]float64, len(free))
	for i, j := range free {
		a[i] = make([]float64, len(free))
		for k, l := range free {
			a[i][k] = h[j][l]
		}
		a[i][i] += float64(damping*h[j][j]) + 1e-9
		b[i] = -g[j]
	}
	if !cholesky(a, b) {
		return x, false
	}
	for i, j := range free {
		x[j] += max(min(b[i], longest), -longest)
	}
	return x, true
}

// loss returns what is minimised at x.
func (p *problem) loss(x vector) float64 {
	step, pass := p.errors(x)
	q := x.params()
	hold := square(q.Local.Beta/q.Local.Alpha) + square(q.Remote.Beta/q.Remote.Alpha)
	return step + pass + float64(holdGamma*square(q.Gamma-1)) + float64(holdBeta*hold)
}

// errors returns the two root mean squared errors at x.
func (p *problem) errors(x vector) (step, pass float64) {
	q := x.params()
	for _, s := range p.samples {
		step += square(math.Log(q.step(s.Shape) / s.Step.Seconds()))
		if s.Compute > 0 {
			pass += square(math.Log(q.compute(s.Shape.Batch) / s.Compute.Seconds()))
		}
	}
	step = math.Sqrt(step/float64(len(p.samples)) + smoothing)
	if p.timed > 0 {
		pass = math.Sqrt(pass/float64(p.timed) + smoothing)
	}
	return step, pass
}

// slopes returns the gradient at x and the matrix of the squares that stand in.
func (p *problem) slopes(x vector) (g vector, h [dims]vector) {
	add := func(weight, residual float64, row *vector) {
		for j := range row {
			if row[j] == 0 {
				continue
			}
			g[j] += float64(weight * residual * row[j])
			for k := range row {
				h[j][k] += float64(weight * row[j] * row[k])
			}
		}
	}
	q := x.params()
	step, pass := p.errors(x)
	step = 1 / (step * float64(len(p.samples)))
	if p.timed > 0 {
		pass = 1 / (pass * float64(p.timed))
	}
	for _, s := range p.samples {
		t, row := q.gradient(s.Shape)
		add(step, math.Log(t/s.Step.Seconds()), &row)
		if s.Compute > 0 {
			c := q.compute(s.Shape.Batch)
			row = vector{computeAlpha: q.Compute.Alpha / c, computeBeta: 1 - q.Compute.Alpha/c}
			add(pass, math.Log(c/s.Compute.Seconds()), &row)
		}
	}
	add(2*holdGamma, q.Gamma-1, &vector{gamma: 1})
	local, remote := q.Local.Beta/q.Local.Alpha, q.Remote.Beta/q.Remote.Alpha
	add(2*holdBeta, local, &vector{localBeta: local, localAlpha: -local})
	add(2*holdBeta, remote, &vector{remoteBeta: remote, remoteAlpha: -remote})
	return g, h
}

// gradient returns the seconds of a step and the slopes of their logarithm.
func (p Params) gradient(s Shape) (t float64, row vector) {
	compute, network := p.compute(s.Batch), p.network(s)
	both := norm(compute, network, p.Gamma)
	t = float64(float64(s.Accumulate)*compute) + both
	dc, dn := 1.0, 0.0
	if network > 0 {
		c, n := math.Pow(compute/both, p.Gamma), math.Pow(network/both, p.Gamma)
		dc, dn = c*(both/compute), n*(both/network)
		row[gamma] = both / p.Gamma * (logs(c, compute/both) + logs(n, network/both)) / t
	}
	dc += float64(s.Accumulate)
	row[computeAlpha] = dc * p.Compute.Alpha / t
	row[computeBeta] = dc * (compute - p.Compute.Alpha) / t
	line, alpha, beta := p.Local, localAlpha, localBeta
	if s.Nodes > 1 {
		line, alpha, beta = p.Remote, remoteAlpha, remoteBeta
	}
	row[alpha] = dn * line.Alpha / t
	row[beta] = dn * line.Beta * float64(max(s.GPUs-2, 0)) / t
	return t, row
}

// logs returns weight × log ratio, 0 where both vanish.
func logs(weight, ratio float64) float64 {
	if weight == 0 {
		return 0
	}
	return weight * math.Log(ratio)
}
