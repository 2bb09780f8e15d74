package hpo

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Mode says which of two metrics is better.
type Mode string

// The modes.
const (
	Minimize Mode = ""         // Minimize: the smaller, as of losses.
	Maximize Mode = "maximize" // Maximize: the larger, as of accuracies.
)

// NaNPolicy says what a metric counts that is NaN or infinite.
type NaNPolicy string

// The policies.
const (
	NaNWorst  NaNPolicy = ""       // NaNWorst: the worst of all. It is recorded, and neither promoted nor kept nor copied.
	NaNStop   NaNPolicy = "stop"   // NaNStop: the trial is stopped at once, and its report is not recorded.
	NaNIgnore NaNPolicy = "ignore" // NaNIgnore: as if nothing had been reported.
)

// Config configures a Scheduler: what holds for all of them, and one rule. The zero value is valid, and is ASHA.
type Config struct {
	Mode    Mode      `json:"mode,omitempty"`    // which metrics are better
	NaN     NaNPolicy `json:"nan,omitempty"`     // what metrics that are not finite count; variants named after others have their own way
	Retries int       `json:"retries,omitempty"` // how often a trial is restarted after it crashed; 0 means never

	ASHA      *ASHA      `json:"asha,omitempty"`      // asynchronous successive halving; all nil means the zero ASHA
	SHA       *SHA       `json:"sha,omitempty"`       // synchronous successive halving
	Hyperband *Hyperband `json:"hyperband,omitempty"` // brackets of synchronous successive halving
	Median    *Median    `json:"median,omitempty"`    // the median stopping rule
	PBT       *PBT       `json:"pbt,omitempty"`       // population based training
}

// Variant says how ASHA decides at a rung.
type Variant string

// The variants. n is how many reports a rung has recorded.
const (
	Promotion    Variant = ""              // Promotion: a trial pauses, and goes on once it is among the best floor(n/Eta)
	Stopping     Variant = "stopping"      // Stopping: it goes on if it is no worse than the max(1, floor(n/Eta))-th best
	Ray          Variant = "ray"           // Ray: no worse than the interpolated 1-1/Eta quantile of those before it
	Optuna       Variant = "optuna"        // Optuna: as Stopping; NaN stops and does not count; a report may pass several rungs
	Syne         Variant = "syne"          // Syne: at most n/Eta are better; NaN as it is there up to 63 reports, then the worst
	SyneQuantile Variant = "syne-quantile" // SyneQuantile: as Ray, itself among those before it
	Determined   Variant = "determined"    // Determined: as Stopping; NaN as it is there; a report may pass several rungs
)

// ASHA is asynchronous successive halving.
type ASHA struct {
	Variant  Variant  `json:"variant,omitempty"`  // how it decides
	Min      uint64   `json:"min,omitempty"`      // step of the first rung; 0 means 1
	Max      uint64   `json:"max,omitempty"`      // step at which a trial is complete; 0 means the last of Levels, or else 100
	Eta      uint32   `json:"eta,omitempty"`      // one in Eta goes on, at least 2; 0 means 3
	Levels   []uint64 `json:"levels,omitempty"`   // steps of the rungs, rising; nil means Min, Min*Eta, ...; one at Max is none
	Brackets int      `json:"brackets,omitempty"` // how many, up to one a level; the b-th begins at level b; 0 means 1
	Study    string   `json:"study,omitempty"`    // the name from which the variant Optuna draws a trial's bracket
	RunOn    int      `json:"runOn,omitempty"`    // so many of the best at Max may run past it; 0 means none
}

// SHA is successive halving in step: a rung decides when all who are in it have reported.
type SHA struct {
	Min    uint64 `json:"min,omitempty"`    // step of the first rung; 0 means 1
	Max    uint64 `json:"max,omitempty"`    // no rung is above it; 0 means 100; whoever reaches the last rung is complete
	Eta    uint32 `json:"eta,omitempty"`    // one in Eta goes on, rounded up, at least 2; 0 means 3
	Trials int    `json:"trials,omitempty"` // how many compete with each other; 0 means all there are when no other can run
}

// Hyperband is brackets of successive halving that trade the number of trials against their length. The brackets
// are filled in turn, and again from the first when all are full.
type Hyperband struct {
	Min          uint64 `json:"min,omitempty"`          // fewest steps to judge a trial by; 0 means 1
	Max          uint64 `json:"max,omitempty"`          // most steps of a trial; 0 means 100
	Eta          uint32 `json:"eta,omitempty"`          // one in Eta goes on, rounded up, at least 2; 0 means 3
	LargestFirst bool   `json:"largestFirst,omitempty"` // begin with the bracket of the most trials, as BOHB does
}

// Median stops a trial whose best metric is worse than the median of the others' running means at the same step.
type Median struct {
	Grace    uint64 `json:"grace,omitempty"`    // first step that counts, and at which trials are judged; 0 means 1
	Interval uint64 `json:"interval,omitempty"` // steps between judgements; 0 means 1
	Min      int    `json:"min,omitempty"`      // fewest others to judge a trial by; 0 means 3
	Max      uint64 `json:"max,omitempty"`      // step at which a trial is complete; 0 means none
}

// PBT is population based training: the worst trials copy the best and change their hyperparameters. Fractions count
// in millionths.
type PBT struct {
	Interval         uint64  `json:"interval,omitempty"`         // steps between decisions about a trial; 0 means 1
	BurnIn           uint64  `json:"burnIn,omitempty"`           // step of the first decision; 0 means Interval
	Max              uint64  `json:"max,omitempty"`              // step at which a trial is complete; 0 means none
	QuantileFraction float64 `json:"quantileFraction,omitempty"` // of the population that copies, up to 1/2; 0 means 1/4
	ResampleFraction float64 `json:"resampleFraction,omitempty"` // of the changes that draw anew, up to 1; 0 means 1/4
	Params           []Param `json:"params,omitempty"`           // what is changed; none means that copies are exact
	Seed             uint64  `json:"seed,omitempty"`             // of the draws
	Sync             bool    `json:"sync,omitempty"`             // trials wait for each other
}

// maxBrackets bounds ASHA.Brackets: no level list is longer.
const maxBrackets = 64

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.Mode != Minimize && c.Mode != Maximize {
		bad("Mode", errtext.Quote(c.Mode), "is not known")
	}
	if c.NaN != NaNWorst && c.NaN != NaNStop && c.NaN != NaNIgnore {
		bad("NaN", errtext.Quote(c.NaN), "is not known")
	}
	if c.Retries < 0 {
		bad("Retries", fmt.Sprint(c.Retries), "must not be negative")
	}
	rules := 0
	for _, given := range []bool{c.ASHA != nil, c.SHA != nil, c.Hyperband != nil, c.Median != nil, c.PBT != nil} {
		if given {
			rules++
		}
	}
	if rules > 1 {
		bad("rules", fmt.Sprint(rules), "must be one at most")
	}
	errs = append(errs, c.filled().validateRule(bad))
	return errors.Join(errs...)
}

// validateRule tells bad what is wrong with the rule, but for one fault that it returns.
func (c Config) validateRule(bad func(field, value, reason string)) error {
	switch {
	case c.SHA != nil:
		if c.SHA.Trials < 0 || c.SHA.Trials > maxBracket {
			bad("Trials", fmt.Sprint(c.SHA.Trials), "must be between 0 and 2^30")
		}
		return checkRange("config", c.SHA.Min, c.SHA.Max, c.SHA.Eta)
	case c.Hyperband != nil:
		_, err := Brackets(c.Hyperband.Min, c.Hyperband.Max, c.Hyperband.Eta)
		return err
	case c.Median != nil:
		c.Median.validate(bad)
	case c.PBT != nil:
		c.PBT.validate(bad)
	default:
		return c.ASHA.validate(bad)
	}
	return nil
}

func (a *ASHA) validate(bad func(field, value, reason string)) error {
	variants := []Variant{Promotion, Stopping, Ray, Optuna, Syne, SyneQuantile, Determined}
	if !slices.Contains(variants, a.Variant) {
		bad("Variant", errtext.Quote(a.Variant), "is not known")
	}
	if a.RunOn < 0 || a.RunOn > maxBracket {
		bad("RunOn", fmt.Sprint(a.RunOn), "must be between 0 and 2^30")
	}
	if !utf8.ValidString(a.Study) {
		bad("Study", errtext.Quote(a.Study), "must be UTF-8")
	}
	if len(a.Levels) > maxBrackets {
		bad("Levels", fmt.Sprint(len(a.Levels)), "must be at most 64")
		return nil
	}
	levels, err := a.rungs()
	if err == nil && (a.Brackets < 0 || a.Brackets > len(levels)) {
		bad("Brackets", fmt.Sprint(a.Brackets), fmt.Sprintf("must be between 0 and the number of levels, %d", len(levels)))
	}
	return err
}

// rungs returns the levels, up to Max.
func (a *ASHA) rungs() ([]uint64, error) {
	levels := a.Levels
	if len(levels) == 0 {
		var err error
		if levels, err = Levels(a.Min, a.Max, a.Eta); err != nil {
			return nil, err
		}
	} else if a.Eta < 2 {
		return nil, checkRange("config", 1, 1, a.Eta)
	} else if err := checkLevels(levels, a.Max); err != nil {
		return nil, err
	}
	return levels, nil
}

func (m *Median) validate(bad func(field, value, reason string)) {
	if m.Min < 0 {
		bad("Min", fmt.Sprint(m.Min), "must not be negative")
	}
	if m.Max > 0 && m.Max < m.Grace {
		bad("Max", fmt.Sprint(m.Max), "must not be below Grace")
	}
}

func (p *PBT) validate(bad func(field, value, reason string)) {
	if q := p.QuantileFraction; !(q >= 0 && q <= 0.5) {
		bad("QuantileFraction", fmt.Sprint(q), "must be between 0 and 1/2")
	}
	if q := p.ResampleFraction; !(q >= 0 && q <= 1) {
		bad("ResampleFraction", fmt.Sprint(q), "must be between 0 and 1")
	}
	seen := map[string]bool{}
	for i, param := range p.Params {
		field := fmt.Sprintf("Params[%d]", i)
		if seen[param.Name] {
			bad(field+".Name", errtext.Quote(param.Name), "stands twice")
		}
		seen[param.Name] = true
		if !utf8.ValidString(param.Name) {
			bad(field+".Name", errtext.Quote(param.Name), "must be UTF-8")
		}
		if param.Low > param.High {
			bad(field+".Low", fmt.Sprint(param.Low), "must not be above High")
		}
	}
}

// filled returns c with its defaults in place, sharing nothing with c.
func (c Config) filled() Config {
	switch {
	case c.SHA != nil:
		s := *c.SHA
		setRange(&s.Min, &s.Max, &s.Eta)
		c.SHA = &s
	case c.Hyperband != nil:
		h := *c.Hyperband
		setRange(&h.Min, &h.Max, &h.Eta)
		c.Hyperband = &h
	case c.Median != nil:
		m := *c.Median
		set(&m.Grace, 1)
		set(&m.Interval, 1)
		set(&m.Min, 3)
		c.Median = &m
	case c.PBT != nil:
		p := *c.PBT
		set(&p.Interval, 1)
		set(&p.BurnIn, p.Interval)
		set(&p.QuantileFraction, 0.25)
		set(&p.ResampleFraction, 0.25)
		p.Params = slices.Clone(p.Params)
		c.PBT = &p
	default:
		c.ASHA = c.ASHA.filled()
	}
	return c
}

func (a *ASHA) filled() *ASHA {
	out := ASHA{}
	if a != nil {
		out = *a
	}
	out.Levels = slices.Clone(out.Levels)
	if n := len(out.Levels); n > 0 {
		set(&out.Max, out.Levels[n-1])
	}
	setRange(&out.Min, &out.Max, &out.Eta)
	set(&out.Brackets, 1)
	return &out
}

func setRange(least, most *uint64, eta *uint32) {
	set(least, 1)
	set(most, 100)
	set(eta, 3)
}

// set gives v its default.
func set[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
