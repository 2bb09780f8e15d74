package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
)

// Next returns what to do, in this order, and decisions about trials that are paused: bundles that lost members are
// fused anew, targets are started, free slots are filled, and bundles move from bubbles to devices that are left without
// work. To be called after whatever was told, once for any number of calls.
func (s *Search) Next() ([]Action, []hpo.Decision) {
	s.dry = false
	s.refuse()
	s.finish()
	s.targets()
	for _, x := range s.slots {
		if x.free() {
			s.fill(x)
		}
	}
	if !s.cfg.DisableMoves {
		s.moves()
	}
	// The rule may have closed a search of which nothing was left to start.
	s.finish()
	s.targets()
	actions, decisions := s.queue, s.decisions
	s.queue, s.decisions = nil, nil
	return actions, decisions
}

// targets starts what is pending on exclusive slots that are free.
func (s *Search) targets() {
	for _, x := range s.slots {
		if len(s.pending) == 0 {
			return
		}
		if s.tables[x.class].kind != Exclusive || !x.free() {
			continue
		}
		n := s.pending[0]
		s.pending = s.pending[1:]
		x.target = n
		s.trials[n].sent = true
		s.queue = append(s.queue, Action{Do: Target, Slot: x.id, Trial: s.trials[n].id})
	}
}

// fill starts a bundle on a free slot if there is one: of a group that fills it, or else, so that nothing stands idle, of
// the one that fills it best. First it asks the rule for what was promoted since and for new trials.
func (s *Search) fill(x *slot) {
	ahead := func() int { return cmp.Or(s.cfg.Ahead, s.largest*(len(s.groups)+4)) }
	for s.ready < ahead() && s.draw() {
	}
	g, c := s.choose(x, true)
	if g == nil {
		g, c = s.choose(x, false)
	}
	for g == nil && s.draw() {
		g, c = s.choose(x, false)
	}
	if g != nil {
		s.start(x, g.gkey, s.take(g, s.size(x, g, c)))
	}
}

// size returns how many of a group to fuse on a slot.
func (s *Search) size(x *slot, g *group, c *cost) int {
	n := len(g.queue)
	if !s.dry {
		return min(n, c.limit)
	}
	// Nobody else is to come: those there are share the slots of this class that are free.
	devices := 0
	for _, o := range s.slots {
		if o.class == x.class && o.free() {
			devices++
		}
	}
	if devices = max(1, devices/len(s.groups)); n/c.limit > devices {
		return c.limit
	}
	trials := make([]fusion.Trial, n)
	for i, t := range g.queue {
		trials[i].ID = fusion.TrialID(s.trials[t].id)
	}
	bundles, err := fusion.Plan(trials, func(fusion.Key) int { return c.limit }, devices, fusion.RuleEven)
	if err != nil || len(bundles) == 0 {
		panic(fmt.Sprintf("search: %d trials make no bundle: %v", n, err)) // invariant: groups are not empty, limits at least 1
	}
	return len(bundles[0].Members)
}

// start runs members on a slot as a new bundle.
func (s *Search) start(x *slot, k gkey, members []int32) {
	s.made++
	b := &bundle{seq: s.made, gkey: k, slot: x, members: members}
	x.bundle = b
	s.bundles[b.id()] = b
	a := Action{Do: Start, Bundle: b.id(), Key: s.keys[k.key], Slot: x.id, Begin: k.from, Until: k.until, Members: make([]Member, len(members))}
	for i, n := range members {
		s.trials[n].state = running
		a.Members[i] = Member{Trial: s.trials[n].id, Attempt: s.trials[n].attempt}
	}
	s.queue = append(s.queue, a)
}

// refuse fuses what is left of bundles at the end of a rung with each other and with trials that wait at the same
// place. Those that fill their slots stay there; the members of the others are ready, and their slots free.
func (s *Search) refuse() {
	type mates struct {
		gkey
		class int32
	}
	safe := s.safe
	s.safe = nil
	slices.SortFunc(safe, func(a, b *bundle) int {
		return cmp.Or(
			cmp.Compare(s.keys[a.key], s.keys[b.key]), cmp.Compare(a.from, b.from), cmp.Compare(a.until, b.until),
			cmp.Compare(a.bracket, b.bracket), cmp.Compare(a.slot.class, b.slot.class), cmp.Compare(a.seq, b.seq),
		)
	})
	for len(safe) > 0 {
		m := mates{safe[0].gkey, safe[0].slot.class}
		n := 1
		for n < len(safe) && (mates{safe[n].gkey, safe[n].slot.class}) == m {
			n++
		}
		s.merge(safe[:n])
		safe = safe[n:]
	}
}

// merge fuses bundles of one group and class anew.
func (s *Search) merge(bundles []*bundle) {
	k := bundles[0].gkey
	c := s.cost(bundles[0].slot.class, k.key)
	live := make([]fusion.Live, len(bundles))
	left := map[fusion.BundleID]*bundle{}
	for i, b := range bundles {
		live[i] = fusion.Live{ID: b.id(), Safe: true}
		for _, n := range b.members {
			live[i].Members = append(live[i].Members, fusion.TrialID(s.trials[n].id))
		}
		left[b.id()] = b
	}
	if c != nil { // else the profile was changed and they fit no more
		s.shift(live, left, k, c.limit)
	}
	for _, b := range bundles {
		b.slot.bundle = nil
		if c != nil && len(b.members) >= c.full {
			s.start(b.slot, k, b.members)
			continue
		}
		for _, n := range b.members {
			s.put(n, k)
		}
	}
}

// shift moves members between bundles, and from those that are ready, as fusion.Refuse says.
func (s *Search) shift(live []fusion.Live, left map[fusion.BundleID]*bundle, k gkey, limit int) {
	var waiting []fusion.Trial
	g := s.group[k]
	if g != nil {
		for _, n := range g.queue[:min(len(g.queue), limit*len(live))] {
			waiting = append(waiting, fusion.Trial{ID: fusion.TrialID(s.trials[n].id)})
		}
	}
	plan, err := fusion.Refuse(live, waiting, func(fusion.Key) int { return limit })
	if err != nil {
		panic("search: " + err.Error()) // invariant: a trial is in one place
	}
	for _, m := range plan.Moves {
		n := s.index[hpo.TrialID(m.Trial)]
		if m.From != "" {
			from := left[m.From]
			from.members = slices.DeleteFunc(from.members, func(o int32) bool { return o == n })
		} else {
			s.take(g, 1) // waiting trials are taken in order
		}
		left[m.To].members = append(left[m.To].members, n)
	}
}

// moves takes the strongest bundles in bubbles to exclusive slots with nothing to do, where they are faster.
func (s *Search) moves() {
	for _, x := range s.slots {
		if s.tables[x.class].kind != Exclusive || !x.free() {
			continue
		}
		var best *bundle
		for _, y := range s.slots {
			b := y.bundle
			if b == nil || s.tables[y.class].kind != Bubble || !s.gains(b, x) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(b.from, best.from), cmp.Compare(b.until, best.until), cmp.Compare(len(b.members), len(best.members)), cmp.Compare(best.seq, b.seq)) > 0 {
				best = b
			}
		}
		if best == nil {
			continue
		}
		s.queue = append(s.queue, Action{Do: Move, Bundle: best.id(), Key: s.keys[best.key], Slot: x.id, From: best.slot.id})
		best.slot.bundle = nil
		best.slot, x.bundle = x, best
	}
}

// gains says whether a bundle fits a slot and its steps are shorter there.
func (s *Search) gains(b *bundle, x *slot) bool {
	to, from := s.cost(x.class, b.key), s.cost(b.slot.class, b.key)
	if to == nil || from == nil {
		return false
	}
	there, fits := to.step(len(b.members))
	here, ok := from.step(len(b.members))
	return fits && ok && there < here
}
