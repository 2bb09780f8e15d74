package prometheus_test

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	lockprom "github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// TestLabelsThatCannotBeShownAreRefused before anything is registered or scraped.
func TestLabelsThatCannotBeShownAreRefused(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	_, err := lockprom.New(lockprom.Config{Registerer: reg, Labels: map[string]string{"cluster": "a\xff"}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = lockprom.New(lockprom.Config{Registerer: reg})
	require.NoError(t, err)
}

// TestOneReignAfterAnother has a Recorder of its own for each, closed at the end of
// it, and twice: nothing of the one before is shown, nor of one that is closed.
func TestOneReignAfterAnother(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 3 {
		r, err := lockprom.New(lockprom.Config{Registerer: reg})
		require.NoError(t, err)
		families := func() (out []string) {
			got, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range got {
				out = append(out, f.GetName())
			}
			return out
		}
		require.NotContains(t, families(), "gpusched_jobs")
		r.Gauge(meter.Jobs, lockstep.MetricLabels{Queue: "q", State: "running"}, 1)
		require.Contains(t, families(), "gpusched_jobs")
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		require.Empty(t, families())
		r.Gauge(meter.Jobs, lockstep.MetricLabels{Queue: "p"}, 1)
	}
}

// TestClosedTwiceWhileAnotherIsRegistered: the second Close of one may not take away
// the one that came after it.
func TestClosedTwiceWhileAnotherIsRegistered(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	old, err := lockprom.New(lockprom.Config{Registerer: reg})
	require.NoError(t, err)
	require.NoError(t, old.Close())
	_, err = lockprom.New(lockprom.Config{Registerer: reg})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = old.Close() })
	}
	wg.Wait()
	got, err := reg.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, got)
}
