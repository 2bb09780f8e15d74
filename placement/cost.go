package placement

// What a cost is made of besides worth, in units of it.
const (
	lossWeight = 4          // of what a member takes, or makes useless, of devices
	openCost   = 100 * unit // of a share of an idle device
	mostPlural = 100        // the most that breaking up idle devices of a node costs, in thousandths of a device
	costShift  = 5          // ranks tell 32 of these apart in a thousandth of a device
	costBase   = 1 << 22    // the rank of no cost
)

// purse is a node as the market sees it: what is free of its devices is worth so much,
// and will need so much CPU.
type purse struct {
	worth, need int64
	cpu         int64
}

// add adds a device of which r thousandths are free, n times.
func (p *purse) add(m *market, r int32, n int64) {
	p.worth += n * m.worth[r]
	p.need += n * m.need[r]
}

// short returns how much of the worth is expected to find no CPU.
func (p *purse) short() int64 {
	cpu := min(max(0, p.cpu), mostCPU)
	if cpu >= p.need {
		return 0
	}
	return p.worth * (p.need - cpu) / p.need
}

// after returns the purse once share thousandths were taken of a device with r free.
func (p purse) after(m *market, r, share int32) purse {
	p.worth += m.worth[r-share] - m.worth[r]
	p.need += m.need[r-share] - m.need[r]
	return p
}

// purseOf gathers the shared devices of c, as State.shared does, and adds up all.
func (s *State) purseOf(k *kind, x int32, c *slot) (p purse, idle int64) {
	m := s.market
	p.cpu = c.cpu
	idle = s.shared(k, x, c)
	p.add(m, 1000, idle)
	for _, r := range s.work.left {
		p.add(m, r, 1)
	}
	return p, idle
}

// breaking is what it costs that of so many idle devices of a node fewer are left: the
// thousandths of all demand that ask for more devices of a node than k, and for as many
// as there were.
func (m *market) breaking(k int32, idle, left int64) int64 {
	from := max(left, int64(k))
	if from >= idle {
		return 0
	}
	return unit * min(mostPlural, m.plural[idle]-m.plural[from])
}

// costOf returns what a member of v costs on the best devices of c, which has room: what
// it takes of their worth and makes useless, what the rest will lack of CPU more than
// before, and what others will miss. For whole devices, the same wherever they are is
// left out.
func (s *State) costOf(v *view, x int32, c *slot) int64 {
	k, m, w := &v.kind, s.market, &s.work
	now, idle := s.purseOf(k, x, c)
	then := now
	then.cpu -= k.cpu
	dear := v.dear[c.model]
	switch {
	case k.gpus == 0:
		return then.short() - now.short()
	case k.mode == takesWhole:
		n := int64(k.gpus)
		then.add(m, 1000, -n)
		return n*m.worth[1000]*dear/1000 + then.short() - now.short() + m.breaking(k.gpus, idle, idle-n)
	case k.gpus > 1:
		return s.costOfSeveral(v, x, c, now)
	}
	share, best, found := int32(k.share), int64(0), false
	before := now.short()
	if idle > 0 {
		loss := m.worth[1000] - m.worth[1000-share]
		last := then.after(m, 1000, share)
		best, found = lossWeight*loss+loss*dear/1000+last.short()-before+openCost+m.breaking(1, idle, idle-1), true
	}
	for i := range w.devices {
		o := &w.devices[i]
		if o.room(k) == 0 {
			continue
		}
		loss := m.worth[o.milli] - m.worth[o.milli-share]
		last := then.after(m, o.milli, share)
		if cost := lossWeight*loss + loss*dear/1000 + last.short() - before; !found || cost < best {
			best, found = cost, true
		}
	}
	return best
}

// costOfSeveral is costOf for a member that takes shares of several devices: those that
// it would get.
func (s *State) costOfSeveral(v *view, x int32, c *slot, now purse) int64 {
	k, m, w := &v.kind, s.market, &s.work
	s.all(k, x, c)
	idle := int64(0)
	for i := range w.devices {
		idle += int64(boolCount(w.devices[i].idle))
	}
	set := s.tightest(k, 1)
	then, rest, loss, left := now, int64(0), int64(0), idle
	then.cpu -= k.cpu
	for i := range w.devices {
		o := &w.devices[i]
		if !set.Has(int(o.index)) {
			continue
		}
		r := o.milli + int32(k.share)
		loss += m.worth[r] - m.worth[o.milli]
		then = then.after(m, r, int32(k.share))
		if r == 1000 { // it was idle
			rest += openCost
			left--
		}
	}
	return lossWeight*loss + loss*v.dear[c.model]/1000 + then.short() - now.short() + rest + m.breaking(k.gpus, idle, left)
}

// cheapest returns the device of w.devices, which are all of c, for one share of v, on a
// node with so much CPU: that which costs least, then the tightest, then the lowest.
func (s *State) cheapest(v *view, c *slot, cpu int64) int {
	k, m, w := &v.kind, s.market, &s.work
	then := purse{cpu: cpu - k.cpu}
	idle := int64(0)
	for i := range w.devices {
		then.add(m, w.devices[i].milli, 1)
		idle += int64(boolCount(w.devices[i].idle))
	}
	share, dear := int32(k.share), v.dear[c.model]
	pick, least := -1, int64(0)
	for i := range w.devices {
		o := &w.devices[i]
		if o.room(k) == 0 {
			continue
		}
		loss := m.worth[o.milli] - m.worth[o.milli-share]
		last := then.after(m, o.milli, share)
		cost := lossWeight*loss + loss*dear/1000 + last.short()
		if o.idle {
			cost += openCost + m.breaking(1, idle, idle-1)
		}
		if pick < 0 || cost < least || cost == least && o.milli < w.devices[pick].milli {
			pick, least = i, cost
		}
	}
	return pick
}

// appraise readies a ranked view for the market as it is.
func (s *State) appraise(v *view) {
	v.priced, v.dear, v.lines = s.markets, v.dear[:0], v.lines[:0]
	for _, class := range s.models {
		v.lines = append(v.lines, s.market.mix.kinds[class])
		v.dear = append(v.dear, s.market.pressure(v.class.devices, class))
	}
}
