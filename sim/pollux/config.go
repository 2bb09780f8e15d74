package pollux

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Config configures Run. Only Profiles has no default.
type Config struct {
	Profiles []*Profile // Profiles are the applications of the jobs, each once.
	Timings  Timings    // Timings go before what the profiles say; nil means none.

	Nodes       int           // Nodes is how many there are; 0 means 16.
	GPUsPerNode int           // GPUsPerNode is how many GPUs each has, at most 9; 0 means 4.
	Tick        time.Duration // Tick is the distance of decisions, in whole seconds; 0 means 60 s.
	Restart     time.Duration // Restart is how long a job stands still when it is moved or started, in whole seconds; 0 means 30 s.

	// Interference is the part of its speed that a job loses which spans several nodes and
	// shares one of them with another such job, from 0 to below 1.
	Interference float64

	Observe func(Change) // Observe is told of every change of a job's placement; nil means nobody. It must not call back.
}

func (c Config) withDefaults() Config {
	if c.Nodes == 0 {
		c.Nodes = 16
	}
	if c.GPUsPerNode == 0 {
		c.GPUsPerNode = 4
	}
	if c.Tick == 0 {
		c.Tick = time.Minute
	}
	if c.Restart == 0 {
		c.Restart = 30 * time.Second
	}
	return c
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.Nodes < 0 || c.Nodes > maxWide {
		bad("Nodes", strconv.Itoa(c.Nodes), "want 0 to 4096")
	}
	if c.GPUsPerNode < 0 || c.GPUsPerNode > 9 {
		bad("GPUsPerNode", strconv.Itoa(c.GPUsPerNode), "want 0 to 9: a digit in the profiles")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Tick", c.Tick}, {"Restart", c.Restart}} {
		if d.value < 0 || d.value > 24*time.Hour || d.value%time.Second != 0 {
			bad(d.field, d.value.String(), "want 0 to 24h, in whole seconds")
		}
	}
	if !(c.Interference >= 0 && c.Interference < 1) {
		bad("Interference", strconv.FormatFloat(c.Interference, 'g', -1, 64), "want 0 to below 1")
	}
	if len(c.Profiles) == 0 {
		bad("Profiles", "none", "want one or more")
	}
	seen := map[string]bool{}
	for i, p := range c.Profiles {
		switch {
		case p == nil:
			bad(at("Profiles", i, "name"), "nil", "want a profile")
		case seen[p.name]:
			bad(at("Profiles", i, "name"), strconv.Quote(p.name), "occurs twice")
		default:
			seen[p.name] = true
		}
	}
	return errors.Join(errs...)
}
