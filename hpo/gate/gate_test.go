//go:build linux

package gate

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// The trials of the tests are this test binary itself, in a role that the environment
// names. They count quanta in a file that all of them map.
const (
	roleEnv  = "GATE_TEST_ROLE"
	boardEnv = "GATE_TEST_BOARD"
)

// The words of a board.
const (
	quanta  = iota // how many quanta have begun
	settled        // how often the trial has settled
	lost           // the hook has failed for good
	pid            // of the trial
	release        // not 0: a trial in a long quantum may end it
	super          // of a supervisor: how far it has come
	clock          // counts for ever, beside all trials
	words
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		time.AfterFunc(2*time.Minute, func() { os.Exit(1) }) // if the test has died and left it behind
		play(role, openBoard(os.Getenv(boardEnv)))
		return
	}
	os.Exit(m.Run())
}

type board struct {
	path string
	mem  []byte
}

func openBoard(path string) *board {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	defer f.Close()
	check(f.Truncate(words * 8))
	mem, err := syscall.Mmap(int(f.Fd()), 0, words*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return &board{path: path, mem: mem}
}

func (b *board) at(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b.mem[i*8])) }

func check(err error) {
	if err != nil {
		panic(err) // of a helper process; the test sees that it does not count
	}
}

func role(b *board, name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), roleEnv+"="+name, boardEnv+"="+b.path)
	return cmd
}

func play(name string, b *board) {
	ctx := context.Background()
	switch name {
	case "clock":
		for {
			b.at(clock).Add(1)
			time.Sleep(100 * time.Microsecond)
		}
	case "plain": // has no hook
		for {
			b.at(quanta).Add(1)
			time.Sleep(100 * time.Microsecond)
		}
	case "trial", "long", "rude", "leaver":
		signal.Ignore(syscall.SIGHUP) // as the kernel sends when a supervisor dies
		b.at(pid).Store(uint64(os.Getpid()))
		h, err := Dial(ctx, HookConfig{Settle: func() error { b.at(settled).Add(1); return nil }})
		check(err)
		for h.Next(ctx, time.Millisecond) == nil {
			n := b.at(quanta).Add(1)
			time.Sleep(100 * time.Microsecond)
			for name == "long" && n > 20 && b.at(release).Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			for name == "rude" {
				b.at(quanta).Add(1)
				time.Sleep(100 * time.Microsecond)
			}
			if name == "leaver" && n > 20 {
				check(h.Close())
				play("plain", b)
			}
		}
		b.at(lost).Store(1)
		for b.at(release).Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	case "late":
		for b.at(super).Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		play("trial", b)
	case "again":
		for b.at(release).Load() == 0 {
			h, err := Dial(ctx, HookConfig{})
			check(err)
			if h.Next(ctx, time.Millisecond) != nil {
				b.at(lost).Add(1)
			}
			check(h.Close())
			b.at(settled).Add(1)
		}
	case "supervisor", "hung", "halting":
		supervise(name, b)
	}
}

// supervise is a supervisor that is killed or stopped by the test.
func supervise(name string, b *board) {
	kind, lease := "trial", 20*time.Second
	switch name {
	case "hung":
		lease = 500 * time.Millisecond
	case "halting":
		kind = "long"
	}
	g, err := New(Config{Name: "t1", Command: role(b, kind), Socket: b.path + ".sock"})
	check(err)
	go func() { check(g.Run(context.Background())) }()
	for !g.Status().Connected {
		time.Sleep(time.Millisecond)
	}
	// A busy machine may let a lease pass before the trial has seen it; then it is given another.
	for e := uint64(1); b.at(quanta).Load() == 0; time.Sleep(time.Millisecond) {
		if !g.Status().Open {
			check(g.Open(e, time.Now().Add(lease)))
			e++
		}
	}
	for name == "halting" && b.at(quanta).Load() <= 20 {
		time.Sleep(time.Millisecond)
	}
	if name == "halting" {
		check(g.Close(g.Status().Epoch))
		for !g.Status().Halted {
			time.Sleep(time.Millisecond)
		}
	}
	b.at(super).Store(1)
	select {}
}

// eventually looks until something holds; there is no event for it across processes.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "not in time: "+what)
		}
	}
}

// real skips a test where an emulator such as qemu-user runs the programs: it hides its own
// threads and files behind theirs, so the kernel does not show processes as they are.
func real(t *testing.T) {
	t.Helper()
	seen, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	is, err := os.Readlink("/proc/thread-self/exe") // not what emulators care for
	require.NoError(t, err)
	if seen != is {
		t.Skip("tests with real processes are left out: the program is run by " + is + ", which hides what processes are like")
	}
}

// scene sets up a board and a clock beside all trials.
func scene(t *testing.T) *board {
	t.Helper()
	real(t)
	b := openBoard(filepath.Join(t.TempDir(), "b"))
	cmd := role(b, "clock")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = syscall.Munmap(b.mem)
	})
	return b
}

// still demands that no quantum begins while the clock goes on.
func (b *board) still(t *testing.T) {
	t.Helper()
	n := b.at(quanta).Load()
	from := b.at(clock).Load()
	eventually(t, "the clock goes on", func() bool { return b.at(clock).Load() >= from+50 })
	require.Equal(t, n, b.at(quanta).Load(), "a quantum began while the gate was closed")
}

func (b *board) advances(t *testing.T) {
	t.Helper()
	n := b.at(quanta).Load()
	eventually(t, "quanta begin", func() bool { return b.at(quanta).Load() > n+5 })
}

// run runs a gate until the test ends, and sees that it leaves nothing behind.
func run(t *testing.T, b *board, cfg Config) *Gate {
	t.Helper()
	cfg.Name = "t1"
	if cfg.Machine.Patience == 0 {
		cfg.Machine.Patience = 10 * time.Second // so that a busy machine is no reason for signals
	}
	if cfg.Grace == 0 {
		cfg.Grace = 20 * time.Millisecond
	}
	g, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		b.at(release).Store(1)
		cancel()
		require.NoError(t, <-done)
		if cfg.Command != nil {
			require.True(t, g.Status().Over)
			require.NotNil(t, g.Status().Exit)
			_, err := os.Stat("/proc/" + strconv.Itoa(g.Status().PID))
			require.ErrorIs(t, err, os.ErrNotExist, "the trial is reaped")
		}
		if cfg.Socket != "" {
			_, err := os.Stat(cfg.Socket)
			require.ErrorIs(t, err, os.ErrNotExist, "the socket is removed")
		}
		require.ErrorIs(t, g.Run(context.Background()), lockstep.ErrConflict)
	})
	return g
}

func quiesced(t *testing.T, g *Gate) {
	t.Helper()
	eventually(t, "the trial is still", func() bool {
		ok, err := g.Quiesced()
		require.NoError(t, err)
		return ok
	})
}

func later() time.Time { return time.Now().Add(50 * time.Second) }

func TestATrialRunsInItsWindowsOnly(t *testing.T) {
	b := scene(t)
	var reports atomic.Uint64
	g := run(t, b, Config{Command: role(b, "trial"), Socket: b.path + ".sock", Watch: func(r Report) {
		if r.Quanta > 0 && r.Overrun == 0 {
			reports.Add(1)
		}
	}})
	quiesced(t, g)
	require.True(t, g.Status().Connected)
	b.still(t)
	for epoch := range uint64(3) {
		require.NoError(t, g.Open(epoch, later()))
		b.advances(t)
		ok, err := g.Quiesced()
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, g.Close(epoch))
		quiesced(t, g)
		require.False(t, g.Status().Halted, "it was asked, not signalled")
		b.still(t)
		require.NoError(t, g.Open(epoch, later()), "a no-op, as the window is closed")
		require.NoError(t, g.Close(epoch))
		b.still(t)
	}
	require.EqualValues(t, 3, b.at(settled).Load(), "the device is settled before each quiet")
	require.EqualValues(t, 3, reports.Load())
}

func TestALeaseThatRunsOutStopsATrialWithoutAClose(t *testing.T) {
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "trial"), Socket: b.path + ".sock"})
	quiesced(t, g)
	for epoch := range uint64(3) {
		// A busy machine may let a lease pass before the trial has seen it; then it is given another.
		n := b.at(quanta).Load()
		for e := epoch * 100; b.at(quanta).Load() == n; e++ {
			require.NoError(t, g.Open(e, time.Now().Add(100*time.Millisecond)))
			eventually(t, "the lease runs out", func() bool { return !g.Status().Open })
		}
		quiesced(t, g)
		require.False(t, g.Status().Halted)
		b.still(t)
	}
}

func TestATrialThatDoesNotListenIsStoppedBySignals(t *testing.T) {
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "rude"), Socket: b.path + ".sock", Machine: MachineConfig{Patience: 20 * time.Millisecond}})
	quiesced(t, g)
	for epoch := range uint64(2) {
		require.NoError(t, g.Open(epoch, later()))
		b.advances(t)
		require.NoError(t, g.Close(epoch))
		quiesced(t, g)
		require.True(t, g.Status().Halted)
		b.still(t)
	}
}

func TestATrialWithoutAHookIsStoppedBySignalsFromTheStart(t *testing.T) {
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "plain")})
	quiesced(t, g)
	b.still(t)
	require.NoError(t, g.Open(1, later()))
	b.advances(t)
	require.NoError(t, g.Close(1))
	quiesced(t, g)
	b.still(t)
	require.NoError(t, g.Open(2, time.Now().Add(100*time.Millisecond)))
	eventually(t, "the lease runs out", func() bool { return !g.Status().Open })
	quiesced(t, g)
	b.still(t)
}

func TestATrialInACgroupIsFrozen(t *testing.T) {
	dir, err := proctree.OwnCgroup()
	if err == nil {
		err = proctree.ProbeCgroup(dir)
	}
	if err != nil {
		t.Skip("stopping by the freezer is left out: no cgroup v2 that can be written: " + err.Error())
	}
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "plain"), Cgroup: dir})
	quiesced(t, g)
	b.still(t)
	require.NoError(t, g.Open(1, later()))
	b.advances(t)
}

func TestATrialWhoseHookLeavesIsStopped(t *testing.T) {
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "leaver"), Socket: b.path + ".sock"})
	quiesced(t, g)
	require.NoError(t, g.Open(1, later()))
	eventually(t, "it is halted", func() bool { return g.Status().Halted })
	require.False(t, g.Status().Connected)
	b.still(t)
	require.NoError(t, g.Open(2, later()))
	b.advances(t)
}

// orphans ends the trial that a killed supervisor has left behind.
func orphans(t *testing.T, b *board) {
	t.Cleanup(func() {
		b.at(release).Store(1)
		id := int(b.at(pid).Load())
		eventually(t, "the trial ends", func() bool {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat")
			_, state, ok := strings.Cut(string(text), ") ")
			return err != nil || ok && state[0] == 'Z' // init may be slow
		})
	})
}

func startSupervisor(t *testing.T, b *board, kind string) *exec.Cmd {
	t.Helper()
	cmd := role(b, kind)
	require.NoError(t, cmd.Start())
	orphans(t, b) // after the supervisor is killed, in any case
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the supervisor is ready", func() bool { return b.at(super).Load() == 1 })
	return cmd
}

func TestATrialStopsWhenItsSupervisorIsKilledInAWindow(t *testing.T) {
	b := scene(t)
	cmd := startSupervisor(t, b, "supervisor")
	b.advances(t)
	require.NoError(t, cmd.Process.Kill())
	eventually(t, "the hook notices", func() bool { return b.at(lost).Load() == 1 })
	b.still(t)
}

// A supervisor that hangs closes no socket and sends nothing, so only the lease is left.
func TestATrialStopsWhenItsSupervisorHangs(t *testing.T) {
	b := scene(t)
	cmd := startSupervisor(t, b, "hung")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the lease runs out", func() bool { return b.at(settled).Load() == 1 })
	b.still(t)
	require.Zero(t, b.at(lost).Load(), "nothing has told the hook")
}

// The kernel continues the stopped group of a supervisor that dies.
func TestATrialThatTheKernelContinuesDoesNotRun(t *testing.T) {
	b := scene(t)
	cmd := startSupervisor(t, b, "halting")
	b.still(t)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "the kernel continues the trial", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.at(pid).Load()))
		require.NoError(t, err)
		_, state, _ := strings.Cut(string(text), ") ")
		return state[0] != 'T'
	})
	n := b.at(quanta).Load()
	b.at(release).Store(1) // its quantum ends
	eventually(t, "the hook notices", func() bool { return b.at(lost).Load() == 1 })
	require.Equal(t, n, b.at(quanta).Load())
}

func TestOnlyTheTrialItselfIsTakenForItsHook(t *testing.T) {
	b := scene(t)
	socket := b.path + ".sock"
	g := run(t, b, Config{Command: role(b, "plain"), Socket: socket})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := Dial(ctx, HookConfig{Socket: socket, Name: "t1"})
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "process", "this process is not of the trial's tree")
	_, err = Dial(ctx, HookConfig{Socket: socket, Name: "t2"})
	require.ErrorContains(t, err, "name")
	require.False(t, g.Status().Connected)

	other := scene(t)
	run(t, other, Config{Command: role(other, "plain"), Socket: other.path + ".sock", UIDs: []int{os.Geteuid() + 1}})
	_, err = Dial(ctx, HookConfig{Socket: other.path + ".sock", Name: "t1"})
	require.ErrorContains(t, err, "user")
}

func TestATrialThatRunsAlreadyIsAdoptedAndLeftStopped(t *testing.T) {
	b := scene(t)
	cmd := role(b, "plain")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b.advances(t)
	g, err := New(Config{Name: "t1", PID: cmd.Process.Pid})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	quiesced(t, g)
	require.NoError(t, g.Open(1, later()))
	b.advances(t)
	cancel()
	require.NoError(t, <-done)
	b.still(t)
}

func TestRunReturnsWhenTheTrialIsOver(t *testing.T) {
	b := scene(t)
	cmd := role(b, "nothing")
	g, err := New(Config{Name: "t1", Command: cmd, Socket: b.path + ".sock"})
	require.NoError(t, err)
	require.NoError(t, g.Run(context.Background()))
	require.True(t, g.Status().Exit.Success())
	ok, err := g.Quiesced()
	require.NoError(t, err)
	require.True(t, ok)

	g, err = New(Config{Name: "t1", Command: exec.Command("/nonexistent"), Socket: b.path + ".sock"})
	require.NoError(t, err)
	require.ErrorIs(t, g.Run(context.Background()), ErrFailed)
	_, err = os.Stat(b.path + ".sock")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRunLeavesNoGoroutine(t *testing.T) {
	b := scene(t)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	g, err := New(Config{Name: "t1", Command: role(b, "trial"), Socket: b.path + ".sock", Grace: time.Millisecond})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	quiesced(t, g)
	require.NoError(t, g.Open(1, later()))
	b.advances(t)
	b.at(release).Store(1)
	cancel()
	require.NoError(t, <-done)
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestConfigFaultsAreToldTogether(t *testing.T) {
	_, err := New(Config{Socket: strings.Repeat("x", 108), Grace: -1, PID: 5, Session: true, Machine: MachineConfig{Patience: -1}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Name", "PID", "Socket", "Grace", "Patience"} {
		require.ErrorContains(t, err, field)
	}
	_, err = New(Config{Name: "t1", PID: 5, Socket: "relative"})
	require.ErrorContains(t, err, "Socket")
	_, err = New(Config{Name: "a b", Command: exec.Command("true"), PID: 5})
	require.ErrorContains(t, err, "Name")
	require.ErrorContains(t, err, "Command")
	g, err := New(Config{Name: "t1", PID: 5})
	require.NoError(t, err)
	require.ErrorIs(t, g.Open(1, time.Now().Add(time.Hour)), lockstep.ErrInvalid, "the lease is too long")
	require.ErrorIs(t, g.Open(1, time.Unix(1<<40, 0)), lockstep.ErrInvalid)
	require.NoError(t, g.Open(1, time.Time{}), "it is over, so it is a no-op")
	require.False(t, g.Status().Open)
}

func TestNextEndsWithItsContextAndMayBeCalledAgain(t *testing.T) {
	b := scene(t)
	socket := b.path + ".sock"
	l := fakeGate(t, socket)
	h, err := Dial(context.Background(), HookConfig{Socket: socket, Name: "t1"})
	require.NoError(t, err)
	defer h.Close()
	c := <-l
	require.ErrorIs(t, h.Next(context.Background(), -1), lockstep.ErrInvalid)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, h.Next(ctx, 0), context.Canceled)
	require.NoError(t, c.Send(numbers("open", 1, 1, 1<<62), time.Second))
	require.NoError(t, h.Next(context.Background(), time.Hour))
	require.NoError(t, c.Send(numbers("open", 1), time.Second))
	require.ErrorIs(t, h.Next(context.Background(), 0), ErrProtocol)
}

// The old connection may be seen to go only after the new one has come.
func TestAHookThatDialsAgainIsTakenEachTime(t *testing.T) {
	b := scene(t)
	g := run(t, b, Config{Command: role(b, "again"), Socket: b.path + ".sock"})
	require.NoError(t, g.Open(1, later()))
	eventually(t, "it has dialled often", func() bool {
		require.NoError(t, g.Open(1, later()))
		return b.at(settled).Load() >= 50 || b.at(lost).Load() > 0
	})
	require.Zero(t, b.at(lost).Load(), "a hook was dropped")
}

func TestQuantaAreReportedAfterSeveralCloses(t *testing.T) {
	b := scene(t)
	reports := make(chan Report, 100)
	g := run(t, b, Config{Command: role(b, "long"), Socket: b.path + ".sock", Watch: func(r Report) { reports <- r }})
	quiesced(t, g)
	require.NoError(t, g.Open(1, later()))
	eventually(t, "a long quantum", func() bool { return b.at(quanta).Load() > 20 })
	require.NoError(t, g.Close(1))
	require.NoError(t, g.Close(2))
	require.NoError(t, g.Close(3))
	b.at(release).Store(1)
	quiesced(t, g)
	r := <-reports
	require.EqualValues(t, 1, r.Epoch)
	require.EqualValues(t, b.at(quanta).Load(), r.Quanta)
}

// strangers connects n times, says what is given and holds on.
func strangers(t *testing.T, socket, text string, n int) {
	t.Helper()
	for range n {
		c, err := net.Dial("unix", socket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write([]byte(text)) // it may be closed already
	}
}

func TestAHookIsTakenWhateverElseConnects(t *testing.T) {
	for name, text := range map[string]string{
		"silent":    "",
		"half":      "hello 1 ga",
		"oversized": strings.Repeat("a", 10_000),
		"bytes":     "\x00\xff\n",
		"another's": "hello 1 gate t1\n",
		"service":   "hello 1 other t1\n",
		"version":   "hello 2 gate t1\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := scene(t)
			socket := b.path + ".sock"
			g := run(t, b, Config{Command: role(b, "late"), Socket: socket})
			eventually(t, "it listens", func() bool { return g.Status().PID > 0 })
			strangers(t, socket, text, greeters)
			require.False(t, g.Status().Connected)
			b.at(super).Store(1)
			eventually(t, "the hook connects", func() bool { return g.Status().Connected })
			require.NoError(t, g.Open(1, later()))
			b.advances(t)
			require.NoError(t, g.Close(1))
			quiesced(t, g)
		})
	}
}

func TestAHookOfAnotherUserConnectsIfItMay(t *testing.T) {
	real(t)
	if os.Geteuid() != 0 {
		t.Skip("the refusal of another user is left out: only root can start a process of one")
	}
	dir, err := os.MkdirTemp("", "gate") // t.TempDir is below what is closed to others
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	b := openBoard(filepath.Join(dir, "b"))
	require.NoError(t, os.Chmod(b.path, 0o666))
	program, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), program, 0o755))
	cmd := role(b, "trial")
	cmd.Path, cmd.Dir = filepath.Join(dir, "program"), "/"
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	g := run(t, b, Config{Command: cmd, Socket: b.path + ".sock", UIDs: []int{nobody}})
	eventually(t, "the hook connects", func() bool { return g.Status().Connected })
	require.NoError(t, g.Open(1, later()))
	b.advances(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = Dial(ctx, HookConfig{Socket: b.path + ".sock", Name: "t1"})
	require.ErrorContains(t, err, "user", "this process is root's")
}
