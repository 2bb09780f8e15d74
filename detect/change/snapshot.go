package change

import (
	"io"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/detect/change"
	version = 1
)

// testImage is the saved form of a Test: the configuration as given to New with
// its defaults, the baseline, and the state of the method.
type testImage struct {
	Config   Config        `json:"config"`
	Baseline baselineImage `json:"baseline"`
	Last     float64       `json:"last,omitempty"`
	Since    int           `json:"since,omitempty"`
	Sum      float64       `json:"sum,omitempty"`
	Standing bool          `json:"standing,omitempty"`
	CUSUM    *cusumImage   `json:"cusum,omitempty"`
	Mean     float64       `json:"mean,omitempty"` // EWMA
	BOCD     *bocdImage    `json:"bocd,omitempty"`
}

type baselineImage struct {
	Warm   []float64 `json:"warm,omitempty"`
	Queue  []float64 `json:"queue,omitempty"` // oldest first
	N      int       `json:"n,omitempty"`
	Mean   float64   `json:"mean,omitempty"`
	Anchor float64   `json:"anchor,omitempty"`
	VarU   float64   `json:"varU,omitempty"`
	VarE   float64   `json:"varE,omitempty"`
	Cov    float64   `json:"cov,omitempty"`
	Last   float64   `json:"last,omitempty"`
}

type cusumImage struct {
	Up      float64 `json:"up"`
	Fault   int     `json:"fault,omitempty"`
	Total   float64 `json:"total,omitempty"`
	Level   float64 `json:"level,omitempty"`
	Settled bool    `json:"settled,omitempty"`
	Down    float64 `json:"down,omitempty"`
}

type bocdImage struct {
	Weight []float64 `json:"weight"`
	Sum    []float64 `json:"sum"`
	Ring   []float64 `json:"ring"` // oldest first
	Center float64   `json:"center,omitempty"`
	Level  float64   `json:"level,omitempty"`
	Fault  float64   `json:"fault,omitempty"`
	Gap    int       `json:"gap,omitempty"`
	Fired  bool      `json:"fired,omitempty"`
}

// imager is a Test of this package.
type imager interface {
	Test
	image() *testImage
	restore(img *testImage) string // what is impossible about the image; the configuration and the common fields were checked
}

// Snapshot writes configuration and state for Restore.
func (t *cusum) Snapshot(w io.Writer) error { return save(t, w) }

// Snapshot writes configuration and state for Restore.
func (t *ewma) Snapshot(w io.Writer) error { return save(t, w) }

// Snapshot writes configuration and state for Restore.
func (t *raw) Snapshot(w io.Writer) error { return save(t, w) }

// Snapshot writes configuration and state for Restore.
func (t *bocd) Snapshot(w io.Writer) error { return save(t, w) }

func (t *cusum) Level() float64 { return t.base.mean }
func (t *ewma) Level() float64  { return t.base.mean }
func (t *raw) Level() float64   { return t.base.mean }
func (t *bocd) Level() float64  { return t.base.mean }

func (t *cusum) Config() Config { return t.cfg }
func (t *ewma) Config() Config  { return t.cfg }
func (t *raw) Config() Config   { return t.cfg }
func (t *bocd) Config() Config  { return t.cfg }

func save(t imager, w io.Writer) error {
	return snapshot.WriteJSON(w, "change: snapshot", format, version, t.image())
}

// Restore reads what Snapshot of a Test wrote, configuration included. The test
// goes on as the one that was saved. ErrInvalid for bytes that are cut short, changed,
// of another version or of no possible test.
func Restore(r io.Reader) (Test, error) {
	const op = "change: restore"
	var img testImage
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := testOf(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

// testOf returns the test that img is of.
func testOf(img *testImage) (imager, error) {
	if img.Config != img.Config.withDefaults() {
		return nil, invalid("restore", "config", "", "is not as a test keeps it")
	}
	t, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	own := t.(imager) // invariant: New returns tests of this package only
	if !modest(img.Last) || !modest(img.Sum) || img.Since < 0 || img.Since > math.MaxInt32 {
		return nil, invalid("restore", "state", "", "out of range")
	}
	if reason := own.restore(img); reason != "" {
		return nil, invalid("restore", "state", "", reason)
	}
	return own, nil
}

func (b *baseline) image() baselineImage {
	img := baselineImage{
		Warm: slices.Clone(b.warm), N: b.n, Mean: b.mean, Anchor: b.anchor,
		VarU: b.varU, VarE: b.varE, Cov: b.cov, Last: b.last,
	}
	for i := range b.held {
		img.Queue = append(img.Queue, b.queue[(b.head+i)%len(b.queue)])
	}
	return img
}

// check says what is impossible about a saved baseline.
func (b *baseline) check(img *baselineImage) string {
	least := b.cfg.MinScale * b.cfg.MinScale
	state := []float64{img.Mean, img.Anchor, img.VarU, img.VarE, img.Cov, img.Last}
	switch {
	case !allModest(img.Warm) || !allModest(img.Queue) || !allModest(state):
		return "baseline is out of range"
	case len(img.Queue) > b.cfg.Lag:
		return "more samples wait than the lag allows"
	case img.N == 0 && (len(img.Warm) >= b.cfg.Warmup || len(img.Queue) > 0 || slices.ContainsFunc(state, func(x float64) bool { return x != 0 })):
		return "a baseline that is not known has a state"
	case img.N == 0:
		return ""
	case img.N < min(b.cfg.Warmup, memory) || img.N > max(b.cfg.Warmup, memory) || len(img.Warm) > 0:
		return "samples do not add up"
	case img.Mean > img.Anchor, img.VarU < least*(1-1e-9), img.VarE < least*(1-1e-9):
		return "baseline out of range"
	}
	return ""
}

// restore takes a saved baseline in, or says what is impossible about it.
func (b *baseline) restore(img *baselineImage) string {
	if reason := b.check(img); reason != "" {
		return reason
	}
	b.warm = append(b.warm[:0], img.Warm...)
	b.head, b.held = 0, copy(b.queue, img.Queue)
	b.n, b.mean, b.anchor = img.N, img.Mean, img.Anchor
	b.varU, b.varE, b.cov, b.last = img.VarU, img.VarE, img.Cov, img.Last
	if b.n > 0 {
		b.correlate()
		b.roots()
	}
	return ""
}

// modest says that x is a number no larger than any that a test works with.
func modest(x float64) bool { return math.Abs(x) <= 1e15 }

func allModest(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !modest(x) })
}

func (t *cusum) image() *testImage {
	return &testImage{
		Config: t.cfg, Baseline: t.base.image(), Last: t.last, Since: t.since, Sum: t.sum, Standing: t.standing,
		CUSUM: &cusumImage{Up: t.up, Fault: t.fault, Total: t.total, Level: t.level, Settled: t.settled, Down: t.down},
	}
}

func (t *cusum) restore(img *testImage) string {
	s := img.CUSUM
	if s == nil || !allModest([]float64{s.Up, s.Total, s.Level, s.Down}) {
		return "has no state of its method"
	}
	switch {
	case s.Up < 0 || s.Down < 0: // over the threshold it may be, after Tune
		return "a sum is below 0"
	case s.Fault < 0 || s.Fault > math.MaxInt32 || (s.Fault > 0) != img.Standing:
		return "the onset does not suit"
	case !img.Standing && (s.Total != 0 || s.Level != 0 || s.Settled || s.Down != 0):
		return "there is no fault to have a level"
	}
	t.last, t.since, t.sum, t.standing = img.Last, img.Since, img.Sum, img.Standing
	t.up, t.fault, t.total, t.level, t.settled, t.down = s.Up, s.Fault, s.Total, s.Level, s.Settled, s.Down
	return t.base.restore(&img.Baseline)
}

func (t *ewma) image() *testImage {
	return &testImage{
		Config: t.cfg, Baseline: t.base.image(), Last: t.last, Since: t.since, Sum: t.sum, Standing: t.standing, Mean: t.mean,
	}
}

func (t *ewma) restore(img *testImage) string {
	if !modest(img.Mean) || math.Abs(img.Mean) > t.cfg.Clip {
		return "mean out of range"
	}
	t.last, t.since, t.sum, t.standing, t.mean = img.Last, img.Since, img.Sum, img.Standing, img.Mean
	return t.base.restore(&img.Baseline)
}

func (t *raw) image() *testImage {
	return &testImage{Config: t.cfg, Baseline: t.base.image(), Since: t.since, Sum: t.sum, Standing: t.standing}
}

func (t *raw) restore(img *testImage) string {
	t.since, t.sum, t.standing = img.Since, img.Sum, img.Standing
	return t.base.restore(&img.Baseline)
}

func (t *bocd) image() *testImage {
	return &testImage{
		Config: t.cfg, Baseline: t.base.image(), Last: t.last, Since: t.since, Standing: t.standing,
		BOCD: &bocdImage{
			Weight: slices.Clone(t.runs.weight), Sum: slices.Clone(t.runs.sum),
			Ring: slices.Concat(t.ring[t.head:], t.ring[:t.head]), Center: t.center, Level: t.level, Fault: t.fault, Gap: t.gap, Fired: t.fired,
		},
	}
}

func (t *bocd) restore(img *testImage) string {
	s := img.BOCD
	switch {
	case s == nil || len(s.Weight) != len(t.runs.weight) || len(s.Sum) != len(t.runs.sum) || len(s.Ring) != len(t.ring),
		!allModest(s.Sum) || !allModest(s.Ring) || !allModest([]float64{s.Center, s.Level, s.Fault}):
		return "has no state of its method"
	case slices.ContainsFunc(s.Weight, func(w float64) bool { return !(w >= 0 && w <= 1+1e-9) }):
		return "a chance is out of range"
	case s.Gap < 0 || s.Gap > math.MaxInt32:
		return "samples since the last change are out of range"
	case !img.Standing && (img.Since != 0 || s.Fault != 0):
		return "there is no fault to have a level"
	}
	copy(t.runs.weight, s.Weight)
	copy(t.runs.sum, s.Sum)
	t.last, t.since, t.standing = img.Last, img.Since, img.Standing
	t.head = 0
	copy(t.ring, s.Ring)
	t.center, t.level, t.fault, t.gap, t.fired = s.Center, s.Level, s.Fault, s.Gap, s.Fired
	return t.base.restore(&img.Baseline)
}
