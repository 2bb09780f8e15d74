package checkpoint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
)

// TestRequestsAtOnceAreEachAnswered: of many that let a paused job go one gets
// the report, and nobody waits for one that never comes.
func TestRequestsAtOnceAreEachAnswered(t *testing.T) {
	j := start(t, 2, nil)
	for range 20 {
		_, err := j.Pause(t.Context(), checkpoint.Request{})
		require.NoError(t, err)
		faults := make([]error, 8)
		var wg sync.WaitGroup
		for i := range faults {
			wg.Go(func() { _, faults[i] = j.Resume(t.Context(), nil) })
		}
		wg.Wait()
		well := 0
		for _, err := range faults {
			if err == nil {
				well++
				continue
			}
			require.ErrorIs(t, err, lockstep.ErrConflict)
		}
		require.Equal(t, 1, well)
		require.Equal(t, all(2, checkpoint.Running), j.states(t))
	}
}

// flaky is a listener whose first Accepts fail, as with no descriptor left.
type flaky struct {
	net.Listener
	mu   sync.Mutex
	left int
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	f.left--
	fails := f.left >= 0
	f.mu.Unlock()
	if fails {
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

// TestAListenerSurvivesFailuresAndGarbage: neither an Accept that fails nor a peer
// that talks nonsense, or stops in the middle of a line, ends the transport.
func TestAListenerSurvivesFailuresAndGarbage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plain, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := plain.Addr().String()
	leader := checkpoint.Listen(ctx, &flaky{Listener: plain, left: 1})
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", at) }
	line := "{\"kind\":\"hello\",\"job\":\"j\",\"rank\":7}"
	for n := range line {
		conn, err := dial(ctx)
		require.NoError(t, err)
		_, err = conn.Write([]byte(line[:n]))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	for _, bad := range []string{"\x00\xff\n", "[]\n", "{\"rank\":-1}\n", "{\"rank\":99999999}\n"} {
		conn, err := dial(ctx)
		require.NoError(t, err)
		_, err = conn.Write([]byte(bad))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed on %q", bad)
	}
	rank := checkpoint.Dial(ctx, "j", 3, dial)
	require.Eventually(t, func() bool { return rank.Send(&checkpoint.Message{Kind: "busy", Job: "j", Rank: 3}) == nil }, time.Minute, time.Millisecond)
	m, err := leader.Receive(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, m.Rank)
}

// stepping is a Fake whose targets are at step 7.
type stepping struct{ *checkpointtest.Fake }

func (s stepping) TrainingStep(context.Context, checkpoint.Target) (uint64, error) { return 7, nil }

func (s stepping) LockAt(ctx context.Context, t checkpoint.Target, _ uint64, o checkpoint.LockOptions) error {
	return s.Lock(ctx, t, o)
}

// steps notes which step each save is told.
type steps struct {
	mu   sync.Mutex
	list []uint64
}

func (s *steps) Save(_ context.Context, r checkpoint.SaveRequest) (checkpoint.RankImage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, r.Step)
	return checkpoint.RankImage{Rank: r.Rank}, nil
}

// TestASaveIsToldTheStepOfItsManifest: a store refuses an epoch whose images say
// another step than it does.
func TestASaveIsToldTheStepOfItsManifest(t *testing.T) {
	saver := &steps{}
	j := start(t, 2, func(c *checkpoint.LocalConfig, j *job) { c.Driver, c.Saver = stepping{j.fake}, saver })
	r, err := j.Checkpoint(t.Context(), checkpoint.Request{Cooperative: true})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, r.Outcome, "%s", r)
	require.Equal(t, uint64(9), r.Manifest.Step)
	require.Equal(t, []uint64{9, 9}, saver.list)
}

// TestAnyFaultAndAnyCancelLeavesAllRunning: calls that fail in any way and
// contexts that end at any time leave no live target held, but one that is
// reported.
func TestAnyFaultAndAnyCancelLeavesAllRunning(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 50
	}
	kinds := []error{nil, checkpoint.ErrTimeout, checkpoint.ErrDriver, checkpoint.ErrIllegalState, checkpoint.ErrUnsupported, checkpoint.ErrMemory}
	before := runtime.NumGoroutine()
	for seed := range runs {
		r := rand.New(rand.NewPCG(seed, 1))
		j := start(t, 3, nil)
		for range r.IntN(4) {
			kind := kinds[r.IntN(len(kinds))]
			work := r.IntN(2) == 0 && !errors.Is(kind, checkpoint.ErrIllegalState) // a lock that is refused so and is there is a stranger's
			j.fake.Plan(r.IntN(14), checkpointtest.Fault{Kind: kind, Work: work})
		}
		q := checkpoint.Request{Early: r.IntN(3) == 0, Sequential: r.IntN(3) == 0}
		ctx, cancel := context.WithCancel(t.Context())
		if r.IntN(2) == 0 {
			time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, cancel)
		}
		report, err := j.Checkpoint(ctx, q)
		if report == nil {
			require.ErrorIs(t, err, context.Canceled, "seed %d", seed)
		} else {
			bad := map[int]bool{}
			for _, f := range report.Broken {
				bad[f.Rank] = true
			}
			for i, s := range j.states(t) {
				require.True(t, bad[i] || s == checkpoint.Running, "seed %d: rank %d is %s after %s", seed, i, s, report)
			}
		}
		cancel()
		j.stop()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, time.Minute, time.Millisecond, "goroutines are left")
}
