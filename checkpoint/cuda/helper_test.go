package cuda

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

func TestMain(m *testing.M) {
	HelperMain()
	os.Exit(cudatest.Main(m))
}

// patience is how long a lock may take: no test waits for it to pass.
const patience = 30 * time.Second

// backends are the three ways to the driver.
var backends = map[string]func(t testing.TB, f *cudatest.Fake) *Driver{
	"api":    apiDriver,
	"cli":    cliDriver,
	"helper": helperDriver,
}

func apiDriver(t testing.TB, f *cudatest.Fake) *Driver {
	t.Helper()
	d, err := New(Config{Library: f.Library()})
	require.NoError(t, err)
	return closed(t, d)
}

func cliDriver(t testing.TB, f *cudatest.Fake) *Driver {
	t.Helper()
	d, err := NewCLI(CLIConfig{Path: f.CLI()})
	require.NoError(t, err)
	return closed(t, d)
}

func helperDriver(t testing.TB, f *cudatest.Fake) *Driver {
	t.Helper()
	d, err := NewHelper(HelperConfig{Library: f.Library()})
	require.NoError(t, err)
	return closed(t, d)
}

// closed closes d after the test, which has to have left nothing in flight.
func closed(t testing.TB, d *Driver) *Driver {
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// each runs a test with every way to the driver.
func each(t *testing.T, do func(t *testing.T, f *cudatest.Fake, d *Driver)) {
	t.Helper()
	for _, name := range []string{"api", "cli", "helper"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := cudatest.New(t)
			do(t, f, backends[name](t, f))
		})
	}
}

// together calls do for all targets at the same time, as ranks do.
func together(targets []*cudatest.Target, do func(t checkpoint.Target) error) error {
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, p := range targets {
		wg.Go(func() { errs[i] = do(p.Target) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// cycle pauses all targets, puts them back and lets them go, as a coordinator would:
// phase by phase, all at once, and at the first failure it undoes everything. given
// is called between a failure and that; nil is not.
func cycle(ctx context.Context, d *Driver, timeout time.Duration, given func(), targets ...*cudatest.Target) error {
	phases := []func(t checkpoint.Target) error{
		func(t checkpoint.Target) error { return d.Lock(ctx, t, checkpoint.LockOptions{Timeout: timeout}) },
		func(t checkpoint.Target) error { _, err := d.Suspend(ctx, t); return err },
		func(t checkpoint.Target) error { _, err := d.Resume(ctx, t, checkpoint.ResumeOptions{}); return err },
		func(t checkpoint.Target) error { return d.Unlock(ctx, t) },
	}
	for _, phase := range phases {
		err := together(targets, phase)
		if err == nil {
			continue
		}
		if given != nil {
			given()
		}
		_ = together(targets, func(t checkpoint.Target) error { return d.Undo(context.Background(), t) })
		return err
	}
	return nil
}

// quiet waits until no call is in flight.
func quiet(t testing.TB, d *Driver) {
	t.Helper()
	cudatest.Await(t, "calls to end", func() bool {
		for _, o := range d.Owed() {
			if o.Call != "" {
				return false
			}
		}
		return true
	})
}

// unharmed says that no target is half paused: it runs and was unlocked as often as
// locked, or it is gone, or it is reported as wedged.
func unharmed(t testing.TB, d *Driver, p *cudatest.Target) {
	t.Helper()
	quiet(t, d)
	unharmedNow(t, d, p)
}

// unharmedNow does not wait for calls that are in flight for others.
func unharmedNow(t testing.TB, d *Driver, p *cudatest.Target) {
	t.Helper()
	s, err := d.State(context.Background(), p.Target)
	require.NoError(t, err)
	var debt *Debt
	for _, o := range d.Owed() {
		if o.Target.PID == p.PID {
			debt = &o
		}
	}
	switch s {
	case checkpoint.Running:
		require.Nil(t, debt, "%v", debt)
		require.Equal(t, cudatest.Running, p.State())
		locks, unlocks := p.Locks()
		require.Equal(t, locks, unlocks, "locks and unlocks")
	case checkpoint.Gone:
		require.Nil(t, debt, "%v", debt)
	case checkpoint.Failed:
		require.NotNil(t, debt)
		require.True(t, debt.Wedged)
		require.Error(t, debt.Err)
		require.ErrorIs(t, d.Unlock(context.Background(), p.Target), checkpoint.ErrWedged)
	default:
		require.Fail(t, "half paused", "state is %s, owed %v", s, debt)
	}
}

// driverError returns the typed error of a kind.
func driverError(t testing.TB, err, kind error) *checkpoint.DriverError {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var e *checkpoint.DriverError
	require.ErrorAs(t, err, &e)
	require.NotEmpty(t, e.Call)
	return e
}

// during runs do, and once n calls are blocked in it, ends its context.
func during(t testing.TB, f *cudatest.Fake, n int, do func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := make(chan error, 1)
	go func() { end <- do(ctx) }()
	f.AwaitBlocked(t, n)
	cancel()
	return <-end
}

func pidText(p *cudatest.Target) string { return strconv.Itoa(p.PID) }
