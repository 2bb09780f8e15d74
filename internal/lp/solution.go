package lp

import "math"

// solution turns the end of a run into an answer in the problem's own figures.
func (s *simplex) solution(p *Problem, status Status, ray int) *Solution {
	out := &Solution{Status: status, Steps: s.steps, Stalls: s.blandly}
	switch status {
	case Infeasible:
		s.prices(out, true)
		out.Reduced = nil
	case Optimal:
		s.point(p, out)
		s.prices(out, false)
		for j, c := range p.Cost {
			out.Reduced[j] += c
		}
	case Unbounded:
		s.point(p, out)
		s.direction(out, ray)
	}
	return out
}

// point sets X, brought into its bounds where rounding left it outside.
func (s *simplex) point(p *Problem, out *Solution) {
	out.X = make([]float64, s.n)
	for j := range out.X {
		l, u := p.bounds(j)
		out.X[j] = min(max(float64(s.x[j]*s.colScale[j]), l), u)
		out.Objective += float64(p.Cost[j] * out.X[j])
	}
}

// prices sets Y, and Reduced less the cost. The prices are refined once by what
// the basic columns' reduced costs, which should be nothing, came out as.
func (s *simplex) prices(out *Solution, phase1 bool) {
	s.price(phase1)
	y := append([]float64(nil), s.rho...)
	for pos, j := range s.basis {
		want := s.cost[j]
		if phase1 {
			want = s.outside(j)
		}
		s.costs[pos] = want - s.times(y, j)
	}
	s.factors.solveRows(s.costs, s.rho)
	out.Y, out.Reduced = make([]float64, s.m), make([]float64, s.n)
	for i := range y {
		y[i] += s.rho[i]
		if l, u := s.lower[s.n+i], s.upper[s.n+i]; l == 0 && u > 0 {
			y[i] = min(y[i], 0) // rounding may leave a sign that no optimum has
		} else if l < 0 && u == 0 {
			y[i] = max(y[i], 0)
		}
		out.Y[i] = y[i] * s.rowScale[i]
	}
	for j := range out.Reduced {
		out.Reduced[j] = -s.times(y, j) / s.colScale[j]
	}
}

// outside is the cost of phase one: which way j is out of its bounds.
func (s *simplex) outside(j int) float64 {
	switch {
	case s.x[j] < s.lower[j]-feasTol:
		return -1
	case s.x[j] > s.upper[j]+feasTol:
		return 1
	}
	return 0
}

// direction sets Ray: where X goes as column j moves.
func (s *simplex) direction(out *Solution, j int) {
	up := 1.0
	if s.d[j] > 0 {
		up = -1
	}
	out.Ray = make([]float64, s.n)
	set := func(k int, v float64) {
		if k < s.n && math.Abs(v) > pivotTol {
			out.Ray[k] = v * s.colScale[k]
		}
	}
	set(j, up)
	for pos, k := range s.basis {
		set(k, -up*s.w[pos])
	}
}
