package change

import (
	"math"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	early         = 8   // part of the threshold up to which a sum says nothing, so that the onset lies behind it
	plateau       = 20  // samples after an alarm that the level of the fault is learned from
	plateauMargin = 0.3 // standard error of that level, in scales, and some more
)

// cusum is Page's cumulative sum, one-sided, of residuals that are freed of their
// correlation with the sample before, divided by their scale and clipped. The
// reference is wider by the standard error of the baseline, so that a poor start does
// not cause alarms. While an alarm stands, one sum looks for recovery and one for
// a second rise on top of the first.
type cusum struct {
	cfg      Config
	base     baseline
	detect   float64 // rise found with the power configured, in scales
	last     float64 // deviation of the last sample from the baseline
	up       float64 // sum for a rise
	since    int     // samples since it was last low
	sum      float64 // of their deviations, clipped
	standing bool
	fault    int     // samples since the onset, while standing
	total    float64 // of the deviations from the baseline since the alarm, until the fault has settled
	level    float64 // deviation of the fault, as far as it is known
	settled  bool
	down     float64 // sum for recovery
}

func newCUSUM(cfg Config) *cusum {
	t := &cusum{cfg: cfg, base: newBaseline(cfg)}
	t.detect = cusumRise(cfg)
	return t
}

func (t *cusum) Observe(x float64) (Decision, error) {
	if err := checkSample(x); err != nil {
		return Decision{}, err
	}
	if t.base.learning() {
		t.base.begin(x)
		t.last = t.base.last
		return Decision{Learning: true}, nil
	}
	var d Decision
	u := x - t.base.mean
	d.Residual = num.Clip((u-float64(t.base.rho*t.last))/t.base.scale(), t.cfg.Clip)
	if t.standing {
		t.follow(u, &d)
	} else {
		t.accumulate(u, d.Residual, t.base.margin(), &d)
		if !t.standing {
			t.base.push(x)
		}
	}
	t.last = num.Clip(u, float64(t.cfg.Clip*t.base.sdU)+t.level)
	t.report(&d)
	return d, nil
}

// accumulate adds a residual to the sum, and raises the alarm where it is over the threshold.
func (t *cusum) accumulate(u, z, margin float64, d *Decision) {
	if t.up <= t.cfg.Threshold/early {
		t.since, t.sum = 0, 0
	}
	t.up = max(0, t.up+(z-t.cfg.Reference-margin))
	if t.up == 0 {
		t.since, t.sum = 0, 0
		return
	}
	t.since = min(t.since+1, math.MaxInt32)
	t.sum += num.Clip(u, t.bound())
	if t.up < t.cfg.Threshold {
		return
	}
	d.Alarm = true
	t.standing, t.settled = true, false
	t.fault, t.level = t.since, t.sum/float64(t.since)
	t.up, t.since, t.sum, t.total, t.down = 0, 0, 0, 0, 0
	t.base.drop()
}

// bound is how far a single sample moves the estimate of a fault's size: by a factor
// of e above what the clip allows, so that spikes count little and large faults do.
func (t *cusum) bound() float64 { return float64(t.cfg.Clip*t.base.sdU) + 1 }

// follow judges a sample while an alarm stands.
func (t *cusum) follow(u float64, d *Decision) {
	t.fault = min(t.fault+1, math.MaxInt32)
	t.down = max(0, t.down+t.recovery(d.Residual))
	if t.down >= t.cfg.Threshold {
		t.clear()
		return
	}
	if !t.settled {
		t.total += num.Clip(u, t.bound())
		t.since++
		if t.since >= plateau {
			t.level = t.total / plateau
			t.settled, t.since, t.total = true, 0, 0
		}
		return
	}
	z := (u - t.level - float64(t.base.rho*(t.last-t.level))) / t.base.scale()
	t.accumulate(u, num.Clip(z, t.cfg.Clip), t.base.margin()+plateauMargin, d)
}

// recovery returns what a residual says for the baseline and against the level of the fault.
func (t *cusum) recovery(z float64) float64 {
	half := t.level * (1 - t.base.rho) / t.base.scale() / 2
	return min(max(half, t.cfg.Reference), t.cfg.Clip/2) - z
}

// clear ends an alarm.
func (t *cusum) clear() {
	t.standing, t.settled = false, false
	t.fault, t.total, t.level, t.down = 0, 0, 0, 0
	t.up, t.since, t.sum = 0, 0, 0
}

func (t *cusum) report(d *Decision) {
	d.Standing = t.standing
	switch {
	case d.Alarm:
		d.Score = 1
	default:
		d.Score = t.up / t.cfg.Threshold
	}
	d.Since, d.Shift = t.since, 0
	if t.standing {
		d.Since, d.Shift = t.fault, t.level
		d.Score = max(d.Score, 1)
	} else if t.since > 0 {
		d.Shift = t.sum / float64(t.since)
	}
	d.MinDetectable = t.base.factor(t.detect)
}

// factor returns the slowdown that is a rise of so many scales, after whitening.
func (b *baseline) factor(rise float64) float64 {
	return num.Exp(b.scale() * (rise + b.margin()) / (1 - b.rho))
}

func (t *cusum) Tune(cfg Config) error {
	cfg, err := tuned(t.cfg, cfg)
	if err != nil {
		return err
	}
	t.cfg, t.base.cfg = cfg, cfg
	t.detect = cusumRise(cfg)
	return nil
}

// tuned returns the configuration that a test of configuration old has after Tune(cfg).
func tuned(old, cfg Config) (Config, error) {
	if err := cfg.Validate(); err != nil {
		return old, err
	}
	cfg = cfg.withDefaults()
	return cfg, old.tunable(cfg)
}

func (t *cusum) Reset() {
	t.base.reset()
	t.clear()
	t.last = 0
}
