package placement

import (
	"cmp"
	"slices"
)

// appraise says what a victim is worth that shares no spot.
func (h *hunt) appraise(i int32) {
	p := &h.victims[i]
	p.own, p.home = !h.vague, 0
	for k := p.touches.from; k < p.touches.to && p.own; k++ {
		t := &h.touches[k]
		o := &h.spots[t.spot]
		p.own = o.owner == i
		p.gain += h.gainOf(t)
		p.home = h.homeOf(p.home, o.x, k == p.touches.from)
	}
}

// homeOf follows the one inner domain of several spots: 0 where they do not count,
// -1 where there is more than one.
func (h *hunt) homeOf(home, x int32, begins bool) int32 {
	m := &h.gauges[0]
	if m.size == 1 {
		return 0
	}
	d := h.s.tree.DomainOf(int(m.v.kind.inner), x) + 1
	if begins || d == home {
		return d
	}
	return -1
}

// roomIn returns what slot x, as it is or might be, has for a gauge whose members may
// use it: groups where they share a node, else members.
func (m *gauge) roomIn(s *State, x int32, c *slot) int32 { return max(0, s.room(m.v, x, c)) / m.node }

// gainOf returns what a touch adds for the first gauge by itself.
func (h *hunt) gainOf(t *touch) int32 {
	m, x := &h.gauges[0], h.spots[t.spot].x
	c := h.s.slots[x]
	h.s.ownBlock(&c)
	was := m.roomIn(h.s, x, &c)
	h.onto(&c, t)
	gain := m.roomIn(h.s, x, &c) - was
	h.s.dropBlock(&c)
	return gain
}

// pack is an inner group of a victim with members on some spot.
type pack struct {
	role  int32
	rank  int32 // the first of its members
	size  int32 // its members
	spot  int32 // the one spot that it touches, or several
	gives int32 // what it gives back on its one spot: devices and members
	spare int32 // members of the role that may go
}

func (a *pack) compare(b *pack) int {
	return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.spot, b.spot), cmp.Compare(a.gives, b.gives))
}

// split finds the chunks that a victim may give back: inner groups, and where a node
// is the victim's own, as many of them as add room.
func (h *hunt) split(i int32) {
	p := &h.victims[i]
	c := &h.jobs[p.cand]
	base := len(h.chunks)
	if c.Min != nil {
		h.packs = h.packs[:0]
		h.packUp(i)
		slices.SortFunc(h.packs, func(a, b pack) int { return cmp.Or(a.compare(&b), cmp.Compare(b.rank, a.rank)) })
		for from := 0; from < len(h.packs); {
			to := from + 1
			for to < len(h.packs) && h.packs[from].spot != several && h.packs[from].compare(&h.packs[to]) == 0 {
				to++
			}
			h.cutUp(i, h.packs[from:to])
			from = to
		}
	}
	slices.SortFunc(h.chunks[base:], func(a, b chunk) int {
		return cmp.Or(a.key.compare(&b.key), cmp.Compare(b.rank, a.rank))
	})
	p.kinds.from = int32(len(h.kinds))
	for from := base; from < len(h.chunks); {
		to := from + 1
		for to < len(h.chunks) && h.chunks[to].key == h.chunks[from].key {
			to++
		}
		c := &h.chunks[from]
		h.kinds = append(h.kinds, chunkKind{
			chunks: part{int32(from), int32(to)},
			worth:  c.worth * int64(min(to-from, int(c.spare/c.members))),
		})
		from = to
	}
	p.kinds.to = int32(len(h.kinds))
}

// packUp lists the inner groups of a victim that it may give back and that are on
// some spot, the last one of each role first.
func (h *hunt) packUp(i int32) {
	p := &h.victims[i]
	c := &h.jobs[p.cand]
	j := &h.s.jobs[h.recs[p.cand]]
	seats := j.seats[:j.ranks]
	for from := 0; from < len(seats); {
		role, to := int32(seats[from].role), from
		for to < len(seats) && int32(seats[to].role) == role {
			to++
		}
		size := max(1, j.gang.Roles[role].Inner.Size)
		if to-from-c.Min[role] >= size {
			for rank := to - size; rank >= from; rank -= size {
				h.addPack(i, j, pack{role: role, rank: int32(rank), size: int32(size), spot: -1, spare: int32(to - from - c.Min[role])})
			}
		}
		from = to
	}
}

func (h *hunt) addPack(i int32, j *job, o pack) {
	for k := range o.size {
		t := &j.seats[o.rank+k]
		n := h.spotOf(t.slot)
		if n < 0 {
			continue
		}
		o.gives += 1<<16 + int32((t.devices &^ h.spots[n].keep).Len())
		if o.spot < 0 {
			o.spot = n
		} else if o.spot != n {
			o.spot = several
		}
	}
	if o.spot < 0 {
		return
	}
	if modeOf(&j.gang.Roles[o.role].Demand) != takesWhole {
		o.gives = -1 - o.rank // which devices matters as well
	}
	for k := range o.size {
		n := h.spotOf(j.seats[o.rank+k].slot)
		if n < 0 {
			continue
		}
		t := &h.spots[n]
		if t.packer != i {
			t.packer, t.packRole, t.packs, t.lastPack = i, o.role, 0, -1
		}
		if t.lastPack != o.rank {
			t.lastPack = o.rank
			t.packs++
		}
		if t.packRole != o.role || o.spot == several {
			t.packRole = -1
		}
	}
	h.packs = append(h.packs, o)
}

// spotOf returns the spot of a slot of the domain at hand, or -1.
func (h *hunt) spotOf(x int32) int32 {
	if x < 0 || h.placed[x] != h.era {
		return -1
	}
	return h.places[x]
}

// cutUp makes chunks of like groups on one spot, or of one group on several.
func (h *hunt) cutUp(i int32, run []pack) {
	j := &h.s.jobs[h.recs[h.victims[i].cand]]
	if run[0].spot == several {
		c := h.chunkOf(j, run)
		if !h.alone(i, &c) {
			c.key.own = int32(len(h.chunks)) + 1
		} else if c.key.gain == 0 {
			return
		}
		h.chunks = append(h.chunks, c)
		return
	}
	base := len(h.chunks)
	o := &h.spots[run[0].spot]
	if !h.vague && o.owner == i && int(o.packs) == len(run) && o.packRole == run[0].role && h.stepUp(j, run) {
		return
	}
	h.chunks = h.chunks[:base]
	for k := range run {
		c := h.chunkOf(j, run[k:k+1])
		c.key.own = int32(base) + 1
		h.chunks = append(h.chunks, c)
	}
}

// stepUp makes a chunk of as many groups as add room, and again. What the last
// ones do not add, they need not give. It fails where a later step is the cheaper.
func (h *hunt) stepUp(j *job, run []pack) bool {
	m := &h.gauges[0]
	x := h.spots[run[0].spot].x
	c := h.s.slots[x]
	h.s.ownBlock(&c)
	defer h.s.dropBlock(&c)
	have := m.roomIn(h.s, x, &c)
	from, size, gain := 0, int32(0), int32(1)
	for k := range run {
		one := h.chunkOf(j, run[k:k+1])
		h.onto(&c, &h.touches[one.touches.from])
		h.drop(&one)
		now := m.roomIn(h.s, x, &c)
		if now == have {
			continue
		}
		made := h.chunkOf(j, run[from:k+1])
		made.key.gain, made.key.home = now-have, h.homeOf(0, x, true)
		if int64(made.key.groups)*int64(gain) < int64(size)*int64(now-have) {
			return false
		}
		size, gain = made.key.groups, now-have
		h.chunks = append(h.chunks, made)
		from, have = k+1, now
	}
	return true
}

// chunkOf makes one chunk of groups.
func (h *hunt) chunkOf(j *job, run []pack) chunk {
	c := chunk{rank: run[0].rank, spare: run[0].spare, key: chunkKey{role: run[0].role, groups: int32(len(run))}}
	c.ranks.from, c.touches.from = int32(len(h.ranks)), int32(len(h.touches))
	d := &j.gang.Roles[run[0].role].Demand
	for _, o := range run {
		for k := range o.size {
			t := &j.seats[o.rank+k]
			h.ranks = append(h.ranks, o.rank+k)
			c.members++
			c.devices += milliOf(d)
			if n := h.spotOf(t.slot); n >= 0 {
				c.worth += h.worthOf(t)
				h.give(n, c.touches.from, t, d)
			}
		}
	}
	c.ranks.to, c.touches.to = int32(len(h.ranks)), int32(len(h.touches))
	return c
}

// drop forgets a chunk that was made last.
func (h *hunt) drop(c *chunk) {
	for k := c.touches.from; k < c.touches.to; k++ {
		h.spots[h.touches[k].spot].last = -1
	}
	h.ranks, h.touches = h.ranks[:c.ranks.from], h.touches[:c.touches.from]
}

// alone reports whether nothing else is on the spots of a group on several, and
// sets what it adds.
func (h *hunt) alone(i int32, c *chunk) bool {
	if h.vague {
		return false
	}
	for k := c.touches.from; k < c.touches.to; k++ {
		t := &h.touches[k]
		o := &h.spots[t.spot]
		if o.owner != i || o.packs > 1 {
			return false
		}
		c.key.gain += h.gainOf(t)
		if c.key.home = h.homeOf(c.key.home, o.x, k == c.touches.from); c.key.home < 0 {
			return false
		}
	}
	return true
}

// chunkKey says which chunks of a victim are alike.
type chunkKey struct {
	role   int32
	own    int32 // not zero where it is like those only that are on the same spots
	groups int32
	gain   int32
	home   int32
}

func (a *chunkKey) compare(b *chunkKey) int {
	return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.own, b.own), cmp.Compare(a.groups, b.groups),
		cmp.Compare(a.gain, b.gain), cmp.Compare(a.home, b.home))
}
