package desired

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
)

// Config says how a pool is sized. The zero value wants a worker for each piece of work, at once.
type Config struct {
	Each     int           `json:"each,omitempty"`     // Each is how many pieces of work a worker takes at a time; 0 means 1.
	Spare    int           `json:"spare,omitempty"`    // Spare is how many workers there should be beyond those that the work takes; 0 means none.
	LookBack time.Duration `json:"lookBack,omitempty"` // LookBack is over how long the host averages the counts of work; 0 means not at all. Delays must not be shorter, or what was answered already is answered again (ray-project/ray#26455).
	TakeBusy bool          `json:"takeBusy,omitempty"` // TakeBusy lets workers be given back that have work; false: as many stay as have.

	Hysteresis  policy.Hysteresis  `json:"hysteresis,omitzero"`  // Hysteresis is the band at the edge of two sizes; the zero value is none.
	Delayed     policy.Delayed     `json:"delayed,omitzero"`     // Delayed is for how long a change has to be wanted; its State stays zero.
	RateLimited policy.RateLimited `json:"rateLimited,omitzero"` // RateLimited is how much changes at a time; its State stays zero.
	Cooldown    policy.Cooldown    `json:"cooldown,omitzero"`    // Cooldown is how long a change is left alone; its State stays zero.
	Bounded     policy.Bounded     `json:"bounded,omitzero"`     // Bounded is which sizes are legal.
}

// Counts are what a host sees of a pool. All are 0 to policy.MaxCount.
type Counts struct {
	Pending  int `json:"pending,omitempty"`  // Pending is how many pieces of work wait.
	Running  int `json:"running,omitempty"`  // Running is how many are being worked on.
	Ready    int `json:"ready,omitempty"`    // Ready is how many workers take work.
	Starting int `json:"starting,omitempty"` // Starting is how many were asked for and do not yet, whether the host has begun with them or not.
	Idle     int `json:"idle,omitempty"`     // Idle is how many of Ready have no work, at most Ready; at 0 all have some, and none is given back unless Config.TakeBusy.
}

// State is what Next has to know of earlier calls. The zero State is that of the beginning. It is plain data, to be kept
// as JSON where the host likes, and written by Next alone.
type State struct {
	Delayed     policy.DelayedState     `json:"delayed,omitzero"`     // Delayed is that of Config.Delayed.
	RateLimited policy.RateLimitedState `json:"rateLimited,omitzero"` // RateLimited is that of Config.RateLimited.
	Cooldown    policy.CooldownState    `json:"cooldown,omitzero"`    // Cooldown is that of Config.Cooldown.
}

// Decision is how many workers to have.
type Decision struct {
	Wish    policy.Demand `json:"wish"`           // Wish is what the work and the spare ones come to.
	Desired int           `json:"desired"`        // Desired is how many there should be, ready and starting together.
	Held    policy.Held   `json:"held,omitempty"` // Held is the last decorator that stands between Wish and Desired; policy.Free if none.
	Busy    bool          `json:"busy,omitempty"` // Busy says that more are kept than the decorators would, since they have work.
	Wake    time.Time     `json:"wake,omitzero"`  // Wake is when another call may decide otherwise although no count changed; zero means never.
}

func invalid(field, value, reason string) error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "desired: next", Field: field, Value: value, Reason: reason}
}

// Validate reports every fault of c, joined. A delay that is shorter than LookBack is one.
func (c Config) Validate() error {
	return errors.Join(c.own(), c.steady(State{}).Validate())
}

// own reports the faults of what the decorators do not check.
func (c *Config) own() error {
	var errs []error
	count := func(field string, n int) {
		if n < 0 || n > policy.MaxCount {
			errs = append(errs, invalid("Config."+field, strconv.Itoa(n), "want 0 to "+strconv.Itoa(policy.MaxCount)))
		}
	}
	count("Each", c.Each)
	count("Spare", c.Spare)
	if c.LookBack < 0 || c.LookBack > 24*time.Hour {
		errs = append(errs, invalid("Config.LookBack", c.LookBack.String(), "want 0 to 24h"))
	}
	for _, d := range []struct {
		field string
		delay time.Duration
	}{{"Up", c.Delayed.Up}, {"Down", c.Delayed.Down}} {
		if d.delay >= 0 && d.delay < c.LookBack {
			errs = append(errs, invalid("Config.Delayed."+d.field, d.delay.String(), "is shorter than LookBack, "+c.LookBack.String()+": what was answered would be answered again"))
		}
	}
	if c.Delayed.State.Known || c.RateLimited.State.Known || c.Cooldown.State.Known {
		errs = append(errs, invalid("Config", "", "has a state: that goes into State"))
	}
	return errors.Join(errs...)
}

// steady is the decorators with a state, which is copied since they write to it.
func (c *Config) steady(s State) policy.Steady {
	out := policy.Steady{Hysteresis: c.Hysteresis, Delayed: c.Delayed, RateLimited: c.RateLimited, Cooldown: c.Cooldown, Bounded: c.Bounded}
	out.Delayed.State, out.RateLimited.State, out.Cooldown.State = s.Delayed, s.RateLimited, s.Cooldown
	out.Delayed.State.Least, out.Delayed.State.Most = slices.Clone(s.Delayed.Least), slices.Clone(s.Delayed.Most)
	out.RateLimited.State.Rises, out.RateLimited.State.Falls = slices.Clone(s.RateLimited.Rises), slices.Clone(s.RateLimited.Falls)
	return out
}

// Validate reports every fault of c, joined.
func (c Counts) Validate() error {
	var errs []error
	for _, n := range []struct {
		field string
		value int
	}{{"Pending", c.Pending}, {"Running", c.Running}, {"Ready", c.Ready}, {"Starting", c.Starting}, {"Idle", c.Idle}} {
		if n.value < 0 || n.value > policy.MaxCount {
			errs = append(errs, invalid("Counts."+n.field, strconv.Itoa(n.value), "want 0 to "+strconv.Itoa(policy.MaxCount)))
		}
	}
	if c.Idle > c.Ready {
		errs = append(errs, invalid("Counts.Idle", strconv.Itoa(c.Idle), "want at most Ready, "+strconv.Itoa(c.Ready)))
	}
	return errors.Join(errs...)
}

// Next returns how many workers to have at now, and the state to give to the next call. Call it when a count changes, and
// at Decision.Wake. It changes nothing that it is given.
func Next(now time.Time, cfg Config, c Counts, s State) (Decision, State, error) {
	steady := cfg.steady(s)
	if err := errors.Join(cfg.own(), c.Validate()); err != nil {
		return Decision{}, s, errors.Join(err, steady.Validate())
	}
	d := Decision{Wish: cfg.wish(c)}
	have := min(int64(c.Ready)+int64(c.Starting), policy.MaxCount) // the sum may be more than 32 bits hold
	v, err := steady.Step(now, int(have), d.Wish)
	if err != nil {
		return Decision{}, s, err
	}
	d.Desired, d.Held = v.Target, v.Held
	if busy := c.Ready - c.Idle; !cfg.TakeBusy && d.Desired < busy {
		d.Desired, d.Busy = busy, true
	}
	if at, ok := steady.NextWake(); ok {
		d.Wake = at
	}
	return d, State{Delayed: steady.Delayed.State, RateLimited: steady.RateLimited.State, Cooldown: steady.Cooldown.State}, nil
}

// wish is the work over what a worker takes, rounded up to the thousandth, and the spare ones.
func (c *Config) wish(n Counts) policy.Demand {
	each := int64(max(c.Each, 1))
	work := (int64(n.Pending)+int64(n.Running))*int64(policy.One) + each - 1
	return min(policy.Demand(work/each+int64(c.Spare)*int64(policy.One)), policy.MaxCount*policy.One)
}
