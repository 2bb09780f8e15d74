package autoscale

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// Scaler decides how many replicas one service has. It is made by New or Restore.
type Scaler struct {
	cfg      Config // with defaults filled in
	steady   policy.Steady
	now      int64 // the latest time seen
	term     uint64
	seq      uint64
	want     int   // the last decision's
	told     int64 // when the last sample came
	active   int64 // when something was last asked of the service
	gauges   []gauge
	level    mean
	arrivals mean
	memory   memory
	usual    usual
	slot     int64       // the number of the one that is open, counted from 1970; -1 before the first sample
	busy     int64       // what its traffic keeps a replica busy for, in nanoseconds
	partial  bool        // it began before the first sample
	forecast *Forecaster // nil unless something is forecast
	water    *water      // nil unless the rule is HighWater
}

// New returns a Scaler that knows of nothing yet.
func New(cfg Config) (*Scaler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Scaler{cfg: cfg, steady: cfg.Steady, term: cfg.Term, slot: -1}
	if horizons := cfg.horizons(); len(horizons) > 0 {
		f, err := NewForecaster(ForecastConfig{Horizons: horizons, Season: cfg.Demand.Season, Errors: cfg.Demand.Errors})
		if err != nil {
			return nil, err
		}
		s.forecast = f
	}
	if h, ok := cfg.Rule.(HighWater); ok {
		s.water = newWater(h)
	}
	return s, nil
}

// at checks a time.
func (s *Scaler) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, s.now)
}

// Observe takes a sample in. Errors: ErrInvalid for a sample that Validate refuses, a time before 1970 or more than
// 65536 sources within Expiry; ErrPast.
func (s *Scaler) Observe(now time.Time, sample Sample) error {
	const op = "observe"
	ns, err := s.at(op, now)
	if err := errors.Join(err, sample.Validate()); err != nil {
		return err
	}
	if _, known := s.source(sample.Source); !known && len(s.gauges) >= maxSources && s.expired(ns) == 0 {
		return fault(lockstep.ErrInvalid, op, "Source", errtext.Quote(sample.Source), "want at most "+strconv.Itoa(maxSources)+" sources at once")
	}
	s.advance(ns)
	i, known := s.source(sample.Source)
	if !known {
		s.gauges = slices.Insert(s.gauges, i, gauge{})
	}
	s.gauges[i] = gauge{sample.Source, ns, sample.Ongoing, sample.Queued}
	s.arrivals.advance(ns/1000, sample.Requests)
	s.level.Value = s.ongoing()
	if sample.Requests > 0 || sample.Ongoing > 0 || sample.Queued > 0 {
		s.active = ns
	}
	s.told = ns
	s.usual.add(sample)
	s.book(ns, sample)
	return nil
}

// advance lets time pass: counts that expire on the way stop to count when they do, not when somebody looks.
func (s *Scaler) advance(now int64) {
	if s.level.Width == 0 {
		level, rate := s.cfg.Rule.windows()
		s.level.begin(now/1000, level)
		s.arrivals.begin(now/1000, rate)
		s.told, s.active = now, now
	}
	s.expire(now)
	s.level.advance(now/1000, 0)
	s.arrivals.advance(now/1000, 0)
	s.now = now
}

// book puts the load of a sample where it belongs. What came after slots without a sample came in during all of them;
// but after more than Expiry nobody knows, and they are skipped.
func (s *Scaler) book(now int64, sample Sample) {
	if s.forecast == nil && s.water == nil {
		return
	}
	busy := int64(0)
	if sample.Requests > 0 {
		busy = max(int64(s.cfg.Demand.Capacity.Busy(s.usual.traffic(sample.Requests, sample.Prompt))), 0)
	}
	if s.water != nil {
		s.water.add(now, time.Duration(busy))
	}
	if s.forecast == nil {
		return
	}
	slot := now / int64(s.cfg.Demand.Slot)
	gap := slot - s.slot
	switch {
	case s.slot < 0:
		s.slot, s.partial = slot, true
	case gap > 0:
		if s.partial {
			s.forecast.Skip()
		} else {
			s.close(s.busy)
		}
		long := (gap-1)*int64(s.cfg.Demand.Slot) > int64(s.cfg.Expiry)
		share := busy / gap
		for i := int64(1); i < gap && i <= maxSeason; i++ { // after a whole season without samples it may begin anywhere
			if long {
				s.forecast.Skip()
			} else {
				s.close(share)
			}
		}
		busy -= share * (gap - 1)
		s.slot, s.busy, s.partial = slot, 0, false
	}
	s.busy = add(s.busy, busy)
}

// close tells the forecaster of a slot that is over.
func (s *Scaler) close(busy int64) {
	s.forecast.advance(min(int128.MulDivUp(busy, thousand, int64(s.cfg.Demand.Slot)), maxLoad))
}

// open returns the load that the open slot comes to at least.
func (s *Scaler) open() int64 {
	return min(int128.MulDiv(s.busy, thousand, int64(s.cfg.Demand.Slot)), maxLoad)
}

// Decide says how many replicas there should be, which of fleet to drain, or how many to start. Replicas that were asked
// for are to be in fleet.Starting from then on, or they are asked for again. Errors: ErrInvalid and ErrDuplicate for a
// fleet that Validate refuses, ErrInvalid for a time before 1970; ErrPast.
func (s *Scaler) Decide(now time.Time, fleet Fleet) (Decision, error) {
	ns, err := s.at("decide", now)
	if err := errors.Join(err, fleet.Validate()); err != nil {
		return Decision{}, err
	}
	have := len(fleet.Ready) + len(fleet.Starting)
	if have > MaxReplicas {
		return Decision{}, fault(lockstep.ErrInvalid, "decide", "len(fleet.Ready)+len(fleet.Starting)", strconv.Itoa(have), "want at most "+strconv.Itoa(MaxReplicas))
	}
	s.advance(ns)
	d := Decision{Term: s.term}
	if err := s.decide(&d, fleet, have); err != nil {
		return Decision{}, err
	}
	switch {
	case d.Want > have:
		d.Add = d.Want - have
	case d.Want < have:
		d.Remove = victims(fleet, have-d.Want)
	}
	s.seq++
	d.Seq, s.want = s.seq, d.Want
	return d, nil
}

// decide fills in Want and Why.
func (s *Scaler) decide(d *Decision, fleet Fleet, have int) error {
	sig := &signals{
		now: s.now, ready: len(fleet.Ready), starting: len(fleet.Starting), ongoing: s.ongoing(),
		level: &s.level, arrivals: &s.arrivals, forecast: s.forecast, water: s.water, open: s.open(),
	}
	if n := s.waiting(); n > 0 && s.forecast != nil {
		sig.queued = max(s.cfg.Demand.Capacity.Busy(s.usual.traffic(n, unknown)), 0)
	}
	if s.water != nil {
		sig.present = max(s.cfg.Demand.Capacity.Busy(s.usual.traffic(sig.ongoing, unknown)), 0)
	}
	p := s.cfg.Rule.propose(sig, &s.memory)
	d.Why = Why{Reason: p.reason, Rule: p.n, Need: p.need, Load: p.load, Bound: p.bound, Backlog: p.backlog, Current: have}
	quiet := s.now-s.told > int64(s.cfg.Expiry)
	wish := wishOf(p)
	if quiet {
		wish, d.Why.Reason = policy.Demand(have)*policy.One, ReasonNoSamples
	}
	v, err := s.steady.Step(lockstep.FromNanos(s.now), have, wish)
	if err != nil {
		return err // invariant: all that it takes has been checked
	}
	d.Want = v.Target
	if v.Held != policy.Free {
		d.Why.Reason, d.Why.Held = ReasonSteady, v.Held
	}
	s.zero(d, have, quiet)
	return nil
}

// wishOf returns what steadying goes by: the need before rounding where the rule's number is that rounded up.
func wishOf(p proposal) policy.Demand {
	if replicas(p.need) == p.n {
		return policy.Demand(min(max(p.need, 0), MaxReplicas*thousand))
	}
	return policy.Demand(p.n) * policy.One
}

// zero decides whether there may be none, and whether there is to be one again.
func (s *Scaler) zero(d *Decision, have int, quiet bool) {
	floor := s.cfg.Steady.Bounded.Min
	asked := s.ongoing() > 0
	idle := !asked && !quiet && s.now-s.active >= int64(s.cfg.Grace)
	switch {
	case asked && d.Want == 0:
		d.Want, d.Why.Reason = s.one(), ReasonAwake
	case have > 0 && d.Want == 0 && !idle:
		d.Want, d.Why.Reason = s.one(), ReasonGrace
	case idle && floor == 0 && d.Want > 0 && !s.expected():
		d.Want, d.Why.Reason = 0, ReasonIdle
	}
}

// one returns the least legal number above none.
func (s *Scaler) one() int {
	b := s.cfg.Steady.Bounded
	b.RoundUp = true
	return b.Legal(1)
}

// expected says that a load is forecast or a mark stands, so that a service that is idle now keeps what it will need: a
// hundredth of a replica at least, since a forecast that fades never quite reaches nothing.
func (s *Scaler) expected() bool {
	load := int64(0)
	switch {
	case s.water != nil:
		load, _ = s.water.highest(s.now)
	case s.forecast != nil:
		load, _ = s.forecast.Point(0)
	}
	return load > thousand/100
}

// NextWake returns when Decide is to be called next, if no sample comes before: Period after now, or at the instant at
// which a count expires, a delay is over or the grace is; false if nothing was told yet. Now is that of the last call.
func (s *Scaler) NextWake(now time.Time) (time.Time, bool) {
	ns, err := s.at("next wake", now)
	if err != nil || s.level.Width == 0 {
		return time.Time{}, false
	}
	at := instant.Add(ns, s.cfg.Period)
	sooner := func(t int64) {
		if t > ns {
			at = min(at, t)
		}
	}
	for _, g := range s.gauges {
		sooner(instant.Add(instant.Add(g.At, s.cfg.Expiry), 1))
	}
	sooner(instant.Add(s.active, s.cfg.Grace))
	if s.memory.Until != 0 {
		sooner(instant.Add(s.memory.Until, 1))
	}
	if t, ok := s.steady.NextWake(); ok {
		if n, err := lockstep.Nanos(t); err == nil {
			sooner(n)
		}
	}
	return lockstep.FromNanos(at), true
}

// Raise makes s decide in a later term, such as after it lost the lead and has it again. A term that is not later than
// the present one is ErrStale.
func (s *Scaler) Raise(term uint64) error {
	if term <= s.term {
		return fault(lockstep.ErrStale, "raise", "term", strconv.FormatUint(term, 10), "is not after "+strconv.FormatUint(s.term, 10))
	}
	s.term, s.seq = term, 0
	return nil
}
