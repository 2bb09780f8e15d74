package meter_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/topology"
)

// printer is a Recorder that prints. An adapter for a monitoring system is one too.
type printer struct{}

func (printer) Count(m lockstep.Metric, l lockstep.MetricLabels, n int64) {
	fmt.Println("count", m, l.Queue+lockstep.QueueID(l.Tenant), l.Result+l.Kind+string(l.Reason), n)
}

func (printer) Gauge(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	fmt.Println("gauge", m, l.Queue, l.State+string(l.Reason)+string(l.Class), v)
}

func (printer) Observe(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	fmt.Println("sample", m, l.Queue, v)
}

func Example() {
	shape, _ := topology.UniformShape(8, topology.NVLink(18))
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: shape})
	m, err := meter.New(meter.Config{Policy: "ltgf", Tree: tree, Recorder: printer{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Config.Recorder would be m.Tap(), for what gang admission records as well.
	s, _ := scheduler.New(scheduler.Config{Tree: tree, StartAtOnce: true})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: &lockstep.Gang{
		ID: "job", Tenant: "vision", Queue: "prod", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 6}}},
	}}
	err = s.Apply(e)
	m.Event(s, &e, err)
	now = now.Add(30 * time.Second)
	actions, _ := s.Step(now)
	m.Step(s, now, 250*time.Microsecond, actions)
	m.Sample(s, now)
	// Output:
	// sample decision_duration_seconds  0.00025
	// sample admission_wait_seconds prod 30
	// sample start_latency_seconds prod 0
	// sample job_state_duration_seconds prod 30
	// count decisions_total  placedltgf 1
	// gauge jobs prod running 1
	// gauge capacity_gpus   8
	// gauge allocated_gpus   6
	// gauge reserved_gpus   0
	// gauge quarantined_gpus   0
}
