package lp

import "math"

// factors is a basis as triangular factors and what was exchanged since. Rows are
// those of the problem, positions those of the basis.
type factors struct {
	m int

	// Step k of the elimination took row pivotRow[k] and position pivotPos[k].
	pivotRow, pivotPos []int
	pivot              []float64
	// Rows that step k was taken from, and how often: entries lStart[k] to lStart[k+1].
	lStart []int
	lRow   []int32
	lVal   []float64
	// What was left in the row of step k besides its pivot.
	uStart []int
	uPos   []int32
	uVal   []float64

	// Exchanges since: eta e replaced position etaPos[e] by a column with these entries.
	etaStart []int
	etaPos   []int
	etaPivot []float64
	etaRow   []int32
	etaVal   []float64

	// Work of the elimination.
	rows    [][]element
	colRows [][]int32
	colLeft []int
	taken   []bool // rows
	gone    []bool // positions
	place   []int  // by position, where a row has it, plus one
	scratch []float64
	single  []int // positions with one row left
	alone   []int // rows with one position left
}

type element struct {
	pos int32
	val float64
}

// Limits of the elimination, on scaled figures.
const (
	threshold = 0.1   // a pivot is at least this part of the largest in its column
	singular  = 1e-11 // what counts as nothing
)

func newFactors(m int) *factors {
	return &factors{
		m: m, rows: make([][]element, m), colRows: make([][]int32, m), colLeft: make([]int, m),
		taken: make([]bool, m), gone: make([]bool, m), place: make([]int, m), scratch: make([]float64, m),
	}
}

// size is what a solve with f costs, without the exchanges.
func (f *factors) size() int { return len(f.lVal) + len(f.uVal) + 2*f.m }

// factor takes the columns of a basis apart. It returns the positions and rows
// that are left where the columns depend on each other; there are none normally.
func (f *factors) factor(column func(pos int, each func(row int, val float64))) (positions, rows []int) {
	f.load(column)
	for range f.m {
		row, pos := f.choose()
		if row < 0 {
			break
		}
		f.eliminate(row, pos)
	}
	for i := range f.m {
		if !f.taken[i] {
			rows = append(rows, i)
		}
		if !f.gone[i] {
			positions = append(positions, i)
		}
	}
	return positions, rows
}

// load fills the work with the columns.
func (f *factors) load(column func(int, func(int, float64))) {
	f.pivotRow, f.pivotPos, f.pivot = f.pivotRow[:0], f.pivotPos[:0], f.pivot[:0]
	f.lStart, f.lRow, f.lVal = append(f.lStart[:0], 0), f.lRow[:0], f.lVal[:0]
	f.uStart, f.uPos, f.uVal = append(f.uStart[:0], 0), f.uPos[:0], f.uVal[:0]
	f.etaStart, f.etaPos, f.etaPivot, f.etaRow, f.etaVal = append(f.etaStart[:0], 0), f.etaPos[:0], f.etaPivot[:0], f.etaRow[:0], f.etaVal[:0]
	f.single, f.alone = f.single[:0], f.alone[:0]
	for i := range f.m {
		f.rows[i], f.colRows[i] = f.rows[i][:0], f.colRows[i][:0]
		f.taken[i], f.gone[i], f.place[i] = false, false, 0
	}
	for pos := range f.m {
		column(pos, func(row int, val float64) {
			f.rows[row] = append(f.rows[row], element{int32(pos), val})
			f.colRows[pos] = append(f.colRows[pos], int32(row))
		})
	}
	for i := range f.m {
		f.colLeft[i] = len(f.colRows[i])
		if f.colLeft[i] == 1 {
			f.single = append(f.single, i)
		}
		if len(f.rows[i]) == 1 {
			f.alone = append(f.alone, i)
		}
	}
}

// choose returns the next pivot: a position or a row that stands alone, else one
// of few fill-ins (Markowitz) among the sparsest; -1 if only nothing is left.
func (f *factors) choose() (row, pos int) {
	for len(f.single) > 0 {
		pos := f.single[len(f.single)-1]
		f.single = f.single[:len(f.single)-1]
		if f.gone[pos] || f.colLeft[pos] != 1 {
			continue
		}
		if row := f.firstRow(pos); math.Abs(f.at(row, pos)) > singular {
			return row, pos
		}
	}
	for len(f.alone) > 0 {
		row := f.alone[len(f.alone)-1]
		f.alone = f.alone[:len(f.alone)-1]
		if f.taken[row] || len(f.rows[row]) != 1 {
			continue
		}
		e := f.rows[row][0]
		if math.Abs(e.val) > singular && math.Abs(e.val) >= float64(threshold*f.largest(int(e.pos))) {
			return row, int(e.pos)
		}
	}
	return f.sparsest()
}

func (f *factors) firstRow(pos int) int {
	for _, r := range f.colRows[pos] {
		if !f.taken[r] {
			return int(r)
		}
	}
	return -1
}

// at returns the entry of a row at a position.
func (f *factors) at(row, pos int) float64 {
	for _, e := range f.rows[row] {
		if int(e.pos) == pos {
			return e.val
		}
	}
	return 0
}

// largest returns the largest entry left at a position.
func (f *factors) largest(pos int) float64 {
	v := 0.0
	for _, r := range f.colRows[pos] {
		if !f.taken[r] {
			v = max(v, math.Abs(f.at(int(r), pos)))
		}
	}
	return v
}

// sparsest looks through positions by how many rows they have left and takes the
// entry with the fewest possible fill-ins that is large enough.
func (f *factors) sparsest() (row, pos int) {
	row, pos = -1, -1
	best := math.MaxInt
	for p := range f.m {
		if f.gone[p] || f.colLeft[p] == 0 || f.colLeft[p]-1 >= best {
			continue
		}
		least := float64(threshold * f.largest(p))
		for _, r := range f.colRows[p] {
			if f.taken[r] {
				continue
			}
			fill := (len(f.rows[r]) - 1) * (f.colLeft[p] - 1)
			if fill >= best {
				continue
			}
			if v := math.Abs(f.at(int(r), p)); v > singular && v >= least {
				row, pos, best = int(r), p, fill
			}
		}
		if best <= 1 {
			break
		}
	}
	return row, pos
}

// eliminate takes a row and a position out of what is left.
func (f *factors) eliminate(row, pos int) {
	p := f.at(row, pos)
	f.taken[row], f.gone[pos] = true, true
	f.pivotRow, f.pivotPos, f.pivot = append(f.pivotRow, row), append(f.pivotPos, pos), append(f.pivot, p)
	first := len(f.uVal)
	for _, e := range f.rows[row] {
		if int(e.pos) == pos {
			continue
		}
		f.uPos, f.uVal = append(f.uPos, e.pos), append(f.uVal, e.val)
		if f.colLeft[e.pos]--; f.colLeft[e.pos] == 1 {
			f.single = append(f.single, int(e.pos))
		}
	}
	f.uStart = append(f.uStart, len(f.uVal))
	for _, r := range f.colRows[pos] {
		if !f.taken[r] {
			f.subtract(int(r), pos, p, first)
		}
	}
	f.lStart = append(f.lStart, len(f.lVal))
}

// subtract takes the multiple of the last pivot's row, from entry first of U on,
// that clears position pos of a row.
func (f *factors) subtract(row, pos int, p float64, first int) {
	entries := f.rows[row]
	at := -1
	for i, e := range entries {
		f.place[e.pos] = i + 1
		if int(e.pos) == pos {
			at = i
		}
	}
	times := entries[at].val / p
	f.lRow, f.lVal = append(f.lRow, int32(row)), append(f.lVal, times)
	for i := first; i < len(f.uVal); i++ {
		c := f.uPos[i]
		if k := f.place[c]; k > 0 {
			entries[k-1].val -= float64(times * f.uVal[i])
			continue
		}
		entries = append(entries, element{c, -float64(times * f.uVal[i])})
		f.place[c] = len(entries)
		f.colRows[c] = append(f.colRows[c], int32(row))
		f.colLeft[c]++
	}
	for _, e := range entries {
		f.place[e.pos] = 0
	}
	entries[at] = entries[len(entries)-1]
	f.rows[row] = entries[:len(entries)-1]
	if len(f.rows[row]) == 1 {
		f.alone = append(f.alone, row)
	}
}

// solve turns v, by row, into x, by position, with basis × x = v. v is spoilt.
func (f *factors) solve(v, x []float64) {
	for k, r := range f.pivotRow {
		t := v[r]
		if t == 0 {
			continue
		}
		for i := f.lStart[k]; i < f.lStart[k+1]; i++ {
			v[f.lRow[i]] -= float64(f.lVal[i] * t)
		}
	}
	for k := f.m - 1; k >= 0; k-- {
		t := v[f.pivotRow[k]]
		for i := f.uStart[k]; i < f.uStart[k+1]; i++ {
			t -= float64(f.uVal[i] * x[f.uPos[i]])
		}
		x[f.pivotPos[k]] = t / f.pivot[k]
	}
	for e, pos := range f.etaPos {
		t := x[pos]
		if t == 0 {
			continue
		}
		t /= f.etaPivot[e]
		x[pos] = t
		for i := f.etaStart[e]; i < f.etaStart[e+1]; i++ {
			x[f.etaRow[i]] -= float64(f.etaVal[i] * t)
		}
	}
}

// solveRows turns c, by position, into y, by row, with y × basis = c. c is spoilt.
func (f *factors) solveRows(c, y []float64) {
	for e := len(f.etaPos) - 1; e >= 0; e-- {
		t := c[f.etaPos[e]]
		for i := f.etaStart[e]; i < f.etaStart[e+1]; i++ {
			t -= float64(f.etaVal[i] * c[f.etaRow[i]])
		}
		c[f.etaPos[e]] = t / f.etaPivot[e]
	}
	for k, pos := range f.pivotPos {
		z := c[pos] / f.pivot[k]
		y[f.pivotRow[k]] = z
		if z == 0 {
			continue
		}
		for i := f.uStart[k]; i < f.uStart[k+1]; i++ {
			c[f.uPos[i]] -= float64(f.uVal[i] * z)
		}
	}
	for k := f.m - 1; k >= 0; k-- {
		t := y[f.pivotRow[k]]
		for i := f.lStart[k]; i < f.lStart[k+1]; i++ {
			t -= float64(f.lVal[i] * y[f.lRow[i]])
		}
		y[f.pivotRow[k]] = t
	}
}

// exchange notes that the column at a position was replaced by one that is w in
// terms of the basis before.
func (f *factors) exchange(pos int, w []float64) {
	for i, v := range w {
		if i != pos && v != 0 {
			f.etaRow, f.etaVal = append(f.etaRow, int32(i)), append(f.etaVal, v)
		}
	}
	f.etaPos, f.etaPivot = append(f.etaPos, pos), append(f.etaPivot, w[pos])
	f.etaStart = append(f.etaStart, len(f.etaVal))
}
