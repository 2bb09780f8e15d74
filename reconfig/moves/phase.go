package moves

import (
	"cmp"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// spare is state that a unit holds but does not need in the end.
type spare struct {
	run
	unit int32
	size int64
	uses int32 // transfers from it that are still to come
	gone bool  // freed or staged
	host bool  // staged
}

// arranger puts transfers into phases. Invariants: no unit holds more than its room;
// nothing is freed before its last use; a relay sends only what it has received in an
// earlier phase.
type arranger struct {
	*mover
	room, held []int64 // bytes by unit
	idle       []int64 // bytes by unit that may be freed
	coming     []int64 // bytes by unit that it still has to receive
	spares     []spare
	of         [][]int32 // by unit: its spares
	waits      []int32   // by hop: of how many others it waits
	after      [][]int32 // by hop: those that wait for it
	done       []bool    // by hop
	left       int
	chosen     []int32 // hops of the phase in the making
	phase      Phase
}

// arrange orders the transfers so that memory suffices. Where every transfer that
// could be next lacks room at its receiver, which then holds what others still have to
// get from it, the receiver that lacks least makes room by staging through its host.
// Once a unit has staged all that is not its own, its own fits, so this always ends. If
// it came to staging, a search looks for an order that needs none.
func (m *mover) arrange() error {
	x, err := m.arranger()
	if err != nil {
		return err
	}
	x.run(nil)
	if m.out.Staged == 0 {
		return nil
	}
	if x, err = m.arranger(); err != nil {
		return err
	}
	order := x.search()
	if x, err = m.arranger(); err != nil {
		return err
	}
	x.run(order)
	return nil
}

// arranger begins anew.
func (m *mover) arranger() (*arranger, error) {
	m.out.Phases, m.out.Staged, m.out.Peak = nil, 0, 0
	x := &arranger{mover: m}
	if err := x.measure(); err != nil {
		return nil, err
	}
	x.splitAtSpares()
	x.link()
	x.left = len(m.hops)
	for i := range m.hops {
		x.coming[m.hops[i].to] += m.a.size(m.hops[i].run)
	}
	return x, nil
}

// run makes the phases; in this order, if there is one.
func (x *arranger) run(order []int32) {
	if x.out.Restore {
		for u := range x.of {
			x.free(int32(u), math.MaxInt64)
		}
	}
	for x.left > 0 {
		if order != nil {
			order = order[x.choose(order, true):]
		} else {
			ready := x.ready()
			x.choose(ready, false)
			if len(x.chosen) == 0 {
				x.stage(ready)
				x.choose(ready, false)
			}
		}
		x.close()
	}
	for u := range x.of {
		x.free(int32(u), math.MaxInt64)
	}
	if len(x.phase.Free) > 0 {
		x.close()
	}
}

// measure takes the room of each unit, and refuses what can never fit.
func (x *arranger) measure() error {
	n := len(x.w.units)
	x.room, x.held, x.idle, x.coming = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	x.of = make([][]int32, n)
	for u := range x.w.units {
		x.room[u] = math.MaxInt64
		if mem := x.w.units[u].mem; mem != math.MaxInt64 {
			x.room[u] = mem - int64(x.a.job.Reserve) - int64(x.o.Keep)
		}
		x.held[u] = x.a.sizes(x.have[u]) + x.a.sizes(x.spent[u])
		x.out.Peak = max(x.out.Peak, lockstep.Bytes(x.held[u]))
		if need := x.a.sizes(x.need[u]); need > max(0, x.room[u]) {
			return infeasible(reconfig.StateLevel, reconfig.ReasonMemory, reconfig.Witness{
				Devices: []lockstep.DeviceID{x.w.units[u].id}, Need: need, Have: max(0, x.room[u]),
			})
		}
	}
	return nil
}

// link notes which transfers wait for which: a relay for those that bring it what it
// sends.
func (x *arranger) link() {
	n := len(x.hops)
	x.waits, x.after, x.done = make([]int32, n), make([][]int32, n), make([]bool, n)
	for i := range x.hops {
		h := &x.hops[i]
		if !h.relay {
			continue
		}
		at, _ := slices.BinarySearchFunc(x.hops, *h, func(g, h hop) int {
			return cmp.Or(cmp.Compare(g.slot, h.slot), cmp.Compare(g.to, h.from), cmp.Compare(g.b, h.a+1))
		})
		for ; at < n && x.hops[at].slot == h.slot && x.hops[at].to == h.from && x.hops[at].a < h.b; at++ {
			x.after[at] = append(x.after[at], int32(i))
			x.waits[i]++
		}
	}
}

// ready returns the transfers that could be next: first those that let a unit which
// lacks room give something up, then the slower links.
func (x *arranger) ready() []int32 {
	var out []int32
	for i := range x.hops {
		if !x.done[i] && x.waits[i] == 0 {
			out = append(out, int32(i))
		}
	}
	rank := func(i int32) int {
		h := &x.hops[i]
		switch {
		case h.piece >= 0 && x.tight(h.from) && !x.spares[h.piece].gone:
			return 0
		case x.tight(h.to):
			return 2
		}
		return 1
	}
	slices.SortFunc(out, func(i, j int32) int {
		return cmp.Or(cmp.Compare(rank(i), rank(j)), cmp.Compare(x.hops[j].level, x.hops[i].level), cmp.Compare(i, j))
	})
	return out
}

// tight says whether a unit has no room for all that it still has to receive.
func (x *arranger) tight(u int32) bool {
	return x.coming[u] > x.room[u]-x.held[u]+x.idle[u]
}

// choose takes those transfers into the phase for which there is room, of a strict
// order only those in front of the first that has to wait, and returns how many.
func (x *arranger) choose(order []int32, strict bool) int {
	for _, i := range order {
		h := &x.hops[i]
		size := x.a.size(h.run)
		lacks := int64(0)
		if x.room[h.to] != math.MaxInt64 {
			lacks = size - (x.room[h.to] - x.held[h.to])
		}
		if x.waits[i] > 0 || lacks > x.idle[h.to] {
			if strict {
				break
			}
			continue
		}
		if lacks > 0 {
			x.free(h.to, lacks)
		}
		x.held[h.to] += size
		x.chosen = append(x.chosen, i)
	}
	return len(x.chosen)
}

// free gives up what a unit does not need, at least so many bytes if there are.
func (x *arranger) free(u int32, atLeast int64) {
	for _, i := range x.of[u] {
		if p := &x.spares[i]; !p.gone && p.uses == 0 && atLeast > 0 {
			atLeast -= p.size
			x.idle[u] -= p.size
			x.drop(p)
			x.phase.Free = append(x.phase.Free, x.release(p))
		}
	}
}

func (x *arranger) drop(p *spare) {
	p.gone = true
	x.held[p.unit] -= p.size
}

func (x *arranger) release(p *spare) Release {
	return Release{x.w.units[p.unit].id, x.a.shard(p.run)}
}

// stage makes room for the transfer that lacks least.
func (x *arranger) stage(order []int32) {
	lack := func(i int32) int64 {
		h := &x.hops[i]
		return x.a.size(h.run) - (x.room[h.to] - x.held[h.to]) - x.idle[h.to]
	}
	best := order[0]
	for _, i := range order[1:] {
		if lack(i) < lack(best) {
			best = i
		}
	}
	u, lacks := x.hops[best].to, lack(best)
	x.free(u, math.MaxInt64)
	for lacks > 0 {
		p := x.toStage(u, lacks)
		if p == nil { // the plan fits, so this cannot be
			return
		}
		x.drop(p)
		p.host = true
		lacks -= p.size
		x.phase.Stage = append(x.phase.Stage, x.release(p))
		x.out.Staged = x.out.Staged.Add(lockstep.Bytes(p.size))
	}
}

// toStage returns the smallest spare that suffices, else the largest.
func (x *arranger) toStage(u int32, lacks int64) *spare {
	var best *spare
	for _, i := range x.of[u] {
		p := &x.spares[i]
		switch {
		case p.gone || p.uses == 0:
		case best == nil,
			p.size >= lacks && (best.size < lacks || p.size < best.size),
			best.size < lacks && p.size > best.size:
			best = p
		}
	}
	return best
}

// close ends the phase in the making.
func (x *arranger) close() {
	slices.Sort(x.chosen)
	for _, i := range x.chosen {
		h := &x.hops[i]
		size := x.a.size(h.run)
		t := Transfer{Shard: x.a.shard(h.run), To: x.w.units[h.to].id, Link: links[h.level], Host: h.host, Bytes: lockstep.Bytes(size)}
		if h.from >= 0 {
			t.From = x.w.units[h.from].id
		}
		x.coming[h.to] -= size
		x.done[i] = true
		x.left--
		if h.piece >= 0 {
			p := &x.spares[h.piece]
			t.Host = p.host
			if p.uses--; p.uses == 0 && !p.gone {
				x.idle[p.unit] += p.size
			}
		}
		for _, j := range x.after[i] {
			x.waits[j]--
		}
		x.phase.Transfers = append(x.phase.Transfers, t)
	}
	for _, held := range x.held {
		x.out.Peak = max(x.out.Peak, lockstep.Bytes(held))
	}
	x.out.Phases = append(x.out.Phases, x.phase.tidied())
	x.phase, x.chosen = Phase{}, x.chosen[:0]
}

// tidied joins what follows each other.
func (p Phase) tidied() Phase {
	for _, list := range []*[]Release{&p.Free, &p.Stage} {
		slices.SortFunc(*list, func(a, b Release) int { return cmp.Or(cmp.Compare(a.Device, b.Device), a.Shard.compare(b.Shard)) })
		out := (*list)[:0]
		for _, r := range *list {
			if n := len(out); n > 0 && out[n-1].Device == r.Device && out[n-1].Shard.touches(r.Shard) {
				out[n-1].Shard.Count += r.Shard.Count
				continue
			}
			out = append(out, r)
		}
		*list = out
	}
	slices.SortFunc(p.Transfers, func(a, b Transfer) int { return cmp.Or(cmp.Compare(a.To, b.To), a.Shard.compare(b.Shard)) })
	out := p.Transfers[:0]
	for _, t := range p.Transfers {
		if n := len(out); n > 0 {
			l := &out[n-1]
			if l.To == t.To && l.From == t.From && l.Host == t.Host && l.Link == t.Link && l.Shard.touches(t.Shard) {
				l.Shard.Count += t.Shard.Count
				l.Bytes += t.Bytes
				continue
			}
		}
		out = append(out, t)
	}
	p.Transfers = out
	return p
}

// touches says whether o begins where s ends.
func (s Shard) touches(o Shard) bool {
	return s.Part == o.Part && s.Block == o.Block && s.End() == o.First
}
