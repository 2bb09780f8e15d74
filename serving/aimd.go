package serving

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// million is one, in parts of fractions that were quantised.
const million = 1_000_000

// AIMDConfig configures an AIMD. The zero value has no objective, and so goes up to MaxSize.
type AIMDConfig struct {
	SLO         time.Duration `json:"slo,omitempty"`         // longest time of a batch; 0 means any
	Add         int           `json:"add,omitempty"`         // how much larger the next batch is after a full one in time; 0 means 1
	CutFraction float64       `json:"cutFraction,omitempty"` // how much smaller after one that was late, in (0, 1); 0 means 0.1. Rounded to parts per million
	Least       int           `json:"least,omitempty"`       // smallest size, also the first; 0 means 1
	Most        int           `json:"most,omitempty"`        // largest size; 0 means MaxSize
}

// withDefaults fills in what zero means.
func (c AIMDConfig) withDefaults() AIMDConfig {
	if c.CutFraction == 0 {
		c.CutFraction = 0.1
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Add, 1}, {&c.Least, 1}, {&c.Most, MaxSize}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return c
}

// Validate reports all faults of c, joined.
func (c AIMDConfig) Validate() error {
	errs := []error{
		checkSpan("config", "SLO", c.SLO),
		checkInt("config", "Add", c.Add, 0, MaxSize),
		checkFraction("config", "CutFraction", c.CutFraction),
		checkInt("config", "Least", c.Least, 0, MaxSize),
		checkInt("config", "Most", c.Most, 0, MaxSize),
	}
	if c.Most > 0 && c.Least > c.Most {
		errs = append(errs, invalid("config", "Least", strconv.Itoa(c.Least), "must not be above Most, which is "+strconv.Itoa(c.Most)))
	}
	return errors.Join(errs...)
}

// checkFraction refuses what is not in [0, 1).
func checkFraction(op, field string, f float64) error {
	if !(f >= 0 && f < 1) {
		return invalid(op, field, formatFloat(f), "must be from 0 up to, and without, 1")
	}
	return nil
}

// AIMD finds the largest batch under an objective without a model of the latency: it grows by steps, and shrinks by a
// share when a batch was late (Crankshaw et al., "Clipper", NSDI 2017, section 4.3.1). Not safe for concurrent use.
type AIMD struct {
	config AIMDConfig
	keep   int64 // 1 - CutFraction, in parts per million
	size   int
}

// NewAIMD returns an AIMD at its smallest size.
func NewAIMD(c AIMDConfig) (*AIMD, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &AIMD{config: c, keep: million - int64(math.Round(float64(c.CutFraction*million))), size: c.Least}, nil
}

// Size is the most requests that the next batch shall have; see Batcher.Limit.
func (a *AIMD) Size() int { return a.size }

// Observe tells what a batch took. One below Size that was in time says nothing about larger ones and changes nothing.
// One that was late cuts what it had, or Size if that is less, and rounds down. Sizes below 1 and negative times are ignored.
func (a *AIMD) Observe(size int, took time.Duration) {
	switch {
	case size < 1 || took < 0:
	case a.config.SLO > 0 && took > a.config.SLO:
		a.size = max(a.config.Least, int(int64(min(size, a.size))*a.keep/million))
	case size >= a.size:
		a.size = min(a.config.Most, a.size+a.config.Add)
	}
}
