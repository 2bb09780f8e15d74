package pollux

import (
	"cmp"
	"math"
	"slices"
)

// point is a measurement of layouts of that many nodes and GPUs.
type point struct {
	nodes, gpus, batch int64
	timing
}

func comparePoints(a, b point) int {
	return cmp.Or(cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.batch, b.batch))
}

// interpolate returns the timing at (nodes, gpus, batch) on the piecewise linear function over the
// Delaunay triangulation of the points: ok is false outside of all of them.
//
// Lifted to a paraboloid, that triangulation is the lower hull of the points. So the simplex around a place
// is the best basis of the linear program: least Σ λ × |p|² where Σ λ × p is the place, Σ λ = 1 and no λ
// is negative. It has four rows, and is solved by the simplex method with Bland's rule, so that the answer
// depends on the order of the points alone, where several have the same sphere. All figures but λ are
// whole numbers below 2^53, and exact.
func (p *Profile) interpolate(nodes, gpus, batch int64) (timing, bool) {
	target := [4]float64{1, float64(nodes), float64(gpus), float64(batch)}
	s := corner{points: p.points, target: target}
	for i := range s.basis {
		s.basis[i] = -1 - i // a point of its own for each row, to be driven out
	}
	for _, phase := range []bool{true, false} {
		s.first = phase
		if !s.solve() {
			return timing{}, false
		}
	}
	var t timing
	for i, j := range s.basis {
		if s.share[i] < tiny {
			continue
		}
		if j < 0 {
			return timing{}, false
		}
		t.step += float64(s.share[i] * p.points[j].step)
		t.sync += float64(s.share[i] * p.points[j].sync)
	}
	return t, true
}

// corner is a basis of the linear program.
type corner struct {
	points []point
	target [4]float64
	basis  [4]int     // indices of points; -1-i stands for a unit in row i
	share  [4]float64 // their λ
	first  bool       // the first phase drives the units out
}

// column returns a column of the program and what it costs.
func (s *corner) column(j int) (a [4]float64, cost float64) {
	if j < 0 {
		a[-1-j] = 1
		if s.first {
			cost = 1
		}
		return a, cost
	}
	p := &s.points[j]
	x, y, z := float64(p.nodes), float64(p.gpus), float64(p.batch)
	if !s.first {
		cost = float64(x*x) + float64(y*y) + float64(z*z)
	}
	return [4]float64{1, x, y, z}, cost
}

// matrix returns the columns of the basis and what they cost.
func (s *corner) matrix() (m [4][4]float64, cost [4]float64) {
	for i, j := range s.basis {
		a, c := s.column(j)
		for r := range a {
			m[r][i] = a[r]
		}
		cost[i] = c
	}
	return m, cost
}

// prices returns what a unit in each row is worth to a basis, times its determinant.
func prices(adj *[4][4]float64, cost *[4]float64) (price [4]float64) {
	for r := range price {
		price[r] = float64(cost[0]*adj[0][r]) + float64(cost[1]*adj[1][r]) + float64(cost[2]*adj[2][r]) + float64(cost[3]*adj[3][r])
	}
	return price
}

// solve moves to the best corner; false where it is lost in numbers.
func (s *corner) solve() bool {
	for range 64 * (len(s.points) + 4) {
		m, cost := s.matrix()
		adj, det := adjugate(&m)
		if det == 0 {
			return false
		}
		for i := range s.share {
			s.share[i] = dot(&adj[i], &s.target) / det
		}
		price := prices(&adj, &cost)
		enter := s.enter(&price, det)
		if enter < 0 {
			return true
		}
		leave := s.leave(&adj, det, enter)
		if leave < 0 {
			return false
		}
		s.basis[leave] = enter
	}
	return false
}

// leave returns which of the basis gives way to a point: the first whose share would be negative else.
func (s *corner) leave(adj *[4][4]float64, det float64, enter int) int {
	a, _ := s.column(enter)
	leave, least := -1, math.Inf(1)
	for i := range s.basis {
		rate := dot(&adj[i], &a) / det
		if rate <= tiny {
			continue
		}
		ratio := max(s.share[i], 0) / rate
		if leave < 0 || ratio < least-tiny || ratio <= least+tiny && s.basis[i] < s.basis[leave] {
			leave, least = i, min(ratio, least)
		}
	}
	return leave
}

// tiny is what a share of at most that counts as: none.
const tiny = 1e-12

// enter returns the first point that makes the corner better, -1 if there is none.
func (s *corner) enter(price *[4]float64, det float64) int {
	for j := range s.points {
		a, cost := s.column(j)
		if reduced := float64(cost*det) - dot(price, &a); (det > 0 && reduced < 0 || det < 0 && reduced > 0) && !slices.Contains(s.basis[:], j) {
			return j
		}
	}
	return -1
}

func dot(a, b *[4]float64) float64 {
	return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2]) + float64(a[3]*b[3])
}

// adjugate returns the matrix that times m is det, the determinant of m, on the diagonal.
func adjugate(m *[4][4]float64) (adj [4][4]float64, det float64) {
	for r := range 4 {
		for c := range 4 {
			var minor [3][3]float64
			for i, y := 0, 0; i < 4; i++ {
				if i == r {
					continue
				}
				for k, x := 0, 0; k < 4; k++ {
					if k == c {
						continue
					}
					minor[y][x] = m[i][k]
					x++
				}
				y++
			}
			v := determinant(&minor)
			if (r+c)%2 == 1 {
				v = -v
			}
			adj[c][r] = v
		}
	}
	for c := range 4 {
		det += float64(m[0][c] * adj[c][0])
	}
	return adj, det
}

func determinant(m *[3][3]float64) float64 {
	return float64(m[0][0]*(float64(m[1][1]*m[2][2])-float64(m[1][2]*m[2][1]))) -
		float64(m[0][1]*(float64(m[1][0]*m[2][2])-float64(m[1][2]*m[2][0]))) +
		float64(m[0][2]*(float64(m[1][0]*m[2][1])-float64(m[1][1]*m[2][0])))
}
