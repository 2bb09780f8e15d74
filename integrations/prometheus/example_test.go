package prometheus_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/topology"
)

// A scheduler whose measurements are scraped.
func Example() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	registry := client.NewRegistry()
	recorder, err := prometheus.New(prometheus.Config{Registerer: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, _ := meter.New(meter.Config{Policy: "ltgf", Tree: tree, Recorder: recorder})
	s, _ := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true, Recorder: m.Tap()})

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, id := range []lockstep.JobID{"a", "b"} {
		e := lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: &lockstep.Gang{
			ID: id, Tenant: "vision", Queue: "prod", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 6}}},
		}}
		m.Event(s, &e, s.Apply(e))
	}
	actions, _ := s.Step(now) // a driver measures how long this takes
	m.Step(s, now, 80*time.Microsecond, actions)
	m.Sample(s, now)

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	page, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "gpusched_jobs{") || strings.HasPrefix(line, "gpusched_pending") || strings.HasPrefix(line, "gpusched_decisions") || strings.HasPrefix(line, "gpusched_allocated") {
			fmt.Print(line)
		}
	}
	// Output:
	// gpusched_allocated_gpus{gpu_type=""} 6
	// gpusched_decisions_total{policy="ltgf",result="deferred"} 1
	// gpusched_decisions_total{policy="ltgf",result="placed"} 1
	// gpusched_jobs{queue="prod",state="queued"} 1
	// gpusched_jobs{queue="prod",state="running"} 1
	// gpusched_pending_reason_jobs{queue="prod",reason="busy"} 1
}

// What the host measures itself goes the same way.
func ExampleRecorder() {
	registry := client.NewRegistry()
	mine := lockstep.MetricDescriptor{
		Name: "preflight_failures_total", Kind: lockstep.MetricCounter, Help: "Preflights that failed",
		Labels: []lockstep.MetricLabel{{Field: lockstep.FieldReason, Name: "check"}},
	}
	recorder, err := prometheus.New(prometheus.Config{Registerer: registry, Metrics: append(prometheus.Metrics(), mine)})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder.Count(mine.Name, lockstep.MetricLabels{Reason: "nccl"}, 1)
	recorder.Gauge(meter.Fragmentation, lockstep.MetricLabels{Class: "h100", Kind: "8x1"}, 0.25)
	families, _ := registry.Gather()
	for _, f := range families {
		if strings.Contains(f.GetName(), "preflight") || strings.Contains(f.GetName(), "fragmentation") {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue()+f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// gpusched_fragmentation_ratio 0.25
	// gpusched_preflight_failures_total 1
}

func ExampleDashboard() {
	data, err := prometheus.Dashboard("mycluster_")
	var board struct{ Title string }
	fmt.Println(json.Unmarshal(data, &board), err)
	fmt.Println(board.Title, strings.Contains(string(data), "mycluster_admission_wait_seconds_bucket"))
	// Output:
	// <nil> <nil>
	// Lockstep: GPU scheduling true
}
