package cuda

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// lap is how many calls of the library one cycle of one target makes: each of its
// four calls reads the state, acts, and reads it again.
const lap = 12

// bench keeps one driver and one target for many cases, and renews the target when a
// case has killed or wedged it.
type bench struct {
	t     *testing.T
	f     *cudatest.Fake
	d     *Driver
	p     *cudatest.Target
	cases int
}

func (b *bench) target() *cudatest.Target {
	if b.p != nil {
		s, err := b.d.State(context.Background(), b.p.Target)
		require.NoError(b.t, err)
		if s == checkpoint.Running && !b.p.Poisoned() {
			return b.p
		}
		b.p.Kill()
		require.Empty(b.t, b.d.Owed(), "what is dead is owed nothing")
	}
	b.p = b.f.Start(b.t)
	return b.p
}

// run has one cycle meet a fault, and checks that nothing is left half paused.
func (b *bench) run(plan cudatest.Fault) {
	b.t.Helper()
	p := b.target()
	b.f.Plan(plan)
	b.cases++
	err := cycle(context.Background(), b.d, patience, nil, p)
	b.f.Plan()
	if err != nil {
		var e *checkpoint.DriverError
		require.ErrorAs(b.t, err, &e, "%+v", plan)
		require.NotNil(b.t, e.Kind, "%+v", plan)
	}
	defer func() {
		if b.t.Failed() {
			b.t.Logf("after %+v: %v", plan, err)
		}
	}()
	unharmed(b.t, b.d, p)
}

// codes are the results in the driver's table that are no success, and one that
// nobody knows.
func codes() (list []int32) {
	for _, m := range meanings[1:] {
		list = append(list, int32(m.code))
	}
	return append(list, 12345)
}

// plans are the faults for one call: all, or with some those that differ most.
func plans(at int32, some bool) (list []cudatest.Fault) {
	all, acts := codes(), at%3 == 1
	if some {
		all = []int32{2, 304, 401, 600, 801}
		if !acts {
			all = all[1:2]
		}
	}
	for _, code := range all {
		list = append(list,
			cudatest.Fault{At: at, Kind: cudatest.Code, Code: code},
			cudatest.Fault{At: at, Kind: cudatest.CodeAfter, Code: code})
	}
	for state := cudatest.Running; state <= cudatest.Failed; state++ {
		if !some || acts {
			list = append(list, cudatest.Fault{At: at, Kind: cudatest.Change, Arg: state})
		}
		// What a stranger does after the last reading of all nobody can see.
		if (!some || !acts) && (at < lap-1 || state == cudatest.Running) {
			list = append(list, cudatest.Fault{At: at, Kind: cudatest.ChangeAfter, Arg: state})
		}
	}
	list = append(list,
		cudatest.Fault{At: at, Kind: cudatest.Corrupt, Arg: 77},
		cudatest.Fault{At: at, Kind: cudatest.Code, Times: readTries, Code: 999},
		cudatest.Fault{At: at, Kind: cudatest.Kill, Code: 999},
		cudatest.Fault{At: at, Kind: cudatest.LieFailed},
	)
	if some {
		return list
	}
	return append(list,
		cudatest.Fault{At: at, Kind: cudatest.Sleep, Arg: 1},
		cudatest.Fault{At: at, Kind: cudatest.Corrupt, Arg: -1},
		cudatest.Fault{At: at, Kind: cudatest.Corrupt, Times: readTries, Arg: 6},
		cudatest.Fault{At: at, Kind: cudatest.Code, Times: 2 * readTries, Code: 304},
		cudatest.Fault{At: at, Kind: cudatest.Kill, Code: 0},
		cudatest.Fault{At: at, Kind: cudatest.Lie},
	)
}

// A fault at each call of a full cycle, on each way to the driver: never is a target
// half paused, and it is unlocked as often as it is locked.
func TestNoFaultLeavesATargetHalfPaused(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		b := &bench{t: t, f: f, d: d}
		f.Plan()
		require.NoError(t, cycle(context.Background(), d, patience, nil, b.target()))
		require.Equal(t, lap, f.Calls())
		slow := d.name == "cuda-checkpoint"
		for at := range int32(lap) {
			if testing.Short() && (slow && at != 4 || d.name == "cuda-helper" && at != 4 && at != 7) {
				continue // only Suspend, or that and Resume
			}
			for _, plan := range plans(at, slow || testing.Short()) {
				b.run(plan)
			}
			if d.name == "cuda-helper" && (at%3 == 1 || !testing.Short()) {
				b.run(cudatest.Fault{At: at, Kind: cudatest.Crash})
				b.run(cudatest.Fault{At: at, Kind: cudatest.CrashAfter})
			}
		}
		t.Logf("%s: %d faults", d.name, b.cases)
	})
}

// The same with the faults that last: each call blocks, before or after it has done
// its work, its caller gives up, and the call returns later.
func TestACallThatOutlivesItsCallerIsUndone(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		b := &bench{t: t, f: f, d: d}
		for at := range int32(lap) {
			if testing.Short() && d.name == "cuda-checkpoint" && at%3 != 1 {
				continue // only what acts
			}
			for _, kind := range []cudatest.Kind{cudatest.Block, cudatest.BlockAfter} {
				p := b.target()
				f.Plan(cudatest.Fault{At: at, Kind: kind})
				b.cases++
				err := during(t, f, 1, func(ctx context.Context) error {
					return cycle(ctx, d, patience, f.Release, p)
				})
				driverError(t, err, checkpoint.ErrInFlight)
				require.ErrorIs(t, err, context.Canceled)
				unharmed(t, d, p)
				require.Equal(t, checkpoint.Running, stateNow(t, d, p), "call %d", at)
			}
		}
		t.Logf("%s: %d faults", d.name, b.cases)
	})
}

// A caller who gives up may never come back: what it called is undone all the same.
func TestACallThatIsForgottenIsUndone(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		b := &bench{t: t, f: f, d: d}
		for _, call := range []int32{cudatest.Lock, cudatest.Checkpoint, cudatest.Restore, cudatest.Unlock} {
			for _, kind := range []cudatest.Kind{cudatest.Block, cudatest.BlockAfter} {
				p := b.target()
				f.Plan(cudatest.Fault{Call: call, Kind: kind})
				b.cases++
				err := during(t, f, 1, func(ctx context.Context) error { return forget(ctx, d, p) })
				driverError(t, err, checkpoint.ErrInFlight)
				require.Len(t, d.Owed(), 1)
				require.NotEmpty(t, d.Owed()[0].Call)
				driverError(t, d.Unlock(context.Background(), p.Target), checkpoint.ErrInFlight)
				f.Release()
				unharmed(t, d, p)
				require.Equal(t, checkpoint.Running, stateNow(t, d, p))
				locks, unlocks := p.Locks()
				require.Equal(t, locks, unlocks)
			}
		}
		t.Logf("%s: %d faults", d.name, b.cases)
	})
}

// forget makes the calls of a cycle until one fails, and leaves it at that.
func forget(ctx context.Context, d *Driver, p *cudatest.Target) error {
	if err := d.Lock(ctx, p.Target, checkpoint.LockOptions{Timeout: patience}); err != nil {
		return err
	}
	if _, err := d.Suspend(ctx, p.Target); err != nil {
		return err
	}
	if _, err := d.Resume(ctx, p.Target, checkpoint.ResumeOptions{}); err != nil {
		return err
	}
	return d.Unlock(ctx, p.Target)
}

func stateNow(t testing.TB, d *Driver, p *cudatest.Target) checkpoint.State {
	t.Helper()
	s, err := d.State(context.Background(), p.Target)
	require.NoError(t, err)
	return s
}

// A lock that times out leaves the target running, by whichever code and however
// late; one that worked after all is undone.
func TestALockThatTimesOutLeavesTheTargetRunning(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		for _, plan := range []cudatest.Fault{
			{Call: cudatest.Lock, Kind: cudatest.Slow, Code: 600},
			{Call: cudatest.Lock, Kind: cudatest.Slow, Code: 909},
			{Call: cudatest.Lock, Kind: cudatest.CodeAfter, Code: 600},
			{Call: cudatest.Lock, Kind: cudatest.CodeAfter, Code: 909},
		} {
			f.Plan(plan)
			err := d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: 5 * time.Millisecond})
			e := driverError(t, err, checkpoint.ErrTimeout)
			require.Equal(t, int(plan.Code), e.Code)
			require.Equal(t, checkpoint.Running, e.State)
			unharmed(t, d, p)
		}
		f.Plan()
		p.SetHung(true) // work that never ends: only the driver's own timeout helps
		err := d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: 5 * time.Millisecond})
		driverError(t, err, checkpoint.ErrTimeout)
		p.SetHung(false)
		f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.SlowLock}) // late, but it worked
		require.NoError(t, cycle(context.Background(), d, 5*time.Millisecond, nil, p))
		unharmed(t, d, p)
	})
}

// Two ranks, a fault at each of their calls: both run afterwards, or are told of.
func TestRanksComeBackTogether(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	cases := 0
	for at := range int32(2 * lap) {
		if testing.Short() && at%8 != 0 {
			continue
		}
		for _, kind := range []cudatest.Kind{cudatest.Code, cudatest.CodeAfter, cudatest.Lie, cudatest.Kill} {
			for _, code := range []int32{2, 600, 801} {
				p, q := f.Start(t), f.Start(t)
				f.Plan(cudatest.Fault{At: at, Kind: kind, Code: code})
				cases++
				_ = cycle(context.Background(), d, patience, nil, p, q)
				f.Plan()
				unharmed(t, d, p)
				unharmed(t, d, q)
				p.Kill()
				q.Kill()
				require.Empty(t, d.Owed())
			}
		}
	}
	t.Log(fmt.Sprint(cases, " faults"))
}
