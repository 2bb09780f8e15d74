package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// bench drives a Coordinator by hand.
type bench struct {
	*testing.T
	c   *Coordinator
	now time.Time
}

func newBench(t *testing.T, cfg Config) *bench {
	cfg.Job, cfg.Term = "j", 1
	c, err := New(cfg)
	require.NoError(t, err)
	return &bench{T: t, c: c, now: t0}
}

// step returns what was wanted: messages as "kind rank", other actions by kind,
// and the report.
func (b *bench) step(e Event) (list []string, r *Report) {
	b.Helper()
	out, err := b.c.Step(b.now, e)
	require.NoError(b, err)
	for i := range out {
		switch out[i].Kind {
		case ActionSend:
			list = append(list, out[i].Message.Kind+" "+string(rune('0'+out[i].Message.Rank)))
		case ActionReport:
			r = out[i].Report
		default:
			list = append(list, out[i].Kind.String())
		}
	}
	return list, r
}

func (b *bench) say(rank int, m Message) ([]string, *Report) {
	b.Helper()
	m.Job, m.Rank, m.Term = "j", rank, 1
	if m.Epoch == 0 {
		m.Epoch = b.c.epoch
	}
	if m.Kind == msgStored {
		m.Stored = true
	}
	return b.step(Event{Kind: EventMessage, Message: m})
}

func TestCooperativeRanksStopBeforeOneStep(t *testing.T) {
	b := newBench(t, Config{Ranks: 2, Margin: 3})
	got, _ := b.step(Event{Kind: EventStart, Request: Request{Cooperative: true}})
	require.Equal(t, []string{"record", "ask 0", "ask 1"}, got)
	got, _ = b.say(0, Message{Kind: msgStep, Step: 10})
	require.Empty(t, got)
	got, _ = b.say(1, Message{Kind: msgStep, Step: 12})
	require.Equal(t, []string{"prepare 0", "prepare 1"}, got)
	require.Equal(t, uint64(15), b.c.plan().StopStep)
	b.say(0, Message{Kind: msgReady, Step: 15})
	got, _ = b.say(1, Message{Kind: msgReady, Step: 14})
	require.Equal(t, []string{"abort 0", "abort 1"}, got, "a rank that stopped elsewhere has another state")
	require.Equal(t, 1, b.c.blame[0].Rank)
}

func TestSequentialRanksFollowEachOther(t *testing.T) {
	b := newBench(t, Config{Ranks: 3})
	got, _ := b.step(Event{Kind: EventStart, Request: Request{Sequential: true}})
	require.Equal(t, []string{"record", "prepare 0"}, got)
	for rank, want := range [][]string{{"prepare 1"}, {"prepare 2"}, {"snapshot 0", "prepare 1", "prepare 2"}} {
		got, _ = b.say(rank, Message{Kind: msgReady})
		require.Equal(t, want, got)
	}
	for rank, want := range [][]string{{"snapshot 1"}, {"snapshot 2"}, {"commit"}} {
		got, _ = b.say(rank, Message{Kind: msgStored})
		require.Equal(t, want, got)
	}
	got, _ = b.step(Event{Kind: EventDone, Op: b.c.op})
	require.Equal(t, "commit 0", got[0])
	got, _ = b.say(0, Message{Kind: msgResumed, Stored: true})
	require.Equal(t, []string{"commit 1"}, got, "in the same order")
	b.say(1, Message{Kind: msgResumed, Stored: true})
	_, r := b.say(2, Message{Kind: msgResumed, Stored: true})
	require.Equal(t, OutcomeCommitted, r.Outcome)
}

// TestComplaint3: one rank of an NCCL job that is locked blocks every call for
// its peers; all are told at once, and all are let go.
func TestComplaint3OneRankThatCannotLockLetsAllGo(t *testing.T) {
	b := newBench(t, Config{Ranks: 3})
	got, _ := b.step(Event{Kind: EventStart})
	require.Equal(t, []string{"record", "prepare 0", "prepare 1", "prepare 2"}, got, "at once")
	b.say(0, Message{Kind: msgReady})
	got, _ = b.say(1, Message{Kind: msgRefuse, Reason: reasonTimeout})
	require.Equal(t, []string{"abort 0", "abort 1", "abort 2"}, got)
	b.say(0, Message{Kind: msgResumed})
	_, r := b.say(2, Message{Kind: msgResumed})
	require.Equal(t, OutcomeAborted, r.Outcome)
	require.Equal(t, "epoch 1 aborted: timeout; because of rank 1 (timeout)", r.String())
}

// TestComplaint4: timers nest, so that the one nearest to the target rings first.
func TestComplaint4TimersNest(t *testing.T) {
	b := newBench(t, Config{Ranks: 1, LockTimeout: 10 * time.Second})
	b.step(Event{Kind: EventStart})
	lock := b.c.plan().Lock
	require.Equal(t, 8*time.Second, lock)
	require.Less(t, lock+lock/8, 10*time.Second, "the call, then the leader's patience")
	b.now = t0.Add(9 * time.Second)
	b.step(Event{})
	require.Less(t, b.c.plan().Lock, time.Second, "what is left, for who hears of it late")
	b.now = t0.Add(10 * time.Second)
	got, _ := b.step(Event{})
	require.Equal(t, []string{"abort 0"}, got)
}

// TestPauseIsBounded: whatever the ranks do, none is held for longer than
// MaxPause and one call.
func TestPauseIsBounded(t *testing.T) {
	b := newBench(t, Config{Ranks: 1, MaxPause: time.Minute, SaveTimeout: time.Hour})
	b.step(Event{Kind: EventStart})
	b.now = t0.Add(20 * time.Second)
	b.say(0, Message{Kind: msgReady})
	b.now = t0.Add(time.Minute)
	got, _ := b.step(Event{})
	require.Equal(t, []string{"abort 0"}, got, "measured from the first order to stop")

	a, err := NewAgent(AgentConfig{Job: "j"})
	require.NoError(t, err)
	prepare := Message{Kind: msgPrepare, Job: "j", Epoch: 1, Term: 1, Plan: Plan{Lock: time.Second, Silence: time.Second * 20, Pause: time.Minute}}
	out, err := a.Step(t0, Event{Kind: EventMessage, Message: prepare})
	require.NoError(t, err)
	_, err = a.Step(t0, Event{Kind: EventDone, Op: out[1].Op, Before: Running, State: Locked})
	require.NoError(t, err)
	for now := t0; ; now = now.Add(10 * time.Second) { // a leader that only ever says the same
		out, err = a.Step(now, Event{Kind: EventMessage, Message: prepare})
		require.NoError(t, err)
		if len(out) > 0 && out[len(out)-1].Kind == ActionUnlock {
			require.Equal(t, time.Minute, now.Sub(t0))
			break
		}
		require.Less(t, now.Sub(t0), time.Minute)
	}
}

func TestAttemptsWaitLongerAndThenStop(t *testing.T) {
	b := newBench(t, Config{Ranks: 1, MaxAborts: 3, Seed: 5})
	var waits []time.Duration
	b.step(Event{Kind: EventStart, Request: Request{Attempts: 9}})
	var r *Report
	for attempt := 1; r == nil; attempt++ {
		require.Equal(t, Epoch(attempt), b.c.epoch)
		_, r = b.say(0, Message{Kind: msgRefuse, Reason: reasonRefused})
		if r == nil {
			wake, ok := b.c.NextWake()
			require.True(t, ok)
			waits = append(waits, wake.Sub(b.now))
			b.now = wake
			b.step(Event{})
		}
	}
	require.Equal(t, 3, r.Attempts, "the circuit is broken")
	require.Len(t, waits, 2)
	for i, w := range waits {
		mean := 5 * time.Second << i
		require.GreaterOrEqual(t, w, mean/2)
		require.LessOrEqual(t, w, mean*3/2)
	}
	_, err := b.c.Step(b.now, Event{Kind: EventStart})
	names(t, err, lockstep.ErrConflict, "3 in a row")
	b.now = b.now.Add(10 * time.Minute)
	b.step(Event{Kind: EventStart})
	require.Equal(t, Epoch(4), b.c.epoch)

	other := newBench(t, Config{Ranks: 1, Seed: 5})
	other.step(Event{Kind: EventStart, Request: Request{Attempts: 2}})
	other.say(0, Message{Kind: msgRefuse})
	wake, _ := other.c.NextWake()
	require.Equal(t, waits[0], wake.Sub(other.now), "the jitter comes from the seed")
}

func TestWaitsDoNotOverflow(t *testing.T) {
	b := newBench(t, Config{Ranks: 1, Backoff: maxWait, MaxAborts: 1000})
	for _, attempt := range []int{0, 1, 2, 7, 1000} {
		b.c.attempt = attempt
		require.Positive(t, b.c.backoff())
		require.LessOrEqual(t, b.c.backoff(), maxWait/2*3+2)
	}
}

func TestASupersededLeaderSaysNoMore(t *testing.T) {
	b := newBench(t, Config{Ranks: 2})
	b.step(Event{Kind: EventStart})
	_, r := b.step(Event{Kind: EventMessage, Message: Message{Kind: msgBusy, Job: "j", Rank: 1, Epoch: 1, Term: 2}})
	require.Equal(t, OutcomeFenced, r.Outcome)
	b.now = t0.Add(time.Hour)
	got, _ := b.step(Event{})
	require.Empty(t, got)
	_, err := b.c.Step(b.now, Event{Kind: EventStart})
	require.ErrorIs(t, err, ErrFenced)
}

func TestAnEpochIsRecordedBeforeAnybodyHearsOfIt(t *testing.T) {
	b := newBench(t, Config{Ranks: 1})
	got, _ := b.step(Event{Kind: EventStart})
	require.Equal(t, "record", got[0])
	_, r := b.step(Event{Kind: EventDone, Op: b.c.record, Err: errModel})
	require.Equal(t, OutcomeAborted, r.Outcome)
	require.Equal(t, reasonRecord, r.Reason)
	b.step(Event{Kind: EventStart})
	require.Equal(t, Epoch(2), b.c.epoch, "the number may be on the disk all the same")
}

// TestRepeatedMessagesAreAnsweredAlike: property 5 for one rank; the model checks
// it for all.
func TestRepeatedMessagesAreAnsweredAlike(t *testing.T) {
	a, err := NewAgent(AgentConfig{Job: "j", NoSuspend: true})
	require.NoError(t, err)
	say := func(kind string) []Action {
		out, err := a.Step(t0, Event{Kind: EventMessage, Message: Message{Kind: kind, Job: "j", Epoch: 1, Term: 1, Plan: Plan{Lock: 1, Silence: time.Hour, Pause: time.Hour}}})
		require.NoError(t, err)
		return out
	}
	end := func(list []Action, e Event) []Action {
		e.Kind, e.Op = EventDone, list[len(list)-1].Op
		out, err := a.Step(t0, e)
		require.NoError(t, err)
		return out
	}
	expect := func(want string, kinds ...string) {
		t.Helper()
		for range 3 {
			for _, k := range kinds {
				out := say(k)
				require.Len(t, out, 1, k)
				require.Equal(t, want, out[0].Message.Kind)
			}
		}
	}
	lock := say(msgPrepare)
	expect(msgBusy, msgPrepare, msgSnapshot)
	end(lock, Event{Before: Running, State: Locked})
	expect(msgReady, msgPrepare, msgResume)
	save := say(msgSnapshot)
	require.Equal(t, ActionSave, save[0].Kind, "locked is enough for this driver")
	expect(msgBusy, msgPrepare, msgSnapshot)
	end(save, Event{Image: RankImage{Image: Digest{1}, Bytes: 5}})
	expect(msgStored, msgPrepare, msgSnapshot)
	unlock := say(msgCommit)
	require.Equal(t, ActionUnlock, unlock[0].Kind)
	expect(msgBusy, msgCommit, msgAbort)
	end(unlock, Event{State: Running})
	expect(msgResumed, msgPrepare, msgSnapshot, msgCommit, msgAbort)
}

func TestAReportIsOneLine(t *testing.T) {
	r := &Report{Epoch: 3, Outcome: OutcomeAborted, Reason: reasonGone, Blame: []RankFault{{Rank: 1, Reason: reasonGone}}, Broken: []RankFault{{Rank: 1, Reason: reasonGone}, {Rank: 4, Reason: reasonWedged}}, Kill: []int{0, 4}}
	require.Equal(t, "epoch 3 aborted: gone; because of rank 1 (gone); broken rank 1 (gone), rank 4 (wedged); kill [0 4]", r.String())
}
