package fit

import (
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form of a Tracker; others are refused.
const (
	format  = "lockstep/detect/fit"
	version = 1
)

// TrackerConfig configures a Tracker. The zero value is valid.
type TrackerConfig struct {
	Window int     `json:"window,omitempty"` // samples over which the fit averages, 16 to 1000000; 0 means 1024
	Every  int     `json:"every,omitempty"`  // samples between two fits, 1 to Window; 0 means 16
	Drift  float64 `json:"drift,omitempty"`  // most by which the prediction may move a sample, as a fraction, at most 1; 0 means 0.00002
	Cap    float64 `json:"cap,omitempty"`    // most by which it may rise in all above the first coefficients, as a fraction, at most 1; 0 means 0.02
	Fixed  bool    `json:"fixed,omitempty"`  // a part for each chunk is fitted as well
	Linear bool    `json:"linear,omitempty"` // there is no part for each pair
}

// Validate reports every fault of c, joined.
func (c TrackerConfig) Validate() error {
	var errs []error
	if c.Window != 0 && (c.Window < 16 || c.Window > 1_000_000) {
		errs = append(errs, invalid("tracker", "Window", strconv.Itoa(c.Window), "want 0, or 16 to 1000000"))
	}
	if d := c.withDefaults(); c.Every < 0 || d.Every > max(d.Window, 16) {
		errs = append(errs, invalid("tracker", "Every", strconv.Itoa(c.Every), "want 0 to Window"))
	}
	for _, f := range [...]struct {
		name string
		x    float64
	}{{"Drift", c.Drift}, {"Cap", c.Cap}} {
		if !(f.x >= 0 && f.x <= 1) {
			errs = append(errs, invalid("tracker", f.name, text(f.x), "want 0 to 1"))
		}
	}
	return errors.Join(errs...)
}

func (c TrackerConfig) withDefaults() TrackerConfig {
	if c.Window == 0 {
		c.Window = 1024
	}
	if c.Every == 0 {
		c.Every = 16
	}
	if c.Drift == 0 {
		c.Drift = 2e-5
	}
	if c.Cap == 0 {
		c.Cap = 0.02
	}
	return c
}

// Tracker fits coefficients on while a job runs: chips warm up, kernels are tuned, the
// mix of lengths moves. Two limits keep a fault that grows slowly from becoming the
// baseline: on how far the prediction moves a sample, and on how far it rises in all.
type Tracker struct {
	cfg    TrackerConfig
	first  Coeff // coefficients it began with
	now    Coeff
	sums   normalEquations
	mean   [3]float64 // terms of a typical sample
	n      int        // samples since the last fit
	seen   int        // samples in all, held at the window
	spread float64    // mean absolute relative residual, for the weights
}

// NewTracker returns a Tracker that begins with the coefficients of Solve, whose report
// tells the scale of the residuals.
func NewTracker(c Coeff, report Report, cfg TrackerConfig) (*Tracker, error) {
	if err := errors.Join(cfg.Validate(), c.Validate()); err != nil {
		return nil, err
	}
	if c.near(Coeff{}) {
		return nil, invalid("tracker", "coeff", "0", "want one above 0")
	}
	if !(report.Scale >= 0 && report.Scale <= 1e6) {
		return nil, invalid("tracker", "report.Scale", text(report.Scale), "want a finite fraction")
	}
	return &Tracker{cfg: cfg.withDefaults(), first: c, now: c, spread: max(report.Scale, 1e-4)}, nil
}

// Coeff returns the coefficients as they are now.
func (t *Tracker) Coeff() Coeff { return t.now }

// Observe takes a sample that is not suspected of a fault. After an error nothing has changed.
func (t *Tracker) Observe(s Sample) error {
	if err := s.check("sample"); err != nil {
		return err
	}
	row := s.row(1)
	base := dot(t.now, row)
	if !(base >= 1e-9) {
		return nil // nothing is predicted for it, so nothing is to be learned
	}
	r := math.Abs(float64(s.Took)/base - 1)
	most := 3 * t.spread
	weight := 1.0
	if r > most {
		weight = most / r
	}
	gain := 1 / float64(min(t.seen+16, t.cfg.Window))
	t.seen = min(t.seen+1, t.cfg.Window)
	t.spread = max(t.spread+float64(gain*(float64(1.25*min(r, most))-t.spread)), 1e-4)
	t.sums.fade(1 - gain)
	for j := range row {
		t.mean[j] += float64(gain * (row[j] - t.mean[j]))
		row[j] /= base
	}
	t.sums.add(row, float64(s.Took)/base, weight*gain)
	t.n++
	if t.n >= t.cfg.Every {
		t.move()
		t.n = 0
	}
	return nil
}

func dot(c Coeff, row [3]float64) float64 {
	return float64(c.Alpha*row[0]) + float64(c.Beta*row[1]) + float64(c.Fixed*row[2])
}

// move goes from the coefficients as they are towards those that fit best, as far as the limits allow.
func (t *Tracker) move() {
	use := [3]bool{true, !t.cfg.Linear, t.cfg.Fixed}
	for j := range use {
		if use[j] && t.sums.unexplained(use, j) < 0.02 {
			return // the samples of late do not determine it
		}
	}
	best := t.sums.solve(use).array()
	now := t.now.array()
	base, apart := 0.0, 0.0
	for j := range now {
		base += float64(now[j] * t.mean[j])
		apart += float64(math.Abs(best[j]-now[j]) * t.mean[j])
	}
	most := t.cfg.Drift * float64(t.cfg.Every) * base
	part := 1.0
	if apart > most {
		part = most / apart
	}
	for j := range now {
		now[j] = max(0, now[j]+float64(part*(best[j]-now[j])))
	}
	next := Coeff{now[0], now[1], now[2]}
	if rise := dot(next, t.mean) / dot(t.first, t.mean); rise > 1+t.cfg.Cap || !(dot(next, t.mean) > 0) {
		return
	}
	t.now = next
}

// Reset begins anew with other coefficients, such as those after a repair.
func (t *Tracker) Reset(c Coeff) error {
	next, err := NewTracker(c, Report{Scale: t.spread}, t.cfg)
	if err == nil {
		*t = *next
	}
	return err
}

// trackerImage is the saved form of a Tracker.
type trackerImage struct {
	Config TrackerConfig `json:"config"`
	First  Coeff         `json:"first"`
	Now    Coeff         `json:"now"`
	Gram   [3][3]float64 `json:"gram"`
	RHS    [3]float64    `json:"rhs"`
	YY     float64       `json:"yy"`
	Mean   [3]float64    `json:"mean"`
	N      int           `json:"n"`
	Seen   int           `json:"seen"`
	Spread float64       `json:"spread"`
}

func (t *Tracker) image() *trackerImage {
	return &trackerImage{t.cfg, t.first, t.now, t.sums.gram, t.sums.rhs, t.sums.yy, t.mean, t.n, t.seen, t.spread}
}

// Snapshot writes configuration and state for RestoreTracker.
func (t *Tracker) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "fit: snapshot", format, version, t.image())
}

// RestoreTracker reads what Snapshot of a Tracker wrote. ErrInvalid for bytes that are
// cut short, changed, of another version or of no possible Tracker.
func RestoreTracker(r io.Reader) (*Tracker, error) {
	const op = "fit: restore"
	var img trackerImage
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := trackerOf(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

func trackerOf(img *trackerImage) (*Tracker, error) {
	t, err := NewTracker(img.First, Report{Scale: img.Spread}, img.Config)
	if err != nil {
		return nil, err
	}
	c := t.cfg
	switch {
	case img.Config != c:
		return nil, invalid("restore", "config", "", "is not as a tracker keeps it")
	case img.Now.Validate() != nil || img.Now.near(Coeff{}):
		return nil, invalid("restore", "now", "", "is no coefficients")
	case img.N < 0 || img.N >= c.Every || img.Seen < 0 || img.Seen > c.Window:
		return nil, invalid("restore", "seen", "", "samples do not add up")
	case !(img.Spread >= 1e-4):
		return nil, invalid("restore", "spread", text(img.Spread), "want at least 0.0001")
	}
	for j := range img.Mean {
		if !(img.Mean[j] >= 0 && img.Mean[j] <= maxPairs) || !(img.Gram[j][j] >= 0) {
			return nil, invalid("restore", at("mean", j), text(img.Mean[j]), "want 0 to "+text(maxPairs))
		}
	}
	t.now, t.mean, t.n, t.seen = img.Now, img.Mean, img.N, img.Seen
	t.sums = normalEquations{img.Gram, img.RHS, img.YY}
	return t, nil
}
