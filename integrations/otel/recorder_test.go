package otel_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

func TestEachKindOfMeasurement(t *testing.T) {
	r, reader := recorder(t, otel.Config{Prefix: "my."})
	r.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term", Tenant: "is not among its labels"}, 2)
	r.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term"}, 3)
	r.Gauge(meter.LoanedGPUs, lockstep.MetricLabels{Tenant: "research"}, 4)
	r.Gauge(meter.LoanedGPUs, lockstep.MetricLabels{Tenant: "research"}, 3)
	r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: "prod"}, 20)
	all := read(t, reader)
	require.Equal(t, 5.0, value(t, all["my.preemptions"], "reason", "term"))
	require.Equal(t, 3.0, value(t, all["my.loaned_gpus"], "lender", "research"))
	require.Equal(t, "{gpu}", all["my.loaned_gpus"].Unit)
	wait := all["my.admission_wait"]
	require.Equal(t, "s", wait.Unit)
	require.NotEmpty(t, wait.Description)
	h := wait.Data.(metricdata.Histogram[float64]).DataPoints[0]
	require.Equal(t, 20.0, h.Sum)
	for _, d := range meter.Metrics() {
		if d.Name == meter.AdmissionWait {
			require.Equal(t, d.Buckets, h.Bounds)
		}
	}
}

// Names are OpenTelemetry's, each is one metric's, and its own exporter to
// Prometheus makes of them what integrations/prometheus calls them.
func TestNamesAreThoseOfPrometheusOnceTranslated(t *testing.T) {
	form := regexp.MustCompile(`^gpusched\.[a-z0-9_]+$`)
	seen := map[string]lockstep.Metric{}
	for _, d := range otel.Metrics() {
		name, unit := otel.Instrument(otel.DefaultPrefix, d)
		require.Regexp(t, form, name)
		require.NotEmpty(t, unit)
		require.NotContains(t, name, "_total")
		require.NotContains(t, name, "_seconds_")
		require.Empty(t, seen[name], name)
		seen[name] = d.Name
	}
	registry := prom.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	require.NoError(t, err)
	r, err := otel.NewRecorder(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))})
	require.NoError(t, err)
	touch(r, otel.Metrics())
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]bool{}
	for _, f := range families {
		got[f.GetName()] = true
	}
	for _, d := range otel.Metrics() {
		require.True(t, got["gpusched_"+string(d.Name)], "%s is lost in translation: %v", d.Name, got)
	}
	require.Len(t, got, len(otel.Metrics()))
}

func TestWhatDoesNotFitIsDropped(t *testing.T) {
	r, reader := recorder(t, otel.Config{})
	none := lockstep.MetricLabels{}
	dropped := []func(){
		func() { r.Count("nobody_knows_total", none, 1) },
		func() { r.Gauge("nobody_knows", none, 1) },
		func() { r.Observe("nobody_knows", none, 1) },
		func() { r.Count(meter.Jobs, none, 1) },
		func() { r.Gauge(meter.AdmissionWait, none, 1) },
		func() { r.Observe(meter.Preemptions, none, 1) },
		func() { r.Count(meter.Preemptions, none, -1) },
		func() { r.Gauge(meter.Jobs, none, math.NaN()) },
		func() { r.Observe(meter.AdmissionWait, none, math.Inf(-1)) },
	}
	for _, f := range dropped {
		f()
	}
	all := read(t, reader)
	require.Equal(t, float64(len(dropped)), value(t, all["gpusched.metrics_dropped"], "", ""))
	require.NotContains(t, all, "gpusched.jobs")

	bare, reader := recorder(t, otel.Config{Metrics: []lockstep.MetricDescriptor{{Name: "a", Kind: lockstep.MetricGauge, Help: "A"}}})
	bare.Count("b_total", none, 1)
	require.Empty(t, read(t, reader))
}

func TestAttributesAreCleanAndFew(t *testing.T) {
	r, reader := recorder(t, otel.Config{Values: 5})
	for range 3 {
		for _, q := range []lockstep.QueueID{"a\xff", lockstep.QueueID(strings.Repeat("é", 200)), "{}\"\n", "", "x"} {
			r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: q}, 1)
		}
	}
	for i := range 1000 {
		r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: lockstep.QueueID(strconv.Itoa(i))}, 1)
	}
	all := read(t, reader)
	m := all["gpusched.admission_wait"]
	require.Len(t, m.Data.(metricdata.Histogram[float64]).DataPoints, 6)
	require.Equal(t, 1000.0, value(t, m, "queue", meter.Other))
	require.Equal(t, 1015.0, value(t, m, "", ""))
	require.Equal(t, 1000.0, value(t, all["gpusched.metrics_folded"], "metric", string(meter.AdmissionWait)))
}

// What is recorded of a scheduler's work arrives, and all of it is described.
func TestAMeterRecordsHere(t *testing.T) {
	r, reader := recorder(t, otel.Config{})
	tree := cluster(t, 2)
	m, err := meter.New(meter.Config{Policy: "ltgf", Tree: tree, Recorder: r})
	require.NoError(t, err)
	s := newScheduler(t, scheduler.Config{Tree: tree, StartAtOnce: true, Recorder: m.Tap()})
	for i := range 6 {
		e := lockstep.Event{Kind: lockstep.EventSubmit, Time: at(i), Gang: gangOf("a"+strconv.Itoa(i), 4)}
		m.Event(s, &e, s.Apply(e))
	}
	actions, err := s.Step(at(10))
	require.NoError(t, err)
	m.Step(s, at(10), time.Millisecond, actions)
	m.Sample(s, at(10))
	all := read(t, reader)
	require.Equal(t, 4.0, value(t, all["gpusched.jobs"], "state", "running"))
	require.Equal(t, 2.0, value(t, all["gpusched.jobs"], "state", "queued"))
	require.Equal(t, 16.0, value(t, all["gpusched.allocated_gpus"], "", ""))
	require.Equal(t, 4.0, value(t, all["gpusched.decisions"], "result", "placed"))
	require.Equal(t, 4.0, value(t, all["gpusched.gang_actions"], "action", "start"))
	require.NotContains(t, all, "gpusched.metrics_dropped")
}

func TestConcurrentUse(t *testing.T) {
	r, reader := recorder(t, otel.Config{Values: 8})
	const writers, each = 8, 300
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				l := lockstep.MetricLabels{Queue: lockstep.QueueID(strconv.Itoa((i + w) % 20)), Reason: "term", State: "queued"}
				r.Count(meter.Preemptions, l, 1)
				r.Observe(meter.AdmissionWait, l, 1)
				r.Gauge(meter.Jobs, l, float64(i))
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	all := read(t, reader)
	require.Equal(t, float64(writers*each), value(t, all["gpusched.preemptions"], "", ""))
	require.Equal(t, float64(writers*each), value(t, all["gpusched.admission_wait"], "", ""))
}

// Our part of the hot path allocates nothing: what the SDK does beyond is the SDK's.
func TestKnownSeriesAllocateNothing(t *testing.T) {
	known := lockstep.MetricLabels{Queue: "prod", State: "running", Reason: "term"}
	more := known
	more.Queue = "one too many"
	allocs := func(r *otel.Recorder) float64 {
		for _, q := range []lockstep.QueueID{"prod", "batch"} {
			l := known
			l.Queue = q
			r.Observe(meter.AdmissionWait, l, 1)
			r.Gauge(meter.Jobs, l, 1)
		}
		record := func() {
			r.Count(meter.Preemptions, known, 1)
			r.Gauge(meter.Jobs, known, 1)
			r.Observe(meter.AdmissionWait, known, 1)
			r.Observe(meter.AdmissionWait, more, 1)
		}
		record()
		return testing.AllocsPerRun(200, record)
	}
	silent, err := otel.NewRecorder(otel.Config{MeterProvider: noop.NewMeterProvider(), Values: 2})
	require.NoError(t, err)
	require.Zero(t, allocs(silent))
	r, _ := recorder(t, otel.Config{Values: 2})
	t.Logf("allocations of five measurements in the SDK: %v", allocs(r))
}

func TestConfigIsValidated(t *testing.T) {
	for name, cfg := range map[string]otel.Config{ // each by itself: the order cannot matter
		"provider": {},
		"prefix":   {Prefix: "GPU", MeterProvider: noop.NewMeterProvider()},
		"no end":   {Prefix: "gpu", MeterProvider: noop.NewMeterProvider()},
		"values":   {Values: -1, MeterProvider: noop.NewMeterProvider()},
		"metric":   {Metrics: []lockstep.MetricDescriptor{{}}, MeterProvider: noop.NewMeterProvider()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := otel.NewRecorder(cfg)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		})
	}
	five := lockstep.MetricDescriptor{Name: "a", Kind: lockstep.MetricGauge, Help: "A", Labels: []lockstep.MetricLabel{
		{Field: lockstep.FieldQueue}, {Field: lockstep.FieldKind}, {Field: lockstep.FieldState}, {Field: lockstep.FieldResult}, {Field: lockstep.FieldTenant},
	}}
	_, err := otel.NewRecorder(otel.Config{Metrics: []lockstep.MetricDescriptor{five}, MeterProvider: noop.NewMeterProvider()})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	long := lockstep.MetricDescriptor{Name: lockstep.Metric(strings.Repeat("a", 300)), Kind: lockstep.MetricGauge, Help: "Too long for an instrument"}
	_, err = otel.NewRecorder(otel.Config{Metrics: []lockstep.MetricDescriptor{long}, MeterProvider: metric.NewMeterProvider()})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "what the provider refuses")
}

func BenchmarkRecord(b *testing.B) {
	l := lockstep.MetricLabels{Queue: "batch", State: "running", Reason: "term"}
	sdk, _ := recorder(b, otel.Config{})
	silent, err := otel.NewRecorder(otel.Config{MeterProvider: noop.NewMeterProvider()})
	require.NoError(b, err)
	for _, p := range []struct {
		name string
		r    *otel.Recorder
	}{{"noop", silent}, {"sdk", sdk}} {
		for _, c := range []struct {
			name   string
			record func()
		}{
			{"counter", func() { p.r.Count(meter.Preemptions, l, 1) }},
			{"gauge", func() { p.r.Gauge(meter.Jobs, l, 1) }},
			{"histogram", func() { p.r.Observe(meter.AdmissionWait, l, 1) }},
		} {
			b.Run(p.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.record()
				}
			})
		}
	}
}
