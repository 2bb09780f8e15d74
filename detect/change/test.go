package change

import (
	"errors"
	"io"
	"strconv"
)

// Method is a sequential test.
type Method uint8

// Methods. All but CUSUM are there to be compared with.
const (
	CUSUM     Method = iota // cumulative sum of clipped, whitened residuals (Page 1954)
	EWMA                    // exponentially weighted mean against its own standard deviation (Roberts 1959)
	Raw                     // one sample against the warm-up median
	BOCD                    // Bayesian online change-point detection (Adams and MacKay 2007)
	Greyhound               // BOCD, kept where the mean rose by at least Shift (FALCON/Greyhound, ATC 2025)
	ResiHP                  // BOCD on times, kept where the time exceeds the prediction by at least Shift, else the point is left out (arXiv 2605.06374)
)

// String returns the name of m.
func (m Method) String() string {
	switch m {
	case CUSUM:
		return "cusum"
	case EWMA:
		return "ewma"
	case Raw:
		return "raw"
	case BOCD:
		return "bocd"
	case Greyhound:
		return "greyhound"
	case ResiHP:
		return "resihp"
	}
	return "Method(" + strconv.Itoa(int(m)) + ")"
}

// Decision is what one sample showed.
type Decision struct {
	Learning      bool    // the baseline is not known yet
	Alarm         bool    // an alarm was raised by this sample
	Standing      bool    // an alarm stands: raised and not yet cleared
	Score         float64 // test statistic over its threshold
	Since         int     // samples from the estimated onset to this one, both counted; 0 means that there is none
	Shift         float64 // estimated rise of the logarithm since the onset
	Residual      float64 // deviation of this sample from the baseline in scales of the baseline, clipped
	MinDetectable float64 // smallest factor that would be found within the horizon, with the power configured; 0 means unknown, infinite that none would be
}

// Test is a sequential test of one series for a rise. A sample is the natural
// logarithm of a time in any unit, or of observed over expected time.
type Test interface {
	// Observe takes the next sample. ErrInvalid for NaN and infinities, which change nothing.
	Observe(x float64) (Decision, error)
	// Tune changes what a test decides by and keeps what it has learned. ErrInvalid for another Method, Warmup, Lag or Support.
	Tune(cfg Config) error
	// Reset forgets everything but the configuration.
	Reset()
	// Level returns where the healthy series lies; 0 while that is learned.
	Level() float64
	// Config returns the configuration, with the defaults filled in.
	Config() Config
	// Snapshot writes configuration and state for Restore.
	Snapshot(w io.Writer) error
}

// Predictive is a Test that takes what was expected besides what was observed. Its
// Observe expects the sample itself, so that nothing is ever more than expected.
type Predictive interface {
	Test
	// ObserveExpected takes the next sample and what it should have been, both as logarithms of times in the same unit.
	ObserveExpected(x, expected float64) (Decision, error)
}

// Config configures a Test. The zero value is valid. Scales are robust
// standard deviations that the test learns.
type Config struct {
	Method           Method  `json:"method,omitempty"`           // which test
	Warmup           int     `json:"warmup,omitempty"`           // samples that the first baseline is learned from, 8 to 4096; 0 means 30
	Lag              int     `json:"lag,omitempty"`              // samples that learning stays behind, so that what is found in time is never learned; 1 to 4096; 0 means 30
	Threshold        float64 `json:"threshold,omitempty"`        // alarm level: CUSUM a sum in scales (0 means 8), EWMA scales of the mean (0 means 4), Raw a factor above 1 (0 means 1.1), the others a chance below 1 (0 means 0.9)
	Reference        float64 `json:"reference,omitempty"`        // CUSUM: what each sample loses, in scales; 0 means 0.5
	Weight           float64 `json:"weight,omitempty"`           // EWMA: weight of the newest sample, at most 1; 0 means 0.2
	Clip             float64 `json:"clip,omitempty"`             // most that one sample may count, in scales, 2 to 100; 0 means 4
	Shift            float64 `json:"shift,omitempty"`            // factor that a change must reach: Greyhound 0 means 1.1, ResiHP 0 means 1.25
	Hazard           float64 `json:"hazard,omitempty"`           // BOCD and its kin: chance of a change at each sample, below 1; 0 means 0.004
	Support          int     `json:"support,omitempty"`          // BOCD and its kin: longest run length told apart, 8 to 4096; 0 means 64
	Within           int     `json:"within,omitempty"`           // BOCD and its kin: a change counts while it is at most that many samples old, below Support; 0 means 8
	Horizon          int     `json:"horizon,omitempty"`          // samples within which MinDetectable is found, at most 4096; 0 means 30
	Power            float64 `json:"power,omitempty"`            // chance with which MinDetectable is found, below 1; 0 means 0.6
	Drift            float64 `json:"drift,omitempty"`            // most that the baseline may rise or fall a sample once it is settled, at most 1; 0 means 0.00002
	Cap              float64 `json:"cap,omitempty"`              // most that the baseline may rise in all above what warm-up showed, as a fraction, at most 1; 0 means 0.02
	MinScale         float64 `json:"minScale,omitempty"`         // least scale, as a fraction, at most 1; 0 means 0.0005
	DisableWhitening bool    `json:"disableWhitening,omitempty"` // samples are not freed of the correlation with their predecessors
}

// most is the largest count in a Config.
const most = 4096

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	count := func(field string, n, least, limit int) {
		if n != 0 && (n < least || n > limit) {
			errs = append(errs, invalid("config", field, strconv.Itoa(n), "want 0, or "+strconv.Itoa(least)+" to "+strconv.Itoa(limit)))
		}
	}
	amount := func(field string, x, least, limit float64) {
		if x != 0 && !(x >= least && x <= limit) { // NaN fails both
			errs = append(errs, invalid("config", field, text(x), "want 0, or "+text(least)+" to "+text(limit)))
		}
	}
	if c.Method > ResiHP {
		errs = append(errs, invalid("config", "Method", c.Method.String(), "want CUSUM to ResiHP"))
	}
	count("Warmup", c.Warmup, 8, most)
	count("Lag", c.Lag, 1, most)
	count("Support", c.Support, 8, most)
	count("Within", c.Within, 1, most)
	count("Horizon", c.Horizon, 1, most)
	least, limit := thresholds(c.Method)
	amount("Threshold", c.Threshold, least, limit)
	amount("Reference", c.Reference, 1e-3, 100)
	amount("Weight", c.Weight, 1e-3, 1)
	amount("Clip", c.Clip, 2, 100)
	amount("Shift", c.Shift, 1, 1e6)
	amount("Hazard", c.Hazard, 1e-9, 0.5)
	amount("Power", c.Power, 1e-3, 0.999)
	amount("Drift", c.Drift, 1e-12, 1)
	amount("Cap", c.Cap, 1e-12, 1)
	amount("MinScale", c.MinScale, 1e-9, 1)
	if d := c.withDefaults(); d.Within >= d.Support {
		errs = append(errs, invalid("config", "Within", strconv.Itoa(d.Within), "want less than Support, "+strconv.Itoa(d.Support)))
	}
	return errors.Join(errs...)
}

// thresholds returns the range of a method's Threshold.
func thresholds(m Method) (least, limit float64) {
	switch m {
	case CUSUM, EWMA:
		return 0.1, 1e6
	case Raw:
		return 1 + 1e-6, 1e6
	}
	return 1e-3, 1 - 1e-9
}

func (c Config) withDefaults() Config {
	orInt := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	or := func(p *float64, d float64) {
		if *p == 0 {
			*p = d
		}
	}
	orInt(&c.Warmup, 30)
	orInt(&c.Lag, 30)
	orInt(&c.Support, 64)
	orInt(&c.Within, 8)
	orInt(&c.Horizon, 30)
	switch c.Method {
	case CUSUM:
		or(&c.Threshold, 8)
	case EWMA:
		or(&c.Threshold, 4)
	case Raw:
		or(&c.Threshold, 1.1)
	case BOCD, Greyhound, ResiHP:
		or(&c.Threshold, 0.9)
	}
	or(&c.Reference, 0.5)
	or(&c.Weight, 0.2)
	or(&c.Clip, 4)
	or(&c.Hazard, 0.004)
	or(&c.Power, 0.6)
	or(&c.Drift, 2e-5)
	or(&c.Cap, 0.02)
	or(&c.MinScale, 5e-4)
	if c.Method == ResiHP {
		or(&c.Shift, 1.25)
	}
	or(&c.Shift, 1.1)
	return c
}

// tunable reports what keeps a test of configuration c from being tuned to next; both have their defaults.
func (c Config) tunable(next Config) error {
	const reason = "cannot be tuned; make a new test"
	switch {
	case next.Method != c.Method:
		return invalid("tune", "Method", next.Method.String(), reason)
	case next.Warmup != c.Warmup:
		return invalid("tune", "Warmup", strconv.Itoa(next.Warmup), reason)
	case next.Lag != c.Lag:
		return invalid("tune", "Lag", strconv.Itoa(next.Lag), reason)
	case next.Support != c.Support:
		return invalid("tune", "Support", strconv.Itoa(next.Support), reason)
	case next.DisableWhitening != c.DisableWhitening:
		return invalid("tune", "DisableWhitening", strconv.FormatBool(next.DisableWhitening), reason)
	}
	return nil
}

// New returns the test that cfg asks for. It is a Predictive where Method is ResiHP.
func New(cfg Config) (Test, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	switch cfg.Method {
	case EWMA:
		return newEWMA(cfg), nil
	case Raw:
		return newRaw(cfg), nil
	case BOCD, Greyhound:
		return newBOCD(cfg), nil
	case ResiHP:
		return &resiHP{*newBOCD(cfg)}, nil
	}
	return newCUSUM(cfg), nil
}

// largest is the largest logarithm, far beyond that of any time.
const largest = 1000

// checkSample reports a sample that is no logarithm.
func checkSample(x float64) error {
	if !(x >= -largest && x <= largest) {
		return invalid("observe", "x", text(x), "want a logarithm of at most "+text(largest))
	}
	return nil
}
