//go:build linux

package process

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// long is a grace that no test waits for.
const long = 60 * time.Second

// short is one that is waited for.
const short = 30 * time.Millisecond

func second[T any](_ T, err error) error { return err }

func newDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(Config{})
	require.NoError(t, err)
	return d
}

func TestAJobThatSavesAndExitsIsSaved(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "saves"), 0)
	r, err := d.Terminate(ctx, target, Grace{Period: long, AckFile: b.ack(), Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Acked)
	require.True(t, r.Exited)
	require.True(t, r.Claimed)
	require.Zero(t, r.Killed)
	require.Equal(t, 1, r.Asked)
	require.Equal(t, Exit{Known: true}, r.Exit)
	require.Equal(t, Saved, r.Verdict)
	require.Empty(t, r.Complaints)
	require.Equal(t, "exited, acknowledged, code 0, saved", r.String())
	require.False(t, alive(target))
}

// The remaining failings of a saver that hangs on a signal handler: whoever sends the
// signal hears nothing, cannot tell an exit from a save, and does not know how long it takes.
func TestGcheckpointHasNoExitCodeContract(t *testing.T) {
	ctx, b := scene(t)
	for _, tt := range []struct {
		job      string
		contract Contract
		claimed  bool
		verdict  Verdict
		why      []Complaint
	}{
		{"lies", Contract{}, false, NotSaved, nil},
		{"lies", Contract{Image: b.found}, false, NotSaved, nil},
		{"lies", Contract{Saved: []int{0}}, true, Unproven, nil},
		{"lies", Contract{Saved: []int{0}, Image: b.found}, true, NotSaved, []Complaint{NoImage}},
		{"saves7", Contract{Saved: []int{0}}, false, NotSaved, nil},
		{"saves7", Contract{Saved: []int{7}}, true, Unproven, nil},
		{"saves7", Contract{Saved: []int{3, 7}, Image: b.found}, true, Saved, nil},
		{"lies", Contract{Image: func(context.Context) (bool, error) { return true, errors.New("the store is away") }}, false, Unproven, nil},
	} {
		_ = os.Remove(b.image())
		d := newDriver(t)
		target := start(t, d, b, role(b, tt.job), 0)
		r, err := d.Terminate(ctx, target, Grace{Period: long, Contract: tt.contract})
		require.NoError(t, err)
		require.True(t, r.Exited)
		require.Equal(t, tt.claimed, r.Claimed, "%v", tt)
		require.Equal(t, tt.verdict, r.Verdict, "%v", tt)
		require.Equal(t, tt.why, r.Complaints, "%v", tt)
		require.Equal(t, r.ImageErr != nil, tt.verdict == Unproven && tt.contract.Image != nil)
	}
}

func TestGcheckpointHasNoAcknowledgement(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "acks"), 0)
	acked := make(chan struct{})
	close(acked) // a cooperative hook has said so
	r, err := d.Terminate(ctx, target, Grace{Period: long, Ack: acked, Linger: time.Millisecond, Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Acked)
	require.Equal(t, []Complaint{AckedOnly}, r.Complaints)
}

func TestGcheckpointMeasuresNoDuration(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "saves"), 0)
	r, err := d.Terminate(ctx, target, Grace{Period: long, AckFile: b.ack()})
	require.NoError(t, err)
	require.Positive(t, r.AckAfter)
	require.GreaterOrEqual(t, r.Took, r.AckAfter)
}

func TestOneThatAcknowledgesAndStaysIsKilledAtTheDeadlineOrAfterLinger(t *testing.T) {
	ctx, b := scene(t)
	for _, g := range []Grace{
		{Period: 500 * time.Millisecond, AckFile: b.ack()},
		{Period: long, AckFile: b.ack(), Linger: time.Millisecond},
	} {
		_ = os.Remove(b.ack())
		_ = os.Remove(b.image())
		d := newDriver(t)
		target := start(t, d, b, role(b, "acks"), 0)
		g.Contract.Image = b.found
		r, err := d.Terminate(ctx, target, g)
		require.NoError(t, err)
		require.False(t, r.Exited)
		require.Equal(t, 1, r.Killed)
		require.Equal(t, int(syscall.SIGKILL), r.Exit.Signal)
		if g.Linger == 0 {
			require.GreaterOrEqual(t, r.Took, g.Period, "nobody is killed before the deadline")
		}
		if r.Acked { // the short grace may be over before a busy machine has run the job
			require.Equal(t, []Complaint{AckedOnly}, r.Complaints)
			require.Equal(t, Saved, r.Verdict)
		}
	}
}

func TestAnAcknowledgementWithoutAnImageIsNotASave(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "quick"), 0)
	r, err := d.Terminate(ctx, target, Grace{Period: long, AckFile: b.ack(), Linger: time.Millisecond, Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Claimed)
	require.Equal(t, NotSaved, r.Verdict)
	require.Equal(t, []Complaint{AckedOnly, NoImage}, r.Complaints)
}

func TestAnOldAcknowledgementIsRefusedAndNobodyIsAsked(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "saves"), 0)
	leave(b.ack())
	_, err := d.Terminate(ctx, target, Grace{AckFile: b.ack()})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.ErrorContains(t, err, b.ack())
	advances(t, b, 0)

	require.NoError(t, os.Remove(b.ack()))
	e := &ending{g: Grace{AckFile: b.ack()}}
	require.False(t, e.isAcked())
	require.NoError(t, os.Symlink("/etc/passwd", b.ack()))
	require.False(t, e.isAcked(), "a link is none, wherever it points")
	require.NoError(t, os.Remove(b.ack()))
	require.NoError(t, os.Mkdir(b.ack(), 0o700))
	require.False(t, e.isAcked(), "nor is a directory")
	require.NoError(t, os.Remove(b.ack()))
	leave(b.ack())
	require.True(t, e.isAcked())
}

// Whoever gives up may come again, also if the job has acknowledged meanwhile.
func TestAnAcknowledgementBetweenTwoCallsCounts(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "acks"), 0)
	g := Grace{Period: long, AckFile: b.ack(), Contract: Contract{Image: b.found}}
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- second(d.Terminate(first, target, g)) }()
	eventually(t, "it has acknowledged", func() bool { return second(os.Stat(b.ack())) == nil })
	giveUp()
	err := <-gaveUp
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.ErrorIs(t, err, checkpoint.ErrTimeout)
	require.True(t, alive(target))
	err = second(d.Terminate(ctx, target, Grace{Period: long, AckFile: b.image()}))
	require.ErrorIs(t, err, lockstep.ErrConflict, "nobody has asked for that one")
	g.Linger = time.Millisecond
	r, err := d.Terminate(ctx, target, g)
	require.NoError(t, err)
	require.True(t, r.Acked)
	require.Equal(t, Saved, r.Verdict)
	require.False(t, alive(target))
}

func TestIgnoredSIGTERMEndsWithTheGraceAndNotBefore(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "deaf"), 0)
	eventually(t, "it ignores", func() bool { // as can be known before
		why, err := d.Check(ctx, target, Grace{})
		return err == nil && slices.Equal(why, []Complaint{TermIgnored})
	})
	r, err := d.Terminate(ctx, target, Grace{Period: short})
	require.NoError(t, err)
	require.False(t, r.Exited)
	require.Equal(t, 1, r.Killed)
	require.GreaterOrEqual(t, r.Took, short)
	require.Equal(t, []Complaint{TermIgnored}, r.Complaints)
	require.Equal(t, Exit{Known: true, Signal: int(syscall.SIGKILL)}, r.Exit)
	require.Equal(t, NotSaved, r.Verdict)
	require.False(t, alive(target), "the kernel has confirmed")
}

func TestNobodyIsKilledWhenTheCallerGivesUpBeforeTheGraceIsOver(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "late"), 0)
	target.Job, target.Rank = "j", 3
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- second(d.Terminate(within, target, Grace{Period: long})) }()
	eventually(t, "it was asked", func() bool { return b.at(1).Load() == 1 })
	cancel()
	err := <-done
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.ErrorIs(t, err, checkpoint.ErrTimeout)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrStillAlive)
	require.Equal(t, []checkpoint.Target{target}, stuck.Left)
	require.Contains(t, err.Error(), "timed out")
	advances(t, b, 0)
	require.ErrorIs(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}), checkpoint.ErrIllegalState, "it was told to end")
	require.ErrorIs(t, d.Unlock(ctx, target), checkpoint.ErrIllegalState)

	r, err := d.Terminate(ctx, target, Grace{Immediate: true})
	require.NoError(t, err)
	require.Equal(t, 1, r.Killed)
	require.Zero(t, r.Asked)
}

func TestTheStateCanBeReadWhileTheGraceRuns(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "late"), 0)
	done := make(chan error, 1)
	var r Report
	go func() {
		var err error
		r, err = d.Terminate(ctx, target, Grace{Period: long, Contract: Contract{Saved: []int{0}, Image: b.found}})
		done <- err
	}()
	eventually(t, "it was asked", func() bool { return b.at(1).Load() == 1 })
	s, err := d.State(ctx, target)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Running, s)
	b.at(2).Store(1)
	require.NoError(t, <-done)
	require.Equal(t, Saved, r.Verdict)
}

func TestWhoDaemonisesIsEndedToo(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "family"), 0, 1, 2)
	r, err := d.Terminate(ctx, target, Grace{Immediate: true})
	require.NoError(t, err)
	require.Equal(t, 3, r.Killed)
	require.Equal(t, 1, r.Escaped, "the daemon, which a signal to the group would have missed")
	from := b.at(2).Load()
	other := newDriver(t)
	start(t, other, b, role(b, "count"), 0) // time passes
	require.Equal(t, from, b.at(2).Load())
}

func TestChildrenThatTheRootLeavesBehindAreKilledAtTheDeadline(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "agent"), 0, 1)
	r, err := d.Terminate(ctx, target, Grace{Period: 400 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, 1, r.Asked)
	require.GreaterOrEqual(t, r.Took, 400*time.Millisecond)
	if r.Exit.Code == 3 { // on a busy machine the root may not have come to it
		require.Equal(t, 1, r.Killed)
		require.Contains(t, r.Complaints, Orphans)
	}
}

func TestWhoIsAskedCanBeChosen(t *testing.T) {
	ctx, b := scene(t)
	run := func(g Grace, named bool) Report {
		_ = os.Remove(b.image())
		b.at(1).Store(0)
		d := newDriver(t)
		target := start(t, d, b, role(b, "twin"), 0, 1)
		if named {
			j, err := d.find(target)
			require.NoError(t, err)
			s, err := j.tree.State(ctx)
			require.NoError(t, err)
			for _, p := range s.Members {
				if p.Parent == target.PID {
					g.Forward = checkpoint.Target{PID: p.PID, Start: p.Start}
				}
			}
		}
		g.Contract.Image = b.found
		r, err := d.Terminate(ctx, target, g)
		require.NoError(t, err)
		return r
	}
	all := run(Grace{Period: long, To: All}, false)
	require.Equal(t, 2, all.Asked)
	require.True(t, all.Exited)
	require.Equal(t, Saved, all.Verdict)

	require.NoError(t, os.Remove(b.ack()))
	named := run(Grace{Period: long, To: Named, AckFile: b.ack(), Linger: 200 * time.Millisecond}, true)
	require.Equal(t, 1, named.Asked)
	require.Equal(t, Saved, named.Verdict)
	require.GreaterOrEqual(t, named.Killed, 1, "the root was not asked")

	// Some other process is not signalled for being named.
	d := newDriver(t)
	target := start(t, d, b, role(b, "count"), 0)
	other := stray(t, b, role(b, "child", "3"), 3)
	_, err := d.Terminate(ctx, target, Grace{To: Named, Forward: other})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	advances(t, b, 0, 3)
}

func TestAShellAsEntryPointIsNamedAsTheReason(t *testing.T) {
	ctx, b := scene(t)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("shell-form entry points are left out: no sh: " + err.Error())
	}
	cmd := role(b, "saves1")
	shell := exec.Command(sh, "-c", "/proc/self/exe -test.run='^$'; true") // not the last command, so it is no exec
	self, err := os.Executable()
	require.NoError(t, err)
	shell.Args[2] = "'" + self + "' -test.run='^$'; true"
	shell.Env = cmd.Env
	d := newDriver(t)
	target := start(t, d, b, shell, 1)
	r, err := d.Terminate(ctx, target, Grace{Period: 300 * time.Millisecond, Contract: Contract{Saved: []int{0}, Image: b.found}})
	require.NoError(t, err)
	require.Equal(t, NotSaved, r.Verdict, "the job was never told")
	require.Contains(t, r.Complaints, ShellRoot)
	require.Equal(t, 1, r.Asked)
	require.False(t, r.Exited)
}

func TestWhatHasNoHandlerIsNamedAsTheReason(t *testing.T) {
	ctx, _ := scene(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("a program without a handler is left out: no sleep: " + err.Error())
	}
	d := newDriver(t)
	target, err := d.Start(exec.Command(sleep, "1000"))
	require.NoError(t, err)
	r, err := d.Terminate(ctx, target, Grace{Period: long})
	require.NoError(t, err)
	require.True(t, r.Exited)
	require.Equal(t, Exit{Known: true, Signal: int(syscall.SIGTERM)}, r.Exit)
	require.Equal(t, []Complaint{TermUncaught}, r.Complaints)

	cmd := exec.Command(sleep, "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	target, err = d.Start(cmd)
	if err != nil {
		t.Skip("the first process of a pid namespace is left out: " + err.Error())
	}
	r, err = d.Terminate(ctx, target, Grace{Period: short})
	require.NoError(t, err)
	require.Equal(t, []Complaint{TermDropped}, r.Complaints)
	require.Equal(t, 1, r.Killed, "the kernel does not tell the first of a namespace")
}

func TestAStoppedJobIsLetGoToSave(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "saves"), 0)
	require.NoError(t, d.Lock(ctx, target, checkpoint.LockOptions{Timeout: long}))
	r, err := d.Terminate(ctx, target, Grace{Period: long, Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Exited)
	require.Equal(t, Saved, r.Verdict)

	d = newDriver(t) // by somebody else
	_ = os.Remove(b.image())
	target = start(t, d, b, role(b, "saves"), 0)
	require.NoError(t, syscall.Kill(target.PID, syscall.SIGSTOP))
	eventually(t, "it is stopped", func() bool { s, err := d.State(ctx, target); return err == nil && s == checkpoint.Locked })
	r, err = d.Terminate(ctx, target, Grace{Period: long, Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.Equal(t, Saved, r.Verdict)
}

func TestOneThatWasNotStartedHere(t *testing.T) {
	ctx, b := scene(t)
	target := stray(t, b, role(b, "saves"), 0)
	r, err := Terminate(ctx, target, Grace{Period: long, Contract: Contract{Saved: []int{0}, Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Exited)
	require.False(t, r.Exit.Known, "only a parent is told how it died")
	require.False(t, r.Claimed)
	require.Equal(t, Saved, r.Verdict)
	_, err = Terminate(ctx, target, Grace{})
	require.ErrorIs(t, err, checkpoint.ErrGone)
}

func TestTheDeadAreReaped(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "lies"), 0)
	require.NoError(t, syscall.Kill(target.PID, syscall.SIGTERM))
	require.NoError(t, d.Wait(ctx, target))
	require.True(t, alive(target), "a zombie keeps its pid from others until the Driver has done with it")
	s, err := d.State(ctx, target)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Gone, s)
	r, err := d.Terminate(ctx, target, Grace{Contract: Contract{Image: b.found}})
	require.NoError(t, err)
	require.True(t, r.Exited)
	require.Equal(t, Exit{Known: true}, r.Exit)
	require.Equal(t, NotSaved, r.Verdict)
	require.False(t, alive(target))
	require.NoError(t, d.Wait(ctx, target), "it has ended")

	// Someone else's zombie is gone, and left to its parent.
	other := exec.Command("/proc/self/exe", "-test.run=^$")
	require.NoError(t, other.Start())
	eventually(t, "it is a zombie", func() bool {
		id, err := Identify(other.Process.Pid)
		require.NoError(t, err)
		s, err := newDriver(t).State(ctx, id)
		return err == nil && s == checkpoint.Gone
	})
	id, err := Identify(other.Process.Pid)
	require.NoError(t, err)
	_, err = Terminate(ctx, id, Grace{})
	require.ErrorIs(t, err, checkpoint.ErrGone)
	require.NoError(t, other.Wait())
}

func TestAReusedPIDIsNeverSignalled(t *testing.T) {
	ctx, b := scene(t)
	target := stray(t, b, role(b, "saves"), 0)
	d := newDriver(t)
	for _, start := range []uint64{target.Start - 1, target.Start + 1, 0, math.MaxUint64} {
		other := checkpoint.Target{PID: target.PID, Start: start}
		_, err := d.Terminate(ctx, other, Grace{Immediate: true})
		require.ErrorIs(t, err, checkpoint.ErrGone)
		require.ErrorIs(t, d.Lock(ctx, other, checkpoint.LockOptions{Timeout: long}), checkpoint.ErrGone)
		s, err := d.State(ctx, other)
		require.NoError(t, err)
		require.Equal(t, checkpoint.Gone, s)
	}
	advances(t, b, 0)
	require.True(t, alive(target))
	require.Empty(t, d.jobs, "nothing is kept of those who are not there")
}

// A pid namespace of its own starts counting anew, so that a pid can really be used twice:
// the kernel is told the next pid (/proc/sys/kernel/ns_last_pid). Here it is asked for the
// pid of a target that has died, with clone3 and set_tid left to rights that few have.
func TestAPIDThatIsReallyUsedAgain(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	cmd := role(b, "count")
	require.NoError(t, cmd.Start())
	advances(t, b, 0)
	old, err := Identify(cmd.Process.Pid)
	require.NoError(t, err)
	s, err := d.State(ctx, old) // the Driver knows it from now on
	require.NoError(t, err)
	require.Equal(t, checkpoint.Running, s)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	var twin checkpoint.Target
	for range 50 {
		runtime.LockOSThread()
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(itoa(old.PID-1)), 0); err != nil {
			runtime.UnlockOSThread()
			t.Skip("a real reuse of a pid is left out: " + err.Error())
		}
		next := role(b, "child", "3")
		require.NoError(t, next.Start())
		runtime.UnlockOSThread()
		t.Cleanup(func() {
			_ = next.Process.Kill()
			_ = next.Wait()
		})
		if next.Process.Pid == old.PID {
			if twin, err = Identify(old.PID); err == nil && twin.Start != old.Start {
				break
			}
		}
		twin = checkpoint.Target{}
	}
	if twin.PID == 0 {
		t.Skip("a real reuse of a pid is left out: others were quicker to take it")
	}
	advances(t, b, 3)
	_, err = d.Terminate(ctx, old, Grace{Immediate: true})
	require.ErrorIs(t, err, checkpoint.ErrGone)
	require.ErrorIs(t, d.Lock(ctx, old, checkpoint.LockOptions{Timeout: long}), checkpoint.ErrGone)
	require.ErrorIs(t, d.Unlock(ctx, old), checkpoint.ErrGone)
	advances(t, b, 3)
	require.True(t, alive(twin))
}

func TestWhatIsNoJobIsRefused(t *testing.T) {
	ctx, b := scene(t)
	target := stray(t, b, role(b, "count"), 0)
	tids, err := os.ReadDir("/proc/" + itoa(target.PID) + "/task")
	require.NoError(t, err)
	thread := 0
	for _, e := range tids {
		if e.Name() != itoa(target.PID) {
			thread = atoi(e.Name())
		}
	}
	require.NotZero(t, thread, "a Go program has several threads")
	bad := map[string]int{"zero": 0, "init": 1, "negative": -1, "a group": -target.PID, "self": os.Getpid(), "parent": os.Getppid(), "a thread": thread, "least": math.MinInt}
	if k, err := Identify(2); err == nil {
		if name, _ := os.ReadFile("/proc/2/comm"); string(name) == "kthreadd\n" {
			bad["a thread of the kernel"] = k.PID
		}
	}
	d := newDriver(t)
	for name, pid := range bad {
		id, err := Identify(pid)
		if err != nil {
			id = checkpoint.Target{PID: pid, Start: 1}
		}
		_, err = d.Terminate(ctx, id, Grace{Immediate: true})
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		_, err = d.State(ctx, id)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		require.ErrorIs(t, d.Lock(ctx, id, checkpoint.LockOptions{Timeout: long}), lockstep.ErrInvalid, name)
		require.ErrorIs(t, d.Unlock(ctx, id), lockstep.ErrInvalid, name)
		_, err = d.Suspend(ctx, id)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	advances(t, b, 0)
	_, err = Identify(0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Identify(math.MaxInt32)
	require.ErrorIs(t, err, checkpoint.ErrGone)
}

func TestAGraceIsChecked(t *testing.T) {
	ctx, b := scene(t)
	d := newDriver(t)
	target := start(t, d, b, role(b, "count"), 0)
	for field, g := range map[string]Grace{
		"Period":         {Period: -1},
		"Linger":         {Linger: time.Second},
		"Confirm":        {Confirm: math.MinInt64},
		"Poll":           {Poll: math.MaxInt64},
		"To":             {To: 7},
		"Forward":        {To: Named},
		"AckFile":        {AckFile: "relative"},
		"Contract.Saved": {Contract: Contract{Saved: []int{256}}},
	} {
		_, err := d.Terminate(ctx, target, g)
		require.ErrorIs(t, err, lockstep.ErrInvalid, field)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, field, e.Field)
	}
	err := Grace{Period: -1, To: -1, AckFile: "/a/../b", Forward: checkpoint.Target{PID: 5}}.Validate()
	for _, field := range []string{"Period", "To", "AckFile", "Forward"} {
		require.ErrorContains(t, err, field, "all faults at once")
	}
	_, err = d.Terminate(ctx, target, Grace{AckFile: filepath.Join(b.path, "below-a-file")})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	advances(t, b, 0)
	_, err = New(Config{Poll: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = New(Config{Cgroup: t.TempDir()})
	require.ErrorIs(t, err, checkpoint.ErrUnsupported)
}
