package profile

import (
	"math"
	"slices"
)

// linear is a fit of slowdowns by what two kinds use: a constant, and a part for each
// utilisation of either.
type linear struct {
	ok   bool
	of   [5]float64
	miss float64 // how far off its rates are at most, mostly
}

func features(a, b Usage) [5]float64 { return [5]float64{1, a.Cache, a.Memory, b.Cache, b.Memory} }

func (l *linear) slowdown(a, b Usage) float64 {
	sum := 0.0
	for i, x := range features(a, b) {
		sum += float64(l.of[i] * x)
	}
	return max(sum, 1)
}

// sample is a measured rate of a beside b.
type sample struct {
	a, b Kind
	rate float64
}

// measured returns all measured rates, those of kinds that were observed longest ago first.
func (s *Store) measured() []sample {
	var out []sample
	s.kinds.all(func(a Kind, e *known) {
		e.beside.all(func(b Kind, rates *[]int64) {
			out = append(out, sample{a: a, b: b, rate: beliefOf(*rates).mid})
		})
	})
	return out
}

// byUsage fits slowdowns by least squares; a hair of a ridge keeps what the measurements
// do not tell apart from running away.
func (s *Store) byUsage() *linear {
	const ridge = 1e-3
	l := &linear{}
	var a [5][5]float64
	var b [5]float64
	var used []sample
	for _, m := range s.measured() {
		x, y := s.kinds.get(m.a), s.kinds.get(m.b)
		if !x.told || !y.told {
			continue
		}
		used = append(used, m)
		f := features(x.usage, y.usage)
		for i := range f {
			for j := range f {
				a[i][j] += float64(f[i] * f[j])
			}
			b[i] += float64(f[i] * (1/max(m.rate, leastRate) - 1))
		}
	}
	if len(used) < fewest {
		return l
	}
	for i := range a {
		a[i][i] += ridge
	}
	l.of = solve(a, b)
	l.of[0]++
	l.ok = true
	misses := make([]float64, len(used))
	for i, m := range used {
		misses[i] = math.Abs(1/l.slowdown(s.kinds.get(m.a).usage, s.kinds.get(m.b).usage) - m.rate)
	}
	l.miss = mostly(misses)
	return l
}

// solve returns x with a×x = b, for an a that is symmetric and positive, by elimination.
func solve(a [5][5]float64, b [5]float64) (x [5]float64) {
	for i := range a {
		for r := i + 1; r < len(a); r++ {
			part := a[r][i] / a[i][i]
			for c := i; c < len(a); c++ {
				a[r][c] -= float64(part * a[i][c])
			}
			b[r] -= float64(part * b[i])
		}
	}
	for i := len(a) - 1; i >= 0; i-- {
		sum := b[i]
		for c := i + 1; c < len(a); c++ {
			sum -= float64(a[i][c] * x[c])
		}
		x[i] = sum / a[i][i]
	}
	return x
}

// additive is a fit of rates by a part for who suffers and one for who disturbs.
type additive struct {
	mean     float64
	index    map[Kind]int // of the kinds that were measured beside others
	suffers  []float64
	disturbs []float64
	miss     float64 // how far off its rates are at most, mostly
}

// rate returns the rate of a beside b. Invariant: both were measured beside others.
func (m *additive) rate(a, b Kind) float64 {
	return max(m.mean+m.suffers[m.index[a]]+m.disturbs[m.index[b]], 0)
}

// byPartners fits the parts in turn until they hardly change; parts of kinds with few
// measurements are held near 0.
func (s *Store) byPartners() *additive {
	all := s.measured()
	m := &additive{index: make(map[Kind]int)}
	for _, p := range all {
		m.mean += p.rate / float64(len(all))
		if _, ok := m.index[p.a]; !ok {
			m.index[p.a] = len(m.index)
		}
	}
	n := len(m.index)
	m.suffers, m.disturbs = make([]float64, n), make([]float64, n)
	sides := make([][2]int, len(all)) // each is beside another that is beside it, so all are in the index
	for i, p := range all {
		sides[i] = [2]int{m.index[p.a], m.index[p.b]}
	}
	sum, count := make([]float64, n), make([]float64, n)
	update := func(part, other []float64, side int) {
		clear(sum)
		clear(count)
		for i, p := range all {
			k := sides[i][side]
			sum[k] += p.rate - m.mean - other[sides[i][1-side]]
			count[k]++
		}
		for k := range part {
			part[k] = sum[k] / (count[k] + shrink)
		}
	}
	for range sweeps {
		update(m.suffers, m.disturbs, 0)
		update(m.disturbs, m.suffers, 1)
	}
	misses := make([]float64, len(all))
	for i, p := range all {
		misses[i] = math.Abs(m.rate(p.a, p.b) - p.rate)
	}
	m.miss = mostly(misses)
	return m
}

// mostly returns the value that nine in ten of misses, which it sorts, do not exceed, but
// at least what measurements spread by.
func mostly(misses []float64) float64 {
	if len(misses) == 0 {
		return usual
	}
	slices.Sort(misses)
	return max(misses[(len(misses)*9+9)/10-1], usual)
}
