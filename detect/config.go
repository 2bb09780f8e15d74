package detect

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Tuning is what a Monitor decides by; it can be changed at any time. Scales and samples
// are those of TestConfig. The zero value is valid.
type Tuning struct {
	Whole         TestConfig `json:"whole,omitzero"`          // test of whole iterations, where chunk times or no model are there; a Threshold of 0 means 10 for CUSUM
	ChunkAlarms   float64    `json:"chunkAlarms,omitempty"`   // most false alarms an iteration that the chunk test allows for; 0 means its default
	MatchedAlarms float64    `json:"matchedAlarms,omitempty"` // the same for the matched test, where only iteration times are there
	Suspicion     float64    `json:"suspicion,omitempty"`     // score from which a job is Suspicious, at most 1; 0 means 0.6
	Suspects      int        `json:"suspects,omitempty"`      // most suspects a verdict names, at most 4096; 0 means 4
}

// Config configures a Monitor. The zero value is valid: it watches iteration times alone
// and compares them with their own past.
type Config struct {
	Pipeline pipeline.Config `json:"pipeline,omitzero"`  // schedule of one replica; Stages 0 without Orders means that it is not known
	Replicas int             `json:"replicas,omitempty"` // data-parallel replicas, at most 1048576; 0 means 1
	Rates    Rates           `json:"rates,omitzero"`     // what chunks take; without Forward they are fitted to the first iterations that have chunks
	Fit      FitOptions      `json:"fit,omitzero"`       // how rates are fitted
	FitAfter int             `json:"fitAfter,omitempty"` // iterations with chunks to fit to, at most 4096; 0 means 16
	Refit    bool            `json:"refit,omitempty"`    // fitted rates are fitted on while the job runs, within the limits of Tracker
	Tracker  TrackerConfig   `json:"tracker,omitzero"`   // limits of Refit; Fixed and Linear are those of Fit
	Tuning                   // Tuning is what can be changed later.
}

// model says whether c has a pipeline.
func (c *Config) model() bool { return c.Pipeline.Stages > 0 || len(c.Pipeline.Orders) > 0 }

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	count := func(field string, n, limit int) {
		if n < 0 || n > limit {
			errs = append(errs, invalid("config", field, strconv.Itoa(n), "want 0 to "+strconv.Itoa(limit)))
		}
	}
	count("Replicas", c.Replicas, mostPlaces)
	count("FitAfter", c.FitAfter, most)
	count("Suspects", c.Suspects, most)
	if !(c.Suspicion >= 0 && c.Suspicion <= 1) {
		errs = append(errs, invalid("config", "Suspicion", text(c.Suspicion), "want 0 to 1"))
	}
	if c.Whole.Method == ResiHP && !c.model() {
		errs = append(errs, invalid("config", "Whole.Method", c.Whole.Method.String(), "needs a Pipeline for its prediction"))
	}
	errs = append(errs, c.Tracker.Validate())
	if err := c.Whole.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("detect: config: Whole: %w", err))
	}
	rate := func(field string, x float64) {
		if len(checkDesign(x, 0, 0, 0)) > 0 {
			errs = append(errs, invalid("config", field, text(x), "want 0, or 1e-12 to 0.5"))
		}
	}
	rate("ChunkAlarms", c.ChunkAlarms)
	rate("MatchedAlarms", c.MatchedAlarms)
	switch {
	case c.model():
		_, err := newModel(&c)
		errs = append(errs, err)
	case c.Rates.Forward != nil:
		errs = append(errs, invalid("config", "Rates", "", "need a Pipeline"))
	}
	return errors.Join(errs...)
}

// newModel returns the predictor of c, with no rates where they are to be fitted.
func newModel(c *Config) (*Predictor, error) {
	r := c.Rates
	if r.Forward == nil {
		line, err := pipeline.New(c.Pipeline)
		if err != nil {
			return nil, err
		}
		n := line.Stages() * max(partsOf(line), c.Pipeline.Chunks)
		r = Rates{Forward: make([]Coeff, n), Backward: make([]Coeff, n), Weight: make([]Coeff, n), Send: r.Send, Return: r.Return, Rest: r.Rest}
	}
	p, err := NewPredictor(c.Pipeline, r)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkPlaces(max(c.Replicas, 1), p.shape.Stages, len(defaultFactors))...); err != nil {
		return nil, err
	}
	return p, nil
}

func (c Config) withDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.FitAfter == 0 {
		c.FitAfter = 16
	}
	c.Tracker.Fixed, c.Tracker.Linear = c.Fit.Fixed, c.Fit.Linear
	c.Tuning = c.Tuning.withDefaults()
	return c
}

func (t Tuning) withDefaults() Tuning {
	if t.Whole.Threshold == 0 && t.Whole.Method == CUSUM {
		t.Whole.Threshold = 10
	}
	t.Whole = t.Whole.withDefaults()
	if t.ChunkAlarms == 0 {
		t.ChunkAlarms = chunkRate
	}
	if t.MatchedAlarms == 0 {
		t.MatchedAlarms = defaultRate
	}
	if t.Suspicion == 0 {
		t.Suspicion = 0.6
	}
	if t.Suspects == 0 {
		t.Suspects = 4
	}
	return t
}

// Reasons of a Verdict.
const (
	ReasonLearning   lockstep.Reason = "learning"            // the baseline is not known yet
	ReasonHealthy    lockstep.Reason = "healthy"             // as expected
	ReasonEvidence   lockstep.Reason = "evidence grows"      // slower than expected, not yet for long enough
	ReasonChunks     lockstep.Reason = "chunks are slow"     // chunk times of a place are over their threshold
	ReasonMatched    lockstep.Reason = "iterations are slow" // iteration times are as with a slow place, or slow as a whole
	ReasonWhole      lockstep.Reason = "slow beside chunks"  // iterations are slow, no chunk is
	ReasonCleared    lockstep.Reason = "cleared"             // the slowdown is over
	ReasonSpike      lockstep.Reason = "one slow iteration"  // it stands out alone
	ReasonPaused     lockstep.Reason = "paused"              // the caller paused judging
	ReasonPhase      lockstep.Reason = "phase"               // iterations of this phase are not judged
	ReasonRepeated   lockstep.Reason = "repeated"            // the iteration was seen before
	ReasonReordered  lockstep.Reason = "out of order"        // a later iteration was seen before
	ReasonRearmed    lockstep.Reason = "rearmed"             // the layout changed, so everything is learned anew
	ReasonUnmeasured lockstep.Reason = "not measured"        // neither a time nor a chunk of it can be compared
)
