package meter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// everything is all that this module describes.
func everything() []lockstep.MetricDescriptor {
	return append(append(meter.Metrics(), gang.Metrics()...), profile.Metrics()...)
}

func TestTheTableIsValid(t *testing.T) {
	require.NoError(t, lockstep.ValidateMetrics(everything()))
	for _, d := range meter.Metrics() {
		require.NotEmpty(t, meter.Feeder(d.Name), d.Name)
		for _, l := range d.Labels {
			require.NotContains(t, l.String(), "job")
		}
	}
	require.Empty(t, meter.Feeder("nothing"))
	one, other := meter.Metrics(), meter.Metrics()
	one[2].Buckets[0] = -1
	one[0].Labels[0].Name = "changed"
	require.NotEqual(t, one[2].Buckets[0], other[2].Buckets[0], "each caller has its own")
	require.NotEqual(t, one[0].Labels[0], other[0].Labels[0])
}

// simulate runs a synthetic trace on a metered scheduler.
func simulate(t *testing.T, cfg scheduler.Config, seed uint64) (*sim.Result, *metered, *tally) {
	t.Helper()
	tr, err := trace.Synthetic(trace.SyntheticConfig{Seed: seed, GPUs: 64, Span: 12 * time.Hour, Load: 1500, Tenants: 5})
	require.NoError(t, err)
	jobs := make([]sim.Job, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		g := j.Gang(8)
		g.Queue = "batch"
		g.Capabilities = lockstep.Capabilities{Preemptible: i%7 != 0, Save: 5 * time.Second, Restore: 20 * time.Second}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	cfg.Tree = cluster(t, 8)
	s, rec := world(t, cfg)
	result, err := sim.Run(sim.Config{Tree: cfg.Tree, Start: epoch}, jobs, s)
	require.NoError(t, err)
	s.m.Sample(s, epoch.Add(1000*time.Hour))
	return result, s, rec
}

// What the meter counts is what the simulator, which keeps its own accounts, saw.
func TestTheMeterAgreesWithTheSimulator(t *testing.T) {
	for _, rule := range scheduler.Rules() {
		t.Run(string(rule), func(t *testing.T) {
			result, _, rec := simulate(t, scheduler.Config{Rule: rule}, 7)
			described(t, rec, everything())
			require.Positive(t, result.Finished)
			if rule == scheduler.LTGF {
				require.Positive(t, result.Preemptions, "the trace is to have some")
			}

			ended := func(state lifecycle.State) int {
				return int(rec.total(meter.JobsEnded, func(l lockstep.MetricLabels) bool { return l.Result == string(state) }))
			}
			require.Equal(t, result.Finished, ended(lifecycle.Succeeded))
			require.Equal(t, result.Rejected, ended("rejected"))
			require.Equal(t, float64(result.Unfinished), rec.level(meter.Jobs), "who has not ended is in some state")
			require.EqualValues(t, result.Preemptions, rec.total(meter.Preemptions, nil))
			require.EqualValues(t, result.Preemptions, rec.total(meter.Evictions, nil))
			victims := 0.0
			for _, n := range rec.sampled(meter.Victims) {
				victims += n
			}
			require.Equal(t, float64(result.Preemptions), victims)
			require.EqualValues(t, result.Preemptions, rec.total(meter.Restarts, func(l lockstep.MetricLabels) bool { return l.Reason == "preempt" }))

			grants := len(rec.sampled(meter.AdmissionWait))
			placed := func(l lockstep.MetricLabels) bool { return l.Result == "placed" }
			require.EqualValues(t, grants, rec.total(meter.Decisions, placed))
			require.GreaterOrEqual(t, grants, result.Finished)
			require.Len(t, rec.sampled(meter.DecisionDuration), result.Steps)

			// Device time: to less than a second for each tenant and part.
			seconds := float64(rec.total(meter.GPUSeconds, nil))
			require.LessOrEqual(t, seconds, result.Service.GPUSeconds())
			require.InDelta(t, result.Service.GPUSeconds(), seconds, 5*float64(lifecycle.Parts))
			require.Equal(t, 64.0, rec.level(meter.CapacityGPUs))
			require.Zero(t, rec.level(meter.AllocatedGPUs), "all have left")
		})
	}
}

// First waits and first-come durations are what the trace's records say.
func TestWaitsAreThoseOfTheRecords(t *testing.T) {
	result, _, rec := simulate(t, scheduler.Config{Rule: scheduler.FIFO, StartAtOnce: true}, 3)
	var want float64
	for i := range result.Records {
		if r := &result.Records[i]; r.Done {
			want += (r.Start - r.Submit).Seconds()
		}
	}
	var got float64
	for _, w := range rec.sampled(meter.AdmissionWait) {
		got += w
	}
	require.InEpsilon(t, want, got, 1e-9)
}

func TestLikeCallsRecordLike(t *testing.T) {
	_, _, first := simulate(t, scheduler.Config{}, 11)
	_, _, second := simulate(t, scheduler.Config{}, 11)
	require.Equal(t, lines(first), lines(second))
	require.Greater(t, len(first.log), 1000)
}

// A job's way by hand: two-phase start, failure, backoff, restart, end.
func TestAJobsWay(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 2), Nodes: []placement.Node{{ID: "n0", Class: "h100"}, {ID: "n1", Class: "h200"}}, Term: scheduler.NoTerm})
	count := func(m lockstep.Metric, l lockstep.MetricLabels) int64 { return rec.counts[series{m, l}] }
	gauge := func(m lockstep.Metric, l lockstep.MetricLabels) float64 { return rec.gauges[series{m, l}] }

	submit(t, s, at(0), gangOf("a", 8))
	actions := step(t, s, at(10))
	require.Len(t, actions, 1)
	s.m.Sample(s, at(10))
	class := actions[0].Plan.Members[0].Node
	held := lockstep.MetricLabels{Class: map[lockstep.NodeID]lockstep.DeviceClass{"n0": "h100", "n1": "h200"}[class]}
	require.Equal(t, 8.0, gauge(meter.ReservedGPUs, held))
	require.Equal(t, 1.0, gauge(meter.Jobs, lockstep.MetricLabels{Queue: "q", State: "reserving"}))
	require.Equal(t, []float64{10}, rec.sampled(meter.AdmissionWait))

	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventConfirm, Time: at(12), Job: "a", Attempt: actions[0].Attempt}))
	require.Len(t, step(t, s, at(12)), 1)
	require.Equal(t, []float64{2}, rec.sampled(meter.StartLatency))
	s.m.Sample(s, at(22))
	require.Equal(t, 8.0, gauge(meter.AllocatedGPUs, held))
	require.Equal(t, 0.0, gauge(meter.ReservedGPUs, held))
	require.Equal(t, 0.0, gauge(meter.Jobs, lockstep.MetricLabels{Queue: "q", State: "reserving"}), "told that it is gone")

	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFail, Time: at(32), Job: "a"}))
	require.EqualValues(t, 1, count(meter.Restarts, lockstep.MetricLabels{Reason: "exit", Kind: "app"}))
	s.m.Sample(s, at(32))
	require.EqualValues(t, 8*20, count(meter.LostGPUSeconds, lockstep.MetricLabels{Reason: "exit"}), "it never saved")
	require.Equal(t, 1.0, gauge(meter.PendingReason, lockstep.MetricLabels{Queue: "q", Reason: "backoff"}))

	require.Empty(t, step(t, s, at(32)))
	wake, ok := s.NextWake(at(32))
	require.True(t, ok)
	require.Len(t, step(t, s, wake), 1, "it is tried again")
	require.Equal(t, []float64{10, 10}, rec.sampled(meter.AdmissionWait), "backoff is part of the wait")
	s.m.Sample(s, wake)
	require.Equal(t, 0.0, gauge(meter.PendingReason, lockstep.MetricLabels{Queue: "q", Reason: "backoff"}))

	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventCancel, Time: wake, Job: "a"}))
	step(t, s, wake)
	require.EqualValues(t, 1, count(meter.JobsEnded, lockstep.MetricLabels{Queue: "q", Result: "cancelled"}))
	s.m.Sample(s, wake)
	require.Zero(t, rec.level(meter.Jobs))
	described(t, rec, everything())
}

func TestRefusedEventsAreCountedByKind(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	submit(t, s, at(0), gangOf("a", 8))
	actions := step(t, s, at(0))
	require.Error(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(1), Gang: gangOf("a", 8)}))
	require.Error(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(1), Gang: &lockstep.Gang{ID: "b"}}))
	require.Error(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(1), Job: "nobody"}))
	require.Error(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(-1), Job: "a"}))
	require.Error(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(1), Job: "a", Attempt: actions[0].Attempt + 1}))
	for _, want := range []struct {
		kind, reason string
	}{{"submit", "duplicate"}, {"submit", "invalid"}, {"finish", "unknown"}, {"finish", "past"}, {"finish", "stale"}} {
		require.EqualValues(t, 1, rec.counts[series{meter.RefusedEvents, lockstep.MetricLabels{Kind: want.kind, Reason: lockstep.Reason(want.reason)}}], want)
	}
	require.EqualValues(t, 2, rec.total(meter.StaleEvents, nil))
	require.EqualValues(t, 2, rec.total(meter.Decisions, func(l lockstep.MetricLabels) bool { return l.Result == "rejected" }))
}

func TestNodesThatCloseAreQuarantined(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 3), StartAtOnce: true, Rule: scheduler.FIFO})
	submit(t, s, at(0), gangOf("a", 8), gangOf("b", 8))
	actions := step(t, s, at(0))
	require.Len(t, actions, 2)
	on := map[lockstep.JobID]lockstep.NodeID{}
	for _, a := range actions {
		on[a.Job] = a.Plan.Members[0].Node
	}
	apply := func(kind lockstep.EventKind, node lockstep.NodeID) {
		t.Helper()
		require.NoError(t, s.Apply(lockstep.Event{Kind: kind, Time: at(60), Node: node}))
	}
	apply(lockstep.EventCordon, on["b"])
	apply(lockstep.EventDown, on["a"])
	apply(lockstep.EventDown, on["a"])
	s.m.Sample(s, at(60))
	require.Equal(t, 16.0, rec.level(meter.QuarantinedGPUs))
	step(t, s, at(60))
	require.EqualValues(t, 1, rec.counts[series{meter.Evictions, lockstep.MetricLabels{Reason: gang.ReasonLost}}])
	require.Zero(t, rec.total(meter.Preemptions, nil), "nobody took its place")
	apply(lockstep.EventOpen, on["b"])
	apply(lockstep.EventCordon, on["a"])
	apply(lockstep.EventUp, on["a"])
	s.m.Sample(s, at(61))
	require.Equal(t, 8.0, rec.level(meter.QuarantinedGPUs), "it is cordoned still")
	apply(lockstep.EventOpen, on["a"])
	s.m.Sample(s, at(62))
	require.Zero(t, rec.level(meter.QuarantinedGPUs))
}

func TestPendingJobsByReason(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	submit(t, s, at(0), gangOf("a", 6), gangOf("b", 4), gangOf("c", 4))
	step(t, s, at(0))
	s.m.Sample(s, at(1))
	require.Equal(t, 2.0, rec.level(meter.PendingReason))
	require.Positive(t, rec.total(meter.Decisions, func(l lockstep.MetricLabels) bool { return l.Result == "deferred" && l.Kind == "ltgf" }))
}

// After a restart jobs are followed, and what was before is not counted twice.
func TestFollowCountsOnlyWhatComes(t *testing.T) {
	s, _ := world(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	g := gangOf("a", 8)
	submit(t, s, at(0), g)
	step(t, s, at(0))

	rec := newTally()
	m, err := meter.New(meter.Config{Recorder: rec})
	require.NoError(t, err)
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(100), Gang: gangOf("b", 8)})) // so that time has passed
	m.Follow(s, at(100), g)
	m.Follow(s, at(100), gangOf("nobody", 1))
	m.Follow(s, at(100), nil)
	m.Sample(s, at(100))
	require.Zero(t, rec.total(meter.GPUSeconds, nil))
	require.Equal(t, 1.0, rec.level(meter.Jobs))
	e := lockstep.Event{Kind: lockstep.EventFinish, Time: at(110), Job: "a"}
	err = s.Scheduler.Apply(e)
	require.NoError(t, err)
	m.Event(s, &e, err)
	m.Sample(s, at(110))
	require.EqualValues(t, 80, rec.total(meter.GPUSeconds, nil))
	require.EqualValues(t, 1, rec.total(meter.JobsEnded, nil))
	require.Empty(t, rec.gauges[series{meter.CapacityGPUs, lockstep.MetricLabels{}}], "without a tree devices are not measured")
}

func TestTenants(t *testing.T) {
	s, rec := world(t, scheduler.Config{Tree: cluster(t, 2), StartAtOnce: true, Weights: map[lockstep.TenantID]int64{"a": 3, "b": 1}})
	submit(t, s, at(0), gangOf("b", 8))
	step(t, s, at(0))
	accounts, err := s.Statements(nil, at(60))
	require.NoError(t, err)
	s.m.Tenants(16*lockstep.WholeGPU, accounts)
	get := func(m lockstep.Metric, tenant lockstep.TenantID) float64 {
		v, ok := rec.gauges[series{m, lockstep.MetricLabels{Tenant: tenant}}]
		require.True(t, ok)
		return v
	}
	require.Equal(t, 12.0, get(meter.QuotaNominal, "a"))
	require.Equal(t, 4.0, get(meter.QuotaNominal, "b"))
	require.Equal(t, 12.0, get(meter.QuotaLent, "a"))
	require.Equal(t, 4.0, get(meter.QuotaBorrowed, "b"))
	require.Equal(t, 0.5, get(meter.DominantShare, "b"))
	require.Positive(t, get(meter.FairShare, "b"))

	bare := newTally()
	m, err := meter.New(meter.Config{Recorder: bare})
	require.NoError(t, err)
	m.Tenants(0, accounts)
	require.Equal(t, map[lockstep.Metric]bool{meter.FairShare: true}, bare.metrics())
	m.Tenants(lockstep.WholeGPU, []fairness.Statement{{Tenant: "gone", Held: 500}})
	require.Equal(t, 0.5, bare.gauges[series{meter.QuotaBorrowed, lockstep.MetricLabels{Tenant: "gone"}}])
	described(t, rec, everything())
}

// Queues and tenants beyond the first are added up, not one in place of another.
func TestOthersAreAddedUp(t *testing.T) {
	rec := newTally()
	m, err := meter.New(meter.Config{Values: 2, Recorder: rec})
	require.NoError(t, err)
	s, err := scheduler.New(scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	require.NoError(t, err)
	for i, id := range []string{"a", "b", "c", "d", "e"} {
		g := gangOf(id, 1)
		g.Queue = lockstep.QueueID("queue-" + id)
		e := lockstep.Event{Kind: lockstep.EventSubmit, Time: at(i), Gang: g}
		m.Event(s, &e, s.Apply(e))
	}
	actions, err := s.Step(at(10))
	require.NoError(t, err)
	m.Step(s, at(10), 0, actions)
	m.Sample(s, at(10))
	require.Equal(t, 3.0, rec.gauges[series{meter.Jobs, lockstep.MetricLabels{Queue: meter.Other, State: "running"}}])
	require.Equal(t, 1.0, rec.gauges[series{meter.Jobs, lockstep.MetricLabels{Queue: "queue-b", State: "running"}}])
	require.EqualValues(t, 3, rec.counts[series{meter.Folded, lockstep.MetricLabels{Kind: string(meter.Jobs)}}])
	accounts, err := s.Statements(nil, at(20))
	require.NoError(t, err)
	require.Len(t, accounts, 5)
	m.Tenants(8*lockstep.WholeGPU, accounts)
	require.Equal(t, 3.0/8, rec.gauges[series{meter.DominantShare, lockstep.MetricLabels{Tenant: meter.Other}}])
	require.InDelta(t, 3*1.6, rec.gauges[series{meter.QuotaNominal, lockstep.MetricLabels{Tenant: meter.Other}}], 1e-9)
	require.Contains(t, rec.gauges, series{meter.FairShare, lockstep.MetricLabels{Tenant: meter.Other}})
	require.Len(t, rec.sampled(meter.AdmissionWait), 5)
	described(t, rec, everything())
}

// A meter without a recorder, and no meter, cost nothing.
func TestOffCostsNothing(t *testing.T) {
	s, err := scheduler.New(scheduler.Config{Tree: cluster(t, 1)})
	require.NoError(t, err)
	off, err := meter.New(meter.Config{Tree: cluster(t, 1)})
	require.NoError(t, err)
	e := lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 1)}
	actions := []lockstep.Action{{Kind: lockstep.ActionStart, Job: "a"}}
	for _, m := range []*meter.Meter{nil, off} {
		require.False(t, m.On())
		require.Nil(t, m.Tap())
		require.Zero(t, testing.AllocsPerRun(100, func() {
			m.Event(s, &e, nil)
			m.Step(s, at(0), time.Second, actions)
			m.Sample(s, at(0))
			m.Tenants(1, nil)
			m.Follow(s, at(0), e.Gang)
		}))
	}
}

func TestConfigIsValidated(t *testing.T) {
	_, err := meter.New(meter.Config{Values: -1, Tree: cluster(t, 1), Nodes: []placement.Node{{ID: "n0"}, {ID: "n0"}, {ID: "elsewhere"}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "Values")
	require.ErrorContains(t, err, "named twice")
	require.ErrorContains(t, err, "not in the tree")
	_, err = meter.New(meter.Config{Nodes: []placement.Node{{ID: "n0"}}})
	require.NoError(t, err)
}
