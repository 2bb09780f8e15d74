package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	gonum "gonum.org/v1/gonum/optimize/convex/lp"

	"gonum.org/v1/gonum/mat"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/internal/assign"
	"github.com/lockstep-gpu/lockstep/internal/lp"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

// The sizes of the comparison. Gonum's simplex factors a dense basis at every step, so that it is left out of the largest.
var (
	gonumTypes = []int{4, 8, 16, 32, 64}
	oursTypes  = []int{128, 256, 512}
)

// programmes compares the two simplexes, and times policies at full size.
func (p *program) programmes() error {
	kinds, err := p.kinds()
	if err != nil {
		return err
	}
	table := &harness.Table{Head: []string{"types x 4", "rows", "columns", "steps", "ms ref", "gonum ms ref", "times", "objectives off by", "unproved"}}
	worst, unproved, failures := 0.0, 0.0, 0
	sizes := gonumTypes
	if p.Quick {
		sizes = sizes[:4]
	}
	for _, types := range append(append([]int(nil), sizes...), oursTypes...) {
		problem := programme(problem(kinds, types, p.Seed))
		var s *lp.Solution
		ours, err := p.median(3, func() (err error) {
			s, err = lp.Solve(problem)
			return err
		})
		if err != nil {
			return err
		}
		if s.Status != lp.Optimal {
			return fmt.Errorf("%d types: %v", types, s.Status)
		}
		unproved = max(unproved, s.Residual)
		row := []string{fmt.Sprint(types), fmt.Sprint(len(problem.Rows)), fmt.Sprint(len(problem.Cost)), fmt.Sprint(s.Steps), harness.Number(ms(ours)), "-", "-", "-", fmt.Sprintf("%.1e", s.Residual)}
		if types <= sizes[len(sizes)-1] {
			objective, took, err := p.gonum(problem)
			if err != nil {
				failures++
				row[5] = err.Error()
			} else {
				off := math.Abs(objective-s.Objective) / (1 + math.Abs(objective))
				worst = max(worst, off)
				row[5], row[6], row[7] = harness.Number(ms(took)), harness.Number(float64(took)/float64(ours)), fmt.Sprintf("%.1e", off)
				p.Result(fmt.Sprintf("lp/%d/times-faster", types), float64(took)/float64(ours), "x")
			}
		}
		p.Result(fmt.Sprintf("lp/%d/ref", types), ms(ours), "ms")
		table.Add(row...)
	}
	p.Table(table)
	p.Result("lp/gonum-failures", float64(failures), "programmes")
	p.Target(harness.Target{Name: "lp/objective-off", Value: worst * 1e6, Unit: "ppm", Limit: 1})
	p.Target(harness.Target{Name: "lp/unproved", Value: unproved * 1e9, Unit: "ppb", Limit: 1})
	return p.policies(kinds)
}

// policies times whole policies on 512 types and four classes.
func (p *program) policies(kinds []kind) error {
	input := problem(kinds, 512, p.Seed)
	table := &harness.Table{Head: []string{"policy, 512 types x 4", "ms ref", "programmes", "steps", "objective"}}
	for _, policy := range []struct {
		name  string
		solve func(hetero.Problem) (*hetero.Allocation, error)
		judge bool
	}{
		{"equal split (fast path)", hetero.EqualSplit, false},
		{"max-min", hetero.MaxMin, true},
		{"makespan", hetero.Makespan, true},
		{"finish time", hetero.FinishTime, false},
		{"per cost", hetero.PerCost, false},
		{"water-filling", hetero.WaterFill, false},
	} {
		var a *hetero.Allocation
		took, err := p.median(3, func() (err error) {
			a, err = policy.solve(input)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", policy.name, err)
		}
		if err := hetero.Check(input, a.Shares); err != nil {
			return fmt.Errorf("%s: %w", policy.name, err)
		}
		table.Add(policy.name, harness.Number(ms(took)), fmt.Sprint(a.Solves), fmt.Sprint(a.Steps), harness.Number(a.Objective))
		if policy.judge {
			p.Target(harness.Target{Name: "lp/512x4/" + policy.name, Value: ms(took), Unit: "ms", Limit: 1000})
		}
	}
	p.Table(table)
	return nil
}

// gonum solves the same programme by gonum's simplex, in the standard form that it wants. Every row is "at most" a right
// side of at least 0, so that the slacks are a basis to start from. Panics, which it has for some inputs, are failures.
func (p *program) gonum(problem *lp.Problem) (objective float64, took time.Duration, err error) {
	m, n := len(problem.Rows), len(problem.Cost)
	used := make([]bool, n)
	for _, r := range problem.Rows {
		for _, e := range r.Entries {
			used[e.Col] = true
		}
	}
	at, columns := make([]int, n), 0 // it takes no columns of zeros only
	for j := range used {
		if at[j] = columns; used[j] {
			columns++
		}
	}
	a := mat.NewDense(m, columns+m, nil)
	b, cost, basis := make([]float64, m), make([]float64, columns+m), make([]int, m)
	for j, c := range problem.Cost {
		if used[j] {
			cost[at[j]] = c
		}
	}
	for i, r := range problem.Rows {
		if r.Sense != lp.AtMost || r.RHS < 0 {
			return 0, 0, errors.New("not in the form of the comparison")
		}
		b[i], basis[i] = r.RHS, columns+i
		a.Set(i, columns+i, 1)
		for _, e := range r.Entries {
			a.Set(i, at[e.Col], e.Val)
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	took, err = p.span(func() (err error) {
		objective, _, err = gonum.Simplex(cost, a, b, 1e-10, basis)
		return err
	})
	return objective, took, err
}

// assignments compares the assignment with linear programmes over the same costs.
func (p *program) assignments() error {
	table := &harness.Table{Head: []string{"n x n", "ms ref", "by programme, ms ref", "by gonum, ms ref", "costs off by"}}
	sizes, worst := []int{8, 16, 24, 128, 512}, 0.0
	if !p.Quick {
		sizes = append(sizes, 1024)
	}
	for _, n := range sizes {
		rng := rand.New(rand.NewPCG(p.Seed, uint64(n)))
		problem := assign.Problem{Rows: n, Cols: n}
		for range n * n {
			problem.Cost = append(problem.Cost, rng.Int64N(1_000_000))
		}
		var s *assign.Solution
		ours, err := p.median(3, func() (err error) {
			s, err = assign.Solve(problem)
			return err
		})
		if err != nil {
			return err
		}
		if err := problem.Verify(s); err != nil {
			return err
		}
		row := []string{fmt.Sprint(n), harness.Number(ms(ours)), "-", "-", "-"}
		if n <= 24 {
			if err := p.byProgramme(problem, s, row, &worst); err != nil {
				return err
			}
		}
		p.Result(fmt.Sprintf("assign/%d/ref", n), ms(ours), "ms")
		table.Add(row...)
	}
	p.Table(table)
	p.Target(harness.Target{Name: "assign/costs-off", Value: worst * 1e9, Unit: "ppb", Limit: 1})
	return nil
}

// byProgramme solves an assignment as a linear programme, whose corners are whole, by our simplex and for 8 rows by gonum's.
func (p *program) byProgramme(problem assign.Problem, s *assign.Solution, row []string, worst *float64) error {
	n := problem.Rows
	form := &lp.Problem{Cost: make([]float64, n*n)}
	for i := range n {
		var of, to lp.Row
		for j := range n {
			form.Cost[i*n+j] = float64(problem.Cost[i*n+j])
			of.Entries = append(of.Entries, lp.Entry{Col: i*n + j, Val: 1})
			to.Entries = append(to.Entries, lp.Entry{Col: j*n + i, Val: 1})
		}
		of.Sense, of.RHS, to.Sense, to.RHS = lp.Equal, 1, lp.Equal, 1
		form.Rows = append(form.Rows, of)
		if i > 0 { // one of the equations follows from the others
			form.Rows = append(form.Rows, to)
		}
	}
	var solution *lp.Solution
	took, err := p.span(func() (err error) {
		solution, err = lp.Solve(form)
		return err
	})
	if err != nil {
		return err
	}
	off := math.Abs(solution.Objective-float64(s.Cost)) / float64(s.Cost)
	row[2] = harness.Number(ms(took))
	if n == 8 {
		a := mat.NewDense(len(form.Rows), n*n, nil)
		b := make([]float64, len(form.Rows))
		for i, r := range form.Rows {
			b[i] = r.RHS
			for _, e := range r.Entries {
				a.Set(i, e.Col, e.Val)
			}
		}
		objective := math.NaN()
		took, err := p.span(func() (err error) {
			objective, _, err = gonum.Simplex(form.Cost, a, b, 1e-10, nil)
			return err
		})
		if row[3] = harness.Number(ms(took)); err != nil {
			row[3] = err.Error()
		} else {
			off = max(off, math.Abs(objective-float64(s.Cost))/float64(s.Cost))
		}
	}
	row[4] = fmt.Sprintf("%.1e", off)
	*worst = max(*worst, off)
	return nil
}
