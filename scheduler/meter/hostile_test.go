package meter_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// TestMeterBesideAnOldScheduler puts a new Meter beside a scheduler that came back
// from a snapshot: nobody tells it again which nodes are closed.
func TestMeterBesideAnOldScheduler(t *testing.T) {
	cfg := scheduler.Config{Tree: cluster(t, 4), Term: scheduler.NoTerm}
	s, _ := world(t, cfg)
	g := gangOf("a", 8)
	submit(t, s, at(0), g)
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventDown, Time: at(1), Node: "n2"}))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventCordon, Time: at(1), Node: "n3"}))
	step(t, s, at(2))
	var saved bytes.Buffer
	require.NoError(t, s.Snapshot(&saved))

	old, err := scheduler.Restore(cfg, &saved)
	require.NoError(t, err)
	rec := newTally()
	m, err := meter.New(meter.Config{Tree: cfg.Tree, Recorder: rec})
	require.NoError(t, err)
	m.Follow(old, at(3), g)
	m.Sample(old, at(3))
	require.EqualValues(t, 16, rec.level(meter.QuarantinedGPUs))
	require.EqualValues(t, 32, rec.level(meter.CapacityGPUs))
	require.EqualValues(t, 8, rec.level(meter.AllocatedGPUs)+rec.level(meter.ReservedGPUs))

	up := lockstep.Event{Kind: lockstep.EventUp, Time: at(4), Node: "n2"}
	m.Event(old, &up, old.Apply(up))
	m.Sample(old, at(4))
	require.EqualValues(t, 8, rec.level(meter.QuarantinedGPUs))
}

// TestMeterFollowsTheTree goes over to another tree, with nodes of other classes.
func TestMeterFollowsTheTree(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 2), Term: scheduler.NoTerm})
	s.m.Sample(s.Scheduler, at(0))
	require.EqualValues(t, 16, rec.level(meter.CapacityGPUs))
	nodes := []placement.Node{{ID: "n0", Class: "h100"}, {ID: "n1", Class: "h100"}, {ID: "n2", Class: "h200"}}
	require.NoError(t, s.Rebase(at(1), cluster(t, 3), nodes))
	s.m.Sample(s.Scheduler, at(1))
	capacity := func(c lockstep.DeviceClass) float64 {
		return rec.gauges[series{meter.CapacityGPUs, lockstep.MetricLabels{Class: c}}]
	}
	require.EqualValues(t, 16, capacity("h100"))
	require.EqualValues(t, 8, capacity("h200"))
	require.Zero(t, capacity(""), "a class that has gone is told so")

	nodes[0].Class = "h200"
	require.NoError(t, s.Rebase(at(2), s.Tree(), nodes))
	s.m.Sample(s.Scheduler, at(2))
	require.EqualValues(t, 8, capacity("h100"))
	require.EqualValues(t, 16, capacity("h200"))
}

// TestATenantMayBeCalledOther: its series is that of all others, whose sum it may
// not overwrite, nor they its.
func TestATenantMayBeCalledOther(t *testing.T) {
	rec := newTally()
	m, err := meter.New(meter.Config{Values: 1, Recorder: rec})
	require.NoError(t, err)
	m.Tenants(10*lockstep.WholeGPU, []fairness.Statement{
		{Tenant: meter.Other, Held: 2 * lockstep.WholeGPU},
		{Tenant: "a", Held: 1 * lockstep.WholeGPU},
		{Tenant: "b", Held: 3 * lockstep.WholeGPU},
	})
	require.InDelta(t, 0.5, rec.gauges[series{meter.DominantShare, lockstep.MetricLabels{Tenant: meter.Other}}], 1e-9)
	require.InDelta(t, 0.1, rec.gauges[series{meter.DominantShare, lockstep.MetricLabels{Tenant: "a"}}], 1e-9)
}
