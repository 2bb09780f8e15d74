package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// Predictive is the rule that looks ahead: it starts what the load will need once a replica that is started now is
// ready, with an allowance for how far its forecasts are off, and catches up with what waits; and it gives back only
// what the load will not need for Hold, after it was not needed for as long as a replica loads. (To keep for as long as
// starting anew costs is never worse than twice the best choice: Karlin et al., Algorithmica 1988.)
//
// Quantile trades cost against attainment, Use against the queueing at full load. Config.Demand is needed.
type Predictive struct {
	Load     time.Duration `json:"load,omitempty"`     // Load is how long a replica takes to be ready, at most 24 h; 0 means 60 s.
	Quantile int           `json:"quantile,omitempty"` // Quantile is how often the capacity is to do, in thousandths, 1 to 999; 0 means 800.
	Hold     time.Duration `json:"hold,omitempty"`     // Hold is for how long a lower number has to do, at most 24 h and at least Load; 0 means twice Load.
	Use      int           `json:"use,omitempty"`      // Use is how much of a replica's capacity is planned with, in thousandths, 1 to 1000; 0 means 900.
	CatchUp  time.Duration `json:"catchUp,omitempty"`  // CatchUp is how soon what waits is to be gone once replicas are ready, at most 24 h; 0 means as long as Load.
}

// Validate reports every fault of p, joined.
func (p Predictive) Validate() error {
	f := faults{op: "predictive"}
	p = p.withDefaults()
	f.span("Load", p.Load, time.Millisecond, 24*time.Hour)
	f.count("Quantile", int64(p.Quantile), 1, thousand-1)
	f.span("Hold", p.Hold, min(max(p.Load, 0), 24*time.Hour), 24*time.Hour)
	f.count("Use", int64(p.Use), 1, thousand)
	f.span("CatchUp", p.CatchUp, time.Millisecond, 24*time.Hour)
	return f.err()
}

func (p Predictive) withDefaults() Predictive {
	p.Load = or(p.Load, time.Minute)
	p.Quantile = or(p.Quantile, 800)
	p.Hold = or(p.Hold, 2*p.Load)
	p.Use = or(p.Use, 900)
	p.CatchUp = or(p.CatchUp, p.Load)
	return p
}

func (p Predictive) filled() Rule { return p.withDefaults() }

func (p Predictive) windows() (level, rate time.Duration) { return 0, 0 }

// Horizons of Predictive, by index.
const (
	untilReady = iota
	whileHeld
)

func (p Predictive) ahead(slot time.Duration) []Horizon {
	return []Horizon{{slotsOf(p.Load, slot), p.Quantile}, {slotsOf(p.Hold, slot), p.Quantile}}
}

// slotsOf returns how many slots after the last whole one reach d beyond any time in the slot that is open.
func slotsOf(d, slot time.Duration) int {
	return int(min(int128.MulDivUp(int64(d), 1, int64(slot))+1, maxSlots))
}

func (p Predictive) delays() policy.Delayed { return policy.Delayed{Down: p.Load} }

func (p Predictive) propose(s *signals, _ *memory) proposal {
	load := s.forecast.latest()
	bound, _ := s.forecast.Bound(untilReady)
	later, _ := s.forecast.Bound(whileHeld)
	bound = max(bound, s.open) // what is here already is no matter of forecasts
	later = max(later, bound)

	extra := int128.MulDivUp(p.waiting(s, max(load, s.open)), thousand, int64(p.CatchUp))
	up := int128.MulDivUp(add(bound, extra), thousand, int64(p.Use))
	down := int128.MulDivUp(add(later, extra), thousand, int64(p.Use))
	out := proposal{load: load, bound: bound, backlog: extra, reason: ReasonRule}
	have := s.count()
	switch {
	case replicas(up) > have:
		out.n, out.need = replicas(up), up
		if extra > 0 && replicas(int128.MulDivUp(bound, thousand, int64(p.Use))) < out.n {
			out.reason = ReasonBacklog
		}
	case replicas(down) < have && s.forecast.learnt(whileHeld):
		out.n, out.need = replicas(down), down
	default:
		out.n, out.need, out.reason = have, int64(have)*thousand, ReasonForecast
		if replicas(up) == have {
			out.reason = ReasonRule
		}
	}
	return out
}

// waiting returns for how long a replica would be busy with what waits when one that is started now is ready: what
// waits now and comes until then, less what those that are ready, and half of those that are not, get done.
func (p Predictive) waiting(s *signals, load int64) int64 {
	comes := add(int64(s.queued), int128.MulDivUp(load, int64(p.Load), thousand))
	done := int128.MulDiv(int64(s.ready)*2+int64(s.starting), int64(p.Load), 2)
	return max(comes-done, 0)
}
