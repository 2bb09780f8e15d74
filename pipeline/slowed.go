package pipeline

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// Factor is how many times as long something takes, in thousandths: 1300 is 1.3.
type Factor int64

// The ends of what is understood as a Factor.
const (
	Same      Factor = 1000      // as long as before
	MaxFactor Factor = 1_000_000 // the largest factor there may be
)

// scale is how many units of the evaluations with factors make a nanosecond, so that every figure is whole.
const scale = int64(Same)

// lanes is how many factors one pass evaluates side by side. Four take about twice as long as one.
const lanes = 4

// slowed is what repeated evaluations with one slow stage keep between them. Times and lines are in units of a nanosecond
// over scale.
//
// With all else fixed, the makespan as a function of the factor of one stage is the greatest of many lines, one for each path:
// it is convex. So a line that is reached at two factors is reached at all between them. That settles many factors without
// an evaluation.
type slowed struct {
	ready  bool            // share and hops are of this run
	share  []time.Duration // by row: its time on the binding chain
	hops   []time.Duration // by transfer
	ends   [][lanes]int64  // by op
	points []point         // the factors asked for, ascending
	row    int32           // the stage asked for
	picked [lanes]int      // the points that the next pass evaluates
	n      int             // how many they are
	passes int             // since the last Run
}

// point is the makespan at one factor and a line through it that the makespan never lies below.
type point struct {
	x     Factor
	asked int32 // which of the factors it is
	state state
	span  int64
	slope int64 // time of the slow stage on a longest path
}

// state says what is known of a point.
type state uint8

const (
	unknown state = iota
	settled       // its span
	reached       // its span and its slope
)

// at returns the height of p's line.
func (p *point) at(x Factor) int64 { return p.span + int64(x-p.x)*p.slope }

// AppendSlowed appends to dst, for each factor in turn, the makespan with every op of a stage taking that many times as long
// as in the Run that made r: exactly, rounded to the nearest nanosecond, half up. Factors may be below Same as well. Several
// factors at once cost less than one after the other. r otherwise stays as it is, but nobody else may use it meanwhile. It
// allocates nothing once r and dst are large enough.
func (r *Result) AppendSlowed(dst []time.Duration, stage int, factors ...Factor) ([]time.Duration, error) {
	if r.line == nil || stage < 0 || stage >= len(r.line.rows) {
		return dst, invalid("slowed", "stage", strconv.Itoa(stage), "must be a stage of a Result that Run made")
	}
	s := &r.slow
	s.points = s.points[:0]
	for i, x := range factors {
		if x < 0 || x > MaxFactor {
			return dst, invalid("slowed", "factors["+strconv.Itoa(i)+"]", strconv.FormatInt(int64(x), 10), "must be from 0 to "+strconv.FormatInt(int64(MaxFactor), 10))
		}
		if int64(r.Makespan) > math.MaxInt64/2/scale || x > 0 && int64(r.Busy[stage]) > math.MaxInt64/2/int64(x) {
			return dst, invalid("slowed", "factors["+strconv.Itoa(i)+"]", strconv.FormatInt(int64(x), 10), "makes times that pass the range of a time.Duration")
		}
		s.points = append(s.points, point{x: x, asked: int32(i)})
	}
	slices.SortFunc(s.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.asked, b.asked))
	})
	if !s.ready {
		r.prepare()
	}
	s.row = int32(stage)
	r.settle()
	from := len(dst)
	for range factors {
		dst = append(dst, 0)
	}
	for i := range s.points {
		p := &s.points[i]
		dst[from+int(p.asked)] = time.Duration((p.span + scale/2) / scale)
	}
	return dst, nil
}

// prepare scales the last run and finds every row's share of its binding chain.
func (r *Result) prepare() {
	s, l := &r.slow, r.line
	if cap(s.ends) < len(l.ops) {
		s.ends = make([][lanes]int64, len(l.ops))
	}
	s.ends = s.ends[:len(l.ops)]
	for _, base := range l.base[:len(l.rows)] {
		s.ends[base] = [lanes]int64{}
	}
	s.hops, s.share = resize(s.hops, len(r.hops)), resize(s.share, len(l.rows))
	for i, d := range r.hops { // one that no op waits for may be of any length
		s.hops[i] = min(d, r.Makespan) * time.Duration(scale)
	}
	clear(s.share)
	for at := r.lastOp(); at >= 0; {
		s.share[l.row[at]] += r.took[at]
		at = r.binding(at)
	}
	r.tails()
	s.ready, s.passes = true, 0
}

// settle finds the makespan for every factor asked for: what lines say, and then, in passes, what they leave open.
func (r *Result) settle() {
	s := &r.slow
	base := point{x: Same, span: int64(r.Makespan) * scale, slope: int64(s.share[s.row])}
	through := r.through()
	for i := range s.points {
		if p := &s.points[i]; p.x == Same {
			p.span, p.state = base.span, settled
		}
	}
	for open := s.choose(base, through); open > 0; open = s.choose(base, through) {
		r.pass(open > s.n)
	}
}

// through is the path through all ops of the slow stage. It is the longest one once the stage is slow enough, and none rises
// faster; its x is just past all factors, so that what is in range at those is in range there.
func (r *Result) through() point {
	s, l := &r.slow, r.line
	first, last := l.base[s.row]+1, l.base[s.row+1]-1
	x := Same
	if n := len(s.points); n > 0 {
		x = max(x, s.points[n-1].x)
	}
	p := point{x: x + 1, span: int64(r.Makespan) * scale, slope: int64(r.Busy[s.row])}
	if first <= last {
		p.span = int64(r.ends[first]-r.took[first]+r.Makespan-r.late[last])*scale + int64(p.x)*p.slope
	}
	return p
}

// choose settles what lines settle, picks the points to evaluate next, which are those that gaps name, and then any, as far
// as there are lanes, and returns how many points are open.
func (s *slowed) choose(base, through point) (open int) {
	s.n = 0
	if len(s.points) > 0 && s.points[0].x < Same {
		s.pick(0) // no line from further below
	}
	s.gaps(base, through)
	for i := range s.points {
		s.pick(i)
		if s.points[i].state == unknown {
			open++
		}
	}
	return open
}

// pick adds a point to those to evaluate next, if it is open and there is a lane.
func (s *slowed) pick(i int) {
	if s.n < lanes && i >= 0 && i < len(s.points) && s.points[i].state == unknown && !slices.Contains(s.picked[:s.n], i) {
		s.picked[s.n] = i
		s.n++
	}
}

// gaps goes through the gaps between points whose lines are known: those evaluated, base and through.
func (s *slowed) gaps(base, through point) {
	left, lo := point{x: -1}, 0
	for i := 0; i <= len(s.points); i++ {
		right := through
		if i < len(s.points) {
			right = s.points[i]
		}
		if left.x < Same && right.x >= Same {
			s.gap(lo, i, left, base)
			left, lo = base, i
		}
		if i == len(s.points) || right.state == reached {
			s.gap(lo, i, left, right)
			left, lo = right, i+1
		}
	}
}

// gap settles the points from lo up to hi, which lie between two lines, or names those that will settle most: the two about
// where the lines cross, the first one, since the left line may be less steep than the makespan there, and one in the middle
// of those where the right line is above.
func (s *slowed) gap(lo, hi int, left, right point) {
	for lo < hi && s.points[lo].state != unknown {
		lo++
	}
	switch {
	case lo >= hi || left.x < 0:
	case left.at(right.x) == right.span || left.slope == right.slope: // none rises faster than through
		s.fill(lo, hi, left)
	case right.at(left.x) == left.span:
		s.fill(lo, hi, right)
	default:
		k := lo
		for k < hi && right.at(s.points[k].x) < left.at(s.points[k].x) {
			k++
		}
		s.pick(k - 1)
		if k < hi {
			s.pick(k)
		}
		s.pick(lo)
		s.pick((k + hi) / 2)
	}
}

// fill settles points on a line.
func (s *slowed) fill(lo, hi int, on point) {
	for i := lo; i < hi; i++ {
		if p := &s.points[i]; p.state == unknown {
			p.span, p.state = on.at(p.x), settled
		}
	}
}

// pass evaluates the points picked, and finds lines through them if those may be of use.
func (r *Result) pass(lines bool) {
	s, l := &r.slow, r.line
	pick := s.picked[:s.n]
	s.passes++
	var times [lanes]int64
	for k, i := range pick {
		times[k] = int64(s.points[i].x)
	}
	evaluateLanes(l.nodes, r.took, s.ends, s.hops, s.row, &times)
	for k, i := range pick {
		p := &s.points[i]
		last := int32(-1)
		for row := range l.rows {
			if at := l.base[row+1] - 1; last < 0 || s.ends[at][k] > s.ends[last][k] {
				last = at
			}
		}
		p.span, p.state = s.ends[last][k], settled
		if lines {
			p.slope, p.state = r.slope(last, k, times[k]), reached
		}
	}
}

// slope returns the time of the slow stage on the binding chain of one lane, which ends in the op at index at.
func (r *Result) slope(at int32, lane int, times int64) (sum int64) {
	s, l := &r.slow, r.line
	for {
		start := s.ends[at][lane] - int64(r.took[at])*scale
		if l.row[at] == s.row {
			start = s.ends[at][lane] - int64(r.took[at])*times
			sum += int64(r.took[at])
		}
		switch {
		case start == 0:
			return sum
		case s.ends[at-1][lane] == start:
			at--
		default:
			at = l.waits[at].on
		}
	}
}

// evaluateLanes is evaluate at the scale of factors, with ops of one row taking times as long in each lane. Its caller has seen
// to it that no sum passes the range.
func evaluateLanes(nodes []node, took []time.Duration, ends [][lanes]int64, hops []time.Duration, slow int32, times *[lanes]int64) {
	for i := range nodes {
		n := &nodes[i]
		free, there, end := &ends[n.at-1], &ends[n.dep], &ends[n.at]
		hop, d := int64(hops[n.hop]), int64(took[n.at])
		if n.row == slow {
			end[0] = max(free[0], there[0]+hop) + d*times[0]
			end[1] = max(free[1], there[1]+hop) + d*times[1]
			end[2] = max(free[2], there[2]+hop) + d*times[2]
			end[3] = max(free[3], there[3]+hop) + d*times[3]
			continue
		}
		d *= scale
		end[0] = max(free[0], there[0]+hop) + d
		end[1] = max(free[1], there[1]+hop) + d
		end[2] = max(free[2], there[2]+hop) + d
		end[3] = max(free[3], there[3]+hop) + d
	}
}
