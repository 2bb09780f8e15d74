package astraea

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Order names the order of one tenant's jobs (the artifact's job_selection).
type Order string

// The orders. The zero Order is Fairness. Behind all of them but Finish comes
// submission; whatever is equal then stays in the order in which it began to
// wait.
const (
	Fairness Order = ""                    // Fairness puts the least ratio of service over deserved first.
	FIFO     Order = "fifo"                // FIFO puts the one submitted first first.
	Smallest Order = "smallestfirst"       // Smallest puts the narrowest first.
	Shortest Order = "shortestremainfirst" // Shortest puts the least true remaining time first.
	Attained Order = "2das"                // Attained puts the least time run first, whatever the width.
	Class    Order = "disc_fairness"       // Class is Fairness in five classes.
	Reward   Order = "job_reward"          // Reward is Class, then the narrowest.
	Finish   Order = "themis"              // Finish puts the greatest finish-time ratio first, by the true remaining time.
)

// Orders returns all orders, in the order of their declaration.
func Orders() []Order {
	return []Order{Fairness, FIFO, Smallest, Shortest, Attained, Class, Reward, Finish}
}

// Share is one line of the list of tenants.
type Share struct {
	Tenant lockstep.TenantID `json:"tenant"` // Tenant is who.
	Weight int64             `json:"weight"` // Weight is its part, more than 0, to MaxWeight.
}

// MaxWeight is the greatest Share.Weight.
const MaxWeight = 1 << 32

// Config configures Run. Only Shares has no default.
type Config struct {
	Shares      []Share       `json:"shares"`                // Shares are the tenants in the order of the list, which breaks ties and decides who is placed first.
	Order       Order         `json:"order,omitempty"`       // Order is that of one tenant's jobs; zero is Fairness.
	Static      bool          `json:"static,omitempty"`      // Static keeps every tenant to its quota; otherwise quotas are planned anew in each pass (the artifact's fair).
	Nodes       int           `json:"nodes,omitempty"`       // Nodes is how many there are; 0 means 32.
	GPUsPerNode int           `json:"gpusPerNode,omitempty"` // GPUsPerNode is how many devices each has; 0 means 8.
	Tick        time.Duration `json:"tick,omitempty"`        // Tick is the distance of passes, in whole seconds; 0 means 10 s.
	Term        time.Duration `json:"term,omitempty"`        // Term is how long a lease lasts, in whole seconds; 0 means 30 min.
	Starvation  time.Duration `json:"starvation,omitempty"`  // Starvation is how long a job waits before it goes ahead of its tenant's others, in whole seconds; 0 means 4 h.
	Delay       time.Duration `json:"delay,omitempty"`       // Delay makes running jobs that are younger than that in their lease make way for a new job of their tenant, losing what they did in it; 0 means that none does.
	Block       bool          `json:"block,omitempty"`       // Block ends a tenant's pass at the first job that does not fit.
}

// limits of a Config and of jobs, so that no sum leaves int64.
const (
	maxDevices = 1 << 24
	maxTime    = 100 * 365 * 24 * time.Hour
)

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&c.Tick, 10*time.Second)
	or(&c.Term, 30*time.Minute)
	or(&c.Starvation, 4*time.Hour)
	if c.Nodes == 0 {
		c.Nodes = 32
	}
	if c.GPUsPerNode == 0 {
		c.GPUsPerNode = 8
	}
	return c
}

// Validate reports every fault of c, joined. A tenant whose part is less than
// one device is one: the artifact divides by it.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Tick", c.Tick}, {"Term", c.Term}, {"Starvation", c.Starvation}, {"Delay", c.Delay}} {
		if d.value < 0 || d.value > maxTime || d.value%time.Second != 0 {
			bad(d.field, d.value.String(), "want 0 to 100 years, in whole seconds")
		}
	}
	for _, n := range []struct {
		field string
		value int
	}{{"Nodes", c.Nodes}, {"GPUsPerNode", c.GPUsPerNode}} {
		if n.value < 0 || n.value > maxDevices>>12 {
			bad(n.field, strconv.Itoa(n.value), "want 0 to "+strconv.Itoa(maxDevices>>12))
		}
	}
	known := false
	for _, o := range Orders() {
		known = known || o == c.Order
	}
	if !known {
		bad("Order", strconv.Quote(string(c.Order)), "not an order")
	}
	return errors.Join(append(errs, c.shares(len(errs) == 0)...)...)
}

// shares reports the faults of c.Shares; those of the quotas where the cluster
// is known.
func (c Config) shares(sized bool) (errs []error) {
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if len(c.Shares) == 0 || len(c.Shares) > 1<<20 {
		bad("Shares", strconv.Itoa(len(c.Shares))+" tenants", "want 1 to 2^20")
		return errs
	}
	seen := make(map[lockstep.TenantID]bool, len(c.Shares))
	var sum int64
	for i, s := range c.Shares {
		field := "Shares[" + strconv.Itoa(i) + "]"
		if err := s.Tenant.Validate(); err != nil {
			errs = append(errs, err)
		}
		if seen[s.Tenant] {
			bad(field+".Tenant", strconv.Quote(string(s.Tenant)), "occurs twice")
		}
		seen[s.Tenant] = true
		if s.Weight <= 0 || s.Weight > MaxWeight {
			bad(field+".Weight", strconv.FormatInt(s.Weight, 10), "want 1 to 2^32")
			continue
		}
		sum += s.Weight
	}
	if len(errs) > 0 || !sized {
		return errs
	}
	for i, q := range c.quotas() {
		if q == 0 {
			bad("Shares["+strconv.Itoa(i)+"].Weight", strconv.FormatInt(c.Shares[i].Weight, 10), "less than one device of "+strconv.FormatInt(sum, 10))
		}
	}
	return errs
}

// quotas returns each tenant's part of the devices, rounded down.
func (c Config) quotas() []int64 {
	d := c.withDefaults()
	devices := int64(d.Nodes) * int64(d.GPUsPerNode)
	var sum int64
	for _, s := range c.Shares {
		sum += s.Weight
	}
	out := make([]int64, len(c.Shares))
	for i, s := range c.Shares {
		out[i] = devices * s.Weight / sum // at most 2^24 × 2^32
	}
	return out
}

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "astraea: " + op, Field: field, Value: value, Reason: reason}
}
