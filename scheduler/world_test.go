package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is so many seconds after the epoch.
func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// cluster is nodes of eight devices each.
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

// gangOf is a gang of one member, which can be stopped.
func gangOf(id lockstep.JobID, tenant lockstep.TenantID, gpus int, wall time.Duration) *lockstep.Gang {
	return &lockstep.Gang{
		ID: id, Tenant: tenant, Walltime: wall,
		Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}},
		Capabilities: lockstep.Capabilities{Preemptible: true, Save: 5 * time.Second, Restore: 20 * time.Second},
	}
}

func submit(t testing.TB, s *scheduler.Scheduler, now time.Time, gangs ...*lockstep.Gang) {
	t.Helper()
	for _, g := range gangs {
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g}))
	}
}

func step(t testing.TB, s *scheduler.Scheduler, now time.Time) []lockstep.Action {
	t.Helper()
	actions, err := s.Step(now)
	require.NoError(t, err)
	return actions
}

// kinds lists what actions do to which job.
func kinds(actions []lockstep.Action) []string {
	out := []string{}
	for i := range actions {
		out = append(out, string(actions[i].Kind)+" "+string(actions[i].Job))
	}
	return out
}

// confirm confirms every rank of what was reserved, and returns what follows.
func confirm(t testing.TB, s *scheduler.Scheduler, actions []lockstep.Action) []lockstep.Action {
	t.Helper()
	var now time.Time
	for i := range actions {
		a := &actions[i]
		if a.Kind != lockstep.ActionReserve {
			continue
		}
		now = a.Time
		for rank := range a.Plan.Members {
			require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventConfirm, Time: now, Job: a.Job, Attempt: a.Attempt, Rank: rank}))
		}
	}
	return step(t, s, now)
}

// jobs are those of a synthetic trace, every eleventh a gang that cannot be
// stopped and every thirteenth without a walltime.
func jobs(t testing.TB, cfg trace.SyntheticConfig) []sim.Job {
	t.Helper()
	tr, err := trace.Synthetic(cfg)
	require.NoError(t, err)
	out := make([]sim.Job, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		g := j.Gang(8)
		g.Capabilities = lockstep.Capabilities{Preemptible: i%11 != 0, Save: 5 * time.Second, Restore: 20 * time.Second}
		if i%13 == 0 {
			g.Walltime = 0
		}
		out[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	return out
}
