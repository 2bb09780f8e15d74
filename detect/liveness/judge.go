package liveness

import (
	"math/bits"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

func (s *slot[K]) die(why lockstep.Reason) { s.life, s.why = dead, why }

// fall makes s quiet.
func (t *table[K]) fall(s *slot[K], ns int64, why lockstep.Reason) {
	s.why = why
	if s.quiet {
		return
	}
	if ns-s.steady >= int64(t.cfg.Settle)<<(maxRelapses+1) {
		s.relapse = 0
	}
	s.quiet = true
}

// silent is why s is quiet if it is so by silence.
func (s *slot[K]) silent() lockstep.Reason {
	if s.life == unseen {
		return reasonNeverStarted
	}
	return reasonSilent
}

// hush finds s quiet if it is silent at ns. It is the part of step that goes before
// a decision on partitions.
func (t *table[K]) hush(s *slot[K], ns int64) {
	if s.life > live || ns < s.quietAt {
		return
	}
	if !s.quiet {
		t.fall(s, ns, s.silent())
	}
	s.calmAt = never
}

// step decides on s at ns. The caller tells of it, and works out when s is due next.
func (t *table[K]) step(s *slot[K], ns int64) {
	t.hush(s, ns)
	switch {
	case s.life > live:
	case ns >= t.cutOff(s):
		s.die(reasonDisconnected)
	case ns >= s.endAt():
		s.die(s.silent())
	case s.quiet && ns >= s.calmAt:
		s.quiet, s.calmAt, s.steady, s.hold, s.cohort = false, never, ns, 0, 0
		s.relapse = min(s.relapse+1, maxRelapses)
	}
	if t.judged(s) && !s.hung && ns >= t.hungAt(s) {
		if s.phase == PhaseTeardown {
			s.die(reasonTeardown)
		} else {
			s.hung = true
		}
	}
}

// set works out the deadlines of slot i.
func (t *table[K]) set(i int32) {
	s := &t.slots[i]
	quiet, dead := t.timeouts(s)
	if s.life == unseen {
		s.quietAt = instant.Add(max(s.joined, t.pausedTo), t.cfg.Startup)
		s.deadAt = instant.Add(s.quietAt, time.Duration(dead-quiet))
	} else {
		from := instant.Add(max(s.last, s.paused, t.pausedTo), t.rules[s.phase].Pause)
		s.quietAt = instant.Add(from, time.Duration(quiet))
		s.deadAt = instant.Add(from, time.Duration(dead))
	}
	t.at[i] = t.due(s)
}

// timeouts returns after how long a silence s is quiet, and dead: by phi that is neither
// before DeadAfter nor before two beats are missing, when those that fell silent with s
// are overdue too.
func (t *table[K]) timeouts(s *slot[K]) (quiet, dead int64) {
	if t.cfg.Method == Deadline {
		return int64(t.cfg.SuspectAfter), int64(t.cfg.DeadAfter)
	}
	mean, sigma := s.win.mean(), max(s.win.sigma(), int64(t.cfg.MinSigma))
	quiet = mean + t.cfg.pause() + sigmas(t.z[0], sigma)
	dead = mean + t.cfg.pause() + sigmas(t.z[1], sigma)
	return quiet, max(quiet, dead, 2*mean+4*sigma, int64(t.cfg.DeadAfter))
}

// endAt returns when s dies of silence.
func (s *slot[K]) endAt() int64 { return max(s.deadAt, s.hold, s.cohort) }

// spent says whether s was held for as long as may be and dies of silence at ns.
func (s *slot[K]) spent(ns int64) bool { return max(s.hold, s.cohort) > 0 && ns >= s.endAt() }

// cutOff returns when s dies of its connection having closed; never where it did not.
func (t *table[K]) cutOff(s *slot[K]) int64 {
	if s.cutAt == never {
		return never
	}
	return max(instant.Add(s.cutAt, t.cfg.Reconnect), s.cohort)
}

// overdue says whether a beat of s should have come, or its connection closed. Of
// members that are silent for one cause, most are overdue before the first is dead.
func (t *table[K]) overdue(s *slot[K], ns int64) bool {
	mean, sigma := s.win.mean(), max(s.win.sigma(), int64(t.cfg.MinSigma))
	return s.cutAt != never || ns-max(s.last, t.pausedTo) > mean+sigma
}

// sigmas returns z millionths of sigma, rounded up.
func sigmas(z, sigma int64) int64 { return (z*sigma + million - 1) / million }

// judged says whether the progress of s counts.
func (t *table[K]) judged(s *slot[K]) bool { return t.progress && s.life == live }

// hungAt returns when a lack of progress makes s hung: once it is in its phase for
// longer than that may go without progress, or without progress for longer than all
// the phases together that it has been in since.
func (t *table[K]) hungAt(s *slot[K]) int64 {
	all := int64(0)
	for m := s.mask; m != 0; m &= m - 1 {
		all = instant.Add(all, time.Duration(t.allow[bits.TrailingZeros16(m)]))
	}
	return min(
		instant.Add(max(s.since, t.pausedTo), time.Duration(t.allow[s.phase])),
		instant.Add(max(s.moved, t.pausedTo), time.Duration(all)),
	)
}

// due returns when a check has to look at s; 0 when there is something to tell.
func (t *table[K]) due(s *slot[K]) int64 {
	if s.unsaid() {
		return 0
	}
	if s.life > live {
		return never
	}
	at := min(s.endAt(), t.cutOff(s))
	if !s.quiet || s.calmAt != never {
		at = min(at, s.quietAt, s.calmAt)
	}
	if t.judged(s) && !s.hung {
		at = min(at, t.hungAt(s))
	}
	return at
}

// state is what s is.
func (s *slot[K]) state() State {
	switch {
	case s.life == gone:
		return Left
	case s.life == dead:
		return Dead
	case s.quiet:
		return Suspect
	case s.life == unseen:
		return Unknown
	case s.hung:
		return Hung
	}
	return Alive
}

// unsaid says whether there is something to tell of s: another state, or the same of
// another incarnation.
func (s *slot[K]) unsaid() bool { return s.state() != s.told || s.inc != s.of }

// tell completes the event that s changed.
func (s *slot[K]) tell(e *Event) {
	e.Incarnation, e.From, e.To, e.Reason = s.inc, s.told, s.state(), s.reason()
	e.Since = s.heard(e.To)
	s.told, s.said, s.of = e.To, e.Reason, s.inc
}

// reason is why s is as it is.
func (s *slot[K]) reason() lockstep.Reason {
	switch s.state() {
	case Left:
		return reasonLeft
	case Unknown:
		return reasonJoined
	case Hung:
		return reasonNoProgress
	case Alive:
		if s.told == Hung {
			return reasonProgress
		}
		return reasonBeating
	}
	return s.why
}

// heard is the last beat of s, or its last progress if state is Hung.
func (s *slot[K]) heard(state State) time.Time {
	if state == Hung {
		return lockstep.FromNanos(s.moved)
	}
	return lockstep.FromNanos(s.last)
}
