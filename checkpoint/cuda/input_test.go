package cuda

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

func TestNumbersThatAreNoProcess(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		f.Plan()
		for _, tt := range []struct {
			pid  int
			kind error
		}{
			{0, lockstep.ErrInvalid},
			{1, lockstep.ErrInvalid},
			{-1, lockstep.ErrInvalid},
			{math.MinInt32, lockstep.ErrInvalid},
			{os.Getpid(), lockstep.ErrInvalid},
			{math.MaxInt32, checkpoint.ErrGone},
		} {
			target := checkpoint.Target{PID: tt.pid, Start: 1}
			for v := lock; v <= undo; v++ {
				e := driverError(t, do(d, v, target), tt.kind)
				require.Equal(t, tt.pid, e.PID)
			}
			_, err := d.Inspect(context.Background(), target)
			driverError(t, err, tt.kind)
		}
		require.Zero(t, f.Calls())
		require.Empty(t, d.Owed())
	})
}

func TestTimeoutsAreMillisecondsIn32Bits(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	f.Plan()
	for _, timeout := range []time.Duration{0, -1, -time.Hour, math.MinInt64, longest + 1, 50 * 24 * time.Hour, math.MaxInt64} {
		e := driverError(t, d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: timeout}), lockstep.ErrInvalid)
		require.ErrorContains(t, e, "Timeout = "+timeout.String())
	}
	require.Zero(t, f.Calls())
	for _, timeout := range []time.Duration{longest, longest - 1, 49 * 24 * time.Hour, time.Second} {
		require.NoError(t, d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: timeout}), "%s", timeout)
		require.NoError(t, do(d, unlock, p.Target))
	}
	p.SetHung(true) // the shortest becomes a millisecond, not none at all, which would wait for ever
	driverError(t, d.Lock(context.Background(), p.Target, checkpoint.LockOptions{Timeout: 1}), checkpoint.ErrTimeout)
}

func TestMapsThatAreNone(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	good, other := lockstep.DeviceID(f.UUID(0)), lockstep.DeviceID(f.UUID(1))
	require.NoError(t, do(d, lock, p.Target))
	require.NoError(t, do(d, suspend, p.Target))
	f.Plan()
	many := make([]checkpoint.DevicePair, maxPairs+1)
	for name, tt := range map[string]struct { // each stands alone, so order cannot matter
		m     []checkpoint.DevicePair
		field string
	}{
		"empty":        {[]checkpoint.DevicePair{{}}, "Map[0].Old"},
		"no new":       {[]checkpoint.DevicePair{{Old: good}}, "Map[0].New"},
		"MIG":          {[]checkpoint.DevicePair{{Old: good, New: "MIG-" + other[4:]}}, "Map[0].New"},
		"MIG old":      {[]checkpoint.DevicePair{{Old: "MIG-GPU-1/2/0", New: good}}, "Map[0].Old"},
		"an index":     {[]checkpoint.DevicePair{{Old: "0", New: "1"}}, "Map[0].Old"},
		"no prefix":    {[]checkpoint.DevicePair{{Old: good[4:], New: other}}, "Map[0].Old"},
		"short":        {[]checkpoint.DevicePair{{Old: good[:39], New: other}}, "Map[0].Old"},
		"long":         {[]checkpoint.DevicePair{{Old: good + "0", New: other}}, "Map[0].Old"},
		"no hex":       {[]checkpoint.DevicePair{{Old: good, New: other[:39] + "g"}}, "Map[0].New"},
		"more hyphens": {[]checkpoint.DevicePair{{Old: good, New: other[:39] + "-"}}, "Map[0].New"},
		"old twice":    {[]checkpoint.DevicePair{{Old: good, New: good}, {Old: good, New: other}}, "Map[1].Old"},
		"new twice":    {[]checkpoint.DevicePair{{Old: good, New: good}, {Old: other, New: good}}, "Map[1].New"},
		"too many":     {many, "Map"},
	} {
		_, err := d.Resume(context.Background(), p.Target, checkpoint.ResumeOptions{Map: tt.m})
		driverError(t, err, lockstep.ErrInvalid)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, tt.field, e.Field, name)
	}
	require.Zero(t, f.Calls())
	require.NoError(t, do(d, undo, p.Target))
}

func TestConfigsThatAreWrong(t *testing.T) {
	_, err := New(Config{Library: "a\x00b", Roots: []string{"", "x"}, Workers: -1})
	for _, field := range []string{"Library", "Roots[0]", "Workers = -1"} {
		require.ErrorContains(t, err, field)
	}
	require.NotContains(t, err.Error(), "Roots[1]")
	for _, err := range []error{
		err,
		Config{Workers: maxWorkers + 1}.Validate(),
		Config{Workers: math.MinInt}.Validate(),
		CLIConfig{Path: "\x00", Workers: -1}.Validate(),
		HelperConfig{Path: "\x00"}.Validate(),
		HelperConfig{Args: []string{"a", "\x00"}}.Validate(),
		HelperConfig{Roots: []string{""}}.Validate(),
	} {
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.NoError(t, Config{}.Validate())
	require.NoError(t, CLIConfig{}.Validate())
	require.NoError(t, HelperConfig{}.Validate())
	_, err = NewCLI(CLIConfig{Workers: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewHelper(HelperConfig{Workers: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// A context that is over makes no call at all.
func TestADeadlineThatHasPassed(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	f.Plan()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	driverError(t, d.Lock(ctx, p.Target, checkpoint.LockOptions{Timeout: patience}), checkpoint.ErrTimeout)
	driverError(t, d.Unlock(ctx, p.Target), checkpoint.ErrTimeout)
	driverError(t, d.Undo(ctx, p.Target), checkpoint.ErrTimeout)
	_, err := d.State(ctx, p.Target)
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.Probe(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.Inspect(ctx, p.Target)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, f.Calls())
}

// State and Probe and Inspect change nothing: the fake counts.
func TestReadingChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		p := f.Start(t)
		before := f.Changes()
		for range 5 {
			require.Equal(t, checkpoint.Running, stateNow(t, d, p))
			capsNow(t, d)
			_, err := d.Inspect(context.Background(), p.Target)
			require.NoError(t, err)
			require.Empty(t, d.Owed())
		}
		require.Equal(t, before, f.Changes())
	})
}

func TestZombiesAreGone(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	p.KillOnly(t)
	f.Plan()
	require.Equal(t, checkpoint.Gone, stateNow(t, d, p))
	driverError(t, do(d, lock, p.Target), checkpoint.ErrGone)
	require.Zero(t, f.Calls(), "the driver is not asked about a zombie")
}

func TestProcessesThatDieAreGone(t *testing.T) {
	const status = "Name:\tx\nTgid:\t42\nSigPnd:\t%\nShdPnd:\t0000000000000000\nCoreDumping:\t0\n"
	for text, want := range map[string]bool{ // each stands alone, so order cannot matter
		strings.Replace(status, "%", "0000000000000000", 1):              false,
		strings.Replace(status, "%", "0000000000004000", 1):              false, // SIGTERM
		strings.Replace(status, "%", "0000000000000100", 1):              true,  // SIGKILL
		strings.Replace(status, "CoreDumping:\t0", "CoreDumping:\t1", 1): true,
	} {
		p := process{state: 'S'}
		p.readStatus([]byte(text))
		require.Equal(t, want, p.dead(), "%q", text)
		require.Equal(t, 42, p.leader)
	}
}

func TestStatFiles(t *testing.T) {
	stat := func(name, state, flags string) []byte {
		return []byte("7 (" + name + ") " + state + " 1 7 7 0 -1 " + flags + " 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0\n")
	}
	p, ok := parseStat(stat("a) R (b\n)", "S", "4194304"))
	require.True(t, ok)
	require.Equal(t, process{start: 12345, state: 'S'}, p)
	p, ok = parseStat(stat("kthreadd", "S", "2129984"))
	require.True(t, ok)
	require.True(t, p.kernel)
	for state, dead := range map[string]bool{"Z": true, "X": true, "x": true, "R": false, "D": false, "T": false, "t": false} { // each stands alone, so order cannot matter
		p, ok = parseStat(stat("a", state, "0"))
		require.True(t, ok)
		require.Equal(t, dead, p.dead())
		require.Equal(t, state == "T" || state == "t", p.stopped())
	}
	for _, bad := range []string{"", ")", "7 (a) S", "7 (a) SS 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0", "7 (a) S 1 7 7 0 -1 x 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"} {
		_, ok := parseStat([]byte(bad))
		require.False(t, ok, bad)
	}
}

func TestKernelThreadsAreRefused(t *testing.T) {
	cudatest.Need(t)
	p, ok, err := look(2) // kthreadd, where it can be seen
	if err != nil || !ok || !p.kernel {
		t.Skip("NOT TESTED: this container shows no thread of the kernel")
	}
	d := apiDriver(t, cudatest.New(t))
	target := checkpoint.Target{PID: 2, Start: p.start}
	driverError(t, do(d, lock, target), lockstep.ErrInvalid)
	_, err = d.Inspect(context.Background(), target)
	driverError(t, err, lockstep.ErrInvalid)
}

func TestFrozenTargetsAreRefused(t *testing.T) {
	f := cudatest.New(t)
	own, err := proctree.OwnCgroup()
	if err != nil {
		t.Skip("NOT TESTED: no cgroup of version 2: ", err)
	}
	group := filepath.Join(own, "lockstep-test-"+filepath.Base(t.TempDir()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("NOT TESTED: no cgroup can be made: ", err)
	}
	p := f.Start(t)
	t.Cleanup(func() {
		p.Kill()
		cudatest.Await(t, "the cgroup to empty", func() bool { return os.Remove(group) == nil })
	})
	write := func(file, text string) error {
		return os.WriteFile(filepath.Join(group, file), []byte(text), 0o644)
	}
	if err := write("cgroup.procs", pidText(p)); err != nil {
		t.Skip("NOT TESTED: no process can be moved to a cgroup: ", err)
	}
	require.NoError(t, write("cgroup.freeze", "1"))
	cudatest.Await(t, "the target to freeze", func() bool { return frozen(p.PID) })
	d := apiDriver(t, f)
	require.ErrorContains(t, driverError(t, do(d, lock, p.Target), checkpoint.ErrIllegalState), "frozen")
	limits, err := d.Inspect(context.Background(), p.Target)
	require.NoError(t, err)
	require.Equal(t, ReasonStopped, limits[0].Reason)
	require.NoError(t, write("cgroup.freeze", "0"))
	cudatest.Await(t, "the target to thaw", func() bool { return !frozen(p.PID) })
	require.NoError(t, do(d, lock, p.Target))
	require.NoError(t, do(d, unlock, p.Target))
}

// A PID that another process gets while it is being locked: the stranger is let go.
func TestAPIDReusedDuringTheLockIsLetGo(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	p := f.Start(t)
	before := p.Target
	before.Start--
	p.SetState(cudatest.Locked)
	d.release(before)
	require.Equal(t, cudatest.Running, p.State())
	p.SetState(cudatest.Locked)
	d.release(p.Target)
	require.Equal(t, cudatest.Locked, p.State(), "it is the target itself, and not to be let go here")
}
