package meter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// storm is a host in which all goes wrong that can: nodes fail, members refuse,
// jobs die, are cancelled, grow and shrink, and events come twice.
type storm struct {
	t    *testing.T
	rng  *rand.Rand
	s    *metered
	rec  *tally
	now  time.Time
	next int
	ids  []lockstep.JobID // all that were submitted
	run  []lockstep.Action
	todo []lockstep.Event // evictions and confirmations that are under way

	replace bool // some gangs go on while lost members are replaced
}

func (h *storm) gang() *lockstep.Gang {
	h.next++
	g := gangOf(fmt.Sprintf("%c%d", 'a'+h.rng.IntN(4), h.next), 1+h.rng.IntN(4))
	r := &g.Roles[0]
	r.Min = 1 + h.rng.IntN(3)
	g.Capabilities.Preemptible = h.rng.IntN(4) > 0
	if h.rng.IntN(2) == 0 {
		r.Max, g.Capabilities.Resizable = r.Min+h.rng.IntN(4), true
	}
	g.Capabilities.Replaceable = h.replace && h.rng.IntN(3) > 0
	if r.Min > 1 && h.rng.IntN(4) == 0 {
		g.Canary = 1
	}
	if h.rng.IntN(2) == 0 {
		g.Walltime = time.Duration(1+h.rng.IntN(60)) * time.Minute
	}
	g.Priority = lockstep.Priority(h.rng.IntN(2))
	return g
}

// event makes one up.
func (h *storm) event() lockstep.Event {
	e := lockstep.Event{Time: h.now}
	switch n := h.rng.IntN(20); {
	case n < 6:
		e.Kind, e.Gang = lockstep.EventSubmit, h.gang()
		h.ids = append(h.ids, e.Gang.ID)
	case n < 12 && len(h.todo) > 0:
		i := h.rng.IntN(len(h.todo))
		e = h.todo[i]
		e.Time = h.now
		h.todo = append(h.todo[:i], h.todo[i+1:]...)
	case n < 15 && len(h.run) > 0:
		a := h.run[h.rng.IntN(len(h.run))]
		e.Kind, e.Job, e.Attempt = lockstep.EventFinish, a.Job, a.Attempt
		if h.rng.IntN(3) == 0 {
			e.Kind = lockstep.EventFail
			if h.rng.IntN(2) == 0 {
				e.Reason = "infra"
			}
		}
	case n == 15 && len(h.ids) > 0:
		e.Kind, e.Job = lockstep.EventCancel, h.ids[h.rng.IntN(len(h.ids))]
	case n == 16 && len(h.ids) > 0:
		e.Kind, e.Job = lockstep.EventDue, h.ids[h.rng.IntN(len(h.ids))]
	default:
		e.Kind = []lockstep.EventKind{lockstep.EventDown, lockstep.EventUp, lockstep.EventUp, lockstep.EventCordon, lockstep.EventOpen}[h.rng.IntN(5)]
		e.Node = lockstep.NodeID(fmt.Sprintf("n%d", h.rng.IntN(4)))
	}
	return e
}

// heed notes what the actions ask of a host.
func (h *storm) heed(actions []lockstep.Action) {
	for i := range actions {
		a := actions[i]
		switch a.Kind {
		case lockstep.ActionReserve:
			for rank := range a.Plan.Members {
				h.todo = append(h.todo, lockstep.Event{Kind: lockstep.EventConfirm, Job: a.Job, Attempt: a.Attempt, Rank: rank})
			}
		case lockstep.ActionStart:
			h.run = append(h.run, a)
		case lockstep.ActionEvict, lockstep.ActionMove, lockstep.ActionResize:
			if a.Eviction != nil {
				h.todo = append(h.todo, lockstep.Event{Kind: lockstep.EventEvicted, Job: a.Job, Attempt: a.Attempt})
			}
		}
	}
}

// check compares what was recorded with where all jobs are.
func (h *storm) check() {
	h.s.m.Sample(h.s.Scheduler, h.now)
	want := map[lockstep.MetricLabels]float64{}
	var running, waiting float64
	seen := map[lockstep.JobID]bool{}
	for _, id := range h.ids {
		st, ok := h.s.Status(id)
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		if st.Life.State.Terminal() || st.Gang.Phase == gang.Gone && st.Life.State == lifecycle.Held {
			continue
		}
		want[lockstep.MetricLabels{Queue: "q", State: string(st.Life.State)}]++
		if st.Gang.Plan != nil {
			n := 0
			for _, m := range st.Gang.Plan.Members {
				n += m.Devices.Len()
			}
			if st.Gang.Phase == gang.Held || st.Gang.Phase == gang.Awaiting {
				waiting += float64(n)
			} else {
				running += float64(n)
			}
		}
	}
	got := map[lockstep.MetricLabels]float64{}
	for s, v := range h.rec.gauges { // into a map: the order cannot matter
		if s.metric == meter.Jobs && v != 0 {
			got[s.labels] = v
		}
	}
	require.Equal(h.t, want, got)
	require.Equal(h.t, running, h.rec.level(meter.AllocatedGPUs))
	require.Equal(h.t, waiting, h.rec.level(meter.ReservedGPUs))
}

// sane checks that nothing was recorded which cannot be.
func (h *storm) sane() {
	for s, n := range h.rec.counts { // each by itself: the order cannot matter
		require.Positive(h.t, n, s)
	}
	for s, samples := range h.rec.samples { // each by itself: the order cannot matter
		require.GreaterOrEqual(h.t, slices.Min(samples), 0.0, s)
	}
}

// Whatever happens, the gauges say where all jobs and devices are, and counters
// only grow.
func TestGaugesAreRightInAStorm(t *testing.T) {
	met := map[lockstep.Metric]bool{}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := scheduler.Config{Tree: cluster(t, 4), Term: 5 * time.Minute, Hold: 2 * time.Minute, Retain: 100_000, StartAtOnce: seed%3 == 0}
		if seed%2 == 1 {
			cfg.Rule, cfg.Term = scheduler.FIFO, scheduler.NoTerm
		}
		s, rec := world(t, cfg)
		h := &storm{t: t, rng: rng, s: s, rec: rec, now: epoch, replace: cfg.Term == scheduler.NoTerm}
		for i := range 600 {
			h.now = h.now.Add(time.Duration(rng.IntN(60)) * time.Second)
			for range rng.IntN(4) {
				_ = s.Apply(h.event()) // many are refused, which is the point
			}
			if rng.IntN(3) > 0 {
				actions, err := s.Step(h.now)
				require.NoError(t, err, "seed %d", seed)
				h.heed(actions)
			}
			if i%10 == 0 {
				h.check()
			}
		}
		h.check()
		h.sane()
		described(t, rec, everything())
		for m := range rec.metrics() { // into a set: the order cannot matter
			met[m] = true
		}
	}
	for _, d := range meter.Metrics() {
		switch d.Name {
		case meter.QuotaNominal, meter.QuotaBorrowed, meter.QuotaLent, meter.DominantShare, meter.FairShare:
			continue // by Tenants
		}
		require.Equal(t, meter.Feeder(d.Name) == "scheduler/meter", met[d.Name], "%s: recorded by a meter, or by it never", d.Name)
	}
}
