package change

import (
	"math"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// ewma is an exponentially weighted mean of whitened residuals, measured in its own
// standard deviations; the alarm ends where the mean has fallen to half its limit.
type ewma struct {
	cfg      Config
	base     baseline
	limit    float64 // of the mean
	detect   float64 // rise found with the power configured, in scales
	last     float64 // deviation of the last sample from the baseline
	mean     float64 // of residuals
	since    int     // samples since the mean was last at or below 0
	sum      float64 // of their deviations
	standing bool
}

func newEWMA(cfg Config) *ewma {
	t := &ewma{cfg: cfg, base: newBaseline(cfg)}
	t.set()
	return t
}

func (t *ewma) set() {
	t.limit = t.cfg.Threshold * math.Sqrt(t.cfg.Weight/(2-t.cfg.Weight))
	t.detect = ewmaRise(t.cfg)
}

func (t *ewma) Observe(x float64) (Decision, error) {
	if err := checkSample(x); err != nil {
		return Decision{}, err
	}
	if t.base.learning() {
		t.base.begin(x)
		t.last = t.base.last
		return Decision{Learning: true}, nil
	}
	u := x - t.base.mean
	z := num.Clip((u-float64(t.base.rho*t.last))/t.base.scale(), t.cfg.Clip)
	t.last = num.Clip(u, t.cfg.Clip*t.base.sdU)
	t.mean += float64(t.cfg.Weight * (z - t.mean))
	if t.mean <= 0 {
		t.since, t.sum = 0, 0
	} else {
		t.since = min(t.since+1, math.MaxInt32)
		t.sum += u
	}
	d := Decision{Residual: z, Score: max(0, t.mean-t.base.margin()) / t.limit}
	switch {
	case d.Score >= 1:
		d.Alarm = !t.standing
		t.standing = true
		if d.Alarm {
			t.base.drop()
		}
	case d.Score < 0.5:
		t.standing = false
	}
	if !t.standing {
		t.base.push(x)
	}
	d.Standing, d.Since = t.standing, t.since
	if t.since > 0 {
		d.Shift = t.sum / float64(t.since)
	}
	d.MinDetectable = t.base.factor(t.detect)
	return d, nil
}

func (t *ewma) Tune(cfg Config) error {
	cfg, err := tuned(t.cfg, cfg)
	if err != nil {
		return err
	}
	t.cfg, t.base.cfg = cfg, cfg
	t.set()
	return nil
}

func (t *ewma) Reset() {
	t.base.reset()
	t.last, t.mean, t.since, t.sum, t.standing = 0, 0, 0, 0, false
}

// raw is one sample against a multiple of the warm-up median, which never changes.
type raw struct {
	cfg      Config
	base     baseline
	limit    float64 // logarithm of the factor
	chance   float64 // quantile at which one sample of the horizon is over the limit with the power configured
	since    int
	sum      float64
	standing bool
}

func newRaw(cfg Config) *raw {
	t := &raw{cfg: cfg, base: newBaseline(cfg)}
	t.set()
	return t
}

func (t *raw) set() {
	t.limit = num.Log(t.cfg.Threshold)
	t.chance = quantile(num.Exp(num.Log(1-t.cfg.Power) / float64(t.cfg.Horizon)))
}

func (t *raw) Observe(x float64) (Decision, error) {
	if err := checkSample(x); err != nil {
		return Decision{}, err
	}
	if t.base.learning() {
		t.base.begin(x)
		return Decision{Learning: true}, nil
	}
	u := x - t.base.mean
	d := Decision{Residual: num.Clip(u/t.base.sdU, t.cfg.Clip), Score: max(0, u) / t.limit}
	if u > t.limit {
		d.Alarm = !t.standing
		t.standing = true
		t.since = min(t.since+1, math.MaxInt32)
		t.sum += u
		d.Shift = t.sum / float64(t.since)
	} else {
		t.standing, t.since, t.sum = false, 0, 0
	}
	d.Standing, d.Since = t.standing, t.since
	d.MinDetectable = max(1, num.Exp(t.limit-float64(t.chance*t.base.sdU)))
	return d, nil
}

func (t *raw) Tune(cfg Config) error {
	cfg, err := tuned(t.cfg, cfg)
	if err != nil {
		return err
	}
	t.cfg, t.base.cfg = cfg, cfg
	t.set()
	return nil
}

func (t *raw) Reset() {
	t.base.reset()
	t.since, t.sum, t.standing = 0, 0, false
}
