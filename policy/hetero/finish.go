package hetero

import "math"

// remains lists who takes part in a policy about what remains.
func (m *model) remains() (unit []float64, blocked []Blocked) {
	unit, blocked = make([]float64, len(m.groups)), m.blocked()
	for k := range m.groups {
		switch {
		case m.best(k) == 0: // blocked already
		case m.group(k).Remaining == 0:
			for _, id := range m.ids(nil, k) {
				blocked = append(blocked, Blocked{id, NothingLeft})
			}
		default:
			unit[k] = m.group(k).Remaining
		}
	}
	return unit, blocked
}

// Makespan makes the time until the last job is done as short as it can be, if
// shares stay as they are. Objective is that time in seconds; 0 if nothing
// remains. (Gavel, section 4.2.)
func Makespan(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	unit, blocked := m.remains()
	a, err := m.simple("makespan", unit, blocked)
	if err == nil && a.Objective > 0 {
		a.Objective = 1 / a.Objective
	}
	return a, err
}

// FinishTime makes the largest finish-time fairness as small as it can be: of each
// job, the time from its coming to its end over the time that it would take on its
// equal split all along (rho of Mahajan et al., "Themis", NSDI 2020, as in Gavel,
// section 4.2). Objective is the largest rho, within 10^-9 of the least there can
// be; 0 if nothing remains.
func FinishTime(p Problem) (*Allocation, error) {
	m, err := newModel(&p)
	if err != nil {
		return nil, err
	}
	unit, blocked := m.remains()
	if none(unit) {
		return m.simple("finish time", unit, blocked)
	}
	f := newFinish(m, unit)
	return f.solve(blocked)
}

// finish is the search for the least largest rho.
type finish struct {
	*model
	remaining []float64 // 0 for those that do not take part
	elapsed   []float64 // seconds
	alone     []float64 // seconds from coming to end on the equal split
}

func newFinish(m *model, remaining []float64) *finish {
	f := &finish{m, remaining, make([]float64, len(m.groups)), make([]float64, len(m.groups))}
	for k, r := range remaining {
		if r > 0 {
			g := m.group(k)
			f.elapsed[k] = g.Elapsed.Seconds()
			f.alone[k] = g.IsolatedElapsed.Seconds() + r/m.equal[k]
		}
	}
	return f
}

// need is the rate that a job of group k needs for rho; +Inf where none is enough.
func (f *finish) need(k int, rho float64) float64 {
	left := float64(rho*f.alone[k]) - f.elapsed[k]
	if left <= 0 {
		return math.Inf(1)
	}
	return f.remaining[k] / left
}

// rho is that of a job of group k at a rate.
func (f *finish) rho(k int, rate float64) float64 {
	return (f.elapsed[k] + f.remaining[k]/rate) / f.alone[k]
}

// largest is the largest rho under shares x.
func (f *finish) largest(x [][]float64) float64 {
	worst := 0.0
	for k, r := range f.remaining {
		if r > 0 {
			worst = math.Max(worst, f.rho(k, f.rate(k, x[k])))
		}
	}
	return worst
}

// The search ends when the bounds are this near, or after so many programmes.
const (
	rhoClose  = 1e-10
	rhoSolves = 60
)

// solve closes in from below. A programme at rho finds how much of the rates that
// rho needs can be reached, which bounds the least rho from above by its shares
// and from below by its prices.
func (f *finish) solve(blocked []Blocked) (*Allocation, error) {
	low := 0.0 // nobody is faster than alone on the best class
	for k, r := range f.remaining {
		if r > 0 {
			low = math.Max(low, f.rho(k, f.best(k)))
		}
	}
	var best, last *level
	high, solves, steps := math.Inf(1), 0, 0
	for solves < rhoSolves {
		unit := make([]float64, len(f.groups))
		for k, r := range f.remaining {
			if r > 0 {
				unit[k] = math.Min(f.need(k, low), 2*f.best(k)) // rounding may leave a job no time at its own bound
			}
		}
		l, err := f.maxMin("finish time", unit, nil)
		if err != nil {
			return nil, err
		}
		last, solves, steps = l, solves+1, steps+l.steps
		if rho := f.largest(l.x); best == nil || rho < high {
			high, best = rho, l
		}
		next := f.bound(low, l)
		if high <= low*(1+rhoClose) || !(next > low) {
			break
		}
		low = next
	}
	a := f.allocation(best.x, blocked)
	a.Objective, a.Solves, a.Steps = high, solves, steps
	a.prices(f.model, last.groups, last.classes)
	return a, nil
}

// bound is the least rho that the prices of a programme at low do not exclude:
// under any shares the sum of price × rate over what low needs is at most t.
func (f *finish) bound(low float64, l *level) float64 {
	excluded := func(rho float64) bool {
		sum := 0.0
		for k, y := range l.groups {
			if y > 0 && f.remaining[k] > 0 {
				sum += y * f.need(k, rho) / l.unit[k]
			}
		}
		return sum > l.t
	}
	if l.t >= 1 || !finite(low) || !excluded(low) {
		return low
	}
	by := low * rhoClose
	for excluded(low+by) && finite(low+by) {
		by *= 2
	}
	a, b := low, low+by
	for range 100 {
		mid := a + (b-a)/2
		if mid <= a || mid >= b {
			break
		}
		if excluded(mid) {
			a = mid
		} else {
			b = mid
		}
	}
	return a
}
