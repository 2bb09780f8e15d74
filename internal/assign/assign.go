package assign

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// ErrInvalid is the kind of a problem that is none.
var ErrInvalid = errors.New("assign: invalid problem")

// Forbidden is the cost of a pair that must not be made.
const Forbidden = math.MaxInt64

// Problem is a rectangle of costs.
type Problem struct {
	Rows int     // Rows is how many there are, 0 or more.
	Cols int     // Cols is how many there are, 0 or more.
	Cost []int64 // Cost of row i and column j is at i×Cols + j; it may be negative, and Forbidden.
}

// Solution is the pairs and their proof.
type Solution struct {
	ColOf []int   // ColOf is the column of each row, -1 for none.
	RowOf []int   // RowOf is the row of each column, -1 for none.
	Pairs int     // Pairs is how many were made.
	Cost  int64   // Cost is their sum.
	U     []int64 // U is the potential of each row.
	V     []int64 // V is the potential of each column.
}

// check returns what a forbidden pair costs in sums, or an error.
func (p Problem) check() (huge int64, err error) {
	if p.Rows < 0 || p.Cols < 0 {
		return 0, fmt.Errorf("%w: %d rows, %d columns", ErrInvalid, p.Rows, p.Cols)
	}
	if hi, lo := bits.Mul64(uint64(p.Rows), uint64(p.Cols)); hi != 0 || lo != uint64(len(p.Cost)) {
		return 0, fmt.Errorf("%w: %d rows, %d columns, %d costs", ErrInvalid, p.Rows, p.Cols, len(p.Cost))
	}
	most := uint64(0)
	for _, c := range p.Cost {
		if c == math.MinInt64 {
			return 0, fmt.Errorf("%w: cost %d", ErrInvalid, c)
		}
		if c != Forbidden {
			most = max(most, uint64(max(c, -c)))
		}
	}
	// One forbidden pair outweighs all that the others can differ by; potentials are sums of at most n costs.
	n := uint64(max(p.Rows, p.Cols))
	hi, lo := bits.Mul64(2*n, most+1)
	hi2, lo2 := bits.Mul64(lo, n)
	if hi != 0 || hi2 != 0 || lo2 >= 1<<61 {
		return 0, fmt.Errorf("%w: %d × %d with costs up to %d: sums may overflow", ErrInvalid, p.Rows, p.Cols, most)
	}
	return int64(lo), nil
}

// at is the cost of a pair in sums.
func (p Problem) at(i, j int, huge int64) int64 {
	if c := p.Cost[i*p.Cols+j]; c != Forbidden {
		return c
	}
	return huge
}

// Solve returns the most pairs at the least cost. The error is ErrInvalid.
func Solve(p Problem) (*Solution, error) {
	huge, err := p.check()
	if err != nil {
		return nil, err
	}
	s := &Solution{ColOf: make([]int, p.Rows), RowOf: make([]int, p.Cols), U: make([]int64, p.Rows), V: make([]int64, p.Cols)}
	h := hungarian{rows: p.Rows, cols: p.Cols, colOf: s.ColOf, rowOf: s.RowOf, u: s.U, v: s.V}
	turned := p.Rows > p.Cols
	if turned {
		h = hungarian{rows: p.Cols, cols: p.Rows, colOf: s.RowOf, rowOf: s.ColOf, u: s.V, v: s.U}
	}
	h.cost = make([]int64, len(p.Cost))
	for i := range p.Rows {
		for j := range p.Cols {
			at := i*p.Cols + j
			if turned {
				at = j*p.Rows + i
			}
			h.cost[at] = p.at(i, j, huge)
		}
	}
	h.run()
	for i, j := range s.ColOf {
		if j < 0 {
			continue
		}
		if p.Cost[i*p.Cols+j] == Forbidden {
			s.ColOf[i], s.RowOf[j] = -1, -1
			continue
		}
		s.Pairs++
		s.Cost += p.Cost[i*p.Cols+j]
	}
	return s, nil
}

// hungarian is a run with no more rows than columns.
type hungarian struct {
	rows, cols   int
	colOf, rowOf []int
	u, v         []int64
	cost         []int64 // by row, then column

	near []int64 // by column: the length of the shortest path to it
	from []int   // by column: the column before it on that path, -1 for the root
	seen []bool  // by column: whether it is in the tree
}

func (h *hungarian) run() {
	for i := range h.colOf {
		h.colOf[i] = -1
	}
	for j := range h.rowOf {
		h.rowOf[j] = -1
	}
	h.near, h.from, h.seen = make([]int64, h.cols), make([]int, h.cols), make([]bool, h.cols)
	for i := range h.rows {
		h.enter(i)
	}
}

// enter finds the shortest path from row root to a free column and turns it over.
func (h *hungarian) enter(root int) {
	for j := range h.cols {
		h.near[j], h.from[j], h.seen[j] = math.MaxInt64, -1, false
	}
	row, col, length := root, -1, int64(0) // the row that was reached last, by which column, and how far
	for row >= 0 {
		next := h.nearest(row, col, length)
		h.seen[next] = true
		length = h.near[next]
		col, row = next, h.rowOf[next]
	}
	// Potentials move so that every pair of the tree, and the new ones, cost nothing more.
	h.u[root] += length
	for j, in := range h.seen {
		if in && j != col {
			h.u[h.rowOf[j]] += length - h.near[j]
			h.v[j] -= length - h.near[j]
		}
	}
	for col >= 0 {
		before := h.from[col]
		if before < 0 {
			h.rowOf[col] = root
		} else {
			h.rowOf[col] = h.rowOf[before]
		}
		h.colOf[h.rowOf[col]] = col
		col = before
	}
}

// nearest brings the paths up to date with row, which col led to over that length,
// and returns the nearest column outside the tree.
func (h *hungarian) nearest(row, col int, length int64) int {
	next, best := -1, int64(math.MaxInt64)
	costs := h.cost[row*h.cols : (row+1)*h.cols]
	v, near, seen := h.v[:len(costs)], h.near[:len(costs)], h.seen[:len(costs)]
	length -= h.u[row]
	for j, c := range costs {
		if seen[j] {
			continue
		}
		if d := length + c - v[j]; d < near[j] {
			near[j], h.from[j] = d, col
		}
		if near[j] < best {
			next, best = j, near[j]
		}
	}
	return next
}

// Verify says whether s proves itself: pairs that fit together, no pair cheaper
// than its potentials, none made that is dearer, and nothing gained by those left
// over. It returns nil or what is wrong.
func (p Problem) Verify(s *Solution) error {
	huge, err := p.check()
	if err != nil {
		return err
	}
	if len(s.U) != p.Rows || len(s.ColOf) != p.Rows || len(s.V) != p.Cols || len(s.RowOf) != p.Cols {
		return errors.New("assign: verify: lengths do not match")
	}
	pairs, sum, err := p.pairs(s, huge)
	if err != nil {
		return err
	}
	// What the potentials say: pairs not made for want of a permitted one count as forbidden ones.
	worth, long := int64(0), s.V
	if p.Rows > p.Cols {
		long = s.U
	}
	for _, v := range slices.Concat(s.U, s.V) {
		worth += v
	}
	if len(long) > 0 && slices.Max(long) > 0 {
		return fmt.Errorf("assign: verify: potential %d of the longer side is above 0", slices.Max(long))
	}
	missing := int64(min(p.Rows, p.Cols) - pairs)
	if pairs != s.Pairs || sum != s.Cost || worth != sum+missing*huge {
		return fmt.Errorf("assign: verify: %d pairs cost %d and %d forbidden ones, potentials say %d", pairs, sum, missing, worth)
	}
	return nil
}

// pairs counts and sums the pairs of s, if they fit together and to the potentials.
func (p Problem) pairs(s *Solution, huge int64) (pairs int, sum int64, err error) {
	for i := range p.Rows {
		for j := range p.Cols {
			rest := p.at(i, j, huge) - s.U[i] - s.V[j]
			made := s.ColOf[i] == j
			if made != (s.RowOf[j] == i) || rest < 0 || made && (rest != 0 || p.Cost[i*p.Cols+j] == Forbidden) {
				return 0, 0, fmt.Errorf("assign: verify: row %d, column %d: made %v, cost over potentials %d", i, j, made, rest)
			}
			if made {
				pairs, sum = pairs+1, sum+p.Cost[i*p.Cols+j]
			}
		}
	}
	return pairs, sum, nil
}
