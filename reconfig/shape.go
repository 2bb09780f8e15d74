package reconfig

import (
	"encoding/binary"
	"slices"
)

// shape is all that the time of a pipeline depends on, and what is known of it.
type shape struct {
	id       int // of the order in which they were made
	slots    []slot
	hops     []int64    // by stage: to the next one; the last: back to the first
	replicas int        // how many replicas share the optimizer state, where that matters
	hints    []division // those that plans before had
	fixed    division   // the one that it must have; nil for none
	times    []timed    // by micros, ascending
	best     map[string][]division
	least    int64 // what a micro-batch takes at least; 0 is not known
	worthAt  int64 // the top that worth is for
	worth    worth
	slope    int64 // what one more micro-batch takes, about; 0 is not known
}

// division is a way to deal out the layers, by stage.
type division []int32

// timed is what is known of a shape for one number of micro-batches.
type timed struct {
	micros int32
	took   int64
	layers division
}

// shapes interns shapes.
type shapes struct {
	made    int
	w       *world
	all     map[string]*shape
	key     []byte
	fixed   division // the division that all must have, nil for none
	deep    bool     // improve divisions by simulation
	limit   int64    // no more improving once so many operations were simulated
	lanes   []lane
	virt    []int32
	scratch division
}

// use has all shapes made from now on deal out their layers in one way; nil lifts
// that.
func (s *shapes) use(d division) {
	if !slices.Equal(s.fixed, d) {
		s.fixed, s.all = d, map[string]*shape{}
	}
}

// of returns the shape of a pipeline of groups.
func (s *shapes) of(groups []*group, replicas int) *shape { return s.keeping(groups, replicas, nil) }

// keeping returns the shape of a pipeline of groups that must keep its layers, unless
// that is nil or all have to have the same ones.
func (s *shapes) keeping(groups []*group, replicas int, keeps division) *shape {
	w := s.w
	if !w.limited || w.job.Layout.ZeRO == 0 && w.job.Layout.EP <= 1 {
		replicas = 1
	}
	fixed := s.fixed
	if fixed == nil {
		fixed = keeps
	}
	key := binary.AppendUvarint(s.key[:0], uint64(replicas))
	for _, n := range fixed {
		key = binary.AppendUvarint(key, uint64(n))
	}
	key = binary.AppendUvarint(key, 0) // no stage has no layers
	for i, g := range groups {
		key = binary.AppendUvarint(key, uint64(g.rate))
		spread := uint64(0)
		if g.spread {
			spread = 1
		}
		key = binary.AppendUvarint(key, uint64(len(g.devs))<<1|spread)
		if w.limited {
			key = binary.AppendUvarint(key, uint64(g.mem))
		}
		key = binary.AppendUvarint(key, uint64(w.hop(g, groups[(i+1)%len(groups)])))
	}
	s.key = key
	if sh, ok := s.all[string(key)]; ok {
		return sh
	}
	s.made++
	sh := &shape{id: s.made, replicas: replicas, fixed: fixed}
	for i, g := range groups {
		sh.slots = append(sh.slots, g.slot())
		sh.hops = append(sh.hops, w.hop(g, groups[(i+1)%len(groups)]))
	}
	s.all[string(key)] = sh
	return sh
}

// hint has a division tried before others.
func (sh *shape) hint(layers division) {
	for _, h := range sh.hints {
		if slices.Equal(h, layers) {
			return
		}
	}
	sh.hints = append(sh.hints, layers)
	sh.times, sh.best, sh.worthAt = nil, nil, 0
}

// time returns what the shape takes for so many micro-batches, and how the layers
// are dealt out then; forever if it cannot take them.
func (s *shapes) time(sh *shape, micros int) (int64, division) {
	if micros == 0 {
		return 0, nil
	}
	i, found := slices.BinarySearchFunc(sh.times, int32(micros), func(t timed, m int32) int { return int(t.micros - m) })
	if found {
		return sh.times[i].took, sh.times[i].layers
	}
	t := timed{micros: int32(micros), took: forever}
	for _, d := range s.divisions(sh, micros) {
		if s.atLeast(sh, d, micros) >= t.took {
			continue
		}
		if took := s.run(sh, d, micros); took < t.took {
			t.took, t.layers = took, d
		}
	}
	if s.deep && t.took < forever {
		s.improve(sh, &t)
	}
	sh.times = slices.Insert(sh.times, i, t)
	s.level(sh, i)
	return sh.times[i].took, sh.times[i].layers
}

// level keeps times from falling as micro-batches are added: what is good for more
// is good for fewer.
func (s *shapes) level(sh *shape, at int) {
	for at+1 < len(sh.times) && sh.times[at].took > sh.times[at+1].took {
		if !s.adopt(sh, at, sh.times[at+1].layers) {
			break
		}
	}
	for i := at - 1; i >= 0 && sh.times[i].took > sh.times[at].took; i-- {
		if !s.adopt(sh, i, sh.times[at].layers) {
			break
		}
	}
}

// adopt tries a division at entry i.
func (s *shapes) adopt(sh *shape, i int, d division) bool {
	t := &sh.times[i]
	if d == nil || !s.measure(sh, int(t.micros)) || !s.fits(d) {
		return false
	}
	took := s.run(sh, d, int(t.micros))
	if took >= t.took {
		return false
	}
	t.took, t.layers = took, d
	return true
}

// atLeast returns a time that no simulation of the division is below: that of its
// slowest stage. The lanes must be those of the shape.
func (s *shapes) atLeast(sh *shape, d division, micros int) int64 {
	if s.w.chunks > 1 {
		return 0
	}
	most, at := int64(0), 0
	for i, n := range d {
		most = max(most, s.w.laneCost(&s.lanes[i], at, at+int(n)))
		at += int(n)
	}
	return quotient(most, int64(micros), 1)
}

// most returns how many micro-batches a shape cannot do more of within the bound, by
// its slowest stage alone.
func (s *shapes) most(sh *shape, bound int64) int64 {
	if sh.least == 0 {
		sh.least = 1
		if s.measure(sh, s.stepOf(sh)) && sh.fixed == nil && s.w.chunks == 1 {
			d := s.divisionScratch(len(sh.slots))
			if s.w.divide(s.lanes, d) {
				sh.least = max(1, s.atLeast(sh, d, 1)-int64(4))
			} else {
				sh.least = forever
			}
		}
	}
	return bound / sh.least
}

func (s *shapes) divisionScratch(n int) division {
	if cap(s.scratch) < n {
		s.scratch = make(division, n)
	}
	return s.scratch[:n]
}

// run simulates one division.
func (s *shapes) run(sh *shape, d division, micros int) int64 {
	virt := d
	if s.w.chunks > 1 {
		s.virt = append(s.virt[:0], make([]int32, len(d)*s.w.chunks)...)
		s.w.virtual(d, s.virt)
		virt = s.virt
	}
	return s.w.run(sh.slots, sh.hops, virt, micros)
}

// measure fills in the lanes of a shape; it says false if no layers fit at all.
func (s *shapes) measure(sh *shape, micros int) bool {
	w := s.w
	l := w.schedule(len(sh.slots), micros)
	if l == nil {
		return false
	}
	s.lanes = s.lanes[:0]
	for i, slot := range sh.slots {
		first, last := i == 0, i == len(sh.slots)-1
		lane := lane{rate: slot.rate, wire: 2 * w.collective(slot), room: w.layers}
		if first {
			lane.extra += w.endSum[0]
		}
		if last {
			lane.extra += w.endSum[1]
		}
		if w.limited {
			lane.room = w.room(slot, first, last, l.peaks[i], w.losses(micros), sh.replicas)
		}
		s.lanes = append(s.lanes, lane)
	}
	return true
}

// divisions returns the ways to deal out layers that are worth a simulation: those
// of plans before, the even one, and those whose slowest stage takes least: with the least sum, and with
// the layers dealt out one by one.
func (s *shapes) divisions(sh *shape, micros int) []division {
	n := len(sh.slots)
	if n > s.w.stages || s.w.job.Allow.FixedStages && n != s.w.job.Layout.PP || !s.measure(sh, micros) {
		return nil
	}
	rooms := s.key[:0]
	for i := range s.lanes {
		rooms = binary.AppendVarint(rooms, int64(s.lanes[i].room))
	}
	s.key = rooms
	if known, ok := sh.best[string(rooms)]; ok {
		return known
	}
	var out []division
	add := func(d division) {
		if len(d) == len(s.lanes) && s.fits(d) && !slices.ContainsFunc(out, func(o division) bool { return slices.Equal(o, d) }) {
			out = append(out, d)
		}
	}
	if sh.fixed != nil {
		add(sh.fixed)
	} else {
		for _, h := range sh.hints {
			add(h)
		}
		d := make(division, len(s.lanes))
		if s.w.divide(s.lanes, d) {
			add(d)
			if s.w.alike {
				g := make(division, len(s.lanes))
				s.w.deal(s.lanes, g)
				add(g)
			}
		}
		e := make(division, len(s.lanes))
		s.w.even(len(e), e)
		add(e)
	}
	if sh.best == nil {
		sh.best = map[string][]division{}
	}
	sh.best[string(rooms)] = out
	return out
}

// fits says whether a division leaves no stage empty and none overfull.
func (s *shapes) fits(d division) bool {
	for i, n := range d {
		if int(n) < s.w.chunks || int(n) > s.lanes[i].room {
			return false
		}
	}
	return true
}

// improve moves single layers between stages for as long as simulation says that
// this is better.
func (s *shapes) improve(sh *shape, t *timed) {
	if sh.fixed != nil || !s.measure(sh, int(t.micros)) {
		return
	}
	d := slices.Clone(t.layers)
	for better := true; better && s.w.ops < s.limit; {
		better = false
		for a := range d {
			for b := range d {
				if a == b || int(d[a]) <= s.w.chunks || int(d[b]) >= s.lanes[b].room {
					continue
				}
				d[a]--
				d[b]++
				if s.atLeast(sh, d, int(t.micros)) >= t.took {
					d[a]++
					d[b]--
					continue
				}
				if took := s.run(sh, d, int(t.micros)); took < t.took {
					t.took, t.layers, better = took, slices.Clone(d), true
				} else {
					d[a]++
					d[b]--
				}
			}
		}
	}
}

// bottleneck returns what one more micro-batch takes, about: the time of the
// slowest stage, at the division for a few.
func (s *shapes) bottleneck(sh *shape, micros int) int64 {
	if sh.slope == 0 {
		_, d := s.time(sh, micros)
		if d == nil {
			return forever
		}
		at := 0
		for i, n := range d {
			t := s.w.took(sh.slots[i], at, at+int(n), i == 0, i == len(d)-1)
			sh.slope = max(sh.slope, t[0]+t[1]+t[2])
			at += int(n)
		}
		sh.slope = max(1, sh.slope)
	}
	return sh.slope
}
