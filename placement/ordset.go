package placement

import "math/bits"

// maxDepth bounds the digits of an ordset: ten of six bits are below 2^60.
const maxDepth = 10

// ordset is an ordered set of integers below 64^depth: a trie with a digit of
// six bits a level, so that insert, remove, next and prev read depth words.
// Words that run empty are used again; a set that is warm allocates nothing.
type ordset struct {
	depth    int
	branches []branch // branches[0] is the root where depth > 1
	leaves   []uint64 // leaves[0] is the root where depth == 1
	freeB    []int32
	freeL    []int32
}

// branch is an inner word. Invariant: bit i is set exactly where child i holds
// something; other entries of child are stale.
type branch struct {
	bits  uint64
	child [64]int32
}

// newOrdset returns an empty set of integers below 2^width.
func newOrdset(width int) ordset {
	s := ordset{depth: min(max(1, (width+5)/6), maxDepth)}
	if s.depth == 1 {
		s.leaves = append(s.leaves, 0)
	} else {
		s.branches = append(s.branches, branch{})
	}
	return s
}

func digit(k uint64, height int) uint { return uint(k>>(6*uint(height))) & 63 }

func (s *ordset) insert(k uint64) {
	node := int32(0)
	for h := s.depth - 1; h > 0; h-- {
		d := digit(k, h)
		if s.branches[node].bits>>d&1 == 0 {
			child := s.grow(h - 1) // may move branches
			b := &s.branches[node]
			b.bits |= 1 << d
			b.child[d] = child
		}
		node = s.branches[node].child[d]
	}
	s.leaves[node] |= 1 << (k & 63)
}

// grow returns an empty word for height.
func (s *ordset) grow(height int) int32 {
	if height == 0 {
		if n := len(s.freeL); n > 0 {
			x := s.freeL[n-1]
			s.freeL = s.freeL[:n-1]
			return x
		}
		s.leaves = append(s.leaves, 0)
		return int32(len(s.leaves) - 1)
	}
	if n := len(s.freeB); n > 0 {
		x := s.freeB[n-1]
		s.freeB = s.freeB[:n-1]
		return x
	}
	s.branches = append(s.branches, branch{})
	return int32(len(s.branches) - 1)
}

func (s *ordset) remove(k uint64) {
	var path [maxDepth]int32
	node := int32(0)
	for h := s.depth - 1; h > 0; h-- {
		path[h] = node
		b := &s.branches[node]
		d := digit(k, h)
		if b.bits>>d&1 == 0 {
			return
		}
		node = b.child[d]
	}
	s.leaves[node] &^= 1 << (k & 63)
	if s.leaves[node] != 0 || s.depth == 1 {
		return
	}
	s.freeL = append(s.freeL, node)
	for h := 1; h < s.depth; h++ {
		b := &s.branches[path[h]]
		b.bits &^= 1 << digit(k, h)
		if b.bits != 0 || h == s.depth-1 {
			return
		}
		s.freeB = append(s.freeB, path[h])
	}
}

// next returns the least member that is at least k.
func (s *ordset) next(k uint64) (uint64, bool) {
	if k>>(6*uint(s.depth)) != 0 {
		return 0, false
	}
	path, h, word := s.descend(k)
	if h == 0 {
		if w := word &^ (1<<(k&63) - 1); w != 0 {
			return k&^63 | uint64(bits.TrailingZeros64(w)), true
		}
		h = 1
	}
	for ; h < s.depth; h++ {
		b := &s.branches[path[h]]
		w := b.bits &^ (2<<digit(k, h) - 1)
		if w == 0 {
			continue
		}
		d := bits.TrailingZeros64(w)
		k = k>>(6*uint(h)+6)<<6 | uint64(d)
		node := b.child[d]
		for h--; h > 0; h-- {
			b := &s.branches[node]
			d := bits.TrailingZeros64(b.bits)
			k = k<<6 | uint64(d)
			node = b.child[d]
		}
		return k<<6 | uint64(bits.TrailingZeros64(s.leaves[node])), true
	}
	return 0, false
}

// prev returns the greatest member that is at most k.
func (s *ordset) prev(k uint64) (uint64, bool) {
	if top := 6 * uint(s.depth); k>>top != 0 {
		k = 1<<top - 1
	}
	path, h, word := s.descend(k)
	if h == 0 {
		if w := word & (2<<(k&63) - 1); w != 0 {
			return k&^63 | uint64(63-bits.LeadingZeros64(w)), true
		}
		h = 1
	}
	for ; h < s.depth; h++ {
		b := &s.branches[path[h]]
		w := b.bits & (1<<digit(k, h) - 1)
		if w == 0 {
			continue
		}
		d := 63 - bits.LeadingZeros64(w)
		k = k>>(6*uint(h)+6)<<6 | uint64(d)
		node := b.child[d]
		for h--; h > 0; h-- {
			b := &s.branches[node]
			d := 63 - bits.LeadingZeros64(b.bits)
			k = k<<6 | uint64(d)
			node = b.child[d]
		}
		return k<<6 | uint64(63-bits.LeadingZeros64(s.leaves[node])), true
	}
	return 0, false
}

// descend follows the digits of k as far as they exist. It returns the words on
// the way, by height, and the height at which it stopped; at 0, the leaf.
func (s *ordset) descend(k uint64) (path [maxDepth]int32, h int, word uint64) {
	node := int32(0)
	for h = s.depth - 1; h > 0; h-- {
		path[h] = node
		b := &s.branches[node]
		d := digit(k, h)
		if b.bits>>d&1 == 0 {
			return path, h, 0
		}
		node = b.child[d]
	}
	return path, 0, s.leaves[node]
}

// words returns how much memory the set holds, in words of 64 bits.
func (s *ordset) words() int { return len(s.branches)*33 + len(s.leaves) }
