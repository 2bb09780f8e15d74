package scheduler_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/policy/order"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

var _ sim.Scheduler = (*scheduler.Scheduler)(nil)

func TestHolderStaysInPlaceWhereNobodyElseDeservesIt(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	require.Equal(t, []string{"start a"}, kinds(confirm(t, s, step(t, s, at(0)))))

	wake, ok := s.NextWake(at(0))
	require.True(t, ok)
	require.Equal(t, at(900), wake, "the term is over")
	actions := step(t, s, wake)
	require.Equal(t, []string{"extend a"}, kinds(actions))
	st, _ := s.Status("a")
	require.Equal(t, lease.Held, st.Lease.State)
	require.Equal(t, 1, st.Lease.Extended)
	require.Equal(t, lifecycle.Running, st.Life.State)
}

func TestTheMostOwedTenantTakesOverAtTheBoundary(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	confirm(t, s, step(t, s, at(0)))
	submit(t, s, at(10), gangOf("b", "u", 8, time.Hour))
	require.Empty(t, step(t, s, at(10)), "not before the term is over")

	actions := step(t, s, at(900))
	require.Equal(t, []string{"evict a"}, kinds(actions))
	require.Equal(t, lockstep.JobID("b"), actions[0].Eviction.For)
	st, _ := s.Status("a")
	require.Equal(t, lease.Yielding, st.Lease.State)
	require.Equal(t, at(905), st.Lease.Deadline, "it has as long as its checkpoint takes")
	require.Equal(t, lifecycle.Draining, st.Life.State)

	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: at(905), Job: "a", Attempt: actions[0].Attempt}))
	require.Equal(t, []string{"start b"}, kinds(confirm(t, s, step(t, s, at(905)))))
	st, _ = s.Status("a")
	require.Equal(t, gang.Queued, st.Gang.Phase)
	require.Equal(t, lifecycle.Queued, st.Life.State)
	require.Zero(t, st.Life.Ledger.Time[lifecycle.PartLost], "what it did was saved")

	accounts, err := s.Statements(nil, at(905))
	require.NoError(t, err)
	require.Len(t, accounts, 2)
	require.InDelta(t, 905*8, accounts[0].Service.GPUSeconds(), 1e-9, "charged until its devices were clean")
	require.InDelta(t, 0, accounts[1].Service.GPUSeconds(), 1e-9)
}

func TestNonPreemptiveRulesHaveNoTerms(t *testing.T) {
	for _, rule := range []scheduler.Rule{scheduler.FIFO, scheduler.Static} {
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: cluster(t, 1)})
		submit(t, s, at(0), gangOf("a", "t", 8, 24*time.Hour))
		confirm(t, s, step(t, s, at(0)))
		submit(t, s, at(1), gangOf("b", "t", 8, time.Minute))
		require.Empty(t, step(t, s, at(1)))
		_, ok := s.NextWake(at(1))
		require.False(t, ok)
	}
}

func TestTermGrowsWithOverhead(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Loss: 20_000, Round: 1})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	confirm(t, s, step(t, s, at(0)))
	st, _ := s.Status("a")
	require.Equal(t, 1250*time.Second, st.Lease.Term, "25 s are 2 % of it")
}

func TestShortestJobOfATenantGoesFirst(t *testing.T) {
	for inside, want := range map[scheduler.Inside]string{scheduler.Shortest: "start c", scheduler.First: "start b"} { // the order does not matter: each case stands alone
		s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Inside: inside})
		submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
		a := confirm(t, s, step(t, s, at(0)))
		submit(t, s, at(1), gangOf("b", "t", 8, time.Hour), gangOf("c", "t", 8, time.Minute))
		step(t, s, at(1))
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(2), Job: "a", Attempt: a[0].Attempt}))
		require.Equal(t, []string{want}, kinds(confirm(t, s, step(t, s, at(2)))))
	}
}

func TestStaticTenantKeepsToItsPart(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Rule: scheduler.Static, Tree: cluster(t, 2), Weights: map[lockstep.TenantID]int64{"t": 3, "u": 1}})
	submit(t, s, at(0), gangOf("a", "u", 3, 0), gangOf("b", "u", 2, 0), gangOf("c", "u", 1, 0), gangOf("d", "t", 8, 0), gangOf("e", "t", 4, 0))
	require.Equal(t, []string{"reserve a", "reserve d", "reserve e"}, kinds(step(t, s, at(0))), "b is over quota, and c waits behind it")
	x, ok := s.Explain("b")
	require.True(t, ok)
	require.Equal(t, lockstep.ReasonQuota, x.Verdict.Reason)
	require.Contains(t, x.String(), "tenant u uses 3 of 4 devices")
}

func TestStaticRunsAJobWiderThanItsPartAlone(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Rule: scheduler.Static, Tree: cluster(t, 2), Weights: map[lockstep.TenantID]int64{"t": 3, "u": 1}})
	submit(t, s, at(0), gangOf("a", "u", 3, 0), gangOf("awide", "u", 8, 0), gangOf("b", "u", 1, 0))
	first := confirm(t, s, step(t, s, at(0)))
	require.Equal(t, []string{"start a"}, kinds(first))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(1), Job: "a", Attempt: first[0].Attempt}))
	require.Equal(t, []string{"start awide"}, kinds(confirm(t, s, step(t, s, at(1)))))
}

func TestFailedJobsAreTriedAgainUntilTheirBudgetIsUsedUp(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	now, tries := at(0), 0
	for {
		actions := step(t, s, now)
		if len(actions) == 0 {
			break
		}
		started := confirm(t, s, actions)
		require.Equal(t, []string{"start a"}, kinds(started))
		tries++
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFail, Time: now, Job: "a", Attempt: started[0].Attempt}))
		require.Empty(t, step(t, s, now), "it backs off")
		if wake, ok := s.NextWake(now); ok {
			now = wake
		}
	}
	require.Equal(t, 4, tries, "once, and three times on the budget")
	st, ok := s.Status("a")
	require.True(t, ok)
	require.Equal(t, lifecycle.Failed, st.Life.State)
	require.NoError(t, s.Forget("a"))
	require.Zero(t, s.Len())
}

func TestCancelReachesAJobThatBacksOff(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	started := confirm(t, s, step(t, s, at(0)))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFail, Time: at(1), Job: "a", Attempt: started[0].Attempt, Reason: "memory"}))
	require.ErrorIs(t, s.Forget("a"), lockstep.ErrConflict, "it is held until somebody decides")
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventCancel, Time: at(2), Job: "a"}))
	st, _ := s.Status("a")
	require.Equal(t, lifecycle.Cancelled, st.Life.State)
	require.NoError(t, s.Forget("a"))
}

func TestRejectedJobsEnd(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Retain: 2})
	for i := range 5 {
		g := gangOf(lockstep.JobID("a"+strconv.Itoa(i)), "t", 8, time.Hour)
		g.Required = "galaxy"
		submit(t, s, at(i), g)
		require.Equal(t, []string{"reject " + string(g.ID)}, kinds(step(t, s, at(i))))
		st, ok := s.Status(g.ID)
		require.True(t, ok)
		require.Equal(t, lifecycle.Cancelled, st.Life.State)
	}
	require.Equal(t, 2, s.Len())
}

func TestExplainJoinsWhatThePartsSay(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	confirm(t, s, step(t, s, at(0)))
	submit(t, s, at(100), gangOf("b", "u", 8, time.Hour))
	step(t, s, at(100))
	submit(t, s, at(200), gangOf("c", "u", 1, time.Minute))

	x, ok := s.Explain("a")
	require.True(t, ok)
	require.Contains(t, x.String(), "lease: held (until 2026-01-01T00:15:00Z, extended 0 times)")
	require.Contains(t, x.String(), "lifecycle: running")
	x, ok = s.Explain("b")
	require.True(t, ok)
	require.Contains(t, x.String(), "fairness: owed (tenant u of weight 1 holds 0 of 4 devices, is owed 400 GPU-seconds, index 0.000)")
	require.Equal(t, lockstep.ReasonBusy, x.Verdict.Reason, "though no pass came as far, since no device was free")
	_, ok = s.Explain("nobody")
	require.False(t, ok)
}

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Weights: map[lockstep.TenantID]int64{"t": 1, "zero": 0}})
	submit(t, s, at(10), gangOf("a", "t", 4, time.Hour))
	seq := s.Seq()
	for name, c := range map[string]struct { // the order does not matter: each is refused
		event lockstep.Event
		kind  error
	}{
		"unknown tenant":  {lockstep.Event{Kind: lockstep.EventSubmit, Time: at(11), Gang: gangOf("b", "nobody", 1, 0)}, lockstep.ErrUnknown},
		"duplicate job":   {lockstep.Event{Kind: lockstep.EventSubmit, Time: at(11), Gang: gangOf("a", "t", 1, 0)}, lockstep.ErrDuplicate},
		"clock backwards": {lockstep.Event{Kind: lockstep.EventSubmit, Time: at(9), Gang: gangOf("b", "t", 1, 0)}, lockstep.ErrPast},
		"no gang":         {lockstep.Event{Kind: lockstep.EventSubmit, Time: at(11)}, lockstep.ErrInvalid},
		"invalid gang":    {lockstep.Event{Kind: lockstep.EventSubmit, Time: at(11), Gang: &lockstep.Gang{ID: "b", Tenant: "t"}}, lockstep.ErrInvalid},
		"unknown job":     {lockstep.Event{Kind: lockstep.EventFinish, Time: at(11), Job: "b"}, lockstep.ErrUnknown},
		"not running":     {lockstep.Event{Kind: lockstep.EventFinish, Time: at(11), Job: "a"}, lockstep.ErrConflict},
		"no kind":         {lockstep.Event{Time: at(11)}, lockstep.ErrInvalid},
		"no time":         {lockstep.Event{Kind: lockstep.EventCancel, Job: "a"}, lockstep.ErrInvalid},
	} {
		require.ErrorIs(t, s.Apply(c.event), c.kind, name)
	}
	_, err := s.Step(at(9))
	require.ErrorIs(t, err, lockstep.ErrPast)
	require.Equal(t, seq, s.Seq())
	require.ErrorIs(t, s.Forget("a"), lockstep.ErrConflict)
	require.ErrorIs(t, s.Forget("b"), lockstep.ErrUnknown)
	require.Equal(t, []string{"start a"}, kinds(confirm(t, s, step(t, s, at(10)))), "time did not pass")
}

func TestTenantOfWeightZeroGetsWhatOthersLeave(t *testing.T) {
	for _, rule := range []scheduler.Rule{scheduler.LTGF, scheduler.Static} {
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: cluster(t, 1), Weights: map[lockstep.TenantID]int64{"t": 1, "zero": 0}})
		submit(t, s, at(0), gangOf("z1", "zero", 4, time.Hour), gangOf("z2", "zero", 4, time.Hour), gangOf("a", "t", 4, time.Hour))
		actions := step(t, s, at(0))
		require.Len(t, actions, 2, "%v", kinds(actions))
		require.Contains(t, kinds(actions), "reserve a")
	}
}

func TestConfigFaultsAreAllNamed(t *testing.T) {
	_, err := scheduler.New(scheduler.Config{
		Rule: "best", Inside: "out", Weights: map[lockstep.TenantID]int64{"a": -1, "b": fairness.MaxWeight + 1}, DefaultWeight: -1,
		Term: -2, Round: -1, Horizon: -1, Hold: -1, Loss: -1, Retain: -1,
	})
	for _, field := range []string{"Rule", "Inside", "Weights[a]", "Weights[b]", "DefaultWeight", "Term", "Round", "Horizon", "Hold", "Loss", "Retain", "Tree"} {
		require.ErrorContains(t, err, "config: "+field+" ")
	}
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestPolicyOfTheHost(t *testing.T) {
	q, err := order.New(order.Config{Order: order.Priority{}})
	require.NoError(t, err)
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Policy: scheduler.Ordered(q)})
	urgent := gangOf("b", "t", 8, time.Hour)
	urgent.Priority = 1
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour), urgent)
	require.Equal(t, []string{"reserve b"}, kinds(step(t, s, at(0))))

	l, err := fairness.New(fairness.Config{Capacity: 8 * lockstep.WholeGPU, DefaultWeight: 1})
	require.NoError(t, err)
	s = newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Policy: scheduler.Fair(l)})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	require.Equal(t, []string{"reserve a"}, kinds(step(t, s, at(0))))

	w, err := scheduler.Within(l, 0, order.SRSF{})
	require.NoError(t, err)
	s = newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Policy: w})
	submit(t, s, at(0), gangOf("b", "t", 8, time.Hour))
	require.Equal(t, []string{"reserve b"}, kinds(step(t, s, at(0))))
	_, err = scheduler.Within(nil, 0, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestJobsWithoutDevicesStartWhereNoneIsFree(t *testing.T) {
	for _, rule := range scheduler.Rules() {
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: cluster(t, 1)})
		cpu := gangOf("cpu", "t", 0, time.Hour)
		cpu.Roles[0].Demand.CPU = 1000
		submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
		confirm(t, s, step(t, s, at(0)))
		submit(t, s, at(1), cpu)
		require.Equal(t, []string{"start cpu"}, kinds(confirm(t, s, step(t, s, at(1)))), rule)
	}
}

// TestHeapStaysFlat submits, runs and forgets 10^5 jobs, or as many as
// LOCKSTEP_JOBS says, and prints the heap ten times.
func TestHeapStaysFlat(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	if text := os.Getenv("LOCKSTEP_JOBS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 4), Retain: 100})
	var heaps []uint64
	running := make([]lockstep.Action, 0, 16)
	for i := range n {
		now := at(i)
		submit(t, s, now, gangOf(lockstep.JobID("j"+strconv.Itoa(i)), lockstep.TenantID("t"+strconv.Itoa(i%7)), 1+i%8, time.Minute))
		if actions := step(t, s, now); len(actions) > 0 {
			running = append(running, confirm(t, s, actions)...)
		}
		for len(running) > 3 {
			require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: running[0].Job, Attempt: running[0].Attempt}))
			running = append(running[:0], running[1:]...)
		}
		if (i+1)%(n/10) == 0 {
			heaps = append(heaps, heap())
			fmt.Printf("jobs %d heap %d KiB kept %d\n", i+1, heaps[len(heaps)-1]>>10, s.Len())
		}
	}
	require.LessOrEqual(t, s.Len(), 200)
	least := uint64(math.MaxUint64)
	for _, h := range heaps[:len(heaps)/2] {
		least = min(least, h)
	}
	require.LessOrEqual(t, heaps[len(heaps)-1], least+least/4+1<<20)
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestRefusedFirstEventsChangeNothing puts refused events an hour ahead of what
// comes first: nothing may remember their time.
func TestRefusedFirstEventsChangeNothing(t *testing.T) {
	for _, rule := range scheduler.Rules() {
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: cluster(t, 1), StartAtOnce: true, Weights: map[lockstep.TenantID]int64{"t": 1}})
		before := saved(t, s)
		for _, e := range []lockstep.Event{
			{Kind: lockstep.EventSubmit, Gang: gangOf("a", "nobody", 1, 0)},
			{Kind: lockstep.EventSubmit, Job: "b", Gang: gangOf("a", "t", 1, 0)},
			{Kind: lockstep.EventFinish, Job: "a"},
			{Kind: lockstep.EventDown, Node: "nowhere"},
			{Kind: "news"},
		} {
			e.Time = at(3600)
			var fault *lockstep.Error
			require.ErrorAs(t, s.Apply(e), &fault, "%s %v", rule, e)
			require.NotEmpty(t, fault.Field)
			require.Equal(t, before, saved(t, s), "%s %v", rule, e)
		}
		require.ErrorIs(t, s.Apply(lockstep.Event{Kind: lockstep.EventDown, Time: at(0), Node: "nowhere"}), lockstep.ErrUnknown)

		submit(t, s, at(0), gangOf("a", "t", 1, 0))
		step(t, s, at(0))
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(1), Job: "a"}))
		before = saved(t, s)
		require.ErrorIs(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(2), Gang: gangOf("a", "nobody", 1, 0)}), lockstep.ErrUnknown)
		require.Equal(t, before, saved(t, s), "the job that left is still remembered")
		submit(t, s, at(2), gangOf("a", "t", 1, 0))
		require.Equal(t, []string{"start a"}, kinds(step(t, s, at(2))))
	}
}

func saved(t testing.TB, s *scheduler.Scheduler) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, s.Snapshot(&b))
	return b.String()
}

// TestStaticGoesBySubmissionAcrossTenants keeps jobs of a tenant of lesser ID, which
// are small enough to start, from passing a wide job for ever.
func TestStaticGoesBySubmissionAcrossTenants(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Rule: scheduler.Static, Tree: cluster(t, 1), StartAtOnce: true})
	submit(t, s, at(0), gangOf("b0", "z", 1, 0)) // z joins
	submit(t, s, at(0), gangOf("a0", "a", 6, time.Hour))
	require.Equal(t, []string{"start a0", "start b0"}, kinds(step(t, s, at(0))), "at one time by ID")
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(1), Job: "b0"}))
	submit(t, s, at(1), gangOf("wide", "z", 8, time.Hour))
	submit(t, s, at(2), gangOf("a1", "a", 6, time.Hour))
	require.Empty(t, step(t, s, at(2)))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(3), Job: "a0"}))
	require.Equal(t, []string{"start wide"}, kinds(step(t, s, at(3))), "it came before a1")
}

func TestExplainCountsTimeUntilNow(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour), gangOf("b", "u", 8, time.Hour), gangOf("c", "v", 1, time.Hour))
	step(t, s, at(0))
	step(t, s, at(240))
	x, _ := s.Explain("a")
	require.Contains(t, x.String(), "holds 8 of 3.5 devices, got 1080 GPU-seconds more than it is entitled to")
	require.Contains(t, x.String(), "waited 0s, ran 4m0s")
	x, _ = s.Explain("b")
	require.Contains(t, x.String(), "waited 4m0s, ran 0s")
	st, _ := s.Status("b")
	require.Equal(t, 4*time.Minute, st.Life.Ledger.Time[lifecycle.PartWaiting])
}
