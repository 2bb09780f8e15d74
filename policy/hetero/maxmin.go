package hetero

import (
	"math"

	"github.com/lockstep-gpu/lockstep/internal/lp"
)

// programme is a linear programme about shares.
type programme struct {
	*model
	lp      lp.Problem
	columns [][]int // by group and class; -1 where the job cannot run
	classes []int   // rows, by class
}

// newProgramme has a column for each share of a group that takes part, no job above
// its time and no class above its devices. extra columns come behind.
func (m *model) newProgramme(takesPart func(k int) bool, extra int) *programme {
	g := &programme{model: m, columns: make([][]int, len(m.groups)), classes: make([]int, len(m.classes))}
	n := 0
	capacity := make([]lp.Row, len(m.classes))
	for k := range m.groups {
		g.columns[k] = make([]int, len(m.classes))
		var whole lp.Row
		for c := range m.classes {
			g.columns[k][c] = -1
			if !takesPart(k) || m.rates[k][c] == 0 {
				continue
			}
			g.columns[k][c] = n
			whole.Entries = append(whole.Entries, lp.Entry{Col: n, Val: 1})
			capacity[c].Entries = append(capacity[c].Entries, lp.Entry{Col: n, Val: m.devices(k)})
			n++
		}
		if whole.RHS = 1; len(whole.Entries) > 0 {
			g.lp.Rows = append(g.lp.Rows, whole)
		}
	}
	for c := range capacity {
		g.classes[c] = len(g.lp.Rows)
		capacity[c].RHS = float64(m.class(c).Devices)
		g.lp.Rows = append(g.lp.Rows, capacity[c])
	}
	g.lp.Cost = make([]float64, n+extra)
	return g
}

// rateRow returns times × the rate of one job of group k, as a row.
func (g *programme) rateRow(k int, times float64) []lp.Entry {
	var entries []lp.Entry
	for c, col := range g.columns[k] {
		if col >= 0 {
			entries = append(entries, lp.Entry{Col: col, Val: g.rates[k][c] * times})
		}
	}
	return entries
}

// shares reads the shares off the columns, over by.
func (g *programme) shares(x []float64, by float64) [][]float64 {
	shares := make([][]float64, len(g.groups))
	for k := range shares {
		shares[k] = make([]float64, len(g.model.classes))
		for c, col := range g.columns[k] {
			if col >= 0 {
				shares[k][c] = x[col] / by
			}
		}
	}
	return shares
}

// level is the answer of a max-min programme, in the order of IDs.
type level struct {
	x       [][]float64
	t       float64   // the largest level that all unbound groups reach
	groups  []float64 // how much each group binds; they sum to 1
	classes []float64 // what t gains by one more device
	unit    []float64 // the units that were solved for
	steps   int
}

// maxMin makes the least of rate over unit as large as it can be, over the groups
// with a unit above 0. A group with held above 0 has that level at least, and does
// not count for the least. At least one must count.
func (m *model) maxMin(op string, unit, held []float64) (*level, error) {
	// The programme's own level is one of about 1: that of the slowest job alone.
	unit, top := m.weighty(unit)
	times := func(k int) float64 { return 1 / (unit[k] * top) }
	g := m.newProgramme(func(k int) bool { return unit[k] > 0 }, 1)
	t := len(g.lp.Cost) - 1
	g.lp.Cost[t] = -1
	rows := make([]int, len(m.groups))
	for k := range m.groups {
		rows[k] = -1
		if unit[k] == 0 {
			continue
		}
		rows[k] = len(g.lp.Rows)
		if held != nil && held[k] > 0 {
			// A hair less than was found, so that rounding does not make it infeasible.
			g.lp.Rows = append(g.lp.Rows, lp.Row{Entries: g.rateRow(k, times(k)), Sense: lp.AtLeast, RHS: held[k] / top * (1 - 1e-10)})
			continue
		}
		g.lp.Rows = append(g.lp.Rows, lp.Row{Entries: append(g.rateRow(k, -times(k)), lp.Entry{Col: t, Val: 1})})
	}
	s, err := lp.Solve(&g.lp)
	if err != nil || s.Status != lp.Optimal {
		return nil, failed(op)
	}
	out := &level{x: g.shares(s.X, 1), t: s.X[t] * top, groups: make([]float64, len(m.groups)), classes: make([]float64, len(m.classes)), unit: unit, steps: s.Steps}
	for k, r := range rows {
		if r >= 0 && (held == nil || held[k] == 0) {
			out.groups[k] = -s.Y[r]
		}
	}
	for c, r := range g.classes {
		out.classes[c] = -s.Y[r] * top
	}
	return out, nil
}

// weighty raises units so small that their jobs reach every level with less than a
// negligible part of their time: it makes such a job ask for that part. top is the
// level that bounds all.
func (m *model) weighty(unit []float64) (out []float64, top float64) {
	top = math.Inf(1) // no level is above that of the slowest, alone
	for k, u := range unit {
		if u > 0 {
			top = min(top, m.best(k)/u)
		}
	}
	out = make([]float64, len(unit))
	for k, u := range unit {
		if u > 0 {
			out[k] = max(u, float64(m.best(k)*negligible)/top)
		}
	}
	return out, top
}

// none says that nobody counts.
func none(unit []float64) bool {
	for _, u := range unit {
		if u > 0 {
			return false
		}
	}
	return true
}

// nothing is shares of nothing.
func (m *model) nothing() [][]float64 {
	x := make([][]float64, len(m.groups))
	for k := range x {
		x[k] = make([]float64, len(m.classes))
	}
	return x
}

// MaxMin makes the least normal rate as large as it can be: of each job, its rate
// over that on its equal split, which is the devices of every class over the jobs
// by weight. So no job is below its equal split. Objective is that least rate.
// This is Gavel's LAS policy (Narayanan et al., OSDI 2020, section 4.1). What is
// not needed for the least may be left unused; WaterFill leaves nothing.
func MaxMin(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	return m.simple("max-min", m.equal, m.blocked())
}

// simple is the allocation of one max-min programme.
func (m *model) simple(op string, unit []float64, blocked []Blocked) (*Allocation, error) {
	if none(unit) {
		return m.allocation(m.nothing(), blocked), nil
	}
	l, err := m.maxMin(op, unit, nil)
	if err != nil {
		return nil, err
	}
	a := m.allocation(l.x, blocked)
	a.Objective, a.Solves, a.Steps = l.t, 1, l.steps
	a.prices(m, l.groups, l.classes)
	return a, nil
}

// WaterFill is MaxMin for the least, then for the next least among those that can
// have more, and so on: no job can get more without one that has as little or less
// getting less. Objective is the least normal rate. Which jobs can have no more is
// told by the prices: a group that binds does so in every optimum.
func WaterFill(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	if none(m.equal) {
		return m.simple("water-fill", m.equal, m.blocked())
	}
	held := make([]float64, len(m.groups))
	var last, first *level
	solves, steps := 0, 0
	for open := true; open; {
		l, err := m.maxMin("water-fill", m.equal, held)
		if err != nil {
			return nil, err
		}
		if last = l; first == nil {
			first = l
		}
		solves, steps = solves+1, steps+l.steps
		open = m.fix(held, l)
	}
	a := m.allocation(last.x, m.blocked())
	a.Objective, a.Solves, a.Steps = first.t, solves, steps
	a.prices(m, first.groups, first.classes)
	return a, nil
}

// fix holds the groups that bind at their level, and says whether any is left.
func (m *model) fix(held []float64, l *level) bool {
	most, most1 := 0.0, -1
	open := false
	for k := range held {
		if m.equal[k] == 0 || held[k] > 0 {
			continue
		}
		if l.groups[k] > most {
			most, most1 = l.groups[k], k
		}
	}
	for k := range held {
		if m.equal[k] == 0 || held[k] > 0 {
			continue
		}
		// Prices sum to 1; one that is a millionth of the largest is rounding.
		if k == most1 || l.groups[k] > most*1e-6 {
			held[k] = math.Max(l.t, math.SmallestNonzeroFloat64)
			continue
		}
		open = true
	}
	if most1 < 0 {
		return false
	}
	return open
}
