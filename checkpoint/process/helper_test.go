//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// The jobs of the tests are this test binary itself, in a role that the environment
// names. They count in a file that all of them map.
const (
	roleEnv  = "PROCESS_TEST_ROLE"
	boardEnv = "PROCESS_TEST_BOARD"
	slots    = 16
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		time.AfterFunc(2*time.Minute, func() { os.Exit(99) }) // if the test has died and left it behind
		play(strings.Fields(role), openBoard(os.Getenv(boardEnv)))
		return
	}
	os.Exit(m.Run())
}

// board is a file of counters in shared memory.
type board struct {
	path string
	mem  []byte
}

func openBoard(path string) *board {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	defer f.Close()
	check(f.Truncate(slots * 8))
	mem, err := syscall.Mmap(int(f.Fd()), 0, slots*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return &board{path: path, mem: mem}
}

func (b *board) at(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b.mem[i*8])) }

func check(err error) {
	if err != nil {
		panic(err) // of a helper process; the test sees that it does not count
	}
}

func role(b *board, words ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), roleEnv+"="+strings.Join(words, " "), boardEnv+"="+b.path)
	return cmd
}

func count(b *board, slot int) {
	for {
		b.at(slot).Add(1)
		time.Sleep(100 * time.Microsecond)
	}
}

// image and ack are where a job of these tests leaves them.
func (b *board) image() string { return b.path + ".image" }
func (b *board) ack() string   { return b.path + ".ack" }

// leave writes a file whole or not at all.
func leave(path string) {
	check(os.WriteFile(path+".part", []byte("step 7"), 0o600))
	check(os.Rename(path+".part", path))
}

// play is a job. Slot 0 is its own; children count in the others.
func play(words []string, b *board) {
	launch := func(attr *syscall.SysProcAttr, words ...string) *exec.Cmd {
		cmd := role(b, words...)
		cmd.SysProcAttr = attr
		check(cmd.Start())
		return cmd
	}
	term := make(chan os.Signal, 1)
	switch words[0] {
	case "count":
		count(b, 0)
	case "child", "pair":
		if words[0] == "pair" {
			launch(nil, "child", "2")
		}
		count(b, int(words[1][0]-'0'))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		count(b, 0)
	case "family": // a child, and one that daemonises: in a session of its own, its parent dead
		launch(nil, "child", "1")
		check(launch(&syscall.SysProcAttr{Setsid: true}, "fork", "2").Wait())
		count(b, 0)
	case "fork":
		launch(&syscall.SysProcAttr{Setsid: true}, "child", words[1])
	case "saves", "saves7", "acks", "quick", "lies", "late": // what they do on SIGTERM
		signal.Notify(term, syscall.SIGTERM)
		go count(b, 0)
		<-term
		onTerm(words[0], b)
	case "agent": // dies of SIGTERM at once and leaves a child behind that has not heard
		signal.Notify(term, syscall.SIGTERM)
		launch(nil, "deafchild")
		go count(b, 0)
		<-term
		os.Exit(3)
	case "deafchild":
		signal.Ignore(syscall.SIGTERM)
		count(b, 1)
	case "twin": // a child that would save, were it told
		launch(nil, "saves1")
		count(b, 0)
	case "saves1":
		signal.Notify(term, syscall.SIGTERM)
		go count(b, 1)
		<-term
		leave(b.image())
		leave(b.ack())
	}
}

func onTerm(what string, b *board) {
	switch what {
	case "saves":
		leave(b.image())
		leave(b.ack())
		os.Exit(0)
	case "saves7":
		leave(b.image())
		os.Exit(7)
	case "acks": // and never exits
		leave(b.image())
		leave(b.ack())
		select {}
	case "quick":
		leave(b.ack())
		select {}
	case "lies":
		os.Exit(0)
	case "late": // saves when the test lets it
		b.at(1).Store(1)
		for b.at(2).Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		leave(b.image())
		os.Exit(0)
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

func scene(t *testing.T) (context.Context, *board) {
	t.Helper()
	real(t)
	b := openBoard(filepath.Join(t.TempDir(), "board"))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(func() {
		cancel()
		_ = syscall.Munmap(b.mem)
	})
	return ctx, b
}

// start starts a job that the test ends, and waits until the slots count.
func start(t *testing.T, d *Driver, b *board, cmd *exec.Cmd, counting ...int) checkpoint.Target {
	t.Helper()
	target, err := d.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { end(t, d, target) })
	advances(t, b, counting...)
	return target
}

func end(t *testing.T, d *Driver, target checkpoint.Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := d.Terminate(ctx, target, Grace{Immediate: true}); !errors.Is(err, checkpoint.ErrGone) {
		require.NoError(t, err)
	}
}

// stray starts a process that no Driver started. It is reaped, so that it goes when killed.
func stray(t *testing.T, b *board, cmd *exec.Cmd, counting ...int) checkpoint.Target {
	t.Helper()
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	advances(t, b, counting...)
	target, err := Identify(cmd.Process.Pid)
	require.NoError(t, err)
	return target
}

// eventually looks until something holds; the kernel gives no event for it.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "not in time: "+what)
		}
	}
}

// advances waits until all these slots have gone on.
func advances(t *testing.T, b *board, list ...int) {
	t.Helper()
	for _, i := range list {
		from := b.at(i).Load()
		eventually(t, fmt.Sprint("slot goes on: ", i), func() bool { return b.at(i).Load() > from })
	}
}

// found is a Contract.Image for the image of a board.
func (b *board) found(context.Context) (bool, error) {
	_, err := os.Stat(b.image())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// alive says whether somebody has the pid that a target had, and it is the target.
func alive(target checkpoint.Target) bool {
	now, err := Identify(target.PID)
	return err == nil && now.Start == target.Start
}
