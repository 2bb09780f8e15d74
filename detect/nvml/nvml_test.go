package nvml_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/health"
	"github.com/lockstep-gpu/lockstep/detect/nvml"
	"github.com/lockstep-gpu/lockstep/internal/nvml/nvmltest"
)

func Example() {
	m, err := health.New(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w, err := nvml.New(nvml.Config{Node: "host-1", Report: func(r nvml.Report) {
		now := time.Now()
		if err := m.Track(now, "host-1", r.Devices...); err != nil {
			fmt.Println(err)
		}
		for _, e := range r.Events {
			if err := m.Observe(e); err != nil {
				fmt.Println(err)
			}
		}
		changes, err := m.Step(now)
		fmt.Println(changes, err)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Run(ctx); err != nil {
		fmt.Println("not known how the devices are:", err)
	}
}

func TestMain(m *testing.M) { nvmltest.Main(m) }

// gpu is the name of a GPU of the library made for tests.
func gpu(i int) lockstep.DeviceID {
	return lockstep.DeviceID(fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i))
}

// book is what a Watcher reported, and what a machine made of it.
type book struct {
	mu      sync.Mutex
	t       *testing.T
	reports []nvml.Report
	machine *health.Machine
	changes []health.Transition
}

func newBook(t *testing.T, cfg health.Config) *book {
	m, err := health.New(cfg)
	require.NoError(t, err)
	return &book{t: t, machine: m}
}

func (b *book) report(r nvml.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports = append(b.reports, r)
	now := time.Now()
	require.NoError(b.t, b.machine.Track(now, "host", r.Devices...))
	for _, e := range r.Events {
		require.NoError(b.t, b.machine.Observe(e))
	}
	changes, err := b.machine.Step(now)
	require.NoError(b.t, err)
	b.changes = append(b.changes, changes...)
}

// all are the events of a kind in all reports.
func (b *book) all(kind health.Kind) (out []health.Event) {
	for _, r := range b.reports {
		for _, e := range r.Events {
			if e.Kind == kind {
				out = append(out, e)
			}
		}
	}
	return out
}

// run runs a Watcher for a time.
func (b *book) run(w *nvml.Watcher, d time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	defer cancel()
	require.NoError(b.t, w.Run(ctx))
}

func watcher(t *testing.T, cfg nvml.Config) *nvml.Watcher {
	t.Helper()
	cfg.Library, cfg.Node, cfg.Boot = nvmltest.Library(), "host", "boot-1"
	w, err := nvml.New(cfg)
	require.NoError(t, err)
	return w
}

func TestWhatTheLibrarySaysIsReported(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "sick") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		core, logs := observer.New(zap.WarnLevel)
		w := watcher(t, nvml.Config{Report: b.report, Logger: zap.New(core)})
		began := time.Now()
		b.run(w, 25*time.Second)
		require.Equal(t, 25*time.Second, time.Since(began))
		require.Equal(t, []lockstep.DeviceID{gpu(0), gpu(1), gpu(2), gpu(3)}, b.reports[0].Devices)
		for _, r := range b.reports {
			require.NoError(t, r.Err)
		}
		faults := b.all(health.Fault)
		require.Len(t, faults, 4, "each GPU has one XID")
		for i, e := range faults {
			require.Equal(t, health.XID(uint64(79+i)), e.Code)
			require.Equal(t, gpu(i), e.Device)
			require.Equal(t, "boot-1", e.Boot)
		}
		require.Equal(t, "GPU instance 3", faults[3].Note)
		require.Empty(t, faults[0].Note)
		require.Len(t, b.all(health.Seen), 12, "three rounds")
		require.Len(t, b.all(health.Boot), 1)
		require.Empty(t, b.all(health.Lost))
		values := map[health.Code]int64{}
		for _, e := range b.all(health.Reading) {
			require.Equal(t, lockstep.NodeID("host"), e.Node)
			require.Equal(t, "nvml/host", e.Source)
			if e.Device == gpu(2) {
				values[e.Code] = e.Value
			}
		}
		require.Equal(t, map[health.Code]int64{
			"ecc/corrected": 2, "ecc/uncorrected": 102, "ecc/lifetime": 112, "rows/pending": 1, "rows/failed": 0, "temperature": 42,
			"throttle/idle": 0, "throttle/power": 1, "throttle/hardware": 0, "throttle/thermal": 0, "throttle/brake": 0,
			"recovery/reset": 0, "recovery/reboot": 1, "recovery/drain": 0, "recovery/drain-reset": 0, "recovery/imex": 0,
			"recovery/bus-reset": 0, "recovery/system-reboot": 0, "recovery/other": 0,
		}, values, "and no NVLinks")
		require.Len(t, logs.FilterMessage("fault").All(), 4)
		want := map[int]health.Action{0: health.ActionReboot, 1: health.ActionReset, 2: health.ActionReboot, 3: health.ActionDrain}
		for i, action := range want { // each by itself, in any order
			s, ok := b.machine.Status("host", gpu(i))
			require.True(t, ok)
			require.Equal(t, health.Draining, s.State)
			require.Equal(t, action, s.Action, i)
		}
	})
}

// TestEveryCodeIsInTheCatalog, other than what is not known yet; and of NVLinks those
// count that were up before.
func TestEveryCodeIsInTheCatalog(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nvswitch8") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		w := watcher(t, nvml.Config{Report: b.report})
		down := func() map[lockstep.DeviceID]int64 {
			out := map[lockstep.DeviceID]int64{}
			b.reports = nil
			b.run(w, time.Second)
			for _, e := range b.all(health.Reading) {
				_, ok := health.Catalog().Lookup(e.Code)
				require.Equal(t, e.Code != "recovery/other", ok, e.Code)
				if e.Code == "link/down" {
					out[e.Device] = e.Value
				}
			}
			require.Len(t, out, 8)
			return out
		}
		for _, n := range down() { // each by itself, in any order
			require.Zero(t, n)
		}
		require.NoError(t, os.Setenv("FAKE_NVML", "degraded"))
		after := down()
		require.EqualValues(t, 9, after[gpu(3)])
		require.EqualValues(t, 0, after[gpu(4)])
	})
}

// TestHalfOfTheDevicesGoneIsNotTheDevices: with fewer at the next opening, those that
// are missing are lost, and so many at once are not known to be faulty.
func TestHalfOfTheDevicesGoneIsNotTheDevices(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nvswitch8") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{Lenient: true})
		w := watcher(t, nvml.Config{Report: b.report})
		b.run(w, 15*time.Second)
		require.NoError(t, os.Setenv("FAKE_NVML", "healthy"))
		b.reports = nil
		b.run(w, time.Minute)
		lost := map[lockstep.DeviceID]bool{}
		for _, e := range b.all(health.Lost) {
			lost[e.Device] = true
		}
		require.Equal(t, map[lockstep.DeviceID]bool{gpu(4): true, gpu(5): true, gpu(6): true, gpu(7): true}, lost)
		require.Len(t, b.reports[0].Devices, 8)
		for _, c := range b.changes {
			require.NotEqual(t, health.Code("lost"), c.Code)
		}
	})
}

// TestComplaint3AnAbsentDriverIsUnknown replays NVIDIA/k8s-device-plugin PR #1641: the check
// does not start, and nothing may be taken for healthy; once it starts, it is watched.
func TestComplaint3AnAbsentDriverIsUnknown(t *testing.T) {
	for _, scenario := range []string{"nodriver", "mismatch"} {
		t.Run(scenario, func(t *testing.T) {
			if nvmltest.Child(t, nvmltest.Build(t), scenario) {
				return
			}
			synctest.Test(t, func(t *testing.T) {
				b := newBook(t, health.Config{Lenient: true})
				w := watcher(t, nvml.Config{Report: b.report, Every: time.Minute})
				b.run(w, 150*time.Second)
				require.Len(t, b.reports, 3, "it is tried again")
				for _, r := range b.reports {
					require.ErrorIs(t, r.Err, nvml.ErrUnavailable)
					require.Empty(t, r.Devices)
					require.Len(t, r.Events, 1)
					require.Equal(t, health.Lost, r.Events[0].Kind)
					require.Empty(t, r.Events[0].Device)
				}
				for s := range b.machine.All {
					require.False(t, s.Open)
				}
				require.NoError(t, os.Setenv("FAKE_NVML", "healthy"))
				b.run(w, 2*time.Minute)
				require.NoError(t, b.reports[len(b.reports)-1].Err)
				require.Len(t, b.reports[len(b.reports)-1].Devices, 4)
			})
		})
	}
}

// TestOneErrorToldManyTimesIsOneEvent of a batch.
func TestOneErrorToldManyTimesIsOneEvent(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "storm") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		b.run(watcher(t, nvml.Config{Report: b.report}), time.Second)
		require.Len(t, b.all(health.Fault), 1)
		require.Equal(t, health.XID(79), b.all(health.Fault)[0].Code)
	})
}

// TestALibraryThatFailsMeanwhileIsUnknown until it was opened anew.
func TestALibraryThatFailsMeanwhileIsUnknown(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "breaks") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{Lenient: true})
		w := watcher(t, nvml.Config{Report: b.report, Every: time.Minute})
		b.run(w, 90*time.Second)
		var failed []error
		for _, r := range b.reports {
			if r.Err != nil {
				require.Len(t, r.Events, 1)
				require.Equal(t, health.Lost, r.Events[0].Kind)
				require.Empty(t, r.Events[0].Device, "it is the node of which nothing is known")
				failed = append(failed, r.Err)
			}
		}
		require.Len(t, failed, 2, "once a round")
		require.ErrorIs(t, failed[0], nvml.ErrFailed)
		// All are closed: those that were healthy as unknown.
		seen := 0
		for s := range b.machine.All {
			require.False(t, s.Open, "%s", s.Device)
			seen++
		}
		require.Greater(t, seen, 1)
		require.NoError(t, os.Setenv("FAKE_NVML", "healthy"))
		b.run(w, 2*time.Minute)
		require.NoError(t, b.reports[len(b.reports)-1].Err)
	})
}

// TestALostDeviceIsLost, and the others are seen.
func TestALostDeviceIsLost(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "healthy") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		w := watcher(t, nvml.Config{Report: b.report})
		b.run(w, 15*time.Second)
		require.NoError(t, os.Setenv("FAKE_NVML", "lost"))
		b.reports = nil
		b.run(w, time.Minute)
		for _, e := range b.all(health.Lost) {
			require.Equal(t, gpu(1), e.Device)
		}
		require.NotEmpty(t, b.all(health.Lost))
		for _, e := range b.all(health.Seen) {
			require.NotEqual(t, gpu(1), e.Device)
		}
		require.Len(t, b.reports[0].Devices, 4, "what was known once stays known")
		s, _ := b.machine.Status("host", gpu(1))
		require.Equal(t, health.ActionReboot, s.Action)
	})
}

// TestADeviceThatFailsIsNotSeen: it is neither well nor lost, though it had a name once.
func TestADeviceThatFailsIsNotSeen(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "errors") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		w := watcher(t, nvml.Config{Report: b.report})
		require.NoError(t, os.Setenv("FAKE_NVML", "healthy"))
		b.run(w, time.Second)
		require.Len(t, b.all(health.Seen), 4)
		require.NoError(t, os.Setenv("FAKE_NVML", "errors"))
		b.run(w, time.Second)
		require.Empty(t, b.all(health.Lost))
		b.reports = nil
		core, logs := observer.New(zap.WarnLevel)
		b.run(watcher(t, nvml.Config{Report: b.report, Logger: zap.New(core)}), time.Second)
		require.Len(t, b.all(health.Seen), 3)
		require.Empty(t, b.all(health.Lost))
		require.NotEmpty(t, logs.FilterMessage("device").All())
	})
}

func TestAnOldLibraryIsWatched(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t, "-DOLD"), "pcie4") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{})
		b.run(watcher(t, nvml.Config{Report: b.report}), time.Second)
		require.Len(t, b.all(health.Seen), 4, "what it does not do is no evidence")
		for _, e := range b.all(health.Reading) {
			require.NotContains(t, e.Code, "recovery")
			require.NotContains(t, e.Code, "rows")
		}
	})
}

// TestRunLeavesNothingBehind: the library is shut down, there is no goroutine more.
func TestRunLeavesNothingBehind(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "healthy") {
		return
	}
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		w := watcher(t, nvml.Config{Report: func(nvml.Report) { cancel() }})
		require.NoError(t, w.Run(ctx))
	}
	require.Equal(t, before, runtime.NumGoroutine())
	require.NoError(t, os.Setenv("FAKE_NVML", "nodriver"))
	ctx, cancel := context.WithCancel(t.Context())
	var got nvml.Report
	w := watcher(t, nvml.Config{Report: func(r nvml.Report) { got = r; cancel() }})
	require.NoError(t, w.Run(ctx))
	require.ErrorIs(t, got.Err, nvml.ErrUnavailable, "it was initialised anew, so it had been shut down")
}

func TestAWatcherRunsOnce(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "healthy") {
		return
	}
	var second error
	ctx, cancel := context.WithCancel(t.Context())
	var w *nvml.Watcher
	w = watcher(t, nvml.Config{Report: func(nvml.Report) { second = w.Run(ctx); cancel() }})
	require.NoError(t, w.Run(ctx))
	require.ErrorIs(t, second, lockstep.ErrConflict)
	// Nor can a process use two libraries.
	other, err := nvml.New(nvml.Config{Node: "host", Library: "another.so", Report: func(nvml.Report) {}})
	require.NoError(t, err)
	require.ErrorIs(t, other.Run(t.Context()), lockstep.ErrConflict)
}

func TestBadConfigsAreRefused(t *testing.T) {
	_, err := nvml.New(nvml.Config{Every: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Node", "Report", "Every"} {
		require.Contains(t, err.Error(), field)
	}
	_, err = json.Marshal(nvml.Config{Report: func(nvml.Report) {}})
	require.NoError(t, err)
}
