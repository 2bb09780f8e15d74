package checkpoint_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
)

// saver stores nothing and says that it did.
type saver struct {
	mu    sync.Mutex
	fail  map[int]error
	wait  chan struct{} // a save ends after it is closed; nil does not wait
	begun chan int      // gets the rank; nil for nobody
}

func (s *saver) Save(ctx context.Context, r checkpoint.SaveRequest) (checkpoint.RankImage, error) {
	r.Progress(lockstep.GiB)
	r.Staged()
	if s.begun != nil {
		s.begun <- r.Rank
	}
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			return checkpoint.RankImage{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[r.Rank]; err != nil {
		return checkpoint.RankImage{}, err
	}
	return checkpoint.RankImage{Rank: r.Rank, Image: checkpoint.Digest{byte(r.Rank), byte(r.Epoch)}, Bytes: 2 * lockstep.GiB, Took: time.Second}, nil
}

// job is a Local that runs, and what it works with.
type job struct {
	*checkpoint.Local
	fake    *checkpointtest.Fake
	ledger  *checkpointtest.Ledger
	saver   *saver
	targets []checkpoint.Target
	stop    func()
}

func start(t *testing.T, ranks int, change func(c *checkpoint.LocalConfig, j *job)) *job {
	t.Helper()
	j := &job{fake: checkpointtest.NewFake("gpu-0", "gpu-1"), ledger: &checkpointtest.Ledger{}, saver: &saver{}}
	for i := range ranks {
		target := checkpoint.Target{PID: 100 + i, Start: uint64(7 + i), Job: "j", Rank: i}
		j.fake.Add(target)
		j.targets = append(j.targets, target)
	}
	cfg := checkpoint.LocalConfig{
		Config:  checkpoint.Config{Job: "j", Term: 1},
		Agent:   checkpoint.AgentConfig{Poll: time.Millisecond},
		Targets: j.targets, Driver: j.fake, Saver: j.saver, Ledger: j.ledger,
		Kill: func(_ context.Context, target checkpoint.Target) error {
			j.fake.Put(target, checkpoint.Gone)
			return nil
		},
	}
	if change != nil {
		change(&cfg, j)
	}
	var err error
	j.Local, err = checkpoint.NewLocal(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	j.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(j.stop)
	return j
}

// states is where the targets are.
func (j *job) states(t *testing.T) []checkpoint.State {
	list := make([]checkpoint.State, len(j.targets))
	for i, target := range j.targets {
		s, err := j.fake.State(t.Context(), target)
		require.NoError(t, err)
		list[i] = s
	}
	return list
}

func all(n int, s checkpoint.State) []checkpoint.State {
	list := make([]checkpoint.State, n)
	for i := range list {
		list[i] = s
	}
	return list
}

func TestCheckpointSavesAllAndGoesOn(t *testing.T) {
	j := start(t, 4, nil)
	for e := checkpoint.Epoch(1); e <= 3; e++ {
		r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
		require.NoError(t, err)
		require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
		require.Equal(t, e, r.Epoch)
		require.Empty(t, r.Broken)
		require.Equal(t, all(4, checkpoint.Running), j.states(t))
		m, ok, err := j.ledger.Latest(t.Context(), "j")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, r.Manifest, m)
		require.Len(t, m.Ranks, 4)
	}
	for _, target := range j.targets {
		locks, unlocks := j.fake.Locks(target)
		require.Equal(t, 3, locks)
		require.Equal(t, 3, unlocks)
	}
	require.Len(t, j.Progress(), 4)
	require.Equal(t, 2*lockstep.GiB, j.Progress()[3].Bytes)
}

func TestEachCallThatFailsLeavesAllRunning(t *testing.T) {
	// Of two ranks every call of the way forward and back fails once, in each way.
	ways := []checkpointtest.Fault{
		{Kind: checkpoint.ErrTimeout},
		{Kind: checkpoint.ErrTimeout, Work: true},
		{Kind: checkpoint.ErrUnsupported, Code: 801},
		{Kind: checkpoint.ErrIllegalState, Code: 401},
		{}, // success while failed
	}
	for n := range 8 {
		for i, way := range ways {
			j := start(t, 2, nil)
			j.fake.Plan(n, way)
			r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
			require.NoError(t, err)
			calls := j.fake.Calls()
			wedged := n < len(calls) && calls[n].Do == "resume" && way.Kind == checkpoint.ErrUnsupported // a resume is not tried again for nothing
			if wedged {
				require.Len(t, r.Broken, 1, "call %d, way %d: %s", n, i, r)
				require.Equal(t, checkpoint.Checkpointed, r.Broken[0].State)
				require.Equal(t, []int{0, 1}, r.Kill)
				continue
			}
			require.Empty(t, r.Broken, "call %d, way %d: %s", n, i, r)
			require.Equal(t, all(2, checkpoint.Running), j.states(t), "call %d, way %d: %s", n, i, r)
			_, ok, err := j.ledger.Committed(t.Context(), "j", r.Epoch)
			require.NoError(t, err)
			require.Equal(t, r.Outcome == checkpoint.OutcomeCommitted, ok)
			if n < 4 { // locks and suspends
				require.Equal(t, checkpoint.OutcomeAborted, r.Outcome, "call %d, way %d", n, i)
			}
			j.stop()
		}
	}
}

func TestASaveThatFailsHasAllGoOn(t *testing.T) {
	j := start(t, 3, nil)
	j.saver.fail = map[int]error{1: checkpoint.ErrNoSpace}
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, lockstep.Reason("save"), r.Reason)
	require.Equal(t, 1, r.Blame[0].Rank)
	require.Equal(t, all(3, checkpoint.Running), j.states(t))
	_, ok, err := j.ledger.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestStopAfterTerminatesAllBehindTheCommit(t *testing.T) {
	j := start(t, 3, nil)
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{StopAfter: true})
	require.NoError(t, err)
	require.True(t, r.Stopped, "%s", r)
	require.Equal(t, all(3, checkpoint.Gone), j.states(t))
	_, err = j.Checkpoint(t.Context(), checkpoint.Request{})
	require.ErrorIs(t, err, lockstep.ErrConflict, "there is nobody left")
}

func TestPauseHoldsUntilResume(t *testing.T) {
	j := start(t, 2, nil)
	r, err := j.Pause(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeHeld, r.Outcome)
	require.Equal(t, all(2, checkpoint.Checkpointed), j.states(t), "the devices are free")
	_, err = j.Checkpoint(t.Context(), checkpoint.Request{})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = j.Resume(t.Context(), [][]checkpoint.DevicePair{{}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	r, err = j.Resume(t.Context(), [][]checkpoint.DevicePair{{{Old: "gpu-0", New: "gpu-1"}}, nil})
	require.NoError(t, err)
	require.Empty(t, r.Broken)
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
	_, err = j.Resume(t.Context(), nil)
	require.ErrorIs(t, err, lockstep.ErrConflict, "nobody is held")
}

func TestComplaint10AMapThatIsRefusedLeavesTheRankOnItsDevices(t *testing.T) {
	j := start(t, 1, nil)
	_, err := j.Pause(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	r, err := j.Resume(t.Context(), [][]checkpoint.DevicePair{{{Old: "gpu-0", New: "gpu-9"}}})
	require.NoError(t, err)
	require.Empty(t, r.Broken)
	require.Equal(t, all(1, checkpoint.Running), j.states(t))
	require.Contains(t, j.Progress()[0].Phase, "resumed")
}

func TestAContextThatEndsGivesTheEpochUp(t *testing.T) {
	j := start(t, 2, func(_ *checkpoint.LocalConfig, j *job) {
		j.saver.wait, j.saver.begun = make(chan struct{}), make(chan int, 2)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-j.saver.begun; cancel() }()
	r, err := j.Checkpoint(ctx, checkpoint.Request{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
}

func TestEarlyRanksRunWhileTheirBytesAreStored(t *testing.T) {
	j := start(t, 2, func(_ *checkpoint.LocalConfig, j *job) {
		j.saver.wait, j.saver.begun = make(chan struct{}), make(chan int, 2)
	})
	ended := make(chan *checkpoint.Report, 1)
	go func() {
		r, err := j.Checkpoint(t.Context(), checkpoint.Request{Early: true})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	require.Eventually(t, func() bool {
		p := j.Progress()
		return len(p) == 2 && p[0].Phase == "resumed" && p[1].Phase == "resumed"
	}, time.Minute, time.Millisecond)
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
	_, ok, err := j.ledger.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok, "nothing is durable yet")
	close(j.saver.wait)
	r := <-ended
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
}

func TestComplaint5ASuspendThatOutlastsItsTimerIsUndone(t *testing.T) {
	block := make(chan struct{})
	j := start(t, 2, func(c *checkpoint.LocalConfig, _ *job) {
		c.Agent.Call = 20 * time.Millisecond
	})
	j.fake.Plan(2, checkpointtest.Fault{Block: block, Work: true})
	ended := make(chan *checkpoint.Report, 1)
	go func() {
		r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	require.Eventually(t, func() bool { return len(j.fake.Calls()) > 5 }, time.Minute, time.Millisecond)
	close(block)
	r := <-ended
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Empty(t, r.Broken)
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
}

func TestComplaint1ARestoreOutOfMemoryIsWedgedAndNotRetried(t *testing.T) {
	j := start(t, 2, nil)
	for n := 4; n < 8; n++ { // the first resume, whoever's it is, is one of these
		j.fake.Plan(n, checkpointtest.Fault{Kind: checkpoint.ErrMemory, Code: 2})
	}
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "the image is what is left")
	require.NotEmpty(t, r.Broken)
	resumes := map[int]int{}
	for _, c := range j.fake.Calls() {
		if c.Do == "resume" {
			resumes[c.PID]++
		}
	}
	for _, f := range r.Broken {
		require.Equal(t, lockstep.Reason("wedged"), f.Reason)
		require.Equal(t, 1, resumes[100+f.Rank])
	}
}

func TestComplaint2ATargetThatDiesInALockIsToldApart(t *testing.T) {
	j := start(t, 2, nil)
	_, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	j.fake.Plan(8, checkpointtest.Fault{Kind: checkpoint.ErrDriver, Then: checkpoint.Gone})
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{Attempts: 5})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, lockstep.Reason("gone"), r.Broken[0].Reason)
	require.Len(t, r.Kill, 1, "its peer waits for ever")
	require.Equal(t, 1, r.Attempts, "a job without a rank is not tried again")
	m, ok, err := j.ledger.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, checkpoint.Epoch(1), m.Epoch, "the last image is what it was")
}

func TestAForeignOwnerIsLeftAlone(t *testing.T) {
	j := start(t, 2, nil)
	j.fake.Put(j.targets[1], checkpoint.Locked)
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, []checkpoint.RankFault{{Rank: 1, Reason: "foreign", State: checkpoint.Locked, Detail: "illegal state"}}, r.Blame)
	require.Equal(t, []checkpoint.State{checkpoint.Running, checkpoint.Locked}, j.states(t))
}

func TestEndingTheRunLetsHeldRanksGo(t *testing.T) {
	j := start(t, 3, nil)
	_, err := j.Pause(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	j.stop()
	require.Equal(t, all(3, checkpoint.Running), j.states(t))
	_, err = j.Checkpoint(t.Context(), checkpoint.Request{})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.ErrorIs(t, j.Run(t.Context()), lockstep.ErrConflict, "it runs once")
}

func TestBlockedCallsAreBounded(t *testing.T) {
	block := make(chan struct{})
	j := start(t, 6, func(c *checkpoint.LocalConfig, _ *job) {
		c.Workers = 2
		c.LockTimeout = 200 * time.Millisecond
	})
	for n := range 100 {
		j.fake.Plan(n, checkpointtest.Fault{Block: block})
	}
	ended := make(chan *checkpoint.Report, 1)
	go func() {
		r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	require.Eventually(t, func() bool { return len(j.fake.Calls()) >= 2 }, time.Minute, time.Millisecond)
	close(block)
	r := <-ended
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Empty(t, r.Broken, "%s", r)
	require.Equal(t, all(6, checkpoint.Running), j.states(t))
}

func TestALedgerWhoseAnswerIsLostStillCommitsOnce(t *testing.T) {
	j := start(t, 2, func(c *checkpoint.LocalConfig, j *job) {
		c.Silence, c.Resend = 50*time.Millisecond, 5*time.Millisecond
		j.ledger.FailCommit = func(n int) (bool, bool) { return n == 0, n == 1 }
	})
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{StopAfter: true})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
	require.True(t, r.Stopped)
}

func TestASuccessorEndsWhatWasLeftOpen(t *testing.T) {
	dir := t.TempDir()
	journal := func(rank int) checkpoint.Journal {
		return checkpoint.FileJournal(filepath.Join(dir, "rank"+string(rune('a'+rank+1))))
	}
	first := start(t, 2, func(c *checkpoint.LocalConfig, j *job) {
		c.Journal = journal
		j.saver.wait, j.saver.begun = make(chan struct{}), make(chan int, 2)
	})
	go func() { _, _ = first.Checkpoint(t.Context(), checkpoint.Request{}) }()
	<-first.saver.begun
	first.stop()

	cfg := checkpoint.LocalConfig{
		Config: checkpoint.Config{Job: "j", Term: 1}, Targets: first.targets, Driver: first.fake, Saver: &saver{}, Ledger: first.ledger, Journal: journal,
	}
	_, err := checkpoint.NewLocal(cfg)
	require.ErrorIs(t, err, checkpoint.ErrFenced, "the same term cannot shut itself out")
	cfg.Term = 2
	second, err := checkpoint.NewLocal(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	_, err = second.Checkpoint(t.Context(), checkpoint.Request{})
	require.ErrorIs(t, err, lockstep.ErrConflict, "first things first")
	r, err := second.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Empty(t, r.Broken, "%s", r)
	require.Equal(t, all(2, checkpoint.Running), first.states(t))
	r, err = second.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, &checkpoint.Report{}, r, "nothing is open")
	r, err = second.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.Epoch(2), r.Epoch, "a number is used once")
	cancel()
	require.NoError(t, <-ended)
}

// starter restores ranks as new targets.
type starter struct {
	fake *checkpointtest.Fake
	fail int
}

func (s *starter) Restore(_ context.Context, m *checkpoint.Manifest, rank int, _ []checkpoint.DevicePair) (checkpoint.Target, error) {
	if rank == s.fail {
		return checkpoint.Target{}, errors.New("no room")
	}
	target := checkpoint.Target{PID: 200 + rank, Start: 99, Job: m.Job, Rank: rank}
	s.fake.Add(target)
	return target, nil
}

func TestMigrateStopsBeforeItStarts(t *testing.T) {
	for _, fail := range []int{-1, 1} {
		j := start(t, 3, nil)
		killed := 0
		kill := func(_ context.Context, target checkpoint.Target) error {
			killed++
			j.fake.Put(target, checkpoint.Gone)
			return nil
		}
		targets, r, err := j.Migrate(t.Context(), checkpoint.Request{}, &starter{j.fake, fail}, nil, kill)
		require.True(t, r.Stopped)
		require.Equal(t, all(3, checkpoint.Gone), j.states(t))
		if fail < 0 {
			require.NoError(t, err)
			require.Len(t, targets, 3)
			continue
		}
		require.ErrorContains(t, err, "restore rank 1")
		require.Equal(t, 2, killed)
		_, _, err = j.Migrate(t.Context(), checkpoint.Request{}, nil, nil, kill)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestLeaderAndRanksMeetOverSockets(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	fake, ledger := checkpointtest.NewFake(), &checkpointtest.Ledger{}
	var wg sync.WaitGroup
	run := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	leader, err := checkpoint.NewLeader(checkpoint.LeaderConfig{
		Config: checkpoint.Config{Job: "j", Ranks: 3, Term: 1, Silence: time.Second, Resend: 20 * time.Millisecond},
		Ledger: ledger, Transport: checkpoint.Listen(ctx, l),
	})
	require.NoError(t, err)
	run(leader.Run)
	for i := range 3 {
		target := checkpoint.Target{PID: 10 + i, Start: 1}
		fake.Add(target)
		rank, err := checkpoint.NewRank(checkpoint.RankConfig{
			AgentConfig: checkpoint.AgentConfig{Job: "j", Rank: i}, Target: target, Driver: fake, Saver: &saver{}, Ledger: ledger,
			Transport: checkpoint.Dial(ctx, "j", i, func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
			}),
		})
		require.NoError(t, err)
		run(rank.Run)
	}
	r, err := leader.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
	cancel()
	wg.Wait()
}

func TestComplaint8AnObstacleIsFoundBeforeAnythingIsTouched(t *testing.T) {
	j := start(t, 2, nil)
	j.fake.Limit(j.targets[1], checkpoint.Unsupported{What: checkpoint.CanSuspend, Reason: "mig", Detail: "the device is partitioned"})
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, 1, r.Blame[0].Rank)
	require.Contains(t, r.Blame[0].Detail, "mig: the device is partitioned", "the cause can be read")
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
	locks, _ := j.fake.Locks(j.targets[1])
	require.Zero(t, locks)
}

func TestComplaint9ALockThatCannotBeFollowedByASuspendIsUndone(t *testing.T) {
	j := start(t, 2, nil)
	j.fake.Plan(2, checkpointtest.Fault{Kind: checkpoint.ErrUnsupported, Code: 801, Name: "CUDA_ERROR_NOT_SUPPORTED"})
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Contains(t, r.Blame[0].Detail, "CUDA_ERROR_NOT_SUPPORTED 801")
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
}

func TestComplaint14RanksAreStoppedAtOnce(t *testing.T) {
	block := make(chan struct{})
	j := start(t, 5, nil)
	for n := range 5 {
		j.fake.Plan(n, checkpointtest.Fault{Block: block, Work: true})
	}
	ended := make(chan *checkpoint.Report, 1)
	go func() {
		r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	require.Eventually(t, func() bool { return len(j.fake.Calls()) == 5 }, time.Minute, time.Millisecond, "five locks are under way together")
	close(block)
	require.Equal(t, checkpoint.OutcomeCommitted, (<-ended).Outcome)
}

func TestComplaint17SuccessIsTheStateReadBack(t *testing.T) {
	j := start(t, 1, nil)
	j.fake.Plan(2, checkpointtest.Fault{}) // a resume that says well, and does nothing
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Empty(t, r.Broken)
	require.Equal(t, all(1, checkpoint.Running), j.states(t))
	require.Equal(t, []string{"lock", "suspend", "resume", "resume", "unlock"}, doings(j.fake))
}

func doings(f *checkpointtest.Fake) []string {
	var list []string
	for _, c := range f.Calls() {
		list = append(list, c.Do)
	}
	return list
}

func TestComplaint19ASaveThatNeverEndsIsCancelled(t *testing.T) {
	j := start(t, 2, func(c *checkpoint.LocalConfig, j *job) {
		c.SaveTimeout = 50 * time.Millisecond
		j.saver.wait = make(chan struct{})
	})
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeAborted, r.Outcome)
	require.Equal(t, lockstep.Reason("timeout"), r.Reason)
	require.Empty(t, r.Broken)
	require.Equal(t, all(2, checkpoint.Running), j.states(t))
}
