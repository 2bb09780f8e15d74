//go:build linux

package cooperative

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// What a saver of thirty lines in a signal handler gets wrong (gcheckpoint, 2021), and what a
// notifier that polls a file does (cudaw, 2020), each as a test that this package does not.

func TestGcheckpointSavesAreNotAtomic(t *testing.T) {
	real(t)
	s := host(t, Config{})
	place := filepath.Join(s.dir, "image")
	require.NoError(t, os.WriteFile(place, []byte("the one before"), 0o600))
	_, kill := spawn(t, role(t, "dies", s.cfg.Socket, 0))
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	_, err := s.Save(s.ctx, target, Save{Epoch: 1, Place: place, Progress: func(done, total lockstep.Bytes) { go kill() }})
	require.ErrorIs(t, err, checkpoint.ErrGone)
	text, err := os.ReadFile(place)
	require.NoError(t, err)
	require.Equal(t, "the one before", string(text))

	// The half that was written is in nobody's way.
	spawn(t, role(t, "trains", s.cfg.Socket, 0))
	eventually(t, "another process is the hook", func() bool { return s.target(0) != target })
	require.NoError(t, s.Lock(s.ctx, s.target(0), opts(long)))
	_, err = s.Save(s.ctx, s.target(0), Save{Epoch: 1, Place: place})
	require.NoError(t, err)
	left, err := filepath.Glob(place + ".*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestGcheckpointSavesUnderOneFixedName(t *testing.T) {
	s := host(t, Config{})
	n := 0
	s.train(HookConfig{Save: func(path string, _ func(done, total uint64)) error {
		n++
		return writes([]string{"", "one", "two"}[n])(path, nil)
	}}, nil)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	for i, name := range []string{"epoch-1", "epoch-2"} {
		_, err := s.Save(s.ctx, target, Save{Epoch: checkpoint.Epoch(i + 1), Place: filepath.Join(s.dir, name)})
		require.NoError(t, err)
	}
	one, err := os.ReadFile(filepath.Join(s.dir, "epoch-1"))
	require.NoError(t, err)
	require.Equal(t, "one", string(one), "the epoch before is there until its host removes it")
}

// group is a job of several ranks whose steps end together, as a collective has it.
func group(t *testing.T, n int) (*scene, []*trainer) {
	t.Helper()
	cfg := Config{}
	for i := range n {
		cfg.Ranks = append(cfg.Ranks, checkpoint.Target{Rank: i})
	}
	s := host(t, cfg)
	var list []*trainer
	for i := range n {
		list = append(list, s.train(HookConfig{Rank: i, Save: writes("image")}, make(chan struct{})))
	}
	over := make(chan struct{})
	done := make(chan struct{})
	go func() { // lets all ranks end a step at the same time, or none
		defer close(done)
		for {
			for _, tr := range list {
				select {
				case tr.gate <- struct{}{}:
				case <-over:
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-done
	})
	return s, list
}

// all does something for every rank at the same time.
func all(list []checkpoint.Target, do func(checkpoint.Target) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, target := range list {
		wg.Go(func() { errs[i] = do(target) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stopAll has all ranks stand still before one step, as a coordinator does: it asks where
// they are, and picks a step ahead of the foremost. Where they were quicker it is over for all
// of them, or some stand and the others wait for those inside the step: then all go on, and it
// looks farther ahead.
func (s *scene) stopAll(targets []checkpoint.Target, epoch checkpoint.Epoch) uint64 {
	s.t.Helper()
	for margin := uint64(64); ; margin *= 8 {
		var stop uint64
		for _, target := range targets {
			step, err := s.TrainingStep(s.ctx, target)
			require.NoError(s.t, err)
			stop = max(stop, step+margin)
		}
		err := all(targets, func(target checkpoint.Target) error {
			return s.LockAt(s.ctx, target, stop, opts(time.Second))
		})
		if err == nil {
			return stop
		}
		require.True(s.t, errors.Is(err, checkpoint.ErrRefused) || errors.Is(err, checkpoint.ErrTimeout), "%v", err)
		require.NoError(s.t, all(targets, func(target checkpoint.Target) error { return s.Abort(s.ctx, target, epoch) }))
	}
}

func (s *scene) targets(n int) (list []checkpoint.Target) {
	for i := range n {
		list = append(list, s.target(i))
	}
	return list
}

func TestGcheckpointLetsTheOthersRunIntoTheNextCollective(t *testing.T) {
	s, list := group(t, 4)
	targets := s.targets(4)
	for range 3 {
		stop := s.stopAll(targets, 1)
		for _, tr := range list {
			require.Equal(t, stop-1, tr.at(), "nobody is in a collective that the others do not come to")
		}
		require.NoError(t, all(targets, func(target checkpoint.Target) error { return s.Unlock(s.ctx, target) }))
		for _, tr := range list {
			tr.goesOn(t)
		}
	}
	s.stopAll(targets, 2) // one that left alone would have the others wait for ever
	require.NoError(t, all(targets, func(target checkpoint.Target) error { return s.Terminate(s.ctx, target) }))
	for _, tr := range list {
		<-tr.done
		require.ErrorIs(t, tr.over, ErrLeave)
	}
}

func TestARankInsideTheStepHoldsTheOthersUpToTheDeadlineAndNoLonger(t *testing.T) {
	s := host(t, Config{Ranks: []checkpoint.Target{{Rank: 0}, {Rank: 1}}})
	gate := make(chan struct{})
	first, second := s.train(HookConfig{Rank: 0}, nil), s.train(HookConfig{Rank: 1}, gate)
	eventually(t, "it has begun the step", func() bool { return second.at() == 1 })
	targets := s.targets(2)
	err := all(targets, func(target checkpoint.Target) error {
		return s.Lock(s.ctx, target, opts(50*time.Millisecond))
	})
	require.ErrorIs(t, err, checkpoint.ErrTimeout)
	require.Equal(t, checkpoint.Running, s.state(targets[1]))
	require.NoError(t, all(targets, func(target checkpoint.Target) error { return s.Abort(s.ctx, target, 1) }))
	first.goesOn(t)
	close(gate)
	second.goesOn(t)
}

func TestGcheckpointSavesOnlyRankZero(t *testing.T) {
	s, _ := group(t, 3)
	targets := s.targets(3)
	stop := s.stopAll(targets, 1)
	var mu sync.Mutex
	var images []checkpoint.RankImage
	require.NoError(t, all(targets, func(target checkpoint.Target) error {
		image, err := s.Save(s.ctx, target, Save{Epoch: 1, Place: filepath.Join(s.dir, string(rune('a'+target.Rank)))})
		mu.Lock()
		defer mu.Unlock()
		images = append(images, image)
		return err
	}))
	ranks := map[int]uint64{}
	for _, image := range images {
		ranks[image.Rank] = image.Step
		require.Positive(t, image.Took, "it measures how long a save takes")
	}
	require.Equal(t, map[int]uint64{0: stop, 1: stop, 2: stop}, ranks)
}

func TestGcheckpointSavesInsideTheSignalHandler(t *testing.T) {
	// A step holds what the save would need. Were the save in the handler, it would wait for
	// the step for ever.
	var step sync.Mutex
	s := host(t, Config{})
	gate := make(chan struct{})
	tr := s.train(HookConfig{Save: func(path string, _ func(done, total uint64)) error {
		step.Lock()
		defer step.Unlock()
		return os.WriteFile(path, nil, 0o600)
	}}, gate)
	eventually(t, "it is in a step", func() bool { return tr.at() == 1 })
	step.Lock()
	tr.hook.Notice(syscall.SIGTERM) // returns at once
	step.Unlock()
	close(gate)
	target := s.target(0)
	require.NoError(t, s.Lock(s.ctx, target, opts(long)))
	_, err := s.Save(s.ctx, target, Save{Epoch: 1, Place: filepath.Join(s.dir, "x")})
	require.NoError(t, err)
}

func TestGcheckpointHasNoAcknowledgement(t *testing.T) {
	s := host(t, Config{})
	f := s.fake("0")
	target := s.target(0)
	done := make(chan error, 1)
	go func() { done <- s.Terminate(s.ctx, target) }()
	serial := f.hears("terminate")[0]
	select {
	case err := <-done:
		require.FailNow(t, "nothing was acknowledged", "%v", err)
	default:
	}
	f.say("leaving " + serial + " 7")
	require.NoError(t, <-done)
}

// With a look once in a second, or a sleep of 30 s before it goes on, a hundred rounds would
// not end within the deadline; and it would not go a second time at all.
func TestCudawIsSingleShotAndSleepsAndPollsOnceInASecond(t *testing.T) {
	s := host(t, Config{})
	tr := s.train(HookConfig{}, nil)
	target := s.target(0)
	for range 100 {
		require.NoError(t, s.Lock(s.ctx, target, opts(long)))
		require.NoError(t, s.Unlock(s.ctx, target))
	}
	tr.goesOn(t)
}

func TestCudawIgnoresErrorsOfCopying(t *testing.T) {
	for _, tt := range []struct {
		name string
		save func(path string) error
		kind error
	}{
		{"the save fails", func(string) error { return errors.New("copy failed") }, checkpoint.ErrRefused},
		{"there is no room", func(string) error { return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC} }, checkpoint.ErrNoSpace},
		{"nothing was written", func(string) error { return nil }, checkpoint.ErrRefused},
		{"it is no file", func(path string) error { return os.Mkdir(path, 0o700) }, checkpoint.ErrRefused},
		{"it was half written and failed", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("half"), 0o600), syscall.EDQUOT)
		}, checkpoint.ErrNoSpace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := host(t, Config{})
			tr := s.train(HookConfig{Save: func(path string, _ func(done, total uint64)) error { return tt.save(path) }}, nil)
			target := s.target(0)
			require.NoError(t, s.Lock(s.ctx, target, opts(long)))
			_, err := s.Save(s.ctx, target, Save{Epoch: 1, Place: filepath.Join(s.dir, "x")})
			require.ErrorIs(t, err, tt.kind)
			require.Equal(t, checkpoint.Locked, s.state(target), "it can still be let go, or asked again")
			require.NoError(t, s.Abort(s.ctx, target, 1))
			tr.goesOn(t)
		})
	}
}

func TestAHookIsNotTakenAtItsWord(t *testing.T) {
	good := "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"
	for name, tt := range map[string]struct {
		text, answer string
		skip, ok     bool
	}{
		"true":                         {"x", "1 1 " + good + " 5", false, true},
		"another sum":                  {"y", "1 1 " + good + " 5", false, false},
		"another sum, and not checked": {"y", "1 1 " + good + " 5", true, true},
		"another length":               {"xx", "1 1 " + good + " 5", true, false},
		"nothing there":                {"", "1 1 " + good + " 5", true, false},
	} {
		s := host(t, Config{SkipDigest: tt.skip})
		f := s.fake("0")
		target := s.target(0)
		place := filepath.Join(s.dir, "x")
		if tt.text != "" {
			require.NoError(t, os.WriteFile(place, []byte(tt.text), 0o600))
		}
		done := make(chan error, 1)
		go func() { done <- second(s.Save(s.ctx, target, Save{Epoch: 1, Place: place})) }()
		f.say("stored " + f.hears("snapshot")[0] + " " + tt.answer)
		err := <-done
		if tt.ok {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, checkpoint.ErrCorrupt, name)
		}
	}
}
