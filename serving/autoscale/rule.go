package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
)

// Rule says how many replicas a service needs: KPA, QueueLength, HeadRoom, Predictive or HighWater. A Rule is a plain value; what
// it has to remember the Scaler keeps. It is not for others to implement: [policy.Steady] does by itself for a rule of
// one's own.
type Rule interface {
	// Validate reports every fault of the rule, joined.
	Validate() error

	filled() Rule                               // with its defaults
	windows() (level, rate time.Duration)       // the longest it averages over
	ahead(slot time.Duration) []Horizon         // what it wants forecast; nil if nothing
	delays() policy.Delayed                     // how it delays changes
	propose(s *signals, m *memory) (p proposal) // called once a Decide, with its defaults filled in
}

// proposal is a rule's answer.
type proposal struct {
	n       int
	need    int64 // n before rounding, in thousandths
	load    int64
	bound   int64
	backlog int64
	reason  lockstep.Reason
}

// signals is what rules see.
type signals struct {
	now      int64 // nanoseconds since 1970
	ready    int
	starting int
	ongoing  int64         // requests in replicas or waiting, by counts that have not expired
	queued   time.Duration // how long a replica is busy with those that wait
	level    *mean         // of ongoing
	arrivals *mean
	forecast *Forecaster   // nil without Demand
	water    *water        // nil unless the rule is HighWater
	present  time.Duration // how long a replica would be busy with all requests that there are, for water
	open     int64         // what the slot that is not over yet comes to so far, in thousandths of a replica
}

// count returns how many replicas there are or soon will be.
func (s *signals) count() int { return s.ready + s.starting }

// memory is what rules keep between decisions: one struct for all, so that it is saved in one way.
type memory struct {
	Until int64 `json:"until,omitempty"` // until when KPA panics; 0 for not
	Peak  int   `json:"peak,omitempty"`  // the most it asked for meanwhile
}
