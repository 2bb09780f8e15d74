package placement

import (
	"math/bits"
	"slices"
)

// allot is a part of a gang for one child of a domain, in the child's units.
type allot struct {
	child int32
	n     int32
}

// fill places n units of v into domain d of level l, which has room for them,
// and appends the members to the picks in slot order. The role is role.
func (s *State) fill(v *view, role int32, l int, d, n int32, spread bool) {
	if l == s.depth-1 {
		s.seatAt(d, role, v, n*v.unit(l))
		return
	}
	if l == int(v.kind.inner) {
		n *= v.kind.size
	}
	base := len(s.work.allots)
	if spread && l != int(v.kind.inner) {
		s.spread(v, l, d, n)
	} else {
		s.pack(v, l, d, n)
	}
	end := len(s.work.allots)
	if l+1 == s.depth-1 {
		per := v.unit(l + 1)
		for i := base; i < end; i++ {
			a := s.work.allots[i]
			s.seatAt(a.child, role, v, a.n*per)
		}
	} else {
		for i := base; i < end; i++ {
			a := s.work.allots[i]
			s.fill(v, role, l+1, a.child, a.n, spread)
		}
	}
	s.work.allots = s.work.allots[:base]
}

// pack allots n units to the children of a domain: to the smallest that has
// room for what is left, if any has; else the largest gets all it can hold, and
// so on. Among nodes, one in use goes before an idle one where either would do
// for the rest; ties go to the fewest free devices, then to the lowest index.
// In a ranked view see packRanked. The allotments come out by child.
func (s *State) pack(v *view, l int, d, n int32) {
	first, end := s.tree.Children(l, d)
	base := len(s.work.allots)
	switch {
	case v.ranked && l+1 == s.depth-1:
		s.packRanked(v, first, end, n)
	case end-first > s.cfg.wide:
		s.packWide(v, l+1, first, end, n)
	default:
		s.packNarrow(v, l+1, first, end, n)
	}
	got := s.work.allots[base:]
	for i := 1; i < len(got); i++ {
		if got[i].child < got[i-1].child {
			sortAllots(got)
			break
		}
	}
}

func sortAllots(a []allot) {
	slices.SortFunc(a, func(x, y allot) int { return int(x.child - y.child) })
}

// Sort keys of children: most units first, then mood, then index.
const (
	offsetBits = 8 // narrow: children are at most wide
	moodShift  = offsetBits
	unitShift  = offsetBits + moodBits
)

func (s *State) packNarrow(v *view, l int, first, end, n int32) {
	keys := s.work.keys[:0]
	node := l == s.depth-1
	sorted, last := true, uint64(0)
	for c := first; c < end; c++ {
		var units uint64
		var mood uint8
		if node {
			units, mood = uint64(v.units[c]), v.mood[c]
		} else {
			units = uint64(s.unitsOf(v, l, c))
		}
		if units == 0 {
			continue
		}
		k := (1<<40-1-units)<<unitShift | uint64(mood)<<moodShift | uint64(c-first)
		sorted = sorted && k > last
		last = k
		keys = append(keys, k)
	}
	s.work.keys = keys
	if !sorted {
		slices.Sort(keys)
	}
	for i := 0; n > 0; i++ {
		units := int32(1<<40 - 1 - keys[i]>>unitShift)
		if units < n {
			s.work.allots = append(s.work.allots, allot{first + int32(keys[i]&(1<<offsetBits-1)), units})
			n -= units
			continue
		}
		k := smallest(keys[i:], n, node)
		s.work.allots = append(s.work.allots, allot{first + int32(k&(1<<offsetBits-1)), n})
		n = 0
	}
}

// smallest returns the best of the keys for the last n units: sorted keys with
// room come first.
func smallest(keys []uint64, n int32, node bool) uint64 {
	limit := (1<<40 - uint64(n)) << unitShift // keys below have n units
	best := keys[0]
	for _, k := range keys[1:] {
		if k >= limit {
			break
		}
		if node && (k^best)>>moodShift&idleBit != 0 {
			if best>>moodShift&idleBit != 0 {
				best = k // in use
			}
			continue
		}
		if k>>unitShift != best>>unitShift {
			best = k // fewer units
		}
	}
	return best
}

// packWide is packNarrow by the index of level l.
func (s *State) packWide(v *view, l int, first, end, n int32) {
	set, node := &v.nodes, l == s.depth-1
	low := v.doms[l] // bits below a key's units
	if node {
		low += moodBits
	} else {
		set = &v.sets[l]
	}
	k, ok := v.roomiest(set, l, first, end, 1<<31, low)
	for ; n > 0 && ok; k, ok = v.roomiest(set, l, first, end, k>>low, low) {
		units := k >> low
		for c, in := k, true; n > 0 && in; c, in = v.within(set, l, first, end, c+1) {
			if c>>low != units {
				break
			}
			if int32(units) >= n {
				c = s.lastWide(v, set, l, first, end, n, c, node)
				s.work.allots = append(s.work.allots, allot{int32(c & (1<<v.doms[l] - 1)), n})
				n = 0
				break
			}
			s.work.allots = append(s.work.allots, allot{int32(c & (1<<v.doms[l] - 1)), int32(units)})
			n -= int32(units)
		}
	}
}

// lastWide returns the key of the best child for the last n units: now is the
// first one left of the most units.
func (s *State) lastWide(v *view, set *ordset, l int, first, end, n int32, now uint64, node bool) uint64 {
	low := v.doms[l]
	if !node {
		if k, ok := v.within(set, l, first, end, uint64(n)<<low); ok && k>>low < now>>low {
			return k
		}
		return now
	}
	low += moodBits
	idle, found := uint64(0), false
	for k, ok := v.within(set, l, first, end, uint64(n)<<low); ok && k>>low < now>>low; {
		if k>>v.doms[l]&idleBit == 0 {
			return k
		}
		if !found {
			idle, found = k, true
		}
		k, ok = v.within(set, l, first, end, (k>>low+1)<<low)
	}
	if found && now>>v.doms[l]&idleBit != 0 {
		return idle
	}
	return now
}

// within returns the least key of a child in [first, end) that is at least from.
func (v *view) within(set *ordset, l int, first, end int32, from uint64) (uint64, bool) {
	shift := v.doms[l]
	mask := uint64(1)<<shift - 1
	k, ok := set.next(from)
	for ok {
		x := int32(k & mask)
		if x >= first && x < end {
			return k, true
		}
		if x < first {
			k = k&^mask | uint64(first)
		} else {
			k = (k>>shift+1)<<shift | uint64(first)
		}
		k, ok = set.next(k)
	}
	return 0, false
}

// roomiest returns the least key, of a child in [first, end), of the most units
// below the given; low is the number of bits below a key's units.
func (v *view) roomiest(set *ordset, l int, first, end int32, below uint64, low uint) (uint64, bool) {
	for below > 0 {
		k, ok := set.prev(below<<low - 1)
		if !ok {
			return 0, false
		}
		below = k >> low
		if k, ok = v.within(set, l, first, end, below<<low); ok && k>>low == below {
			return k, true
		}
	}
	return 0, false
}

// spread allots n units to the children of a domain as equally as their room
// allows: each gets the same number or all it can hold, and those left over go
// one each to the children with most units, ties to the lowest index.
func (s *State) spread(v *view, l int, d, n int32) {
	first, end := s.tree.Children(l, d)
	lo, hi := int32(0), n // the level of the water: the greatest with sum <= n
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if s.poured(v, l+1, first, end, mid) <= int64(n) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	rest := n - int32(s.poured(v, l+1, first, end, lo))
	keys := s.work.keys[:0]
	for c := first; c < end && rest > 0; c++ {
		if units := s.unitsOf(v, l+1, c); units > lo {
			keys = append(keys, uint64(1<<31-int64(units))<<32|uint64(c))
		}
	}
	slices.Sort(keys)
	s.work.keys = keys
	extra := s.work.keys[:rest]
	base := len(s.work.allots)
	for c := first; c < end; c++ {
		if k := min(lo, s.unitsOf(v, l+1, c)); k > 0 {
			s.work.allots = append(s.work.allots, allot{c, k})
		}
	}
	for _, k := range extra {
		s.addAllot(base, allot{int32(k & (1<<32 - 1)), 1})
	}
	sortAllots(s.work.allots[base:])
}

func (s *State) addAllot(base int, a allot) {
	got := s.work.allots[base:]
	i, ok := slices.BinarySearchFunc(got, a, func(x, y allot) int { return int(x.child - y.child) })
	if ok {
		got[i].n += a.n
		return
	}
	s.work.allots = slices.Insert(s.work.allots, base+i, a)
}

// poured returns how many units the children take when each takes at most t.
func (s *State) poured(v *view, l int, first, end, t int32) (sum int64) {
	for c := first; c < end; c++ {
		sum += int64(min(t, s.unitsOf(v, l, c)))
	}
	return sum
}

// seatAt picks the devices of n members on a node.
func (s *State) seatAt(x, role int32, v *view, n int32) {
	switch v.kind.mode {
	case takesShare:
		s.seatShares(x, role, v, n)
		return
	case takesSlice:
		s.seatSlices(x, role, v, n)
		return
	}
	free, gpus := s.wholes(x, &s.slots[x]), int(v.kind.gpus)
	for range n {
		set := free
		if gpus != bits.OnesCount64(uint64(free)) {
			set = s.tree.Shape(x).Closest(free, gpus)
		}
		s.work.picks = append(s.work.picks, seat{slot: x, role: int16(role), devices: set})
		free &^= set
	}
}
