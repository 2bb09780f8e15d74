package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// ground is one domain with the candidates that have members in it. It is kept
// twice: as it is without those chosen so far, and without all that may yet be.
type ground struct {
	at      int32    // the domain
	victims []victim // by ID
	spots   []spot
	touches []touch // by victim: what it gives back on which spot
	chunks  []chunk
	kinds   []chunkKind
	ranks   []int32 // of chunks
	uses    []use
	pieces  []piece
	places  []int32  // by slot: its spot
	placed  []uint32 // by slot: the ages of places
	era     uint32
	now     side
	most    side

	dfs    []int32 // victims in the order of the search
	line2  []int32 // in that of the greedy one
	keys   []int32 // by victim: the cheapest of its spots, or -1
	prices []ratio // by spot
	kept   []int32 // chunks taken by kind
	after  []rest  // by position in dfs: what is left from there
	busy   []busyAt
	packs  []pack // inner groups at hand
}

// victim is a candidate at hand.
type victim struct {
	cand    int32
	cost    int64 // of the whole
	devices int64
	members int32
	ranks   int32 // members that are no spares
	worth   int64
	shrink  int64 // cost of a part
	touches part
	kinds   part // of chunks that it may give back; none where it goes whole or not
	uses    part
	gain    int32 // units, or members where inner domains count, where own
	rate    ratio // the least price of one worth
	home    int32 // the inner domain of all its spots where those count, or -1; else 0
	own     bool  // none of its spots has another victim
	like    bool  // as the one before it in dfs, in all that matters but the ID
	took    state // what of it goes
}

// state is what the search has decided about a victim.
type state uint8

const (
	stays state = iota
	goes
	shrinks
)

// spot is a node that candidates have members on.
type spot struct {
	x     int32
	may   uint64             // gauges whose members may use it
	owner int32              // the one victim there, or several
	last  int32              // the newest touch, while gathering
	keep  lockstep.DeviceSet // devices that the request leaves alone

	// Of the inner groups of the victim packer that are here: the role, or -1 where there
	// are several roles or groups that are elsewhere as well; how many; the newest.
	packer, packRole, packs, lastPack int32
}

// several is the owner of a spot with more than one victim.
const several = 1 << 30

// touch is what the members of one victim on one spot give back.
type touch struct {
	spot    int32
	devices lockstep.DeviceSet
	cpu     int64
	memory  int64
	rdma    int32
	slots   int32
	piece   int32 // the first of the members with a part of their devices, whom the amounts leave out, or -1
}

// piece is a member that has a part of its devices.
type piece struct {
	seat seat // without devices that the request leaves alone
	d    *lockstep.Demand
	next int32
}

// chunkKind is like chunks of one victim, those with the highest ranks first; any
// number of them may go, from the first on.
type chunkKind struct {
	chunks part
	taken  int32 // how many the search has taken
	worth  int64 // of all that may go
}

// chunk is an inner group, or several that only together help.
type chunk struct {
	key     chunkKey
	rank    int32 // the first of its highest group
	ranks   part
	touches part
	members int32
	spare   int32 // members of the role that may go
	devices int64
	worth   int64
}

// rest bounds what the victim from a position on could add.
type rest struct {
	worth   int64 // all of them, summed from the end
	most    int64 // the greatest
	devices ratio
	members ratio
}

// side is the domain without some of the candidates.
type side struct {
	slots []slot  // by spot; their blocks are their own
	rooms []int32 // by gauge and spot: units there
	sums  []int32 // by gauge: from where in inner
	inner []int32 // by inner domain of each gauge that has them above nodes: members
	units []int32 // by gauge
	short int     // gauges that lack units
}

// busyAt is a node of Request.Busy with devices.
type busyAt struct {
	x   int32
	set lockstep.DeviceSet
}

// gather readies the ground for a domain: its candidates up to a tier.
func (h *hunt) gather(d, tier int32) {
	s := h.s
	h.at = d
	h.victims, h.spots, h.touches, h.chunks, h.kinds = h.victims[:0], h.spots[:0], h.touches[:0], h.chunks[:0], h.kinds[:0]
	h.ranks, h.uses, h.pieces = h.ranks[:0], h.uses[:0], h.pieces[:0]
	if h.wide {
		for i := range h.jobs {
			if h.jobs[i].Tier <= tier {
				h.victims = append(h.victims, victim{cand: int32(i)})
			}
		}
	} else {
		for e := h.quarries[d].head; e >= 0; e = h.stakes[e].next {
			h.victims = append(h.victims, victim{cand: h.stakes[e].cand, worth: h.stakes[e].worth})
		}
	}
	slices.SortFunc(h.victims, func(a, b victim) int { return cmp.Compare(h.jobs[a.cand].Job, h.jobs[b.cand].Job) })
	for len(h.places) < len(s.slots) {
		h.places, h.placed = append(h.places, 0), append(h.placed, 0)
	}
	if h.era++; h.era == 0 {
		clear(h.placed)
		h.era = 1
	}
	h.readBusy()
	first, end := s.tree.Range(h.q.stop, d)
	for i := range h.victims {
		h.survey(int32(i), first, end)
	}
	for i := range h.victims {
		h.appraise(int32(i))
		h.split(int32(i))
	}
	h.lay(d)
}

// readBusy sorts the devices that the request leaves alone.
func (h *hunt) readBusy() {
	h.busy = h.busy[:0]
	for i := range h.r.Busy {
		b := &h.r.Busy[i]
		if x, ok := h.s.tree.Slot(b.Node); ok && b.Devices != 0 {
			h.busy = append(h.busy, busyAt{x, b.Devices})
		}
	}
	slices.SortFunc(h.busy, func(a, b busyAt) int { return cmp.Compare(a.x, b.x) })
}

func (h *hunt) busyOn(x int32) (set lockstep.DeviceSet) {
	i, _ := slices.BinarySearchFunc(h.busy, x, func(b busyAt, x int32) int { return cmp.Compare(b.x, x) })
	for ; i < len(h.busy) && h.busy[i].x == x; i++ {
		set |= h.busy[i].set
	}
	return set
}

// survey finds what a victim holds in the domain.
func (h *hunt) survey(i, first, end int32) {
	p := &h.victims[i]
	c := &h.jobs[p.cand]
	j := &h.s.jobs[h.recs[p.cand]]
	p.cost, p.shrink = c.Cost.Total(), c.Shrink.Total()
	p.members, p.ranks = int32(len(j.seats)), j.ranks
	p.touches.from = int32(len(h.touches))
	for k := range j.seats {
		t := &j.seats[k]
		d := &j.gang.Roles[t.role].Demand
		p.devices += milliOf(d)
		if t.slot < first || t.slot >= end {
			continue
		}
		if n := h.spotAt(t.slot); n >= 0 {
			h.give(n, p.touches.from, t, d)
		}
	}
	p.touches.to = int32(len(h.touches))
	for k := p.touches.from; k < p.touches.to; k++ {
		if o := &h.spots[h.touches[k].spot]; o.owner < 0 {
			o.owner = i
		} else {
			o.owner = several
		}
	}
	p.uses.from = int32(len(h.uses))
	h.uses = h.appendUses(h.uses, p.cand)
	p.uses.to = int32(len(h.uses))
}

// spotAt returns the spot of a slot, or -1 where no gauge's members may use it.
func (h *hunt) spotAt(x int32) int32 {
	if h.placed[x] == h.era {
		return h.places[x]
	}
	s := h.s
	n := int32(-1)
	var may uint64
	if s.slots[x].flags == 0 {
		for g := range h.gauges {
			if h.gauges[g].v.class.has(x) {
				may |= 1 << uint(g)
			}
		}
	}
	if may != 0 {
		n = int32(len(h.spots))
		h.spots = append(h.spots, spot{x: x, may: may, owner: -1, last: -1, keep: h.busyOn(x), packer: -1})
	}
	h.places[x], h.placed[x] = n, h.era
	return n
}

// give adds a seat to the touch of its victim on a spot; its touches start at base.
func (h *hunt) give(n, base int32, t *seat, d *lockstep.Demand) {
	o := &h.spots[n]
	if o.last < base {
		o.last = int32(len(h.touches))
		h.touches = append(h.touches, touch{spot: n, piece: -1})
	}
	u := &h.touches[o.last]
	if modeOf(d) != takesWhole {
		h.pieces = append(h.pieces, piece{seat: *t, d: d, next: u.piece})
		u.piece = int32(len(h.pieces) - 1)
		h.pieces[u.piece].seat.devices &^= o.keep
		return
	}
	u.add(t, d, o.keep)
}

func (o *touch) add(t *seat, d *lockstep.Demand, keep lockstep.DeviceSet) {
	o.devices |= t.devices &^ keep
	o.cpu += int64(d.CPU)
	o.memory += int64(d.Memory)
	o.rdma += int32(d.RDMA)
	o.slots++
}

// lay measures the ground as it is, and without any of the candidates.
func (h *hunt) lay(d int32) {
	h.now.lay(h, d)
	h.most.lay(h, d)
	for i := range h.victims {
		h.most.all(h, &h.victims[i], 1)
	}
}

// lay measures a domain as it is.
func (o *side) lay(h *hunt, d int32) {
	s, n := h.s, len(h.spots)
	o.slots, o.rooms, o.sums, o.inner, o.units = o.slots[:0], o.rooms[:0], o.sums[:0], o.inner[:0], o.units[:0]
	for i := range h.spots {
		o.slots = append(o.slots, s.slots[h.spots[i].x])
		s.ownBlock(&o.slots[i])
	}
	o.short = 0
	for g := range h.gauges {
		m := &h.gauges[g]
		s.sync(m.v)
		o.sums = append(o.sums, int32(len(o.inner)))
		o.units = append(o.units, h.base(o, m, d))
		if o.units[g] < m.need {
			o.short++
		}
		for i := range n {
			room := int32(0)
			if h.spots[i].may>>uint(g)&1 != 0 {
				room = m.roomIn(s, h.spots[i].x, &o.slots[i])
			}
			o.rooms = append(o.rooms, room)
		}
	}
}

// base returns the units that a domain has for a gauge, as if its affinities held
// everywhere, and appends the members of its inner domains where they count.
func (h *hunt) base(o *side, m *gauge, d int32) (units int32) {
	s := h.s
	first, end := s.tree.Range(h.q.stop, d)
	inner := int(m.v.kind.inner)
	if m.size > 1 {
		m.first = s.tree.DomainOf(inner, first)
		from, to := len(o.inner), s.tree.DomainOf(inner, end-1)+1
		for i := m.first; i < to; i++ {
			o.inner = append(o.inner, s.membersIn(m.v, inner, i, len(m.v.terms) > 0))
		}
		for _, n := range o.inner[from:] {
			units += n / m.size
		}
		return units
	}
	if len(m.v.terms) == 0 {
		return s.unitsOf(m.v, h.q.stop, d)
	}
	for x := first; x < end; x++ {
		if s.slots[x].flags == 0 && m.v.class.has(x) {
			units += m.roomIn(s, x, &s.slots[x])
		}
	}
	return units
}

// membersIn returns how many members an inner domain holds, or would if affinities
// held everywhere.
func (s *State) membersIn(v *view, inner int, d int32, anywhere bool) (n int32) {
	if !anywhere {
		return v.sums[inner][d]
	}
	first, end := s.tree.Range(inner, d)
	for x := first; x < end; x++ {
		if s.slots[x].flags == 0 && v.class.has(x) {
			n += max(0, s.room(v, x, &s.slots[x]))
		}
	}
	return n
}

// all gives back, or takes again with by -1, what a victim holds.
func (o *side) all(h *hunt, p *victim, by int64) {
	for k := p.touches.from; k < p.touches.to; k++ {
		o.move(h, &h.touches[k], by)
	}
}

func (o *side) some(h *hunt, c *chunk, by int64) {
	for k := c.touches.from; k < c.touches.to; k++ {
		o.move(h, &h.touches[k], by)
	}
}

// move gives back a touch, or takes it again, and measures its spot anew.
func (o *side) move(h *hunt, t *touch, by int64) {
	c := &o.slots[t.spot]
	if by > 0 {
		h.onto(c, t)
	} else {
		h.off(c, t)
	}
	p := &h.spots[t.spot]
	for g := range h.gauges {
		if p.may>>uint(g)&1 == 0 {
			continue
		}
		m := &h.gauges[g]
		at := g*len(h.spots) + int(t.spot)
		room := m.roomIn(h.s, p.x, c)
		if change := room - o.rooms[at]; change != 0 {
			o.rooms[at] = room
			o.grow(h, g, p.x, change)
		}
	}
}

// grow adds members, or units where there are no inner domains above nodes, to a
// gauge.
func (o *side) grow(h *hunt, g int, x, by int32) {
	m := &h.gauges[g]
	was := o.units[g]
	if m.size > 1 {
		i := o.sums[g] + h.s.tree.DomainOf(int(m.v.kind.inner), x) - m.first
		old := o.inner[i]
		o.inner[i] = old + by
		by = (old+by)/m.size - old/m.size
	}
	o.units[g] = was + by
	o.short += boolDiff(was < m.need, was+by < m.need)
}

func boolDiff(was, is bool) int {
	switch {
	case was == is:
		return 0
	case is:
		return 1
	}
	return -1
}

// onto gives back a touch on a slot, whose block is its own.
func (h *hunt) onto(c *slot, t *touch) {
	c.free |= t.devices
	c.cpu += t.cpu
	c.memory += t.memory
	c.rdma += t.rdma
	c.slots += t.slots
	for i := t.piece; i >= 0; i = h.pieces[i].next {
		h.s.give(c, &h.pieces[i].seat, h.pieces[i].d)
	}
}

// off undoes onto.
func (h *hunt) off(c *slot, t *touch) {
	c.free &^= t.devices
	c.cpu -= t.cpu
	c.memory -= t.memory
	c.rdma -= t.rdma
	c.slots -= t.slots
	for i := t.piece; i >= 0; i = h.pieces[i].next {
		h.s.take(c, &h.pieces[i].seat, h.pieces[i].d)
	}
}

// clear gives back the blocks of a side's slots.
func (o *side) clear(s *State) {
	for i := range o.slots {
		s.dropBlock(&o.slots[i])
	}
	o.slots = o.slots[:0]
}

// may reports whether the gauges find room enough, or cannot say.
func (h *hunt) may(o *side) bool {
	if h.blind {
		return true
	}
	if h.any {
		return o.short < len(h.gauges)
	}
	return o.short == 0
}
