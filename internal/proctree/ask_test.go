//go:build linux

package proctree

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestAskIsForThoseWhoAreNamed(t *testing.T) {
	ctx, b, _ := scene(t)
	tree := grow(t, role(b, "polite", 0), Config{})
	advances(t, b, 0)
	other := grow(t, role(b, "count", 5), Config{})
	advances(t, b, 5)
	n, err := tree.Ask(ctx, other.Root())
	require.ErrorIs(t, err, lockstep.ErrUnknown, "it is not of this tree")
	require.Zero(t, n)
	n, err = tree.Ask(ctx, tree.Root(), Identity{PID: tree.Root().PID, Start: 1})
	require.ErrorIs(t, err, lockstep.ErrUnknown, "nor is who had the pid before")
	require.Zero(t, n)
	_, err = tree.Pause(ctx, 1)
	require.NoError(t, err, "nobody was asked, so the tree can still be paused")

	n, err = tree.Ask(ctx, tree.Root()) // which lets it go, so that it can act
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, tree.Await(ctx))
	out, err := tree.Pause(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, Gone, out)
	advances(t, b, 5)

	n, err = other.Ask(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, other.Await(ctx))
}

func TestAwaitNamesTheLivingAndLetsOthersIn(t *testing.T) {
	ctx, b, _ := scene(t)
	tree := grow(t, role(b, "deaf", 0), Config{})
	advances(t, b, 0)
	within, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- tree.Await(within) }()
	for range 3 {
		s, err := tree.State(ctx)
		require.NoError(t, err)
		require.Equal(t, Running, s.Phase)
	}
	cancel()
	err := <-done
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.Canceled)
	advances(t, b, 0)
}

func TestWhoSomebodyIs(t *testing.T) {
	real(t)
	id, err := Identify(os.Getpid())
	require.NoError(t, err)
	require.True(t, Alive(id))
	require.False(t, Alive(Identity{PID: id.PID, Start: id.Start + 1}))
	_, err = Identify(1 << 30)
	require.ErrorIs(t, err, lockstep.ErrUnknown)

	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	require.NoError(t, cmd.Start())
	id, err = Identify(cmd.Process.Pid)
	require.NoError(t, err)
	eventually(t, "a zombie is not alive", func() bool { return !Alive(id) })
	require.NoError(t, cmd.Wait())
	require.False(t, Alive(id))
}

func TestWhatAProcessHasArrangedForSIGTERM(t *testing.T) {
	_, b, _ := scene(t)
	require.Equal(t, Handles, OnTerm(os.Getpid()), "programs in Go do")
	deaf := grow(t, role(b, "deaf", 0), Config{})
	advances(t, b, 0)
	require.Equal(t, Ignores, OnTerm(deaf.Root().PID))
	require.Equal(t, Unheard, OnTerm(1<<30))
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("a program without a handler is left out: no sleep: " + err.Error())
	}
	cmd := exec.Command(sleep, "1000")
	require.NoError(t, cmd.Start())
	require.Equal(t, Dies, OnTerm(cmd.Process.Pid))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

func TestACgroupThatWasThereHoldsAnAdoptedTreeAndStays(t *testing.T) {
	ctx, b, pass := scene(t)
	parent := freezer(t)
	cmd := role(b, "count", 0)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	advances(t, b, 0)
	dir := filepath.Join(parent, "lockstep-test-"+strconv.Itoa(cmd.Process.Pid))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { eventually(t, "it is removed", func() bool { return os.Remove(dir) == nil }) })
	_, err := Adopt(cmd.Process.Pid, Config{Within: dir})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "the process is not in it")
	own, err := OwnCgroup()
	require.NoError(t, err)
	_, err = Adopt(cmd.Process.Pid, Config{Within: own})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "this process is in it, and would freeze itself")
	_, err = Adopt(cmd.Process.Pid, Config{Within: t.TempDir()})
	require.ErrorIs(t, err, ErrUnsupported)
	_, err = Start(role(b, "count", 1), Config{Within: dir})
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	is, err := CgroupOf(cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, dir, is)
	tree, err := Adopt(cmd.Process.Pid, Config{Within: dir})
	require.NoError(t, err)
	_, err = tree.Pause(ctx, 1)
	require.NoError(t, err)
	require.True(t, Frozen(cmd.Process.Pid))
	still(t, b, pass)
	_, err = tree.Resume(ctx, 2)
	require.NoError(t, err)
	advances(t, b, 0)
	require.False(t, Frozen(cmd.Process.Pid))
	_, err = tree.Terminate(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, tree.Close())
	_, err = os.Stat(dir)
	require.NoError(t, err)
}

func TestARefusedSignalIsAMissingRight(t *testing.T) {
	require.ErrorIs(t, refusal("process", Identity{PID: 7}, syscall.EPERM), os.ErrPermission)
	require.ErrorIs(t, refusal("process", Identity{PID: 7}, syscall.EPERM), ErrFailed)
	err := refusal("process", Identity{PID: 7}, errors.New("else"))
	require.NotErrorIs(t, err, os.ErrPermission)
	require.ErrorIs(t, err, ErrFailed)
}
