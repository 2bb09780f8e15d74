package bubble

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
	rows, wide := len(s.limits), len(s.columns)+len(s.limits)+1
	t := make([][]float64, rows+1) // the last row is the gain; the last column the limits
	for i := range t {
		t[i] = make([]float64, wide)
	}
	for i, limit := range s.limits {
		t[i][len(s.columns)+i], t[i][wide-1] = 1, limit
	}
	basis := make([]int, rows)
	for i := range basis {
		basis[i] = len(s.columns) + i
	}
	for j, c := range s.columns {
		t[rows][j] = -c.gain
		for _, e := range c.at {
			t[e.row][j] += e.uses
		}
	}
	for {
		in := -1
		for j := 0; j < wide-1 && in < 0; j++ {
			if t[rows][j] < -tiny {
				in = j
			}
		}
		if in < 0 {
			return t[rows][wide-1]
		}
		out := -1
		for i := range basis {
			if t[i][in] <= tiny {
				continue
			}
			if out < 0 {
				out = i
				continue
			}
			a, b := t[i][wide-1]*t[out][in], t[out][wide-1]*t[i][in]
			if a < b || a == b && basis[i] < basis[out] {
				out = i
			}
		}
		if out < 0 {
			return t[rows][wide-1] // every variable is in a row of its window, so none is without limit
		}
		pivot(t, out, in)
		basis[out] = in
	}
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
