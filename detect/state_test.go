package detect

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

func TestRestoreRefusesWhatNoMonitorSaved(t *testing.T) {
	j := newJob(t, 61)
	cfg := j.config()
	cfg.Rates, cfg.Refit = Rates{}, true
	m := newMonitor(t, cfg)
	watch(t, m, 80, j.next)
	learning := newMonitor(t, cfg)
	watch(t, learning, 5, j.next)
	for name, alter := range map[string]func(*monitorImage){ // the order does not matter: each case stands alone
		"no config":              func(i *monitorImage) { i.Config = Config{} },
		"bad config":             func(i *monitorImage) { i.Config.Suspicion = -1 },
		"numbers missing":        func(i *monitorImage) { i.Numbers = i.Numbers[1:] },
		"numbers out of order":   func(i *monitorImage) { i.Numbers[0] = 1 << 60 },
		"numbers ahead":          func(i *monitorImage) { i.Last = 3 },
		"other replicas":         func(i *monitorImage) { i.Micros = []int{8} },
		"negative micro-batches": func(i *monitorImage) { i.Micros[0] = -1 },
		"score":                  func(i *monitorImage) { i.Score = -1 },
		"cleared":                func(i *monitorImage) { i.Cleared = 99 },
		"unheard":                func(i *monitorImage) { i.Unheard[1] = -1 },
		"onset without alarm":    func(i *monitorImage) { i.Onset = 5 },
		"many suspects":          func(i *monitorImage) { i.Suspects = make([]Suspect, most+1) },
		"work counts":            func(i *monitorImage) { i.Work.N = -1 },
		"work batch":             func(i *monitorImage) { i.Work.Tokens = -1 },
		"work means":             func(i *monitorImage) { i.Work.LastNow = 1e300 },
		"no whole test":          func(i *monitorImage) { i.Whole = "" },
		"another whole test":     func(i *monitorImage) { i.Whole = savedTest(t, change.Config{Clip: 9}) },
		"bad whole test":         func(i *monitorImage) { i.Whole = i.Whole[:len(i.Whole)-3] },
		"no chunk test":          func(i *monitorImage) { i.Chunks = nil },
		"another chunk test":     func(i *monitorImage) { i.Chunks.Config.Warmup = 9 },
		"bad chunk test":         func(i *monitorImage) { i.Chunks.Places = nil },
		"another matched test":   func(i *monitorImage) { i.Matched.Config.Horizon = 9 },
		"bad matched test":       func(i *monitorImage) { i.Matched.Seen = -1 },
		"measured":               func(i *monitorImage) { i.Measured = 1000 },
		"no rates":               func(i *monitorImage) { i.Rates = nil },
		"bad rates":              func(i *monitorImage) { i.Rates.Forward = i.Rates.Forward[1:] },
		"rates given as well":    func(i *monitorImage) { i.Config.Rates = *i.Rates },
		"samples elsewhere":      func(i *monitorImage) { i.Samples[0] = make([][]fit.Sample, 1) },
		"bad samples": func(i *monitorImage) {
			for k := range i.Samples {
				i.Samples[k] = make([][]fit.Sample, 4)
			}
			i.Samples[1][2] = []fit.Sample{{}}
		},
		"trackers missing":   func(i *monitorImage) { i.Trackers[0] = nil },
		"tracker missing":    func(i *monitorImage) { i.Trackers[0][1] = "" },
		"bad tracker":        func(i *monitorImage) { i.Trackers[1][1] = i.Trackers[1][1][1:] },
		"tracker of another": func(i *monitorImage) { i.Trackers[1][1] = i.Whole },
	} {
		var img monitorImage
		_, err := snapshot.ReadJSON(strings.NewReader(state(t, m)), "x", monitorFormat, version, &img)
		require.NoError(t, err)
		alter(&img)
		var b bytes.Buffer
		require.NoError(t, snapshot.WriteJSON(&b, "x", monitorFormat, version, &img))
		_, err = Restore(&b)
		require.Error(t, err, name)
		if name != "bad config" {
			require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		}
	}
	for _, cut := range []int{0, 10, 1000} {
		_, err := Restore(strings.NewReader(state(t, learning)[:cut]))
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := Restore(nil)
	require.Error(t, err)
}

func TestResetOfAMonitorForgetsAll(t *testing.T) {
	j := newJob(t, 62)
	m := newMonitor(t, j.config())
	_, ok := m.Detectable(0, 0)
	require.False(t, ok)
	vs := watch(t, m, 60, j.next)
	factor, ok := m.Detectable(1, 2)
	require.True(t, ok)
	require.LessOrEqual(t, factor, vs[59].MinDetectable)
	_, ok = m.Detectable(2, 0)
	require.False(t, ok)
	require.NoError(t, m.Reset())
	_, ok = m.Detectable(1, 2)
	require.False(t, ok)
	vs = watch(t, m, 60, j.next)
	require.Equal(t, Learning, vs[0].State)
	require.Equal(t, Healthy, vs[59].State)
	_, ok = newMonitor(t, Config{}).Detectable(0, 0)
	require.False(t, ok)
}

// TestEveryMethodMayTestWholeIterations has one Monitor for each, with and without a model.
func TestEveryMethodMayTestWholeIterations(t *testing.T) {
	for _, method := range methods {
		for _, model := range []bool{true, false} {
			if method == change.ResiHP && !model {
				continue
			}
			j := newJob(t, 63)
			j.tokens, j.drift, j.pause = 8192, 0.01, 0
			cfg := Config{Tuning: Tuning{Whole: change.Config{Method: method}}}
			if model {
				cfg = j.config()
				cfg.Whole.Method = method
			}
			m := newMonitor(t, cfg)
			watch(t, m, 100, j.next)
			j.network = 300
			vs := watch(t, m, 60, j.next)
			require.NotEmpty(t, alarms(vs), method)
			require.Greater(t, vs[59].Ratio, 1.0)
			again, err := Restore(strings.NewReader(state(t, m)))
			require.NoError(t, err)
			require.Equal(t, state(t, m), state(t, again))
		}
	}
}

func TestTimesAreHeldToTheLargest(t *testing.T) {
	require.Equal(t, time.Duration(math.MaxInt64), saturate(math.MaxInt64, 1))
	require.Equal(t, 3*time.Second, saturate(time.Second, 2*time.Second))
}

// savedTest returns what a test of a configuration saves of itself.
func savedTest(t testing.TB, cfg change.Config) string {
	test, err := change.New(cfg)
	require.NoError(t, err)
	s, err := saved(test)
	require.NoError(t, err)
	return s
}
