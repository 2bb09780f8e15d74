package fit

import "math"

// normalEquations are the sums that weighted least squares over up to three terms needs.
type normalEquations struct {
	gram [3][3]float64
	rhs  [3]float64
	yy   float64
}

// add takes a row in: terms, what they should come to, and a weight.
func (n *normalEquations) add(row [3]float64, y, weight float64) {
	for j := range row {
		w := weight * row[j]
		for k := range row {
			n.gram[j][k] += float64(w * row[k])
		}
		n.rhs[j] += float64(w * y)
	}
	n.yy += float64(weight * float64(y*y))
}

// fade multiplies all sums.
func (n *normalEquations) fade(by float64) {
	for j := range n.gram {
		for k := range n.gram[j] {
			n.gram[j][k] *= by
		}
		n.rhs[j] *= by
	}
	n.yy *= by
}

// solve returns the non-negative coefficients, of the terms that are used, with the
// least squared error. There are so few terms that all sets of positive ones are tried
// (Lawson and Hanson, "Solving Least Squares Problems", 1974, has the conditions); of
// equals, the one with the earlier terms.
func (n *normalEquations) solve(use [3]bool) Coeff {
	var best [3]float64
	least := math.Inf(1)
	for set := 7; set >= 0; set-- {
		var in [3]bool
		suits := true
		for j := range in {
			in[j] = set&(4>>j) != 0
			suits = suits && (!in[j] || use[j])
		}
		if !suits {
			continue
		}
		c, ok := n.subset(in, n.rhs)
		if !ok || c[0] < 0 || c[1] < 0 || c[2] < 0 {
			continue
		}
		if e := n.loss(c); e < least {
			best, least = c, e
		}
	}
	return Coeff{Alpha: best[0], Beta: best[1], Fixed: best[2]}
}

// loss returns the squared error with coefficients c.
func (n *normalEquations) loss(c [3]float64) float64 {
	e := n.yy
	for j := range c {
		e -= float64(2 * c[j] * n.rhs[j])
		for k := range c {
			e += float64(float64(c[j]*c[k]) * n.gram[j][k])
		}
	}
	return e
}

// subset solves for the terms that are in, by elimination with terms scaled to 1; the
// others are 0. It reports false where the terms depend on each other.
func (n *normalEquations) subset(in [3]bool, rhs [3]float64) ([3]float64, bool) {
	var a [3][4]float64
	var size [3]float64
	for j := range in {
		size[j] = 1
		if !in[j] {
			a[j][j] = 1
			continue
		}
		size[j] = math.Sqrt(n.gram[j][j])
		if !(size[j] > 0) {
			return [3]float64{}, false
		}
	}
	for j := range in {
		for k := range in {
			if in[j] && in[k] {
				a[j][k] = n.gram[j][k] / size[j] / size[k]
			}
		}
		if in[j] {
			a[j][3] = rhs[j] / size[j]
		}
	}
	c, ok := eliminate(&a)
	for j := range c {
		c[j] /= size[j]
	}
	return c, ok
}

// eliminate solves three equations with a positive definite matrix of diagonal 1.
func eliminate(a *[3][4]float64) (c [3]float64, ok bool) {
	for j := range 3 {
		if a[j][j] < 1e-10 {
			return c, false
		}
		for i := j + 1; i < 3; i++ {
			by := a[i][j] / a[j][j]
			for k := j; k < 4; k++ {
				a[i][k] -= float64(by * a[j][k])
			}
		}
	}
	for j := 2; j >= 0; j-- {
		c[j] = a[j][3]
		for k := j + 1; k < 3; k++ {
			c[j] -= float64(a[j][k] * c[k])
		}
		c[j] /= a[j][j]
	}
	return c, true
}

// unexplained returns which part of term j the terms in use do not explain: the sine of
// the angle between them.
func (n *normalEquations) unexplained(use [3]bool, j int) float64 {
	var rhs [3]float64
	for k := range rhs {
		rhs[k] = n.gram[k][j]
	}
	for k := range use {
		use[k] = use[k] && k != j && n.gram[k][k] > 0
	}
	c, ok := n.subset(use, rhs)
	if !ok {
		return 0
	}
	left := n.gram[j][j]
	for k := range c {
		left -= float64(c[k] * rhs[k])
	}
	return math.Sqrt(max(0, left/n.gram[j][j]))
}
