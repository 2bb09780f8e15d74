package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// QueueLength is the rule of Ray Serve (ray-project/ray 2.50, serve/autoscaling_policy.py): requests at once over
// what a replica should have, approached by a factor of the way, once it held for a delay without a break. The zero
// value has Ray's defaults. Delays are those of policy.Delayed: so much of a change is made as was wanted throughout.
type QueueLength struct {
	Target     int64         `json:"target,omitempty"`     // Target is how many requests at once a replica should have, in thousandths; 0 means 2000.
	UpFactor   int64         `json:"upFactor,omitempty"`   // UpFactor is how much of the way up is gone at a time, in thousandths; 0 means 1000.
	DownFactor int64         `json:"downFactor,omitempty"` // DownFactor is that of the way down, at most 1000; 0 means 1000.
	LookBack   time.Duration `json:"lookBack,omitempty"`   // LookBack is over how long requests are averaged, at most an hour; 0 means 30 s.
	Up         time.Duration `json:"up,omitempty"`         // Up is the delay before a higher number, at least LookBack and at most 24 h; 0 means 30 s.
	Down       time.Duration `json:"down,omitempty"`       // Down is the delay before a lower number, at least LookBack and at most 24 h; 0 means 600 s.
}

// Validate reports every fault of q, joined. A delay shorter than LookBack is one: the mean would still hold what the
// last step has already answered, and be answered again (ray-project/ray#26455).
func (q QueueLength) Validate() error {
	f := faults{op: "queue length"}
	q = q.withDefaults()
	f.count("Target", q.Target, 1, maxCount*thousand)
	f.count("UpFactor", q.UpFactor, 1, maxCount)
	f.count("DownFactor", q.DownFactor, 1, thousand)
	f.span("LookBack", q.LookBack, time.Millisecond, time.Hour)
	f.span("Up", q.Up, min(max(q.LookBack, 0), time.Hour), 24*time.Hour)
	f.span("Down", q.Down, min(max(q.LookBack, 0), time.Hour), 24*time.Hour)
	return f.err()
}

func (q QueueLength) withDefaults() QueueLength {
	q.Target = or(q.Target, 2*thousand)
	q.UpFactor = or(q.UpFactor, thousand)
	q.DownFactor = or(q.DownFactor, thousand)
	q.LookBack = or(q.LookBack, 30*time.Second)
	q.Up = or(q.Up, 30*time.Second)
	q.Down = or(q.Down, 10*time.Minute)
	return q
}

// Scale is the rule's arithmetic: how many replicas to go to from current with total requests at once, in thousandths.
// A factor that would leave a lower number where it is lowers it by one. With none there is one for any request. The
// caller has validated q.
func (q QueueLength) Scale(total int64, current int) int {
	q = q.withDefaults()
	total = max(total, 0)
	want := int128.MulDivUp(total, 1, q.Target)
	if current <= 0 {
		return int(min(want, MaxReplicas))
	}
	n := int64(min(current, MaxReplicas))
	exact := n * q.Target // total at which nothing changes
	if total >= exact {
		step := int128.MulDivUp(total-exact, q.UpFactor, thousand)
		return int(min(add(n, int128.MulDivUp(step, 1, q.Target)), MaxReplicas))
	}
	scaled := n - int128.MulDiv(exact-total, q.DownFactor, thousand*q.Target)
	if scaled == n && want < n {
		scaled--
	}
	return int(scaled)
}

func (q QueueLength) filled() Rule { return q.withDefaults() }

func (q QueueLength) windows() (level, rate time.Duration) { return q.LookBack, 0 }

func (q QueueLength) ahead(time.Duration) []Horizon { return nil }

func (q QueueLength) delays() policy.Delayed {
	return policy.Delayed{Up: q.Up, Down: q.Down, FirstAtOnce: true}
}

func (q QueueLength) propose(s *signals, _ *memory) proposal {
	total, current := s.level.level(q.LookBack), s.count()
	if current == 0 && s.ongoing > 0 {
		total = max(total, s.ongoing*thousand) // from none it goes by what there is
	}
	p := proposal{n: q.Scale(total, current), need: int128.MulDivUp(total, thousand, q.Target), load: total, reason: ReasonRule}
	return p
}
