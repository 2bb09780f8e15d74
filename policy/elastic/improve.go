package elastic

import (
	"math/rand/v2"
	"slices"
)

// sizesFor returns the counts that j is tried with, besides the one it has.
func (s *Search) sizesFor(j *state) []int {
	s.sizes = s.sizes[:0]
	add := func(n int) {
		if n >= j.least && n <= j.most && n != j.n && !slices.Contains(s.sizes, n) {
			s.sizes = append(s.sizes, n)
		}
	}
	add(j.heldN)
	for _, d := range []int{1, 2, 4, 8} {
		add(j.n + d)
		add(j.n - d)
	}
	add(j.n * 2)
	add(j.n / 2)
	add(j.least)
	add(j.most)
	return s.sizes
}

// fill gives jobs of a group that wait their least, in that order, while there is room, and then lets the group grow.
func (s *Search) fill(group []int) {
	for _, i := range group {
		j := &s.jobs[i]
		if j.n > 0 || s.total < j.least {
			continue
		}
		spots, ok := s.place(s.first, j, j.least)
		if s.first = spots; ok && j.costOn(spots) < j.cost { // GPUs that do not help it are not given
			s.settle(j, spots)
		}
	}
	s.grow(group)
}

// bid is what a job would have next.
type bid struct {
	per int64 // by how much its cost falls, for each GPU
	n   int   // how many GPUs it would have
	job int
}

func (b bid) before(o bid) bool { return b.per > o.per || b.per == o.per && b.job < o.job }

// grow gives free GPUs to jobs of a group, each time to the one whose cost falls most for each GPU. Bids only become
// worse as room is taken, so that one that is still as good as it was is the best.
func (s *Search) grow(group []int) {
	s.bids = s.bids[:0]
	for _, i := range group {
		if b := s.bid(i); b.per > 0 {
			s.bids = append(s.bids, b)
			ordered(s.bids).up(len(s.bids) - 1)
		}
	}
	for len(s.bids) > 0 && s.total > 0 {
		b := s.bid(s.bids[0].job)
		if b == s.bids[0] {
			j := &s.jobs[b.job]
			s.drop(j.cur)
			spots, _ := s.place(s.first, j, b.n)
			s.first = spots
			s.settle(j, spots)
			b = s.bid(b.job)
		}
		if b.per > 0 {
			s.bids[0] = b
		} else {
			last := len(s.bids) - 1
			s.bids[0] = s.bids[last]
			s.bids = s.bids[:last]
		}
		ordered(s.bids).down()
	}
}

// bid returns what job i would do best with more GPUs, for each of them.
func (s *Search) bid(i int) bid {
	j, best := &s.jobs[i], bid{job: i}
	if j.pinned || j.n >= j.most || s.total == 0 {
		return best
	}
	sizes := s.sizesFor(j)
	s.drop(j.cur)
	for _, n := range sizes {
		if n <= j.n || n-j.n > s.total {
			continue
		}
		s.tried++
		spots, ok := s.place(s.first, j, n)
		s.first = spots
		if !ok {
			continue
		}
		if per := (j.cost - j.costOn(spots)) / int64(n-j.n); per > best.per {
			best.per, best.n = per, n
		}
	}
	s.take(j.cur)
	return best
}

// ordered is a heap of bids.
type ordered []bid

func (h ordered) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (h ordered) down() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// settle puts j, which holds nothing, on spots.
func (s *Search) settle(j *state, spots []Spot) {
	j.cur = append(j.cur[:0], spots...)
	j.n = 0
	for _, sp := range spots {
		j.n += sp.GPUs
	}
	s.take(j.cur)
	j.cost = j.costOn(j.cur)
}

// change is the best change that was found for a job.
type change struct {
	gain  int64
	other int // index of the job that makes room; -1 for none
}

// improve changes one job, or two at once, while that lowers the sum of costs. Changes of two are tried when no
// change of one is left.
func (s *Search) improve() {
	for pair := false; s.tried < s.cfg.Effort; {
		again := false
		for _, i := range s.turns {
			j := &s.jobs[i]
			if j.pinned || s.tried >= s.cfg.Effort {
				continue
			}
			c := s.alone(j)
			if pair {
				s.together(i, j, &c)
			}
			if c.gain > 0 {
				s.apply(j, c)
				again = true
			}
		}
		if !again && pair {
			return
		}
		pair = !again
	}
}

// apply makes a change that was found.
func (s *Search) apply(j *state, c change) {
	s.drop(j.cur)
	if c.other < 0 {
		s.settle(j, s.best)
		return
	}
	v := &s.jobs[c.other]
	s.drop(v.cur)
	s.settle(j, s.best)
	s.settle(v, s.other)
}

// alone tries j with other counts, in what is free.
func (s *Search) alone(j *state) change {
	c := change{other: -1}
	s.drop(j.cur)
	try := func(spots []Spot, ok bool) {
		s.tried++
		s.first = spots
		if !ok {
			return
		}
		if gain := j.cost - j.costOn(spots); gain > c.gain {
			c.gain = gain
			s.best = append(s.best[:0], spots...)
		}
	}
	for _, n := range s.sizesFor(j) {
		try(s.place(s.first, j, n))
	}
	if len(j.cur) > 1 { // fewer nodes may hold as many
		try(s.anew(s.first[:0], j.n))
	}
	s.take(j.cur)
	return c
}

// together tries j with more GPUs, for which another job moves or shrinks.
func (s *Search) together(i int, j *state, c *change) {
	sizes := s.sizesFor(j)
	s.drop(j.cur)
	for k := range s.jobs {
		v := &s.jobs[k]
		if k == i || v.pinned || v.n == 0 {
			continue
		}
		if s.tried >= s.cfg.Effort {
			break
		}
		s.drop(v.cur)
		for _, n := range sizes {
			if n <= j.n {
				continue
			}
			s.tried++
			spots, ok := s.place(s.first, j, n)
			s.first = spots
			if !ok {
				continue
			}
			gain := j.cost - j.costOn(spots)
			if gain <= c.gain {
				continue
			}
			s.take(spots)
			rest, cost := s.shrunk(v)
			s.drop(spots)
			if gain += v.cost - cost; gain > c.gain {
				c.gain, c.other = gain, k
				s.best, s.other = append(s.best[:0], spots...), append(s.other[:0], rest...)
			}
		}
		s.take(v.cur)
	}
	s.take(j.cur)
}

// shrunk places v with as many GPUs as it has or the most that fit, down to none.
func (s *Search) shrunk(v *state) ([]Spot, int64) {
	n := min(v.n, s.total)
	for ; n >= v.least; n-- {
		if spots, ok := s.place(s.second, v, n); ok {
			s.second = spots
			return spots, v.costOn(spots)
		}
	}
	return nil, v.costOn(nil)
}

// rebuild clears some nodes at a time and fills them anew, while that lowers the sum of costs: what no change of
// two jobs can do. Each job's nodes are tried, with one other node.
func (s *Search) rebuild(rng *rand.Rand) (better bool) {
	if len(s.free) == 0 {
		return false
	}
	for _, anchor := range s.turns {
		if s.tried >= s.cfg.Effort {
			break
		}
		s.tried += 1 + len(s.jobs)/64 // clear looks at all jobs
		s.clear(anchor, rng.IntN(len(s.free)))
		if len(s.group) < 2 || len(s.group) > maxGroup {
			continue
		}
		before, after := int64(0), int64(0)
		s.saved = s.saved[:0]
		for _, i := range s.group {
			j := &s.jobs[i]
			before += j.cost
			s.saved = append(s.saved, j.cur...)
			s.drop(j.cur)
			j.cur, j.n, j.was, j.cost = j.cur[:0], 0, len(j.cur), j.costOn(nil)
		}
		s.fill(s.group)
		for _, i := range s.group {
			after += s.jobs[i].cost
		}
		if after < before {
			better = true
			continue
		}
		s.restore()
	}
	return better
}

// maxGroup is how many jobs are placed anew at once.
const maxGroup = 8

// clear chooses the jobs on the nodes of one job, and on one other node, in the order of turns.
func (s *Search) clear(anchor, node int) {
	s.group = s.group[:0]
	for _, i := range s.turns {
		j := &s.jobs[i]
		if j.pinned {
			continue
		}
		if i == anchor || taken(j.cur, node) || slices.ContainsFunc(j.cur, func(sp Spot) bool { return taken(s.jobs[anchor].cur, sp.Node) }) {
			s.group = append(s.group, i)
		}
	}
}

// restore puts a group back where it was.
func (s *Search) restore() {
	for _, i := range s.group {
		s.drop(s.jobs[i].cur)
	}
	at := 0
	for _, i := range s.group {
		j := &s.jobs[i]
		s.settle(j, s.saved[at:at+j.was])
		at += j.was
	}
}
