//go:build linux

package proctree

import (
	"context"
	"fmt"
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
)

// The processes of the tests are this test binary itself, in a role that the
// environment names. They count in a file that all of them map.
const (
	roleEnv  = "PROCTREE_TEST_ROLE"
	boardEnv = "PROCTREE_TEST_BOARD"
	slots    = 64
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		play(role)
		return
	}
	os.Exit(m.Run())
}

// board is a file of counters in shared memory.
type board struct {
	path  string
	words []byte
}

func openBoard(path string) *board {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	defer f.Close()
	check(f.Truncate(slots * 8))
	words, err := syscall.Mmap(int(f.Fd()), 0, slots*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return &board{path: path, words: words}
}

func (b *board) slot(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b.words[i*8]))
}

func (b *board) all() (list [slots]uint64) {
	for i := range list {
		list[i] = b.slot(i).Load()
	}
	return list
}

func check(err error) {
	if err != nil {
		panic(err) // of a helper process; the test sees that it does not count
	}
}

// role is the command of a helper process. A role is a word and numbers.
func role(b *board, words ...any) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), roleEnv+"="+strings.TrimSpace(fmt.Sprintln(words...)), boardEnv+"="+b.path)
	return cmd
}

// count counts in a slot for ever.
func count(b *board, slot int) {
	for {
		b.slot(slot).Add(1)
		time.Sleep(100 * time.Microsecond) // so that many helpers fit on a small machine
	}
}

func play(text string) {
	time.AfterFunc(2*time.Minute, func() { os.Exit(1) }) // if the test has died and left it behind
	b := openBoard(os.Getenv(boardEnv))
	words := strings.Fields(text)
	n := func(i int) int {
		v, err := strconv.Atoi(words[i])
		check(err)
		return v
	}
	launch := func(attr *syscall.SysProcAttr, words ...any) *exec.Cmd {
		cmd := role(b, words...)
		cmd.SysProcAttr = attr
		check(cmd.Start())
		return cmd
	}
	switch words[0] {
	case "count":
		count(b, n(1))
	case "family": // a child, one in another group, and one in another session, which has a child itself
		launch(nil, "count", n(1)+1)
		launch(&syscall.SysProcAttr{Setpgid: true}, "count", n(1)+2)
		launch(&syscall.SysProcAttr{Setsid: true}, "pair", n(1)+3)
		count(b, n(1))
	case "pair":
		launch(nil, "count", n(1)+1)
		count(b, n(1))
	case "threads":
		for i := range n(2) {
			go func() {
				runtime.LockOSThread()
				count(b, n(1)+i)
			}()
		}
		select {}
	case "name":
		check(os.WriteFile("/proc/self/comm", []byte("a) T (b c) S 1"), 0o600))
		count(b, n(1))
	case "forks": // four at once that start a child, wait for it, and start the next
		for i := range 4 {
			go func() {
				for {
					cmd := launch(&syscall.SysProcAttr{Setpgid: i%2 == 0}, "once", n(1)+i)
					_ = cmd.Wait()
				}
			}()
		}
		select {}
	case "once":
		b.slot(n(1)).Add(1)
	case "double": // leaves an orphan in a session of its own behind
		launch(&syscall.SysProcAttr{Setsid: true}, "orphan", n(1)+1)
		for b.slot(n(1)+1).Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		count(b, n(1))
	case "orphan":
		launch(&syscall.SysProcAttr{Setsid: true}, "count", n(1))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		count(b, n(1))
	case "polite":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		go count(b, n(1))
		<-c
		b.slot(n(1) + 1).Store(b.slot(n(1)).Load())
		os.Exit(7)
	case "undertaker": // has a zombie for a child
		cmd := launch(nil, "once", n(1)+1)
		_ = cmd
		count(b, n(1))
	case "subreaper":
		subreaper(b, n(1))
	}
}

// subreaper is a supervisor that reaps what its trees leave behind.
func subreaper(b *board, slot int) {
	check(Subreap())
	t, err := Start(role(b, "double", slot+1), Config{})
	check(err)
	for b.slot(slot+1).Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := t.Terminate(ctx, 0)
	check(err)
	if r.Zombies == 0 && r.Killed >= 2 {
		b.slot(slot).Store(1)
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

// scene sets up a board, a counter beside all trees that shows time passing, and a context.
func scene(t *testing.T) (context.Context, *board, func()) {
	t.Helper()
	real(t)
	b := openBoard(filepath.Join(t.TempDir(), "board"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	clock := role(b, "count", slots-1)
	require.NoError(t, clock.Start())
	t.Cleanup(func() {
		cancel()
		_ = clock.Process.Kill()
		_ = clock.Wait()
		_ = syscall.Munmap(b.words)
	})
	// pass returns when the clock has gone on by 50 counts.
	pass := func() {
		from := b.slot(slots - 1).Load()
		eventually(t, "the clock goes on", func() bool { return b.slot(slots-1).Load() >= from+50 })
	}
	return ctx, b, pass
}

// grow starts a tree that the test ends.
func grow(t *testing.T, cmd *exec.Cmd, cfg Config) *Tree {
	t.Helper()
	tree, err := Start(cmd, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := tree.Terminate(ctx, 0)
		require.NoError(t, err)
		require.NoError(t, tree.Close())
		_, there, _ := linux{}.process(tree.Root().PID)
		require.False(t, there, "the root is reaped")
	})
	return tree
}

// eventually looks until something holds; the kernel gives no event for it.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "not in time: "+what)
		}
	}
}

// advances waits until all these slots have gone on.
func advances(t *testing.T, b *board, list ...int) {
	t.Helper()
	from := b.all()
	eventually(t, "counters go on", func() bool {
		for _, i := range list {
			if b.slot(i).Load() <= from[i] {
				return false
			}
		}
		return true
	})
}

// still demands that no counter goes on while the clock does.
func still(t *testing.T, b *board, pass func()) {
	t.Helper()
	from := b.all()
	pass()
	to := b.all()
	from[slots-1], to[slots-1] = 0, 0
	require.Equal(t, from, to, "nobody counts while paused")
}
