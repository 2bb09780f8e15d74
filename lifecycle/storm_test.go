package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// storm is what arrives at a machine from many senders: each event up to three times, and not in the order in which
// it was sent. What arrives late is stamped with the time of its arrival, as a host would.
type storm struct {
	rng   *rand.Rand
	queue []Event
}

// next returns what arrives next; events that are drawn from the machine's present state make sure that jobs get on.
func (s *storm) next(m *Machine, now time.Time) Event {
	for len(s.queue) < 20 {
		e := randomEvent(s.rng, m, now)
		if j, ok := m.Job(e.Job); ok && e.Move.ofAttempt() {
			e.Attempt = j.Attempt // as a real sender says
		}
		for range 1 + s.rng.IntN(3)/2 + s.rng.IntN(3)/2 {
			s.queue = append(s.queue, e)
		}
	}
	i := 0 // mostly in order
	if s.rng.IntN(3) == 0 {
		i = s.rng.IntN(len(s.queue))
	}
	e := s.queue[i]
	s.queue = append(s.queue[:i], s.queue[i+1:]...)
	e.Time = now
	if !e.Until.IsZero() {
		e.Until = now.Add(time.Duration(1 + s.rng.Int64N(int64(time.Hour))))
	}
	return e
}

// witness checks the invariants of doc.go from the steps alone.
type witness struct {
	t       *testing.T
	uses    map[lockstep.JobID]int
	state   map[lockstep.JobID]State
	held    map[lockstep.JobID]lockstep.MilliGPU
	started map[string]bool
	charged map[string]bool
}

func (w *witness) see(e *Event, steps []Step) {
	for i := range steps {
		s := &steps[i]
		if s.From == "" {
			w.uses[s.Job]++
			w.state[s.Job] = ""
			w.held[s.Job] = 0
		}
		require.Equal(w.t, w.state[s.Job], s.From, "one state after the other")
		require.False(w.t, s.From.Terminal(), "no path from an end")
		require.True(w.t, s.From == "" || s.From == s.To || Legal(s.From, s.To), "%s to %s", s.From, s.To)
		w.state[s.Job] = s.To
		key := fmt.Sprint(s.Job, w.uses[s.Job], s.Attempt)
		if s.To == Starting && s.From != Starting {
			require.False(w.t, w.started[key], "an attempt starts once")
			w.started[key] = true
		}
		if s.To == Cleaning && s.From != Cleaning && s.Budget != "" {
			require.False(w.t, w.charged[key], "an attempt is charged once")
			w.charged[key] = true
		}
		if s.Freed+s.Quarantined > 0 {
			require.True(w.t, s.From == Cleaning && s.To != Cleaning || s.From == Reserving && s.To == Queued || s.Move == MoveResized,
				"devices come back clean, or before the start")
		}
		switch {
		case s.To == Reserving && s.From != Reserving:
			w.held[s.Job] = e.GPUs
		case s.Move == MoveResize && e.GPUs > w.held[s.Job]:
			w.held[s.Job] = e.GPUs
		}
		w.held[s.Job] -= s.Freed + s.Quarantined
		require.GreaterOrEqual(w.t, w.held[s.Job], lockstep.MilliGPU(0))
	}
}

// TestStorm: a million events with duplicates and out of order, the machine killed and restored from its bytes and the
// log behind them every few thousand.
func TestStorm(t *testing.T) {
	events := 1_000_000
	if testing.Short() {
		events = 60_000
	}
	cfg := Config{Retain: 5 * time.Hour, MaxWait: 20 * time.Hour, Budgets: []Budget{{"app", 2}, {"infra", 3}, {"start", 1}}}
	m := newMachine(t, cfg)
	s := &storm{rng: rand.New(rand.NewPCG(1, 9))}
	w := &witness{
		t: t, uses: map[lockstep.JobID]int{}, state: map[lockstep.JobID]State{}, held: map[lockstep.JobID]lockstep.MilliGPU{},
		started: map[string]bool{}, charged: map[string]bool{},
	}
	saved, log := save(t, m), []Event(nil)
	now := t0
	var steps []Step
	applied, refused, crashes := 0, 0, 0
	for i := range events {
		if i%5000 == 4999 { // the process dies: what is left is the last snapshot and the log
			crashes++
			again, err := Restore(strings.NewReader(saved))
			require.NoError(t, err)
			for k := range log {
				_, err := again.Apply(nil, &log[k])
				require.NoError(t, err)
			}
			before := save(t, m)
			require.Equal(t, before, save(t, again), "replay reaches the same bytes")
			m = again
			saved, log = before, log[:0]
			clear(w.started) // attempts of long ago, which the machine refuses by number
			clear(w.charged)
		}
		if s.rng.IntN(2) == 0 {
			now = now.Add(time.Duration(s.rng.Int64N(int64(8 * time.Minute))))
		}
		e := s.next(m, now)
		var err error
		steps, err = m.Apply(steps[:0], &e)
		if err != nil {
			refused++
			continue
		}
		applied++
		log = append(log, e)
		w.see(&e, steps)
		if j, ok := m.Job(e.Job); ok {
			total, _ := j.Ledger.Total()
			require.Equal(t, time.Duration(m.jobs[e.Job].At-m.jobs[e.Job].Submitted), total, "the ledger sums to wall time")
			require.Equal(t, w.held[e.Job], j.GPUs)
		}
	}
	t.Logf("%d events, %d applied, %d refused, %d dropped as of attempts that were over, %d crashes", events, applied, refused, m.Dropped(), crashes)
	require.Greater(t, applied, events/4)
	require.Greater(t, m.Dropped(), int64(events/100))
}

// The rest are complaints of users of other schedulers, as this machine answers them.

// volcano-sh/volcano#1718: retries used up, live pods left holding devices.
func TestComplaintRetriesUsedUpStillCleans(t *testing.T) {
	m := newMachine(t, Config{Budgets: []Budget{{"app", 0}, {"infra", 0}, {"start", 0}}})
	running(t, m, 0)
	steps := apply(t, m, Event{Move: MoveExit, Time: at(time.Minute), Exit: Exit{Code: 1}})
	require.Equal(t, "cleaning", path(steps))
	require.Zero(t, steps[0].Freed, "nothing is free before it is clean")
	steps = apply(t, m, Event{Move: MoveClean, Time: at(2 * time.Minute)})
	require.Equal(t, "failed", path(steps))
	require.Equal(t, lockstep.MilliGPU(8000), steps[0].Freed)
}

// kubernetes-sigs/jobset#665: pods of attempt N-1 join attempt N.
func TestComplaintOldAttemptCannotJoin(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: at(1), Exit: Exit{Code: 1}}, Event{Move: MoveClean, Time: at(2)}, Event{Move: MoveQueue, Time: at(3)},
		Event{Move: MoveReserve, Time: at(4), GPUs: 8000}, Event{Move: MoveStart, Time: at(5)})
	dropped := m.Dropped()
	require.Empty(t, apply(t, m, Event{Move: MoveRun, Time: at(6), Attempt: 1}), "the old one reports that it runs")
	require.Equal(t, dropped+1, m.Dropped())
	j, _ := m.Job("a")
	require.Equal(t, Starting, j.State)
}

// kubernetes-sigs/jobset#1117: a preemption by the queue counted as a failure.
func TestComplaintPreemptionIsNoFailure(t *testing.T) {
	m := newMachine(t, Config{Budgets: []Budget{{"app", 0}, {"infra", 0}, {"start", 0}}})
	for i := range 50 {
		running := time.Duration(i) * time.Hour
		if i == 0 {
			apply(t, m, Event{Move: MoveSubmit, Time: at(running)})
		}
		apply(t, m, Event{Move: MoveReserve, Time: at(running), GPUs: 8000}, Event{Move: MoveStart, Time: at(running)}, Event{Move: MoveRun, Time: at(running)},
			Event{Move: MoveDrain, Time: at(running + 1), Cause: CausePreempt}, Event{Move: MoveExit, Time: at(running + 2), Exit: Exit{Code: 137}})
		steps := apply(t, m, Event{Move: MoveClean, Time: at(running + 3)})
		require.Equal(t, "queued", path(steps), "killed by us after we asked: no budget pays")
	}
}

// pytorch/pytorch#147064: a quick rejoin gets round the limit of restarts.
func TestComplaintQuickRejoinIsCharged(t *testing.T) {
	m := newMachine(t, Config{Budgets: []Budget{{"app", 2}, {"infra", 9}, {"start", 9}}})
	running(t, m, 0)
	now := time.Duration(0)
	for try := 1; ; try++ {
		now += time.Second
		apply(t, m, Event{Move: MoveExit, Time: at(now), Exit: Exit{Code: 1}})
		steps := apply(t, m, Event{Move: MoveClean, Time: at(now)})
		if try == 3 {
			require.Equal(t, "failed", path(steps))
			return
		}
		require.Equal(t, "backoff", path(steps))
		apply(t, m, Event{Move: MoveQueue, Time: at(now)}, Event{Move: MoveReserve, Time: at(now), GPUs: 8000},
			Event{Move: MoveStart, Time: at(now)}, Event{Move: MoveRun, Time: at(now)})
	}
}

// pytorch/pytorch#111646: a member misses its keep-alive and the others hang: Lost drains the gang in minutes.
func TestComplaintLostMemberEndsTheWait(t *testing.T) {
	m := newMachine(t, Config{Fence: 2 * time.Minute})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveLose, Time: at(time.Minute)})
	steps := apply(t, m, Event{Move: MoveTick, Time: at(3 * time.Minute)})
	require.Equal(t, "cleaning", path(steps))
	require.Equal(t, CauseInfra, steps[0].Cause)
}

// kubernetes-sigs/kueue#3543, #3322: stuck Evicted for ever. volcano-sh/volcano#4743: pending past its timeout.
func TestComplaintNoStateWithoutAnExit(t *testing.T) {
	for _, s := range States() {
		if s.Terminal() || s == Held || s == Running || s == Suspended {
			continue
		}
		m := newMachine(t, Config{MaxWait: time.Hour})
		into(t, m, s)
		j, _ := m.Job("a")
		require.Equal(t, s, j.State)
		require.False(t, j.Deadline.IsZero(), "%s", s)
		steps := apply(t, m, Event{Move: MoveTick, Time: j.Deadline})
		require.NotEmpty(t, path(steps), "%s", s)
	}
}

// containerd/containerd#11133, NVIDIA/nvidia-docker#1553: a zombie keeps a device; it is not handed out again.
func TestComplaintZombieKeepsItsDevice(t *testing.T) {
	m := newMachine(t, Config{Clean: time.Minute})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: at(time.Minute)}, Event{Move: MoveClean, Time: at(time.Minute), GPUs: 7000})
	steps := apply(t, m, Event{Move: MoveTick, Time: at(time.Hour)})
	require.Equal(t, "succeeded", path(steps))
	require.Equal(t, lockstep.MilliGPU(7000), steps[0].Freed)
	require.Equal(t, lockstep.MilliGPU(1000), steps[0].Quarantined)
}

// volcano-sh/volcano#3967: the controller restarts, sees "failed" before the event, and skips the policy. Here the
// policy is applied by whoever reports the exit, once, whether or not the machine was restored in between.
func TestComplaintPolicyIsNotSkippedOverARestart(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	again, err := Restore(strings.NewReader(save(t, m)))
	require.NoError(t, err)
	for range 2 { // reported by the old event and by the new listing
		_, err = again.Apply(nil, &Event{Move: MoveExit, Time: at(time.Minute), Job: "a", Attempt: 1, Exit: Exit{Code: 1}})
		if err == nil {
			continue
		}
		require.ErrorIs(t, err, lockstep.ErrConflict)
	}
	steps := apply(t, again, Event{Move: MoveClean, Time: at(2 * time.Minute)})
	require.Equal(t, "backoff", path(steps))
	require.Equal(t, 1, again.jobs["a"].Used[0].N)
}

// NVIDIA/k8s-device-plugin#335: jobs end minutes late; the time is measured.
func TestComplaintCleaningTimeIsMeasured(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveExit, Time: at(time.Minute)}, Event{Move: MoveClean, Time: at(4 * time.Minute)})
	j, _ := m.Job("a")
	require.Equal(t, 3*time.Minute, j.Ledger.Time[PartCleaning])
}
