package placement

import (
	"math"
)

// growth returns by how much a member of v would make the fragmentation of c, which is
// slot x as it is, grow on the best devices for it, weighed by the counts of the mix.
func (s *State) growth(v *view, x int32, c *slot) int64 {
	k, m, w := &v.kind, s.market.mix, &s.work
	idle := s.shared(k, x, c)
	line := v.lines[c.model]
	before, after := m.at(line, c.cpu), m.at(line, c.cpu-k.cpu)
	had := m.usable(before, idle, w.left)
	switch {
	case k.gpus == 0:
		return had - m.usable(after, idle, w.left)
	case k.mode == takesWhole:
		return had - m.usable(after, idle-int64(k.gpus), w.left) - m.weight*1000*int64(k.gpus)
	case k.gpus == 1:
		t := s.trial(m, after, idle)
		best := int64(math.MinInt64)
		if idle > 0 {
			best = t.with(m, 1000, 1000-int32(k.share))
		}
		for i := range w.devices {
			if o := &w.devices[i]; o.room(k) > 0 {
				best = max(best, t.with(m, o.milli, o.milli-int32(k.share)))
			}
		}
		return had - best - m.weight*int64(k.share)
	}
	s.all(k, x, c)
	s.tightest(k, 1)
	w.left = w.left[:0]
	for i := range w.devices {
		w.left = append(w.left, w.devices[i].milli)
	}
	return had - m.usable(after, 0, w.left) - m.weight*int64(k.share)*int64(k.gpus)
}

// leastGrowth returns the device of w.devices for one share of v, on a node with so much
// CPU: that with which fragmentation grows least, then the tightest, then the lowest.
func (s *State) leastGrowth(v *view, c *slot, cpu int64) int {
	k, m, w := &v.kind, s.market.mix, &s.work
	w.left = w.left[:0]
	for i := range w.devices {
		w.left = append(w.left, w.devices[i].milli)
	}
	t := s.trial(m, m.at(v.lines[c.model], cpu-k.cpu), 0)
	pick, most := -1, int64(0)
	for i := range w.devices {
		o := &w.devices[i]
		if o.room(k) == 0 {
			continue
		}
		left := t.with(m, o.milli, o.milli-int32(k.share))
		if pick < 0 || left > most || left == most && o.milli < w.devices[pick].milli {
			pick, most = i, left
		}
	}
	return pick
}
