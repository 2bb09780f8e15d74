//go:build linux

package cooperative

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// A rank that dies while a child of it, such as a data loader, has a copy of its connection:
// who waits for it hears that it is gone, and the rank may be started again.
func TestACopyOfAConnectionKeepsNoPlace(t *testing.T) {
	real(t)
	s := host(t, Config{})
	cmd := role(t, "forks", s.cfg.Socket, 0)
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = said.Read(make([]byte, 1)) // the child has its copy
	require.NoError(t, err)
	target := s.target(0)
	waits := make(chan error, 1)
	go func() { waits <- s.Lock(s.ctx, target, opts(long)) }()
	eventually(t, "it is asked", func() bool {
		s.Host.mu.Lock()
		defer s.Host.mu.Unlock()
		return len(s.ranks[0].waits) > 0
	})
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.ErrorIs(t, <-waits, checkpoint.ErrGone)
	require.Equal(t, checkpoint.Gone, s.state(target))
	tr := s.train(HookConfig{}, nil)
	require.NoError(t, s.Lock(s.ctx, s.target(0), opts(long)))
	require.NoError(t, s.Unlock(s.ctx, s.target(0)))
	tr.goesOn(t)
}

// A hook that stands elsewhere than it was told would be saved at another step than its
// peers.
func TestAHookThatStandsAtAnotherStepIsLetGo(t *testing.T) {
	s := host(t, Config{})
	f := s.fake("0")
	target := s.target(0)
	done := make(chan error, 1)
	go func() { done <- s.LockAt(s.ctx, target, 10, opts(long)) }()
	f.say("ready " + f.hears("prepare")[0] + " 11")
	require.ErrorIs(t, <-done, ErrProtocol)
	f.say("resumed " + f.hears("resume")[0] + " 11")
	eventually(t, "it goes on", func() bool { return s.state(target) == checkpoint.Running })
}

// An image of another step than the leader named does not pass for one of that.
func TestAnImageOfAnotherStepIsRefused(t *testing.T) {
	s := host(t, Config{})
	s.train(HookConfig{Save: writes("image")}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	at, err := s.TrainingStep(s.ctx, target)
	require.NoError(t, err)
	saver := s.Saver(func(r checkpoint.SaveRequest) string { return filepath.Join(s.dir, fmt.Sprint(r.Epoch)) })
	_, err = saver.Save(s.ctx, checkpoint.SaveRequest{Epoch: 1, Target: target, Step: at + 1})
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	image, err := saver.Save(s.ctx, checkpoint.SaveRequest{Epoch: 2, Target: target, Step: at})
	require.NoError(t, err)
	require.Equal(t, at, image.Step)
}

// pest does to a host what comes to its mind. Its error is that nobody listens.
func pest(r *rand.Rand, socket string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	hello := []string{
		"", "hel", "hello", "hello 1 checkpoint 1", "hello 2 checkpoint 1\n", "hello 1 gate 1\n", "hello 1 checkpoint 7\n", "hello 1 checkpoint 0\n",
		"hello 1 checkpoint 1\n", "hello 1 checkpoint 1\n", "hello 1 checkpoint 1\n", "\x00\xff\n", strings.Repeat("a", 300), "GET / HTTP/1.1\r\n\r\n",
	}[r.IntN(14)]
	if !slow(r, c, hello) || !strings.HasSuffix(hello, " 1\n") {
		return nil
	}
	_, _ = c.Read(make([]byte, 64)) // welcome or refuse, or the end
	words := []string{"ready", "resumed", "stored", "refuse", "leaving", "done", "step", "progress", "notice", "weather", "hello", "READY"}
	args := []string{"0", "1", "2", "77", "9223372036854775807", "9223372036854775808", "-1", "x", strings.Repeat("ab", 32), "late", "", "%41"}
	for range r.IntN(6) {
		line := words[r.IntN(len(words))]
		for range r.IntN(10) {
			line += " " + args[r.IntN(len(args))]
		}
		if !slow(r, c, line+"\n") {
			return nil
		}
	}
	slow(r, c, "resumed 0"[:r.IntN(9)]) // half a line
	return nil
}

// slow writes in pieces, down to single bytes. It reports false if the host has hung up.
func slow(r *rand.Rand, c net.Conn, text string) bool {
	for text != "" {
		n := min(len(text), 1+r.IntN(1+len(text))*r.IntN(2))
		if _, err := c.Write([]byte(text[:n])); err != nil {
			return false
		}
		text = text[n:]
	}
	return true
}

// Storms of peers that are no hooks, talk nonsense, in pieces, and hang up anywhere: the
// other rank stops, saves and goes on as if they were not there, and nothing is left of them.
func TestPestsDoNotKeepAJobFromSaving(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	t.Run("storm", func(t *testing.T) {
		s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 0}, {Rank: 1}}, Notice: func(int, int) {}})
		tr := s.train(HookConfig{Save: writes("image")}, nil)
		target := s.target(0)
		visits, over := 200, make(chan struct{})
		if testing.Short() {
			visits = 40
		}
		var wg sync.WaitGroup
		for seed := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(seed), 5))
				for range visits {
					if err := pest(r, s.cfg.Socket); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() {
			wg.Wait()
			close(over)
		}()
		epoch := checkpoint.Epoch(0)
		for storm := true; storm; {
			select {
			case <-over:
				storm = false
			default:
			}
			epoch++
			require.NoError(t, s.Lock(s.ctx, target, opts(long)))
			_, err := s.Save(s.ctx, target, Save{Epoch: epoch, Place: filepath.Join(s.dir, "image")})
			require.NoError(t, err)
			require.NoError(t, s.Unlock(s.ctx, target))
		}
		tr.goesOn(t)
		s.fake("1").say("notice 15") // the place that the pests were after is free
		t.Logf("%d epochs in %d visits", epoch, 4*visits)
	})
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "no descriptor is left", func() bool { return descriptors(t) <= files })
}

// descriptors is how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// loop is a training that looks for its host at each step.
const loop = `
import os, sys, threading
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
threading.Thread(target=lambda: (os.read(0, 1), os._exit(99)), daemon=True).start()  # it ends with the test
import cooperative
hook, step = cooperative.Hook(lambda path, progress: None, rank=0), 1
while hook.next(step):
    step += 1
    hook.tried = 0
`

// The Python hook passes over what it does not know, and hangs up at what it cannot read;
// its loop goes on either way.
func TestThePythonHookOutlivesAHostThatTalksNonsense(t *testing.T) {
	real(t)
	dir := t.TempDir()
	l, err := coop.Listen(filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer l.Close()
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	cmd := exec.Command(python(t), "-B", "-c", loop, here)
	cmd.Env = append(os.Environ(), EnvSocket+"="+filepath.Join(dir, "s"))
	leash(t, cmd)
	var out bytes.Buffer
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	meet := func() *coop.Conn {
		c, err := l.Accept()
		require.NoError(t, err)
		_, err = c.Greet(service, time.Minute, func(string, coop.Peer) string { return "" })
		require.NoError(t, err)
		return c
	}
	for _, nonsense := range []string{"resume", "prepare 1", "prepare 1 x 2 3", "hold 0", "step x", "commit 1", "abort 1", "snapshot 1"} {
		c := meet()
		m, err := coop.Parse(nonsense)
		require.NoError(t, err)
		require.NoError(t, c.Send(m, time.Minute))
		_, err = c.Receive()
		require.ErrorIs(t, err, io.EOF, nonsense)
		_ = c.Close()
	}
	c := meet()
	defer c.Close()
	for _, line := range []coop.Message{{Verb: "weather"}, {Verb: "weather", Args: []string{"fine"}}, coop.Numbers("step", 5)} {
		require.NoError(t, c.Send(line, time.Minute))
	}
	m, err := c.Receive()
	require.NoError(t, err, "what is not known is passed over")
	require.Equal(t, "step", m.Verb)
	require.NoError(t, c.Send(coop.Numbers("terminate", 6), time.Minute))
	m, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, "leaving", m.Verb)
	require.NoError(t, cmd.Wait(), &out)
}
