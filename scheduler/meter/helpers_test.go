package meter_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/topology"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// series is one series of a tally.
type series struct {
	metric lockstep.Metric
	labels lockstep.MetricLabels
}

// tally is a Recorder that keeps all that it is told.
type tally struct {
	counts  map[series]int64
	gauges  map[series]float64
	samples map[series][]float64
	log     []string // each measurement, in order
}

func newTally() *tally {
	return &tally{counts: map[series]int64{}, gauges: map[series]float64{}, samples: map[series][]float64{}}
}

func (r *tally) Count(m lockstep.Metric, l lockstep.MetricLabels, n int64) {
	if n <= 0 {
		m += " counted backwards" // which nobody described
	}
	r.counts[series{m, l}] += n
	r.log = append(r.log, fmt.Sprint(m, l, n))
}

func (r *tally) Gauge(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	r.gauges[series{m, l}] = v
	r.log = append(r.log, fmt.Sprint(m, l, v))
}

func (r *tally) Observe(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	r.samples[series{m, l}] = append(r.samples[series{m, l}], v)
	r.log = append(r.log, fmt.Sprint(m, l, v))
}

// total adds up a counter over the series that pick wants; nil wants all.
func (r *tally) total(m lockstep.Metric, pick func(l lockstep.MetricLabels) bool) int64 {
	sum := int64(0)
	for s, n := range r.counts { // a sum: the order cannot matter
		if s.metric == m && (pick == nil || pick(s.labels)) {
			sum += n
		}
	}
	return sum
}

// level adds up a gauge over all series.
func (r *tally) level(m lockstep.Metric) float64 {
	sum := 0.0
	for s, v := range r.gauges { // whole numbers: the order cannot matter
		if s.metric == m {
			sum += v
		}
	}
	return sum
}

// sampled returns all samples of a histogram, sorted.
func (r *tally) sampled(m lockstep.Metric) []float64 {
	var out []float64
	for s, v := range r.samples { // sorted below, so that the order cannot matter
		if s.metric == m {
			out = append(out, v...)
		}
	}
	slices.Sort(out)
	return out
}

// metrics returns the names of all that was recorded.
func (r *tally) metrics() map[lockstep.Metric]bool {
	out := make(map[lockstep.Metric]bool)
	for s := range r.counts { // into a set: the order cannot matter
		out[s.metric] = true
	}
	for s := range r.gauges { // the order cannot matter
		out[s.metric] = true
	}
	for s := range r.samples { // the order cannot matter
		out[s.metric] = true
	}
	return out
}

// metered is a scheduler behind a meter, as a host has them.
type metered struct {
	*scheduler.Scheduler
	m *meter.Meter
	n int // of steps; each hundredth takes a sample
}

func (s *metered) Apply(e lockstep.Event) error {
	err := s.Scheduler.Apply(e)
	s.m.Event(s.Scheduler, &e, err)
	return err
}

func (s *metered) Step(now time.Time) ([]lockstep.Action, error) {
	actions, err := s.Scheduler.Step(now)
	s.m.Step(s.Scheduler, now, time.Millisecond, actions)
	if s.n++; s.n%100 == 0 {
		s.m.Sample(s.Scheduler, now)
	}
	return actions, err
}

func cluster(t testing.TB, nodes int) *topology.Tree {
	t.Helper()
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{nodes}, Shape: shape})
	require.NoError(t, err)
	return tree
}

// world is a metered scheduler and what it recorded.
func world(t testing.TB, cfg scheduler.Config) (*metered, *tally) {
	t.Helper()
	rec := newTally()
	m, err := meter.New(meter.Config{Policy: "ltgf", Tree: cfg.Tree, Nodes: cfg.Nodes, Recorder: rec})
	require.NoError(t, err)
	cfg.Recorder = m.Tap()
	s, err := scheduler.New(cfg)
	require.NoError(t, err)
	return &metered{Scheduler: s, m: m}, rec
}

func gangOf(id string, gpus int) *lockstep.Gang {
	return &lockstep.Gang{
		ID: lockstep.JobID(id), Tenant: lockstep.TenantID(id[:1]), Queue: "q",
		Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}},
		Capabilities: lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second},
	}
}

func submit(t testing.TB, s *metered, now time.Time, gangs ...*lockstep.Gang) {
	t.Helper()
	for _, g := range gangs {
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g}))
	}
}

func step(t testing.TB, s *metered, now time.Time) []lockstep.Action {
	t.Helper()
	actions, err := s.Step(now)
	require.NoError(t, err)
	return actions
}

// described fails for each measurement that the table does not describe: another
// kind, or a field that its descriptor does not have.
func described(t testing.TB, rec *tally, table []lockstep.MetricDescriptor) {
	t.Helper()
	by := make(map[lockstep.Metric]lockstep.MetricDescriptor)
	for _, d := range table {
		by[d.Name] = d
	}
	check := func(s series, kind lockstep.MetricKind) {
		d, ok := by[s.metric]
		require.True(t, ok, "%s is not described", s.metric)
		require.Equal(t, d.Kind, kind, s.metric)
		require.Equal(t, d.Keep(s.labels), s.labels, "%s has labels that its descriptor lacks", s.metric)
	}
	for s := range rec.counts { // each by itself: the order cannot matter
		check(s, lockstep.MetricCounter)
	}
	for s := range rec.gauges { // the order cannot matter
		check(s, lockstep.MetricGauge)
		require.False(t, math.IsNaN(rec.gauges[s]), s.metric)
	}
	for s := range rec.samples { // the order cannot matter
		check(s, lockstep.MetricHistogram)
	}
}

// lines joins what was recorded.
func lines(rec *tally) string { return strings.Join(rec.log, "\n") }
