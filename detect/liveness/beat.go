package liveness

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// refuse says why a report about slot i of incarnation inc does not count.
func (s *slot[K]) refuse(inc uint64) (Outcome, bool) {
	switch {
	case inc < s.inc:
		return Stale, true
	case inc > s.inc:
		return Early, true
	case s.life == gone:
		return Retired, true
	case s.life == dead:
		return Fenced, true
	}
	return Accepted, false
}

// beat takes in a beat, whose fields are in range.
func (t *table[K]) beat(i int32, ns int64, b *Beat) Outcome {
	s := &t.slots[i]
	if out, no := s.refuse(b.Incarnation); no {
		return out
	}
	again := s.life == live && ns == s.last
	if s.life == live && !again {
		t.sample(i, ns)
	}
	if s.cutAt < ns {
		s.cutAt = never
	}
	if s.quiet && s.cutAt == never && (s.calmAt == never || ns >= s.quietAt) {
		s.calmAt = instant.Add(ns, t.cfg.Settle<<min(s.relapse, maxRelapses))
	}
	if !again {
		s.paused = 0
	}
	quiet := s.paused
	s.paused = max(s.paused, instant.Add(ns, b.Pause))
	s.last = ns
	out := Accepted
	if s.life == unseen {
		s.life, s.phase, s.mask = live, b.Phase, 1<<b.Phase
		s.progress, s.moved, s.since, s.spoke = b.Progress, ns, ns, ns
	} else if out = t.move(s, ns, b, again); out == Repeated && s.paused > quiet {
		out = Accepted
	}
	t.set(i)
	return out
}

// sample learns the interval that ends at ns, unless silence was expected in it. One
// that was long enough to be suspect counts as just that long, so that the detector
// gets used to slower beats, but slowly.
func (t *table[K]) sample(i int32, ns int64) {
	s := &t.slots[i]
	if s.last < t.pausedTo || s.paused > s.last || t.rules[s.phase].Pause > 0 {
		return
	}
	quiet, _ := t.timeouts(s)
	us := min(ns-s.last, quiet) / thousand
	s.win.push(t.intervals(i), uint32(min(us, maxSample)))
}

// move takes in the progress and the phase of a beat, of which the one with the
// greatest progress in an instant counts; again says that it is not the first one.
func (t *table[K]) move(s *slot[K], ns int64, b *Beat, again bool) Outcome {
	switch {
	case b.Progress < s.progress && !again:
		return Rewound
	case b.Progress < s.progress, s.spoke == ns && b.Progress == s.progress && b.Phase <= s.phase:
		return Repeated
	}
	s.spoke = ns
	on, turned := b.Progress > s.progress, b.Phase != s.phase
	if on || turned {
		t.learn(s, ns)
		s.since = ns
	}
	if on {
		s.progress, s.moved, s.hung = b.Progress, ns, false
	}
	if s.moved == ns {
		s.mask = 0
	}
	s.phase = b.Phase
	s.mask |= 1 << b.Phase
	return Accepted
}

// learn takes in the gap in the phase of s that ends at ns.
func (t *table[K]) learn(s *slot[K], ns int64) {
	d := ns - s.since
	if !t.progress || d <= 0 || s.since < t.pausedTo {
		return
	}
	g := &t.gaps[s.phase]
	if block := ns / int64(t.cfg.Memory); block != g.Block {
		if block == g.Block+1 {
			g.Longest[1], g.Seen[1] = g.Longest[0], g.Seen[0]
		} else {
			g.Longest[1], g.Seen[1] = 0, 0
		}
		g.Longest[0], g.Seen[0], g.Block = 0, 0, block
	}
	g.Longest[0] = max(g.Longest[0], d)
	g.Seen[0]++
	if a := t.allowed(s.phase); a != t.allow[s.phase] {
		t.allow[s.phase] = a
		t.dirty = true
	}
}

// allowed returns how long a rank may go without progress in phase p: what its rule
// says, or once enough was seen a multiple of the longest gap.
func (t *table[K]) allowed(p Phase) int64 {
	r, g := &t.rules[p], &t.gaps[p]
	if r.Fixed || g.Seen[0]+g.Seen[1] < int64(t.cfg.Learn) {
		return int64(r.Gap)
	}
	hi, lo := bits.Mul64(uint64(max(g.Longest[0], g.Longest[1])), uint64(t.cfg.Factor))
	if hi >= thousand {
		return int64(r.Most)
	}
	most, _ := bits.Div64(hi, lo, thousand)
	return int64(max(uint64(r.Least), min(most, uint64(r.Most))))
}

// report takes in what others know of slot i.
func (t *table[K]) report(i int32, ns int64, inc uint64, e Evidence) Outcome {
	s := &t.slots[i]
	if out, no := s.refuse(inc); no {
		return out
	}
	switch e {
	case Exited:
		s.die(reasonExited)
	case Broken:
		s.die(reasonBroken)
	case Seen:
		s.hold = max(s.hold, instant.Add(ns, t.cfg.Hold))
	case Disconnected:
		if s.cutAt != never {
			return Repeated
		}
		s.cutAt, s.calmAt = ns, never
		t.fall(s, ns, reasonDisconnected)
	}
	t.set(i)
	return Accepted
}
