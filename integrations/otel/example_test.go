package otel_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/topology"
)

// A job waits for room; its span tells why, until it starts.
func Example() {
	spans := tracetest.NewInMemoryExporter() // a program has an exporter for OTLP here
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tracer, err := otel.NewTracer(otel.TracerConfig{TracerProvider: tracers})
	if err != nil {
		fmt.Println(err)
		return
	}
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	s, _ := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true})

	ctx, now := context.Background(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, id := range []lockstep.JobID{"first", "second"} {
		request, span := tracers.Tracer("api").Start(ctx, "POST /jobs")
		g := &lockstep.Gang{ID: id, Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 6}}}}
		otel.Carry(request, g)
		_ = tracer.Apply(request, s, lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g})
		span.End()
	}
	_, _ = tracer.Step(ctx, s, now)
	now = now.Add(time.Hour)
	_ = tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: "first"})
	_, _ = tracer.Step(ctx, s, now)
	for _, span := range spans.GetSpans() {
		if span.Name == otel.SpanWait {
			fmt.Println(attr(span.Attributes, "lockstep.job"), "waited", span.EndTime.Sub(span.StartTime))
			for _, e := range span.Events {
				fmt.Println(" ", e.Time.Format(time.TimeOnly), e.Name, "for", attr(e.Attributes, "lockstep.reason")+".")
			}
		}
	}
	// Output:
	// first waited 0s
	//   00:00:00 started for .
	// second waited 1h0m0s
	//   00:00:00 deferred for busy.
	//   01:00:00 started for .
}

func ExampleRecorder() {
	reader := metric.NewManualReader() // a program has a reader that exports OTLP here
	recorder, err := otel.NewRecorder(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: "prod"}, 12)
	recorder.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term"}, 1)
	var all metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Unit)
	}
	// Unordered output:
	// gpusched.admission_wait s
	// gpusched.preemptions {preemption}
}
