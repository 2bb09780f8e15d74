package lp

import "math"

// Tolerances, on scaled figures.
const (
	feasTol  = 1e-9 // how far a basic variable may be out of its bounds
	dualTol  = 1e-9 // how far a reduced cost may have the wrong sign
	pivotTol = 1e-9 // a smaller pivot is none
	noMove   = 1e-13
	proven   = 1e-6 // the largest Residual of an answer
)

// simplex is one run.
type simplex struct {
	*form
	factors *factors
	basis   []int     // variable by position
	where   []int     // position by variable; -1 at the lower bound or free at 0, -2 at the upper one
	x       []float64 // value by variable
	d       []float64 // reduced cost by variable
	weight  []float64 // Devex
	work    []float64 // by position or row
	rho     []float64 // by row
	w       []float64 // entering column, by position
	costs   []float64 // by position

	fresh          bool // factors are those of the basis, with nothing exchanged
	exact          bool // d is worked out from the present prices
	phase1         bool // what d is of: what is out of bounds, or the cost
	bland          bool
	still          int // steps without progress in a row
	steps, blandly int
}

// The places of variables outside the basis.
const (
	atLower = -1
	atUpper = -2
)

func newSimplex(f *form) *simplex {
	all := f.n + f.m
	s := &simplex{
		form: f, factors: newFactors(f.m), basis: make([]int, f.m), where: make([]int, all), x: make([]float64, all),
		d: make([]float64, all), weight: ones(all), work: make([]float64, f.m), rho: make([]float64, f.m), w: make([]float64, f.m), costs: make([]float64, f.m),
	}
	for j := range all {
		s.park(j)
	}
	for i := range s.basis {
		s.basis[i], s.where[f.n+i] = f.n+i, i
	}
	return s
}

// park sets a variable outside the basis to the bound nearest to 0.
func (s *simplex) park(j int) {
	l, u := s.lower[j], s.upper[j]
	s.where[j], s.x[j] = atLower, l
	switch {
	case math.IsInf(l, 0) && math.IsInf(u, 0):
		s.x[j] = 0
	case math.IsInf(l, 0) || math.Abs(u) < math.Abs(l):
		s.where[j], s.x[j] = atUpper, u
	}
}

// Solve minimises p. The error is ErrInvalid.
func Solve(p *Problem) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	for j := range p.Cost {
		if l, u := p.bounds(j); l > u {
			return p.crossed(), nil
		}
	}
	s := newSimplex(newForm(p))
	status, j := s.run()
	out := s.solution(p, status, j)
	if out.Residual = p.Verify(out); !(out.Residual <= proven) {
		out.Status = Limit // what is not proven is not claimed
	}
	return out, nil
}

// crossed is the answer where bounds exclude each other, which is all the proof
// that there is.
func (p *Problem) crossed() *Solution {
	return &Solution{Status: Infeasible, Y: make([]float64, len(p.Rows))}
}

// most is how many steps are taken before it is given up.
func (s *simplex) most() int { return 20_000 + 40*(s.m+s.n) }

// patience is how many steps without progress are taken before Bland's rule.
func (s *simplex) patience() int { return 200 + 2*s.m }

// run returns how it ended, and for Unbounded the column that does it.
func (s *simplex) run() (Status, int) {
	s.refactor()
	for s.steps < s.most() {
		if !s.fresh && (len(s.factors.etaPos) >= 100 || len(s.factors.etaVal) > 3*s.factors.size()) {
			s.refactor()
		}
		phase1 := s.infeasible()
		if phase1 || s.phase1 || !s.exact {
			s.price(phase1)
		}
		j := s.entering()
		if j < 0 {
			if !s.fresh {
				s.refactor() // nothing is claimed from old factors
				continue
			}
			if phase1 {
				return Infeasible, -1
			}
			return Optimal, -1
		}
		if ended := s.step(j); ended {
			if phase1 {
				return Limit, -1 // what is out of bounds cannot shrink for ever: digits are lost
			}
			return Unbounded, j
		}
	}
	return Limit, -1
}

// refactor takes the basis apart anew, mends it where its columns depend on each
// other, and works the basic values out from the others.
func (s *simplex) refactor() {
	column := func(pos int, do func(int, float64)) { s.each(s.basis[pos], do) }
	for {
		positions, rows := s.factors.factor(column)
		if len(rows) == 0 {
			break
		}
		for i, pos := range positions {
			s.park(s.basis[pos])
			s.basis[pos], s.where[s.n+rows[i]] = s.n+rows[i], pos
		}
	}
	s.fresh, s.exact = true, false
	s.values()
	s.values() // once more, by the residual
}

// values corrects the basic values by what is left of the rows.
func (s *simplex) values() {
	rest := s.work
	copy(rest, s.rhs)
	for j, v := range s.x {
		if v != 0 {
			s.into(rest, j, -v)
		}
	}
	s.factors.solve(rest, s.w)
	for pos, v := range s.w {
		s.x[s.basis[pos]] += v
	}
}

// infeasible says whether a basic variable is out of its bounds.
func (s *simplex) infeasible() bool {
	for _, j := range s.basis {
		if s.x[j] < s.lower[j]-feasTol || s.x[j] > s.upper[j]+feasTol {
			return true
		}
	}
	return false
}

// price works out the reduced costs, of the cost or of what is out of bounds.
func (s *simplex) price(phase1 bool) {
	for pos, j := range s.basis {
		s.costs[pos] = s.cost[j]
		if phase1 {
			s.costs[pos] = s.outside(j)
		}
	}
	s.factors.solveRows(s.costs, s.rho)
	for j := range s.d {
		s.d[j] = 0
		if s.where[j] >= 0 {
			continue
		}
		if !phase1 {
			s.d[j] = s.cost[j]
		}
		s.d[j] -= s.times(s.rho, j)
	}
	s.exact, s.phase1 = true, phase1
}

// gain is how much a unit of column j improves by moving where it can, 0 if nowhere.
func (s *simplex) gain(j int) float64 {
	d := s.d[j]
	switch {
	case s.where[j] >= 0 || s.lower[j] == s.upper[j]:
		return 0
	case math.IsInf(s.lower[j], -1) && math.IsInf(s.upper[j], 1):
		return math.Abs(d)
	case s.where[j] == atUpper:
		return max(d, 0)
	}
	return max(-d, 0)
}

// entering returns the column to enter, -1 if none improves.
func (s *simplex) entering() int {
	best, in := 0.0, -1
	for j := range s.d {
		g := s.gain(j)
		if g <= dualTol {
			continue
		}
		if s.bland {
			return j
		}
		if score := g * g / s.weight[j]; score > best {
			best, in = score, j
		}
	}
	return in
}

// step moves column j as far as it goes. It returns true if that is for ever.
func (s *simplex) step(j int) bool {
	clear(s.work)
	s.into(s.work, j, 1)
	s.factors.solve(s.work, s.w)
	up := 1.0
	if s.d[j] > 0 {
		up = -1
	}
	theta, pos := s.leaving(up)
	if span := s.upper[j] - s.lower[j]; span <= theta {
		theta, pos = span, -1
	}
	if math.IsInf(theta, 1) {
		if s.fresh {
			return true
		}
		s.refactor()
		return false
	}
	if pos >= 0 && math.Abs(s.w[pos]) < 1e-5 && !s.fresh {
		s.refactor() // a small pivot is looked at again with all digits
		return false
	}
	s.steps++
	if s.bland {
		s.blandly++
	}
	s.progress(theta, math.Abs(s.d[j]))
	s.move(j, pos, up, theta)
	return false
}

// move takes column j so far, and lets it enter at pos if that stopped it.
func (s *simplex) move(j, pos int, up, theta float64) {
	for i, b := range s.basis {
		if s.w[i] != 0 {
			s.x[b] -= float64(float64(up*theta) * s.w[i])
		}
	}
	if pos < 0 {
		s.flip(j)
		return
	}
	s.x[j] += float64(up * theta)
	s.exchange(j, pos, up)
}

// progress watches for cycles.
func (s *simplex) progress(theta, d float64) {
	if theta*d > noMove {
		s.still, s.bland = 0, false
		return
	}
	s.still++
	if s.still > s.patience() {
		s.bland = true
	}
}

// flip moves j from one bound to the other.
func (s *simplex) flip(j int) {
	if s.where[j] == atLower {
		s.where[j], s.x[j] = atUpper, s.upper[j]
	} else {
		s.where[j], s.x[j] = atLower, s.lower[j]
	}
}

// leaving returns how far the entering column may move and the position that
// stops it; -1 if none does.
func (s *simplex) leaving(up float64) (theta float64, pos int) {
	slack := feasTol / 2
	if s.bland {
		slack = 0
	}
	reach := math.Inf(1)
	for i := range s.w {
		if r, ok := s.room(i, up); ok {
			reach = min(reach, (r+slack)/math.Abs(s.w[i]))
		}
	}
	if math.IsInf(reach, 1) {
		return reach, -1
	}
	pos = -1
	for i := range s.w {
		r, ok := s.room(i, up)
		if !ok || max(r, 0)/math.Abs(s.w[i]) > max(reach, 0) {
			continue
		}
		if pos < 0 || s.rather(i, pos) {
			pos = i
		}
	}
	r, _ := s.room(pos, up)
	return max(r, 0) / math.Abs(s.w[pos]), pos
}

// rather says whether position i is to leave rather than pos.
func (s *simplex) rather(i, pos int) bool {
	a, b := math.Abs(s.w[i]), math.Abs(s.w[pos])
	if s.bland || a == b {
		return s.basis[i] < s.basis[pos]
	}
	return a > b
}

// room returns how far the basic variable at i may move before it stops the
// entering one; false if it does not stop it.
func (s *simplex) room(i int, up float64) (float64, bool) {
	w := up * s.w[i]
	if math.Abs(w) < pivotTol {
		return 0, false
	}
	j := s.basis[i]
	x, l, u := s.x[j], s.lower[j], s.upper[j]
	if s.phase1 {
		// One that is out of bounds stops where it comes in; going further out, nowhere.
		switch {
		case x < l-feasTol:
			return l - x, w < 0
		case x > u+feasTol:
			return x - u, w > 0
		}
	}
	if w > 0 {
		return x - l, !math.IsInf(l, -1)
	}
	return u - x, !math.IsInf(u, 1)
}

// exchange lets j enter at pos, and brings weights and reduced costs up to date.
func (s *simplex) exchange(j, pos int, up float64) {
	out := s.basis[pos]
	clear(s.costs)
	s.costs[pos] = 1
	s.factors.solveRows(s.costs, s.rho)
	pivot, dj, wj := s.w[pos], s.d[j], s.weight[j]
	for k := range s.d {
		if s.where[k] >= 0 || k == j {
			continue
		}
		a := s.times(s.rho, k)
		if a == 0 {
			continue
		}
		ratio := a / pivot
		s.d[k] -= float64(dj * ratio)
		s.weight[k] = max(s.weight[k], float64(float64(ratio*ratio)*wj))
	}
	s.weight[out], s.d[out], s.d[j] = max(wj/float64(pivot*pivot), 1), -dj/pivot, 0
	if s.weight[out] > 1e10 {
		for k := range s.weight {
			s.weight[k] = 1 // the reference is lost; start a new one
		}
	}
	s.factors.exchange(pos, s.w)
	s.fresh = false
	s.basis[pos], s.where[j] = j, pos
	s.leave(out, float64(up*pivot))
}

// leave puts a variable that left the basis onto the bound that stopped it, when
// it moved against the sign of w.
func (s *simplex) leave(out int, w float64) {
	l, u := s.lower[out], s.upper[out]
	s.where[out] = atLower
	// One that came in from outside stops at the bound it came to, so the nearer one is meant.
	if math.IsInf(l, -1) || !math.IsInf(u, 1) && math.Abs(s.x[out]-u) < math.Abs(s.x[out]-l) {
		s.where[out] = atUpper
	}
	if l == u {
		s.where[out] = atLower
		if w < 0 {
			s.where[out] = atUpper
		}
	}
	s.x[out] = l
	if s.where[out] == atUpper {
		s.x[out] = u
	}
}
