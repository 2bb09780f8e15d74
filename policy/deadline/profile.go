package deadline

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// stretch is a part of a job's plan.
type stretch struct {
	from, to int64
	gpus     int
	rate     int64
}

// profile is how many devices are free over time: free[i] from at[i] on. Neighbours differ.
type profile struct {
	at     []int64
	free   []int
	rising int // from this entry on free does not fall: jobs that begin now only leave more to later times
}

// empty makes p a profile of so many devices from ns on.
func (p *profile) empty(ns int64, gpus int) {
	p.at, p.free, p.rising = append(p.at[:0], ns), append(p.free[:0], gpus), 0
}

// copyFrom makes p equal to o, which it shares nothing with.
func (p *profile) copyFrom(o *profile) {
	p.at, p.free, p.rising = append(p.at[:0], o.at...), append(p.free[:0], o.free...), o.rising
}

// reserve takes the stretches of a plan out of p.
func (p *profile) reserve(plan []stretch) { p.add(plan, -1) }

// release gives them back.
func (p *profile) release(plan []stretch) { p.add(plan, 1) }

func (p *profile) add(plan []stretch, sign int) {
	for _, s := range plan {
		i, j := p.cut(s.from), p.cut(s.to)
		for k := i; k < j; k++ {
			p.free[k] += sign * s.gpus
		}
		for _, k := range [...]int{i, j} {
			if k > p.rising && k < len(p.free) && p.free[k] < p.free[k-1] {
				p.rising = k
			}
		}
		p.join(j) // the later one first, so that i stays where it is
		p.join(i)
	}
}

// cut makes an entry begin at t, if there is none and t is not before the first, and returns its index.
func (p *profile) cut(t int64) int {
	i, ok := slices.BinarySearch(p.at, t)
	if ok || i == 0 {
		return i
	}
	p.at, p.free = slices.Insert(p.at, i, t), slices.Insert(p.free, i, p.free[i-1])
	if i <= p.rising {
		p.rising++
	}
	return i
}

// join drops entry i if it is like the one before.
func (p *profile) join(i int) {
	if i > 0 && i < len(p.at) && p.free[i] == p.free[i-1] {
		p.at, p.free = slices.Delete(p.at, i, i+1), slices.Delete(p.free, i, i+1)
		if i <= p.rising {
			p.rising--
		}
	}
}

// skip forgets what was before ns.
func (p *profile) skip(ns int64) {
	i, ok := slices.BinarySearch(p.at, ns)
	if !ok {
		i--
	}
	if i > 0 {
		p.at, p.free, p.rising = slices.Delete(p.at, 0, i), slices.Delete(p.free, 0, i), max(p.rising-i, 0)
	}
	p.at[0] = ns
}

// has reports whether p has room for a plan.
func (p *profile) has(plan []stretch) bool {
	for _, s := range plan {
		i, ok := slices.BinarySearch(p.at, s.from)
		if !ok {
			i--
		}
		for i = max(i, 0); i < len(p.at) && p.at[i] < s.to; i++ {
			if p.free[i] < s.gpus {
				return false
			}
		}
	}
	return true
}

// speeds is how fast a job is on any number of devices up to a limit: the first few in a table.
type speeds struct {
	points []Point
	table  [65]Point
}

// of makes s those of points.
func (s *speeds) of(points []Point) *speeds {
	s.points = points
	on, next := Point{}, 0
	for n := range s.table {
		if next < len(points) && points[next].GPUs == n {
			on, next = points[next], next+1
		}
		s.table[n] = on
	}
	return s
}

// on returns the point with the most devices that are no more than n, at least 0; the zero Point if there is none.
func (s *speeds) on(n int) Point {
	if n < len(s.table) {
		return s.table[n]
	}
	on, _ := within(s.points, n)
	return on
}

// run returns on what a job runs from entry i on with at most limit devices, until when, and the entry after that.
func (p *profile) run(s *speeds, i, limit int) (on Point, to int64, next int) {
	on = s.on(min(limit, p.free[i]))
	widest := s.on(limit).GPUs == on.GPUs
	for i++; i < len(p.at); i++ {
		if widest && i > p.rising { // later there are no fewer
			break
		}
		if n := min(limit, p.free[i]); n < on.GPUs || s.on(n).GPUs != on.GPUs {
			return on, p.at[i], i
		}
	}
	return on, never, len(p.at)
}

// ends reports whether a job ends by the deadline on at most limit devices at any time, and on as many of them as are free.
func (p *profile) ends(s *speeds, limit int, left work, deadline int64) bool {
	for i := 0; i < len(p.at) && p.at[i] < deadline; {
		from := p.at[i]
		on, to, next := p.run(s, i, limit)
		if left = left.Sub(int128.Product(on.Rate, min(to, deadline)-from)); left.Sign() <= 0 {
			return true
		}
		i = next
	}
	return false
}

// fit plans a job of which ends is true.
func (p *profile) fit(s *speeds, limit int, left work, deadline int64) []stretch {
	var plan []stretch
	for i := 0; i < len(p.at) && p.at[i] < deadline && left.Sign() > 0; {
		from := p.at[i]
		on, to, next := p.run(s, i, limit)
		i = next
		if on.Rate == 0 {
			continue
		}
		to = min(to, deadline)
		done := int128.Product(on.Rate, to-from)
		if left.Cmp(done) <= 0 {
			to = from + takes(left, on.Rate)
		}
		plan = append(plan, stretch{from, to, on.GPUs, on.Rate})
		left = left.Sub(done)
	}
	return plan
}

// within returns the point with the most devices that are no more than n.
func within(points []Point, n int) (Point, bool) {
	i, ok := slices.BinarySearchFunc(points, n, func(p Point, n int) int { return cmp.Compare(p.GPUs, n) })
	if ok {
		return points[i], true
	}
	if i == 0 {
		return Point{}, false
	}
	return points[i-1], true
}

// trim cuts a plan where the work is done; nil if it never is.
func trim(plan []stretch, left work) []stretch {
	var out []stretch
	for _, s := range plan {
		if need := takes(left, s.rate); need <= s.to-s.from {
			s.to = s.from + need
			return append(out, s)
		}
		left = left.Sub(int128.Product(s.rate, s.to-s.from))
		out = append(out, s)
	}
	return nil
}
