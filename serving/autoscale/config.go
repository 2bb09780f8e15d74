package autoscale

import (
	"reflect"
	"time"

	"github.com/lockstep-gpu/lockstep/policy"
)

// Config configures a Scaler. Rule is needed, and with Predictive and HighWater Demand.Capacity.
type Config struct {
	Rule   Rule          `json:"-"`                // Rule says how many replicas the service needs.
	Demand Demand        `json:"demand,omitzero"`  // Demand is how the load is measured in replicas and forecast; the zero value is not at all.
	Loan   LoanConfig    `json:"loan,omitzero"`    // Loan is how idle capacity is lent; the zero value is not at all.
	Steady policy.Steady `json:"steady,omitzero"`  // Steady steadies what the rule asks for, and bounds it: Bounded.Min is how many there always are, 0 means that there may be none; Bounded.Max 0 means 2^20. Its Delayed stays zero where the rule has delays of its own. Its state is to be zero.
	Margin int           `json:"margin,omitempty"` // Margin is what a lower number has to leave free of what there is, in thousandths, at most 1000, so that a load at the edge of two numbers does not make them alternate; 0 means 100, NoMargin none. It stands for Steady.Hysteresis.DownFraction where that is 0.
	Grace  time.Duration `json:"grace,omitempty"`  // Grace is for how long nothing has to be asked of the service before its last replica goes, at most 24 h; 0 means 30 s (Knative's).
	Expiry time.Duration `json:"expiry,omitempty"` // Expiry is for how long a source's Ongoing and Queued count, and samples tell anything at all, at most 24 h; 0 means 60 s.
	Period time.Duration `json:"period,omitempty"` // Period is how often Decide is to be called, at most 1 h; 0 means 2 s (Knative's).
	Term   uint64        `json:"term,omitempty"`   // Term goes into decisions, so that a Fence refuses those of an earlier controller: the token of the lease by which this one leads.
}

// NoMargin is a Config.Margin of nothing.
const NoMargin = -1

// Demand says how traffic is turned into a load in replicas, and how that is forecast.
type Demand struct {
	Capacity Capacity      `json:"-"`                // Capacity says how much of a replica traffic takes; nil turns forecasts off.
	Slot     time.Duration `json:"slot,omitempty"`   // Slot is over how long a load is a mean; samples should come as often at least. 1 ms to 1 h; 0 means 30 s. It should not be shorter than a request takes: the work of those that came in a slot is then done in about one.
	Season   int           `json:"season,omitempty"` // Season is after how many slots the load repeats, such as a day; 0 means that it does not.
	Errors   int           `json:"errors,omitempty"` // Errors is how many past errors are kept; 0 means 1024. See ForecastConfig.
}

// Validate reports every fault of c, joined. A rule that would thrash is one: see QueueLength.
func (c Config) Validate() error {
	f := faults{op: "config"}
	if absent(c.Rule) {
		f.bad("Rule", "nil", "is needed")
	} else if err := c.Rule.Validate(); err != nil {
		f.errs = append(f.errs, err)
	}
	f.errs = append(f.errs, c.Steady.Validate(), c.Loan.Validate())
	f.count("Margin", int64(c.Margin), NoMargin, thousand)
	f.count("Steady.Bounded.Max", int64(c.Steady.Bounded.Max), 0, MaxReplicas)
	f.count("Steady.Bounded.Min", int64(c.Steady.Bounded.Min), 0, MaxReplicas)
	f.span("Grace", c.Grace, 0, 24*time.Hour)
	f.span("Expiry", c.Expiry, 0, 24*time.Hour)
	f.span("Period", c.Period, 0, time.Hour)
	if c.Demand.Slot != 0 {
		f.span("Demand.Slot", c.Demand.Slot, time.Millisecond, time.Hour)
	}
	if c.Steady.Delayed.State.Known || c.Steady.RateLimited.State.Known || c.Steady.Cooldown.State.Known {
		f.bad("Steady", "", "has been used: its state is not zero")
	}
	if c.Demand.Capacity != nil && absent(c.Demand.Capacity) {
		f.bad("Demand.Capacity", "nil", "is a pointer to nothing")
	}
	if err := f.err(); err != nil {
		return err // what follows goes by values that are in range
	}
	c.demand(&f)
	d := c.Rule.filled().delays()
	if (d.Up != 0 || d.Down != 0) && (c.Steady.Delayed.Up != 0 || c.Steady.Delayed.Down != 0) {
		f.bad("Steady.Delayed", "", "the rule has delays of its own")
	}
	return f.err()
}

// absent says whether v is nil, or a pointer or function that is, whose methods would panic.
func absent(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

// demand checks what is to be forecast.
func (c Config) demand(f *faults) {
	horizons := c.horizons()
	switch v, checks := c.Demand.Capacity.(interface{ Validate() error }); {
	case c.Demand.Capacity == nil:
		if _, water := c.Rule.filled().(HighWater); water || len(horizons) > 0 {
			f.bad("Demand.Capacity", "nil", "is needed by Predictive, by HighWater and for loans")
		}
		return
	case checks:
		f.errs = append(f.errs, v.Validate())
	}
	if len(horizons) == 0 {
		return // nothing is forecast
	}
	f.errs = append(f.errs, ForecastConfig{Horizons: horizons, Season: c.Demand.Season, Errors: c.Demand.Errors}.Validate())
	slot := or(c.Demand.Slot, defaultSlot)
	if p, ok := c.Rule.filled().(Predictive); ok && p.Hold > slot*(maxSlots-1) {
		f.bad("Rule.Hold", p.Hold.String(), "is longer than 4095 slots")
	}
	if c.Loan.on() && c.Loan.withDefaults().Lasts > slot*(maxSlots-1) {
		f.bad("Loan.Lasts", c.Loan.withDefaults().Lasts.String(), "is longer than 4095 slots")
	}
}

const defaultSlot = 30 * time.Second

// horizons returns what is forecast: what the rule wants, then what loans want.
func (c Config) horizons() []Horizon {
	slot := or(c.Demand.Slot, defaultSlot)
	out := c.Rule.filled().ahead(slot)
	if c.Loan.on() {
		out = append(out, c.Loan.withDefaults().ahead(slot)...)
	}
	return out
}

// withDefaults fills a valid c in.
func (c Config) withDefaults() Config {
	c.Rule = c.Rule.filled()
	c.Loan = c.Loan.withDefaults()
	c.Demand.Slot = or(c.Demand.Slot, defaultSlot)
	c.Grace = or(c.Grace, 30*time.Second)
	c.Expiry = or(c.Expiry, time.Minute)
	c.Period = or(c.Period, 2*time.Second)
	c.Steady.Bounded.Max = or(c.Steady.Bounded.Max, MaxReplicas)
	if margin := or(c.Margin, 100); margin > 0 && c.Steady.Hysteresis.DownFraction == 0 {
		c.Steady.Hysteresis.DownFraction = float64(margin) / thousand
	}
	if d := c.Rule.delays(); d.Up != 0 || d.Down != 0 {
		c.Steady.Delayed = d
	}
	return c
}
