package placement

// walk yields the domains of a level that have room for need units, best first.
// Pack: least units, then lowest domain. Spread: most units, then lowest domain.
// At the level of nodes it is one order for both: in a ranked view by rank; else nodes in use by units, free
// devices and slot; then idle nodes, from the lowest domain with least units on,
// within it by units, free devices and slot.
type walk struct {
	s      *State
	v      *view
	level  int
	need   int32
	spread bool
	idle   bool   // past the nodes in use
	key    uint64 // where to go on
	domain uint64 // idle nodes: where to go on in the openings
	now    int32  // idle nodes: the lowest domain at hand, or -1
	run    uint64 // spread: the units at hand
}

func (s *State) walk(v *view, level int, need int32, spread bool) walk {
	w := walk{s: s, v: v, level: level, need: need, spread: spread, now: -1}
	switch {
	case level == 0, level == s.depth-1 && v.ranked:
	case level == s.depth-1:
		w.key = uint64(need) << moodBits << v.doms[level]
		w.domain = uint64(need) << v.doms[level-1]
	case spread:
		w.run = 1 << 62
		w.key = ^uint64(0)
	default:
		w.key = uint64(need) << v.doms[level]
	}
	return w
}

func (w *walk) next() (d int32, ok bool) {
	switch {
	case w.level == 0:
		ok = w.key == 0 && w.s.unitsOf(w.v, 0, 0) >= w.need
		w.key = 1
		return 0, ok
	case w.level == w.s.depth-1 && w.v.ranked:
		return w.nextRanked()
	case w.level == w.s.depth-1:
		return w.nextNode()
	case w.spread:
		return w.nextRoomiest()
	}
	k, ok := w.v.sets[w.level].next(w.key)
	w.key = k + 1
	return int32(k & (1<<w.v.doms[w.level] - 1)), ok
}

func (w *walk) nextRoomiest() (int32, bool) {
	set, shift := &w.v.sets[w.level], w.v.doms[w.level]
	if w.run != 1<<62 {
		if k, ok := set.next(w.key); ok && k>>shift == w.run {
			w.key = k + 1
			return int32(k & (1<<shift - 1)), true
		}
	}
	below := ^uint64(0)
	if w.run != 1<<62 {
		below = w.run<<shift - 1 // run is at least need, so at least 1
	}
	k, ok := set.prev(below)
	if !ok || k>>shift < uint64(w.need) {
		w.run, w.key = 0, ^uint64(0)
		return 0, false
	}
	w.run = k >> shift
	k, _ = set.next(w.run << shift)
	w.key = k + 1
	return int32(k & (1<<shift - 1)), true
}

func (w *walk) nextNode() (int32, bool) {
	shift := w.v.doms[w.level]
	for !w.idle {
		k, ok := w.v.nodes.next(w.key)
		if !ok {
			w.idle, w.key = true, 0
			break
		}
		if k>>shift&idleBit == 0 {
			w.key = k + 1
			return int32(k & (1<<shift - 1)), true
		}
		w.key = (k>>shift>>moodBits + 1) << moodBits << shift // past the idle ones with as many units
	}
	for {
		if w.now >= 0 {
			if x, ok := w.s.idleIn(w.v, w.now, w.need, w.key); ok {
				w.key = w.v.nodeKey(w.v.units[x], w.v.mood[x], x) + 1
				return x, true
			}
		}
		k, ok := w.v.nextOpen(w.need, w.domain)
		if !ok {
			w.now = -1
			return 0, false
		}
		w.domain, w.key = k+1, 0
		w.now = int32(k & (1<<w.v.doms[w.level-1] - 1))
	}
}

// idleIn returns the idle node of a lowest domain with least key among those
// that have need units and a key of at least from.
func (s *State) idleIn(v *view, d, need int32, from uint64) (int32, bool) {
	first, end := s.tree.Range(s.depth-2, d)
	if v.all {
		return v.idleWithin(first, end, need, from)
	}
	best, bestKey := int32(-1), ^uint64(0)
	for x := first; x < end; x++ {
		if v.mood[x]&idleBit == 0 || int32(v.units[x]) < need {
			continue
		}
		if k := v.nodeKey(v.units[x], v.mood[x], x); k >= from && k < bestKey {
			best, bestKey = x, k
		}
	}
	return best, best >= 0
}

// idleWithin is idleIn by index. It visits each combination of units and free
// devices at most twice.
func (v *view) idleWithin(first, end, need int32, from uint64) (int32, bool) {
	shift := v.doms[len(v.doms)-1]
	k, ok := v.nodes.next(max(from, (uint64(need)<<moodBits|idleBit)<<shift|uint64(first)))
	for ok {
		kind, x := k>>shift, int32(k&(1<<shift-1))
		switch {
		case kind&idleBit == 0:
			k = (kind>>moodBits<<moodBits|idleBit)<<shift | uint64(first)
		case x < first:
			k = kind<<shift | uint64(first)
		case x >= end:
			k = (kind+1)<<shift | uint64(first)
		default:
			return x, true
		}
		k, ok = v.nodes.next(k)
	}
	return 0, false
}
