package hetero

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/lp"
)

// needs returns the rate that each deadline needs, 0 where there is none, and
// those that no class can meet.
func (m *model) needs() (need []float64, short []GroupID) {
	need = make([]float64, len(m.groups))
	for k := range m.groups {
		g := m.group(k)
		if g.Deadline == 0 || g.Remaining == 0 {
			continue
		}
		// One that needs next to nothing asks for a negligible part of its time.
		need[k] = max(g.Remaining/g.Deadline.Seconds(), float64(m.best(k)*negligible))
		if m.best(k) < need[k] || m.best(k) == 0 {
			short = m.ids(short, k)
		}
	}
	slices.Sort(short)
	return need, short
}

// deadlineRows adds a row for each deadline; by scales what is needed, through the
// column col if that is one.
func (g *programme) deadlineRows(need []float64, col int) []int {
	rows := make([]int, len(g.groups))
	for k := range rows {
		rows[k] = -1
		if need[k] == 0 {
			continue
		}
		rows[k] = len(g.lp.Rows)
		r := lp.Row{Entries: g.rateRow(k, 1/need[k]), Sense: lp.AtLeast, RHS: 1}
		if col >= 0 {
			r.Entries, r.RHS = append(r.Entries, lp.Entry{Col: col, Val: -1}), 0
		}
		g.lp.Rows = append(g.lp.Rows, r)
	}
	return rows
}

// price is that of all of a share of group k on class c, for an hour.
func (m *model) price(k, c int) float64 { return m.class(c).Price * m.devices(k) }

// infeasible is the answer where deadlines cannot be met.
func (m *model) infeasible(short []GroupID, blocked []Blocked, solves, steps int) *Allocation {
	return &Allocation{Short: short, Blocked: blocked, Solves: solves, Steps: steps}
}

// MinCost meets every deadline for the least money: a job with a Deadline gets the
// rate that finishes Remaining in time, one without gets nothing. Objective is the
// cost of an hour. If the deadlines cannot be met together, Feasible is false and
// Short names groups that already exclude each other. ClassPrice is what one more
// device of a class saves; GroupPrice what one more step per second for a job of
// the group costs. (Gavel, section 4.2, cost with SLOs.)
func MinCost(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	need, short := m.needs()
	if short != nil {
		return m.infeasible(short, m.blocked(), 0, 0), nil
	}
	g := m.newProgramme(func(k int) bool { return need[k] > 0 }, 0)
	rows := g.deadlineRows(need, -1)
	for k := range m.groups {
		for c, col := range g.columns[k] {
			if col >= 0 {
				g.lp.Cost[col] = m.price(k, c)
			}
		}
	}
	s, err := lp.Solve(&g.lp)
	switch {
	case err != nil || s.Status == lp.Limit || s.Status == lp.Unbounded:
		return nil, failed("min cost")
	case s.Status == lp.Infeasible:
		return m.infeasible(m.conflict(rows, s.Y), m.blocked(), 1, s.Steps), nil
	}
	a := m.allocation(g.shares(s.X, 1), m.blocked())
	a.Objective, a.Solves, a.Steps = s.Objective, 1, s.Steps
	groups, classes := make([]float64, len(m.groups)), make([]float64, len(m.classes))
	for k, r := range rows {
		if r >= 0 {
			groups[k] = s.Y[r] / need[k]
		}
	}
	for c, r := range g.classes {
		classes[c] = -s.Y[r]
	}
	a.prices(m, groups, classes)
	return a, nil
}

// conflict names the groups whose rows a proof of infeasibility is made of.
func (m *model) conflict(rows []int, y []float64) []GroupID {
	var short []GroupID
	for k, r := range rows {
		if r >= 0 && y[r] > 1e-9 {
			short = m.ids(short, k)
		}
	}
	slices.Sort(short)
	return short
}

// PerCost makes the work done for the money as large as it can be: the sum of all
// normal rates over the cost of an hour, with every deadline met. Every class with
// devices needs a price. Objective is that quotient. Only jobs that are worth it
// run, and those as much as they can without changing the mix. (Gavel, section
// 4.2; the quotient becomes linear by Charnes and Cooper, 1962.)
func PerCost(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	for i, c := range p.Classes {
		if c.Price == 0 && c.Devices > 0 {
			return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "hetero: per cost", Field: "Classes[" + strconv.Itoa(i) + "].Price", Value: "0", Reason: "must be above 0"}
		}
	}
	need, short := m.needs()
	if short != nil {
		return m.infeasible(short, m.blocked(), 0, 0), nil
	}
	if none(m.equal) {
		return m.simple("per cost", m.equal, m.blocked())
	}
	g, rows := m.perCost(need)
	s, err := lp.Solve(&g.lp)
	switch {
	case err != nil || s.Status == lp.Limit || s.Status == lp.Unbounded:
		return nil, failed("per cost")
	case s.Status == lp.Infeasible:
		return m.infeasible(m.conflict(rows, s.Y), m.blocked(), 1, s.Steps), nil
	}
	x := g.shares(s.X, s.X[len(s.X)-1])
	m.grow(x)
	if !m.holds(x, need) {
		return nil, failed("per cost")
	}
	a := m.allocation(x, m.blocked())
	a.Objective, a.Solves, a.Steps = -s.Objective/m.bill(), 1, s.Steps
	return a, nil
}

// bill is what an hour of all devices costs.
func (m *model) bill() float64 {
	sum := 0.0
	for c := range m.classes {
		sum += float64(m.class(c).Price * float64(m.class(c).Devices))
	}
	return sum
}

// holds says whether shares are numbers and meet what is needed, but for a millionth: a programme that is scaled may prove
// itself and still lose the digits of what it was scaled from.
func (m *model) holds(x [][]float64, need []float64) bool {
	const most, least = 1 + 1e-6, 1 - 1e-6
	used := make([]float64, len(m.classes))
	for k := range x {
		sum := 0.0
		for c, v := range x[k] {
			sum += v
			used[c] += float64(v * m.devices(k))
		}
		if !(sum <= most) || !(m.rate(k, x[k]) >= need[k]*least) {
			return false
		}
	}
	for c, u := range used {
		if !(u <= float64(m.class(c).Devices)*most) {
			return false
		}
	}
	return true
}

// perCost is the programme of PerCost: shares times a scale, the last column, that
// makes their cost that of everything. So the scale is 1 at least, and shares lose no digit when they are divided by it.
func (m *model) perCost(need []float64) (*programme, []int) {
	g := m.newProgramme(func(k int) bool { return m.equal[k] > 0 }, 1)
	scale := len(g.lp.Cost) - 1
	for i := range g.lp.Rows { // all so far are "at most so much of the scale"
		r := &g.lp.Rows[i]
		r.Entries = append(r.Entries, lp.Entry{Col: scale, Val: -r.RHS})
		r.RHS = 0
	}
	rows := g.deadlineRows(need, scale)
	cost := lp.Row{Sense: lp.Equal, RHS: m.bill()}
	for k := range m.groups {
		for c, col := range g.columns[k] {
			if col >= 0 {
				g.lp.Cost[col] = -m.rates[k][c] / m.equal[k] * float64(m.group(k).Count)
				cost.Entries = append(cost.Entries, lp.Entry{Col: col, Val: m.price(k, c)})
			}
		}
	}
	g.lp.Rows = append(g.lp.Rows, cost)
	return g, rows
}

// grow multiplies all shares by as much as fits.
func (m *model) grow(x [][]float64) {
	by := math.Inf(1)
	used := make([]float64, len(m.classes))
	for k := range x {
		sum := 0.0
		for c, v := range x[k] {
			sum += v
			used[c] += float64(v * m.devices(k))
		}
		if sum > 0 {
			by = min(by, 1/sum)
		}
	}
	for c, u := range used {
		if u > 0 {
			by = min(by, float64(m.class(c).Devices)/u)
		}
	}
	if !finite(by) {
		return
	}
	for k := range x {
		for c := range x[k] {
			x[k][c] *= by
		}
	}
}

// EqualSplit is the fast path: no programme, O(groups × classes). Each job gets its
// equal split where it can run; what is left of a class then goes to the groups with
// the least normal rates that can use it. No job has a normal rate below 1.
// Objective is the least one.
func EqualSplit(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	weights := m.weights()
	x, left := m.nothing(), make([]float64, len(m.classes))
	for c := range left {
		left[c] = float64(m.class(c).Devices)
	}
	for k := range x {
		for c, v := range m.split(k, weights) {
			if m.rates[k][c] > 0 {
				x[k][c] = v
				left[c] -= float64(v * m.devices(k))
			}
		}
	}
	m.fill(x, left)
	a := m.allocation(x, m.blocked())
	for i, n := range a.Normal {
		if n > 0 && (a.Objective == 0 || n < a.Objective) {
			a.Objective = a.Normal[i]
		}
	}
	return a, nil
}

// fill gives what is left of each class to those with the least normal rates.
func (m *model) fill(x [][]float64, left []float64) {
	normal := make([]float64, len(x))
	order := make([]int, 0, len(x))
	for k := range x {
		if m.equal[k] > 0 {
			normal[k] = m.rate(k, x[k]) / m.equal[k]
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		// Quantised, so that the last digit does not decide.
		return int(min(math.Round(normal[a]*1e6), 1e9) - min(math.Round(normal[b]*1e6), 1e9))
	})
	for _, k := range order {
		spare := 1.0
		for _, v := range x[k] {
			spare -= v
		}
		for _, c := range m.fastest(k) {
			more := min(spare, left[c]/m.devices(k))
			if more > 0 && m.rates[k][c] > 0 {
				x[k][c] += more
				spare -= more
				left[c] -= float64(more * m.devices(k))
			}
		}
	}
}

// fastest returns the classes by rate of group k, the first of equals first.
func (m *model) fastest(k int) []int {
	order := make([]int, len(m.classes))
	for c := range order {
		order[c] = c
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case m.rates[k][a] > m.rates[k][b]:
			return -1
		case m.rates[k][a] < m.rates[k][b]:
			return 1
		}
		return 0
	})
	return order
}
