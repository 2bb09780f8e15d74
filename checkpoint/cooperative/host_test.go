//go:build linux

package cooperative

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// long is a timeout that no test waits for.
const long = 60 * time.Second

func opts(d time.Duration) checkpoint.LockOptions { return checkpoint.LockOptions{Timeout: d} }

func TestAHostIsADriver(t *testing.T) {
	real(t)
	checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
		s := host(t, Config{})
		_, kill := spawn(t, role(t, "trains", s.cfg.Socket, 0))
		return checkpointtest.Subject{Driver: s, Target: s.target(0), Kill: kill}
	})
}

func writes(text string) func(string, func(done, total uint64)) error {
	return func(path string, _ func(done, total uint64)) error { return os.WriteFile(path, []byte(text), 0o666) }
}

func TestARankStopsBeforeTheStepSavesAndGoesOn(t *testing.T) {
	s := host(t, Config{})
	var committed []checkpoint.Epoch
	var mu sync.Mutex
	tr := s.train(HookConfig{
		Save: func(path string, progress func(done, total uint64)) error {
			progress(0, 8)
			progress(8, 8)
			return os.WriteFile(path, []byte("weights!"), 0o666)
		},
		Committed: func(e checkpoint.Epoch) {
			mu.Lock()
			defer mu.Unlock()
			committed = append(committed, e)
		},
	}, nil)
	target := s.target(0)
	now, err := s.TrainingStep(s.ctx, target)
	require.NoError(t, err)
	stop := now + 50
	require.NoError(t, s.LockAt(s.ctx, target, stop, opts(long)))
	at, err := s.TrainingStep(s.ctx, target)
	require.NoError(t, err)
	require.Equal(t, stop, at)
	require.Equal(t, stop-1, tr.at(), "the step itself has not begun")
	require.Equal(t, checkpoint.Locked, s.state(target))

	place := filepath.Join(s.dir, "épo que%3") // bytes that are no word
	var seen []lockstep.Bytes
	got, err := s.Save(s.ctx, target, Save{Epoch: 3, Place: place, Progress: func(done, total lockstep.Bytes) {
		require.EqualValues(t, 8, total)
		seen = append(seen, done)
	}})
	require.NoError(t, err)
	require.Equal(t, checkpoint.RankImage{Rank: 0, Image: sha256.Sum256([]byte("weights!")), Bytes: 8, Step: stop, Took: got.Took}, got)
	require.Equal(t, []lockstep.Bytes{0, 8}, seen)
	text, err := os.ReadFile(place)
	require.NoError(t, err)
	require.Equal(t, "weights!", string(text))
	info, err := os.Stat(place)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it holds weights and secrets")
	require.Equal(t, stop-1, tr.at(), "it stands still until it is told")

	require.NoError(t, s.Commit(s.ctx, target, 3))
	require.NoError(t, s.Unlock(s.ctx, target))
	require.Equal(t, checkpoint.Running, s.state(target))
	tr.goesOn(t)
	mu.Lock()
	require.Equal(t, []checkpoint.Epoch{3}, committed)
	mu.Unlock()

	require.NoError(t, s.Terminate(s.ctx, target))
	<-tr.done
	require.ErrorIs(t, tr.over, ErrLeave)
}

func TestAStepThatIsOverIsRefused(t *testing.T) {
	s := host(t, Config{})
	tr := s.train(HookConfig{}, nil)
	eventually(t, "some steps", func() bool { return tr.at() > 5 })
	target := s.target(0)
	err := s.LockAt(s.ctx, target, 2, opts(long))
	require.ErrorIs(t, err, checkpoint.ErrRefused)
	tr.goesOn(t)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	err = s.LockAt(s.ctx, target, 1<<40, opts(long))
	require.ErrorIs(t, err, checkpoint.ErrIllegalState, "it stands at another")
	require.Equal(t, checkpoint.Locked, s.state(target), "as it was")
	require.NoError(t, s.Unlock(s.ctx, target))
	tr.goesOn(t)
}

func TestAHookThatNeverAnswersTimesOutAndIsLeftAsItWas(t *testing.T) {
	s := host(t, Config{})
	f := s.fake("0")
	target := s.target(0)
	err := s.Lock(s.ctx, target, opts(time.Millisecond))
	require.ErrorIs(t, err, checkpoint.ErrTimeout)
	var e *checkpoint.DriverError
	require.ErrorAs(t, err, &e)
	require.Equal(t, checkpoint.Running, e.State)
	f.hears("prepare")
	f.hears("resume") // what it was asked is taken back

	within, cancel := context.WithTimeout(s.ctx, 10*time.Millisecond)
	defer cancel()
	for _, err := range []error{
		second(s.TrainingStep(within, target)), s.Commit(within, target, 1), s.Terminate(within, target), s.Lock(within, target, opts(long)),
	} {
		require.ErrorIs(t, err, checkpoint.ErrTimeout)
	}
	require.Equal(t, checkpoint.Running, s.state(target))
}

func second[T any](_ T, err error) error { return err }

func TestAHookThatIsBusyTooLongRefusesByItself(t *testing.T) {
	s := host(t, Config{})
	gate := make(chan struct{})
	tr := s.train(HookConfig{}, gate)
	target := s.target(0)
	eventually(t, "it is in a step", func() bool { return tr.at() == 1 })
	require.ErrorIs(t, s.Lock(s.ctx, target, opts(time.Millisecond)), checkpoint.ErrTimeout)
	gate <- struct{}{}
	eventually(t, "it runs the next step", func() bool { return tr.at() == 2 })
	require.Equal(t, checkpoint.Running, s.state(target))
	close(gate)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)), "the next time it may be quicker")
}

func TestALateAnswerChangesNothing(t *testing.T) {
	s := host(t, Config{})
	f := s.fake("0")
	target := s.target(0)
	require.ErrorIs(t, s.Lock(s.ctx, target, opts(time.Millisecond)), checkpoint.ErrTimeout)
	args := f.hears("prepare")
	f.say("ready " + args[0] + " 7") // it is too late, and it does stand still
	eventually(t, "the state is the truth", func() bool { return s.state(target) == checkpoint.Locked })
	f.say("resumed " + f.hears("resume")[0] + " 7")
	eventually(t, "it goes on", func() bool { return s.state(target) == checkpoint.Running })
}

func TestAHookMayGoAtEveryPoint(t *testing.T) {
	for _, verb := range []string{"step", "prepare", "snapshot", "commit", "abort", "resume", "terminate"} {
		t.Run(verb, func(t *testing.T) {
			s := host(t, Config{})
			f := s.fake("0")
			target := s.target(0)
			done := make(chan error, 1)
			go func() {
				if verb != "prepare" && verb != "step" {
					if err := s.Lock(s.ctx, target, opts(long)); err != nil {
						done <- err
						return
					}
				}
				switch verb {
				case "step":
					done <- second(s.TrainingStep(s.ctx, target))
				case "prepare":
					done <- s.Lock(s.ctx, target, opts(long))
				case "snapshot":
					done <- second(s.Save(s.ctx, target, Save{Epoch: 1, Place: filepath.Join(s.dir, "x")}))
				case "commit":
					done <- s.Commit(s.ctx, target, 1)
				case "abort":
					done <- s.Abort(s.ctx, target, 1)
				case "resume":
					done <- s.Unlock(s.ctx, target)
				case "terminate":
					done <- s.Terminate(s.ctx, target)
				}
			}()
			if verb != "prepare" && verb != "step" {
				f.say("ready " + f.hears("prepare")[0] + " 7")
			}
			f.hears(verb)
			require.NoError(t, f.c.Close())
			err := <-done
			if verb == "abort" || verb == "resume" {
				require.NoError(t, err, "a hook that has gone goes on by itself")
			} else {
				require.ErrorIs(t, err, io.EOF)
				require.ErrorIs(t, err, checkpoint.ErrDriver, "the process itself is there")
			}
			require.Equal(t, checkpoint.Running, s.state(target))
			limits, err := s.Inspect(s.ctx, target)
			require.NoError(t, err)
			require.EqualValues(t, "no-hook", limits[0].Reason)

			next := s.fake("0") // it may come again
			target = s.target(0)
			go func() { done <- s.Lock(s.ctx, target, opts(long)) }()
			next.say("ready " + next.hears("prepare")[0] + " 8")
			require.NoError(t, <-done)
		})
	}
}

func TestGarbageEndsTheConnectionAndNothingElse(t *testing.T) {
	s := host(t, Config{})
	for _, text := range []string{
		"\n", "ready\n", "ready x 1\n", "ready 1\n", "ready -1 1\n", "stored 1 2 3 zz 4\n", "stored 1 2 3\n", "refuse 1\n", "progress 1 2\n",
		"stored 1 2 3 " + strings.Repeat("AB", 32) + " 4\n", "ready 9223372036854775808 1\n", strings.Repeat("x", 300), "\x00\xff\n", "ready  1 1\n", "READY 1 1\n",
	} {
		c := s.raw()
		_, err := c.Write([]byte("hello 1 checkpoint 0\n"))
		require.NoError(t, err)
		line := make([]byte, 7)
		_, err = io.ReadFull(c, line)
		require.NoError(t, err)
		require.Equal(t, "welcome", string(line), "%q", text)
		_, err = c.Write([]byte(text))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, c)
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%q: %v", text, err)
		require.NoError(t, c.Close())
	}
	f := s.fake("0") // words of a later version, and answers to nothing, are passed over
	for _, line := range []string{"weather 1 2 3", "ready 99 1", "resumed 99 1", "done 12345", "progress 7 1 2", "stored 5 1 2 " + strings.Repeat("ab", 32) + " 3", "refuse 88 late", "resumed 0 1"} {
		f.say(line)
	}
	target := s.target(0)
	done := make(chan error, 1)
	go func() { done <- s.Lock(s.ctx, target, opts(long)) }()
	serial := f.hears("prepare")[0]
	for range 3 { // duplicates
		f.say("ready " + serial + " 1")
	}
	require.NoError(t, <-done)
	go func() { done <- s.Commit(s.ctx, target, 1) }()
	f.say("ready " + f.hears("commit")[0] + " 1")
	require.ErrorIs(t, <-done, ErrProtocol, "an answer to something else")
}

func TestOfTwoHooksForOneRankTheFirstIsKept(t *testing.T) {
	s := host(t, Config{})
	tr := s.train(HookConfig{}, nil)
	_, err := Dial(s.ctx, HookConfig{Socket: s.cfg.Socket})
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "taken")
	require.NoError(t, s.Lock(s.ctx, s.target(0), opts(long)))
	require.NoError(t, s.Unlock(s.ctx, s.target(0)))
	tr.goesOn(t)
}

func TestWhoIsNoRankIsRefused(t *testing.T) {
	s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 1}, {Rank: 12}}})
	for _, name := range []string{"0", "2", "01", "+1", "-1", "x", "99999999999999999999"} {
		_, err := coop.Dial(s.ctx, s.cfg.Socket, service, name)
		require.ErrorIs(t, err, ErrRefused, name)
		require.ErrorContains(t, err, "name")
	}
	_, err := coop.Dial(s.ctx, s.cfg.Socket, "gate", "1")
	require.ErrorContains(t, err, "service")
	c := s.raw()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\n"))
	require.NoError(t, err)
	eventually(t, "the host is told", func() bool { return s.told("protocol") || s.told("byte") })
	_, err = s.Target(s.ctx, 5)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestTheKernelSaysWhoseProcessAHookIs(t *testing.T) {
	real(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	target, _ := spawn(t, role(t, "parent", socket, 0)) // whose child is the hook
	target.Rank = 0
	other := checkpoint.Target{PID: target.PID, Start: target.Start + 1, Rank: 1}
	s := host(t, Config{Socket: socket, Ranks: []checkpoint.Target{target, other}})
	hook := s.target(0)
	require.NotEqual(t, target.PID, hook.PID)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)), "by the process that the host was given")
	require.NoError(t, s.Unlock(s.ctx, hook), "or by the hook's")
	for _, rank := range []string{"0", "1"} { // this process is not below it, nor is it the one that started later
		_, err := coop.Dial(s.ctx, s.cfg.Socket, service, rank)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, "process")
	}
}

func TestAnotherUsersProcessIsRefused(t *testing.T) {
	real(t)
	s := host(t, Config{UIDs: []int{os.Geteuid() + 1}})
	eventually(t, "the other user is able to connect", func() bool { // the mode follows the socket
		info, err := os.Stat(s.cfg.Socket)
		return err == nil && info.Mode().Perm() == 0o666
	})
	_, err := coop.Dial(s.ctx, s.cfg.Socket, service, "0")
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "user")
	if os.Geteuid() != 0 {
		t.Skip("a process of another user is left out: needs root")
	}
	// Both ways round: one that is let in, and one that is not.
	for _, tt := range []struct {
		uid     uint32
		refused bool
	}{{1, false}, {65534, true}} {
		cmd := role(t, "stranger", s.cfg.Socket, 0)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
		for dir := s.dir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, os.ErrPermission) {
			t.Skip("a process of another user is left out: it may not run this binary")
		}
		require.NoError(t, err)
		require.Equal(t, tt.refused, strings.Contains(string(out), "user"), "%s", out)
		require.Equal(t, tt.refused, len(out) > 0, "%s", out)
	}
	require.True(t, s.told("65534"))
}

func TestAHookGoesOnWhenItsHostHasGoneOrSaysNothing(t *testing.T) {
	s := host(t, Config{})
	tr := s.train(HookConfig{Retry: time.Millisecond}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	s.closed() // killed, as far as the hook can tell
	tr.goesOn(t)

	// A new host finds it again, and an old epoch is nothing to it.
	again, err := New(s.cfg)
	require.NoError(t, err)
	s.Host = again
	s.run()
	require.NoError(t, s.Lock(s.ctx, s.target(0), opts(long)))
	require.NoError(t, s.Unlock(s.ctx, s.target(0)))
	s.closed()

	// One that hangs: it does not renew.
	mute, err := coop.Listen(s.cfg.Socket)
	require.NoError(t, err)
	defer mute.Close()
	c, err := mute.Accept()
	require.NoError(t, err)
	_, err = c.Greet(service, greetTime, func(string, coop.Peer) string { return "" })
	require.NoError(t, err)
	by, err := coop.Monotonic()
	require.NoError(t, err)
	require.NoError(t, c.Send(coop.Numbers("prepare", 1, 0, uint64(by+time.Minute), uint64(time.Millisecond)), sendTime))
	m, err := c.Receive()
	require.NoError(t, err)
	require.Equal(t, "ready", m.Verb)
	m, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, coop.Message{Verb: "resumed", Args: []string{"0", m.Args[1]}}, m, "it says that it does")
	tr.goesOn(t)
	require.NoError(t, c.Send(coop.Message{Verb: "snapshot", Args: []string{"2", "1", "/x"}}, sendTime))
	m, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, coop.Message{Verb: "refuse", Args: []string{"2", "state"}}, m, "what runs is not saved")
}

func TestAHostThatLivesKeepsItsRanksStill(t *testing.T) {
	s := host(t, Config{Hold: 20 * time.Millisecond})
	f := s.fake("0")
	target := s.target(0)
	done := make(chan error, 1)
	go func() { done <- s.Lock(s.ctx, target, opts(long)) }()
	f.say("ready " + f.hears("prepare")[0] + " 1")
	require.NoError(t, <-done)
	last := uint64(0)
	for range 5 {
		n, ok := coop.Message{Args: f.hears("hold")}.Uints(2)
		require.True(t, ok)
		require.Greater(t, n[1], last)
		last = n[1]
	}
}

func TestASaveThatOutlivesItsCallerIsInFlight(t *testing.T) {
	s := host(t, Config{})
	release, begun := make(chan struct{}), make(chan struct{})
	runs := 0
	tr := s.train(HookConfig{Save: func(path string, _ func(done, total uint64)) error {
		runs++
		close(begun)
		<-release
		return os.WriteFile(path, []byte("x"), 0o600)
	}}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	save := Save{Epoch: 1, Place: filepath.Join(s.dir, "x")}
	within, cancel := context.WithCancel(s.ctx)
	go func() {
		<-begun
		cancel()
	}()
	_, err := s.Save(within, target, save)
	require.ErrorIs(t, err, checkpoint.ErrTimeout)
	for _, err := range []error{
		second(s.Save(s.ctx, target, save)), s.Unlock(s.ctx, target), s.Lock(s.ctx, target, opts(long)), s.Abort(s.ctx, target, 1),
		s.Commit(s.ctx, target, 1), s.Terminate(s.ctx, target), second(s.TrainingStep(s.ctx, target)),
	} {
		require.ErrorIs(t, err, checkpoint.ErrInFlight)
	}
	require.Equal(t, checkpoint.Locked, s.state(target), "the state can be read")
	close(release)
	eventually(t, "it has ended", func() bool { _, err = s.Save(s.ctx, target, save); return !errors.Is(err, checkpoint.ErrInFlight) })
	require.NoError(t, err)
	require.NoError(t, s.Unlock(s.ctx, target))
	tr.goesOn(t)
	require.Equal(t, 1, runs, "what was saved is not saved again")
}

func TestTheSameSaveAgainIsAnsweredAndAnotherIsDone(t *testing.T) {
	s := host(t, Config{})
	runs := 0
	s.train(HookConfig{Save: func(path string, _ func(done, total uint64)) error {
		runs++
		return os.WriteFile(path, []byte(fmt.Sprint(runs)), 0o600)
	}}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	save := Save{Epoch: 1, Place: filepath.Join(s.dir, "x")}
	first, err := s.Save(s.ctx, target, save)
	require.NoError(t, err)
	again, err := s.Save(s.ctx, target, save)
	require.NoError(t, err)
	require.Equal(t, first, again)
	save.Epoch = 2
	next, err := s.Save(s.ctx, target, save)
	require.NoError(t, err)
	require.NotEqual(t, first.Image, next.Image)
	require.NoError(t, s.Abort(s.ctx, target, 2))
	require.NoError(t, s.Abort(s.ctx, target, 2), "it runs already")
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	_, err = s.Save(s.ctx, target, save)
	require.NoError(t, err)
	require.Equal(t, 3, runs)
	require.NoError(t, s.Unlock(s.ctx, target))
	_, err = s.Save(s.ctx, target, save)
	require.ErrorIs(t, err, checkpoint.ErrIllegalState, "one that runs is not saved")
}

func TestASaveIsCheckedAndBadInputChangesNothing(t *testing.T) {
	s := host(t, Config{})
	tr := s.train(HookConfig{}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	for _, save := range []Save{
		{Epoch: 0, Place: "/x"},
		{Epoch: 1 << 63, Place: "/x"},
		{Epoch: 1, Place: ""},
		{Epoch: 1, Place: "x"},
		{Epoch: 1, Place: "/a/../x"},
		{Epoch: 1, Place: "/\x00"},
		{Epoch: 1, Place: "/" + strings.Repeat("x", 200)},
		{Epoch: 1, Place: "/" + strings.Repeat("é", 60)},
	} {
		_, err := s.Save(s.ctx, target, save)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%v", save)
	}
	_, err := s.Save(s.ctx, target, Save{Epoch: 1, Place: "/x"})
	require.ErrorIs(t, err, checkpoint.ErrUnsupported, "this hook has no Save")
	require.NoError(t, s.Unlock(s.ctx, target))
	tr.goesOn(t)
	require.ErrorIs(t, s.Lock(s.ctx, checkpoint.Target{PID: os.Getppid(), Start: 1}, opts(long)), checkpoint.ErrGone)
	require.ErrorIs(t, s.Lock(s.ctx, checkpoint.Target{PID: -5}, opts(long)), lockstep.ErrInvalid)
}

func TestAConfigIsChecked(t *testing.T) {
	err := Config{Socket: "s", UIDs: []int{-1}, Hold: -1}.Validate()
	for _, field := range []string{"Socket", "Ranks", "UIDs", "Hold"} {
		require.ErrorContains(t, err, field, "all faults at once")
	}
	for _, ranks := range [][]checkpoint.Target{{{Rank: -1}}, {{Rank: 1}, {Rank: 1}}, {{PID: 1}}, {{PID: -7}}, {{Start: 5}}, {{Rank: math.MaxInt}}} {
		_, err := New(Config{Socket: "/s", Ranks: ranks})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%v", ranks)
	}
	s := host(t, Config{})
	require.ErrorIs(t, s.Run(s.ctx), lockstep.ErrConflict, "it runs once")
	other, err := New(s.cfg)
	require.NoError(t, err)
	require.ErrorIs(t, other.Run(s.ctx), lockstep.ErrConflict, "somebody listens there")

	t.Setenv(EnvSocket, "")
	t.Setenv(EnvRank, "")
	t.Setenv("RANK", "x")
	_, err = Dial(s.ctx, HookConfig{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	t.Setenv("RANK", "0")
	_, err = Dial(s.ctx, HookConfig{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Dial(s.ctx, HookConfig{Socket: "/s", Rank: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err = Dial(over, HookConfig{Socket: filepath.Join(s.dir, "nobody")})
	require.ErrorIs(t, err, context.Canceled)
}

func TestASignalIsToldAtTheNextStepAndSavesNothingByItself(t *testing.T) {
	type notice struct{ rank, signal int }
	notices := make(chan notice, 1)
	s := host(t, Config{Notice: func(rank, signal int) { notices <- notice{rank, signal} }})
	tr := s.train(HookConfig{Save: func(string, func(done, total uint64)) error { panic("nobody asked for a save") }}, nil)
	tr.hook.Notice(syscall.SIGTERM)
	require.Equal(t, notice{0, int(syscall.SIGTERM)}, <-notices)
	tr.goesOn(t)
}

func TestPlacesHaveOneWord(t *testing.T) {
	for path, want := range map[string]string{"/a/b": "/a/b", "/a b%\xff": "/a%20b%25%FF", "/é\n": "/%C3%A9%0A"} {
		word, err := encodePlace(path)
		require.NoError(t, err)
		require.Equal(t, want, word)
		back, ok := decodePlace(word)
		require.True(t, ok)
		require.Equal(t, path, back)
	}
	for _, word := range []string{"", "a", "/%", "/%2", "/%zz", "/%00", "/a/", "/a//b", "/a/%2e%2e/b"} {
		_, ok := decodePlace(word)
		require.False(t, ok, word)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("/a b")
	f.Add("/%41")
	f.Fuzz(func(t *testing.T, text string) {
		if word, err := encodePlace(text); err == nil {
			back, ok := decodePlace(word)
			require.True(t, ok)
			require.Equal(t, text, back)
			_, err = coop.Message{Verb: "snapshot", Args: []string{"9223372036854775807", "9223372036854775807", word}}.Line()
			require.NoError(t, err, "it fits a line")
		}
		if path, ok := decodePlace(text); ok {
			require.True(t, filepath.IsAbs(path))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add("ready 1 2")
	f.Add("stored 1 2 3 " + strings.Repeat("ab", 32) + " 4")
	f.Fuzz(func(t *testing.T, line string) {
		m, err := coop.Parse(line)
		if err != nil {
			return
		}
		a, ok := parseAnswer(m)
		if ok && a.verb == "stored" {
			require.Contains(t, line, hex.EncodeToString(a.digest[:]))
			require.Len(t, a.list, 3)
		}
		if ok && a.verb == "progress" {
			require.Len(t, a.list, 2)
		}
	})
}

func TestAnEmptyImageIsOne(t *testing.T) {
	s := host(t, Config{})
	s.train(HookConfig{Save: writes("")}, nil)
	require.NoError(t, s.Lock(s.ctx, s.target(0), opts(long)))
	got, err := s.Save(s.ctx, s.target(0), Save{Epoch: 1, Place: filepath.Join(s.dir, "x")})
	require.NoError(t, err)
	require.Zero(t, got.Bytes)
	require.True(t, bytes.Equal(got.Image[:], sha256.New().Sum(nil)))
}

// A request that waits for the hook goes out after the welcome, or the hook would take it for
// a host that does not keep to the protocol.
func TestNothingIsSaidToAHookBeforeItIsWelcome(t *testing.T) {
	s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 0, PID: os.Getpid(), Start: self(t).Start}}})
	for range 30 {
		done := make(chan error, 1)
		asked := make(chan struct{})
		go func() { // asks without a pause, so that it does at the first moment at which it can
			close(asked)
			for {
				err := s.Commit(s.ctx, self(t), 1)
				if err == nil || !strings.Contains(err.Error(), "has no hook") {
					done <- err
					return
				}
			}
		}()
		<-asked
		f := s.fake("0") // which fails unless a welcome comes first
		f.say("done " + f.hears("commit")[0])
		require.NoError(t, <-done)
		require.NoError(t, f.c.Close())
		eventually(t, "it has gone", func() bool {
			limits, err := s.Inspect(s.ctx, self(t))
			return err == nil && len(limits) == 1
		})
	}
}

// self is this process.
func self(t *testing.T) checkpoint.Target {
	t.Helper()
	id, err := proctree.Identify(os.Getpid())
	require.NoError(t, err)
	return checkpoint.Target{PID: id.PID, Start: id.Start}
}
