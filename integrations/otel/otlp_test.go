package otel_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// collector is what an OpenTelemetry collector is to its senders.
type collector struct {
	mu      sync.Mutex
	metrics []*metricspb.ExportMetricsServiceRequest
	traces  []*tracepb.ExportTraceServiceRequest
	broken  bool // it answers nothing but errors
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		http.Error(w, "out of order", http.StatusBadRequest)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	data, err := io.ReadAll(body)
	var answer proto.Message
	switch r.URL.Path {
	case "/v1/metrics":
		m := &metricspb.ExportMetricsServiceRequest{}
		if err == nil {
			err = proto.Unmarshal(data, m)
		}
		c.metrics, answer = append(c.metrics, m), &metricspb.ExportMetricsServiceResponse{}
	case "/v1/traces":
		m := &tracepb.ExportTraceServiceRequest{}
		if err == nil {
			err = proto.Unmarshal(data, m)
		}
		c.traces, answer = append(c.traces, m), &tracepb.ExportTraceServiceResponse{}
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// shipped are the providers of a host that sends to a collector.
func shipped(t *testing.T, url string) (*metric.MeterProvider, *sdktrace.TracerProvider) {
	t.Helper()
	ctx := t.Context()
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
	require.NoError(t, err)
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url+"/v1/traces"), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	require.NoError(t, err)
	return metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics, metric.WithInterval(time.Hour)))),
		sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
}

// A scheduler's measurements and decisions go over the wire as OTLP, and arrive.
func TestOverOTLP(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	meters, tracers := shipped(t, server.URL)
	r, err := otel.NewRecorder(otel.Config{MeterProvider: meters})
	require.NoError(t, err)
	tracer, err := otel.NewTracer(otel.TracerConfig{TracerProvider: tracers})
	require.NoError(t, err)
	tree := cluster(t, 2)
	m, err := meter.New(meter.Config{Tree: tree, Recorder: r})
	require.NoError(t, err)
	s := newScheduler(t, scheduler.Config{Tree: tree, StartAtOnce: true, Recorder: m.Tap()})

	ctx, api := tracers.Tracer("api").Start(t.Context(), "POST /jobs")
	for _, id := range []string{"a", "b", "c"} {
		e := lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf(id, 8)}
		m.Event(s, &e, tracer.Apply(ctx, s, e))
	}
	api.End()
	actions, err := tracer.Step(t.Context(), s, at(5))
	require.NoError(t, err)
	m.Step(s, at(5), time.Millisecond, actions)
	m.Sample(s, at(5))
	touch(r, otel.Metrics())
	tracer.Close(at(6))
	require.NoError(t, meters.Shutdown(context.Background()))
	require.NoError(t, tracers.Shutdown(context.Background()))

	c.mu.Lock()
	defer c.mu.Unlock()
	arrived := map[string]bool{}
	for _, request := range c.metrics {
		for _, resource := range request.GetResourceMetrics() {
			for _, scope := range resource.GetScopeMetrics() {
				for _, one := range scope.GetMetrics() {
					arrived[one.GetName()] = true
				}
			}
		}
	}
	for _, d := range otel.Metrics() {
		name, _ := otel.Instrument(otel.DefaultPrefix, d)
		require.True(t, arrived[name], name)
	}
	spans := map[string]int{}
	inRequest := 0
	for _, request := range c.traces {
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, one := range scope.GetSpans() {
					spans[one.GetName()]++
					id := api.SpanContext().TraceID()
					if string(one.GetTraceId()) == string(id[:]) {
						inRequest++
					}
				}
			}
		}
	}
	require.Equal(t, map[string]int{"POST /jobs": 1, otel.SpanEvent: 3, otel.SpanWait: 3, otel.SpanDecision: 1, otel.SpanAction: 2}, spans)
	require.Equal(t, 7, inRequest, "the request, three events, three waits")
}

// A collector that is out of order costs the scheduler nothing: it decides on.
func TestACollectorThatFailsHarmsNobody(t *testing.T) {
	c := &collector{broken: true}
	server := httptest.NewServer(c)
	defer server.Close()
	meters, tracers := shipped(t, server.URL)
	r, err := otel.NewRecorder(otel.Config{MeterProvider: meters})
	require.NoError(t, err)
	tracer, err := otel.NewTracer(otel.TracerConfig{TracerProvider: tracers})
	require.NoError(t, err)
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true, Recorder: r})
	require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 8)}))
	actions, err := tracer.Step(t.Context(), s, at(0))
	require.NoError(t, err)
	require.Len(t, actions, 1)
	require.Error(t, meters.Shutdown(context.Background()), "the provider says so, to whoever owns it")
	_ = tracers.Shutdown(context.Background())
}
