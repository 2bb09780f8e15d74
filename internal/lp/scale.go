package lp

import "math"

// form is a problem in columns, scaled: minimise cost·x with columns × x + slack = rhs. The slack of row i is column
// n+i.
type form struct {
	m, n         int
	start        []int // entries of column j are start[j] to start[j+1]
	row          []int32
	val          []float64
	rhs          []float64
	cost         []float64 // of columns and slacks
	lower, upper []float64 // of columns and slacks
	rowScale     []float64 // what a row was multiplied by, a power of two
	colScale     []float64 // what a column was multiplied by, a power of two
}

// scalings is how often rows and columns are scaled in turn; more changes little.
const scalings = 3

// newForm takes a valid problem in.
func newForm(p *Problem) *form {
	m, n := len(p.Rows), len(p.Cost)
	f := &form{
		m: m, n: n, start: make([]int, n+1), rhs: make([]float64, m), cost: make([]float64, n+m),
		lower: make([]float64, n+m), upper: make([]float64, n+m), rowScale: ones(m), colScale: ones(n),
	}
	for i := range p.Rows {
		for _, e := range p.Rows[i].Entries {
			if e.Val != 0 {
				f.start[e.Col+1]++
			}
		}
	}
	for j := range n {
		f.start[j+1] += f.start[j]
	}
	f.row, f.val = make([]int32, f.start[n]), make([]float64, f.start[n])
	next := append([]int(nil), f.start[:n]...)
	for i := range p.Rows {
		for _, e := range p.Rows[i].Entries {
			if e.Val != 0 {
				f.row[next[e.Col]], f.val[next[e.Col]] = int32(i), e.Val
				next[e.Col]++
			}
		}
	}
	f.scale()
	for j := range n {
		l, u := p.bounds(j)
		f.cost[j] = p.Cost[j] * f.colScale[j]
		f.lower[j], f.upper[j] = l/f.colScale[j], u/f.colScale[j]
	}
	for i := range p.Rows {
		f.rhs[i] = p.Rows[i].RHS * f.rowScale[i]
		f.lower[n+i], f.upper[n+i] = p.Rows[i].slack() // 0 and infinity stay what they are
	}
	return f
}

func ones(n int) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = 1
	}
	return s
}

// scale brings the entries of each row and column near one: each is divided by
// the geometric mean of its largest and its least, rounded to a power of two.
func (f *form) scale() {
	for range scalings {
		least, most := make([]float64, f.m), make([]float64, f.m)
		for j := range f.n {
			for k := f.start[j]; k < f.start[j+1]; k++ {
				spread(&least[f.row[k]], &most[f.row[k]], math.Abs(f.val[k]))
			}
		}
		for i := range least {
			least[i] = power(least[i], most[i])
			f.rowScale[i] *= least[i]
		}
		for j := range f.n {
			var lo, hi float64
			for k := f.start[j]; k < f.start[j+1]; k++ {
				f.val[k] *= least[f.row[k]]
				spread(&lo, &hi, math.Abs(f.val[k]))
			}
			by := power(lo, hi)
			f.colScale[j] *= by
			for k := f.start[j]; k < f.start[j+1]; k++ {
				f.val[k] *= by
			}
		}
	}
}

func spread(least, most *float64, v float64) {
	if *least == 0 || v < *least {
		*least = v
	}
	*most = max(*most, v)
}

// power returns the power of two nearest to 1/sqrt(least × most); 1 for none.
func power(least, most float64) float64 {
	if least == 0 {
		return 1
	}
	_, a := math.Frexp(least)
	_, b := math.Frexp(most)
	return math.Ldexp(1, -(a+b-1)/2)
}

// each calls f for the entries of a column or slack.
func (f *form) each(j int, do func(row int, val float64)) {
	if j >= f.n {
		do(j-f.n, 1)
		return
	}
	for k := f.start[j]; k < f.start[j+1]; k++ {
		do(int(f.row[k]), f.val[k])
	}
}

// times returns y × column j.
func (f *form) times(y []float64, j int) float64 {
	if j >= f.n {
		return y[j-f.n]
	}
	sum := 0.0
	for k := f.start[j]; k < f.start[j+1]; k++ {
		sum += float64(y[f.row[k]] * f.val[k])
	}
	return sum
}

// into adds t × column j to v.
func (f *form) into(v []float64, j int, t float64) {
	if j >= f.n {
		v[j-f.n] += t
		return
	}
	for k := f.start[j]; k < f.start[j+1]; k++ {
		v[f.row[k]] += float64(f.val[k] * t)
	}
}
