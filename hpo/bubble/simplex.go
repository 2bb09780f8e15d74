package bubble

import "slices"

// simplex is a linear programme with every variable at least 0 and every row at most its limit, which is at least 0.
type simplex struct {
	limits  []float64
	columns []column
}

// column is a variable: what one of it gains and takes of each row.
type column struct {
	gain float64
	at   []entry
}

type entry struct {
	row  int
	uses float64
}

// tiny is what counts as nothing in a tableau.
const tiny = 1e-9

// maximum returns the largest gain, by the simplex method on a dense tableau with Bland's rule (1977), which does not
// cycle. Variables start at 0, which every limit allows.
func (s *simplex) maximum() float64 {
	t := s.tableau()
	rows, wide := len(s.limits), len(t[0])
	basis := make([]int, rows)
	for i := range basis {
		basis[i] = len(s.columns) + i
	}
	for {
		in := slices.IndexFunc(t[rows][:wide-1], func(gain float64) bool { return gain < -tiny })
		if in < 0 {
			return t[rows][wide-1]
		}
		out := leaves(t, basis, in)
		if out < 0 {
			return t[rows][wide-1] // every variable is in a row of its window, so none is without limit
		}
		pivot(t, out, in)
		basis[out] = in
	}
}

// tableau returns the rows, a unit column for each behind the variables, and the limits as the last column; the last row
// is the gain.
func (s *simplex) tableau() [][]float64 {
	rows, wide := len(s.limits), len(s.columns)+len(s.limits)+1
	t := make([][]float64, rows+1)
	for i := range t {
		t[i] = make([]float64, wide)
	}
	for i, limit := range s.limits {
		t[i][len(s.columns)+i], t[i][wide-1] = 1, limit
	}
	for j, c := range s.columns {
		t[rows][j] = -c.gain
		for _, e := range c.at {
			t[e.row][j] += e.uses
		}
	}
	return t
}

// leaves returns the row that limits the column in first, of equal ones that of the lowest variable; -1 for none.
func leaves(t [][]float64, basis []int, in int) int {
	last, out := len(t[0])-1, -1
	for i := range basis {
		if t[i][in] <= tiny {
			continue
		}
		if out < 0 {
			out = i
			continue
		}
		a, b := t[i][last]*t[out][in], t[out][last]*t[i][in]
		if a < b || a == b && basis[i] < basis[out] {
			out = i
		}
	}
	return out
}

// pivot makes column in a unit of row out.
func pivot(t [][]float64, out, in int) {
	by := t[out][in]
	for j := range t[out] {
		t[out][j] /= by
	}
	for i := range t {
		if f := t[i][in]; i != out && f != 0 {
			for j := range t[i] {
				t[i][j] -= float64(f * t[out][j])
			}
		}
	}
}
