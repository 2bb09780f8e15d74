package cuda

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// do makes one call by its name.
func do(d *Driver, v verb, t checkpoint.Target) (err error) {
	ctx := context.Background()
	switch v {
	case lock:
		err = d.Lock(ctx, t, checkpoint.LockOptions{Timeout: patience})
	case suspend:
		_, err = d.Suspend(ctx, t)
	case resume:
		_, err = d.Resume(ctx, t, checkpoint.ResumeOptions{})
	case unlock:
		err = d.Unlock(ctx, t)
	case undo:
		err = d.Undo(ctx, t)
	}
	return err
}

// Every call in every state: where it leads, and what it says.
func TestEveryEdge(t *testing.T) {
	illegal, wedged := checkpoint.ErrIllegalState, checkpoint.ErrWedged
	type edge struct {
		to   int32
		kind error
	}
	edges := map[verb][4]edge{
		lock:    {{cudatest.Locked, nil}, {cudatest.Locked, nil}, {cudatest.Checkpointed, illegal}, {cudatest.Failed, wedged}},
		suspend: {{cudatest.Running, illegal}, {cudatest.Checkpointed, nil}, {cudatest.Checkpointed, nil}, {cudatest.Failed, wedged}},
		resume:  {{cudatest.Running, illegal}, {cudatest.Locked, nil}, {cudatest.Locked, nil}, {cudatest.Failed, wedged}},
		unlock:  {{cudatest.Running, nil}, {cudatest.Running, nil}, {cudatest.Checkpointed, illegal}, {cudatest.Failed, wedged}},
		undo:    {{cudatest.Running, nil}, {cudatest.Running, nil}, {cudatest.Running, nil}, {cudatest.Failed, wedged}},
	}
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		for v, row := range edges { // each stands alone, so order cannot matter
			for from, want := range row {
				p := f.Start(t)
				p.SetState(int32(from))
				before := f.Changes()
				err := do(d, v, p.Target)
				require.Equal(t, want.to, p.State(), "%s from %d", v, from)
				if want.kind == nil {
					require.NoError(t, err, "%s from %d", v, from)
				} else {
					e := driverError(t, err, want.kind)
					require.Equal(t, stateOf(int(want.to)), e.State)
					require.Equal(t, p.PID, e.PID)
					require.Equal(t, before, f.Changes(), "a refusal changes nothing")
				}
				p.Kill()
				require.Equal(t, checkpoint.Gone, stateNow(t, d, p))
				require.ErrorIs(t, do(d, v, p.Target), checkpoint.ErrGone)
				require.Empty(t, d.Owed())
			}
		}
	})
}

// Every code at every call that changes something: its kind, number, name, and the
// state that was read afterwards.
func TestEveryCodeIsTold(t *testing.T) {
	functions := map[verb]int32{lock: cudatest.Lock, suspend: cudatest.Checkpoint, resume: cudatest.Restore, unlock: cudatest.Unlock}
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		if testing.Short() && d.name == "cuda-checkpoint" {
			t.Skip("NOT TESTED with -short: the program's texts for all codes")
		}
		for _, m := range meanings[1:] {
			for v, call := range functions { // each stands alone, so order cannot matter
				p := f.Start(t)
				at := map[verb]int32{lock: 0, suspend: 1, resume: 2, unlock: 1}[v]
				p.SetState(at)
				f.Plan(cudatest.Fault{Call: call, Kind: cudatest.Code, Code: int32(m.code)})
				err := do(d, v, p.Target)
				kind, state := m.kind, stateOf(int(at))
				if v == resume && (m.code == outOfMemory || m.code == osCall) {
					kind, state = checkpoint.ErrWedged, checkpoint.Failed
					require.ErrorIs(t, err, m.kind, "the cause is told as well")
				}
				e := driverError(t, err, kind)
				require.Equal(t, int(m.code), e.Code)
				require.Equal(t, m.name, e.Name)
				require.Equal(t, state, e.State)
				require.Equal(t, v.String(), e.Call)
				p.Kill()
				require.Empty(t, d.Owed())
			}
		}
	})
}

// A reading that fails for good is an error of State, with its code.
func TestEveryCodeOfReadingIsTold(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		for _, m := range meanings[1:] {
			f.Plan(cudatest.Fault{Call: cudatest.GetState, Kind: cudatest.Code, Code: int32(m.code)})
			_, err := d.State(context.Background(), p.Target)
			e := driverError(t, err, m.kind)
			require.Equal(t, int(m.code), e.Code)
			require.Equal(t, getState, e.Call)
		}
		f.Plan()
		require.Equal(t, checkpoint.Running, stateNow(t, d, p))
	})
}

func TestStatesThatNobodyKnowsAreLeftAlone(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	numbers := []int32{77, -1, 6, 1 << 30}
	if testing.Short() {
		numbers = numbers[:1]
	}
	for _, n := range numbers {
		f.Plan(cudatest.Fault{Call: cudatest.GetState, Times: 100, Kind: cudatest.Corrupt, Arg: n})
		require.Equal(t, checkpoint.UnknownState(int(n)), stateNow(t, d, p))
		changes := f.Changes()
		for v := lock; v <= undo; v++ {
			e := driverError(t, do(d, v, p.Target), checkpoint.ErrDriver)
			require.Equal(t, checkpoint.UnknownState(int(n)), e.State)
		}
		require.Equal(t, changes, f.Changes())
	}
}

// The states of CUDA 13.4 that do not last are waited for.
func TestStatesThatDoNotLastAreWaitedFor(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	require.NoError(t, do(d, lock, p.Target))
	f.Plan(
		cudatest.Fault{Call: cudatest.GetState, At: 1, Times: 3, Kind: cudatest.Corrupt, Arg: 4},
		cudatest.Fault{Call: cudatest.GetState, At: 6, Times: 3, Kind: cudatest.Corrupt, Arg: 5},
	)
	require.NoError(t, do(d, suspend, p.Target))
	require.NoError(t, do(d, resume, p.Target))
	require.NoError(t, do(d, unlock, p.Target))
	f.Plan(cudatest.Fault{Call: cudatest.GetState, Kind: cudatest.Corrupt, Arg: 4})
	require.Equal(t, checkpoint.Checkpointing, stateNow(t, d, p), "State tells them")
	f.Plan(cudatest.Fault{Call: cudatest.GetState, Kind: cudatest.Corrupt, Arg: 5})
	require.Equal(t, checkpoint.Restoring, stateNow(t, d, p))
	unharmed(t, d, p)
}

// A lock that another has taken between two looks is told, and left to its owner.
func TestAForeignLockIsLeftToItsOwner(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.Change, Arg: cudatest.Locked})
	e := driverError(t, do(d, lock, p.Target), checkpoint.ErrIllegalState)
	require.Equal(t, checkpoint.Locked, e.State)
	require.Equal(t, cudatest.Locked, p.State())
	p.SetState(cudatest.Running)
	require.Equal(t, checkpoint.Running, stateNow(t, d, p))
	require.Empty(t, d.Owed())
}

func TestOwedTellsWhoIsHeld(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p, q := f.Start(t), f.Start(t)
	require.Empty(t, d.Owed())
	require.NoError(t, do(d, lock, p.Target))
	require.NoError(t, do(d, lock, q.Target))
	list := d.Owed()
	require.Len(t, list, 2)
	require.Equal(t, min(p.PID, q.PID), list[0].Target.PID)
	require.Equal(t, Debt{Target: list[0].Target}, list[0])
	require.NoError(t, do(d, unlock, p.Target))
	require.Equal(t, q.Target, d.Owed()[0].Target)
	q.SetState(cudatest.Running) // by a stranger: reading it settles that
	require.Equal(t, checkpoint.Running, stateNow(t, d, q))
	require.Empty(t, d.Owed())
	require.NoError(t, do(d, lock, q.Target))
	q.KillOnly(t)
	require.Empty(t, d.Owed(), "the dead are owed nothing")
}

func TestACallIsOneAtATimeForATarget(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p, q := f.Start(t), f.Start(t)
	f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.Block})
	require.ErrorIs(t, during(t, f, 1, func(ctx context.Context) error {
		return d.Lock(ctx, p.Target, checkpoint.LockOptions{Timeout: patience})
	}), checkpoint.ErrInFlight)
	for v := lock; v < undo; v++ {
		driverError(t, do(d, v, p.Target), checkpoint.ErrInFlight)
	}
	require.Equal(t, checkpoint.Running, stateNow(t, d, p), "reading is free")
	require.NoError(t, do(d, lock, q.Target), "and so are others")
	require.NoError(t, do(d, unlock, q.Target))
	driverError(t, d.Close(), checkpoint.ErrInFlight)
	f.Release()
	quiet(t, d)
	_, err := d.State(context.Background(), p.Target)
	driverError(t, err, checkpoint.ErrDriver) // it was closed
	driverError(t, do(d, lock, p.Target), checkpoint.ErrDriver)
	require.Equal(t, cudatest.Running, p.State())
	locks, unlocks := p.Locks()
	require.Equal(t, 1, locks)
	require.Equal(t, 1, unlocks)
}

// Undo waits for a call in flight, or for its own context.
func TestUndoWaits(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.BlockAfter})
	require.ErrorIs(t, during(t, f, 1, func(ctx context.Context) error {
		return d.Lock(ctx, p.Target, checkpoint.LockOptions{Timeout: patience})
	}), checkpoint.ErrInFlight)
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := d.Undo(short, p.Target)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, errors.Is(err, checkpoint.ErrInFlight) || errors.Is(err, checkpoint.ErrTimeout), "%v", err)
	end := make(chan error, 1)
	go func() { end <- d.Undo(context.Background(), p.Target) }()
	f.Release()
	require.NoError(t, <-end)
	unharmed(t, d, p)
}

func TestMovingToOtherDevices(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		p.SetHeld(1, 1<<30)
		id := func(i int) lockstep.DeviceID { return lockstep.DeviceID(f.UUID(i)) }
		require.NoError(t, do(d, lock, p.Target))
		require.NoError(t, do(d, suspend, p.Target))
		for name, m := range map[string][]checkpoint.DevicePair{ // each stands alone, so order cannot matter
			"partial":        {{Old: id(0), New: id(2)}},
			"another chip":   {{Old: id(0), New: id(3)}, {Old: id(1), New: id(2)}},
			"unknown device": {{Old: id(0), New: "GPU-00000000-0000-0000-0000-0000000000ff"}, {Old: id(1), New: id(2)}},
		} {
			_, err := d.Resume(context.Background(), p.Target, checkpoint.ResumeOptions{Map: m})
			e := driverError(t, err, lockstep.ErrInvalid)
			require.Equal(t, 1, e.Code, name)
			require.Equal(t, checkpoint.Checkpointed, e.State, name)
		}
		swap := []checkpoint.DevicePair{{Old: id(0), New: id(1)}, {Old: id(1), New: id(2)}}
		_, err := d.Resume(context.Background(), p.Target, checkpoint.ResumeOptions{Map: swap})
		require.NoError(t, err)
		require.NoError(t, do(d, unlock, p.Target))
		require.Equal(t, []int64{0, 1 << 30, 1 << 30}, []int64{p.Held(0), p.Held(1), p.Held(2)})
		unharmed(t, d, p)
	})
}

// A dead target is gone while a call for it is in flight as well.
func TestATargetThatDiesMeanwhileIsGone(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		for _, call := range []int32{cudatest.GetState, cudatest.Lock, cudatest.Checkpoint} {
			p := f.Start(t)
			f.Plan(cudatest.Fault{Call: call, Kind: cudatest.Block})
			end := make(chan error, 1)
			go func() { end <- forget(context.Background(), d, p) }()
			f.AwaitBlocked(t, 1)
			p.KillOnly(t)
			f.Release()
			e := driverError(t, <-end, checkpoint.ErrGone)
			require.Equal(t, checkpoint.Gone, e.State)
			unharmed(t, d, p)
		}
	})
}
