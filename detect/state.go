package detect

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	monitorFormat = "lockstep/detect"
	version       = 1
)

// monitorImage is the saved form of a Monitor. What follows from the configuration, and
// scratch memory, is not in it.
type monitorImage struct {
	Config   Config            `json:"config"`
	Rates    *Rates            `json:"rates,omitempty"` // fitted
	Samples  [3][][]fit.Sample `json:"samples"`         // gathered for a fit
	Measured int               `json:"measured,omitempty"`
	Waited   int               `json:"waited,omitempty"`
	Failed   bool              `json:"failed,omitempty"`
	Trackers [3][]string       `json:"trackers"` // as each Tracker saved itself
	Whole    string            `json:"whole"`    // as the test saved itself
	Chunks   *chunksImage      `json:"chunks,omitempty"`
	Matched  *matchedImage     `json:"matched,omitempty"`
	Paused   bool              `json:"paused,omitempty"`
	Started  bool              `json:"started,omitempty"`
	Last     uint64            `json:"last,omitempty"`
	Layout   uint64            `json:"layout,omitempty"`
	Micros   []int             `json:"micros,omitempty"`
	Numbers  []uint64          `json:"numbers,omitempty"` // oldest first
	Judged   uint64            `json:"judged,omitempty"`
	Standing [3]bool           `json:"standing"`
	Unheard  [3]int            `json:"unheard"`
	Score    float64           `json:"score,omitempty"`
	Onset    uint64            `json:"onset,omitempty"`
	Cleared  int               `json:"cleared,omitempty"`
	Resized  bool              `json:"resized,omitempty"`
	Suspects []Suspect         `json:"suspects,omitempty"`
	Probes   []Probe           `json:"probes,omitempty"`
	Work     workImage         `json:"work"`
}

// workImage is the saved form of a workload.
type workImage struct {
	Learning bool    `json:"learning,omitempty"`
	N        int     `json:"n,omitempty"`
	Known    int     `json:"known,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Pairs    float64 `json:"pairs,omitempty"`
	Expected float64 `json:"expected,omitempty"`
	Spikes   int     `json:"spikes,omitempty"`
	Pause    bool    `json:"pause,omitempty"`
	Last     float64 `json:"last,omitempty"`
	LastNow  float64 `json:"lastNow,omitempty"`
	LastWide float64 `json:"lastWide,omitempty"`
	LastBase float64 `json:"lastBase,omitempty"`
	LastN    int     `json:"lastN,omitempty"`
}

// Snapshot writes configuration and state for Restore.
func (m *Monitor) Snapshot(w io.Writer) error {
	img, err := m.image()
	if err != nil {
		return err
	}
	return snapshot.WriteJSON(w, "detect: snapshot", monitorFormat, version, img)
}

// Restore reads what Snapshot of a Monitor wrote, configuration included. The Monitor goes
// on as the one that was saved. ErrInvalid for bytes that are cut short, changed, of
// another version or of no possible Monitor.
func Restore(r io.Reader) (*Monitor, error) {
	const op = "detect: restore"
	var img monitorImage
	body, err := snapshot.ReadJSON(r, op, monitorFormat, version, &img)
	if err != nil {
		return nil, err
	}
	m, err := monitorOf(&img)
	if err != nil {
		return nil, err
	}
	again, err := m.image()
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, again); err != nil {
		return nil, err
	}
	return m, nil
}

// saved returns what t saves of itself.
func saved(t interface{ Snapshot(w io.Writer) error }) (string, error) {
	var b strings.Builder
	err := t.Snapshot(&b)
	return b.String(), err
}

// modest says that x is a number no larger than any that a test works with.
func modest(x float64) bool { return math.Abs(x) <= 1e15 }

func allModest(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !modest(x) })
}

func (m *Monitor) image() (*monitorImage, error) {
	w := &m.work
	img := &monitorImage{
		Config: m.cfg, Measured: m.fit.measured, Waited: m.fit.waited, Failed: m.fit.failed, Samples: m.fit.gather.samples,
		Paused: m.paused, Started: m.started, Last: m.last, Layout: m.layout, Micros: m.micros,
		Judged: m.judged, Standing: m.standing, Unheard: m.unheard, Score: m.score, Onset: m.onset, Cleared: m.cleared,
		Resized: m.resized, Suspects: m.suspects, Probes: m.probes,
		Work: workImage{w.learning, w.n, w.known, w.tokens, w.pairs, w.expected, w.spikes, w.pause, w.last, w.lastNow, w.lastWide, w.lastBase, w.lastN},
	}
	if m.model != nil {
		img.Chunks, img.Matched = m.chunks.image(), m.matched.image()
		if m.fitted && m.cfg.Rates.Forward == nil {
			img.Rates = &m.model.rates
		}
	}
	for k, ts := range m.fit.trackers {
		for _, t := range ts {
			s, err := saved(t)
			if err != nil {
				return nil, err
			}
			img.Trackers[k] = append(img.Trackers[k], s)
		}
	}
	for i := m.judged - min(m.judged, onsets); i < m.judged; i++ {
		img.Numbers = append(img.Numbers, m.numbers[i%onsets])
	}
	var err error
	img.Whole, err = saved(m.whole)
	return img, err
}

// monitorOf returns the Monitor that img is of.
func monitorOf(img *monitorImage) (*Monitor, error) {
	// Places are checked first, so that a short snapshot cannot ask for much memory.
	if c := &img.Config; c.model() {
		stages := max(int64(c.Pipeline.Stages), int64(len(c.Pipeline.Orders)), 1)
		if img.Chunks == nil || int64(max(c.Replicas, 1)) != int64(len(img.Chunks.Places))/stages {
			return nil, invalid("restore", "chunks", "", "do not suit the configuration")
		}
	}
	m, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	if reason := m.take(img); reason != "" {
		return nil, invalid("restore", "state", "", reason)
	}
	if reason := m.takeWork(img); reason != "" {
		return nil, invalid("restore", "work", "", reason)
	}
	if err := m.takeModel(img); err != nil {
		return nil, err
	}
	return m, nil
}

// checkNumbers says what is impossible about the numbers and the micro-batches of an image.
func (m *Monitor) checkNumbers(img *monitorImage) string {
	switch {
	case uint64(len(img.Numbers)) != min(img.Judged, onsets):
		return "numbers do not add up"
	case !slices.IsSorted(img.Numbers) || len(img.Numbers) > 0 && img.Numbers[len(img.Numbers)-1] > img.Last:
		return "numbers are out of order"
	case len(img.Micros) > mostPlaces || m.model != nil && img.Micros != nil && len(img.Micros) != m.cfg.Replicas:
		return "has another number of replicas"
	case slices.ContainsFunc(img.Micros, func(n int) bool { return n < 0 || n > mostPlaces }):
		return "micro-batches out of range"
	}
	return ""
}

// checkAlarms says what is impossible about the alarms of an image.
func (m *Monitor) checkAlarms(img *monitorImage) string {
	none := img.Standing == [3]bool{}
	switch {
	case !(img.Score >= 0 && img.Score <= 1e15) || img.Cleared < 0 || img.Cleared > recovering:
		return "score out of range"
	case slices.ContainsFunc(img.Unheard[:], func(n int) bool { return n < 0 || n > unheard }):
		return "test was never asked"
	case m.model == nil && (img.Standing[byChunks] || img.Standing[byMatched]):
		return "there is no such test"
	case none && img.Onset != 0 || !none && img.Judged == 0:
		return "onset does not suit"
	case len(img.Suspects) > most || len(img.Probes) > 8*most:
		return "too many suspects"
	}
	return ""
}

// take takes over what a Monitor keeps by itself, or says what is impossible about it.
func (m *Monitor) take(img *monitorImage) string {
	if reason := m.checkNumbers(img); reason != "" {
		return reason
	}
	if reason := m.checkAlarms(img); reason != "" {
		return reason
	}
	m.paused, m.started, m.last, m.layout, m.micros = img.Paused, img.Started, img.Last, img.Layout, img.Micros
	m.judged, m.standing, m.unheard, m.score = img.Judged, img.Standing, img.Unheard, img.Score
	m.onset, m.cleared, m.resized = img.Onset, img.Cleared, img.Resized
	m.suspects, m.probes = img.Suspects, img.Probes
	for i, n := range img.Numbers {
		m.numbers[(m.judged-uint64(len(img.Numbers)-i))%onsets] = n
	}
	return ""
}

func (m *Monitor) takeWork(img *monitorImage) string {
	w := &img.Work
	switch {
	case w.N < 0 || w.N > workMemory || w.Known < 0 || w.Known > workMemory || w.Spikes < 0 || w.Spikes > math.MaxInt32 || w.LastN < 0 || w.LastN > math.MaxInt32:
		return "counts out of range"
	case !(w.Tokens >= 0 && w.Tokens <= maxTokens) || !(w.Pairs >= 0 && w.Pairs <= maxPairs):
		return "batch out of range"
	case !allModest([]float64{w.Expected, w.Last, w.LastNow, w.LastWide, w.LastBase}):
		return "means out of range"
	}
	m.work = workload{w.Learning, w.N, w.Known, w.Tokens, w.Pairs, w.Expected, w.Spikes, w.Pause, w.Last, w.LastNow, w.LastWide, w.LastBase, w.LastN}
	return ""
}

// takeModel takes over the tests and what was learned of the rates.
func (m *Monitor) takeModel(img *monitorImage) error {
	whole, err := change.Restore(strings.NewReader(img.Whole))
	if err != nil {
		return err
	}
	if whole.Config() != m.cfg.Whole {
		return invalid("restore", "whole", "", "is not the test of the configuration")
	}
	m.whole = whole
	if (img.Chunks != nil) != (m.model != nil) || (img.Matched != nil) != (m.model != nil) {
		return invalid("restore", "chunks", "", "do not suit the configuration")
	}
	if m.model == nil {
		return nil
	}
	if err := m.takeTests(img); err != nil {
		return err
	}
	return m.takeFit(img)
}

// takeTests takes over the tests that there are with a model.
func (m *Monitor) takeTests(img *monitorImage) error {
	chunks, err := chunksOf(img.Chunks)
	if err != nil {
		return err
	}
	matched, err := matchedOf(img.Matched)
	if err != nil {
		return err
	}
	want, got := m.matched.cfg, matched.cfg
	factors := slices.Equal(want.Factors, got.Factors)
	want.Factors, got.Factors = nil, nil
	if chunks.cfg != m.chunks.cfg || !factors || !reflect.DeepEqual(want, got) {
		return invalid("restore", "chunks", "", "are not the tests of the configuration")
	}
	m.chunks, m.matched = chunks, matched
	return nil
}

func (m *Monitor) takeFit(img *monitorImage) error {
	most := patience * m.cfg.FitAfter
	if img.Measured < 0 || img.Measured > most || img.Waited < img.Measured || img.Waited > most {
		return invalid("restore", "measured", "", "iterations do not add up")
	}
	m.fit = fitting{measured: img.Measured, waited: img.Waited, failed: img.Failed}
	if img.Rates != nil {
		if m.fitted {
			return invalid("restore", "rates", "", "were given, not fitted")
		}
		if err := m.model.SetRates(*img.Rates); err != nil {
			return err
		}
		m.fitted = true
	}
	g := gatherer{stages: m.model.shape.Stages, parts: m.model.parts, classes: m.cfg.Fit.Classes, samples: img.Samples}
	if err := g.checkAll(); err != nil {
		return err
	}
	if img.Samples[0] != nil {
		m.fit.gather = g
	}
	return m.takeTrackers(img)
}

// checkAll reports gathered samples that cannot be.
func (g *gatherer) checkAll() error {
	for k := range g.samples {
		if g.samples[k] != nil && len(g.samples[k]) != g.stages*g.parts || (g.samples[k] == nil) != (g.samples[0] == nil) {
			return invalid("restore", "samples", "", "are of another pipeline")
		}
		for _, samples := range g.samples[k] {
			for i := range samples {
				if err := samples[i].Validate(); err != nil {
					return fmt.Errorf("%s: %w", at("samples", i), err)
				}
				g.split = g.split || k == 2
			}
		}
	}
	return nil
}

func (m *Monitor) takeTrackers(img *monitorImage) error {
	for k, ts := range img.Trackers {
		if len(ts) > 0 && (img.Rates == nil || len(ts) != len(img.Rates.Forward)) || (len(ts) > 0) != (len(img.Trackers[0]) > 0 && (k < 2 || img.Rates.Weight != nil)) {
			return invalid("restore", "trackers", "", "are not one for each fit")
		}
		for i, ti := range ts {
			t, err := fit.RestoreTracker(strings.NewReader(ti))
			if err != nil {
				return fmt.Errorf("%s: %w", at("trackers", i), err)
			}
			m.fit.trackers[k] = append(m.fit.trackers[k], t)
		}
	}
	return nil
}
