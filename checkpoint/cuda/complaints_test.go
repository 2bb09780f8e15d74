package cuda

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// nvml is what a host knows of a fake's devices.
type nvml struct {
	f    *cudatest.Fake
	p    *cudatest.Target
	mig  bool
	off  bool // persistence mode
	fail error
}

func (n *nvml) Devices(context.Context, int) (list []Device, err error) {
	for i := range 4 {
		d := Device{ID: lockstep.DeviceID(n.f.UUID(i)), Chip: "one", MIG: n.mig, Persistent: !n.off, Free: lockstep.Bytes(n.f.Room(i))}
		if i == 3 {
			d.Chip = "other"
		}
		if n.p.State() != cudatest.Checkpointed {
			d.Held = lockstep.Bytes(n.p.Held(i))
		}
		list = append(list, d)
	}
	return list, n.fail
}

// withFacts returns a driver whose host knows its devices.
func withFacts(t testing.TB, f *cudatest.Fake) (*Driver, *nvml) {
	t.Helper()
	n := &nvml{f: f, p: f.Start(t)}
	d, err := New(Config{Library: f.Library(), Facts: n})
	require.NoError(t, err)
	return closed(t, d), n
}

// cuda-checkpoint#44: one restore without memory, and the process is lost for good.
func TestComplaint1RestoreOutOfMemory(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		require.NoError(t, do(d, lock, p.Target))
		require.NoError(t, do(d, suspend, p.Target))
		f.SetRoom(0, 1<<20)
		e := driverError(t, do(d, resume, p.Target), checkpoint.ErrWedged)
		require.ErrorIs(t, e, checkpoint.ErrMemory)
		require.Equal(t, int(outOfMemory), e.Code)
		require.Equal(t, checkpoint.Failed, e.State)
		f.SetRoom(0, 80<<30)
		calls := f.Calls()
		for v := lock; v <= undo; v++ {
			driverError(t, do(d, v, p.Target), checkpoint.ErrWedged)
		}
		require.Equal(t, calls, f.Calls(), "what is in vain is not tried")
		require.Equal(t, checkpoint.Failed, stateNow(t, d, p))
		require.True(t, d.Owed()[0].Wedged)

		// A driver that does not know finds the same by 304.
		other, err := New(Config{Library: f.Library()})
		require.NoError(t, err)
		e = driverError(t, do(other, resume, p.Target), checkpoint.ErrWedged)
		require.Equal(t, int(osCall), e.Code)
		require.NoError(t, other.Close())
		p.Kill()
		require.Empty(t, d.Owed())
	})
}

// The same with a host that knows how much is free: it is not tried, and can be later.
func TestComplaint1IsForeseen(t *testing.T) {
	f := cudatest.New(t)
	d, n := withFacts(t, f)
	require.NoError(t, do(d, lock, n.p.Target))
	moved, err := d.Suspend(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(1<<30), moved.Bytes)
	f.SetRoom(0, 1<<20)
	e := driverError(t, do(d, resume, n.p.Target), checkpoint.ErrMemory)
	require.Equal(t, checkpoint.Checkpointed, e.State)
	require.False(t, n.p.Poisoned())
	f.SetRoom(0, 80<<30)
	moved, err = d.Resume(context.Background(), n.p.Target, checkpoint.ResumeOptions{})
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(1<<30), moved.Bytes)
	f.SetRoom(0, 0) // once it is back it needs no more room
	moved, err = d.Resume(context.Background(), n.p.Target, checkpoint.ResumeOptions{})
	require.NoError(t, err)
	require.Zero(t, moved.Bytes, "nothing was moved")
	require.NoError(t, do(d, unlock, n.p.Target))
	unharmed(t, d, n.p)

	// Undo does not try it either.
	f.SetRoom(0, 80<<30)
	require.NoError(t, do(d, lock, n.p.Target))
	require.NoError(t, do(d, suspend, n.p.Target))
	f.SetRoom(0, 1<<20)
	e = driverError(t, do(d, undo, n.p.Target), checkpoint.ErrMemory)
	require.Equal(t, checkpoint.Checkpointed, e.State)
	require.ErrorIs(t, d.Owed()[0].Err, checkpoint.ErrMemory)
	require.False(t, d.Owed()[0].Wedged)
	require.False(t, n.p.Poisoned())
	f.SetRoom(0, 80<<30)
	require.NoError(t, do(d, undo, n.p.Target))
	unharmed(t, d, n.p)
}

// cuda-checkpoint#58: locking kills the target.
func TestComplaint2TheTargetDies(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		for _, code := range []int32{0, 999, 304} {
			p := f.Start(t)
			f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.Kill, Code: code})
			e := driverError(t, do(d, lock, p.Target), checkpoint.ErrGone)
			require.Equal(t, checkpoint.Gone, e.State)
			require.Equal(t, int(code), e.Code)
			unharmed(t, d, p)
		}
	})
}

// cuda-checkpoint#30, #45: one locked rank hangs all calls for its peers.
func TestComplaint3ALockedRankHangsItsPeers(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p, q := f.Start(t), f.Start(t)
		p.SetJob(1)
		q.SetJob(1)

		// Alone neither is granted; together both are.
		driverError(t, d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: 20 * time.Millisecond}), checkpoint.ErrTimeout)
		require.NoError(t, cycle(context.Background(), d, patience, nil, p, q))
		unharmed(t, d, p)
		unharmed(t, d, q)

		// A stranger locks one: the other cannot even be read, and nobody waits for it.
		p.SetState(cudatest.Locked)
		require.ErrorIs(t, during(t, f, 1, func(ctx context.Context) error {
			_, err := d.State(ctx, q.Target)
			return err
		}), checkpoint.ErrInFlight)
		require.ErrorIs(t, during(t, f, 2, func(ctx context.Context) error {
			return d.Lock(ctx, q.Target, checkpoint.LockOptions{Timeout: patience})
		}), checkpoint.ErrInFlight)
		require.Equal(t, checkpoint.Locked, stateNow(t, d, p))
		require.NoError(t, do(d, undo, p.Target))
		unharmed(t, d, p)
		unharmed(t, d, q)
		f.AwaitBlocked(t, 0)
	})
}

// cuda-checkpoint#26: a timer outside fires while the driver locks, and the lock stays.
// A lock's own timeout comes first, and then nothing is in flight.
func TestComplaint4TimeoutsNest(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		p.SetHung(true)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		driverError(t, d.Lock(ctx, p.Target, checkpoint.LockOptions{Timeout: 5 * time.Millisecond}), checkpoint.ErrTimeout)
		require.Empty(t, d.Owed())
		unharmed(t, d, p)
	})
}

// cuda-checkpoint#26, criu#2547: a timer ends while the driver works; the task stays
// locked. Here what was begun is owed before it begins.
func TestComplaint5WhatOutlastsItsTimerIsUndone(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		f.Plan(cudatest.Fault{Call: cudatest.Checkpoint, Kind: cudatest.Block})
		require.ErrorIs(t, during(t, f, 1, func(ctx context.Context) error { return forget(ctx, d, p) }), checkpoint.ErrInFlight)
		require.Equal(t, functions[suspend], d.Owed()[0].Call)
		f.Release()
		unharmed(t, d, p)
		require.Equal(t, cudatest.Running, p.State())
	})
}

// criu#2470: a process that is stopped or frozen first hangs the lock.
func TestComplaint6StoppedTargetsAreRefused(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		p.Stop(t)
		f.Plan()
		e := driverError(t, do(d, lock, p.Target), checkpoint.ErrIllegalState)
		require.ErrorContains(t, e, "stopped")
		require.Zero(t, f.Calls())
		limits, err := d.Inspect(context.Background(), p.Target)
		require.NoError(t, err)
		require.Equal(t, ReasonStopped, limits[0].Reason)
		p.Continue(t)
		require.NoError(t, do(d, lock, p.Target))
		p.Stop(t) // as CRIU does, once it is locked
		require.NoError(t, do(d, suspend, p.Target))
		require.NoError(t, do(d, resume, p.Target))
		require.NoError(t, do(d, unlock, p.Target))
		p.Continue(t)
		unharmed(t, d, p)
	})
}

// cuda-checkpoint#41: a thread's number is taken for a process, which then vanishes.
func TestComplaint7ThreadsAreNoTargets(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	f.Plan()
	thread := checkpoint.Target{PID: p.TID, Start: p.Start}
	for v := lock; v <= undo; v++ {
		e := driverError(t, do(d, v, thread), lockstep.ErrInvalid)
		require.ErrorContains(t, e, "is a thread of "+pidText(p))
	}
	_, err := d.State(context.Background(), thread)
	driverError(t, err, lockstep.ErrInvalid)
	_, err = d.Inspect(context.Background(), thread)
	driverError(t, err, lockstep.ErrInvalid)
	require.Zero(t, f.Calls())
}

// cuda-checkpoint#42: with MIG the driver says that memory is out.
func TestComplaint8MIG(t *testing.T) {
	f := cudatest.New(t)
	d, n := withFacts(t, f)
	n.mig = true
	limits, err := d.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Unsupported{What: checkpoint.CanSuspend, Reason: ReasonMIG, Detail: f.UUID(0) + " is in MIG mode"}, limits[0])
	require.NoError(t, do(d, lock, n.p.Target))
	driverError(t, do(d, suspend, n.p.Target), checkpoint.ErrUnsupported)
	require.NoError(t, do(d, undo, n.p.Target))
	unharmed(t, d, n.p)
}

// What the host's facts show is told by Inspect and refused by the call.
func TestFactsForeseeWhatMustFail(t *testing.T) {
	f := cudatest.New(t)
	d, n := withFacts(t, f)
	limits, err := d.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Empty(t, limits)
	require.NoError(t, do(d, lock, n.p.Target))
	n.p.SetHeld(0, 1<<60) // more than any host has
	limits, err = d.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Equal(t, ReasonMemory, limits[0].Reason)
	driverError(t, do(d, suspend, n.p.Target), checkpoint.ErrMemory)
	n.p.SetHeld(0, 1<<30)
	require.NoError(t, do(d, suspend, n.p.Target))
	n.mig = true // it was switched on meanwhile
	e := driverError(t, do(d, resume, n.p.Target), checkpoint.ErrUnsupported)
	require.ErrorContains(t, e, "MIG")
	n.mig = false
	require.NoError(t, do(d, undo, n.p.Target))
	unharmed(t, d, n.p)

	// Only the program leaves devices without anybody who keeps them initialised.
	n.off = true
	cli, err := NewCLI(CLIConfig{Path: f.CLI(), Facts: n})
	require.NoError(t, err)
	limits, err = cli.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Equal(t, ReasonPersistence, limits[0].Reason)
	limits, err = d.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Empty(t, limits)
	n.fail = errors.New("NVML has gone") // then nothing is known, and nothing refused
	limits, err = cli.Inspect(context.Background(), n.p.Target)
	require.NoError(t, err)
	require.Empty(t, limits)
	require.NoError(t, cycle(context.Background(), d, patience, nil, n.p))
}

// cuda-checkpoint#51: on arm64 Lock works and Checkpoint is not supported.
func TestComplaint9SuspendUnsupportedAfterLock(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		f.Plan(cudatest.Fault{Call: cudatest.Checkpoint, Times: 9, Kind: cudatest.Code, Code: 801})
		err := cycle(context.Background(), d, patience, nil, p)
		e := driverError(t, err, checkpoint.ErrUnsupported)
		require.Equal(t, checkpoint.Locked, e.State)
		unharmed(t, d, p)
	})
}

// cuda-checkpoint#35, #46: a map is refused as an "invalid argument". With facts the
// reason is told beforehand; without, the driver's code is.
func TestComplaint10MapsAreExplained(t *testing.T) {
	f := cudatest.New(t)
	d, n := withFacts(t, f)
	id := func(i int) lockstep.DeviceID { return lockstep.DeviceID(f.UUID(i)) }
	n.p.SetHeld(1, 1<<20)
	require.NoError(t, do(d, lock, n.p.Target))
	require.NoError(t, do(d, suspend, n.p.Target))
	f.Plan()
	for name, tt := range map[string]struct { // each stands alone, so order cannot matter
		m    []checkpoint.DevicePair
		want string
	}{
		"partial": {[]checkpoint.DevicePair{{Old: id(0), New: id(2)}}, "leaves out " + f.UUID(1)},
		"chip":    {[]checkpoint.DevicePair{{Old: id(0), New: id(3)}, {Old: id(1), New: id(2)}}, "want a one"},
		"unknown": {[]checkpoint.DevicePair{{Old: id(0), New: "GPU-00000000-0000-0000-0000-0000000000ff"}, {Old: id(1), New: id(2)}}, "no device of this host"},
	} {
		_, err := d.Resume(context.Background(), n.p.Target, checkpoint.ResumeOptions{Map: tt.m})
		driverError(t, err, lockstep.ErrInvalid)
		require.ErrorContains(t, err, tt.want, name)
	}
	require.Zero(t, f.Counts(cudatest.Restore))
	n.fail = errors.New("NVML has gone") // then the driver has to judge
	_, err := d.Resume(context.Background(), n.p.Target, checkpoint.ResumeOptions{Map: []checkpoint.DevicePair{{Old: id(0), New: id(3)}, {Old: id(1), New: id(2)}}})
	require.Equal(t, int(invalidValue), driverError(t, err, lockstep.ErrInvalid).Code)
	require.NoError(t, do(d, undo, n.p.Target))
	unharmed(t, d, n.p)
}

// cuda-checkpoint#39: five processes one after another are too slow. They go at the
// same time: each waits here until all are in.
func TestComplaint14ProcessesGoTogether(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	var list []*cudatest.Target
	for range 5 {
		list = append(list, f.Start(t))
	}
	f.Plan(cudatest.Fault{Call: cudatest.Lock, Times: 5, Kind: cudatest.Block})
	end := make(chan error, 1)
	go func() {
		end <- together(list, func(t checkpoint.Target) error { return do(d, lock, t) })
	}()
	f.AwaitBlocked(t, 5)
	f.Release()
	require.NoError(t, <-end)
	require.NoError(t, together(list, func(t checkpoint.Target) error { return do(d, undo, t) }))
	for _, p := range list {
		unharmed(t, d, p)
	}
}

// cuda-checkpoint#28: children that keep a device open without using CUDA.
func TestComplaint15ProcessesWithoutCUDA(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.StartPlain(t)
		limits, err := d.Inspect(context.Background(), p.Target)
		require.NoError(t, err)
		require.Equal(t, []checkpoint.Unsupported{{What: checkpoint.CanLock, Reason: ReasonNoCUDA, Detail: limits[0].Detail}}, limits)
		e := driverError(t, do(d, lock, p.Target), checkpoint.ErrDriver)
		require.Equal(t, int(invalidValue), e.Code)
		limits, err = d.Inspect(context.Background(), f.Start(t).Target)
		require.NoError(t, err)
		require.Empty(t, limits)
	})
}

// cuda-checkpoint#37: 304 from reading a state means rights or a container.
func TestComplaint16PermissionIsToldAsSuch(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		f.Plan(cudatest.Fault{Call: cudatest.GetState, Times: 99, Kind: cudatest.Code, Code: 304})
		driverError(t, do(d, lock, p.Target), checkpoint.ErrPermission)
		_, err := d.State(context.Background(), p.Target)
		driverError(t, err, checkpoint.ErrPermission)
		require.Zero(t, f.Counts(cudatest.Lock), "what cannot be read is not locked")
	})
}

// criu#2993: a restore that failed "succeeds". Here the state decides.
func TestComplaint17SuccessIsAStateAndNoCode(t *testing.T) {
	calls := map[verb]int32{lock: cudatest.Lock, suspend: cudatest.Checkpoint, resume: cudatest.Restore, unlock: cudatest.Unlock}
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		for v, call := range calls { // each stands alone, so order cannot matter
			for kind, want := range map[cudatest.Kind]error{cudatest.Lie: checkpoint.ErrDriver, cudatest.LieFailed: checkpoint.ErrWedged} {
				p := f.Start(t)
				p.SetState(map[verb]int32{lock: 0, suspend: 1, resume: 2, unlock: 1}[v])
				f.Plan(cudatest.Fault{Call: call, Kind: kind})
				e := driverError(t, do(d, v, p.Target), want)
				require.Zero(t, e.Code)
				f.Plan()
				_ = do(d, undo, p.Target)
				if kind == cudatest.Lie {
					require.Equal(t, cudatest.Running, p.State())
				}
				p.Kill()
			}
		}
	})
}

// go-nvml#82: a fault inside the library ends the helper and not this process.
func TestComplaint21AFaultInTheLibraryEndsTheHelperOnly(t *testing.T) {
	f := cudatest.New(t)
	d := helperDriver(t, f)
	p, q := f.Start(t), f.Start(t)
	for call, v := range map[int32]verb{cudatest.Lock: lock, cudatest.Checkpoint: suspend, cudatest.Restore: resume, cudatest.Unlock: unlock} { // each stands alone, so order cannot matter
		for _, kind := range []cudatest.Kind{cudatest.Crash, cudatest.CrashAfter} {
			p.SetState(map[verb]int32{lock: 0, suspend: 1, resume: 2, unlock: 1}[v])
			before := d.backend.(*helper).starts
			f.Plan(cudatest.Fault{Call: call, Kind: kind})
			err := do(d, v, p.Target)
			if kind == cudatest.CrashAfter && (v == resume || v == unlock) {
				require.NoError(t, err, "the state says that it worked")
			} else {
				e := driverError(t, err, checkpoint.ErrDriver)
				require.ErrorContains(t, e, "the helper has ended")
				require.NotEmpty(t, e.State, "it is read by the next helper")
			}
			f.Plan()
			require.NoError(t, do(d, undo, p.Target))
			unharmed(t, d, p)
			if before > 0 {
				require.Equal(t, before+1, d.backend.(*helper).starts)
			}
		}
	}
	// Others that were in the library at that moment are told as well, and read.
	f.Plan(
		cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.Block},
		cudatest.Fault{Call: cudatest.Checkpoint, Kind: cudatest.Crash},
	)
	end := make(chan error, 1)
	go func() { end <- do(d, lock, q.Target) }()
	f.AwaitBlocked(t, 1)
	p.SetState(cudatest.Locked)
	driverError(t, do(d, suspend, p.Target), checkpoint.ErrDriver)
	driverError(t, <-end, checkpoint.ErrDriver)
	require.NoError(t, do(d, undo, p.Target))
	require.NoError(t, do(d, undo, q.Target))
	unharmed(t, d, p)
	unharmed(t, d, q)
}

// All places of those who lock are taken by locks that hang: whoever is locked already
// can still be let go.
func TestTheWayOutIsNeverCrowded(t *testing.T) {
	f := cudatest.New(t)
	d, err := New(Config{Library: f.Library(), Workers: 1})
	require.NoError(t, err)
	closed(t, d)
	p, q := f.Start(t), f.Start(t)
	require.NoError(t, do(d, lock, p.Target))
	f.Plan(cudatest.Fault{Call: cudatest.Lock, Kind: cudatest.Block})
	require.ErrorIs(t, during(t, f, 1, func(ctx context.Context) error {
		return d.Lock(ctx, q.Target, checkpoint.LockOptions{Timeout: patience})
	}), checkpoint.ErrInFlight)
	driverError(t, do(d, suspend, p.Target), checkpoint.ErrDriver)
	require.NoError(t, do(d, undo, p.Target))
	unharmedNow(t, d, p)
	f.Release()
	unharmed(t, d, q)
}

// What is blocked holds a bounded number of threads, and the rest fails at once.
func TestBlockedCallsAreBounded(t *testing.T) {
	f := cudatest.New(t)
	d, err := New(Config{Library: f.Library(), Workers: 2})
	require.NoError(t, err)
	closed(t, d)
	var list []*cudatest.Target
	for range 4 {
		list = append(list, f.Start(t))
	}
	require.Equal(t, checkpoint.Running, stateNow(t, d, list[0]))
	before := runtime.NumGoroutine()
	f.Plan(cudatest.Fault{Call: cudatest.GetState, Times: 1000, Kind: cudatest.Block})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 4)
	for i := range 2 {
		go func() { end <- d.Lock(ctx, list[i].Target, checkpoint.LockOptions{Timeout: patience}) }()
		go func() {
			_, err := d.State(ctx, list[i].Target)
			end <- err
		}()
	}
	f.AwaitBlocked(t, 4)
	cancel()
	for range 4 {
		driverError(t, <-end, checkpoint.ErrInFlight)
	}
	for range 100 { // all places are taken, and those who come are turned away
		e := driverError(t, do(d, lock, list[2].Target), checkpoint.ErrDriver)
		require.ErrorIs(t, e, lockstep.ErrConflict)
		require.ErrorContains(t, e, "Workers")
		_, err := d.State(context.Background(), list[3].Target)
		driverError(t, err, checkpoint.ErrDriver)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+4)
	f.Plan()
	f.Release()
	quiet(t, d)
	cudatest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	for _, p := range list {
		require.NoError(t, cycle(context.Background(), d, patience, nil, p))
		unharmed(t, d, p)
	}
}
