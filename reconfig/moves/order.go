package moves

// The bounds of a search for an order.
const (
	maxOrdered = 64     // transfers
	maxOrders  = 20_000 // states
)

// ordering is a search for an order of transfers, one after the other, in which each
// finds room without staging. A unit frees what it does not need as soon as no other
// has to read it.
type ordering struct {
	*arranger
	order []int32
	dead  map[uint64]bool // sets of transfers after which there is no way on
	mask  uint64          // transfers that are done
}

// search returns an order; nil if there is none, or none was found within bounds.
func (x *arranger) search() []int32 {
	if len(x.hops) > maxOrdered {
		return nil
	}
	for u := range x.held {
		x.held[u] -= x.idle[u]
		x.idle[u] = 0
	}
	s := ordering{arranger: x, dead: map[uint64]bool{}}
	if !s.step() {
		return nil
	}
	return s.order
}

// step says whether what is left can be done from here. A transfer to a unit that has
// room for all that is still coming is always right: it takes nothing that another
// would need.
func (s *ordering) step() bool {
	if s.left == 0 {
		return true
	}
	if s.dead[s.mask] || len(s.dead) >= maxOrders {
		return false
	}
	for i := range s.hops {
		if s.open(i) && !s.tight(s.hops[i].to) {
			return s.try(i)
		}
	}
	for _, frees := range []bool{true, false} {
		for i := range s.hops {
			if s.open(i) && s.frees(i) == frees && s.a.size(s.hops[i].run) <= s.room[s.hops[i].to]-s.held[s.hops[i].to] && s.try(i) {
				return true
			}
		}
	}
	s.dead[s.mask] = true
	return false
}

// open says whether a transfer could be next.
func (s *ordering) open(i int) bool { return s.mask&(1<<i) == 0 && s.waits[i] == 0 }

// frees says whether the sender of a transfer can give up what it sends.
func (s *ordering) frees(i int) bool {
	p := s.hops[i].piece
	return p >= 0 && s.spares[p].uses == 1
}

// try does a transfer and goes on; if that leads nowhere, it takes it back.
func (s *ordering) try(i int) bool {
	s.apply(i, 1)
	s.order = append(s.order, int32(i))
	if s.step() {
		return true
	}
	s.order = s.order[:len(s.order)-1]
	s.apply(i, -1)
	return false
}

// apply does a transfer, or takes it back with sign -1.
func (s *ordering) apply(i int, sign int64) {
	h := &s.hops[i]
	size := sign * s.a.size(h.run)
	s.held[h.to] += size
	s.coming[h.to] -= size
	s.left -= int(sign)
	s.mask ^= 1 << i
	for _, j := range s.after[i] {
		s.waits[j] -= int32(sign)
	}
	if h.piece < 0 {
		return
	}
	p := &s.spares[h.piece]
	if p.uses -= int32(sign); sign > 0 && p.uses == 0 || sign < 0 && p.uses == 1 {
		s.held[p.unit] -= sign * p.size
	}
}
