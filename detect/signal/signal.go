package signal

import (
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/detect/signal"
	version = 1
)

const (
	most = 4096 // largest window
	back = 0.5  // part of its limit within which a signal that is abnormal is normal again
)

// Level is what a signal of a job shows.
type Level uint8

// Levels of a signal.
const (
	Unknown  Level = iota // not reported, or too little of it: never the same as normal
	Normal                // as before
	Abnormal              // beyond its limit
)

// String returns the name of l.
func (l Level) String() string {
	switch l {
	case Unknown:
		return "unknown"
	case Normal:
		return "normal"
	case Abnormal:
		return "abnormal"
	}
	return "Level(" + strconv.Itoa(int(l)) + ")"
}

// Reading is what a job reports of itself for one iteration. A nil field was not reported.
type Reading struct {
	TokensPerSecond *float64       // throughput of the job, at least 0
	Step            *time.Duration // time of the iteration, above 0
	Loss            *float64       // training loss; NaN and infinities are abnormal
	GradNorm        *float64       // norm of the gradient; NaN, infinities and negative ones are abnormal
}

// Config configures a Watch. A signal that is abnormal is normal again where it is within half of its limit. The zero value is valid.
type Config struct {
	Window   int     `json:"window,omitempty"`   // readings compared with, 16 to 4096; 0 means 128
	Least    int     `json:"least,omitempty"`    // readings before a signal is known, 8 to Window; 0 means 32, or Window where that is less
	Drop     float64 `json:"drop,omitempty"`     // fraction, below 1, by which throughput may be below its median; 0 means 0.2
	Gap      float64 `json:"gap,omitempty"`      // factor, above 1, that the 99th percentile of step times may be above the median; 0 means 1.75
	Jump     float64 `json:"jump,omitempty"`     // robust standard deviations by which a loss may be above its median; 0 means 8
	GradJump float64 `json:"gradJump,omitempty"` // factor, above 1, that a gradient norm may be above its median; 0 means 10
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Window != 0 && (c.Window < 16 || c.Window > most) {
		errs = append(errs, invalid("watch", "Window", strconv.Itoa(c.Window), "want 0, or 16 to "+strconv.Itoa(most)))
	}
	if d := c.withDefaults(); d.Least < 8 || d.Least > max(d.Window, 16) {
		errs = append(errs, invalid("watch", "Least", strconv.Itoa(c.Least), "want 0, or 8 to Window"))
	}
	for _, f := range [...]struct {
		name         string
		x, low, high float64
	}{{"Drop", c.Drop, 0, 0.999}, {"Gap", c.Gap, 1, 1e6}, {"Jump", c.Jump, 0, 1e6}, {"GradJump", c.GradJump, 1, 1e6}} {
		if f.x != 0 && !(f.x >= f.low && f.x <= f.high) {
			errs = append(errs, invalid("watch", f.name, text(f.x), "want 0, or "+text(f.low)+" to "+text(f.high)))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 128
	}
	if c.Least == 0 {
		c.Least = min(32, c.Window)
	}
	for _, d := range [...]struct {
		p *float64
		x float64
	}{{&c.Drop, 0.2}, {&c.Gap, 1.75}, {&c.Jump, 8}, {&c.GradJump, 10}} {
		if *d.p == 0 {
			*d.p = d.x
		}
	}
	return c
}

// Findings is what the signals of a job show together.
type Findings struct {
	Throughput Level // tokens a second against their median
	StepGap    Level // 99th percentile of step times against the median
	Loss       Level // loss against its median
	GradNorm   Level // gradient norm against its median
}

// Watch compares what a job reports of itself, throughput, step times, loss and
// gradient norm, with what it reported before. It sees that something is wrong with a job, not which device it is.
type Watch struct {
	cfg        Config
	throughput window
	steps      window
	loss       window
	grad       window
}

// New returns a Watch without readings.
func New(cfg Config) (*Watch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Watch{cfg: cfg.withDefaults()}
	for _, w := range s.windows() {
		*w = newWindow(s.cfg.Window)
	}
	return s, nil
}

func (s *Watch) windows() [4]*window {
	return [...]*window{&s.throughput, &s.steps, &s.loss, &s.grad}
}

// Observe takes a reading and says what the signals show. ErrInvalid for a throughput or
// a step time that cannot be; then nothing has changed.
func (s *Watch) Observe(r Reading) (Findings, error) {
	var f Findings
	if v := r.TokensPerSecond; v != nil && !(*v >= 0 && *v <= math.MaxFloat64) {
		return f, invalid("watch", "TokensPerSecond", text(*v), "want a finite number of at least 0")
	}
	if r.Step != nil && *r.Step <= 0 {
		return f, invalid("watch", "Step", r.Step.String(), "want more than 0")
	}
	if v := r.TokensPerSecond; v != nil {
		f.Throughput = s.level(&s.throughput, func(w *window, part float64) bool {
			return *v < (1-float64(part*s.cfg.Drop))*w.quantile(50)
		})
		s.throughput.add(*v)
	}
	if r.Step != nil {
		s.steps.add(float64(*r.Step))
		f.StepGap = s.level(&s.steps, func(w *window, part float64) bool {
			return w.slowest() >= (1+float64(part*(s.cfg.Gap-1)))*w.quantile(50)
		})
	}
	if v := r.Loss; v != nil {
		f.Loss = s.value(&s.loss, *v, func(w *window, part float64) bool {
			return *v > w.quantile(50)+float64(part*s.cfg.Jump*w.spread())
		})
	}
	if v := r.GradNorm; v != nil {
		f.GradNorm = Abnormal
		if *v >= 0 {
			f.GradNorm = s.value(&s.grad, *v, func(w *window, part float64) bool {
				return *v > (1+float64(part*(s.cfg.GradJump-1)))*w.quantile(50)
			})
		}
	}
	return f, nil
}

// level is unknown while there are too few readings; beyond says whether a window is beyond a part of its limit.
func (s *Watch) level(w *window, beyond func(*window, float64) bool) Level {
	if len(w.sorted) < s.cfg.Least {
		return Unknown
	}
	part := 1.0
	if w.beyond {
		part = back
	}
	w.beyond = beyond(w, part)
	if w.beyond {
		return Abnormal
	}
	return Normal
}

// value judges a number that may be none, which is abnormal and not learned.
func (s *Watch) value(w *window, x float64, beyond func(*window, float64) bool) Level {
	if !(math.Abs(x) <= math.MaxFloat64) {
		return Abnormal
	}
	l := s.level(w, beyond)
	w.add(x)
	return l
}

// Reset forgets all readings.
func (s *Watch) Reset() {
	for _, w := range s.windows() {
		*w = newWindow(s.cfg.Window)
	}
}

// window is the last values of a series, in order of arrival and sorted.
type window struct {
	ring   []float64
	head   int
	sorted []float64
	beyond bool // the signal is abnormal
}

func newWindow(n int) window {
	return window{ring: make([]float64, n), sorted: make([]float64, 0, n)}
}

func (w *window) add(x float64) {
	if len(w.sorted) == cap(w.sorted) {
		i, _ := slices.BinarySearch(w.sorted, w.ring[w.head])
		w.sorted = slices.Delete(w.sorted, i, i+1)
	}
	i, _ := slices.BinarySearch(w.sorted, x)
	w.sorted = slices.Insert(w.sorted, i, x)
	w.ring[w.head] = x
	w.head = (w.head + 1) % len(w.ring)
}

// quantile returns the least value that so many in a hundred do not exceed.
func (w *window) quantile(percent int) float64 {
	n := len(w.sorted)
	return w.sorted[max(0, (n*percent+99)/100-1)]
}

// slowest returns the 99th percentile, or the largest value but one where that is less: one slow step is a pause.
func (w *window) slowest() float64 { return min(w.quantile(99), w.sorted[max(0, len(w.sorted)-2)]) }

// spread returns a robust standard deviation, from the quartiles; at least a thousandth of the median.
func (w *window) spread() float64 {
	const quartiles = 1.3489795 // standard deviations between the quartiles of a normal distribution
	return max((w.quantile(75)-w.quantile(25))/quartiles, math.Abs(w.quantile(50))/1000)
}

// values returns the values, oldest first.
func (w *window) values() []float64 {
	n := len(w.sorted)
	out := make([]float64, 0, n)
	for i := range n {
		out = append(out, w.ring[(w.head-n+i+len(w.ring))%len(w.ring)])
	}
	return out
}

// image is the saved form of a Watch.
type image struct {
	Config Config       `json:"config"`
	Values [4][]float64 `json:"values"` // oldest first
	Beyond [4]bool      `json:"beyond"`
}

func (s *Watch) saved() *image {
	img := &image{Config: s.cfg}
	for i, w := range s.windows() {
		img.Values[i], img.Beyond[i] = w.values(), w.beyond
	}
	return img
}

// Snapshot writes configuration and state for Restore.
func (s *Watch) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "signal: snapshot", format, version, s.saved())
}

// Restore reads what Snapshot of Watch wrote. ErrInvalid for bytes that are cut
// short, changed, of another version or of no possible Watch.
func Restore(r io.Reader) (*Watch, error) {
	const op = "signal: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	s, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	for i, w := range s.windows() {
		if len(img.Values[i]) > s.cfg.Window {
			return nil, invalid("restore", at("values", i), strconv.Itoa(len(img.Values[i])), "want at most "+strconv.Itoa(s.cfg.Window))
		}
		if img.Beyond[i] && len(img.Values[i]) < s.cfg.Least {
			return nil, invalid("restore", at("beyond", i), "true", "too few readings for that")
		}
		w.beyond = img.Beyond[i]
		for _, x := range img.Values[i] {
			w.add(x)
		}
	}
	if err := snapshot.CheckJSON(op, body, s.saved()); err != nil {
		return nil, err
	}
	return s, nil
}
