//go:build linux

package cooperative

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// Jobs with processes of their own are this test binary, in a role that the environment
// names.
const roleEnv = "COOPERATIVE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		go func() { // its input ends when the test does, however that ends
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(99)
		}()
		play(role)
		return
	}
	os.Exit(m.Run())
}

func check(err error) {
	if err != nil {
		panic(err) // of a helper process; the test sees that it does not come
	}
}

// role is a process that ends when the test does.
func role(t *testing.T, name, socket string, rank int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), roleEnv+"="+name, EnvSocket+"="+socket, fmt.Sprintf("%s=%d", EnvRank, rank))
	leash(t, cmd)
	return cmd
}

// leash gives a process an input that ends when the test does, or this process.
func leash(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdin = r
	t.Cleanup(func() { _, _ = w.Close(), r.Close() })
}

func play(name string) {
	ctx := context.Background()
	switch name {
	case "trains", "dies":
		h, err := Dial(ctx, HookConfig{Save: func(path string, progress func(done, total uint64)) error {
			if name == "dies" { // in the middle of a save
				check(os.WriteFile(path, []byte("half of "), 0o600))
				progress(8, 16)
				select {}
			}
			return os.WriteFile(path, []byte("all of it"), 0o600)
		}})
		check(err)
		for step := uint64(1); h.Next(ctx, step) == nil; step++ {
			time.Sleep(100 * time.Microsecond)
		}
	case "parent": // the hook is a child of the target
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), roleEnv+"=trains")
		cmd.Stdin = os.Stdin
		check(cmd.Start())
		_ = cmd.Wait()
	case "forks": // and leaves a child with a copy of its connection
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: os.Getenv(EnvSocket)})
		check(err)
		_, err = c.Write([]byte("hello 1 checkpoint 0\n"))
		check(err)
		_, err = c.Read(make([]byte, coop.MaxLine))
		check(err)
		end, err := c.File()
		check(err)
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), roleEnv+"=waits")
		cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{end}
		check(cmd.Start())
		fmt.Println("forked")
		select {}
	case "waits":
		select {}
	case "stranger":
		if _, err := Dial(ctx, HookConfig{}); err != nil {
			fmt.Println(err)
		}
	}
}

// scene is a host that runs, and what it tells.
type scene struct {
	*Host
	t      *testing.T
	ctx    context.Context
	dir    string
	mu     sync.Mutex
	faults []error
	closed func() // ends the host and waits for it
}

func host(t *testing.T, cfg Config) *scene {
	t.Helper()
	s := &scene{t: t, dir: t.TempDir()}
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(s.dir, "s")
	}
	if cfg.Ranks == nil {
		cfg.Ranks = []checkpoint.Target{{Rank: 0, Job: "j"}}
	}
	cfg.Fault = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = append(s.faults, err)
	}
	h, err := New(cfg)
	require.NoError(t, err)
	s.Host = h
	s.run()
	return s
}

// run runs the host until the test ends.
func (s *scene) run() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	done := make(chan error, 1)
	serve, stop := context.WithCancel(ctx)
	go func() { done <- s.Host.Run(serve) }()
	s.ctx = ctx
	s.closed = sync.OnceFunc(func() {
		stop()
		require.NoError(s.t, <-done)
	})
	s.t.Cleanup(func() {
		s.closed()
		cancel()
	})
	eventually(s.t, "it listens", func() bool { // the socket is there a moment before that
		c, err := net.Dial("unix", s.cfg.Socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (s *scene) told(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.faults {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// trainer is a rank in a goroutine of this process. It runs steps for ever, and the test may
// hold it up in one.
type trainer struct {
	hook *Hook
	mu   sync.Mutex
	step uint64 // of the step that it has begun last
	over error
	done chan struct{}
	gate chan struct{} // a step waits here if it is not nil
}

func (s *scene) train(cfg HookConfig, gate chan struct{}) *trainer {
	s.t.Helper()
	cfg.Socket = s.cfg.Socket
	h, err := Dial(s.ctx, cfg)
	require.NoError(s.t, err)
	tr := &trainer{hook: h, done: make(chan struct{}), gate: gate}
	ctx, cancel := context.WithCancel(s.ctx)
	go func() {
		defer close(tr.done)
		for step := uint64(1); ; step++ {
			err := h.Next(ctx, step)
			tr.mu.Lock()
			tr.over = err
			if err == nil {
				tr.step = step
			}
			tr.mu.Unlock()
			if err != nil {
				return
			}
			if gate != nil {
				select {
				case <-gate:
				case <-ctx.Done():
				}
				continue
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-tr.done
		_ = h.Close()
	})
	return tr
}

func (tr *trainer) at() uint64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.step
}

func (tr *trainer) goesOn(t *testing.T) {
	t.Helper()
	from := tr.at()
	eventually(t, "steps go on", func() bool { return tr.at() > from })
}

// target returns the process of a rank, which is this one if the hook is a trainer.
func (s *scene) target(rank int) checkpoint.Target {
	s.t.Helper()
	target, err := s.Target(s.ctx, rank)
	require.NoError(s.t, err)
	return target
}

func (s *scene) state(target checkpoint.Target) checkpoint.State {
	s.t.Helper()
	got, err := s.State(s.ctx, target)
	require.NoError(s.t, err)
	return got
}

// fake is a hook that the test plays by hand.
type fake struct {
	t *testing.T
	c *coop.Conn
}

func (s *scene) fake(rank string) *fake {
	s.t.Helper()
	c, err := coop.Dial(s.ctx, s.cfg.Socket, service, rank)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return &fake{t: s.t, c: c}
}

func (f *fake) say(line string) {
	f.t.Helper()
	m, err := coop.Parse(line)
	require.NoError(f.t, err)
	require.NoError(f.t, f.c.Send(m, 10*time.Second))
}

// hears waits for a verb and returns its arguments; holds are passed over.
func (f *fake) hears(verb string) []string {
	f.t.Helper()
	for {
		m, err := f.c.Receive()
		require.NoError(f.t, err)
		if m.Verb == "hold" && verb != "hold" {
			continue
		}
		require.Equal(f.t, verb, m.Verb)
		return m.Args
	}
}

// eventually looks until something holds; there is no event for it.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "not in time: "+what)
		}
	}
}

// raw connects without a word.
func (s *scene) raw() net.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.cfg.Socket)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// spawn starts a process and returns who it is. It is reaped, so that it goes when killed.
func spawn(t *testing.T, cmd *exec.Cmd) (target checkpoint.Target, kill func()) {
	t.Helper()
	require.NoError(t, cmd.Start())
	id, err := proctree.Identify(cmd.Process.Pid)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	kill = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	t.Cleanup(kill)
	return checkpoint.Target{PID: id.PID, Start: id.Start}, kill
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
