//go:build linux

package process

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

// cgroup returns a directory of cgroup v2 that the tests may use, or skips.
func cgroup(t *testing.T) string {
	t.Helper()
	dir, err := proctree.OwnCgroup()
	if err == nil {
		err = proctree.ProbeCgroup(dir)
	}
	if err != nil {
		t.Skip("the freezer is left out: no cgroup v2 that can be written: " + err.Error())
	}
	return dir
}

// put puts a process into a new cgroup, of which it returns the directory.
func put(t *testing.T, pid int) string {
	t.Helper()
	dir := filepath.Join(cgroup(t), "lockstep-test-"+itoa(os.Getpid())+"-"+itoa(pid))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		eventually(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil })
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(itoa(pid)), 0))
	return dir
}

func freeze(t *testing.T, dir, value string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0))
}

func TestSignalsAreADriver(t *testing.T) {
	checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
		_, b := scene(t)
		d := newDriver(t)
		target := start(t, d, b, role(b, "pair", "0"), 0, 2)
		return checkpointtest.Subject{Driver: d, Target: target, Kill: func() {
			j, err := d.find(target)
			check(err)
			_, err = j.tree.Terminate(context.Background(), 0)
			check(err)
		}}
	})
}

func TestAdoptedProcessesAreADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("conformance of adopted targets is left out under -short")
	}
	checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
		_, b := scene(t)
		target := stray(t, b, role(b, "count"), 0)
		d := newDriver(t)
		return checkpointtest.Subject{Driver: d, Target: target, Kill: func() { end(t, d, target) }}
	})
}

func TestTheFreezerIsADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("conformance of the freezer is left out under -short")
	}
	dir := cgroup(t)
	checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
		_, b := scene(t)
		d, err := New(Config{Cgroup: dir})
		require.NoError(t, err)
		return checkpointtest.Subject{Driver: d, Target: start(t, d, b, role(b, "pair", "0"), 0, 2)}
	})
}

func TestLockHoldsWhoDaemonised(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "family"), 0, 1, 2)
	// A process in no tree counts on, which shows time passing.
	stray(t, b, role(b, "child", "9"), 9)
	for range 3 { // it is no single shot
		require.NoError(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}))
		var from [3]uint64
		for i := range from {
			from[i] = b.at(i).Load()
		}
		clock := b.at(9).Load()
		eventually(t, "time passes", func() bool { return b.at(9).Load() > clock+50 })
		for i := range from {
			require.Equal(t, from[i], b.at(i).Load(), "nobody counts")
		}
		require.NoError(t, d.Unlock(ctx, target))
		advances(t, b, 0, 1, 2)
	}
}

// It froze once in a process's life and slept for 30 s before it went on. So many rounds
// with either, or with a look once in a second, would not end within the deadline.
func TestCudawIsSingleShotAndSleepsAndPollsOnceInASecond(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "count"), 0)
	rounds := 100
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		require.NoError(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}))
		require.NoError(t, d.Unlock(ctx, target))
	}
	advances(t, b, 0)
}

func TestALockThatFailsLeavesTheTargetRunning(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "family"), 0, 1, 2)
	for _, timeout := range []time.Duration{1, time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond} {
		err := d.Lock(ctx, target, checkpoint.LockOptions{Timeout: timeout})
		if err == nil {
			require.NoError(t, d.Unlock(ctx, target))
			continue
		}
		require.ErrorIs(t, err, checkpoint.ErrTimeout)
		var e *checkpoint.DriverError
		require.ErrorAs(t, err, &e)
		require.Equal(t, checkpoint.Running, e.State)
		advances(t, b, 0, 1, 2)
	}
}

func TestAContainersCgroupHoldsAndEndsTheTarget(t *testing.T) {
	ctx, b := scene(t)
	target := stray(t, b, role(b, "family"), 0, 1, 2)
	dir := put(t, target.PID) // the root alone: its children stay outside
	d, err := New(Config{Within: true})
	require.NoError(t, err)
	require.NoError(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}))
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	require.NoError(t, err)
	require.Contains(t, string(events), "frozen 1")
	s, err := d.State(ctx, target)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Locked, s)
	require.NoError(t, d.Unlock(ctx, target))
	advances(t, b, 0)
	r, err := d.Terminate(ctx, target, Grace{Immediate: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.Killed, 2, "the root and its child")
	_, err = os.Stat(dir)
	require.NoError(t, err, "the cgroup is somebody else's")
	b.at(2).Store(0)
	killDaemon(t, b)
}

// killDaemon ends the daemon of a "family" that was adopted too late to know of it.
func killDaemon(t *testing.T, b *board) {
	t.Helper()
	out, err := exec.Command("sh", "-c", `grep -lzx '`+boardEnv+`=`+b.path+`' /proc/[0-9]*/environ 2>/dev/null`).Output()
	_ = err // grep fails on those it may not read
	for _, line := range splitLines(string(out)) {
		pid := atoi(filepath.Base(filepath.Dir(line)))
		if pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func splitLines(s string) (list []string) {
	for len(s) > 0 {
		i := 0
		for i < len(s) && s[i] != '\n' {
			i++
		}
		if i > 0 {
			list = append(list, s[:i])
		}
		s = s[min(i+1, len(s)):]
	}
	return list
}

func TestACgroupThatSomebodyElseHasFrozen(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "saves"), 0)
	dir := put(t, target.PID)
	freeze(t, dir, "1")
	eventually(t, "it is frozen", func() bool { s, err := d.State(ctx, target); return err == nil && s == checkpoint.Locked })
	limits, err := d.Inspect(ctx, target)
	require.NoError(t, err)
	require.Len(t, limits, 1)
	require.Equal(t, checkpoint.CanLock, limits[0].What)
	err = d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long})
	require.ErrorIs(t, err, checkpoint.ErrIllegalState, "who froze it may thaw it")
	require.ErrorIs(t, d.Unlock(ctx, target), checkpoint.ErrIllegalState)
	freeze(t, dir, "0")
	advances(t, b, 0)
	require.NoError(t, d.Unlock(ctx, target))

	freeze(t, dir, "1")
	eventually(t, "it is frozen", func() bool { s, err := d.State(ctx, target); return err == nil && s == checkpoint.Locked })
	r, err := d.Terminate(ctx, target, Grace{Period: short, Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.Contains(t, r.Complaints, Frozen)
	require.Equal(t, 1, r.Killed, "a frozen cgroup of version 2 can be killed")
	require.Equal(t, NotSaved, r.Verdict)
}

// What is frozen by version 1 of the freezer takes no SIGKILL.
func TestWhatTheKernelCannotEndIsStillAlive(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "count"), 0)
	dir := "/sys/fs/cgroup/freezer/lockstep-test-" + itoa(target.PID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("a process that no signal ends is left out: no freezer of cgroup v1: " + err.Error())
	}
	t.Cleanup(func() { eventually(t, "it is removed", func() bool { return os.Remove(dir) == nil }) })
	state := func(s string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "freezer.state"), []byte(s), 0))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(itoa(target.PID)), 0))
	state("FROZEN")
	eventually(t, "it is frozen", func() bool {
		s, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return err == nil && string(s) == "FROZEN\n"
	})
	r, err := d.Terminate(ctx, target, Grace{Immediate: true, Confirm: 50 * time.Millisecond})
	state("THAWED")
	require.ErrorIs(t, err, ErrStillAlive)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.Equal(t, []checkpoint.Target{target}, stuck.Left)
	require.Equal(t, 1, r.Killed)
	_, err = d.Terminate(ctx, target, Grace{Immediate: true})
	require.NoError(t, err)
	require.False(t, alive(target))
}

func TestProbeSaysWhatSignalsCannotDo(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	caps, err := d.Probe(ctx)
	require.NoError(t, err)
	require.True(t, caps.Can(checkpoint.CanLock))
	require.True(t, caps.Can(checkpoint.CanTree))
	for _, a := range []checkpoint.Ability{checkpoint.CanSuspend, checkpoint.CanRemap, checkpoint.CanImage, checkpoint.CanIPC} {
		require.False(t, caps.Can(a))
	}
	target := start(t, d, b, role(b, "count"), 0)
	_, err = d.Suspend(ctx, target)
	require.ErrorIs(t, err, checkpoint.ErrUnsupported)
	_, err = d.Resume(ctx, target, checkpoint.ResumeOptions{})
	require.ErrorIs(t, err, checkpoint.ErrUnsupported)
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = d.Probe(over)
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.Inspect(over, target)
	require.Error(t, err)
}

func TestReleaseForgetsAndLetsBe(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := stray(t, b, role(b, "count"), 0)
	require.NoError(t, d.Release(target), "one that it has not met")
	require.NoError(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}))
	require.NoError(t, d.Release(target))
	require.Empty(t, d.jobs)
	s, err := d.State(ctx, target)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Locked, s, "it is as it was")
	require.NoError(t, d.Unlock(ctx, target), "a new acquaintance can let it go")
	advances(t, b, 0)
}

func TestANewDriverIsNotGivenACommandThatHasRun(t *testing.T) {
	_, b := scene(t)
	d := newDriver(t)
	cmd := role(b, "count")
	start(t, d, b, cmd, 0)
	_, err := d.Start(cmd)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = d.Start(exec.Command("/does/not/exist"))
	require.ErrorIs(t, err, checkpoint.ErrDriver)
}
