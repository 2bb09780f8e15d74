package prometheus_test

import (
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func cluster(t testing.TB, nodes int) *topology.Tree {
	t.Helper()
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{nodes}, Shape: shape})
	require.NoError(t, err)
	return tree
}

func recorder(t testing.TB, cfg prometheus.Config) (*prometheus.Recorder, *client.Registry) {
	t.Helper()
	reg := client.NewPedanticRegistry()
	cfg.Registerer = reg
	r, err := prometheus.New(cfg)
	require.NoError(t, err)
	return r, reg
}

// metered is a scheduler behind a meter, as a host has them.
type metered struct {
	*scheduler.Scheduler
	m *meter.Meter
	n int
}

// host returns a scheduler whose measurements rec takes; nil is none.
func host(t testing.TB, cfg scheduler.Config, rec lockstep.Recorder) *metered {
	t.Helper()
	m, err := meter.New(meter.Config{Policy: "ltgf", Tree: cfg.Tree, Recorder: rec})
	require.NoError(t, err)
	cfg.Recorder = m.Tap()
	s, err := scheduler.New(cfg)
	require.NoError(t, err)
	return &metered{Scheduler: s, m: m}
}

func (h *metered) Apply(e lockstep.Event) error {
	err := h.Scheduler.Apply(e)
	h.m.Event(h.Scheduler, &e, err)
	return err
}

func (h *metered) Step(now time.Time) ([]lockstep.Action, error) {
	actions, err := h.Scheduler.Step(now)
	h.m.Step(h.Scheduler, now, 50*time.Microsecond, actions)
	if h.n++; h.n%50 == 0 {
		h.m.Sample(h.Scheduler, now)
	}
	return actions, err
}

// simulate has h schedule a synthetic trace over a span of time.
func simulate(t testing.TB, h *metered, tree *topology.Tree, span time.Duration) *sim.Result {
	t.Helper()
	tr, err := trace.Synthetic(trace.SyntheticConfig{Seed: 5, GPUs: 64, Span: span, Load: 1500, Tenants: 4})
	require.NoError(t, err)
	jobs := make([]sim.Job, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		g := j.Gang(8)
		g.Queue = "batch"
		g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second, Restore: 20 * time.Second}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	result, err := sim.Run(sim.Config{Tree: tree, Start: epoch}, jobs, h)
	require.NoError(t, err)
	now := epoch.Add(1000 * time.Hour)
	h.m.Sample(h.Scheduler, now)
	accounts, err := h.Statements(nil, now)
	require.NoError(t, err)
	h.m.Tenants(64*lockstep.WholeGPU, accounts)
	return result
}

// families are what a registry shows, by name.
func families(t testing.TB, reg client.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	out := make(map[string]*dto.MetricFamily, len(all))
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// sum adds up the values of a counter, or the samples of a histogram, over all
// series with a label; an empty label is all.
func sum(f *dto.MetricFamily, label, value string) float64 {
	total := 0.0
	for _, m := range f.GetMetric() {
		match := label == ""
		for _, l := range m.GetLabel() {
			match = match || l.GetName() == label && l.GetValue() == value
		}
		if match {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// touch records something of every metric.
func touch(r lockstep.Recorder, metrics []lockstep.MetricDescriptor) {
	for i := range metrics {
		var l lockstep.MetricLabels
		for _, label := range metrics[i].Labels {
			l.SetValue(label.Field, "some")
		}
		switch metrics[i].Kind {
		case lockstep.MetricCounter:
			r.Count(metrics[i].Name, l, 1)
		case lockstep.MetricGauge:
			r.Gauge(metrics[i].Name, l, 1)
		case lockstep.MetricHistogram:
			r.Observe(metrics[i].Name, l, 1)
		}
	}
}
