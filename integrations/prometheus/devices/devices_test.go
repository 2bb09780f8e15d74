package devices_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus/devices"
	"github.com/lockstep-gpu/lockstep/internal/nvml/nvmltest"
)

func TestMain(m *testing.M) { nvmltest.Main(m) }

// build compiles the library for tests, with usage or without.
func build(t *testing.T, with bool) string {
	t.Helper()
	if !with {
		return nvmltest.Build(t)
	}
	path, err := filepath.Abs("testdata/usage.c")
	require.NoError(t, err)
	return nvmltest.Build(t, "-include", path)
}

// run runs a Collector for some time and returns what was shown at the end of it.
func run(t *testing.T, cfg devices.Config, d time.Duration) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	cfg.Library, cfg.Registerer = nvmltest.Library(), reg
	c, err := devices.New(cfg)
	require.NoError(t, err)
	require.NotEmpty(t, series(t, reg), "it can be scraped before it runs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	time.Sleep(d)
	synctest.Wait()
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	shown := series(t, reg)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 0.0, series(t, reg)["gpusched_devices_up{}"], "nothing is known when nobody looks")
	return shown
}

// series gathers all series as name{label=value,...}.
func series(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "uuid" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			v := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				v = m.GetCounter().GetValue()
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = v
		}
	}
	return out
}

func TestWhatTheLibrarySaysIsShown(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "sick") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		shown := run(t, devices.Config{}, 25*time.Second)
		for name, want := range map[string]float64{ // each by itself: the order cannot matter
			"devices_up{}":                                              1,
			"device_up{gpu=2}":                                          1,
			"device_utilization_ratio{gpu=2}":                           0.7,
			"device_memory_active_ratio{gpu=2}":                         0.05,
			"device_memory_bytes{gpu=2}":                                80 << 30,
			"device_memory_used_bytes{gpu=2}":                           0,
			"device_temperature_celsius{gpu=2}":                         42,
			"device_power_watts{gpu=2}":                                 302.5,
			"device_energy_joules_total{gpu=1}":                         5000000000.25,
			"device_clock_hertz{clock=sm,gpu=2}":                        1410e6,
			"device_clock_hertz{clock=memory,gpu=2}":                    2619e6,
			"device_clock_held{cause=power_cap,gpu=2}":                  1,
			"device_clock_held{cause=thermal,gpu=2}":                    0,
			"device_ecc_enabled{gpu=2}":                                 1,
			"device_ecc_errors_total{gpu=2,outcome=corrected}":          2,
			"device_ecc_errors_total{gpu=2,outcome=uncorrected}":        102,
			"device_ecc_lifetime_errors_total{gpu=2}":                   112,
			"device_row_remap_pending{gpu=2}":                           1,
			"device_row_remap_failed{gpu=2}":                            0,
			"device_recovery_needed{action=reboot,gpu=2}":               1,
			"device_recovery_needed{action=reset,gpu=2}":                0,
			"device_xid_errors_total{gpu=2,xid=81}":                     1,
			"device_info{driver=570.86.15,gpu=2,product=NVIDIA Fake}":   1,
			"device_supported{gpu=2,metric=device_power_watts}":         1,
			"device_supported{gpu=2,metric=device_energy_joules_total}": 0,
			"device_supported{gpu=3,metric=device_utilization_ratio}":   0,
			"device_supported{gpu=3,metric=device_ecc_errors_total}":    0,
			"device_ecc_enabled{gpu=3}":                                 0,
		} {
			got, ok := shown["gpusched_"+name]
			require.True(t, ok, "%s is not shown", name)
			require.Equal(t, want, got, name)
		}
		for _, absent := range []string{"device_utilization_ratio{gpu=3}", "device_energy_joules_total{gpu=2}", "device_ecc_errors_total{gpu=3,outcome=corrected}"} {
			require.NotContains(t, shown, "gpusched_"+absent, "what a GPU does not do is no zero")
		}
		require.InDelta(t, float64(time.Now().Unix()), shown["gpusched_devices_sampled_timestamp_seconds{}"], 10)
	})
}

// TestWhatALibraryLacksIsSaid with one that has no usage, power and energy.
func TestWhatALibraryLacksIsSaid(t *testing.T) {
	if nvmltest.Child(t, build(t, false), "nvswitch8") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		shown := run(t, devices.Config{}, time.Second)
		for i := range 8 {
			for _, lacks := range []string{"device_utilization_ratio", "device_memory_active_ratio", "device_power_watts", "device_energy_joules_total"} {
				v, ok := shown[fmt.Sprintf("gpusched_device_supported{gpu=%d,metric=%s}", i, lacks)]
				require.True(t, ok)
				require.Zero(t, v)
				require.NotContains(t, shown, fmt.Sprintf("gpusched_%s{gpu=%d}", lacks, i))
			}
			require.Equal(t, 18.0, shown[fmt.Sprintf("gpusched_device_nvlinks{gpu=%d,state=up}", i)])
			require.Equal(t, 1.0, shown[fmt.Sprintf("gpusched_device_supported{gpu=%d,metric=device_nvlinks}", i)])
		}
	})
}

func TestALostGPUIsDown(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "lost") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		shown := run(t, devices.Config{}, time.Second)
		require.Equal(t, 0.0, shown["gpusched_device_up{gpu=1}"])
		require.Equal(t, 1.0, shown["gpusched_device_up{gpu=0}"])
		require.NotContains(t, shown, "gpusched_device_temperature_celsius{gpu=1}")
	})
}

func TestWithoutADriverTheHostIsDown(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "nodriver") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		shown := run(t, devices.Config{Logger: zap.New(core)}, 25*time.Second)
		require.Equal(t, map[string]float64{"gpusched_devices_up{}": 0}, shown)
		require.Len(t, logs.FilterMessage("devices are not read").All(), 3, "once a round")
	})
}

// TestXIDsAreBounded: a storm of one XID is one series, and many kinds end at the bound.
func TestXIDsAreBounded(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "sick") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		c, err := devices.New(devices.Config{Library: nvmltest.Library(), Registerer: reg, XIDs: 1, Every: time.Second})
		require.NoError(t, err)
		for range 3 { // each run tells one XID a GPU, the same each time
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			require.NoError(t, c.Run(ctx))
			cancel()
		}
		s := series(t, reg)
		require.Equal(t, 3.0, s["gpusched_device_xid_errors_total{gpu=0,xid=79}"])
		for name := range s { // counted: the order cannot matter
			require.False(t, strings.Contains(name, "gpu=0,xid=") && !strings.HasSuffix(name, "xid=79}"))
		}
	})
}

func TestItRunsOnceAtATime(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "sick") {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		c, err := devices.New(devices.Config{Library: nvmltest.Library()})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Second)
		require.ErrorIs(t, c.Run(ctx), lockstep.ErrConflict)
		cancel()
		require.NoError(t, <-done)
	})
}

// TestTheScrapeIsClean over HTTP, by Prometheus' own linter.
func TestTheScrapeIsClean(t *testing.T) {
	if nvmltest.Child(t, build(t, true), "sick") {
		return
	}
	reg := prometheus.NewPedanticRegistry()
	c, err := devices.New(devices.Config{Library: nvmltest.Library(), Registerer: reg})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	require.Eventually(t, func() bool { return len(series(t, reg)) > 100 && hasXID(t, reg) }, 5*time.Second, 10*time.Millisecond)
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	problems, err := promlint.New(response.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	shown := map[string]bool{}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		shown[strings.TrimPrefix(f.GetName(), "gpusched_")] = true
	}
	for _, m := range devices.Metrics() {
		require.Equal(t, m.Name != "device_nvlinks", shown[m.Name], "%s: these GPUs have all but NVLinks", m.Name)
	}
	cancel()
	require.NoError(t, <-done)
}

func hasXID(t *testing.T, reg *prometheus.Registry) bool {
	for name := range series(t, reg) { // any will do, so the order cannot matter
		if strings.Contains(name, "xid_errors") {
			return true
		}
	}
	return false
}

func TestConfig(t *testing.T) {
	_, err := devices.New(devices.Config{Prefix: "GPU-", Every: -1, XIDs: -1})
	for _, want := range []string{"Prefix", "Every", "XIDs"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	reg := prometheus.NewRegistry()
	c, err := devices.New(devices.Config{Registerer: reg})
	require.NoError(t, err)
	_, err = devices.New(devices.Config{Registerer: reg})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.NoError(t, c.Close())
	_, err = devices.New(devices.Config{Registerer: reg})
	require.NoError(t, err, "the names are free again")
}

func TestMetricsAreNamedOnce(t *testing.T) {
	var names []string
	for _, m := range devices.Metrics() {
		names = append(names, m.Name)
		require.NotEmpty(t, m.Help)
		require.Equal(t, m.Kind == "counter", strings.HasSuffix(m.Name, "_total"))
	}
	slices.Sort(names)
	require.Equal(t, slices.Compact(slices.Clone(names)), names)
}

func Example() {
	registry := prometheus.NewRegistry()
	c, err := devices.New(devices.Config{Registerer: registry, Library: "no-such-library.so"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_ = c.Run(ctx) // on a host without GPUs: tries until ctx ends, or this build has no library
	families, _ := registry.Gather()
	for _, f := range families {
		fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
	}
	_, _ = fmt.Fprintln(os.Stderr, "ready to be scraped by promhttp.HandlerFor(registry, …)")
	// Output:
	// gpusched_devices_up 0
}
