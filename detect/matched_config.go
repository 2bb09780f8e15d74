package detect

import (
	"errors"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep/pipeline"
)

const (
	defaultRate    = 1.0 / 10000 // false alarms an iteration
	defaultWarmup  = 30
	defaultHorizon = 30
	defaultPower   = 0.6
	leastScale     = 5e-4   // of noise, as a fraction of the time
	memorySpan     = 4      // horizons after which a fault that did not show is given up
	oddsRoom       = 20.0   // odds are held at so many times the threshold, so that recovery shows soon
	elsewhere      = 0.2    // chance, beforehand, that a slowdown is none of one stage of one replica
	leastWhole     = 0.0095 // smallest shift of whole iterations that is found in half of all jobs without noise, measured
	meanMemory     = 200    // iterations over which the information on a fault is averaged
)

// anywhere are the shifts, as logarithms, that a slowdown of the whole iteration is looked for at.
// Immutable.
var anywhere = [...]float64{0.03, 0.06, 0.12, 0.25, 0.6}

// MatchedConfig configures a MatchedTest. Replicas and Stages have no default that could be right;
// everything else may be zero.
type MatchedConfig struct {
	Replicas    int               `json:"replicas"`              // data-parallel replicas, at least 1
	Stages      int               `json:"stages"`                // pipeline stages, at least 1
	Factors     []pipeline.Factor `json:"factors,omitempty"`     // slowdowns to look for, ascending and above pipeline.Same; nil means 1.15, 1.3, 1.6, 2.2 and 4
	FalseAlarms float64           `json:"falseAlarms,omitempty"` // most false alarms an iteration that the threshold allows for, below 1; 0 means 1 in 10000
	Warmup      int               `json:"warmup,omitempty"`      // iterations that the first level is learned from, 8 to 4096; 0 means 30
	Horizon     int               `json:"horizon,omitempty"`     // iterations within which the minimum detectable slowdown is found, at most 4096; 0 means 30
	Power       float64           `json:"power,omitempty"`       // chance with which it is found, below 1; 0 means 0.6
}

// Validate reports every fault of c, joined.
func (c MatchedConfig) Validate() error {
	errs := checkPlaces(c.Replicas, c.Stages, max(len(c.Factors), 1))
	errs = append(errs, checkDesign(c.FalseAlarms, c.Warmup, c.Horizon, c.Power)...)
	if c.Factors != nil && len(c.Factors) == 0 {
		errs = append(errs, invalid("config", "Factors", "", "want one or more, or nil"))
	}
	if err := checkFactors("config", c.Factors); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const mostPlaces = 1 << 20 // replicas times stages, times what is looked for in each

// checkPlaces reports replicas and stages out of range.
func checkPlaces(replicas, stages, each int) (errs []error) {
	if replicas < 1 || replicas > mostPlaces {
		errs = append(errs, invalid("config", "Replicas", strconv.Itoa(replicas), "want 1 or more"))
	}
	if stages < 1 || stages > mostPlaces {
		errs = append(errs, invalid("config", "Stages", strconv.Itoa(stages), "want 1 or more"))
	}
	if len(errs) == 0 && int64(replicas)*int64(stages)*int64(each) > mostPlaces {
		errs = append(errs, invalid("config", "Replicas", strconv.Itoa(replicas), "replicas, stages and factors make more than "+strconv.Itoa(mostPlaces)))
	}
	return errs
}

// checkDesign reports what a sequential test is designed for where it is out of range; 0 always is
// in it.
func checkDesign(rate float64, warmup, horizon int, power float64) (errs []error) {
	if rate != 0 && !(rate >= 1e-12 && rate <= 0.5) {
		errs = append(errs, invalid("config", "FalseAlarms", text(rate), "want 0, or 1e-12 to 0.5"))
	}
	if warmup != 0 && (warmup < 8 || warmup > most) {
		errs = append(errs, invalid("config", "Warmup", strconv.Itoa(warmup), "want 0, or 8 to 4096"))
	}
	if horizon != 0 && (horizon < 1 || horizon > most) {
		errs = append(errs, invalid("config", "Horizon", strconv.Itoa(horizon), "want 0, or 1 to 4096"))
	}
	if power != 0 && !(power >= 1e-3 && power <= 0.999) {
		errs = append(errs, invalid("config", "Power", text(power), "want 0, or 0.001 to 0.999"))
	}
	return errs
}

func (c MatchedConfig) withDefaults() MatchedConfig {
	if c.Factors == nil {
		c.Factors = defaultFactors[:]
	}
	c.Factors = slices.Clone(c.Factors)
	designDefaults(&c.FalseAlarms, &c.Warmup, &c.Horizon, &c.Power)
	return c
}

func designDefaults(rate *float64, warmup, horizon *int, power *float64) {
	if *rate == 0 {
		*rate = defaultRate
	}
	if *warmup == 0 {
		*warmup = defaultWarmup
	}
	if *horizon == 0 {
		*horizon = defaultHorizon
	}
	if *power == 0 {
		*power = defaultPower
	}
}
