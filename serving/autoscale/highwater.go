package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// HighWater is the rule that goes by high-water marks: the most that the load came to over any stretch as long as a
// replica loads, of those that ended within Hold, with room to spare. A shorter swell is over before a replica that it
// starts is ready, so nothing is started for it alone; and what a longer one took is kept for many times as long as it
// would take to load again, since without it not only a replica loads, all that comes meanwhile is late.
//
// Wait holds that room down where the objective needs less: no more is had than would have kept all work of the last
// Hold from waiting longer. Then work may queue, and a swell shorter than Wait costs nothing.
//
// What waits by this account, for all that is ready, is caught up with besides, over twice the time that a replica loads;
// it is never more than the work of the requests that there are.
//
// Use trades cost against attainment. Config.Demand.Capacity is needed.
type HighWater struct {
	Load time.Duration `json:"load,omitempty"` // Load is how long a replica takes to be ready, at most 24 h; 0 means 60 s.
	Hold time.Duration `json:"hold,omitempty"` // Hold is for how long a mark stands, at least Load and at most 96 h; 0 means 15 × Load.
	Use  int           `json:"use,omitempty"`  // Use is how much of the capacity the mark is to take, in thousandths, 100 to 10000: from 1000 on there is nothing to spare, and work is late while the load is at its mark; 0 means 630.
	Wait time.Duration `json:"wait,omitempty"` // Wait is for how long work may wait, such as an objective for the time to the first token, at most 24 h; 0 means that nothing is known of that, and nothing held down.
}

// Constants of HighWater. They and the defaults were chosen on the first halves of both Azure LLM traces only; see
// doc.go.
const (
	holdLoads = 15  // for how many times Load a mark stands
	markUse   = 630 // the default of Use
	catchUp   = 2   // over how many times Load what waits is to be gone
	fullUse   = 900 // how much of the capacity is had while work waits
	waitUse   = 600 // how much of the capacity that keeps work within Wait is used: replicas are not loaded alike
)

// Validate reports every fault of h, joined.
func (h HighWater) Validate() error {
	f := faults{op: "high water"}
	h = h.withDefaults()
	f.span("Load", h.Load, time.Millisecond, 24*time.Hour)
	f.span("Hold", h.Hold, min(max(h.Load, 0), 24*time.Hour), 96*time.Hour)
	f.count("Use", int64(h.Use), 100, 10*thousand)
	f.span("Wait", h.Wait, 0, 24*time.Hour)
	return f.err()
}

func (h HighWater) withDefaults() HighWater {
	h.Load = or(h.Load, time.Minute)
	if h.Hold == 0 {
		h.Hold = min(min(max(h.Load, 0), 24*time.Hour)*holdLoads, 96*time.Hour)
	}
	h.Use = or(h.Use, markUse)
	return h
}

func (h HighWater) filled() Rule { return h.withDefaults() }

func (h HighWater) windows() (level, rate time.Duration) { return 0, 0 }

func (h HighWater) ahead(time.Duration) []Horizon { return nil }

func (h HighWater) delays() policy.Delayed { return policy.Delayed{} }

func (h HighWater) propose(s *signals, _ *memory) proposal {
	swell, surge := s.water.highest(s.now)
	need := int128.MulDivUp(swell, thousand, int64(h.Use))
	if h.Wait > 0 {
		need = min(need, int128.MulDivUp(surge, thousand, waitUse))
	}
	extra := int128.MulDivUp(s.water.serve(s.ready, s.present), thousand, catchUp*max(h.Load.Microseconds(), 1))
	need = add(need, extra)
	p := proposal{n: replicas(need), need: need, load: s.water.swell(), bound: swell, backlog: extra, reason: ReasonRule}
	switch have := s.count(); {
	case p.n > have && replicas(need-extra) < p.n:
		p.reason = ReasonBacklog
	case p.n < have && !s.water.known(s.now): // a controller that has just begun knows of no mark
		p.n, p.need, p.reason = have, int64(have)*thousand, ReasonForecast
	case p.load < swell && p.n == have:
		p.reason = ReasonForecast
	}
	return p
}
