package otel_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func cluster(t testing.TB, nodes int) *topology.Tree {
	t.Helper()
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{nodes}, Shape: shape})
	require.NoError(t, err)
	return tree
}

func newScheduler(t testing.TB, cfg scheduler.Config) *scheduler.Scheduler {
	t.Helper()
	s, err := scheduler.New(cfg)
	require.NoError(t, err)
	return s
}

func gangOf(id string, gpus int) *lockstep.Gang {
	return &lockstep.Gang{
		ID: lockstep.JobID(id), Tenant: lockstep.TenantID("team-" + id[:1]), Queue: "q",
		Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}},
		Capabilities: lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second},
	}
}

// recorder is a Recorder and a reader of what it recorded.
func recorder(t testing.TB, cfg otel.Config) (*otel.Recorder, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	cfg.MeterProvider = provider
	r, err := otel.NewRecorder(cfg)
	require.NoError(t, err)
	return r, reader
}

// read collects what was recorded, by name.
func read(t testing.TB, reader *metric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	out := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, otel.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			out[m.Name] = m
		}
	}
	return out
}

// value adds up a metric over the series with an attribute; key "" is all.
func value(t testing.TB, m metricdata.Metrics, key, want string) float64 {
	t.Helper()
	match := func(set attribute.Set) bool {
		v, ok := set.Value(attribute.Key(key))
		return key == "" || ok && v.AsString() == want
	}
	total := 0.0
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		require.True(t, data.IsMonotonic)
		for _, p := range data.DataPoints {
			if match(p.Attributes) {
				total += float64(p.Value)
			}
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			if match(p.Attributes) {
				total += p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			if match(p.Attributes) {
				total += float64(p.Count)
			}
		}
	default:
		t.Fatalf("%s is a %T", m.Name, m.Data)
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

// ticker is a Clock that goes on by a millisecond each time it is read.
type ticker struct {
	mu  sync.Mutex
	now time.Time
}

func (c *ticker) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

// traced is a Tracer and what it has ended.
func traced(t testing.TB, cfg otel.TracerConfig) (*otel.Tracer, *tracetest.InMemoryExporter, *sdktrace.TracerProvider) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	cfg.TracerProvider = provider
	tracer, err := otel.NewTracer(cfg)
	require.NoError(t, err)
	return tracer, exporter, provider
}

// named are the spans of a name, in the order in which they ended.
func named(exporter *tracetest.InMemoryExporter, name string) (out []tracetest.SpanStub) {
	for _, s := range exporter.GetSpans() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// attr returns an attribute as text, "" where there is none.
func attr(set []attribute.KeyValue, key string) string {
	for _, kv := range set {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}
