package elastic

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// shelf keeps nodes by how many GPUs are free on them.
type shelf struct {
	words  int
	level  [lockstep.MaxDevicesPerNode + 1][]uint64 // a bit for each node
	number [lockstep.MaxDevicesPerNode + 1]int
}

// reset makes the shelf empty, for that many nodes of that many GPUs at most.
func (h *shelf) reset(nodes, most int) {
	h.words = (nodes + 63) / 64
	h.number = [len(h.number)]int{}
	for i := range most + 1 {
		h.level[i] = slices.Grow(h.level[i][:0], h.words)[:h.words]
		clear(h.level[i])
	}
}

func (h *shelf) add(node, free int) {
	h.level[free][node/64] |= 1 << (node % 64)
	h.number[free]++
}

func (h *shelf) remove(node, free int) {
	h.level[free][node/64] &^= 1 << (node % 64)
	h.number[free]--
}

// first returns the first node with that many free GPUs that is none of spots; -1 if there is none.
func (h *shelf) first(free int, spots []Spot) int {
	if h.number[free] == 0 {
		return -1
	}
	for w, word := range h.level[free] {
		for ; word != 0; word &= word - 1 {
			if node := 64*w + bits.TrailingZeros64(word); !taken(spots, node) {
				return node
			}
		}
	}
	return -1
}

func taken(spots []Spot, node int) bool {
	for _, sp := range spots {
		if sp.Node == node {
			return true
		}
	}
	return false
}

// lay puts all nodes on the shelves.
func (s *Search) lay(nodes []int) {
	s.free = append(s.free[:0], nodes...)
	s.across = slices.Grow(s.across[:0], len(nodes))[:len(nodes)]
	clear(s.across)
	s.total, s.top = 0, 0
	for _, n := range nodes {
		s.total, s.top = s.total+n, max(s.top, n)
	}
	s.all.reset(len(nodes), s.top)
	s.clean.reset(len(nodes), s.top)
	for i, n := range nodes {
		s.all.add(i, n)
		s.clean.add(i, n)
	}
}

// room says whether there are as many GPUs free as spots take.
func (s *Search) room(spots []Spot) bool {
	for _, sp := range spots {
		if sp.Node >= len(s.free) || s.free[sp.Node] < sp.GPUs {
			return false
		}
	}
	return true
}

// fits says whether a job that holds nothing may have spots.
func (s *Search) fits(spots []Spot) bool {
	for _, sp := range spots {
		if len(spots) > 1 && sp.Node < len(s.free) && s.across[sp.Node] > 0 {
			return false
		}
	}
	return s.room(spots)
}

func (s *Search) take(spots []Spot) { s.shift(spots, 1) }
func (s *Search) drop(spots []Spot) { s.shift(spots, -1) }

// shift takes spots, or gives them back.
func (s *Search) shift(spots []Spot, sign int) {
	span := 0
	if len(spots) > 1 {
		span = sign
	}
	for _, sp := range spots {
		before, after := s.free[sp.Node], s.free[sp.Node]-sign*sp.GPUs
		s.all.remove(sp.Node, before)
		s.all.add(sp.Node, after)
		if s.across[sp.Node] == 0 {
			s.clean.remove(sp.Node, before)
		}
		s.across[sp.Node] += span
		if s.across[sp.Node] == 0 {
			s.clean.add(sp.Node, after)
		}
		s.free[sp.Node] = after
		s.total -= sign * sp.GPUs
	}
}

// place finds n GPUs for a job that holds nothing: where it runs, where it stands, on the one node where it runs, on the
// node that they fill best, or over as few nodes as can be. It reports false where there are none.
func (s *Search) place(dst []Spot, j *state, n int) ([]Spot, bool) {
	dst = dst[:0]
	switch {
	case n == 0:
		return dst, true
	case n > s.total:
		return dst, false
	case n == j.heldN && s.fits(j.held):
		return append(dst, j.held...), true
	case n == j.n && s.fits(j.cur):
		return append(dst, j.cur...), true
	case len(j.held) == 1 && j.held[0].Node < len(s.free) && s.free[j.held[0].Node] >= n:
		return append(dst, Spot{j.held[0].Node, n}), true
	}
	return s.anew(dst, n)
}

// anew finds n GPUs for a job wherever it may be now: on the node with the fewest free ones that are enough, the
// first of them, or on several.
func (s *Search) anew(dst []Spot, n int) ([]Spot, bool) {
	for f := n; f <= s.top; f++ {
		if node := s.all.first(f, nil); node >= 0 {
			return append(dst, Spot{node, n}), true
		}
	}
	return s.span(dst, n)
}

// span takes the nodes with the most free GPUs, of those without a part of another job that spans nodes, and the
// rest from where it fits best.
func (s *Search) span(dst []Spot, n int) ([]Spot, bool) {
	for n > 0 {
		node := -1
		for f := n; f <= s.top && node < 0; f++ {
			node = s.clean.first(f, dst)
		}
		for f := min(n-1, s.top); f > 0 && node < 0; f-- {
			node = s.clean.first(f, dst)
		}
		if node < 0 {
			return dst, false
		}
		got := min(n, s.free[node])
		dst = append(dst, Spot{node, got})
		n -= got
	}
	slices.SortFunc(dst, func(a, b Spot) int { return a.Node - b.Node })
	return dst, true
}
