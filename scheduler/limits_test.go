package scheduler_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// tree divides the devices of n nodes between three tenants, one of whom lends nothing.
func tree(t testing.TB, nodes int) *quota.Quota {
	t.Helper()
	q, err := quota.New(quota.Config{
		Capacity: lockstep.Resources{lockstep.ResourceGPU: int64(nodes) * 8 * int64(lockstep.WholeGPU)}, ByTenant: true,
		Queues: []quota.Queue{
			{Name: "t0", Weight: 2},
			{Name: "t1", Weight: 1, LendLimit: lockstep.Resources{lockstep.ResourceGPU: 0}},
			{Name: "t2", Weight: 1, BorrowLimit: lockstep.Resources{lockstep.ResourceGPU: 4 * int64(lockstep.WholeGPU)}},
		},
	})
	require.NoError(t, err)
	return q
}

func TestQuotaLimitsTenants(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: cluster(t, 4), Quota: tree(t, 4), StartAtOnce: true, Preempt: gang.PreemptOn})
	// A quarter of 32 devices is t2's own, and it may borrow 4.
	submit(t, s, at(0), gangOf("a", "t2", 8, time.Hour), gangOf("b", "t2", 4, time.Hour), gangOf("c", "t2", 4, time.Hour))
	require.Equal(t, []string{"start a", "start b"}, kinds(step(t, s, at(0))))
	e, ok := s.Explain("c")
	require.True(t, ok)
	require.Equal(t, lockstep.ReasonQuota, e.Verdict.Reason)

	// What others come for is theirs, and b goes before its term.
	submit(t, s, at(10), gangOf("d", "t0", 8, time.Hour), gangOf("e", "t0", 8, time.Hour), gangOf("f", "t1", 8, time.Hour))
	did := kinds(step(t, s, at(10)))
	require.Contains(t, did, "evict b")
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: at(20), Job: "b"}))
	step(t, s, at(20))
	for _, id := range []lockstep.JobID{"a", "d", "e", "f"} {
		st, _ := s.Status(id)
		require.Equal(t, gang.Running, st.Gang.Phase, id)
	}

	// Also where no device is free.
	s = newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: cluster(t, 4), Quota: tree(t, 4), StartAtOnce: true, Preempt: gang.PreemptOn})
	for _, id := range []lockstep.JobID{"a", "b", "c"} {
		submit(t, s, at(0), gangOf(id, "t0", 8, time.Hour))
	}
	submit(t, s, at(0), gangOf("d", "t1", 8, time.Hour))
	require.Len(t, step(t, s, at(0)), 4)
	submit(t, s, at(10), gangOf("e", "t2", 8, time.Hour))
	require.Equal(t, []string{"evict a"}, kinds(step(t, s, at(10))))

	_, err := scheduler.New(scheduler.Config{Rule: scheduler.Static, Tree: cluster(t, 4), Quota: tree(t, 4)})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestPartsAgreeUnderQuota is the storm with a tree of queues, and with gangs that take
// what they are due before others' terms end.
func TestPartsAgreeUnderQuota(t *testing.T) {
	seeds, steps := 60, 500
	if testing.Short() {
		seeds, steps = 5, 250
	}
	evicted := 0
	for seed := range seeds {
		q := tree(t, 4)
		cfg := scheduler.Config{
			Rule: []scheduler.Rule{scheduler.LTGF, scheduler.FIFO, scheduler.SRTF, scheduler.LAS}[seed%4],
			Tree: cluster(t, 4), Term: 10 * time.Minute, Round: time.Minute, Retain: 8, Preempt: []gang.Preempt{gang.PreemptOn, gang.PreemptOff}[seed/4%2],
		}
		if seed%6 < 5 {
			cfg.Quota = q
		}
		w := newStorm(t, uint64(seed)+1000, cfg)
		var saved, savedQuota bytes.Buffer
		var from uint64
		for i := range steps {
			w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Second)
			w.happen()
			w.step()
			w.check()
			for _, name := range q.AppendQueues(nil) {
				st, ok := q.Statement(name)
				require.True(t, ok)
				limit := int64(32)
				if name == "t2" {
					limit = 8 + 4
				}
				require.LessOrEqual(t, st.Used[lockstep.ResourceGPU], limit*int64(lockstep.WholeGPU), "seed %d: %s", seed, name)
			}
			if i == steps/2 {
				require.NoError(t, w.s.Snapshot(&saved))
				require.NoError(t, q.Snapshot(&savedQuota))
				from = w.s.Seq()
			}
		}
		if cfg.Quota != nil {
			back, err := quota.Restore(&savedQuota)
			require.NoError(t, err)
			cfg.Quota = back
		}
		s, err := scheduler.Restore(cfg, &saved)
		require.NoError(t, err)
		for _, e := range w.log[from:] {
			a, err := s.Replay(e)
			require.NoError(t, err)
			if len(a) > 0 {
				got, err := json.Marshal(a)
				require.NoError(t, err)
				require.Equal(t, string(w.out[e.Seq]), string(got), "seed %d entry %d", seed, e.Seq)
			}
		}
		evicted += w.kinds["evict"]
	}
	require.True(t, testing.Short() || evicted > 100, evicted)
}

func TestForecastOfTheForemost(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: cluster(t, 2), StartAtOnce: true, Forecasts: true})
	submit(t, s, at(0), gangOf("a", "x", 8, time.Hour), gangOf("b", "x", 8, 2*time.Hour))
	require.Len(t, step(t, s, at(0)), 2)
	submit(t, s, at(10), gangOf("c", "x", 8, time.Hour))
	require.Empty(t, step(t, s, at(10)))
	f, ok := s.Forecast("c")
	require.True(t, ok)
	require.Equal(t, at(3600), f.Start)
	_, ok = s.Forecast("a")
	require.False(t, ok, "it runs")
}

// TestAdoptedUnderAQuotaThatDoesNotKnowThem leaves nothing behind of a gang whose queue
// is not there.
func TestAdoptedUnderAQuotaThatDoesNotKnowThem(t *testing.T) {
	for _, rule := range []scheduler.Rule{scheduler.LTGF, scheduler.FIFO} {
		q := tree(t, 1)
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: machines(t, map[lockstep.NodeID]int{"a": 8}), Quota: q})
		submit(t, s, at(0), gangOf("first", "t0", 1, 0))
		seq, jobs := s.Seq(), s.Len()
		require.ErrorIs(t, s.Adopt(at(0), planOf(gangOf("p", "nobody", 8, 0), "a", 0, 1, 2, 3, 4, 5, 6, 7), at(0)), lockstep.ErrUnknown)
		require.Equal(t, 8, s.Usage().Free)
		require.Equal(t, seq, s.Seq())
		require.Equal(t, jobs, s.Len())
		_, known := s.Status("p")
		require.False(t, known)
		require.NoError(t, s.Adopt(at(0), planOf(gangOf("p", "t0", 4, 0), "a", 0, 1, 2, 3), at(0)))
		require.Equal(t, 4, s.Usage().Free)
		var kept bytes.Buffer
		require.NoError(t, q.Snapshot(&kept))
		back, err := quota.Restore(&kept)
		require.NoError(t, err)
		_, err = scheduler.Restore(scheduler.Config{Rule: rule, Tree: s.Tree(), Quota: back}, strings.NewReader(saved(t, s)))
		require.NoError(t, err)
	}
}
