package checkpointtest

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// patience is how long a lock may take in these tests: real processes are slow
// to settle, and no test waits for it to pass.
const patience = 30 * time.Second

// Subject is a driver under test and a target for it to work on.
type Subject struct {
	Driver checkpoint.Driver       // Driver is under test.
	Target checkpoint.Target       // Target is alive, Running, and this test's alone; t.Cleanup ends it.
	Kill   func()                  // Kill ends Target and returns once it is gone; nil leaves the tests of it out.
	Map    []checkpoint.DevicePair // Map is a map that Resume can obey, for a driver that can remap; nil leaves that test out.
}

// TestDriver runs the conformance tests, each with a new subject.
func TestDriver(t *testing.T, newSubject func(t *testing.T) Subject) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"probe is steady, sorted and changes nothing", probe},
		{"a new target is running and reading does not change it", read},
		{"there and back again", roundTrip},
		{"what is already so is success", idempotent},
		{"what the state forbids is refused and changes nothing", illegal},
		{"what cannot be done is refused and changes nothing", unsupported},
		{"a lock needs a timeout", timeouts},
		{"targets that are none", strangers},
		{"a PID that was taken over is gone", reused},
		{"a context that is over changes nothing", cancelled},
		{"a device map is checked before anything moves", badMaps},
		{"a target resumes on other devices", remap},
		{"a dead target is gone, in every state", killed},
		{"states are read while calls run", together},
		{"inspecting changes nothing", inspect},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &suite{T: t, Subject: newSubject(t)}
			caps, err := s.Driver.Probe(t.Context())
			require.NoError(t, err)
			s.caps = caps
			tt.run(t, s)
		})
	}
}

// suite is one test's subject.
type suite struct {
	*testing.T
	Subject
	caps checkpoint.Caps
}

func (s *suite) state() checkpoint.State {
	s.Helper()
	got, err := s.Driver.State(s.Context(), s.Target)
	require.NoError(s, err)
	return got
}

func (s *suite) lock() error {
	return s.Driver.Lock(s.Context(), s.Target, checkpoint.LockOptions{Timeout: patience})
}

func (s *suite) suspend() error {
	moved, err := s.Driver.Suspend(s.Context(), s.Target)
	require.GreaterOrEqual(s, moved.Bytes, lockstep.Bytes(0))
	require.GreaterOrEqual(s, moved.Took, time.Duration(0))
	return err
}

func (s *suite) resume(m []checkpoint.DevicePair) error {
	moved, err := s.Driver.Resume(s.Context(), s.Target, checkpoint.ResumeOptions{Map: m})
	require.GreaterOrEqual(s, moved.Bytes, lockstep.Bytes(0))
	require.GreaterOrEqual(s, moved.Took, time.Duration(0))
	return err
}

func (s *suite) unlock() error { return s.Driver.Unlock(s.Context(), s.Target) }

// reach takes the target from Running to a state, or skips where the driver cannot.
func (s *suite) reach(to checkpoint.State) {
	s.Helper()
	if to == checkpoint.Running {
		return
	}
	s.need(checkpoint.CanLock)
	require.NoError(s, s.lock())
	if to == checkpoint.Checkpointed {
		s.need(checkpoint.CanSuspend)
		require.NoError(s, s.suspend())
	}
	require.Equal(s, to, s.state())
}

func (s *suite) need(a checkpoint.Ability) {
	if !s.caps.Can(a) {
		s.Skipf("the driver cannot %s here: that is not checked", a)
	}
}

// refused says that err is a *DriverError of one of the kinds, and that the
// target is as it was.
func (s *suite) refused(err error, want checkpoint.State, kinds ...error) {
	s.Helper()
	require.Error(s, err)
	require.True(s, slices.ContainsFunc(kinds, func(k error) bool { return errorIs(err, k) }), "%v is none of %v", err, kinds)
	var e *checkpoint.DriverError
	require.ErrorAs(s, err, &e)
	require.NotEmpty(s, e.Call)
	require.True(s, e.State == "" || e.State == want, "the error says %s, want %s", e.State, want)
	require.Equal(s, want, s.state())
}

func probe(t *testing.T, s *suite) {
	require.NotEmpty(t, s.caps.Driver)
	require.True(t, slices.IsSorted(s.caps.Abilities), "abilities are sorted")
	require.Len(t, slices.Compact(slices.Clone(s.caps.Abilities)), len(s.caps.Abilities), "abilities stand once")
	sortedLimits(t, s.caps.Limits)
	for _, l := range s.caps.Limits {
		require.NotEmpty(t, l.Reason, "a limit has a reason")
	}
	again, err := s.Driver.Probe(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.caps, again)
	require.Equal(t, checkpoint.Running, s.state())
}

func read(t *testing.T, s *suite) {
	for range 20 {
		require.Equal(t, checkpoint.Running, s.state())
	}
	s.reach(checkpoint.Locked)
	for range 20 {
		require.Equal(t, checkpoint.Locked, s.state())
	}
	require.NoError(t, s.unlock())
}

func roundTrip(t *testing.T, s *suite) {
	s.need(checkpoint.CanLock)
	for range 2 { // the second time shows that the first left nothing behind
		require.NoError(t, s.lock())
		require.Equal(t, checkpoint.Locked, s.state())
		if s.caps.Can(checkpoint.CanSuspend) {
			require.NoError(t, s.suspend())
			require.Equal(t, checkpoint.Checkpointed, s.state())
			require.NoError(t, s.resume(nil))
			require.Equal(t, checkpoint.Locked, s.state())
		}
		require.NoError(t, s.unlock())
		require.Equal(t, checkpoint.Running, s.state())
	}
}

func idempotent(t *testing.T, s *suite) {
	s.need(checkpoint.CanLock)
	require.NoError(t, s.unlock(), "running is unlocked")
	require.NoError(t, s.lock())
	require.NoError(t, s.lock(), "locked is locked")
	require.Equal(t, checkpoint.Locked, s.state())
	if s.caps.Can(checkpoint.CanSuspend) {
		require.NoError(t, s.resume(nil), "locked is resumed")
		require.NoError(t, s.suspend())
		require.NoError(t, s.suspend(), "checkpointed is suspended")
		require.Equal(t, checkpoint.Checkpointed, s.state())
		require.NoError(t, s.resume(nil))
	}
	require.NoError(t, s.unlock(), "one unlock is enough after two locks")
	require.Equal(t, checkpoint.Running, s.state())
	require.NoError(t, s.unlock())
}

func illegal(t *testing.T, s *suite) {
	s.need(checkpoint.CanSuspend)
	s.refused(s.suspend(), checkpoint.Running, checkpoint.ErrIllegalState)
	s.refused(s.resume(nil), checkpoint.Running, checkpoint.ErrIllegalState)
	s.reach(checkpoint.Checkpointed)
	s.refused(s.lock(), checkpoint.Checkpointed, checkpoint.ErrIllegalState)
	s.refused(s.unlock(), checkpoint.Checkpointed, checkpoint.ErrIllegalState)
	require.NoError(t, s.resume(nil))
	require.NoError(t, s.unlock())
}

func unsupported(t *testing.T, s *suite) {
	if !s.caps.Can(checkpoint.CanLock) {
		s.refused(s.lock(), checkpoint.Running, checkpoint.ErrUnsupported)
	}
	if !s.caps.Can(checkpoint.CanSuspend) {
		s.refused(s.suspend(), checkpoint.Running, checkpoint.ErrUnsupported, checkpoint.ErrIllegalState)
		s.refused(s.resume(nil), checkpoint.Running, checkpoint.ErrUnsupported, checkpoint.ErrIllegalState)
	}
	if s.caps.Can(checkpoint.CanSuspend) && !s.caps.Can(checkpoint.CanRemap) {
		s.reach(checkpoint.Checkpointed)
		s.refused(s.resume([]checkpoint.DevicePair{{Old: "a", New: "b"}}), checkpoint.Checkpointed, checkpoint.ErrUnsupported, lockstep.ErrInvalid)
		require.NoError(t, s.resume(nil))
		require.NoError(t, s.unlock())
	}
}

func timeouts(t *testing.T, s *suite) {
	s.need(checkpoint.CanLock)
	for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		err := s.Driver.Lock(t.Context(), s.Target, checkpoint.LockOptions{Timeout: d})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s", d)
		require.Equal(t, checkpoint.Running, s.state())
	}
	// Milliseconds in 32 bits end at 49.7 days: a longer wait is refused or
	// held at the end, and never becomes a short one or none at all.
	for _, d := range []time.Duration{1, (1 << 32) * time.Millisecond, (1<<32 + 1) * time.Millisecond, math.MaxInt64} {
		err := s.Driver.Lock(t.Context(), s.Target, checkpoint.LockOptions{Timeout: d})
		switch {
		case err == nil:
			require.Equal(t, checkpoint.Locked, s.state(), "%s", d)
			require.NoError(t, s.unlock())
		case d == 1: // a nanosecond may well be too short
			require.True(t, errorIs(err, checkpoint.ErrTimeout) || errorIs(err, lockstep.ErrInvalid), "%v", err)
		default:
			require.ErrorIs(t, err, lockstep.ErrInvalid, "%s", d)
		}
		require.Equal(t, checkpoint.Running, s.state(), "%s", d)
	}
}

func strangers(t *testing.T, s *suite) {
	for _, pid := range []int{0, -1, math.MinInt32, math.MaxInt32} {
		for _, err := range calls(t.Context(), s.Driver, checkpoint.Target{PID: pid, Start: s.Target.Start}) {
			require.Error(t, err, "pid %d", pid)
			require.True(t, errorIs(err, lockstep.ErrInvalid) || errorIs(err, checkpoint.ErrGone) || errorIs(err, checkpoint.ErrUnsupported), "pid %d: %v", pid, err)
		}
		got, err := s.Driver.State(t.Context(), checkpoint.Target{PID: pid, Start: s.Target.Start})
		require.True(t, err != nil && errorIs(err, lockstep.ErrInvalid) || err == nil && got == checkpoint.Gone, "pid %d: %s, %v", pid, got, err)
	}
	require.Equal(t, checkpoint.Running, s.state())
}

func reused(t *testing.T, s *suite) {
	other := s.Target
	other.Start++
	got, err := s.Driver.State(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Gone, got)
	for _, err := range calls(t.Context(), s.Driver, other) {
		require.True(t, errorIs(err, checkpoint.ErrGone) || errorIs(err, checkpoint.ErrUnsupported), "%v", err)
	}
	require.Equal(t, checkpoint.Running, s.state(), "the process that has the PID now was left alone")
}

func cancelled(t *testing.T, s *suite) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range calls(over, s.Driver, s.Target) {
		require.Error(t, err)
	}
	require.Equal(t, checkpoint.Running, s.state())
	s.reach(checkpoint.Checkpointed)
	for _, err := range calls(over, s.Driver, s.Target) {
		require.Error(t, err)
	}
	require.Equal(t, checkpoint.Checkpointed, s.state())
	require.NoError(t, s.resume(nil))
	require.NoError(t, s.unlock())
}

func badMaps(t *testing.T, s *suite) {
	s.need(checkpoint.CanRemap)
	s.reach(checkpoint.Checkpointed)
	maps := [][]checkpoint.DevicePair{
		{{}},
		{{Old: "a"}},
		{{New: "b"}},
		{{Old: "not a device", New: "nor this"}},
	}
	if len(s.Map) > 0 {
		maps = append(maps, append(slices.Clone(s.Map), s.Map[0]))
	}
	for _, m := range maps {
		s.refused(s.resume(m), checkpoint.Checkpointed, lockstep.ErrInvalid)
	}
	require.NoError(t, s.resume(nil), "a refused map leaves the target fit to resume")
	require.NoError(t, s.unlock())
}

func remap(t *testing.T, s *suite) {
	s.need(checkpoint.CanRemap)
	if s.Map == nil {
		t.Skip("the subject has no map to obey: remapping is not checked")
	}
	s.reach(checkpoint.Checkpointed)
	given := slices.Clone(s.Map)
	require.NoError(t, s.resume(s.Map))
	require.Equal(t, given, s.Map, "the map is the caller's")
	require.Equal(t, checkpoint.Locked, s.state())
	require.NoError(t, s.unlock())
}

func killed(t *testing.T, s *suite) {
	if s.Kill == nil {
		t.Skip("the subject cannot be killed: dead targets are not checked")
	}
	if s.caps.Can(checkpoint.CanLock) {
		s.reach(checkpoint.Locked)
	}
	s.Kill()
	require.Equal(t, checkpoint.Gone, s.state())
	for _, err := range calls(t.Context(), s.Driver, s.Target) {
		require.True(t, errorIs(err, checkpoint.ErrGone) || errorIs(err, checkpoint.ErrUnsupported), "%v", err)
	}
	require.Equal(t, checkpoint.Gone, s.state())
}

func together(t *testing.T, s *suite) {
	s.need(checkpoint.CanLock)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				got, err := s.Driver.State(t.Context(), s.Target)
				if err != nil || !got.Known() || got == checkpoint.Gone || got == checkpoint.Failed {
					t.Errorf("state is %s, %v", got, err)
				}
			}
		})
	}
	for range 3 {
		require.NoError(t, s.lock())
		require.NoError(t, s.unlock())
	}
	wg.Wait()
	require.Equal(t, checkpoint.Running, s.state())
}

func inspect(t *testing.T, s *suite) {
	i, ok := s.Driver.(checkpoint.Inspector)
	if !ok {
		t.Skip("the driver is no Inspector: inspection is not checked")
	}
	first, err := i.Inspect(t.Context(), s.Target)
	require.NoError(t, err)
	sortedLimits(t, first)
	again, err := i.Inspect(t.Context(), s.Target)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, checkpoint.Running, s.state())
}

// calls makes every call that changes something.
func calls(ctx context.Context, d checkpoint.Driver, t checkpoint.Target) []error {
	lock := d.Lock(ctx, t, checkpoint.LockOptions{Timeout: patience})
	_, suspend := d.Suspend(ctx, t)
	_, resume := d.Resume(ctx, t, checkpoint.ResumeOptions{})
	return []error{lock, suspend, resume, d.Unlock(ctx, t)}
}

func sortedLimits(t *testing.T, list []checkpoint.Unsupported) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(list, func(a, b checkpoint.Unsupported) int {
		if a.What != b.What {
			return cmpText(a.What, b.What)
		}
		return cmpText(a.Reason, b.Reason)
	}), "limits are sorted by What, then Reason")
}
