package detect

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Tuning is what a Monitor decides by; it can be changed at any time. Scales and samples
// are those of change.Config. The zero value is valid.
type Tuning struct {
	Whole         change.Config `json:"whole,omitzero"`          // test of whole iterations, where chunk times or no model are there; a Threshold of 0 means 10 for change.CUSUM
	ChunkAlarms   float64       `json:"chunkAlarms,omitempty"`   // most false alarms an iteration that the chunk test allows for; 0 means its default
	MatchedAlarms float64       `json:"matchedAlarms,omitempty"` // the same for the matched test, where only iteration times are there
	Suspicion     float64       `json:"suspicion,omitempty"`     // score from which a job is Suspicious, at most 1; 0 means 0.6
	Suspects      int           `json:"suspects,omitempty"`      // most suspects a verdict names, at most 4096; 0 means 4
}

// Config configures a Monitor. The zero value is valid: it watches iteration times alone
// and compares them with their own past.
type Config struct {
	Pipeline pipeline.Config   `json:"pipeline,omitzero"`  // schedule of one replica; Stages 0 without Orders means that it is not known
	Replicas int               `json:"replicas,omitempty"` // data-parallel replicas, at most 1048576; 0 means 1
	Rates    Rates             `json:"rates,omitzero"`     // what chunks take; without Forward they are fitted to the first iterations that have chunks
	Fit      fit.Options       `json:"fit,omitzero"`       // how rates are fitted
	FitAfter int               `json:"fitAfter,omitempty"` // iterations with chunks to fit to, at most 4096; 0 means 16
	Refit    bool              `json:"refit,omitempty"`    // fitted rates are fitted on while the job runs, within the limits of fit.Tracker
	Tracker  fit.TrackerConfig `json:"tracker,omitzero"`   // limits of Refit; Fixed and Linear are those of Fit
	Tuning                     // Tuning is what can be changed later.
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
	if c.Whole.Method == change.ResiHP && !c.model() {
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
		r = Rates{Forward: make([]fit.Coeff, n), Backward: make([]fit.Coeff, n), Weight: make([]fit.Coeff, n), Send: r.Send, Return: r.Return, Rest: r.Rest}
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
	if t.Whole.Threshold == 0 && t.Whole.Method == change.CUSUM {
		t.Whole.Threshold = 10
	}
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
