package placement

import (
	"math/bits"
	"slices"
)

// A ranked view chooses nodes by rank: of those with room the one of the least
// rank, and of these the lowest slot. Its index, nodes, groups them by the bit
// length of their units, so that the nodes with room for several members are found
// without a look at most of the others.
const (
	sizeBits     = 4  // bit lengths of units, 1 to 11
	priceBits    = 23 // of ranks by RulePrices
	gradientBits = 7  // of ranks by RuleGradient
	sliceBits    = 13 // of ranks for MIG instances
)

// mark is what a ranked view keeps of a slot.
type mark struct {
	rank  uint32 // the lower the better for a member; 0 where there is no room
	milli int32  // what is free for members, where they may use it, in thousandths of devices
}

func (s *State) rankBits(v *view) uint {
	switch {
	case v.kind.mode == takesSlice:
		return sliceBits
	case s.cfg.Rule == RuleGradient:
		return gradientBits
	}
	return priceBits
}

// rankKey is the key of a slot in v.nodes.
func (v *view) rankKey(size uint, rank uint32, x int32) uint64 {
	return (uint64(size)<<v.rankBits|uint64(rank))<<v.doms[len(v.doms)-1] | uint64(x)
}

// rerank ranks a slot again, that has units now and had v.units[x].
func (s *State) rerank(v *view, x int32, units uint16) {
	old, was := v.marks[x], v.units[x]
	var o mark
	if v.allows(s, x) {
		o.milli = s.milliFor(v, x, &s.slots[x])
	}
	if units > 0 {
		o.rank = s.rankOf(v, x)
	}
	if o == old && units == was {
		return
	}
	v.marks[x] = o
	v.free += int64(o.milli) - int64(old.milli)
	now, then := uint(bits.Len16(units)), uint(bits.Len16(was))
	if now == then && o.rank == old.rank {
		return
	}
	if was > 0 {
		v.nodes.remove(v.rankKey(then, old.rank, x))
	}
	if units > 0 {
		v.nodes.insert(v.rankKey(now, o.rank, x))
	}
}

// rankOf says how good a slot with room is for a member of v: the lower the better.
func (s *State) rankOf(v *view, x int32) uint32 {
	c := &s.slots[x]
	switch {
	case v.kind.mode == takesSlice:
		return s.rankSlice(v, x, c)
	case s.cfg.Rule == RuleGradient:
		return s.market.mix.coarse(s.growth(v, x, c))
	}
	return uint32(min(max(s.costOf(v, x, c)>>costShift+costBase, 0), 1<<priceBits-1))
}

// nextRanked returns the least key, of rank and slot, that is at least from, of a
// node with need units.
func (v *view) nextRanked(need int32, from uint64) (key uint64, ok bool) {
	shift := v.doms[len(v.doms)-1]
	least := uint(bits.Len32(uint32(need)))
	mask := uint64(1)<<(v.rankBits+shift) - 1
	if from > mask {
		return 0, false
	}
	for size := least; size <= uint(bits.Len(MaxSlots)); size++ {
		base := uint64(size) << (v.rankBits + shift)
		k, found := v.nodes.next(base | from)
		for found && k&^mask == base && size == least && int32(v.units[k&(1<<shift-1)]) < need {
			k, found = v.nodes.next(k + 1)
		}
		if found && k&^mask == base && (!ok || k&mask < key) {
			key, ok = k&mask, true
		}
	}
	return key, ok
}

// nextRanked is nextNode in a ranked view.
func (w *walk) nextRanked() (int32, bool) {
	k, ok := w.v.nextRanked(w.need, w.key)
	if !ok {
		return 0, false
	}
	w.key = k + 1
	return int32(k & (1<<w.v.doms[w.level] - 1)), true
}

// packRanked is pack among nodes of a ranked view: of those with room for all that
// is left the one of the least rank; else the one with most units, of these the one
// of the least rank, takes all it can, and again. Ties go to the lowest slot.
func (s *State) packRanked(v *view, first, end, n int32) {
	const unitShift, rankShift = 64 - 11, 64 - 11 - priceBits
	keys := s.work.keys[:0]
	for x := first; x < end; x++ {
		if units := uint64(v.units[x]); units > 0 {
			keys = append(keys, (MaxSlots-units)<<unitShift|uint64(v.marks[x].rank)<<rankShift|uint64(x))
		}
	}
	s.work.keys = keys
	slices.Sort(keys)
	for i := 0; n > 0; i++ {
		units := int32(MaxSlots - keys[i]>>unitShift)
		k := keys[i]
		if units >= n {
			for _, o := range keys[i+1:] {
				if int32(MaxSlots-o>>unitShift) < n {
					break
				}
				if o<<11 < k<<11 {
					k = o
				}
			}
			units = n
		}
		s.work.allots = append(s.work.allots, allot{int32(k & (1<<rankShift - 1)), units})
		n -= units
	}
}
