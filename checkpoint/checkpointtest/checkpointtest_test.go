package checkpointtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

func TestFakeIsADriver(t *testing.T) {
	TestDriver(t, func(*testing.T) Subject {
		f := NewFake("gpu-0", "gpu-1")
		target := checkpoint.Target{PID: 100, Start: 7}
		f.Add(target)
		return Subject{
			Driver: f, Target: target,
			Kill: func() { f.Put(target, checkpoint.Gone) },
			Map:  []checkpoint.DevicePair{{Old: "gpu-0", New: "gpu-1"}},
		}
	})
}

func TestMemoryIsALedger(t *testing.T) {
	TestLedger(t, func(*testing.T) checkpoint.Ledger { return &Ledger{} })
}

func TestFaultsComeAsPlanned(t *testing.T) {
	target := checkpoint.Target{PID: 100, Start: 7}
	f := NewFake()
	f.Add(target)
	lock := func(ctx context.Context) error {
		return f.Lock(ctx, target, checkpoint.LockOptions{Timeout: time.Second})
	}
	state := func() checkpoint.State {
		s, err := f.State(t.Context(), target)
		require.NoError(t, err)
		return s
	}
	f.Plan(0, Fault{})
	require.NoError(t, lock(t.Context()), "it lies")
	require.Equal(t, checkpoint.Running, state())
	f.Plan(1, Fault{Kind: checkpoint.ErrTimeout, Work: true})
	require.ErrorIs(t, lock(t.Context()), checkpoint.ErrTimeout)
	require.Equal(t, checkpoint.Locked, state())
	f.Put(target, checkpoint.Running)

	block := make(chan struct{})
	f.Plan(2, Fault{Block: block, Work: true})
	ctx, cancel := context.WithCancel(t.Context())
	cut := make(chan error, 1)
	go func() { cut <- lock(ctx) }()
	require.Eventually(t, func() bool { return len(f.Calls()) == 3 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-cut, checkpoint.ErrInFlight)
	require.ErrorIs(t, f.Unlock(t.Context(), target), checkpoint.ErrInFlight, "until it has ended")
	require.Equal(t, checkpoint.Running, state())
	close(block)
	require.Eventually(t, func() bool { return state() == checkpoint.Locked }, time.Minute, time.Millisecond)
	f.Plan(4, Fault{Kind: checkpoint.ErrDriver, Code: 999, Then: checkpoint.Failed})
	require.ErrorContains(t, f.Unlock(t.Context(), target), "999")
	require.ErrorIs(t, f.Unlock(t.Context(), target), checkpoint.ErrWedged)
	require.Len(t, f.Calls(), 6)
}

func TestCommitsFailAsPlanned(t *testing.T) {
	l := &Ledger{FailCommit: func(n int) (bool, bool) { return n == 0, n == 1 }}
	for _, kept := range []bool{false, true} {
		require.ErrorIs(t, l.Commit(t.Context(), Manifest("j", 1, 1)), ErrPlanned)
		_, ok, err := l.Committed(t.Context(), "j", 1)
		require.NoError(t, err)
		require.Equal(t, kept, ok)
	}
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 1, 1)))
}
