package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func newMachine(t testing.TB, cfg Config) *Machine {
	t.Helper()
	m, err := New(cfg)
	require.NoError(t, err)
	return m
}

func apply(t testing.TB, m *Machine, events ...Event) []Step {
	t.Helper()
	var steps []Step
	for i := range events {
		if events[i].Job == "" && events[i].Move != MoveTick {
			events[i].Job = "a"
		}
		var err error
		steps, err = m.Apply(steps, &events[i])
		require.NoError(t, err, "%+v", events[i])
	}
	return steps
}

// path returns the states that a job passed through.
func path(steps []Step) string {
	var s []string
	for _, x := range steps {
		if x.From != x.To {
			s = append(s, string(x.To))
		}
	}
	return strings.Join(s, " ")
}

// running brings job a to Running at d, with 8 devices.
func running(t testing.TB, m *Machine, d time.Duration) {
	t.Helper()
	apply(t, m,
		Event{Move: MoveSubmit, Time: at(d)}, Event{Move: MoveReserve, Time: at(d), GPUs: 8000},
		Event{Move: MoveStart, Time: at(d)}, Event{Move: MoveRun, Time: at(d)})
}

// TestLegalIsTheTable spells the table of legal moves out once more.
func TestLegalIsTheTable(t *testing.T) {
	table := map[State]string{
		Held: "queued", Queued: "admitted held cancelled deadline-exceeded", Admitted: "reserving queued",
		Reserving: "starting queued", Starting: "running draining lost", Running: "draining lost cleaning",
		Draining: "cleaning", Lost: "running cleaning", Suspended: "queued", Backoff: "queued",
		Cleaning: "succeeded failed cancelled deadline-exceeded suspended backoff queued",
	}
	legal := 0
	for _, from := range States() {
		for _, to := range States() {
			want := slices.Contains(strings.Fields(table[from]), string(to))
			require.Equal(t, want, Legal(from, to), "%s to %s", from, to)
			if want {
				legal++
			}
		}
		require.Equal(t, table[from] == "", from.Terminal())
	}
	require.Equal(t, 27, legal)
	require.False(t, Legal("nonsense", Queued))
}

// TestEveryMoveFromEveryState applies each move in each state: it is refused
// and changes nothing, or makes legal steps only.
func TestEveryMoveFromEveryState(t *testing.T) {
	moves := []Move{
		MoveHold, MoveQueue, MoveAdmit, MoveReserve, MoveReturn, MoveStart, MoveRun, MoveExtend, MoveSave, MoveSaved,
		MoveResize, MoveResized, MoveDrain, MoveLose, MoveExit, MoveFence, MoveClean, MoveCancel, MoveTick, "nonsense",
	}
	for _, state := range States() {
		for _, move := range moves {
			m := newMachine(t, Config{})
			into(t, m, state)
			before := save(t, m)
			e := Event{Move: move, Time: at(time.Second), Job: "a", GPUs: 1000, Cause: CausePreempt}
			steps, err := m.Apply(nil, &e)
			if err != nil {
				kind := lockstep.ErrConflict
				if move == "nonsense" {
					kind = lockstep.ErrInvalid
				}
				require.ErrorIs(t, err, kind, "%s in %s", move, state)
				require.False(t, move == MoveCancel && !state.Terminal(), "what is not over can be cancelled")
				require.Equal(t, before, save(t, m))
				continue
			}
			require.True(t, move == MoveTick || move.allowed(state))
			legal(t, steps)
		}
	}
}

func legal(t testing.TB, steps []Step) {
	t.Helper()
	for _, s := range steps {
		if s.From != s.To && s.From != "" {
			require.True(t, Legal(s.From, s.To), "%s to %s by %s", s.From, s.To, s.Move)
		}
	}
}

// into brings job a into a state at t0.
func into(t testing.TB, m *Machine, s State) {
	t.Helper()
	apply(t, m, Event{Move: MoveSubmit, Time: t0})
	drained := func(cause Cause, exit Exit) []Event {
		return []Event{
			{Move: MoveReserve, Time: t0, GPUs: 8000},
			{Move: MoveStart, Time: t0},
			{Move: MoveRun, Time: t0},
			{Move: MoveDrain, Time: t0, Cause: cause},
			{Move: MoveExit, Time: t0, Exit: exit},
			{Move: MoveClean, Time: t0},
		}
	}
	events := map[State][]Event{
		Held:      {{Move: MoveHold, Time: t0}},
		Admitted:  {{Move: MoveAdmit, Time: t0}},
		Reserving: drained("", Exit{})[:1], Starting: drained("", Exit{})[:2], Running: drained("", Exit{})[:3],
		Draining: drained(CausePreempt, Exit{})[:4], Cleaning: drained(CausePreempt, Exit{})[:5],
		Lost:      append(drained("", Exit{})[:3:3], Event{Move: MoveLose, Time: t0}),
		Suspended: drained(CauseSuspend, Exit{}), Backoff: drained(CauseInfra, Exit{}), Cancelled: drained(CauseCancel, Exit{}),
		Failed:           append(drained("", Exit{})[:3:3], Event{Move: MoveExit, Time: t0, Exit: Exit{Code: 127}}, Event{Move: MoveClean, Time: t0}),
		Succeeded:        drained(CausePreempt, Exit{Done: true}),
		DeadlineExceeded: drained(CauseDeadline, Exit{}),
	}[s]
	apply(t, m, events...)
	j, ok := m.Job("a")
	require.True(t, ok)
	require.Equal(t, s, j.State)
}

// TestActionsAndEventsMapToLegalMoves maps every kind of action that a gang
// scheduler decides, and every kind of event, from each state it can come in.
func TestActionsAndEventsMapToLegalMoves(t *testing.T) {
	gang := &lockstep.Gang{ID: "a", Roles: []lockstep.Role{{Min: 1, Max: 4, Demand: lockstep.Demand{GPUs: 4}}}}
	plan := &lockstep.Plan{Job: "a", Gang: gang, Members: []lockstep.Member{{Node: "n0"}}}
	wide := &lockstep.Plan{Job: "a", Gang: gang, Members: make([]lockstep.Member, 4)}
	bare := &lockstep.Plan{Job: "a", Members: []lockstep.Member{{Node: "n0", Devices: 0xff}}}
	evict := &lockstep.Eviction{Job: "a", Grace: time.Minute}
	now := at(time.Second)
	tests := []struct {
		from   State
		action lockstep.Action
		moves  string
		to     State
		gpus   lockstep.MilliGPU
	}{
		{Queued, lockstep.Action{Kind: lockstep.ActionReserve, Plan: plan, Deadline: at(time.Minute), Attempt: 9}, "reserve", Reserving, 4000},
		{Admitted, lockstep.Action{Kind: lockstep.ActionReserve, Plan: bare}, "reserve", Reserving, 8000},
		{Backoff, lockstep.Action{Kind: lockstep.ActionReserve, Plan: plan}, "queue reserve", Reserving, 4000},
		{Reserving, lockstep.Action{Kind: lockstep.ActionStart, Plan: plan, Attempt: 1}, "start run", Running, 8000},
		{Queued, lockstep.Action{Kind: lockstep.ActionStart, Plan: plan, Attempt: 5}, "reserve start run", Running, 4000},
		{Reserving, lockstep.Action{Kind: lockstep.ActionReserve, Plan: plan, Attempt: 5}, "return reserve", Reserving, 4000},
		{Reserving, lockstep.Action{Kind: lockstep.ActionRelease}, "return", Queued, 0},
		{Cancelled, lockstep.Action{Kind: lockstep.ActionRelease}, "", Cancelled, 0},
		{Running, lockstep.Action{Kind: lockstep.ActionExtend, Plan: plan}, "extend", Running, 8000},
		{Running, lockstep.Action{Kind: lockstep.ActionEvict, Eviction: evict}, "drain", Draining, 8000},
		{Draining, lockstep.Action{Kind: lockstep.ActionEvict, Eviction: evict}, "", Draining, 8000},
		{Running, lockstep.Action{Kind: lockstep.ActionResize, Plan: wide}, "resize", Running, 16000},
		{Running, lockstep.Action{Kind: lockstep.ActionResize, Plan: plan, Eviction: evict}, "resize", Running, 8000},
		{Running, lockstep.Action{Kind: lockstep.ActionMove, Plan: plan, Eviction: evict}, "drain", Draining, 8000},
		{Queued, lockstep.Action{Kind: lockstep.ActionReject}, "hold", Held, 0},
		{Reserving, lockstep.Action{Kind: lockstep.ActionReject}, "hold", Held, 0},
	}
	kinds := make(map[lockstep.ActionKind]bool)
	for _, tt := range tests {
		t.Run(string(tt.action.Kind)+" in "+string(tt.from), func(t *testing.T) {
			kinds[tt.action.Kind] = true
			m := newMachine(t, Config{})
			into(t, m, tt.from)
			tt.action.Time, tt.action.Job = now, "a"
			check(t, m, m.ForAction(nil, &tt.action), tt.moves, tt.to, tt.gpus)
		})
	}
	require.Len(t, kinds, 8)
	events := []struct {
		from  State
		event lockstep.Event
		moves string
		to    State
		gpus  lockstep.MilliGPU
	}{
		{Running, lockstep.Event{Kind: lockstep.EventCancel}, "cancel", Draining, 8000},
		{Queued, lockstep.Event{Kind: lockstep.EventCancel}, "cancel", Cancelled, 0},
		{Reserving, lockstep.Event{Kind: lockstep.EventConfirm}, "", Reserving, 8000},
		{Reserving, lockstep.Event{Kind: lockstep.EventRefuse}, "", Reserving, 8000},
		{Running, lockstep.Event{Kind: lockstep.EventFinish, Attempt: 1}, "exit clean", Succeeded, 0},
		{Draining, lockstep.Event{Kind: lockstep.EventFinish}, "exit clean", Succeeded, 0},
		{Cleaning, lockstep.Event{Kind: lockstep.EventFinish}, "clean", Queued, 0},
		{Running, lockstep.Event{Kind: lockstep.EventFail}, "exit clean", Backoff, 0},
		{Running, lockstep.Event{Kind: lockstep.EventFail, Reason: lockstep.ReasonUnhealthy}, "exit clean", Backoff, 0},
		{Lost, lockstep.Event{Kind: lockstep.EventFail, Reason: "memory"}, "exit clean", Held, 0},
		{Draining, lockstep.Event{Kind: lockstep.EventEvicted}, "exit clean", Queued, 0},
		{Running, lockstep.Event{Kind: lockstep.EventDue}, "", Running, 8000},
		{Cancelled, lockstep.Event{Kind: lockstep.EventCancel}, "", Cancelled, 0},
		{Succeeded, lockstep.Event{Kind: lockstep.EventFinish}, "", Succeeded, 0},
		{Reserving, lockstep.Event{Kind: lockstep.EventFail}, "hold", Held, 0},
		{Running, lockstep.Event{Kind: lockstep.EventEvicted}, "", Running, 8000},
		{Lost, lockstep.Event{Kind: lockstep.EventEvicted}, "exit clean", Backoff, 0},
		{Backoff, lockstep.Event{Kind: lockstep.EventEvicted}, "", Backoff, 0},
		{Running, lockstep.Event{Kind: lockstep.EventDown, Node: "n0"}, "lose", Lost, 8000},
		{Queued, lockstep.Event{Kind: lockstep.EventDown, Node: "n0"}, "", Queued, 0},
		{Running, lockstep.Event{Kind: lockstep.EventUp}, "", Running, 8000},
		{Running, lockstep.Event{Kind: lockstep.EventCordon}, "", Running, 8000},
		{Running, lockstep.Event{Kind: lockstep.EventOpen}, "", Running, 8000},
	}
	seen := map[lockstep.EventKind]bool{lockstep.EventSubmit: true}
	for _, tt := range events {
		t.Run(string(tt.event.Kind)+" in "+string(tt.from), func(t *testing.T) {
			seen[tt.event.Kind] = true
			m := newMachine(t, Config{})
			into(t, m, tt.from)
			tt.event.Time, tt.event.Job = now, "a"
			check(t, m, m.ForEvent(nil, &tt.event), tt.moves, tt.to, tt.gpus)
		})
	}
	require.Len(t, seen, 12)
	t.Run("submit", func(t *testing.T) {
		m := newMachine(t, Config{})
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: gang}), "submit", Queued, 0)
		require.Empty(t, m.ForAction(nil, &lockstep.Action{Kind: lockstep.ActionStart, Job: "unknown"}))
	})
	t.Run("a node goes down", func(t *testing.T) {
		m := newMachine(t, Config{})
		running(t, m, 0)
		check(t, m, m.ForAction(nil, &lockstep.Action{Kind: lockstep.ActionEvict, Time: now, Job: "a", Reason: "lost"}), "drain", Draining, 8000)
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: "a"}), "exit clean", Backoff, 0)
		m = newMachine(t, Config{})
		running(t, m, 0)
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventDown, Time: now, Job: "a"}), "lose", Lost, 8000)
		check(t, m, m.ForAction(nil, &lockstep.Action{Kind: lockstep.ActionEvict, Time: now, Job: "a", Reason: "lost"}), "", Lost, 8000)
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: "a"}), "exit clean", Backoff, 0)
	})
	t.Run("cancel", func(t *testing.T) {
		m := newMachine(t, Config{})
		running(t, m, 0)
		cancel := &lockstep.Event{Kind: lockstep.EventCancel, Time: now, Job: "a"}
		check(t, m, m.ForEvent(nil, cancel), "cancel", Draining, 8000)
		check(t, m, m.ForEvent(nil, cancel), "", Draining, 8000)
		check(t, m, m.ForAction(nil, &lockstep.Action{Kind: lockstep.ActionEvict, Time: now, Job: "a", Reason: "cancelled"}), "", Draining, 8000)
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: "a"}), "exit clean", Cancelled, 0)
	})
	t.Run("shrink", func(t *testing.T) {
		m := newMachine(t, Config{})
		running(t, m, 0)
		check(t, m, m.ForAction(nil, &lockstep.Action{Kind: lockstep.ActionResize, Time: now, Job: "a", Plan: plan}), "resize", Running, 8000)
		j, _ := m.Job("a")
		require.True(t, j.Resizing)
		check(t, m, m.ForEvent(nil, &lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: "a"}), "resized", Running, 4000)
	})
}

func check(t *testing.T, m *Machine, events []Event, moves string, to State, gpus lockstep.MilliGPU) {
	t.Helper()
	var got []string
	for _, e := range events {
		got = append(got, string(e.Move))
		legal(t, apply(t, m, e))
	}
	require.Equal(t, moves, strings.Join(got, " "))
	j, ok := m.Job("a")
	require.True(t, ok)
	require.Equal(t, to, j.State)
	require.Equal(t, gpus, j.GPUs)
}

func TestWhatAnExitMeans(t *testing.T) {
	tests := []struct {
		name   string
		intent Cause
		cause  Cause
		exit   Exit
		to     State
		budget string
	}{
		{"clean exit", "", "", Exit{}, Succeeded, ""},
		{"user error", "", "", Exit{Code: 1}, Backoff, "app"},
		{"user error 125", "", "", Exit{Code: 125}, Backoff, "app"},
		{"not executable", "", "", Exit{Code: 126}, Failed, ""},
		{"not found", "", "", Exit{Code: 127}, Failed, ""},
		{"segfault", "", "", Exit{Code: 139}, Backoff, "app"},
		{"abort", "", "", Exit{Code: 134}, Backoff, "app"},
		{"killed, with evidence of memory", "", "", Exit{Code: 137, OutOfMemory: true}, Held, ""},
		{"killed, without", "", "", Exit{Code: 137}, Backoff, "app"},
		{"killed by us", CausePreempt, "", Exit{Code: 137}, Queued, ""},
		{"killed by us, though memory was short", CausePreempt, "", Exit{Code: 137, OutOfMemory: true}, Queued, ""},
		{"terminated by us", CausePreempt, "", Exit{Code: 143}, Queued, ""},
		{"our intent beats a cause reported later", CauseSuspend, CauseInfra, Exit{Code: 1}, Suspended, ""},
		{"device error", "", CauseInfra, Exit{Code: 1}, Backoff, "infra"},
		{"bad image", "", CauseSetup, Exit{Code: 1}, Held, ""},
		{"done while it was preempted", CausePreempt, "", Exit{Done: true}, Succeeded, ""},
		{"cancelled", CauseCancel, "", Exit{Code: 143}, Cancelled, ""},
		{"drained for a sick node", CauseInfra, "", Exit{Code: 143}, Backoff, "infra"},
		{"a cause of the host's own", "thermal", "", Exit{Code: 143}, Backoff, "app"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, Config{})
			running(t, m, 0)
			if tt.intent != "" {
				apply(t, m, Event{Move: MoveDrain, Time: t0, Cause: tt.intent})
			}
			steps := apply(t, m, Event{Move: MoveExit, Time: t0, Exit: tt.exit, Cause: tt.cause})
			require.Equal(t, tt.budget, steps[len(steps)-1].Budget)
			apply(t, m, Event{Move: MoveClean, Time: t0})
			j, _ := m.Job("a")
			require.Equal(t, tt.to, j.State)
		})
	}
}

func TestRulesAreTriedInOrder(t *testing.T) {
	cfg := Config{
		Rules: []Rule{
			{Causes: []Cause{CauseExit}, Codes: []int{42}, To: Suspended},
			{Codes: []int{0, 42}, NotCodes: true, To: Queued, Budget: "x"},
		},
		Budgets: []Budget{{"x", 1}},
	}
	for code, want := range map[int]State{42: Suspended, 0: Failed, 7: Queued} { // any order
		m := newMachine(t, cfg)
		running(t, m, 0)
		apply(t, m, Event{Move: MoveExit, Time: t0, Exit: Exit{Code: code}}, Event{Move: MoveClean, Time: t0})
		j, _ := m.Job("a")
		require.Equal(t, want, j.State, code)
	}
}

// attempt runs job a for a while and lets it fail.
func attempt(t *testing.T, m *Machine, start, run time.Duration) Job {
	t.Helper()
	apply(t, m,
		Event{Move: MoveReserve, Time: at(start), GPUs: 1000}, Event{Move: MoveStart, Time: at(start)}, Event{Move: MoveRun, Time: at(start)},
		Event{Move: MoveExit, Time: at(start + run), Exit: Exit{Code: 1}}, Event{Move: MoveClean, Time: at(start + run)})
	j, _ := m.Job("a")
	return j
}

func TestBackoffDoublesUntilTheBudgetIsUsedUp(t *testing.T) {
	tests := []struct {
		base, most time.Duration
		want       []time.Duration
	}{
		{time.Minute, time.Hour, []time.Duration{60, 120, 240, 480, 960, 1920, 3600, 3600}}, // Kueue's
		{0, 0, []time.Duration{10, 20, 40, 80, 160, 320, 360, 360}},                         // Kubernetes Job's
		{time.Hour, time.Minute, []time.Duration{60, 60}},
		{lockstep.MaxWalltime, lockstep.MaxWalltime, []time.Duration{lockstep.MaxWalltime / time.Second}},
	}
	for _, tt := range tests {
		n := len(tt.want)
		m := newMachine(t, Config{Backoff: tt.base, BackoffMax: tt.most, Budgets: []Budget{{"app", n}, {"infra", 0}, {"start", 0}}})
		apply(t, m, Event{Move: MoveSubmit, Time: t0})
		now := time.Duration(0)
		for _, want := range tt.want {
			j := attempt(t, m, now, time.Second)
			require.Equal(t, Backoff, j.State)
			require.Equal(t, want*time.Second, j.Deadline.Sub(at(now+time.Second)))
			now += time.Second + want*time.Second
		}
		require.Equal(t, Failed, attempt(t, m, now, time.Second).State)
	}
}

func TestStableRunningRefillsBudgets(t *testing.T) {
	m := newMachine(t, Config{Stable: time.Hour, Budgets: []Budget{{"app", 1}, {"infra", 1}, {"start", 1}}})
	apply(t, m, Event{Move: MoveSubmit, Time: t0})
	now := time.Duration(0)
	for range 5 {
		require.Equal(t, Backoff, attempt(t, m, now, time.Hour).State)
		now += 2 * time.Hour
	}
	require.Equal(t, Failed, attempt(t, m, now, time.Hour-1).State)
}

func TestDeadlinesHaveExits(t *testing.T) {
	cfg := Config{Retain: time.Hour}
	want := map[State]string{
		Queued: "deadline-exceeded", Admitted: "queued", Reserving: "queued", Starting: "draining",
		Draining: "cleaning", Lost: "cleaning", Cleaning: "queued", Backoff: "queued",
	}
	for _, s := range States() {
		m := newMachine(t, cfg)
		into(t, m, s)
		wake, ok := m.NextWake(t0)
		require.Equal(t, want[s] != "" || s.Terminal(), ok, s)
		if !ok {
			continue
		}
		require.Empty(t, apply(t, m, Event{Move: MoveTick, Time: wake.Add(-1)}))
		steps := apply(t, m, Event{Move: MoveTick, Time: wake})
		require.Equal(t, want[s], path(steps), s)
		if s.Terminal() {
			require.Zero(t, m.Len(), "it is forgotten")
		}
	}
}

func TestOwnDeadline(t *testing.T) {
	for state, want := range map[State]string{ // any order
		Held: "queued deadline-exceeded", Queued: "deadline-exceeded", Admitted: "queued deadline-exceeded",
		Reserving: "queued deadline-exceeded", Suspended: "queued deadline-exceeded",
		Starting: "draining cleaning deadline-exceeded", Running: "draining cleaning deadline-exceeded",
		Draining: "cleaning queued deadline-exceeded", Cleaning: "queued deadline-exceeded", Lost: "cleaning backoff queued deadline-exceeded",
	} {
		m := newMachine(t, Config{Fence: 3 * time.Minute})
		into(t, m, state)
		m.unset(m.jobs["a"]) // as if it had been submitted with a deadline
		m.jobs["a"].Due = at(time.Minute).UnixNano()
		m.set(m.jobs["a"])
		steps := apply(t, m, Event{Move: MoveTick, Time: at(time.Hour)})
		require.Equal(t, want, path(steps), state)
	}
}

func TestQuarantineIsNotFreed(t *testing.T) {
	m := newMachine(t, Config{Clean: time.Minute})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: t0})
	require.Zero(t, apply(t, m, Event{Move: MoveClean, Time: t0, GPUs: 5000})[0].Freed, "only at the end")
	_, err := m.Apply(nil, &Event{Move: MoveClean, Time: t0, Job: "a", GPUs: 4000})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	steps := apply(t, m, Event{Move: MoveTick, Time: at(time.Hour)})
	require.Len(t, steps, 1)
	require.Equal(t, lockstep.MilliGPU(5000), steps[0].Freed)
	require.Equal(t, lockstep.MilliGPU(3000), steps[0].Quarantined)
	require.Equal(t, at(time.Minute), steps[0].Time, "a deadline fires at its own time")
}

func TestEarlierAttemptsAreDropped(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: t0, Exit: Exit{Code: 1}}, Event{Move: MoveClean, Time: t0}, Event{Move: MoveQueue, Time: t0},
		Event{Move: MoveReserve, Time: t0, GPUs: 8000, Attempt: 7}, Event{Move: MoveStart, Time: t0}, Event{Move: MoveRun, Time: t0, Attempt: 7})
	before, _ := m.Job("a")
	for i, move := range []Move{MoveRun, MoveExit, MoveLose, MoveFence, MoveClean, MoveSave, MoveSaved, MoveResized} {
		require.Empty(t, apply(t, m, Event{Move: move, Time: t0, Attempt: 1}))
		require.Equal(t, int64(i+1), m.Dropped())
	}
	after, _ := m.Job("a")
	require.Equal(t, before, after)
	_, err := m.Apply(nil, &Event{Move: MoveExit, Time: t0, Job: "a", Attempt: 8})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	apply(t, m, Event{Move: MoveDrain, Time: t0, Cause: CausePreempt}, Event{Move: MoveExit, Time: t0}, Event{Move: MoveClean, Time: t0})
	require.Empty(t, apply(t, m, Event{Move: MoveExit, Time: t0, Attempt: 7}), "the latest attempt is over as well")
	_, err = m.Apply(nil, &Event{Move: MoveReserve, Time: t0, Job: "a", Attempt: 7})
	require.ErrorIs(t, err, lockstep.ErrStale, "an attempt starts once")
}

// TestNothingThatIsOverActs: neither agents nor schedulers nor events of an
// attempt that is over touch the one behind it, or the job that waits.
func TestNothingThatIsOverActs(t *testing.T) {
	second := func(t *testing.T, s State) *Machine {
		m := newMachine(t, Config{})
		into(t, m, Backoff)
		apply(t, m, Event{Move: MoveQueue, Time: t0})
		into := []Event{{Move: MoveReserve, Time: t0, GPUs: 8000}, {Move: MoveStart, Time: t0}, {Move: MoveRun, Time: t0}}
		apply(t, m, into[:map[State]int{Queued: 0, Reserving: 1, Starting: 2, Running: 3}[s]]...)
		j, _ := m.Job("a")
		require.Equal(t, s, j.State)
		return m
	}
	plan := &lockstep.Plan{Job: "a", Members: []lockstep.Member{{Node: "n0", Devices: 0xff}}}
	for _, state := range []State{Queued, Reserving, Starting, Running} {
		for _, move := range []Move{
			MoveReturn, MoveStart, MoveRun, MoveExtend, MoveSave, MoveSaved, MoveResize, MoveResized, MoveDrain, MoveLose, MoveExit, MoveFence, MoveClean,
		} {
			m := second(t, state)
			before, dropped := save(t, m), m.Dropped()
			require.Empty(t, apply(t, m, Event{Move: move, Time: t0, Attempt: 1, GPUs: 1000, Cause: CausePreempt}), "%s in %s", move, state)
			require.Equal(t, dropped+1, m.Dropped())
			require.Equal(t, strings.Split(before, `"jobs"`)[1], strings.Split(save(t, m), `"jobs"`)[1])
		}
		for _, kind := range []lockstep.ActionKind{
			lockstep.ActionReserve, lockstep.ActionStart, lockstep.ActionRelease, lockstep.ActionExtend, lockstep.ActionEvict, lockstep.ActionResize, lockstep.ActionMove,
		} {
			m := second(t, state)
			for _, e := range m.ForAction(nil, &lockstep.Action{Kind: kind, Time: t0, Job: "a", Attempt: 1, Plan: plan, Reason: "x"}) {
				require.Empty(t, apply(t, m, e), "%s in %s", kind, state)
			}
		}
		for _, kind := range []lockstep.EventKind{lockstep.EventFinish, lockstep.EventFail, lockstep.EventEvicted, lockstep.EventDown} {
			m := second(t, state)
			for _, e := range m.ForEvent(nil, &lockstep.Event{Kind: kind, Time: t0, Job: "a", Attempt: 1}) {
				require.Empty(t, apply(t, m, e), "%s in %s", kind, state)
			}
		}
	}
}

func TestEventsOfOthersAreLeftAlone(t *testing.T) {
	m := newMachine(t, Config{})
	into(t, m, Queued)
	other := []Event{{Move: MoveExit, Job: "b"}}
	require.Equal(t, other, m.ForEvent(other, &lockstep.Event{Kind: lockstep.EventEvicted, Time: t0, Job: "a"}))
}

// TestRepeatedActionsGiveNothing: what a scheduler says twice is done once.
func TestRepeatedActionsGiveNothing(t *testing.T) {
	plan := &lockstep.Plan{Job: "a", Members: []lockstep.Member{{Node: "n0", Devices: 0xff}}}
	for _, kinds := range [][]lockstep.ActionKind{{lockstep.ActionStart}, {lockstep.ActionReserve, lockstep.ActionStart}} {
		m := newMachine(t, Config{})
		into(t, m, Queued)
		for _, kind := range kinds {
			for i := range 2 {
				events := m.ForAction(nil, &lockstep.Action{Kind: kind, Time: t0, Job: "a", Attempt: 3, Plan: plan})
				require.Equal(t, i == 0, len(events) > 0)
				for _, e := range events {
					apply(t, m, e)
				}
			}
		}
		j, _ := m.Job("a")
		require.Equal(t, Running, j.State)
		require.Equal(t, lockstep.Attempt(3), j.Attempt)
	}
}

// TestCancelInEveryState ends Cancelled, once everything is clean, and only once.
func TestCancelInEveryState(t *testing.T) {
	for _, state := range States() {
		m := newMachine(t, Config{})
		into(t, m, state)
		cancel := Event{Move: MoveCancel, Time: t0, Job: "a"}
		steps, err := m.Apply(nil, &cancel)
		if state.Terminal() {
			require.ErrorIs(t, err, lockstep.ErrConflict)
			continue
		}
		require.NoError(t, err)
		legal(t, steps)
		_, err = m.Apply(nil, &cancel)
		require.ErrorIs(t, err, lockstep.ErrConflict, "twice in %s", state)
		for _, move := range []Move{MoveExit, MoveClean} {
			steps, err = m.Apply(steps, &Event{Move: move, Time: t0, Job: "a"})
			require.True(t, err == nil || errors.Is(err, lockstep.ErrConflict))
		}
		j, _ := m.Job("a")
		require.Equal(t, Cancelled, j.State, "from %s", state)
		require.Equal(t, CauseCancel, j.Cause)
		require.Zero(t, j.GPUs)
	}
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: at(1), Exit: Exit{Done: true}}, Event{Move: MoveCancel, Time: at(1)}, Event{Move: MoveClean, Time: at(1)})
	j, _ := m.Job("a")
	require.Equal(t, Succeeded, j.State)
	require.Equal(t, CauseExit, j.Cause, "a cancel that comes too late is not why it ended")
}

func TestEndOfTime(t *testing.T) {
	last := lockstep.FromNanos(math.MaxInt64)
	for _, state := range States() {
		m := newMachine(t, Config{})
		into(t, m, state)
		steps, err := m.Apply(nil, &Event{Move: MoveCancel, Time: last, Job: "a"}) // it must end
		j, ok := m.Job("a")
		require.True(t, ok)
		if err == nil {
			legal(t, steps)
			total, _ := j.Ledger.Total()
			require.Equal(t, last.Sub(t0), total)
		}
		_, err = Restore(strings.NewReader(save(t, m)))
		require.NoError(t, err)
	}
	m := newMachine(t, Config{})
	apply(t, m, Event{Move: MoveSubmit, Time: lockstep.FromNanos(0)}, Event{Move: MoveHold, Time: lockstep.FromNanos(0)}, Event{Move: MoveQueue, Time: last})
	j, _ := m.Job("a")
	require.Equal(t, time.Duration(math.MaxInt64), j.Ledger.Time[PartWaiting])
}

func TestAttemptsRunOut(t *testing.T) {
	m := newMachine(t, Config{})
	into(t, m, Queued)
	apply(t, m, Event{Move: MoveReserve, Time: t0, Attempt: math.MaxUint64}, Event{Move: MoveReturn, Time: t0})
	before := save(t, m)
	for _, a := range []lockstep.Attempt{0, 1, math.MaxUint64} {
		_, err := m.Apply(nil, &Event{Move: MoveReserve, Time: t0, Job: "a", Attempt: a})
		require.Error(t, err)
		require.Equal(t, before, save(t, m))
	}
}

// TestConfigIsCopiedAndRestored: empty rules are not the default ones.
func TestConfigIsCopiedAndRestored(t *testing.T) {
	m := newMachine(t, Config{Rules: []Rule{}, Budgets: []Budget{}})
	again, err := Restore(strings.NewReader(save(t, m)))
	require.NoError(t, err)
	require.Equal(t, save(t, m), save(t, again))
	running(t, again, 0)
	steps := apply(t, again, Event{Move: MoveExit, Time: at(1)}, Event{Move: MoveClean, Time: at(1)})
	require.Equal(t, "cleaning failed", path(steps))

	cfg := Config{Rules: []Rule{{Causes: []Cause{CauseExit}, Codes: []int{3}, To: Held}}}
	m = newMachine(t, cfg)
	cfg.Rules[0].Causes[0], cfg.Rules[0].Codes[0] = CauseInfra, 4
	running(t, m, 0)
	steps = apply(t, m, Event{Move: MoveExit, Time: at(1), Exit: Exit{Code: 3}}, Event{Move: MoveClean, Time: at(1)})
	require.Equal(t, "cleaning queued held", path(steps))
}

func TestLedgerParts(t *testing.T) {
	m := newMachine(t, Config{})
	apply(t, m,
		Event{Move: MoveSubmit, Time: at(0)},
		Event{Move: MoveReserve, Time: at(1), GPUs: 2000},
		Event{Move: MoveStart, Time: at(3)},
		Event{Move: MoveRun, Time: at(7)},
		Event{Move: MoveSave, Time: at(15)},
		Event{Move: MoveSaved, Time: at(31)},
		Event{Move: MoveSave, Time: at(63)},
		Event{Move: MoveSaved, Time: at(127), Cause: "disk full"},
		Event{Move: MoveLose, Time: at(255)},
		Event{Move: MoveFence, Time: at(511)},
		Event{Move: MoveClean, Time: at(1023)},
	)
	j, _ := m.Job("a")
	require.Equal(t, [Parts]time.Duration{3, 4, 8, 16 + 64, 32 + 128 + 256, 0, 512}, j.Ledger.Time)
	for p := range Parts {
		want := lockstep.GPUTimeOf(2000, j.Ledger.Time[p])
		if p == PartWaiting {
			want = lockstep.GPUTimeOf(2000, 2)
		}
		require.Equal(t, want, j.Ledger.GPU[p], p.String())
	}
}

func TestBadInputsChangeNothing(t *testing.T) {
	m := newMachine(t, Config{Start: time.Hour})
	running(t, m, time.Second)
	apply(t, m, Event{Move: MoveSubmit, Job: "b", Time: at(time.Second)}, Event{Move: MoveReserve, Job: "b", Time: at(time.Second)}, Event{Move: MoveStart, Job: "b", Time: at(time.Second)})
	now := at(2 * time.Second)
	tests := []struct {
		name string
		kind error
		e    Event
	}{
		{"past", lockstep.ErrPast, Event{Move: MoveTick, Time: t0}},
		{"zero time", lockstep.ErrInvalid, Event{Move: MoveTick}},
		{"no job", lockstep.ErrInvalid, Event{Move: MoveCancel, Time: now}},
		{"bad job", lockstep.ErrInvalid, Event{Move: MoveSubmit, Time: now, Job: "a b"}},
		{"duplicate", lockstep.ErrDuplicate, Event{Move: MoveSubmit, Time: now, Job: "a"}},
		{"unknown", lockstep.ErrUnknown, Event{Move: MoveCancel, Time: now, Job: "c"}},
		{"no move", lockstep.ErrInvalid, Event{Time: now, Job: "a"}},
		{"unknown move", lockstep.ErrInvalid, Event{Move: "fly", Time: now, Job: "c"}},
		{"before 1970", lockstep.ErrInvalid, Event{Move: MoveTick, Time: lockstep.FromNanos(-1)}},
		{"future attempt", lockstep.ErrUnknown, Event{Move: MoveDrain, Time: now, Job: "a", Attempt: 2, Cause: CausePreempt}},
		{"deadline past", lockstep.ErrInvalid, Event{Move: MoveSubmit, Time: now, Job: "c", Until: now}},
		{"deadline absurd", lockstep.ErrInvalid, Event{Move: MoveDrain, Time: now, Job: "a", Until: now.AddDate(1000, 0, 0), Cause: CausePreempt}},
		{"drain without cause", lockstep.ErrInvalid, Event{Move: MoveDrain, Time: now, Job: "a"}},
		{"negative devices", lockstep.ErrInvalid, Event{Move: MoveResize, Time: now, Job: "a", GPUs: -1}},
		{"no devices", lockstep.ErrInvalid, Event{Move: MoveResize, Time: now, Job: "a"}},
		{"not resizing", lockstep.ErrConflict, Event{Move: MoveResized, Time: now, Job: "a"}},
		{"not saving", lockstep.ErrConflict, Event{Move: MoveSaved, Time: now, Job: "a"}},
		{"wrong state after a deadline", lockstep.ErrConflict, Event{Move: MoveRun, Time: at(2 * time.Hour), Job: "b"}},
	}
	before := save(t, m)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst := []Step{{Job: "kept"}}
			steps, err := m.Apply(dst, &tt.e)
			require.ErrorIs(t, err, tt.kind)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			if strings.HasPrefix(tt.name, "deadline") {
				require.Equal(t, "Until", typed.Field)
			}
			require.Equal(t, dst, steps)
			require.Equal(t, before, save(t, m))
		})
	}
	require.ErrorIs(t, m.Forget("a"), lockstep.ErrConflict)
	require.ErrorIs(t, m.Forget("c"), lockstep.ErrUnknown)
	_, err := New(Config{
		MaxWait: -1, Retain: lockstep.MaxWalltime + 1, Rules: []Rule{{To: Running}, {To: Queued, Budget: "none"}},
		Budgets: []Budget{{"", -1}, {"x", 1}, {"x", 1}},
	})
	for _, part := range []string{"MaxWait", "Retain", "Rules[0].To", "Rules[1].Budget", "Budgets[0].Name", "Budgets[0].Limit", "Budgets[2].Name"} {
		require.ErrorContains(t, err, part)
	}
}

func save(t testing.TB, m *Machine) string {
	t.Helper()
	return string(snapshottest.Save(t, m.Snapshot))
}

// randomEvent draws an event that is often, not always, legal.
func randomEvent(rng *rand.Rand, m *Machine, now time.Time) Event {
	id := lockstep.JobID(fmt.Sprint("j", rng.IntN(15)))
	e := Event{Time: now, Job: id, GPUs: lockstep.MilliGPU(rng.IntN(9) * 500), Cause: []Cause{CausePreempt, CauseSuspend, CauseInfra, CauseDeadline}[rng.IntN(4)]}
	moves := []Move{
		MoveSubmit, MoveHold, MoveQueue, MoveAdmit, MoveReserve, MoveReturn, MoveStart, MoveRun, MoveExtend, MoveSave, MoveSaved,
		MoveResize, MoveResized, MoveDrain, MoveLose, MoveExit, MoveFence, MoveClean, MoveCancel, MoveTick,
	}
	e.Move = moves[rng.IntN(len(moves))]
	if j, ok := m.jobs[id]; ok && rng.IntN(4) > 0 {
		for !e.Move.allowed(j.State) && !j.State.Terminal() || e.Move == MoveCancel && rng.IntN(8) > 0 {
			e.Move = moves[rng.IntN(len(moves))]
		}
		e.Attempt = []lockstep.Attempt{0, j.Attempt, 1}[rng.IntN(3)]
		if e.Move == MoveReserve {
			e.Attempt = 0
		}
	}
	if e.Move == MoveExit {
		e.Exit = Exit{Code: []int{0, 1, 127, 137, 143}[rng.IntN(5)], Saved: rng.IntN(2) == 0, OutOfMemory: rng.IntN(5) == 0, Done: rng.IntN(9) == 0}
		if rng.IntN(2) == 0 {
			e.Cause = ""
		}
	}
	if rng.IntN(3) == 0 {
		e.Until = now.Add(time.Duration(1 + rng.Int64N(int64(time.Hour))))
	}
	return e
}

// TestInvariants applies random events and checks the invariants of doc.go
// after each; then it replays the log, with ticks strewn in, to the same bytes.
func TestInvariants(t *testing.T) {
	seeds := 25
	if testing.Short() {
		seeds = 8
	}
	cfg := Config{Retain: 5 * time.Hour, MaxWait: 20 * time.Hour, Budgets: []Budget{{"app", 2}, {"infra", 3}, {"start", 1}}}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		m := newMachine(t, cfg)
		now := t0
		var log []Event
		type key struct {
			job lockstep.JobID
			n   int // how often the ID was used
		}
		uses := make(map[lockstep.JobID]int)
		last := make(map[key]State)
		attempts := make(map[string]int) // starts, and charges, by job and attempt
		held := make(map[key]lockstep.MilliGPU)
		for range 1500 {
			if rng.IntN(2) == 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(8 * time.Minute))))
			}
			e := randomEvent(rng, m, now)
			before := ""
			if rng.IntN(5) == 0 {
				before = save(t, m)
			}
			steps, err := m.Apply(nil, &e)
			if err != nil {
				if before != "" {
					require.Equal(t, before, save(t, m))
				}
				var typed *lockstep.Error
				require.True(t, errors.As(err, &typed))
				continue
			}
			log = append(log, e)
			legal(t, steps)
			for _, s := range steps {
				if s.From == "" {
					uses[s.Job]++
				}
				k := key{s.Job, uses[s.Job]}
				require.Equal(t, last[k], s.From, "one state after the other")
				require.False(t, s.From.Terminal())
				last[k] = s.To
				if s.To == Starting {
					attempts[fmt.Sprint("start", k, s.Attempt)]++
				}
				if s.To == Cleaning && s.From != Cleaning && s.Budget != "" {
					attempts[fmt.Sprint("charge", k, s.Attempt)]++
				}
				if s.Freed+s.Quarantined > 0 {
					require.True(t, s.From == Cleaning && s.To != Cleaning || s.From == Reserving && s.To == Queued || s.Move == MoveResized)
				}
				if s.To == Reserving {
					held[k] = e.GPUs
				}
				if s.Move == MoveResize && e.GPUs > held[k] {
					held[k] = e.GPUs
				}
				held[k] -= s.Freed + s.Quarantined
			}
			for id, j := range m.jobs { // order does not matter: each is checked alone
				k := key{id, uses[id]}
				require.Equal(t, held[k], j.GPUs, "devices are neither made nor lost")
				total, _ := j.Ledger.Total()
				require.Equal(t, time.Duration(j.At-j.Submitted), total)
				if mustEnd(j.State) {
					require.NotEqual(t, int64(never), j.timer)
				}
			}
		}
		for what, n := range attempts { // order does not matter
			require.Equal(t, 1, n, what)
		}
		final := save(t, m)

		again := newMachine(t, cfg)
		for i := range log {
			if rng.IntN(20) == 0 {
				restored, err := Restore(strings.NewReader(save(t, again)))
				require.NoError(t, err)
				require.Equal(t, save(t, again), save(t, restored))
				again = restored
			}
			if i > 0 { // ticks between events change nothing
				gap := log[i].Time.Sub(log[i-1].Time)
				if gap > 1 && rng.IntN(2) == 0 {
					apply(t, again, Event{Move: MoveTick, Time: log[i-1].Time.Add(time.Duration(rng.Int64N(int64(gap))))})
				}
			}
			wire, err := json.Marshal(log[i])
			require.NoError(t, err)
			var e Event
			require.NoError(t, json.Unmarshal(wire, &e))
			_, err = again.Apply(nil, &e)
			require.NoError(t, err)
		}
		require.Equal(t, final, save(t, again))
	}
}

func TestSnapshotRefusesDamage(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	snapshottest.RefusesDamage(t, []byte(save(t, m)), restored)
}

func TestMemoryStaysFlat(t *testing.T) {
	m := newMachine(t, Config{Retain: time.Minute})
	var steps []Step
	for i := range 50_000 {
		id, now := lockstep.JobID(fmt.Sprint(i)), at(time.Duration(i)*time.Second)
		for _, move := range []Move{MoveSubmit, MoveCancel} {
			var err error
			steps, err = m.Apply(steps[:0], &Event{Move: move, Time: now, Job: id})
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, m.Len(), 61)
	require.Equal(t, m.Len(), m.wake.Len())
	require.NoError(t, m.Forget("49999"))
	_, ok := m.Job("49999")
	require.False(t, ok)
}

func FuzzRestore(f *testing.F) {
	m := newMachine(f, Config{Retain: time.Minute})
	running(f, m, 0)
	f.Add(snapshottest.Body(f, []byte(save(f, m))))
	f.Add([]byte(`{"config":{},"now":0,"dropped":0,"jobs":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := string(snapshottest.Frame(t, format, version, body)) // so that the fuzzer gets past the checksum
		m, err := Restore(strings.NewReader(image))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, image, save(t, m))
		for range 20 {
			wake, ok := m.NextWake(lockstep.FromNanos(m.now))
			if !ok {
				break
			}
			if _, err := m.Apply(nil, &Event{Move: MoveTick, Time: wake}); err != nil {
				break
			}
		}
	})
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		m := newMachine(b, Config{})
		ids := make([]lockstep.JobID, n)
		var steps []Step
		step := func(move Move, i int, now time.Time) {
			var err error
			steps, err = m.Apply(steps[:0], &Event{Move: move, Time: now, Job: ids[i], GPUs: 8000, Exit: Exit{Saved: true}, Cause: CausePreempt})
			if err != nil {
				b.Fatal(err)
			}
		}
		for i := range ids {
			ids[i] = lockstep.JobID(fmt.Sprintf("job-%07d", i))
			step(MoveSubmit, i, t0)
		}
		now, i := t0, 0
		b.Run(fmt.Sprintf("attempt/jobs=%d", n), func(b *testing.B) { // seven moves
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % n
				now = now.Add(1)
				for _, move := range []Move{MoveReserve, MoveStart, MoveRun, MoveSave, MoveDrain, MoveExit, MoveClean} {
					step(move, i, now)
				}
			}
		})
	}
}

func TestApplyAllocatesNothing(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	steps := make([]Step, 0, 8)
	e := Event{Move: MoveExtend, Time: t0, Job: "a"}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		e.Time = e.Time.Add(1)
		steps, _ = m.Apply(steps[:0], &e)
	}))
}
