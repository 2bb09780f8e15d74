package placement

import "math/bits"

// build indexes every slot for v.
func (s *State) build(v *view) {
	leaf := s.depth - 2
	v.all = s.broad
	v.units, v.mood = make([]uint16, len(s.slots)), make([]uint8, len(s.slots))
	v.sums, v.sets, v.doms = make([][]int32, leaf+1), make([]ordset, leaf+1), make([]uint, s.depth)
	for l := range s.depth {
		v.doms[l] = uint(bits.Len(uint(s.tree.Domains(l))))
	}
	for l := range v.sums {
		v.sums[l] = make([]int32, s.tree.Domains(l))
		if l > 0 {
			v.sets[l] = newOrdset(bits.Len64(uint64(s.roomy[l])*uint64(v.bound)) + int(v.doms[l]))
		}
	}
	v.open = nil
	if v.ranked {
		v.marks, v.rankBits = make([]mark, len(s.slots)), s.rankBits(v)
		s.appraise(v)
		v.nodes = newOrdset(sizeBits + int(v.rankBits) + int(v.doms[s.depth-1]))
	} else {
		v.nodes = newOrdset(bits.Len32(uint32(v.bound)) + moodBits + int(v.doms[s.depth-1]))
	}
	for l := range v.run.at {
		v.run.at[l], v.run.by[l] = -1, 0
	}
	v.run.idle, v.free = false, 0
	v.flips = v.flipCount()
	for x := range s.slots {
		s.touch(v, int32(x))
	}
	s.flush(v)
	v.cursor, s.seen = s.end, s.end
	clear(v.totals)
	v.memo, v.lack = memo{}, lack{}
}

// sync brings v up to date: O(changes since it last was), or a new build where
// the ring no longer holds them.
func (s *State) sync(v *view) {
	if v.cursor == s.end && (!v.ranked || v.priced == s.markets) {
		return
	}
	if s.end-v.cursor > uint64(len(s.changed)) || v.ranked && v.priced != s.markets || len(v.terms) > 0 && v.flips != v.flipCount() {
		s.build(v)
		return
	}
	if v.ranked && len(v.dear) < len(s.models) {
		s.appraise(v) // nodes of new classes came
	}
	mask := uint64(len(s.changed) - 1)
	for ; v.cursor != s.end; v.cursor++ {
		s.touch(v, s.changed[v.cursor&mask])
	}
	s.seen = s.end
	s.flush(v)
}

// touch measures a slot again and gathers what that changes in its domains.
func (s *State) touch(v *view, x int32) {
	units, mood := v.measure(s, x)
	oldUnits, oldMood := v.units[x], v.mood[x]
	if v.ranked {
		s.rerank(v, x, units)
	}
	if units == oldUnits && mood == oldMood {
		return
	}
	v.units[x], v.mood[x] = units, mood
	if !v.ranked {
		v.move(x, oldUnits, oldMood)
	}
	leaf := s.depth - 2
	d := s.tree.DomainOf(leaf, x)
	if v.run.at[leaf] != d {
		s.flushLevel(v, leaf)
		v.run.at[leaf] = d
	}
	v.run.by[leaf] += int32(units) - int32(oldUnits)
	if oldMood&idleBit != 0 {
		o := s.opening(v, oldUnits)
		o.counts[d]--
		o.size--
		v.run.idle = true
	}
	if mood&idleBit != 0 {
		o := s.opening(v, units)
		o.counts[d]++
		o.size++
		v.run.idle = true
	}
}

// move moves a slot in v.nodes.
func (v *view) move(x int32, oldUnits uint16, oldMood uint8) {
	units, mood := v.units[x], v.mood[x]
	v.free += int64(mood&^idleBit) - int64(oldMood&^idleBit)
	if oldUnits > 0 && (v.all || oldMood&idleBit == 0) {
		v.nodes.remove(v.nodeKey(oldUnits, oldMood, x))
	}
	if units > 0 && (v.all || mood&idleBit == 0) {
		v.nodes.insert(v.nodeKey(units, mood, x))
	}
}

// opening returns the opening for idle nodes of so many units.
func (s *State) opening(v *view, units uint16) *opening {
	unused := -1
	for i := range v.open {
		if v.open[i].units == units {
			return &v.open[i]
		}
		if v.open[i].size == 0 {
			unused = i
		}
	}
	if unused >= 0 {
		v.open[unused].units = units
		return &v.open[unused]
	}
	leaf := s.depth - 2
	n := s.tree.Domains(leaf)
	v.open = append(v.open, opening{
		units: units, counts: make([]int32, n), listed: make([]bool, n),
		set: newOrdset(bits.Len64(uint64(s.roomy[leaf])*uint64(v.bound)) + int(v.doms[leaf])),
	})
	return &v.open[len(v.open)-1]
}

// nodeKey is the key of a slot in v.nodes: by units, then busy before idle, then
// fewest free devices, then lowest slot.
func (v *view) nodeKey(units uint16, mood uint8, x int32) uint64 {
	return (uint64(units)<<moodBits|uint64(mood))<<v.doms[len(v.doms)-1] | uint64(x)
}

func (s *State) flush(v *view) {
	for l := s.depth - 2; l >= 0; l-- {
		s.flushLevel(v, l)
	}
}

// flushLevel moves the domain gathered at a level to its new place, and hands
// the change on to the level above.
func (s *State) flushLevel(v *view, l int) {
	d, by := v.run.at[l], v.run.by[l]
	leaf := l == s.depth-2
	if d < 0 || by == 0 && !(leaf && v.run.idle) {
		v.run.at[l] = -1
		return
	}
	old := v.sums[l][d]
	sum := old + by
	v.sums[l][d] = sum
	if leaf {
		v.list(d, old, sum, v.doms[l])
	}
	v.run.at[l], v.run.by[l] = -1, 0
	if l == int(v.kind.inner) {
		old, sum = old/v.kind.size, sum/v.kind.size
	}
	if l == 0 || old == sum {
		return
	}
	if old > 0 {
		v.sets[l].remove(uint64(old)<<v.doms[l] | uint64(d))
	}
	if sum > 0 {
		v.sets[l].insert(uint64(sum)<<v.doms[l] | uint64(d))
	}
	parent := s.tree.Parent(l, d)
	if v.run.at[l-1] != parent {
		s.flushLevel(v, l-1)
		v.run.at[l-1] = parent
	}
	v.run.by[l-1] += sum - old
}

// list keeps the openings of a lowest domain under its sum.
func (v *view) list(d, old, sum int32, shift uint) {
	v.run.idle = false
	for i := range v.open {
		o := &v.open[i]
		was, is := o.listed[d], o.counts[d] > 0
		if was && (!is || old != sum) {
			o.set.remove(uint64(old)<<shift | uint64(d))
			o.size--
		}
		if is && (!was || old != sum) {
			o.set.insert(uint64(sum)<<shift | uint64(d))
			o.size++
		}
		o.listed[d] = is
	}
}

// nextOpen returns the least key, from at least from, of a lowest domain that
// has an idle node with need units.
func (v *view) nextOpen(need int32, from uint64) (key uint64, ok bool) {
	for i := range v.open {
		if int32(v.open[i].units) < need {
			continue
		}
		if k, found := v.open[i].set.next(from); found && (!ok || k < key) {
			key, ok = k, true
		}
	}
	return key, ok
}

// unitsOf returns how many units of v fit into domain d of level l, in the units
// of that level.
func (s *State) unitsOf(v *view, l int, d int32) int32 {
	if l == s.depth-1 {
		return int32(v.units[d])
	}
	if l == int(v.kind.inner) {
		return v.sums[l][d] / v.kind.size
	}
	return v.sums[l][d]
}

// unit returns how many members one unit is at level l.
func (v *view) unit(l int) int32 {
	if l <= int(v.kind.inner) {
		return v.kind.size
	}
	return 1
}
