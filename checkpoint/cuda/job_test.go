package cuda

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// hurry is how long a call may take that is to be given up.
const hurry = 20 * time.Millisecond

// ranks is how many processes a job of these tests has.
const ranks = 3

// crew is three processes, their leader and their agents, as a program has them.
type crew struct {
	*checkpoint.Local
	d       *Driver
	ledger  *checkpointtest.Ledger
	targets []*cudatest.Target
	saves   atomic.Int32 // of targets that were not suspended, which is never right
	stop    func()

	reported atomic.Bool // the last request has ended
}

// newCrew starts a job whose calls may take so long.
func newCrew(t *testing.T, f *cudatest.Fake, d *Driver, call time.Duration) *crew {
	t.Helper()
	j := &crew{d: d, ledger: &checkpointtest.Ledger{}}
	cfg := checkpoint.LocalConfig{
		Config: checkpoint.Config{Job: "j", Term: 1, MaxAborts: 1 << 20, LockTimeout: call},
		Agent:  checkpoint.AgentConfig{Poll: time.Millisecond, Call: call},
		Driver: d, Ledger: j.ledger, Saver: j, Kill: j.kill,
		Workers: 4 * ranks, // those that hang keep theirs
	}
	for i := range ranks {
		p := f.Start(t)
		p.Target.Rank = i
		j.targets, cfg.Targets = append(j.targets, p), append(cfg.Targets, p.Target)
	}
	var err error
	j.Local, err = checkpoint.NewLocal(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	j.stop = func() {
		cancel()
		require.NoError(t, <-ended)
		for _, p := range j.targets {
			p.Kill()
		}
		quiet(t, d)
		require.Empty(t, d.Owed(), "what is dead is owed nothing")
	}
	return j
}

func (j *crew) kill(_ context.Context, t checkpoint.Target) error {
	j.targets[t.Rank].Kill()
	return nil
}

// Save implements checkpoint.Saver.
func (j *crew) Save(_ context.Context, r checkpoint.SaveRequest) (checkpoint.RankImage, error) {
	p := j.targets[r.Rank]
	if p.State() != cudatest.Checkpointed && isLive(p) {
		j.saves.Add(1)
	}
	r.Staged()
	return checkpoint.RankImage{Rank: r.Rank, Image: checkpoint.Digest{byte(r.Rank), byte(r.Epoch)}, Bytes: 1}, nil
}

// isLive says whether a process runs; a zombie does not.
func isLive(p *cudatest.Target) bool {
	_, ok, err := alive("test", p.Target)
	return ok || err != nil
}

// checked has the job saved once and says that nobody is left behind: with nobody broken
// all run, or all are gone where that was asked for and committed; else whoever is alive
// runs, or is named. It reports whether the job can go on.
func (j *crew) checked(t *testing.T, f *cudatest.Fake, q checkpoint.Request, plan ...cudatest.Fault) bool {
	t.Helper()
	f.Plan(plan...)
	r, err := j.request(q)
	f.Plan()
	j.reported.Store(true)
	require.NoError(t, err)
	require.Zero(t, j.saves.Load(), "saved what was not suspended")
	_, committed, err := j.ledger.Committed(context.Background(), "j", r.Epoch)
	require.NoError(t, err)
	require.Equal(t, r.Outcome == checkpoint.OutcomeCommitted, committed)
	why := fmt.Sprintf("%+v %+v: %s", q, plan, r)
	for i, p := range j.targets {
		named := slices.ContainsFunc(r.Broken, func(b checkpoint.RankFault) bool { return b.Rank == i })
		if isForeign(r, i) && p.State() == cudatest.Locked {
			// A lock that worked and says 401 looks like a stranger's, which is left to
			// its owner. The report says so, and so does the driver, who can undo it.
			require.True(t, slices.ContainsFunc(j.d.Owed(), func(o Debt) bool { return o.Target.PID == p.PID }), why)
			require.NoError(t, j.d.Undo(context.Background(), p.Target), why)
		}
		switch locks, unlocks := p.Locks(); {
		case r.Stopped, !isLive(p):
			require.False(t, isLive(p), why)
			require.True(t, named || r.Stopped, "rank %d: %s", i, why)
		case named:
			require.Contains(t, r.Kill, i, why)
		case len(r.Broken) == 0 || slices.Contains(r.Kill, i):
			require.Equal(t, cudatest.Running, p.State(), "rank %d: %s", i, why)
			require.Equal(t, locks, unlocks, "rank %d: %s", i, why)
		default:
			require.Fail(t, "left behind", "rank %d is in state %d: %s", i, p.State(), why)
		}
	}
	return len(r.Broken) == 0 && !r.Stopped
}

// isForeign says whether a rank is said to be held by somebody else.
func isForeign(r *checkpoint.Report, rank int) bool {
	return slices.ContainsFunc(r.Blame, func(b checkpoint.RankFault) bool { return b.Rank == rank && b.Reason == "foreign" })
}

// request asks for a save, or for a pause and its end.
func (j *crew) request(q checkpoint.Request) (*checkpoint.Report, error) {
	if !q.Hold {
		return j.Checkpoint(context.Background(), q)
	}
	r, err := j.Pause(context.Background(), checkpoint.Request{})
	if err != nil || r.Outcome != checkpoint.OutcomeHeld {
		return r, err
	}
	return j.Resume(context.Background(), nil)
}

// laps counts the calls of one save of a whole job.
func (j *crew) laps(t *testing.T, f *cudatest.Fake) int32 {
	f.Plan()
	r, err := j.Checkpoint(context.Background(), checkpoint.Request{})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
	return int32(f.Calls())
}

// The coordinator, an agent a rank, the driver, the library and three processes: a fault
// at each call of a save, and nobody is left behind.
func TestAJobIsSavedOrRunsOnWhateverFails(t *testing.T) {
	requests := []checkpoint.Request{{}, {StopAfter: true}, {Early: true}, {Sequential: true}, {Hold: true}}
	faults := []cudatest.Fault{
		{Kind: cudatest.Code, Code: 2},
		{Kind: cudatest.CodeAfter, Code: 2},
		{Kind: cudatest.Code, Code: 401},
		{Kind: cudatest.CodeAfter, Code: 401},
		{Kind: cudatest.Code, Code: 600},
		{Kind: cudatest.CodeAfter, Code: 909},
		{Kind: cudatest.Code, Code: 304},
		{Kind: cudatest.Code, Code: 801, Times: 2 * readTries},
		{Kind: cudatest.Lie},
		{Kind: cudatest.LieFailed},
		{Kind: cudatest.Kill, Code: 999},
		{Kind: cudatest.Corrupt, Arg: 77},
		{Kind: cudatest.Corrupt, Arg: cudatest.Locked},
		{Kind: cudatest.Corrupt, Arg: cudatest.Checkpointed},
		{Kind: cudatest.Change, Arg: cudatest.Failed},
	}
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		slowly(t, d)
		var j *crew
		fresh := func() *crew {
			if j == nil {
				j = newCrew(t, f, d, patience)
			}
			return j
		}
		n, cases := fresh().laps(t, f), 0
		step, list := int32(1), faults
		switch d.name { // a target that was killed is a new process
		case "cuda-checkpoint": // a call is a process, too
			step = n / 4
		case "cuda-helper":
			step, list = 6, append(slices.Clone(faults), cudatest.Fault{Kind: cudatest.Crash}, cudatest.Fault{Kind: cudatest.CrashAfter})
		}
		if testing.Short() {
			step *= 5
		}
		for at := int32(0); at < n; at += step {
			for k, fault := range list {
				if (int(at/step)+k)%3 != 0 {
					continue // each call meets a third of the faults, and each fault a third of the calls
				}
				fault.At = at
				q := requests[(int(at/step)+k)%len(requests)]
				if cases++; !fresh().checked(t, f, q, fault) {
					j.stop()
					j = nil
				}
			}
		}
		fresh().stop()
		t.Logf("%s: %d calls, %d faults", d.name, n, cases)
	})
}

// The same with calls that outlive their callers, before or after they have done their
// work: they are undone once they return, and the report waits for that.
func TestAJobOutlivesCallsThatHang(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		slowly(t, d)
		j, cases := newCrew(t, f, d, hurry), 0
		for _, call := range []int32{cudatest.Lock, cudatest.Checkpoint, cudatest.Restore, cudatest.Unlock} {
			for _, kind := range []cudatest.Kind{cudatest.Block, cudatest.BlockAfter} {
				for at := range int32(ranks) {
					if testing.Short() && (call+at+int32(kind))%3 != 0 {
						continue
					}
					cases++
					j.reported.Store(false)
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						cudatest.Await(t, "a call that is given up", func() bool { return j.reported.Load() || f.Blocked() > 0 && d.abandons() })
						f.Release()
					}()
					require.True(t, j.checked(t, f, checkpoint.Request{}, cudatest.Fault{Call: call, At: at, Kind: kind}))
					<-ended
				}
			}
		}
		j.stop()
		t.Logf("%s: %d faults", d.name, cases)
	})
}

// slowly leaves out, under -short, the way to the driver on which a call is a process.
func slowly(t *testing.T, d *Driver) {
	t.Helper()
	if testing.Short() && d.name == "cuda-checkpoint" {
		t.Skip("jobs whose calls are processes are left out under -short")
	}
}

// abandons says whether nobody waits any more for a call that is in flight.
func (d *Driver) abandons() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.slots { // in any order
		if s.job != nil && s.job.abandoned {
			return true
		}
	}
	return false
}
