package lp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// solve also checks what every answer has to satisfy.
func solve(t *testing.T, p *Problem) *Solution {
	t.Helper()
	s, err := Solve(p)
	require.NoError(t, err)
	if s.Status != Limit {
		require.LessOrEqual(t, p.Verify(s), 1e-7, s.Status)
	}
	if s.Status == Optimal {
		for j, x := range s.X {
			l, u := p.bounds(j)
			require.True(t, l <= x && x <= u)
			// Complementary slackness.
			if x > l+1e-6 {
				require.LessOrEqual(t, s.Reduced[j], 1e-6)
			}
			if x < u-1e-6 {
				require.GreaterOrEqual(t, s.Reduced[j], -1e-6)
			}
		}
	}
	return s
}

func row(sense Sense, rhs float64, coefficients ...float64) Row {
	r := Row{Sense: sense, RHS: rhs}
	for j, v := range coefficients {
		r.Entries = append(r.Entries, Entry{j, v})
	}
	return r
}

func TestByHand(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		p         Problem
		status    Status
		objective float64
	}{
		"two rows":        {Problem{Cost: []float64{-3, -5}, Rows: []Row{row(AtMost, 4, 1, 0), row(AtMost, 12, 0, 2), row(AtMost, 18, 3, 2)}}, Optimal, -36},
		"at least":        {Problem{Cost: []float64{2, 3}, Rows: []Row{row(AtLeast, 4, 1, 1), row(AtLeast, 6, 1, 3)}}, Optimal, 9},
		"equal":           {Problem{Cost: []float64{1, 2, 3}, Rows: []Row{row(Equal, 2, 1, 1, 1), row(Equal, 1, 1, -1, 0)}}, Optimal, 2.5},
		"no rows":         {Problem{Cost: []float64{1, -1, 0}, Upper: []float64{1, 7, 2}}, Optimal, -7},
		"no columns":      {Problem{}, Optimal, 0},
		"empty row":       {Problem{Cost: []float64{1}, Rows: []Row{{Sense: AtMost, RHS: 1}}}, Optimal, 0},
		"empty row fails": {Problem{Cost: []float64{1}, Rows: []Row{{Sense: AtLeast, RHS: 1}}}, Infeasible, 0},
		"free":            {Problem{Cost: []float64{1, 0}, Lower: []float64{-inf, 0}, Rows: []Row{row(AtLeast, -3, 1, 1), row(AtMost, 2, 0, 1)}}, Optimal, -5},
		"negative bounds": {Problem{Cost: []float64{1, -1}, Lower: []float64{-4, -inf}, Upper: []float64{-2, -1}, Rows: []Row{row(AtMost, 0, 1, 1)}}, Optimal, -3},
		"flip only":       {Problem{Cost: []float64{-1, -1}, Upper: []float64{1, 1}, Rows: []Row{row(AtMost, 10, 1, 1)}}, Optimal, -2},
		"unbounded":       {Problem{Cost: []float64{-1, 0}, Rows: []Row{row(AtMost, 1, 1, -1)}}, Unbounded, 0},
		"unbounded free":  {Problem{Cost: []float64{1}, Lower: []float64{-inf}}, Unbounded, 0},
		"infeasible":      {Problem{Cost: []float64{1}, Rows: []Row{row(AtMost, 1, 1), row(AtLeast, 2, 1)}}, Infeasible, 0},
		"crossed bounds":  {Problem{Cost: []float64{1}, Lower: []float64{2}, Upper: []float64{1}}, Infeasible, 0},
		"fixed":           {Problem{Cost: []float64{1, 1}, Lower: []float64{2, 0}, Upper: []float64{2, 9}, Rows: []Row{row(Equal, 5, 1, 1)}}, Optimal, 5},
		"same rows":       {Problem{Cost: []float64{-1, -1}, Rows: []Row{row(Equal, 1, 1, 1), row(Equal, 1, 1, 1), row(Equal, 2, 2, 2)}}, Optimal, -1},
		// Beale's example (1955), on which the first simplex rules cycle.
		"Beale": {Problem{Cost: []float64{-0.75, 150, -0.02, 6}, Rows: []Row{row(AtMost, 0, 0.25, -60, -0.04, 9), row(AtMost, 0, 0.5, -90, -0.02, 3), row(AtMost, 1, 0, 0, 1, 0)}}, Optimal, -0.05},
		// Marshall and Suurballe's (1969).
		"Marshall-Suurballe": {Problem{Cost: []float64{-0.4, -0.4, 1.8, 0}, Rows: []Row{row(AtMost, 0, 0.6, -6.4, 4.8, 0), row(AtMost, 0, 0.2, -1.8, 0.6, 0), row(AtMost, 1, 0.4, -1.6, 0.2, 0), row(AtMost, 1, 0, 1, 0, 0)}}, Optimal, -1.2},
	} {
		t.Run(name, func(t *testing.T) {
			s := solve(t, &c.p)
			require.Equal(t, c.status, s.Status)
			if c.status == Optimal && name != "Marshall-Suurballe" {
				require.InDelta(t, c.objective, s.Objective, 1e-9)
			}
		})
	}
}

// Klee and Minty's cubes (1972), whose corners the first rule visits one by one.
func TestKleeMinty(t *testing.T) {
	for n := 2; n <= 12; n++ {
		p := Problem{Cost: make([]float64, n)}
		for i := range n {
			p.Cost[i] = -math.Pow(2, float64(n-1-i))
			coefficients := make([]float64, n)
			for j := range i {
				coefficients[j] = math.Pow(2, float64(i-j+1))
			}
			coefficients[i] = 1
			p.Rows = append(p.Rows, row(AtMost, math.Pow(5, float64(i+1)), coefficients...))
		}
		s := solve(t, &p)
		require.Equal(t, Optimal, s.Status)
		require.InEpsilon(t, -math.Pow(5, float64(n)), s.Objective, 1e-12)
	}
}

// Bland's rule alone also ends, on the cycling example and on random ones.
func TestBlandsRuleEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		p := random(rng, 6, 6)
		s := newSimplex(newForm(p))
		s.still = 1 << 30 // out of patience from the start
		s.bland = true
		status, _ := s.run()
		require.NotEqual(t, Limit, status)
		expect := solve(t, p)
		require.Equal(t, expect.Status, status)
	}
}

// random makes a small problem with small whole figures, so that many corners coincide.
func random(rng *rand.Rand, columns, rows int) *Problem {
	n, m := 1+rng.IntN(columns), rng.IntN(rows+1)
	p := &Problem{Cost: make([]float64, n), Lower: make([]float64, n), Upper: make([]float64, n)}
	for j := range n {
		p.Cost[j] = float64(rng.IntN(11) - 5)
		p.Upper[j] = math.Inf(1)
		switch rng.IntN(6) {
		case 0:
			p.Upper[j] = float64(rng.IntN(4))
		case 1:
			p.Lower[j], p.Upper[j] = math.Inf(-1), float64(rng.IntN(4))
		case 2:
			p.Lower[j] = -float64(rng.IntN(4))
		case 3:
			if rng.IntN(3) == 0 {
				p.Lower[j] = math.Inf(-1)
			}
		}
	}
	for range m {
		coefficients := make([]float64, n)
		for j := range coefficients {
			coefficients[j] = float64(rng.IntN(7) - 3)
		}
		p.Rows = append(p.Rows, row(Sense(rng.IntN(3)), float64(rng.IntN(9)-2), coefficients...))
	}
	return p
}

// corners finds the least cost at a feasible corner by trying every choice of n
// constraints as equalities; it is NaN if there is none.
func corners(p *Problem) float64 {
	n := len(p.Cost)
	var lines [][]float64 // n coefficients and the right side
	for _, r := range p.Rows {
		line := make([]float64, n+1)
		for _, e := range r.Entries {
			line[e.Col] = e.Val
		}
		line[n] = r.RHS
		lines = append(lines, line)
	}
	for j := range n {
		l, u := p.bounds(j)
		for _, b := range []float64{l, u} {
			if !math.IsInf(b, 0) {
				line := make([]float64, n+1)
				line[j], line[n] = 1, b
				lines = append(lines, line)
			}
		}
	}
	best := math.NaN()
	var choose func(from int, chosen [][]float64)
	choose = func(from int, chosen [][]float64) {
		if len(chosen) == n {
			if x, ok := gauss(chosen); ok && p.primalError(x) < 1e-9 && !(p.dot(x) >= best) {
				best = p.dot(x)
			}
			return
		}
		for i := from; i < len(lines); i++ {
			choose(i+1, append(chosen, lines[i]))
		}
	}
	choose(0, nil)
	return best
}

func gauss(lines [][]float64) ([]float64, bool) {
	n := len(lines)
	a := make([][]float64, n)
	for i := range a {
		a[i] = append([]float64(nil), lines[i]...)
	}
	for c := range n {
		p := c
		for i := c; i < n; i++ {
			if math.Abs(a[i][c]) > math.Abs(a[p][c]) {
				p = i
			}
		}
		if math.Abs(a[p][c]) < 1e-9 {
			return nil, false
		}
		a[c], a[p] = a[p], a[c]
		for i := range a {
			if i != c {
				times := a[i][c] / a[c][c]
				for k := c; k <= n; k++ {
					a[i][k] -= times * a[c][k]
				}
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = a[i][n] / a[i][i]
	}
	return x, true
}

// Against all corners: an optimum with a corner is at the best one. The other ends prove themselves.
func TestAgainstAllCorners(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	counts := map[Status]int{}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		p := random(rng, 4, 5)
		s := solve(t, p)
		counts[s.Status]++
		require.NotEqual(t, Limit, s.Status, "seed %d", seed)
		best := corners(p)
		if s.Status == Infeasible {
			require.True(t, math.IsNaN(best))
		}
		if s.Status == Optimal && !math.IsNaN(best) {
			require.InDelta(t, best, s.Objective, 1e-7, "seed %d", seed)
		}
	}
	for _, status := range []Status{Optimal, Infeasible, Unbounded} {
		require.Greater(t, counts[status], rounds/50, status)
	}
}

// Larger ones with figures over eight orders of magnitude prove themselves.
func TestBadlyScaled(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	optimal := 0
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		n, m := 20+rng.IntN(40), 10+rng.IntN(40)
		p := &Problem{Cost: make([]float64, n)}
		scale := make([]float64, n)
		for j := range scale {
			scale[j] = math.Pow(10, 8*rng.Float64()-4)
			p.Cost[j] = -rng.Float64() * scale[j]
		}
		for range m {
			r := Row{RHS: math.Pow(10, 6*rng.Float64()-3)}
			size := r.RHS
			for j := range n {
				if rng.IntN(3) == 0 {
					r.Entries = append(r.Entries, Entry{j, rng.Float64() * scale[j] * size})
				}
			}
			p.Rows = append(p.Rows, r)
		}
		s := solve(t, p)
		require.NotEqual(t, Limit, s.Status)
		if s.Status == Optimal {
			optimal++
		}
	}
	require.Greater(t, optimal, rounds/2)
}

// A price is what the optimum changes by when a right side does.
func TestPriceIsTheSlope(t *testing.T) {
	p := Problem{Cost: []float64{-3, -5}, Rows: []Row{row(AtMost, 4, 1, 0), row(AtMost, 12, 0, 2), row(AtMost, 18, 3, 2)}}
	s := solve(t, &p)
	for i := range p.Rows {
		p.Rows[i].RHS += 0.25
		require.InDelta(t, s.Objective+0.25*s.Y[i], solve(t, &p).Objective, 1e-9)
		p.Rows[i].RHS -= 0.25
	}
	require.InDeltaSlice(t, []float64{0, -1.5, -1}, s.Y, 1e-12)
}

func TestSameProblemSameBytes(t *testing.T) {
	p := maxMin(rand.New(rand.NewPCG(1, 1)), 40, 4)
	require.Equal(t, fmt.Sprint(solve(t, p)), fmt.Sprint(solve(t, p)))
}

// maxMin is the shape that this package is for: shares of device classes by job, the least normalised rate to be large.
func maxMin(rng *rand.Rand, jobs, classes int) *Problem {
	n := jobs*classes + 1
	p := &Problem{Cost: make([]float64, n)}
	p.Cost[n-1] = -1
	capacity := make([]Row, classes)
	for m := range jobs {
		count := float64(1 + rng.IntN(20))
		share, rate := Row{RHS: 1}, Row{Entries: []Entry{{n - 1, 1}}}
		for j := range classes {
			share.Entries = append(share.Entries, Entry{m*classes + j, 1})
			rate.Entries = append(rate.Entries, Entry{m*classes + j, -math.Exp(2*rng.Float64()) * float64(1+j)})
			capacity[j].Entries = append(capacity[j].Entries, Entry{m*classes + j, count * float64(int(1)<<rng.IntN(4))})
			capacity[j].RHS += count
		}
		p.Rows = append(p.Rows, share, rate)
	}
	p.Rows = append(p.Rows, capacity...)
	return p
}

func TestMaxMinShapes(t *testing.T) {
	jobs := []int{1, 2, 5, 20, 100}
	if !testing.Short() {
		jobs = append(jobs, 512)
	}
	for _, m := range jobs {
		s := solve(t, maxMin(rand.New(rand.NewPCG(uint64(m), 3)), m, 4))
		require.Equal(t, Optimal, s.Status)
		t.Log(m, "jobs:", s.Steps, "steps,", s.Stalls, "under Bland's rule, residual", s.Residual)
	}
}

func TestInvalid(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, p := range map[string]*Problem{ // the order does not matter: each case stands alone
		"cost":        {Cost: []float64{nan}},
		"cost inf":    {Cost: []float64{inf}},
		"lower nan":   {Cost: []float64{1}, Lower: []float64{nan}},
		"lower inf":   {Cost: []float64{1}, Lower: []float64{inf}},
		"upper -inf":  {Cost: []float64{1}, Upper: []float64{-inf}},
		"lengths":     {Cost: []float64{1}, Upper: []float64{1, 2}},
		"rhs":         {Cost: []float64{1}, Rows: []Row{{RHS: inf}}},
		"sense":       {Cost: []float64{1}, Rows: []Row{{Sense: 3}}},
		"coefficient": {Cost: []float64{1}, Rows: []Row{row(AtMost, 1, nan)}},
		"column":      {Cost: []float64{1}, Rows: []Row{row(AtMost, 1, 1, 1)}},
		"twice":       {Cost: []float64{1}, Rows: []Row{{Entries: []Entry{{0, 1}, {0, 1}}}}},
	} {
		_, err := Solve(p)
		require.True(t, errors.Is(err, ErrInvalid), name)
	}
}

// Verify sees an answer that is wrong in any of its parts.
func TestVerifySeesFaults(t *testing.T) {
	p := Problem{Cost: []float64{-3, -5}, Rows: []Row{row(AtMost, 4, 1, 0), row(AtMost, 12, 0, 2), row(AtMost, 18, 3, 2)}}
	good := solve(t, &p)
	for _, spoil := range []func(s *Solution){
		func(s *Solution) { s.X[0] += 0.1 },
		func(s *Solution) { s.X[0] = -0.1 },
		func(s *Solution) { s.X[0] -= 0.1 },
		func(s *Solution) { s.Y[1] = 0.5 },
		func(s *Solution) { s.Y[2] = 0 },
		func(s *Solution) { s.X = nil },
		func(s *Solution) { s.Y = nil },
		func(s *Solution) { s.Status = Infeasible },
		func(s *Solution) { s.Status, s.Ray = Unbounded, []float64{1, 0} },
		func(s *Solution) { s.Status = Limit },
	} {
		s := *good
		s.X, s.Y = append([]float64(nil), s.X...), append([]float64(nil), s.Y...)
		spoil(&s)
		require.Greater(t, p.Verify(&s), 1e-3)
	}
	require.Equal(t, []string{"optimal", "infeasible", "unbounded", "limit"}, []string{Optimal.String(), Infeasible.String(), Unbounded.String(), Limit.String()})
}

func BenchmarkMaxMin(b *testing.B) {
	for _, jobs := range []int{32, 128, 512} {
		b.Run(fmt.Sprintf("jobs=%d/classes=4", jobs), func(b *testing.B) {
			p := maxMin(rand.New(rand.NewPCG(uint64(jobs), 3)), jobs, 4)
			b.ReportAllocs()
			for b.Loop() {
				s, err := Solve(p)
				if err != nil || s.Status != Optimal {
					b.Fatal(err, s)
				}
			}
		})
	}
}
