//go:build linux

package proctree

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestPausedTreeStandsStillAndResumedTreeGoesOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		role  []any
		slots []int
		procs int
		cfg   Config
	}{
		{name: "one process", role: []any{"count", 0}, slots: []int{0}, procs: 1},
		{name: "own session", role: []any{"count", 0}, slots: []int{0}, procs: 1, cfg: Config{Session: true}},
		{name: "children in other groups and sessions", role: []any{"family", 0}, slots: []int{0, 1, 2, 3, 4}, procs: 5},
		{name: "threads", role: []any{"threads", 0, 8}, slots: []int{0, 1, 2, 3, 4, 5, 6, 7}, procs: 1},
		{name: "a name with parentheses and spaces", role: []any{"name", 0}, slots: []int{0}, procs: 1},
		{name: "a zombie among them", role: []any{"undertaker", 0}, slots: []int{0}, procs: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, b, pass := scene(t)
			tree := grow(t, role(b, c.role...), c.cfg)
			advances(t, b, c.slots...)
			eventually(t, "all have started and the dead are dead", func() bool {
				s, err := tree.State(ctx)
				return err == nil && len(s.Members) == c.procs
			})
			for epoch := range uint64(3) {
				out, err := tree.Pause(ctx, epoch)
				require.NoError(t, err)
				require.Equal(t, Done, out)
				s, err := tree.State(ctx)
				require.NoError(t, err)
				require.Equal(t, Paused, s.Phase)
				require.Len(t, s.Members, c.procs)
				require.Equal(t, c.procs, s.Stopped)
				still(t, b, pass)

				out, err = tree.Resume(ctx, epoch+1)
				require.NoError(t, err)
				require.Equal(t, Done, out)
				advances(t, b, c.slots...)
			}
		})
	}
}

func TestPauseAndResumeAreIdempotentAndOlderEpochsAreNoOps(t *testing.T) {
	ctx, b, pass := scene(t)
	tree := grow(t, role(b, "family", 0), Config{})
	advances(t, b, 0, 1, 2, 3, 4)
	pause := func(epoch uint64) Outcome {
		out, err := tree.Pause(ctx, epoch)
		require.NoError(t, err)
		return out
	}
	resume := func(epoch uint64) Outcome {
		out, err := tree.Resume(ctx, epoch)
		require.NoError(t, err)
		return out
	}
	require.Equal(t, Already, resume(4), "nobody is stopped")
	require.Equal(t, Done, pause(5))
	require.Equal(t, Already, pause(5))
	require.Equal(t, Already, pause(6))
	require.Equal(t, Stale, pause(5))
	require.Equal(t, Stale, resume(5), "older")
	require.Equal(t, Stale, resume(6), "an epoch is resumed before it is paused")
	still(t, b, pass)
	require.Equal(t, Done, resume(7))
	require.Equal(t, Already, resume(7))
	require.Equal(t, Stale, pause(6))
	advances(t, b, 0, 1, 2, 3, 4)
	require.Equal(t, Done, pause(7))
}

func TestPauseOfAnExitedTreeIsGone(t *testing.T) {
	ctx, b, _ := scene(t)
	tree := grow(t, role(b, "once", 0), Config{})
	require.NoError(t, tree.Wait(ctx))
	out, err := tree.Pause(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, Gone, out)
	out, err = tree.Resume(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, Gone, out)
	s, err := tree.State(ctx)
	require.NoError(t, err)
	require.Equal(t, Ended, s.Phase)
	require.Equal(t, 1, s.Zombies, "the root, which keeps its pid from others")
	r, err := tree.Terminate(ctx, time.Hour)
	require.NoError(t, err)
	require.Equal(t, Report{}, r)
	require.True(t, tree.ProcessState().Success())
}

// Go starts programs with vfork, so this meets parents that no signal stops as well.
func TestChildrenForkedDuringThePauseAreStoppedToo(t *testing.T) {
	ctx, b, pass := scene(t)
	tree := grow(t, role(b, "forks", 0), Config{})
	for epoch := range uint64(4) {
		advances(t, b, 0, 1, 2, 3)
		out, err := tree.Pause(ctx, epoch)
		require.NoError(t, err)
		require.Equal(t, Done, out)
		before, err := tree.State(ctx)
		require.NoError(t, err)
		still(t, b, pass)
		after, err := tree.State(ctx)
		require.NoError(t, err)
		require.Equal(t, Paused, after.Phase)
		require.Equal(t, ids(before), ids(after))
		_, err = tree.Resume(ctx, epoch+1)
		require.NoError(t, err)
	}
}

func ids(s Status) (list []Identity) {
	for _, p := range s.Members {
		list = append(list, p.Identity)
	}
	return list
}

func TestOrphansInOtherSessionsStayInTheTree(t *testing.T) {
	ctx, b, pass := scene(t)
	tree := grow(t, role(b, "double", 0), Config{})
	advances(t, b, 0, 1)
	eventually(t, "the one in between is dead", func() bool {
		s, err := tree.State(ctx)
		return err == nil && len(s.Members) == 2
	})
	_, err := tree.Pause(ctx, 1)
	require.NoError(t, err)
	still(t, b, pass)
	s, err := tree.State(ctx)
	require.NoError(t, err)
	require.Len(t, s.Members, 2)
	require.NotEqual(t, s.Members[0].Session, s.Members[1].Session)
	r, err := tree.Terminate(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 2, r.Killed)
	still(t, b, pass)
}

func TestSubreaperReapsOrphans(t *testing.T) {
	_, b, _ := scene(t)
	cmd := role(b, "subreaper", 0)
	require.NoError(t, cmd.Run())
	require.EqualValues(t, 1, b.slot(0).Load())
}

func TestTerminateWaitsForTheGraceAndKillsWhoIgnoresIt(t *testing.T) {
	ctx, b, pass := scene(t)
	deaf := grow(t, role(b, "deaf", 0), Config{})
	advances(t, b, 0)
	r, err := deaf.Terminate(ctx, 200*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, 1, r.Asked)
	require.Equal(t, 1, r.Killed)
	require.Equal(t, syscall.SIGKILL, deaf.ProcessState().Sys().(syscall.WaitStatus).Signal())
	still(t, b, pass)
}

func TestTerminateOfAPausedTreeLetsItActOnSIGTERM(t *testing.T) {
	ctx, b, _ := scene(t)
	polite := grow(t, role(b, "polite", 0), Config{})
	advances(t, b, 0)
	_, err := polite.Pause(ctx, 1)
	require.NoError(t, err)
	r, err := polite.Terminate(ctx, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, 1, r.Asked)
	require.Zero(t, r.Killed)
	require.Equal(t, 7, polite.ProcessState().ExitCode())
	require.NotZero(t, b.slot(1).Load())
	out, err := polite.Resume(ctx, 9)
	require.NoError(t, err)
	require.Equal(t, Gone, out)
}

func TestTerminateReturnsWhenNobodyIsAliveAndTellsOfZombies(t *testing.T) {
	ctx, b, pass := scene(t)
	tree := grow(t, role(b, "family", 0), Config{})
	advances(t, b, 0, 1, 2, 3, 4)
	members, err := tree.State(ctx)
	require.NoError(t, err)
	r, err := tree.Terminate(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 5, r.Killed)
	require.LessOrEqual(t, r.Zombies, 4, "whoever init has not reaped yet; never the root")
	for _, m := range members.Members {
		p, there, _ := linux{}.process(m.PID)
		require.True(t, !there || p.Start != m.Start || dead(p.State), "%v is alive", m)
	}
	still(t, b, pass)
}

func TestAContextEndsACallAndTheErrorNamesWhoStandsInTheWay(t *testing.T) {
	_, b, _ := scene(t)
	tree := grow(t, role(b, "deaf", 0), Config{})
	advances(t, b, 0)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := tree.Pause(over, 1)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, tree.Wait(over), ErrTimeout)

	soon, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	_, err = tree.Terminate(soon, time.Hour)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.Equal(t, tree.Root(), stuck.Members[0].Identity)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	advances(t, b, 0) // and nobody was killed before the grace was over
}

func TestAdoptRefusesWhatIsNoProcessToManage(t *testing.T) {
	ctx, b, pass := scene(t)
	tids, err := numbers("/proc/self/task")
	require.NoError(t, err)
	for name, pid := range map[string]int{"0": 0, "1": 1, "negative": -5, "self": os.Getpid(), "parent": os.Getppid(), "thread": tids[len(tids)-1]} {
		_, err := Adopt(pid, Config{})
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	done := exec.Command("/proc/self/exe", "-test.run=^$")
	require.NoError(t, done.Start())
	eventually(t, "it is a zombie", func() bool {
		return !summary(linux{}.states(done.Process.Pid)).alive
	})
	_, err = Adopt(done.Process.Pid, Config{})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	require.NoError(t, done.Wait())
	_, err = Adopt(done.Process.Pid, Config{})
	require.ErrorIs(t, err, lockstep.ErrUnknown)

	// This one is in the process group of the test, which must not be stopped with it.
	cmd := role(b, "family", 0)
	require.NoError(t, cmd.Start())
	advances(t, b, 0, 1, 2, 3, 4)
	tree, err := Adopt(cmd.Process.Pid, Config{})
	require.NoError(t, err)
	out, err := tree.Pause(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, Done, out)
	still(t, b, pass)
	_, err = tree.Terminate(ctx, 0)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.NoError(t, tree.Close())
}

func TestHandleOfAReusedPidIsRefused(t *testing.T) {
	_, b, _ := scene(t)
	cmd := role(b, "count", 0)
	require.NoError(t, cmd.Start())
	p, ok, _ := linux{}.process(cmd.Process.Pid)
	require.True(t, ok)
	_, ok = linux{}.open(Identity{PID: p.PID, Start: p.Start - 1})
	require.False(t, ok, "the pid is another's")
	h, ok := linux{}.open(p.Identity)
	require.True(t, ok)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.NoError(t, h.signal(kill), "nobody is there any more, and nobody else is met")
	h.close()
	_, ok = linux{}.open(p.Identity)
	require.False(t, ok)
}

func TestContainsKnowsMembersFromOthers(t *testing.T) {
	ctx, b, _ := scene(t)
	tree := grow(t, role(b, "pair", 0), Config{})
	advances(t, b, 0, 1)
	s, err := tree.State(ctx)
	require.NoError(t, err)
	require.Len(t, s.Members, 2)
	for _, m := range s.Members {
		in, err := tree.Contains(ctx, m.PID)
		require.NoError(t, err)
		require.True(t, in)
	}
	in, err := tree.Contains(ctx, os.Getpid())
	require.NoError(t, err)
	require.False(t, in)
}

func TestStartLeavesNothingBehindWhenItFails(t *testing.T) {
	real(t)
	_, err := Start(exec.Command("/nonexistent"), Config{})
	require.ErrorIs(t, err, ErrFailed)
	_, err = Start(nil, Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: 5}
	_, err = Start(cmd, Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Start(exec.Command("true"), Config{Poll: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Start(exec.Command("true"), Config{Cgroup: t.TempDir()})
	require.ErrorIs(t, err, ErrUnsupported)
}

func TestTreesInsideTreesBelongToBoth(t *testing.T) {
	real(t)
	env := tagEnv(tagEnv([]string{"A=1"}, "aa"), "bb")
	cmd := exec.Command("cat", "/proc/self/environ")
	cmd.Env = env
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), tag+"=aa:bb")
	require.Equal(t, 1, strings.Count(string(out), tag), "the shell of exec keeps the last")
}

// freezer returns a cgroup that the tests may use, or skips.
func freezer(t *testing.T) string {
	t.Helper()
	real(t)
	dir, err := OwnCgroup()
	if err == nil {
		err = ProbeCgroup(dir)
	}
	if err != nil {
		t.Skip("the freezer is left out: no cgroup v2 that can be written: " + err.Error())
	}
	return dir
}

func TestFrozenTreeStandsStillAndNobodyLeavesIt(t *testing.T) {
	dir := freezer(t)
	for _, r := range [][]any{{"family", 0}, {"double", 0}, {"forks", 0}, {"threads", 0, 4}} {
		t.Run(r[0].(string), func(t *testing.T) {
			ctx, b, pass := scene(t)
			tree := grow(t, role(b, r...), Config{Cgroup: dir})
			for epoch := range uint64(2) {
				advances(t, b, 0, 1)
				out, err := tree.Pause(ctx, epoch)
				require.NoError(t, err)
				require.Equal(t, Done, out)
				out, err = tree.Pause(ctx, epoch)
				require.NoError(t, err)
				require.Equal(t, Already, out)
				s, err := tree.State(ctx)
				require.NoError(t, err)
				require.Equal(t, Paused, s.Phase)
				for _, m := range s.Members {
					require.NotEqual(t, byte('T'), m.State, "frozen, not signalled")
				}
				still(t, b, pass)
				out, err = tree.Resume(ctx, epoch+1)
				require.NoError(t, err)
				require.Equal(t, Done, out)
			}
			_, err := tree.Pause(ctx, 5)
			require.NoError(t, err)
			_, err = tree.Terminate(ctx, 0)
			require.NoError(t, err)
			still(t, b, pass)
			path := tree.cage.path
			require.NoError(t, tree.Close())
			_, err = os.Stat(path)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestFrozenTreeActsOnSIGTERM(t *testing.T) {
	dir := freezer(t)
	ctx, b, _ := scene(t)
	tree := grow(t, role(b, "polite", 0), Config{Cgroup: dir})
	advances(t, b, 0)
	_, err := tree.Pause(ctx, 1)
	require.NoError(t, err)
	r, err := tree.Terminate(ctx, 20*time.Second)
	require.NoError(t, err)
	require.Zero(t, r.Killed)
	require.Equal(t, 7, tree.ProcessState().ExitCode())
}

func TestHandlesAreGivenBack(t *testing.T) {
	ctx, b, _ := scene(t)
	open := func() int {
		fds, err := numbers("/proc/self/fd")
		require.NoError(t, err)
		return len(fds)
	}
	before := open()
	tree, err := Start(role(b, "family", 0), Config{})
	require.NoError(t, err)
	advances(t, b, 0, 1, 2, 3, 4)
	_, err = tree.Terminate(ctx, time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, tree.Close())
	require.Equal(t, before, open(), strconv.Itoa(before))
}

// Where no descriptor is left, nobody is taken for dead or stopped.
func TestWithoutDescriptorsNothingIsKnown(t *testing.T) {
	_, b, _ := scene(t)
	tree := grow(t, role(b, "count", 0), Config{})
	advances(t, b, 0)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, _, read := linux{}.process(tree.Root().PID)
	states := linux{}.states(tree.Root().PID)
	_, sure := linux{}.tagged(tree.Root().PID, "x")
	_, pause := tree.Pause(context.Background(), 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wait := tree.Wait(ctx)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, read, syscall.EMFILE)
	require.Equal(t, []byte{unknown}, states)
	require.False(t, sure)
	require.ErrorIs(t, pause, ErrFailed)
	require.ErrorIs(t, wait, ErrTimeout)
	out, err := tree.Pause(context.Background(), 2)
	require.NoError(t, err)
	require.Equal(t, Done, out)
}
