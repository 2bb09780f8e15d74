package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// KPA is the rule of Knative's pod autoscaler (knative/serving v1.20, pkg/autoscaler/scaling): the mean number of
// requests at once, over a long and over a short window, divided by what a replica should have. While the short window
// asks for much more than is ready it panics: takes the larger of both and lowers nothing, until the long window has
// passed without. The zero value has Knative's defaults.
type KPA struct {
	Target    int64         `json:"target,omitempty"`    // Target is how many requests at once a replica should have, in thousandths; 0 means 70000, 70 % of a limit of 100.
	Stable    time.Duration `json:"stable,omitempty"`    // Stable is the long window, at most an hour; 0 means 60 s.
	Burst     time.Duration `json:"burst,omitempty"`     // Burst is the short window, at most Stable; 0 means a tenth of Stable.
	Threshold int64         `json:"threshold,omitempty"` // Threshold is how many times what is ready the short window has to ask for to panic, in thousandths, at least 1000; 0 means 2000.
	Up        int64         `json:"up,omitempty"`        // Up is how many times what is ready may be asked for at most, in thousandths, more than 1000; 0 means 1000000.
	Down      int64         `json:"down,omitempty"`      // Down is the same as a divisor for lowering, in thousandths, more than 1000; 0 means 2000.
	Delay     time.Duration `json:"delay,omitempty"`     // Delay is for how long the highest number stands, at most an hour; 0 means not at all.
}

// Validate reports every fault of k, joined.
func (k KPA) Validate() error {
	f := faults{op: "kpa"}
	k = k.withDefaults()
	f.count("Target", k.Target, 1, maxCount*thousand)
	f.span("Stable", k.Stable, time.Millisecond, time.Hour)
	f.span("Burst", k.Burst, time.Microsecond, max(k.Stable, time.Microsecond))
	f.count("Threshold", k.Threshold, thousand, maxCount)
	f.count("Up", k.Up, thousand+1, maxCount)
	f.count("Down", k.Down, thousand+1, maxCount)
	f.span("Delay", k.Delay, 0, time.Hour)
	return f.err()
}

func (k KPA) withDefaults() KPA {
	k.Target = or(k.Target, 70_000)
	k.Stable = or(k.Stable, time.Minute)
	k.Burst = or(k.Burst, k.Stable/10)
	k.Threshold = or(k.Threshold, 2*thousand)
	k.Up = or(k.Up, thousand*thousand)
	k.Down = or(k.Down, 2*thousand)
	return k
}

// Scale is the rule's arithmetic: what the means over both windows, in thousandths of requests at once, ask for with
// so many replicas ready, and whether the short one asks for enough to panic. Mean loads below 0 count as 0. The
// caller has validated k.
func (k KPA) Scale(stable, burst int64, ready int) (calm, hasty int, over bool) {
	k = k.withDefaults()
	n := int64(max(ready, 1)) // Knative counts none as one, so that factors have something to work on
	most, least := int128.MulDivUp(n, k.Up, thousand), int128.MulDiv(n, thousand, k.Down)
	s, p := int128.MulDivUp(stable, 1, k.Target), int128.MulDivUp(burst, 1, k.Target)
	hold := func(v int64) int { return int(min(max(v, least), most, MaxReplicas)) }
	return hold(s), hold(p), p >= int128.MulDivUp(n, k.Threshold, thousand)
}

func (k KPA) filled() Rule { return k.withDefaults() }

func (k KPA) windows() (level, rate time.Duration) { return k.Stable, 0 }

func (k KPA) ahead(time.Duration) []Horizon { return nil }

func (k KPA) delays() policy.Delayed { return policy.Delayed{Down: k.Delay} }

func (k KPA) propose(s *signals, m *memory) proposal {
	stable, burst := s.level.level(k.Stable), s.level.level(k.Burst)
	calm, hasty, over := k.Scale(stable, burst, s.ready)
	p := proposal{n: calm, need: int128.MulDivUp(stable, thousand, k.Target), load: stable, reason: ReasonRule}
	switch {
	case over:
		m.Until = instant.Add(s.now, k.Stable)
	case m.Until != 0 && m.Until < s.now:
		m.Until, m.Peak = 0, 0
	}
	if m.Until != 0 {
		p.n = max(calm, hasty)
		p.need = max(p.need, int128.MulDivUp(burst, thousand, k.Target))
		p.reason = ReasonPanic
		if p.n < m.Peak {
			p.n = m.Peak
		}
		m.Peak = p.n
	}
	return p
}
