package gang_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// F1. A window that is over and is renewed under its name before a Step frees
// the nodes like any other: who waited for it is tried again.
func TestARenewedWindowLetsInWhoWaitedForIt(t *testing.T) {
	for _, keep := range []bool{true, false} {
		w := newWorld(t, placertest.NewReference(1, 1, 1, 0), gang.Config{StartAtOnce: true})
		n0 := []lockstep.NodeID{"n0"}
		require.NoError(t, w.a.Reserve(at(0), gang.Window{Name: "nightly", Nodes: n0, From: at(0), To: at(10)}))
		w.submit(0, plain("a", 1, 5))
		w.run(5)
		next := gang.Window{Name: "nightly", Nodes: n0, From: at(20), To: at(30)}
		if !keep { // over at once
			next.From, next.To = at(8), at(10)
		}
		require.NoError(t, w.a.Reserve(at(10), next))
		w.run(100)
		require.Equal(t, []int{10}, w.starts["a"], "renewed %v", keep)
	}
}

// F2. MaxAttempts spreads the work over passes: whoever is tried in vain again
// and again must not keep all others from their turn.
func TestMaxAttemptsStarvesNobody(t *testing.T) {
	p := place(1, 4, 1)
	a, err := gang.New(gang.Config{Placer: p, StartAtOnce: true, MaxAttempts: 1})
	require.NoError(t, err)
	lonely := plain("lonely", 1, 10)
	lonely.Labels = map[string]string{"app": "lonely"}
	lonely.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"app": "nobody"}}}
	require.NoError(t, a.Submit(at(0), lonely))
	require.NoError(t, a.Submit(at(1), plain("z", 1, 10)))
	for range 10 {
		_, err := a.Step(at(1))
		require.NoError(t, err)
	}
	require.Equal(t, gang.Running, phase(a, "z"))
	_, busy := a.NextWake(at(1))
	require.False(t, busy, "nothing is left to try")
}

// moody is a Quota whose refunds fail on demand.
type moody struct {
	*ledger
	refund, charge bool
}

var errMoody = errors.New("the quota is out of order")

func (m *moody) Refund(job lockstep.JobID) error {
	if m.refund {
		return errMoody
	}
	return m.ledger.Refund(job)
}

func (m *moody) Charge(g *lockstep.Gang, counts []int) error {
	if m.charge {
		return errMoody
	}
	return m.ledger.Charge(g, counts)
}

func saved(t *testing.T, a *gang.Admission) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, a.Snapshot(&b))
	return b.String()
}

// F3. A refund that fails leaves the job as it was: with its room.
func TestAFailedRefundChangesNothing(t *testing.T) {
	type call struct {
		name  string
		setup func(a *gang.Admission)
		do    func(a *gang.Admission) error
	}
	confirm := func(a *gang.Admission) {
		require.NoError(t, a.Confirm(at(0), "a", 0, 0))
		step(t, a, 0)
	}
	for _, c := range []call{
		{"cancel held", nil, func(a *gang.Admission) error { return a.Cancel(at(1), "a") }},
		{"fail held", nil, func(a *gang.Admission) error { return a.Fail(at(1), "a", 0, "") }},
		{"finish", confirm, func(a *gang.Admission) error { return a.Finish(at(1), "a", 0) }},
		{"lost and evicted", func(a *gang.Admission) {
			confirm(a)
			require.NoError(t, a.Down(at(1), "n0"))
			step(t, a, 1)
		}, func(a *gang.Admission) error { return a.Evicted(at(1), "a", 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &moody{ledger: newLedger(9)}
			p := placertest.NewReference(1, 1, 1, 0)
			a := admission(t, p, gang.Config{Quota: q})
			require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
			step(t, a, 0)
			if c.setup != nil {
				c.setup(a)
			}
			before := saved(t, a)
			q.refund = true
			require.ErrorIs(t, c.do(a), errMoody)
			require.Equal(t, before, saved(t, a))
			require.NotNil(t, p.Plan("a"), "the placer's account too")
			q.refund = false
			require.NoError(t, c.do(a))
			require.Nil(t, p.Plan("a"))
			require.Empty(t, q.charges)
		})
	}
}

// F3b. What a failed refund leaves behind in a Step does not panic later.
func TestAFailedRefundInAStepIsNotFatal(t *testing.T) {
	q := &moody{ledger: newLedger(9)}
	p := placertest.NewReference(1, 2, 1, 0)
	a := admission(t, p, gang.Config{Quota: q})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	step(t, a, 0)
	require.NoError(t, a.Refuse(at(1), "a", 0, "n0"))
	q.refund = true
	_, err := a.Step(at(1))
	require.ErrorIs(t, err, errMoody)
	q.refund = false
	require.NotPanics(t, func() { _, err = a.Step(at(1)) })
	require.NoError(t, err)
	s, _ := a.State("a")
	require.Equal(t, gang.Held, s.Phase)
	require.Equal(t, "n1", string(s.Plan.Members[0].Node))
}

// broken is a placer whose calls fail when told.
type broken struct {
	cluster
	fail func(call string, job lockstep.JobID) bool
}

func (b *broken) Release(job lockstep.JobID) error {
	if b.fail != nil && b.fail("release", job) {
		return errFlaky
	}
	return b.cluster.Release(job)
}

func (b *broken) Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	if b.fail != nil && b.fail("fit", r.Gang.ID) {
		return lockstep.Verdict{}, errFlaky
	}
	return b.cluster.Fit(r, out)
}

// F4. Down asks nothing of the placer; the Step that takes back the rooms that gangs
// were moving to may fail, and goes on with the next.
func TestDownLeavesTheRoomOfMovingGangsToTheStep(t *testing.T) {
	p := &broken{cluster: reference(2, 1, 2)}
	o := &listed{list: ids{"h1", "h2", "w"}}
	a := admission(t, p, gang.Config{Orderer: o})
	h1, h2, w := holder("h1", 1, 0), holder("h2", 1, 0), plain("w", 2, 0)
	w.Required = lockstep.LevelNode
	for _, g := range []*lockstep.Gang{h1, h2, w} {
		require.NoError(t, a.Submit(at(0), g))
	}
	require.Equal(t, []string{"reserve h1", "reserve h2", "reserve w"}, summary(step(t, a, 0)))
	require.NoError(t, a.Confirm(at(0), "h1", 0, 0))
	require.NoError(t, a.Confirm(at(0), "h2", 0, 0))
	step(t, a, 0)
	require.NoError(t, a.Refuse(at(1), "w", 0, "n1"))
	require.NoError(t, a.Due(at(1), "h1", 0))
	require.NoError(t, a.Due(at(1), "h2", 0))
	o.list = ids{"w", "h1", "h2"}
	require.Equal(t, []string{"release w refused", "move h1 term", "move h2 term"}, summary(step(t, a, 1)))
	p.fail = func(call string, job lockstep.JobID) bool { return call == "release" && job == "h2" }
	require.NoError(t, a.Down(at(2), "n1"))
	require.NotNil(t, p.Plan("h1"))
	got, err := a.Step(at(2))
	require.ErrorIs(t, err, errFlaky)
	require.Equal(t, []string{"evict h1 lost"}, summary(got))
	require.NotNil(t, p.Plan("h2"))
	p.fail = nil
	require.Equal(t, []string{"evict h2 lost"}, summary(step(t, a, 2)))
	require.Empty(t, p.Plan("h2"))
	require.NoError(t, a.Evicted(at(3), "h1", 0))
	require.NoError(t, a.Evicted(at(3), "h2", 0))
	step(t, a, 3)
	require.Len(t, a.AppendJobs(nil, gang.Held), 1, "w, on the node that is left")
}

// F5. Adopt that fails has not forgotten the job of that name that left.
func TestAFailedAdoptChangesNothing(t *testing.T) {
	q := &moody{ledger: newLedger(9)}
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{Quota: q})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	require.NoError(t, a.Cancel(at(0), "a"))
	before := saved(t, a)
	q.charge = true
	g := plain("a", 1, 0)
	err := a.Adopt(at(1), &lockstep.Plan{Job: "a", Gang: g, Members: []lockstep.Member{{Node: "n0", Devices: 1}}}, at(0))
	require.ErrorIs(t, err, errMoody)
	require.Equal(t, before, saved(t, a))
}

// F6. Adopt keeps to the roles' Min and Limit, as every room does.
func TestAdoptRefusesCountsOutsideTheRoles(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 4, 0), gang.Config{})
	g := plain("a", 2, 0)
	for _, n := range []int{1, 3} {
		plan := &lockstep.Plan{Job: "a", Gang: g}
		for i := range n {
			plan.Members = append(plan.Members, lockstep.Member{Node: "n0", Devices: 1 << i})
		}
		require.ErrorIs(t, a.Adopt(at(0), plan, at(0)), lockstep.ErrInvalid, n)
	}
}

// F7. Names that a snapshot could not carry are refused, as node names are
// elsewhere.
func TestNamesInWindowsAndRefusalsAreNames(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{})
	for _, w := range []gang.Window{
		{Name: "\xff", Nodes: []lockstep.NodeID{"n0"}, From: at(100), To: at(200)},
		{Name: "\xfe", Nodes: []lockstep.NodeID{"n0"}, From: at(100), To: at(200)},
		{Name: "w", Nodes: []lockstep.NodeID{"\xff"}, From: at(1), To: at(2)},
		{Name: "v", Nodes: []lockstep.NodeID{""}, From: at(1), To: at(2)},
	} {
		if err := a.Reserve(at(0), w); err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
	}
	require.NoError(t, a.Submit(at(3), plain("a", 1, 1)))
	step(t, a, 3)
	once := saved(t, a)
	b, err := gang.Restore(gang.Config{Placer: placertest.NewReference(1, 1, 1, 0)}, bytes.NewReader([]byte(once)))
	require.NoError(t, err)
	require.Equal(t, a.AppendWindows(nil), b.AppendWindows(nil))
	require.ErrorIs(t, a.Refuse(at(3), "a", 0, "\xff"), lockstep.ErrInvalid)
}

// F8. Repeating an event that has had its effect is no error. What Evicted says of
// late reports is so: orders of one attempt are not told apart.
func TestARepeatedEvictedIsNoErrorAndNoEffect(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a, o, got := boundary(t, p, ids{"w", "h"}, []*lockstep.Gang{holder("h", 4, 2)}, ids{"h"}, plain("w", 1, 0))
	require.Equal(t, []string{"resize h term"}, summary(got))
	resized := got[0].Attempt
	require.NoError(t, a.Evicted(at(11), "h", resized))
	require.NoError(t, a.Evicted(at(11), "h", resized), "again")
	step(t, a, 11)
	// h is told to leave; then the first report comes once more.
	v := plain("v", 3, 0)
	require.NoError(t, a.Submit(at(20), v))
	require.NoError(t, a.Due(at(20), "h", 0))
	o.list = ids{"v", "h"}
	require.Equal(t, []string{"evict h term"}, summary(step(t, a, 20)))
	require.NotNil(t, a)
	err := a.Evicted(at(21), "h", resized)
	require.NoError(t, err)
	require.Equal(t, []string{"start v"}, summary(step(t, a, 21)), "taken for the report of the eviction")
}

// F9. Holds end by their deadline at the end of time too.
func TestTheEndOfTime(t *testing.T) {
	end := time.Unix(0, math.MaxInt64)
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{})
	require.NoError(t, a.Submit(end.Add(-time.Second), plain("a", 1, 1)))
	_, err := a.Step(end.Add(-time.Second))
	require.NoError(t, err)
	_, err = a.Step(end)
	if err != nil {
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		return
	}
	s, _ := a.State("a")
	require.False(t, s.Phase == gang.Held && !s.Deadline.After(end), "%+v", s)
	require.NoError(t, a.Submit(end, plain("b", 1, 1)))
	_, err = a.Step(end)
	require.NoError(t, err)
	if wake, ok := a.NextWake(end); ok {
		require.False(t, wake.Before(end))
	}
}

// F10. Memory is O(jobs): holds that were confirmed long before their deadline
// leave nothing behind.
func TestMemoryStaysFlatWithLongHolds(t *testing.T) {
	p := placertest.NewReference(1, 1, 1, 0)
	a := admission(t, p, gang.Config{Hold: 30 * 24 * time.Hour, Retain: 4})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run := func(from, to int) {
		for n := from; n < to; n++ {
			id := lockstep.JobID(fmt.Sprintf("j%06d", n))
			require.NoError(t, a.Submit(at(n), plain(id, 1, 1)))
			step(t, a, n)
			require.NoError(t, a.Confirm(at(n), id, 0, 0))
			step(t, a, n)
			require.NoError(t, a.Finish(at(n), id, 0))
		}
	}
	run(0, 500)
	before := heap()
	run(500, 6500)
	require.Less(t, heap(), before+1<<20, "six thousand jobs left")
	runtime.KeepAlive(a)
}

// F11. A time that goes back is refused, whatever the event before had to do.
func TestARepeatedEventTakesNoteOfTheTime(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	require.NoError(t, a.Cancel(at(0), "a"))
	require.NoError(t, a.Cancel(at(100), "a"))
	require.ErrorIs(t, a.Submit(at(50), plain("b", 1, 0)), lockstep.ErrPast)
}

// endless is an Orderer that proposes for ever.
type endless struct{ calls int }

func (o *endless) Begin(time.Time) { o.calls = 0 }
func (o *endless) Next() (lockstep.JobID, bool) {
	o.calls++
	return "a", o.calls < 1_000_000
}
func (o *endless) Outcome(lockstep.JobID, lockstep.Outcome) {}

// F12. A pass ends, whatever the orderer proposes.
func TestAPassEndsWhateverTheOrdererProposes(t *testing.T) {
	o := &endless{}
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{Orderer: o})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	require.NoError(t, a.Submit(at(0), plain("b", 1, 0)))
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 0)))
	require.Less(t, o.calls, 1000)
}

// F13. A due holder does not stay in a window: to call it due is what the
// documentation of Window offers.
func TestADueHolderLeavesTheWindow(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		p := placertest.NewReference(1, nodes, 1, 0)
		a := admission(t, p, gang.Config{StartAtOnce: true})
		require.NoError(t, a.Submit(at(0), holder("h", 1, 0)))
		step(t, a, 0)
		require.NoError(t, a.Reserve(at(1), gang.Window{Name: "m", Nodes: []lockstep.NodeID{"n0"}, From: at(10), To: at(20)}))
		require.NoError(t, a.Due(at(10), "h", 0))
		got := summary(step(t, a, 10))
		require.Equal(t, []string{[]string{"evict", "move"}[nodes-1] + " h term"}, got)
	}
}

// F14. Quota is not kept for anybody: with a stream of jobs of its own tenant behind
// it a large one waits, and that is for the orderer to change.
func TestQuotaIsNotKeptForTheHead(t *testing.T) {
	w := newWorld(t, placertest.NewReference(1, 4, 2, 0), gang.Config{StartAtOnce: true, Quota: newLedger(4)})
	for n := range 400 {
		id := lockstep.JobID(fmt.Sprintf("s%03d", n))
		w.true[id] = 5 + n%9
		w.submit(n/2, plain(id, 1, 20))
	}
	w.true["big"] = 10
	w.submit(20, plain("big", 4, 20))
	w.run(190)
	require.Empty(t, w.starts["big"])
	e, _ := w.a.Explain("big")
	require.Equal(t, lockstep.ReasonQuota, e.Verdict.Reason)
}

// anyEvent makes up an event, most often a wrong one.
func (w *storm) anyEvent() lockstep.Event {
	r := w.rng
	kinds := []lockstep.EventKind{
		lockstep.EventCancel, lockstep.EventConfirm, lockstep.EventRefuse, lockstep.EventFinish, lockstep.EventFail,
		lockstep.EventEvicted, lockstep.EventDue, lockstep.EventDown, lockstep.EventUp, lockstep.EventCordon, lockstep.EventOpen,
		lockstep.EventSubmit, "odd", "",
	}
	e := lockstep.Event{Kind: kinds[r.IntN(len(kinds))], Time: w.now, Job: w.job(), Node: w.node(), Rank: r.IntN(5) - 1}
	switch r.IntN(6) {
	case 0:
		e.Attempt = lockstep.Attempt(1 + r.IntN(200))
	case 1:
		e.Attempt = w.last[e.Job].Attempt
	case 2:
		e.Node = []lockstep.NodeID{"", "\xff", "elsewhere", "a b"}[r.IntN(4)]
	case 3:
		e.Time = w.now.Add(-time.Duration(r.IntN(2)) * time.Hour)
	case 4:
		e.Time = []time.Time{{}, time.Unix(1<<40, 0), w.now}[r.IntN(3)]
	}
	if e.Kind == lockstep.EventSubmit {
		e.Gang = w.randomGang()
		switch r.IntN(8) {
		case 0:
			e.Gang = nil
		case 1:
			e.Gang.Roles[0].Min = []int{0, -1, math.MaxInt, math.MinInt, lockstep.MaxMembers + 1}[r.IntN(5)]
		case 2:
			e.Gang.Roles[0].Max = -3
		case 3:
			e.Gang.ID = []lockstep.JobID{"", w.job(), "\xff"}[r.IntN(3)]
		case 4:
			e.Gang.Walltime = -1
		case 5:
			e.Gang.Roles = nil
		case 6:
			e.Gang.Roles[0].Min, e.Gang.Roles[0].Max = 1000, 0
		}
	}
	return e
}

// Whatever comes in whatever phase: an error is typed, names a field, and has
// changed nothing; what was accepted may be repeated; looking changes nothing.
func TestWrongEventsInEveryPhaseChangeNothing(t *testing.T) {
	seeds, steps := 24, 150
	if testing.Short() {
		seeds = 8
	}
	failed := map[string]int{}
	for seed := range seeds {
		w := anyStorm(uint64(seed), 0, reference)
		for i := range steps {
			require.NoError(t, w.run(1), "seed %d", seed)
			before := saved(t, w.a)
			e := w.anyEvent()
			stood, _ := w.a.State(e.Job)
			if e.Kind == lockstep.EventFinish || e.Kind == lockstep.EventEvicted || e.Kind == lockstep.EventFail || e.Kind == lockstep.EventSubmit && e.Gang != nil && e.Gang.ID != "" {
				if e.Time.Equal(w.now) {
					e.Attempt += 1 << 40 // a right one would need the truth of the storm
				}
				if e.Kind == lockstep.EventSubmit {
					continue
				}
			}
			err := w.a.Apply(e)
			if err == nil {
				if e.Kind == lockstep.EventDown || e.Kind == lockstep.EventUp || e.Kind == lockstep.EventCordon || e.Kind == lockstep.EventOpen {
					w.closed[e.Node] = 0
					require.NoError(t, w.a.Apply(lockstep.Event{Kind: lockstep.EventUp, Time: e.Time, Node: e.Node}))
					require.NoError(t, w.a.Apply(lockstep.Event{Kind: lockstep.EventOpen, Time: e.Time, Node: e.Node}))
					continue
				}
				require.NoError(t, w.a.Apply(e), "seed %d: %s of one %s, again", seed, e.Kind, stood.Phase)
				continue
			}
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed, "seed %d step %d", seed, i)
			require.NotEmpty(t, typed.Op, err)
			require.NotEmpty(t, typed.Field, err)
			require.True(t, typed.Value != "" || typed.Field == "Gang", "%v", err)
			require.Equal(t, before, saved(t, w.a), "seed %d: %v", seed, err)
			failed[string(e.Kind)+" "+string(stood.Phase)]++
			for _, id := range append(w.a.AppendJobs(nil), "nobody") {
				_, _ = w.a.Explain(id)
				_, _ = w.a.State(id)
				_, _ = forecast(w.a, id)
			}
			_, _ = w.a.NextWake(w.now)
			require.Equal(t, before, saved(t, w.a), "looking")
		}
	}
	require.Greater(t, len(failed), 40, failed)
}

// Submits of every wrong kind, and right ones of a size that nothing can hold.
func TestWrongGangsAreRefused(t *testing.T) {
	w := newStorm(3, 0, reference)
	require.NoError(t, w.run(100))
	for i := range 2000 {
		e := w.anyEvent()
		if e.Kind != lockstep.EventSubmit {
			continue
		}
		before := saved(t, w.a)
		if err := w.a.Apply(e); err != nil {
			require.Equal(t, before, saved(t, w.a), "%d: %v", i, err)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			continue
		}
		require.NoError(t, e.Gang.Validate())
		w.gangs[e.Gang.ID] = e.Gang
		w.jobs = append(w.jobs, e.Gang.ID)
	}
	require.NoError(t, w.step())
	require.NoError(t, w.check())
}

// fickle is a Quota that fails now and then, changing nothing.
type fickle struct {
	*ledger
	w    *storm
	fail float64
}

func (f *fickle) Refund(job lockstep.JobID) error {
	if f.w != nil && f.w.rng.Float64() < f.fail {
		return errFlaky
	}
	return f.ledger.Refund(job)
}

// Quotas that fail to refund break no invariant either.
func TestFailingRefundsBreakNoInvariant(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		w := anyStorm(uint64(seed), 0, reference)
		if w.quota == nil || w.lends != nil {
			continue
		}
		f := &fickle{ledger: w.quota, w: w, fail: 0.05}
		w.cfg.Quota = f
		a, err := gang.New(w.cfg)
		require.NoError(t, err)
		w.a, w.flaky = a, true
		require.NotPanics(t, func() { require.NoError(t, w.run(400), "seed %d", seed) }, "seed %d", seed)
		f.fail, w.flaky = 0, false
		require.NoError(t, w.calm(), "seed %d, calm", seed)
	}
}

// Every single bit of a snapshot counts.
func TestEveryFlippedBitOfASnapshotIsSeen(t *testing.T) {
	w := anyStorm(11, 0, reference)
	require.NoError(t, w.run(40))
	text := []byte(saved(t, w.a))
	for i := range text {
		for _, bit := range []byte{1 << (i % 8)} {
			text[i] ^= bit
			_, err := gang.Restore(w.cfg, bytes.NewReader(text))
			require.ErrorIs(t, err, lockstep.ErrInvalid, "byte %d", i)
			text[i] ^= bit
		}
		_, err := gang.Restore(w.cfg, bytes.NewReader(text[:i]))
		require.ErrorIs(t, err, lockstep.ErrInvalid, "cut at %d", i)
	}
}

// rackWorld is a world over package placement.
func rackWorld(t *testing.T, racks, nodes, devices int, cfg gang.Config) (*world, *placed) {
	t.Helper()
	p := place(racks, nodes, devices).(*placed)
	cfg.Placer = p
	a, err := gang.New(cfg)
	require.NoError(t, err)
	return &world{t: t, a: a, true: map[lockstep.JobID]int{}, starts: map[lockstep.JobID][]int{}}, p
}

// several is a random gang of up to three roles that ask for the same, so that
// package placement is exact, kept in one domain of some level.
func several(r *rand.Rand, n, devices, largest int) *lockstep.Gang {
	g := plain(lockstep.JobID(fmt.Sprintf("j%03d", n)), 1, 1+r.IntN(40))
	g.Roles = nil
	demand := lockstep.Demand{GPUs: 1 + r.IntN(devices)}
	if r.IntN(2) == 0 {
		demand.GPUs = 1
	}
	for i := range 1 + r.IntN(3) {
		g.Roles = append(g.Roles, lockstep.Role{Name: lockstep.RoleName(fmt.Sprintf("r%d", i)), Min: 1 + r.IntN(max(1, largest/demand.GPUs/3)), Demand: demand})
	}
	g.Required = []lockstep.Level{"", placertest.Rack, lockstep.LevelNode}[r.IntN(3)]
	g.Priority = lockstep.Priority(r.IntN(2))
	return g
}

// On package placement, with gangs of several roles kept in racks and nodes, and
// maintenance windows: whoever is promised a start has it by then, nobody runs
// into a window, and everybody who fits alone starts.
func TestPromisesOnPlacementAreKept(t *testing.T) {
	seeds := 120
	if testing.Short() {
		seeds = 25
	}
	kept, late := 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		racks, nodes, devices := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(4)
		cfg := gang.Config{StartAtOnce: seed%3 != 0, Hold: 2 * time.Second}
		if seed%4 == 1 {
			cfg.Backfill = gang.Conservative
		}
		w, p := rackWorld(t, racks, nodes, devices, cfg)
		prios := seed%2 == 0
		for n := range 35 {
			g := several(r, n, devices, racks*nodes*devices)
			if !prios {
				g.Priority = 0
			}
			w.submit(r.IntN(100), g)
		}
		windows := map[lockstep.NodeID][][2]int{}
		if seed%5 == 2 {
			for i := range 3 {
				node, from := p.nodes[r.IntN(len(p.nodes))], 20+r.IntN(80)
				windows[node] = append(windows[node], [2]int{from, from + 15})
				require.NoError(t, w.a.Reserve(at(0), gang.Window{Name: fmt.Sprint(i), Nodes: []lockstep.NodeID{node}, From: at(from), To: at(from + 15)}))
			}
		}
		promised := map[lockstep.JobID]int{}
		for second := range 160 {
			w.run(second)
			for _, id := range w.a.AppendJobs(nil, gang.Queued) {
				if start, ok := forecast(w.a, id); ok && !prios {
					if _, known := promised[id]; !known {
						promised[id] = seconds(start)
					}
				}
			}
		}
		w.run(1 << 20)
		for id, s := range promised {
			require.Len(t, w.starts[id], 1, "seed %d: %s", seed, id)
			require.LessOrEqual(t, w.starts[id][0], s, "seed %d: %s was promised %d", seed, id, s)
			if w.starts[id][0] == s {
				late++
			}
			kept++
		}
		for _, x := range w.log {
			if x.Kind != lockstep.ActionStart {
				continue
			}
			from := seconds(x.Time)
			to := from + int(x.Plan.Gang.Walltime/time.Second)
			for _, m := range x.Plan.Members {
				for _, win := range windows[m.Node] {
					require.False(t, from < win[1] && win[0] < to, "seed %d: %s runs %d-%d into %v", seed, x.Job, from, to, win)
				}
			}
		}
		for _, id := range w.a.AppendJobs(nil, gang.Queued) {
			s, _ := w.a.State(id)
			e, _ := w.a.Explain(id)
			text := e.String()
			require.True(t, s.Verdict.Reason == lockstep.ReasonCapacity || strings.Contains(text, "would not fit"), "seed %d: %s never starts: %s", seed, id, text)
		}
	}
	t.Logf("%d promises kept, %d of them to the second", kept, late)
	require.NotZero(t, kept)
}

// Nobody is stopped without need: where one of the victims had not been due, the
// newcomer would not have got in with the others.
func TestVictimsAreMinimal(t *testing.T) {
	seeds := 1500
	if testing.Short() {
		seeds = 300
	}
	checked := 0
	for seed := range seeds {
		try := func(spare lockstep.JobID) (victims []lockstep.JobID, granted bool) {
			r := rand.New(rand.NewPCG(uint64(seed), 31))
			p := placertest.NewReference(1+r.IntN(2), 2+r.IntN(2), 1+r.IntN(2), 0)
			o := &listed{}
			a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
			for n := range 8 {
				g := holder(lockstep.JobID(fmt.Sprintf("h%d", n)), 1+r.IntN(3), 0)
				g.Priority = lockstep.Priority(r.IntN(2))
				require.NoError(t, a.Submit(at(n), g))
				o.list = ids{g.ID}
				step(t, a, n)
			}
			running := a.AppendJobs(nil, gang.Running)
			require.NoError(t, cancelAll(a, 9))
			w := plain("w", 1+r.IntN(6), 0)
			w.Required = []lockstep.Level{"", placertest.Rack}[r.IntN(2)]
			require.NoError(t, a.Submit(at(10), w))
			for _, id := range running {
				if r.IntN(4) > 0 && id != spare {
					require.NoError(t, a.Due(at(10), id, 0))
				}
			}
			o.list = ids{"w"} // the displaced displace nobody in their turn
			for _, x := range step(t, a, 10) {
				if x.Eviction != nil && x.Eviction.For == "w" { // not for one of the victims, in its turn
					victims = append(victims, x.Job)
				}
			}
			return victims, phase(a, "w") != gang.Queued
		}
		victims, granted := try("")
		if !granted || len(victims) < 2 {
			continue
		}
		checked++
		for _, v := range victims {
			others, still := try(v)
			require.False(t, still && len(others) < len(victims) && subset(others, victims), "seed %d: %v lose something, where %v would do", seed, victims, others)
		}
	}
	t.Logf("%d boundaries with two victims or more", checked)
	require.NotZero(t, checked)
}

func cancelAll(a *gang.Admission, second int) error {
	for _, id := range a.AppendJobs(nil, gang.Queued) {
		if err := a.Cancel(at(second), id); err != nil {
			return err
		}
	}
	return nil
}

func subset(small, large []lockstep.JobID) bool {
	for _, id := range small {
		if !slices.Contains(large, id) {
			return false
		}
	}
	return true
}

// With one order, nobody new and nobody leaving, boundaries come to rest: after
// a few of them all they decide is to extend.
func TestBoundariesComeToRest(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 80
	}
	for seed := range seeds {
		for _, real := range []bool{false, true} {
			r := rand.New(rand.NewPCG(uint64(seed), 41))
			racks, nodes, devices := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(4)
			var p cluster = reference(racks, nodes, devices)
			if real {
				p = place(racks, nodes, devices)
			}
			o := &listed{}
			cfg := gang.Config{StartAtOnce: true, Orderer: o}
			if r.IntN(2) == 0 {
				cfg.Quota = newLedger(1 + r.IntN(racks*nodes*devices))
			}
			if r.IntN(3) == 0 {
				cfg.Orderer = nil
			}
			a := admission(t, p, cfg)
			for n := range 7 {
				id := lockstep.JobID(fmt.Sprintf("j%d", n))
				g := holder(id, 1+r.IntN(5), 0)
				if r.IntN(2) == 0 {
					g.Roles[0].Max = g.Roles[0].Min + r.IntN(4)
					g.Capabilities.Resizable = true
				}
				if r.IntN(4) == 0 {
					g.Capabilities.Preemptible = false
				}
				g.Required = []lockstep.Level{"", placertest.Rack}[r.IntN(2)]
				if r.IntN(3) == 0 {
					g.Strategy = lockstep.Spread
				}
				require.NoError(t, a.Submit(at(0), g))
				o.list = append(o.list, id)
			}
			step(t, a, 0)
			r.Shuffle(len(o.list), func(i, k int) { o.list[i], o.list[k] = o.list[k], o.list[i] })
			var last []string
			for round := range 12 {
				now := 10 * (round + 1)
				for _, id := range a.AppendJobs(nil, gang.Running) {
					require.NoError(t, a.Due(at(now), id, 0))
				}
				last = nil
				for range 20 {
					actions := step(t, a, now)
					if len(actions) == 0 {
						break
					}
					for _, x := range actions {
						if x.Kind != lockstep.ActionExtend {
							last = append(last, fmt.Sprint(x.Kind, " ", x.Job, " ", x.Plan != nil && len(x.Plan.Members) > 0))
						}
					}
					for _, id := range a.AppendJobs(nil, gang.Leaving, gang.Moving, gang.Resizing) {
						require.NoError(t, a.Evicted(at(now), id, 0))
					}
				}
			}
			require.Empty(t, last, "seed %d real %v", seed, real)
		}
	}
}

// H16, at random: small jobs come for ever behind it, faster than they end, with
// and without estimates, true and false ones, elastic and called due again and
// again, with slow confirmations, lost nodes and few attempts a pass. The gang at
// the head starts in bounded time.
func TestNobodyBehindStarvesTheHead(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	worst := 0
	for seed := range seeds {
		for _, real := range []bool{false, true} {
			r := rand.New(rand.NewPCG(uint64(seed), 51))
			racks, nodes, devices := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3)
			cfg := gang.Config{StartAtOnce: r.IntN(2) == 0, Hold: 4 * time.Second, Backoff: time.Second}
			cfg.Backfill = []gang.Backfill{gang.EASY, gang.Conservative, 3, gang.Strict}[r.IntN(4)]
			if r.IntN(3) == 0 {
				cfg.MaxAttempts = 1 + r.IntN(3)
			}
			var w *world
			if real {
				w, _ = rackWorld(t, racks, nodes, devices, cfg)
			} else {
				w = newWorld(t, placertest.NewReference(racks, nodes, devices, 0), cfg)
			}
			total := racks * nodes * devices
			w.linger = r.IntN(3)
			estimate, elastic, due := r.IntN(3), r.IntN(2) == 0, r.IntN(2) == 0
			for n := range 60 * max(1, total/4) {
				id := lockstep.JobID(fmt.Sprintf("s%04d", n))
				w.true[id] = 1 + r.IntN(12)
				wall := 0
				switch estimate {
				case 1:
					wall = w.true[id]
				case 2:
					wall = 1 + r.IntN(12)
				}
				g := plain(id, 1+r.IntN(min(2, total)), wall)
				g.Capabilities = lockstep.Capabilities{Preemptible: elastic, Resizable: elastic}
				if elastic {
					g.Roles[0].Max = g.Roles[0].Min + r.IntN(2)
				}
				second := n / max(1, total/4)
				w.submit(second, g)
				if due && second > 3 {
					w.at(second+2, lockstep.Event{Kind: lockstep.EventDue, Job: id})
				}
			}
			head := plain("head", 1+r.IntN(total), []int{0, 10, 1000}[r.IntN(3)])
			head.Priority = 1
			head.Required = []lockstep.Level{"", placertest.Rack}[r.IntN(2)]
			if head.Required != "" {
				head.Roles[0].Min = 1 + r.IntN(nodes*devices)
			}
			w.true["head"] = 10
			w.submit(10, head)
			for second := range 58 {
				w.runLoose(second)
			}
			require.NotEmpty(t, w.starts["head"], "seed %d real %v: %d of %d", seed, real, head.Roles[0].Min, total)
			worst = max(worst, w.starts["head"][0]-10)
		}
	}
	t.Logf("the longest wait was %d s", worst)
}

// runLoose is run for worlds in which events come too early or too late.
func (w *world) runLoose(until int) {
	kept := w.events[:0]
	for _, h := range w.events {
		if h.event.Kind == lockstep.EventDue && h.at <= until {
			if w.phase(h.event.Job) == gang.Running {
				_ = w.a.Due(at(w.now), h.event.Job, 0)
			}
			continue
		}
		kept = append(kept, h)
	}
	w.events = kept
	w.run(until)
}

// A holder that must shrink, for quota or for another, goes on where it sits:
// on both placers the members that stay are members it had, in their order.
func TestWhoShrinksStaysInPlace(t *testing.T) {
	for _, real := range []bool{false, true} {
		for _, strategy := range []lockstep.Strategy{lockstep.Pack, lockstep.Spread} {
			for _, inner := range []int{0, 2} {
				var p cluster = reference(2, 2, 4)
				if real {
					p = place(2, 2, 4)
				}
				q := newLedger(16)
				a := admission(t, p, gang.Config{StartAtOnce: true, Quota: q})
				h := holder("h", 8, 2)
				h.Strategy = strategy
				h.Roles[0].Inner.Size = inner
				require.NoError(t, a.Submit(at(0), h))
				step(t, a, 0)
				before, _ := a.State("h")
				q.limit = 4
				require.NoError(t, a.Due(at(1), "h", 0))
				got := step(t, a, 1)
				name := fmt.Sprintf("real %v strategy %q inner %d", real, strategy, inner)
				require.Equal(t, []string{"resize h term"}, summary(got), name)
				after, _ := a.State("h")
				require.Len(t, after.Plan.Members, 2, name)
				require.Subset(t, before.Plan.Members, after.Plan.Members, name)
				for rank := range after.Plan.Members {
					env, err := after.Plan.Env(rank)
					require.NoError(t, err)
					require.Contains(t, env, "WORLD_SIZE=2")
				}
				require.NoError(t, a.Evicted(at(2), "h", 0))
				q.limit = 16
				require.NoError(t, a.Due(at(3), "h", 0))
				require.Equal(t, []string{"extend h", "resize h term"}, summary(step(t, a, 3)), name)
				grown, _ := a.State("h")
				require.Len(t, grown.Plan.Members, 8, name)
				require.Equal(t, 8, q.used[""], name)
			}
		}
	}
}

// Every started plan can be run as it says: ranks, nodes, devices and hostfile
// agree, and no device is in it twice.
func TestStartedPlansCanBeRun(t *testing.T) {
	w, p := rackWorld(t, 3, 3, 4, gang.Config{StartAtOnce: true})
	r := rand.New(rand.NewPCG(5, 61))
	for n := range 60 {
		w.submit(r.IntN(60), several(r, n, 4, 20))
	}
	w.run(400)
	started := 0
	for _, x := range w.log {
		if x.Kind != lockstep.ActionStart {
			continue
		}
		started++
		taken := map[lockstep.NodeID]lockstep.DeviceSet{}
		lines := map[lockstep.NodeID]int{}
		for rank, m := range x.Plan.Members {
			require.Zero(t, taken[m.Node]&m.Devices)
			taken[m.Node] |= m.Devices
			lines[m.Node]++
			role := x.Plan.Gang.Roles[m.Role]
			require.Equal(t, role.Demand.GPUs, m.Devices.Len())
			env, err := x.Plan.Env(rank)
			require.NoError(t, err)
			require.Contains(t, env, fmt.Sprintf("RANK=%d", rank))
			require.Contains(t, env, fmt.Sprintf("WORLD_SIZE=%d", len(x.Plan.Members)))
			require.Contains(t, env, fmt.Sprintf("NNODES=%d", x.Plan.NodeCount()))
			require.Contains(t, env, "MASTER_ADDR="+string(x.Plan.Members[0].Node))
			require.Contains(t, env, "LOCKSTEP_ROLE="+string(role.Name))
		}
		hosts := strings.Split(strings.TrimSpace(x.Plan.Hostfile()), "\n")
		require.Len(t, hosts, len(lines))
		for _, line := range hosts {
			var node string
			var slots int
			_, err := fmt.Sscanf(line, "%s slots=%d", &node, &slots)
			require.NoError(t, err)
			require.Equal(t, lines[lockstep.NodeID(node)], slots)
		}
	}
	require.Greater(t, started, 40)
	require.Empty(t, p.Jobs(), "all of it came back")
}

// The deadline itself is too late, a nanosecond before it is not; a hold that
// lost its only room within its deadline is given back whole.
func TestTheDeadlineToTheNanosecond(t *testing.T) {
	for _, early := range []time.Duration{0, 1} {
		p := placertest.NewReference(1, 2, 1, 0)
		a := admission(t, p, gang.Config{Hold: 10 * time.Second})
		require.NoError(t, a.Submit(at(0), plain("a", 2, 0)))
		got := step(t, a, 0)
		now := got[0].Deadline.Add(-early)
		require.NoError(t, a.Confirm(at(1), "a", 0, 0))
		err := a.Confirm(now, "a", 0, 1)
		actions, stepErr := a.Step(got[0].Deadline)
		require.NoError(t, stepErr)
		if early > 0 {
			require.NoError(t, err)
			require.Equal(t, []string{"start a"}, summary(actions))
		} else {
			require.ErrorIs(t, err, lockstep.ErrStale)
			require.Equal(t, []string{"release a lapsed"}, summary(actions))
			require.Empty(t, p.Jobs())
		}
	}
}

// A gang that refuses every node waits without keeping anything from anybody,
// and is tried again when the first refusal ends.
func TestRefusingEveryNodeBlocksNobody(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 3, 1, 0), gang.Config{Hold: 100 * time.Second, Exclude: 20 * time.Second})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	for i := range 3 {
		got := step(t, a, i)
		require.Equal(t, []string{"reserve a"}, summary(got), i)
		require.NoError(t, a.Refuse(at(i), "a", got[0].Attempt, got[0].Plan.Members[0].Node))
	}
	require.Equal(t, []string{"release a refused"}, summary(step(t, a, 3)))
	require.NoError(t, a.Submit(at(4), plain("b", 3, 0)))
	require.Equal(t, []string{"reserve b"}, summary(step(t, a, 4)))
	require.NoError(t, a.Cancel(at(5), "b"))
	step(t, a, 5)
	wake, ok := a.NextWake(at(6))
	require.True(t, ok)
	require.Equal(t, at(20), wake)
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 20)))
}

// A gang that is larger than the cluster, or than any domain of its level, never
// starts, keeps nothing, and blocks nobody, on package placement with all kinds of
// backfill.
func TestTheImpossibleBlocksNobodyOnPlacement(t *testing.T) {
	for _, backfill := range []gang.Backfill{gang.EASY, gang.Strict, gang.Conservative} {
		w, p := rackWorld(t, 2, 2, 4, gang.Config{StartAtOnce: true, Backfill: backfill})
		huge := plain("a-huge", lockstep.MaxMembers, 0)
		rack := plain("b-rack", 9, 10)
		rack.Required = placertest.Rack
		fat := plain("c-fat", 1, 10)
		fat.Roles[0].Demand.GPUs = 5
		two := plain("d-two", 8, 10)
		two.Required = placertest.Rack
		two.Roles[0].Name = "x"
		two.Roles = append(two.Roles, lockstep.Role{Name: "y", Min: 1, Demand: lockstep.Demand{GPUs: 1}})
		busy := plain("e-busy", 10, 50)
		w.submit(0, huge, rack, fat, two, busy)
		for n := range 20 {
			w.submit(n, plain(lockstep.JobID(fmt.Sprintf("s%02d", n)), 2, 3))
		}
		w.run(300)
		require.Empty(t, p.Jobs())
		for _, id := range []lockstep.JobID{"a-huge", "b-rack", "c-fat", "d-two"} {
			require.Equal(t, gang.Queued, w.phase(id), id)
			_, promised := forecast(w.a, id)
			require.False(t, promised, id)
			e, _ := w.a.Explain(id)
			require.True(t, e.Verdict.Reason == lockstep.ReasonCapacity || strings.Contains(e.String(), "would not fit if everybody left"), "%s: %s", id, e)
		}
		for n := range 20 {
			require.Len(t, w.starts[lockstep.JobID(fmt.Sprintf("s%02d", n))], 1, "backfill %d", backfill)
		}
		_, wakes := w.a.NextWake(at(300))
		require.False(t, wakes)
	}
}

// F16. Promises made to those behind do not hold up the head when estimates turn
// out too short: it starts no later than it would if only it had a promise.
func TestPromisesBehindTheHeadDoNotHoldItUp(t *testing.T) {
	var starts []int
	for _, backfill := range []gang.Backfill{gang.EASY, 2, gang.Conservative} {
		w := newWorld(t, placertest.NewReference(1, 1, 2, 0), gang.Config{StartAtOnce: true, Backfill: backfill})
		for n := range 100 {
			id := lockstep.JobID(fmt.Sprintf("s%04d", n))
			w.true[id] = 5
			w.submit(n, plain(id, 1, 3))
		}
		head := plain("head", 2, 10)
		head.Priority = 1
		w.submit(10, head)
		w.run(60)
		require.Len(t, w.starts["head"], 1)
		starts = append(starts, w.starts["head"][0])
	}
	require.Equal(t, []int{11, 11, 11}, starts)
}

// With a placer that does not know the jobs of a snapshot, calls fail; they do
// not panic and start nothing.
func TestRestoreBesideAnotherPlacerStartsNothing(t *testing.T) {
	for seed := range 12 {
		w := anyStorm(uint64(seed), 0, reference)
		require.NoError(t, w.run(80))
		cfg := w.cfg
		cfg.Placer = reference(1, 1, 1)
		cfg.Quota = newLedger(1)
		a, err := gang.Restore(cfg, strings.NewReader(saved(t, w.a)))
		require.NoError(t, err)
		require.NotPanics(t, func() {
			for i := range 5 {
				now := w.now.Add(time.Duration(i) * time.Hour)
				_, _ = a.Step(now)
				for _, id := range a.AppendJobs(nil) {
					_ = a.Finish(now, id, 0)
					_ = a.Evicted(now, id, 0)
					_ = a.Due(now, id, 0)
					_, _ = a.Explain(id)
				}
				_ = a.Down(now, "n0")
				_, _ = a.NextWake(now)
			}
		})
	}
}

// F19. Nobody grows into a window, also not a holder that outstayed its estimate.
func TestNobodyGrowsIntoAWindow(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	h := holder("h", 2, 1)
	h.Walltime = 20 * time.Second
	require.NoError(t, a.Submit(at(0), plain("a", 1, 5)))
	require.NoError(t, a.Submit(at(0), h))
	step(t, a, 0)
	require.NoError(t, a.Finish(at(5), "a", 0))
	require.NoError(t, a.Reserve(at(5), gang.Window{Name: "m", Nodes: []lockstep.NodeID{"n0"}, From: at(25), To: at(40)}))
	require.NoError(t, a.Due(at(30), "h", 0))
	require.Equal(t, []string{"extend h"}, summary(step(t, a, 30)), "n0 is in its window")
	require.NoError(t, a.Due(at(40), "h", 0))
	require.Equal(t, []string{"extend h", "resize h term"}, summary(step(t, a, 40)))
}

// F20. A gang for which the placer fails again and again does not keep everybody
// else from starting.
func TestOneGangThatFailsStopsNobodyElse(t *testing.T) {
	p := &broken{cluster: reference(1, 4, 1)}
	p.fail = func(call string, job lockstep.JobID) bool { return call == "fit" && job == "a-bad" }
	a := admission(t, p, gang.Config{StartAtOnce: true})
	require.NoError(t, a.Submit(at(0), plain("a-bad", 1, 1)))
	require.NoError(t, a.Submit(at(0), plain("b", 1, 1)))
	for i := range 5 {
		_, err := a.Step(at(i))
		require.ErrorIs(t, err, errFlaky)
	}
	require.Equal(t, gang.Running, phase(a, "b"))
}
