package serve

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
)

// Bounds of a run.
const (
	maxReplicas = 1 << 16 // of servers, and so of replicas
	maxWait     = 24 * time.Hour
)

// Scaler decides how many replicas there are. *autoscale.Scaler is one; a rule of
// one's own may be another. It is told what happened since it was told before,
// then asked, every Config.Interval.
type Scaler interface {
	// Observe takes in what happened since the last call.
	Observe(now time.Time, sample autoscale.Sample) error
	// Decide says how many replicas to start, or which to drain.
	Decide(now time.Time, fleet autoscale.Fleet) (autoscale.Decision, error)
}

// Lender is a Scaler that also says what can be lent; *autoscale.Scaler is one.
type Lender interface {
	// Loanable says how much of owned to lend beyond lent, or to have back.
	Loanable(now time.Time, owned, lent lockstep.MilliGPU) (autoscale.Loan, error)
}

// Config configures Run. Of its zero value, Servers is one and iterations take no
// time; set Engine.
type Config struct {
	Engine   llm.Config       `json:"engine"`             // Engine is that of every replica.
	Router   llm.RouterConfig `json:"router"`             // Router sends requests to replicas.
	GPUs     int              `json:"gpus,omitempty"`     // GPUs is how many a server has, and a replica takes, at most 1024; 0 means 1.
	Servers  int              `json:"servers,omitempty"`  // Servers is how many there are, at most 65536; 0 means 1. One more replica waits.
	Initial  int              `json:"initial,omitempty"`  // Initial is how many replicas are ready at the start, at most Servers.
	Load     time.Duration    `json:"load,omitempty"`     // Load is how long a replica takes from its start until it is ready, at most 24 h.
	Interval time.Duration    `json:"interval,omitempty"` // Interval is how often the Scaler is told and asked, 100 ms to 1 h; 0 means 2 s, as in Knative.
	Deaths   []Death          `json:"deaths,omitempty"`   // Deaths are replicas that are lost. Read only.
	Cuts     []time.Duration  `json:"cuts,omitempty"`     // Cuts divide the run into one more Part than there are, at most 64; they grow. Read only.
	Loans    Loans            `json:"loans,omitzero"`     // Loans is how servers that no replica needs are lent; the zero value is not at all.
}

// Death is the loss of a replica with all that it had in memory. Its server goes on.
type Death struct {
	At      time.Duration `json:"at"`                // At is when, from the start; 0 to 32 days.
	Replica int           `json:"replica,omitempty"` // Replica counts those ready by their start, modulo how many there are; at least 0. Where none is ready nothing is lost.
}

// Loans configures training on servers that are lent. The Scaler has to be a Lender.
type Loans struct {
	Enabled bool  `json:"enabled,omitempty"` // Enabled lends at all.
	Jobs    []Job `json:"jobs,omitempty"`    // Jobs borrow, in order of At, then ID. Read only.
}

// Job is a training job, which runs on whole servers.
type Job struct {
	ID      lockstep.JobID `json:"id"`                // ID is its name, unique.
	At      time.Duration  `json:"at,omitempty"`      // At is when it comes, from the start; 0 to 32 days.
	Min     int            `json:"min,omitempty"`     // Min is on how many servers it runs at least; 0 means 1.
	Max     int            `json:"max,omitempty"`     // Max is on how many it runs at most, at least Min; 0 means Min. It is elastic where this is more.
	Work    time.Duration  `json:"work"`              // Work is how long it takes on one server; more than 0, at most 32 days × 1024.
	Save    time.Duration  `json:"save,omitempty"`    // Save is how long it takes to save and leave servers; at most the notice of the loan, or it borrows nothing.
	Restart time.Duration  `json:"restart,omitempty"` // Restart is how long it makes nothing after it starts or changes size, at most 24 h.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	const op = "serve: config"
	var errs []error
	within := func(field string, v, low, high int64, text string) {
		if v < low || v > high {
			errs = append(errs, fault(op, field, text, "is out of range"))
		}
	}
	count := func(field string, v, low, high int) {
		within(field, int64(v), int64(low), int64(high), strconv.Itoa(v))
	}
	span := func(field string, v, low, high time.Duration) {
		within(field, int64(v), int64(low), int64(high), v.String())
	}
	errs = append(errs, c.Engine.Validate(), c.Router.Validate())
	count("GPUs", c.GPUs, 0, 1024)
	count("Servers", c.Servers, 0, maxReplicas)
	count("Initial", c.Initial, 0, cmp.Or(max(c.Servers, 0), 1))
	span("Load", c.Load, 0, maxWait)
	if c.Interval != 0 {
		span("Interval", c.Interval, 100*time.Millisecond, time.Hour)
	}
	for i, d := range c.Deaths {
		at := "Deaths[" + strconv.Itoa(i) + "]"
		span(at+".At", d.At, 0, maxSpan)
		count(at+".Replica", d.Replica, 0, 1<<30)
	}
	count("Cuts", len(c.Cuts), 0, 64)
	last := time.Duration(0)
	for i, cut := range c.Cuts {
		span("Cuts["+strconv.Itoa(i)+"]", cut, last+1, maxSpan)
		last = max(cut, last)
	}
	seen := make(map[lockstep.JobID]bool, len(c.Loans.Jobs))
	for i, j := range c.Loans.Jobs {
		at := "Loans.Jobs[" + strconv.Itoa(i) + "]"
		if seen[j.ID] || j.ID == "" {
			errs = append(errs, fault(op, at+".ID", string(j.ID), "want one that is unique"))
		}
		seen[j.ID] = true
		span(at+".At", j.At, 0, maxSpan)
		count(at+".Min", j.Min, 0, maxReplicas)
		if j.Max != 0 {
			count(at+".Max", j.Max, max(j.Min, 1), maxReplicas)
		}
		span(at+".Work", j.Work, 1, 1024*maxSpan)
		span(at+".Save", j.Save, 0, maxWait)
		span(at+".Restart", j.Restart, 0, maxWait)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.GPUs = cmp.Or(c.GPUs, 1)
	c.Servers = cmp.Or(c.Servers, 1)
	c.Interval = cmp.Or(c.Interval, 2*time.Second)
	if len(c.Engine.Classes) == 0 {
		c.Engine.Classes = []llm.Class{{}}
	}
	return c
}

// validateRequests reports the first request that cannot be replayed.
func validateRequests(c Config, requests []Request) error {
	last := time.Duration(0)
	for i, q := range requests {
		at := "requests[" + strconv.Itoa(i) + "]"
		switch {
		case q.At < last || q.At > maxSpan:
			return fault("serve: run", at+".At", q.At.String(), "want 0 to 32 days, in order of time")
		case q.Class < 0 || q.Class >= len(c.Engine.Classes):
			return fault("serve: run", at+".Class", strconv.Itoa(q.Class), "is none of Engine.Classes")
		case q.Prompt < 1 || q.Prompt > maxTokens:
			return fault("serve: run", at+".Prompt", strconv.Itoa(q.Prompt), "want 1 to 2^24")
		case q.Output < 1 || q.Output > maxTokens:
			return fault("serve: run", at+".Output", strconv.Itoa(q.Output), "want 1 to 2^24")
		}
		last = q.At
	}
	return nil
}
