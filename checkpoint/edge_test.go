package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var t0 = time.Unix(1_700_000_000, 0)

func names(t *testing.T, err error, kind error, fields ...string) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	for _, f := range fields {
		require.ErrorContains(t, err, f)
	}
}

func TestConfigNamesEachFault(t *testing.T) {
	require.NoError(t, Config{Job: "j", Ranks: 1, Term: 1}.Validate())
	_, err := New(Config{})
	names(t, err, lockstep.ErrInvalid, "JobID", "Ranks = 0", "Term = 0")
	_, err = New(Config{
		Job: "j", Ranks: MaxRanks + 1, Term: 1, After: math.MaxUint64, LockTimeout: -1, SaveTimeout: maxWait + 1, FinishTimeout: math.MinInt64,
		MaxPause: math.MaxInt64, Silence: -1, Resend: -1, Backoff: -1, Cooldown: -1, MaxAborts: -1,
	})
	names(t, err, lockstep.ErrInvalid, "Ranks = ", "After = ", "LockTimeout = -1ns", "SaveTimeout = ", "FinishTimeout = ", "MaxPause = ", "Silence = ", "Resend = ", "Backoff = ", "Cooldown = ", "MaxAborts = -1")
	_, err = New(Config{Job: "j", Ranks: 1, Term: 1, Silence: time.Second, Resend: time.Second})
	names(t, err, lockstep.ErrInvalid, "Resend = 1s")

	_, err = NewAgent(AgentConfig{Rank: -1, Call: -1, Poll: math.MaxInt64, Stuck: -1, Tries: -1})
	names(t, err, lockstep.ErrInvalid, "JobID", "Rank = -1", "Call", "Poll", "Stuck", "Tries = -1")

	names(t, Request{Attempts: -1, Early: true, StopAfter: true, Hold: true}.Validate(), lockstep.ErrInvalid, "Attempts = -1", "Early", "Hold")
	_, err = NewLeader(LeaderConfig{})
	names(t, err, lockstep.ErrInvalid, "Ledger", "Transport", "Ranks")
	_, err = NewRank(RankConfig{AgentConfig: AgentConfig{Job: "j"}})
	names(t, err, lockstep.ErrInvalid, "Driver", "Ledger", "Transport", "PID = 0")
	_, err = NewLocal(LocalConfig{Config: Config{Job: "j", Term: 1}})
	names(t, err, lockstep.ErrInvalid, "Ranks = 0")
	_, err = NewLocal(LocalConfig{Config: Config{Job: "j", Term: 1, Ranks: 2}, Targets: []Target{{PID: 5, Start: 1}}})
	names(t, err, lockstep.ErrInvalid, "Targets = 1")
	_, err = NewLocal(LocalConfig{Config: Config{Job: "j", Term: 1}, Targets: []Target{{PID: 5, Start: 1}, {PID: 5, Start: 1}}})
	names(t, err, lockstep.ErrDuplicate, "Targets[1].PID = 5")
}

func TestTargetsThatAreNone(t *testing.T) {
	require.NoError(t, Target{PID: 2, Start: 1}.Validate())
	for _, bad := range []Target{{}, {PID: 1, Start: 1}, {PID: -1, Start: 1}, {PID: 2}, {PID: 2, Start: 1, Rank: -1}} {
		require.ErrorIs(t, bad.Validate(), lockstep.ErrInvalid, "%v", bad)
	}
}

func TestDeviceMapsThatAreNone(t *testing.T) {
	require.NoError(t, checkPairs(nil))
	require.NoError(t, checkPairs([]DevicePair{{"a", "b"}, {"b", "a"}}))
	require.ErrorIs(t, checkPairs([]DevicePair{{"a", "b"}, {"c", "b"}}), lockstep.ErrDuplicate)
	require.ErrorIs(t, checkPairs([]DevicePair{{"a", "b"}, {"a", "c"}}), lockstep.ErrDuplicate)
	require.ErrorIs(t, checkPairs([]DevicePair{{"", "b"}}), lockstep.ErrInvalid)
	require.ErrorIs(t, checkPairs([]DevicePair{{"a", "b c"}}), lockstep.ErrInvalid)
}

func TestTimesThatGoBackwardsChangeNothing(t *testing.T) {
	c, err := New(Config{Job: "j", Ranks: 1, Term: 1})
	require.NoError(t, err)
	a, err := NewAgent(AgentConfig{Job: "j"})
	require.NoError(t, err)
	for _, step := range []func(time.Time, Event) ([]Action, error){c.Step, a.Step} {
		_, err := step(t0, Event{})
		require.NoError(t, err)
		_, err = step(t0.Add(-1), Event{Kind: EventStart})
		require.ErrorIs(t, err, lockstep.ErrPast)
		for _, bad := range []time.Time{{}, time.Unix(-1, 0), time.Unix(1<<60, 0)} {
			_, err = step(bad, Event{})
			require.Error(t, err)
		}
		for _, kind := range []EventKind{-1, EventProgress + 1, math.MaxInt32} {
			_, err = step(t0, Event{Kind: kind})
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
	}
	require.Equal(t, stageIdle, c.stage)
}

func TestStrayEventsChangeNothing(t *testing.T) {
	c, err := New(Config{Job: "j", Ranks: 2, Term: 3})
	require.NoError(t, err)
	a, err := NewAgent(AgentConfig{Job: "j", Rank: 1})
	require.NoError(t, err)
	events := []Event{
		{Kind: EventDone},
		{Kind: EventDone, Op: 9},
		{Kind: EventStaged, Op: 9},
		{Kind: EventProgress, Op: 9, Bytes: -1},
		{Kind: EventRelease},
		{Kind: EventRecover},
		{Kind: EventMessage},
		{Kind: EventMessage, Message: Message{Kind: "nonsense", Job: "j", Rank: 1, Epoch: 1, Term: 3}},
		{Kind: EventMessage, Message: Message{Kind: msgStored, Job: "other", Rank: 1}},
		{Kind: EventMessage, Message: Message{Kind: msgStored, Job: "j", Rank: -1}},
		{Kind: EventMessage, Message: Message{Kind: msgStored, Job: "j", Rank: math.MaxInt}},
	}
	_, err = c.Step(t0, Event{Kind: EventStart})
	require.NoError(t, err)
	for i, e := range events {
		before := *c
		if e.Kind == EventRelease {
			continue
		}
		out, err := c.Step(t0, e)
		require.NoError(t, err)
		require.Empty(t, out, "event %d", i)
		before.out, c.out = nil, nil
		require.Equal(t, before, *c, "event %d", i)
	}
	for i, e := range events {
		out, err := a.Step(t0, e)
		require.NoError(t, err)
		for _, act := range out {
			require.Contains(t, []ActionKind{ActionSend, ActionRecord}, act.Kind, "event %d", i)
		}
		_, owed := a.Hold()
		require.False(t, owed)
	}
}

func TestALateStartIsRefused(t *testing.T) {
	c, err := New(Config{Job: "j", Ranks: 1, Term: 1, After: math.MaxUint64 - 1})
	require.NoError(t, err)
	_, err = c.Step(t0, Event{Kind: EventStart})
	require.NoError(t, err)
	_, err = c.Step(t0, Event{Kind: EventStart})
	names(t, err, lockstep.ErrConflict, "another request")
	_, err = c.Step(t0, Event{Kind: EventRelease})
	require.NoError(t, err)
	_, err = c.Step(t0.Add(time.Hour), Event{})
	require.NoError(t, err)
	_, err = c.Step(t0.Add(time.Hour), Event{Kind: EventStart})
	names(t, err, lockstep.ErrConflict, "no numbers left")
}

func TestRecordsSurviveAndForgeriesDoNot(t *testing.T) {
	cfg := Config{Job: "j", Ranks: 2, Term: 1}
	c, err := New(cfg)
	require.NoError(t, err)
	_, err = c.Step(t0, Event{Kind: EventStart, Request: Request{StopAfter: true, Attempts: 2}})
	require.NoError(t, err)
	image := snapshottest.Save(t, c.Snapshot)
	next := cfg
	next.Term = 2
	restore := func(r io.Reader) error { _, err := Restore(next, r); return err }
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.PassesFaultsOn(t, c.Snapshot, restore)
	d, err := Restore(next, bytes.NewReader(image))
	require.NoError(t, err)
	e, open := d.Pending()
	require.True(t, open)
	require.Equal(t, Epoch(1), e)
	_, err = d.Step(t0, Event{Kind: EventStart})
	names(t, err, lockstep.ErrConflict, "epoch 1")
	_, err = Restore(cfg, bytes.NewReader(image))
	require.ErrorIs(t, err, ErrFenced)
	for _, change := range []func(c *Config){func(c *Config) { c.Job = "k" }, func(c *Config) { c.Ranks = 3 }, func(c *Config) { c.After = 7 }} {
		other := next
		change(&other)
		_, err = Restore(other, bytes.NewReader(image))
		require.ErrorIs(t, err, lockstep.ErrConflict)
	}

	a, err := NewAgent(AgentConfig{Job: "j"})
	require.NoError(t, err)
	_, err = a.Step(t0, Event{Kind: EventMessage, Message: Message{Kind: msgPrepare, Job: "j", Epoch: 4, Term: 2, Plan: Plan{Lock: 1, Silence: 1, Pause: 1}}})
	require.NoError(t, err)
	image = snapshottest.Save(t, a.Snapshot)
	restore = func(r io.Reader) error { _, err := RestoreAgent(AgentConfig{Job: "j"}, r); return err }
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.PassesFaultsOn(t, a.Snapshot, restore)
	_, err = RestoreAgent(AgentConfig{Job: "j", Rank: 1}, bytes.NewReader(image))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	b, err := RestoreAgent(AgentConfig{Job: "j"}, bytes.NewReader(image))
	require.NoError(t, err)
	_, owed := b.Hold()
	require.True(t, owed)
	wake, ok := b.NextWake()
	require.True(t, ok, "it has something to do at once")
	require.True(t, wake.Before(t0))
	out, err := b.Step(t0, Event{})
	require.NoError(t, err)
	require.Equal(t, ActionRead, out[0].Kind, "the call that it made may be under way still")
}

func TestAManifestNamesEachFault(t *testing.T) {
	m := &Manifest{Epoch: 0, Ranks: []RankImage{{Rank: 1, Bytes: -1, Took: -1, Step: 3}}}
	names(t, m.Validate(), lockstep.ErrInvalid, "JobID", "Epoch = 0", "Ranks[0].Rank", "Ranks[0].Bytes", "Ranks[0].Took", "Ranks[0].Step")
	require.ErrorIs(t, (*Manifest)(nil).Validate(), lockstep.ErrInvalid)
	require.ErrorIs(t, (&Manifest{Job: "j", Epoch: 1}).Validate(), lockstep.ErrInvalid)
}

func TestADriverErrorSaysAll(t *testing.T) {
	e := &DriverError{Kind: ErrMemory, Call: "cuCheckpointProcessRestore", PID: 7, Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", State: Checkpointed, Err: errors.New("cause")}
	require.Equal(t, "checkpoint: cuCheckpointProcessRestore: pid 7: out of memory (CUDA_ERROR_OUT_OF_MEMORY 2), now checkpointed: cause", e.Error())
	require.ErrorIs(t, e, ErrMemory)
	require.False(t, UnknownState(7).Known())
	require.Equal(t, State("unknown(7)"), UnknownState(7))
}
