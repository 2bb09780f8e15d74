package goodput

import (
	"math"
	"slices"
)

// nnls solves least squares with no negative coefficient: columns[j][i] is what a unit
// of coefficient j adds to row i, and target what the rows should come to. It is the
// active-set method of Lawson and Hanson over the normal equations; of columns that
// promise as much, the first is taken first.
func nnls(columns [][]float64, target []float64) []float64 {
	n := len(columns)
	gram, right := make([][]float64, n), make([]float64, n)
	for i := range columns {
		gram[i] = make([]float64, n)
		for j := range columns {
			gram[i][j] = dot(columns[i], columns[j])
		}
		right[i] = dot(columns[i], target)
	}
	x, in := make([]float64, n), make([]bool, n)
	for range 3*n + 10 { // more than enough: each round lowers the error or is the last
		j := steepest(gram, right, x, in)
		if j < 0 {
			break
		}
		in[j] = true
		for {
			z, ok := restricted(gram, right, in)
			if !ok { // in line with what is in: it adds nothing
				in[j] = false
				return x
			}
			if step(x, z, in) {
				break
			}
		}
	}
	return x
}

// steepest returns the coefficient outside that lowers the error most, -1 if none does.
func steepest(gram [][]float64, right, x []float64, in []bool) int {
	best, least := -1, 1e-10
	if !slices.Contains(in, true) {
		least = 0 // so that not all are 0, however unlike the rows are
	}
	for j := range x {
		if in[j] || gram[j][j] == 0 {
			continue
		}
		// Divided by the sizes of both, so that units do not matter.
		if gain := (right[j] - dot(gram[j], x)) / math.Sqrt(gram[j][j]); gain > least {
			best, least = j, gain
		}
	}
	return best
}

// step moves x to z, or as far as no coefficient becomes negative, and drops those that
// become 0. It says whether x is z now.
func step(x, z []float64, in []bool) bool {
	part, last := 1.0, -1
	for j := range x {
		if in[j] && z[j] <= 0 {
			if p := x[j] / (x[j] - z[j]); last < 0 || p < part {
				part, last = p, j
			}
		}
	}
	for j := range x {
		x[j] += float64(part * (z[j] - x[j]))
		if in[j] && (j == last || last >= 0 && x[j] <= 0) {
			x[j], in[j] = 0, false
		}
	}
	return last < 0
}

// restricted solves the normal equations of the coefficients that are in; the others are
// 0. Ok is false where they are not independent.
func restricted(gram [][]float64, right []float64, in []bool) (z []float64, ok bool) {
	var index []int
	for j := range in {
		if in[j] {
			index = append(index, j)
		}
	}
	a, b := make([][]float64, len(index)), make([]float64, len(index))
	for i, p := range index {
		a[i] = make([]float64, len(index))
		for k, q := range index {
			a[i][k] = gram[p][q]
		}
		b[i] = right[p]
	}
	if !cholesky(a, b) {
		return nil, false
	}
	z = make([]float64, len(in))
	for i, p := range index {
		z[p] = b[i]
	}
	return z, true
}

// cholesky solves a×x = b in place for a symmetric and positive a: b becomes x. It
// reports false where a is not.
func cholesky(a [][]float64, b []float64) bool {
	n := len(a)
	for i := range n {
		for j := range i + 1 {
			v := a[i][j]
			for k := range j {
				v -= float64(a[i][k] * a[j][k])
			}
			switch {
			case i > j:
				a[i][j] = v / a[j][j]
			case !(v > 1e-13*a[i][i]):
				return false
			default:
				a[i][i] = math.Sqrt(v)
			}
		}
	}
	for i := range n {
		for k := range i {
			b[i] -= float64(a[i][k] * b[k])
		}
		b[i] /= a[i][i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			b[i] -= float64(a[k][i] * b[k])
		}
		b[i] /= a[i][i]
	}
	return true
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i] * b[i])
	}
	return sum
}
