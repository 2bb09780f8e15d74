package serving

import (
	"errors"
	"slices"
	"strconv"
	"time"
)

// Limits on what is accepted.
const (
	maxLevels    = 1 << 10
	maxInstances = 1 << 12
	maxQueue     = 1 << 24
)

// Order says which of the waiting requests of a level go first.
type Order uint8

// The orders.
const (
	FIFO Order = iota // FIFO: in order of arrival.
	EDF               // EDF: earliest deadline first, those without one last; of equal ones the earliest arrival.
)

// String returns "fifo" or "edf".
func (o Order) String() string { return enum("Order", int(o), "fifo", "edf") }

// Late says what becomes of a request that waits for longer than it may, or can no longer be over by its deadline.
type Late uint8

// What becomes of late requests.
const (
	RejectLate Late = iota // RejectLate: it is given back, on arrival or later.
	DeferLate              // DeferLate: it is served behind all others of its level, whenever that is.
)

// String returns "reject" or "defer".
func (l Late) String() string { return enum("Late", int(l), "reject", "defer") }

// enum returns the name of value v of a type.
func enum(kind string, v int, names ...string) string {
	if v < len(names) {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(v) + ")"
}

// BatcherConfig configures a Batcher. The zero value is valid: one instance, one request at a time, no objective.
type BatcherConfig struct {
	MaxBatch  int           `json:"maxBatch,omitempty"`  // most requests of a batch; 0 means 1
	Preferred []int         `json:"preferred,omitempty"` // sizes that are better than those between them, rising, up to MaxBatch; nil means none. Copied
	MaxDelay  time.Duration `json:"maxDelay,omitempty"`  // how long a request is held for a preferred or full batch; 0 means not at all
	SLO       time.Duration `json:"slo,omitempty"`       // deadline of requests that bring none, from arrival; 0 means none
	Slack     time.Duration `json:"slack,omitempty"`     // how long before its deadline a request shall be over
	Order     Order         `json:"order,omitempty"`     // zero is FIFO
	Levels    int           `json:"levels,omitempty"`    // levels of priority, 0 the first; 0 means 1
	Queue     int           `json:"queue,omitempty"`     // most requests that wait; 0 means 2^24
	Timeout   time.Duration `json:"timeout,omitempty"`   // how long a request waits that does not say; 0 means for ever
	Late      Late          `json:"late,omitempty"`      // zero is RejectLate
	Instances int           `json:"instances,omitempty"` // replicas of the model, each with one batch at a time; 0 means 1
	Down      int           `json:"down,omitempty"`      // how many of the Instances, the last ones, are down at first; a service that scales has Instances above the most it runs
	// Lost is how long after the predicted end of its batch an instance that told nothing is given up; 0 means never.
	Lost time.Duration `json:"lost,omitempty"`
	// Latency is the model's, read once for each size; nil means unknown, and batches count as if they took no time.
	Latency Latency `json:"-"`
}

// withDefaults fills in what zero means.
func (c BatcherConfig) withDefaults() BatcherConfig {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.MaxBatch, 1}, {&c.Levels, 1}, {&c.Queue, maxQueue}, {&c.Instances, 1}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	c.Preferred = slices.Clone(c.Preferred)
	return c
}

// Validate reports all faults of c, joined.
func (c BatcherConfig) Validate() error {
	errs := []error{
		checkInt("config", "MaxBatch", c.MaxBatch, 0, MaxSize),
		checkSpan("config", "MaxDelay", c.MaxDelay),
		checkSpan("config", "SLO", c.SLO),
		checkSpan("config", "Slack", c.Slack),
		checkInt("config", "Order", int(c.Order), 0, int(EDF)),
		checkInt("config", "Levels", c.Levels, 0, maxLevels),
		checkInt("config", "Queue", c.Queue, 0, maxQueue),
		checkSpan("config", "Timeout", c.Timeout),
		checkInt("config", "Late", int(c.Late), 0, int(DeferLate)),
		checkInt("config", "Instances", c.Instances, 0, maxInstances),
		checkInt("config", "Down", c.Down, 0, max(c.Instances, 1)),
		checkSpan("config", "Lost", c.Lost),
	}
	if v, ok := c.Latency.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	if c.SLO > 0 && c.Slack >= c.SLO {
		errs = append(errs, invalid("config", "Slack", c.Slack.String(), "must be below SLO, which is "+c.SLO.String()))
	}
	last := 0
	for i, p := range c.Preferred {
		if most := max(c.MaxBatch, 1); p <= last || p > most {
			errs = append(errs, invalid("config", "Preferred["+strconv.Itoa(i)+"]", strconv.Itoa(p),
				"must be above the one before and at most "+strconv.Itoa(most)))
		}
		last = max(last, p)
	}
	return errors.Join(errs...)
}

// times reads the latency of each size from 1 to MaxBatch; index 0 is of no batch.
func (c BatcherConfig) times() ([]int64, error) {
	t := make([]int64, c.MaxBatch+1)
	if c.Latency == nil {
		return t, nil
	}
	for n := 1; n <= c.MaxBatch; n++ {
		d := c.Latency.Batch(n)
		if d < 0 || d > maxSpan || int64(d) < t[n-1] {
			return nil, invalid("config", "Latency.Batch("+strconv.Itoa(n)+")", d.String(),
				"must be at least that of the size before, and up to "+maxSpan.String())
		}
		t[n] = int64(d)
	}
	return t, nil
}
