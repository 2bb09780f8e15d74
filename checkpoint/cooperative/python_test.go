//go:build linux

package cooperative

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
)

// pythonJob is a training of four ranks, each a process: a state of integers that all ranks
// sum up in every step, over pipes. A rank that left alone would keep the others waiting in
// the sum for ever.
const pythonJob = `
import json, os, signal, struct, sys, threading, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
steps, images = int(sys.argv[2]), sys.argv[3]
RANKS, PRIME = 4, 1000000007
up, down = [os.pipe() for _ in range(RANKS)], [os.pipe() for _ in range(RANKS)]

def leash():  # the input ends when the test does, however that ends
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(99)), daemon=True).start()

def read(fd):
    got = b""
    while len(got) < 8:
        more = os.read(fd, 8 - len(got))
        if not more: sys.exit(9)
        got += more
    return struct.unpack("=Q", got)[0]

def reduce(rank, value):
    os.write(up[rank][1], struct.pack("=Q", value))
    if rank == 0:
        total = sum(read(up[r][0]) for r in range(RANKS)) % PRIME
        for r in range(RANKS): os.write(down[r][1], struct.pack("=Q", total))
    return read(down[rank][0])

def run(rank):
    from cooperative import Hook
    step, state = 1, rank + 1
    if images:
        with open("%s.%d" % (images, rank)) as f: step, state = json.load(f)
    def save(path, progress):
        assert not in_handler
        text = json.dumps([step, state])
        with open(path, "w") as f: f.write(text)
        progress(len(text), len(text))
    in_handler = False
    hook = None
    if os.environ.get("LOCKSTEP_CHECKPOINT"):
        hook = Hook(save, rank=rank)
        def handler(number, frame):
            nonlocal in_handler
            in_handler = True
            hook.notice(number)
            in_handler = False
        signal.signal(signal.SIGTERM, handler)
    while step <= steps and (hook is None or hook.next(step)):
        state = (state * 31 + reduce(rank, state) + step) % PRIME
        step += 1
        if hook: time.sleep(0.0005)
    if step > steps: os.write(1, b"rank-%d:%d\n" % (rank, state))

kids = []
for r in range(RANKS):
    pid = os.fork()
    if pid == 0:
        leash()
        run(r)
        sys.stdout.flush()
        os._exit(0)
    kids.append(pid)
leash()
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in kids))
`

func python(t *testing.T) string {
	t.Helper()
	real(t)
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("cooperative.py is left out: no python3: " + err.Error())
	}
	return path
}

// job is the training. It starts from images unless that is "".
func job(t *testing.T, steps int, images, socket string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	cmd := exec.Command(python(t), "-B", "-c", pythonJob, dir, fmt.Sprint(steps), images)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), EnvSocket+"="+socket)
	leash(t, cmd)
	return cmd, &out
}

func TestPythonJobSavesEndsAndComesToTheSameNumbers(t *testing.T) {
	const steps, never = 400, 1 << 30
	plain, want := job(t, steps, "", "")
	require.NoError(t, plain.Run(), want)
	require.Equal(t, 4, strings.Count(want.String(), "rank"), want)

	notices := make(chan int, 4)
	s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 0}, {Rank: 1}, {Rank: 2}, {Rank: 3}}, Notice: func(rank, signal int) { notices <- signal }})
	// The first job would run for ever. It is saved, goes on, is saved again and told to leave.
	cmd, out := job(t, never, "", s.cfg.Socket)
	require.NoError(t, cmd.Start())
	targets := s.targets(4)
	_, err := s.TrainingStep(s.ctx, targets[2]) // it is in its loop, so its handler is there
	require.NoError(t, err, out)
	require.NoError(t, syscall.Kill(targets[2].PID, syscall.SIGTERM)) // as a node that shuts down does
	select {
	case n := <-notices:
		require.Equal(t, int(syscall.SIGTERM), n)
	case <-s.ctx.Done():
		require.FailNow(t, "no notice", out)
	}
	var stop uint64
	for epoch := checkpoint.Epoch(1); epoch <= 2; epoch++ {
		if epoch == 2 {
			require.NoError(t, all(targets, func(target checkpoint.Target) error { return s.Unlock(s.ctx, target) }))
		}
		stop = s.stopAll(targets, epoch)
		require.NoError(t, all(targets, func(target checkpoint.Target) error {
			save := Save{Epoch: epoch, Place: fmt.Sprintf("%s/epoch-%d.%d", s.dir, epoch, target.Rank)}
			image, err := s.Save(s.ctx, target, save)
			if err != nil {
				return err
			}
			if again, err := s.Save(s.ctx, target, save); err != nil || again != image {
				return fmt.Errorf("the same save again: %v, %w", again, err)
			}
			return s.Commit(s.ctx, target, epoch)
		}))
	}
	require.NoError(t, all(targets, func(target checkpoint.Target) error { return s.Terminate(s.ctx, target) }))
	require.NoError(t, cmd.Wait(), out)
	require.Empty(t, out.String(), "it has not come to its end")

	// The second starts from the images and runs to its end, with a hook that nobody calls.
	again, got := job(t, max(steps, int(stop)+20), s.dir+"/epoch-2", s.cfg.Socket)
	require.NoError(t, again.Run(), got)
	if int(stop)+20 > steps { // a busy machine may have let the first run on for longer
		plain, want = job(t, int(stop)+20, "", "")
		require.NoError(t, plain.Run(), want)
	}
	require.ElementsMatch(t, strings.Fields(want.String()), strings.Fields(got.String()))
}

// The whole way: a leader and the agents of its ranks, over a real job.
func TestACoordinatorSavesAPythonJobAndStopsIt(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole coordinator over a real job is left out under -short")
	}
	s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 0}, {Rank: 1}, {Rank: 2}, {Rank: 3}}})
	cmd, out := job(t, 1<<30, "", s.cfg.Socket)
	require.NoError(t, cmd.Start())
	ledger := &checkpointtest.Ledger{}
	l, err := checkpoint.NewLocal(checkpoint.LocalConfig{
		Config: checkpoint.Config{Job: "j", Term: 1, LockTimeout: 10 * time.Second, Margin: 500, MaxAborts: 20, Backoff: time.Millisecond}, Targets: s.targets(4), Agent: checkpoint.AgentConfig{NoSuspend: true},
		Driver: s, Ledger: ledger,
		Saver: s.Saver(func(r checkpoint.SaveRequest) string { return fmt.Sprintf("%s/%d.%d", s.dir, r.Epoch, r.Rank) }),
		Kill: func(ctx context.Context, target checkpoint.Target) error {
			if err := s.Terminate(ctx, target); err != nil {
				return err
			}
			eventually(t, "it has ended", func() bool { return !alive(target) })
			return nil
		},
	})
	require.NoError(t, err)
	serve, stop := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(serve) }()
	first, err := l.Checkpoint(s.ctx, checkpoint.Request{Cooperative: true, Attempts: 10})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, first.Outcome, "%v %v", first, first.Blame)
	require.Empty(t, first.Broken)
	second, err := l.Checkpoint(s.ctx, checkpoint.Request{Cooperative: true, StopAfter: true, Attempts: 10})
	require.NoError(t, err)
	require.Equal(t, checkpoint.OutcomeCommitted, second.Outcome, second)
	require.True(t, second.Stopped, second)
	require.NoError(t, cmd.Wait(), out)
	m, ok, err := ledger.Latest(s.ctx, "j")
	require.NoError(t, err)
	require.True(t, ok)
	require.Greater(t, m.Step, first.Manifest.Step, "it went on in between")
	for _, image := range m.Ranks {
		text, err := os.ReadFile(fmt.Sprintf("%s/%d.%d", s.dir, m.Epoch, image.Rank))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), fmt.Sprintf("[%d, ", m.Step)), "%s", text)
	}
	stop()
	require.NoError(t, <-done)
}

func TestPythonHookKeepsToTheProtocol(t *testing.T) {
	s := host(t, Config{})
	const script = `
import os, sys, threading
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
threading.Thread(target=lambda: (os.read(0, 1), os._exit(99)), daemon=True).start()  # it ends with the test
from cooperative import Hook
def save(path, progress):
    if os.path.exists(sys.argv[2]): raise OSError(28, "no room")
    open(path, "w").write("image")
hook, step = Hook(save, rank=0), 1
while hook.next(step): step += 1
`
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	full := filepath.Join(s.dir, "full")
	cmd := exec.Command(python(t), "-B", "-c", script, dir, full)
	cmd.Env = append(os.Environ(), EnvSocket+"="+s.cfg.Socket)
	leash(t, cmd)
	var out bytes.Buffer
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	require.NoError(t, s.Lock(s.ctx, target, opts(long)), "it stands already")
	err = s.LockAt(s.ctx, target, 1<<50, opts(long))
	require.ErrorIs(t, err, checkpoint.ErrIllegalState)
	require.NoError(t, os.WriteFile(full, nil, 0o600))
	save := Save{Epoch: 1, Place: filepath.Join(s.dir, "an image")}
	_, err = s.Save(s.ctx, target, save)
	require.ErrorIs(t, err, checkpoint.ErrNoSpace)
	require.NoError(t, os.Remove(full))
	_, err = s.Save(s.ctx, target, save)
	require.NoError(t, err)
	require.NoError(t, s.Abort(s.ctx, target, 1))
	_, err = s.Save(s.ctx, target, save)
	require.ErrorIs(t, err, checkpoint.ErrIllegalState)
	eventually(t, "it goes on", func() bool { step, err := s.TrainingStep(s.ctx, target); return err == nil && step > 1 })
	err = s.LockAt(s.ctx, target, 1, opts(long))
	require.ErrorIs(t, err, checkpoint.ErrRefused, "the step is over")
	require.ErrorIs(t, s.Lock(s.ctx, target, opts(1)), checkpoint.ErrTimeout)

	// Its host goes while it stands, and another comes.
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	s.closed()
	s.Host, err = New(s.cfg)
	require.NoError(t, err)
	s.run()
	target = s.target(0)
	from, err := s.TrainingStep(s.ctx, target)
	require.NoError(t, err)
	eventually(t, "it goes on", func() bool { step, err := s.TrainingStep(s.ctx, target); return err == nil && step > from })
	require.NoError(t, s.Terminate(s.ctx, target))
	require.NoError(t, cmd.Wait(), &out)
}
