package rendezvous

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Never is the duration of what has no deadline.
const Never time.Duration = math.MaxInt64

// maxNodes bounds Min, Max and Multiple, and maxSlots the slots of a node, so that ranks fit 32 bits.
const (
	maxNodes = 1 << 16
	maxSlots = 1 << 10
)

// Config configures a Machine. The zero value is valid.
type Config struct {
	Min      int           // fewest nodes of a round; 0 means 1
	Max      int           // most nodes of a round; 0 means Min
	Multiple int           // rounds have a multiple of this many nodes, as when a replica needs several; 0 means 1
	LastCall time.Duration // how long a round that could form waits for more nodes; 0 means 30 s, Never until Max
	Join     time.Duration // how long nodes gather before the machine gives up; 0 means 10 min, Never for no limit
	Silence  time.Duration // a node not heard from for this long has left; 0 means 15 s, Never if the host tells with Leave
	Dwell    time.Duration // how long a round lasts before nodes that wait may end it; 0 means 1 min, Never for no growth
}

// Validate reports all that is wrong with c.
func (c Config) Validate() error {
	d := c.withDefaults()
	var errs []error
	count := func(field string, given, value, least int) {
		if given < 0 || value < least || value > maxNodes {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, strconv.Itoa(given),
				"must lie between "+strconv.Itoa(least)+" and "+strconv.Itoa(maxNodes)))
		}
	}
	count("Min", c.Min, d.Min, 1)
	count("Max", c.Max, d.Max, max(1, min(d.Min, maxNodes)))
	count("Multiple", c.Multiple, d.Multiple, 1)
	if len(errs) == 0 && d.Max/d.Multiple*d.Multiple < d.Min {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Multiple", strconv.Itoa(c.Multiple),
			"has no multiple between Min and Max"))
	}
	for _, f := range []struct {
		field string
		value time.Duration
	}{{"LastCall", c.LastCall}, {"Join", c.Join}, {"Silence", c.Silence}, {"Dwell", c.Dwell}} {
		if f.value < 0 {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", f.field, f.value.String(), "must not be negative"))
		}
	}
	return errors.Join(errs...)
}

// withDefaults returns c with what its zeros mean.
func (c Config) withDefaults() Config {
	if c.Min == 0 {
		c.Min = 1
	}
	if c.Max == 0 {
		c.Max = c.Min
	}
	if c.Multiple == 0 {
		c.Multiple = 1
	}
	for _, f := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&c.LastCall, 30 * time.Second}, {&c.Join, 10 * time.Minute}, {&c.Silence, 15 * time.Second}, {&c.Dwell, time.Minute}} {
		if *f.value == 0 {
			*f.value = f.zero
		}
	}
	return c
}

// size returns how many of n nodes the largest round takes, or 0 if none can form.
func (c *Config) size(n int) int {
	n = min(n, c.Max)
	n -= n % c.Multiple
	if n < c.Min {
		return 0
	}
	return n
}

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "rendezvous: " + op, Field: field, Value: value, Reason: reason}
}
