package lp

import (
	"errors"
	"fmt"
	"math"
)

// ErrInvalid is the kind of a problem that is none.
var ErrInvalid = errors.New("lp: invalid problem")

// Sense is how a row relates to its RHS.
type Sense int8

// The senses.
const (
	AtMost  Sense = iota // AtMost means row ≤ RHS.
	AtLeast              // AtLeast means row ≥ RHS.
	Equal                // Equal means row = RHS.
)

// Entry is a coefficient of a row.
type Entry struct {
	Col int     // Col is the column.
	Val float64 // Val is the coefficient; 0 is as good as absent.
}

// Row is one constraint.
type Row struct {
	Entries []Entry // Entries are the coefficients, a column at most once, in any order.
	Sense   Sense   // Sense relates the sum to RHS.
	RHS     float64 // RHS is finite.
}

// Problem is: minimise Cost·x subject to Rows and Lower ≤ x ≤ Upper.
type Problem struct {
	Cost  []float64 // Cost is that of each column, finite; its length is the number of columns.
	Lower []float64 // Lower bounds each column; nil means 0, -Inf none.
	Upper []float64 // Upper bounds each column; nil means +Inf, which is none.
	Rows  []Row     // Rows are the constraints; there may be none.
}

// Status is how a solution ended.
type Status uint8

// The ends.
const (
	Limit      Status = iota // Limit means that no answer was reached.
	Optimal                  // Optimal means that X is feasible and none costs less.
	Infeasible               // Infeasible means that there is no feasible x; Y proves it.
	Unbounded                // Unbounded means that the cost can fall for ever from X along Ray.
)

// String returns the name of s.
func (s Status) String() string {
	switch s {
	case Optimal:
		return "optimal"
	case Infeasible:
		return "infeasible"
	case Unbounded:
		return "unbounded"
	}
	return "limit"
}

// Solution is an answer with its proof.
type Solution struct {
	Status    Status    // Status says which of the fields below mean anything.
	Objective float64   // Objective is Cost·X.
	X         []float64 // X is the value of each column, exactly within its bounds.
	Y         []float64 // Y is the price of each row.
	Reduced   []float64 // Reduced is Cost - Y·A, of each column.
	Ray       []float64 // Ray is a direction, for Unbounded only.
	Residual  float64   // Residual is what Verify says of the answer: how far it is from proving itself; at most 1e-6, or Status is Limit.
	Steps     int       // Steps is how many pivots and bound flips it took.
	Stalls    int       // Stalls is how many of them were under Bland's rule.
}

// Validate returns the first fault of p, of kind ErrInvalid.
func (p *Problem) Validate() error {
	n := len(p.Cost)
	if p.Lower != nil && len(p.Lower) != n || p.Upper != nil && len(p.Upper) != n {
		return fmt.Errorf("%w: %d costs, %d lower and %d upper bounds", ErrInvalid, n, len(p.Lower), len(p.Upper))
	}
	for j, c := range p.Cost {
		l, u := p.bounds(j)
		if !finite(c) || math.IsNaN(l) || math.IsNaN(u) || math.IsInf(l, 1) || math.IsInf(u, -1) {
			return fmt.Errorf("%w: column %d: cost %v, bounds %v to %v", ErrInvalid, j, c, l, u)
		}
	}
	seen := make([]int, n)
	for i := range p.Rows {
		if err := p.Rows[i].validate(i, seen); err != nil {
			return err
		}
	}
	return nil
}

// validate returns the first fault of row i. seen holds, by column, one more than
// the row that it was last in.
func (r *Row) validate(i int, seen []int) error {
	if !finite(r.RHS) || r.Sense < AtMost || r.Sense > Equal {
		return fmt.Errorf("%w: row %d: RHS %v, sense %d", ErrInvalid, i, r.RHS, r.Sense)
	}
	for _, e := range r.Entries {
		if e.Col < 0 || e.Col >= len(seen) || !finite(e.Val) || seen[e.Col] == i+1 {
			return fmt.Errorf("%w: row %d: coefficient %v of column %d", ErrInvalid, i, e.Val, e.Col)
		}
		seen[e.Col] = i + 1
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (p *Problem) bounds(j int) (lower, upper float64) {
	upper = math.Inf(1)
	if p.Lower != nil {
		lower = p.Lower[j]
	}
	if p.Upper != nil {
		upper = p.Upper[j]
	}
	return lower, upper
}

// slack returns the bounds of RHS - row.
func (r *Row) slack() (lower, upper float64) {
	switch r.Sense {
	case AtMost:
		return 0, math.Inf(1)
	case AtLeast:
		return math.Inf(-1), 0
	}
	return 0, 0
}

// Verify returns how far s is from proving its Status for p, relative to the size
// of the figures: the largest of the violations of rows and bounds, of the signs
// of prices and reduced costs, and of the gap between the two objectives. It is
// +Inf where there is nothing to prove anything with. It shares no code with Solve.
func (p *Problem) Verify(s *Solution) float64 {
	switch s.Status {
	case Optimal:
		if len(s.X) != len(p.Cost) {
			return math.Inf(1)
		}
		return max(p.primalError(s.X), p.dualError(s.Y, p.Cost, p.dot(s.X)))
	case Infeasible:
		for j := range p.Cost {
			if l, u := p.bounds(j); l > u {
				return 0
			}
		}
		// With no cost at all, prices of worth above 0 are impossible if there is an x.
		worth, slack := p.worth(s.Y, nil)
		if len(s.Y) != len(p.Rows) || !(worth > 0) {
			return math.Inf(1)
		}
		return slack / worth
	case Unbounded:
		return max(p.primalError(s.X), p.rayError(s.Ray))
	}
	return math.Inf(1)
}

func (p *Problem) dot(x []float64) float64 {
	sum := 0.0
	for j, c := range p.Cost {
		sum += float64(c * x[j])
	}
	return sum
}

// primalError is the largest violation by x.
func (p *Problem) primalError(x []float64) float64 {
	if len(x) != len(p.Cost) {
		return math.Inf(1)
	}
	worst := 0.0
	for j, v := range x {
		l, u := p.bounds(j)
		worst = max(worst, (l-v)/(1+math.Abs(v)), (v-u)/(1+math.Abs(v)))
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		rest, size := r.RHS, 1+math.Abs(r.RHS)
		for _, e := range r.Entries {
			rest -= float64(e.Val * x[e.Col])
			size = max(size, math.Abs(e.Val*x[e.Col]))
		}
		l, u := r.slack()
		worst = max(worst, (l-rest)/size, (rest-u)/size)
	}
	return worst
}

// worth returns the least that cost·x can be by the prices y, rows and bounds
// taken each by itself, and how far y is from saying so: signs, and reduced costs
// that no finite bound holds.
func (p *Problem) worth(y, cost []float64) (worth, off float64) {
	reduced, size := make([]float64, len(p.Cost)), make([]float64, len(p.Cost))
	for j := range reduced {
		size[j] = 1
		if cost != nil {
			reduced[j], size[j] = cost[j], 1+math.Abs(cost[j])
		}
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		if i >= len(y) {
			return 0, math.Inf(1)
		}
		worth += float64(y[i] * r.RHS)
		if r.Sense == AtMost {
			off = max(off, y[i])
		} else if r.Sense == AtLeast {
			off = max(off, -y[i])
		}
		for _, e := range r.Entries {
			reduced[e.Col] -= float64(y[i] * e.Val)
			size[e.Col] = max(size[e.Col], math.Abs(y[i]*e.Val))
		}
	}
	for j, d := range reduced {
		l, u := p.bounds(j)
		bound := l
		if d < 0 {
			bound = u
		}
		if math.IsInf(bound, 0) {
			off = max(off, math.Abs(d)/size[j])
		} else {
			worth += float64(d * bound)
		}
	}
	return worth, off
}

// dualError is how far y is from proving that no x costs less than objective.
func (p *Problem) dualError(y, cost []float64, objective float64) float64 {
	worth, off := p.worth(y, cost)
	return max(off, math.Abs(objective-worth)/(1+math.Abs(objective)))
}

// rayError is how far ray is from a direction that leaves no constraint and costs
// less than nothing.
func (p *Problem) rayError(ray []float64) float64 {
	if len(ray) != len(p.Cost) || !(p.dot(ray) < 0) {
		return math.Inf(1)
	}
	worst, norm := 0.0, 0.0
	for j, v := range ray {
		l, u := p.bounds(j)
		norm = max(norm, math.Abs(v))
		if !math.IsInf(l, 0) {
			worst = max(worst, -v)
		}
		if !math.IsInf(u, 0) {
			worst = max(worst, v)
		}
	}
	for i := range p.Rows {
		sum := 0.0
		for _, e := range p.Rows[i].Entries {
			sum += float64(e.Val * ray[e.Col])
		}
		if p.Rows[i].Sense != AtLeast {
			worst = max(worst, sum)
		}
		if p.Rows[i].Sense != AtMost {
			worst = max(worst, -sum)
		}
	}
	return worst / norm
}
