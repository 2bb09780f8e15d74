package detect

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// TestARestoredTestGoesOnAsTheOneThatWasSaved cuts a series with a fault, a recovery and a
// second fault at many points.
func TestARestoredTestGoesOnAsTheOneThatWasSaved(t *testing.T) {
	for _, m := range methods {
		t.Run(m.String(), func(t *testing.T) {
			for cut := 0; cut < 330; cut += 11 {
				n, test := newNoise(21, 0.015, 0.4, 0.02), newTest(t, TestConfig{Method: m})
				sample := func(i int) float64 {
					if i > 120 && i < 180 || i > 250 {
						return n.next() + 0.35
					}
					return n.next()
				}
				for i := range cut {
					observe(t, test, sample(i))
				}
				image := saved(t, test)
				again, err := RestoreTest(bytes.NewReader(image))
				require.NoError(t, err)
				require.Equal(t, string(image), string(saved(t, again)))
				for i := cut; i < 330; i++ {
					x := sample(i)
					require.Equal(t, observe(t, test, x), observe(t, again, x), "cut %d, sample %d", cut, i)
				}
				require.Equal(t, string(saved(t, test)), string(saved(t, again)))
			}
		})
	}
}

func TestRestoreRefusesWhatNoTestSaved(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(22, 0.015, 0.4, 0.02), newTest(t, TestConfig{Method: m})
		for range 100 {
			observe(t, test, n.next())
		}
		image := saved(t, test)
		for _, cut := range []int{0, 1, len(image) / 2, len(image) - 1} {
			_, err := RestoreTest(bytes.NewReader(image[:cut]))
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
		for name, change := range map[string]func(*testImage){ // the order does not matter: each case stands alone
			"no config":         func(i *testImage) { i.Config = TestConfig{} },
			"bad config":        func(i *testImage) { i.Config.Clip = -1 },
			"count":             func(i *testImage) { i.Since = -1 },
			"warm and known":    func(i *testImage) { i.Baseline.Warm = []float64{1} },
			"too many wait":     func(i *testImage) { i.Baseline.Queue = make([]float64, 99) },
			"never learned":     func(i *testImage) { i.Baseline.N = 3 },
			"negative variance": func(i *testImage) { i.Baseline.VarU = -1 },
			"huge":              func(i *testImage) { i.Baseline.Mean = -1e300 },
			"above its limit":   func(i *testImage) { i.Baseline.Mean = i.Baseline.Anchor + 1 },
			"state unknown":     func(i *testImage) { i.Baseline.N = 0; i.Baseline.Queue = nil },
		} {
			var img testImage
			_, err := snapshot.ReadJSON(bytes.NewReader(image), "x", testFormat, version, &img)
			require.NoError(t, err)
			change(&img)
			var b bytes.Buffer
			require.NoError(t, snapshot.WriteJSON(&b, "x", testFormat, version, &img))
			_, err = RestoreTest(&b)
			require.ErrorIs(t, err, lockstep.ErrInvalid, "%v: %s", m, name)
		}
	}
	_, err := RestoreTest(nil)
	require.Error(t, err)
}

func TestTrackerGoesOnAfterRestore(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 23))
	c := Coeff{Alpha: 2000, Beta: 0.05}
	tracker, err := NewTracker(c, FitReport{Scale: 0.015}, TrackerConfig{})
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, tracker.Observe(measured(t, r, c, 1, 32768, 0.015)[0]))
	}
	var b bytes.Buffer
	require.NoError(t, tracker.Snapshot(&b))
	image := b.String()
	again, err := RestoreTracker(&b)
	require.NoError(t, err)
	for range 100 {
		s := measured(t, r, c, 1, 32768, 0.015)[0]
		require.NoError(t, tracker.Observe(s))
		require.NoError(t, again.Observe(s))
		require.Equal(t, tracker.Coeff(), again.Coeff())
	}
	_, err = RestoreTracker(bytes.NewReader([]byte(image[:len(image)-2])))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = RestoreTest(bytes.NewReader([]byte(image)))
	require.ErrorIs(t, err, lockstep.ErrInvalid, "another format")
}

func TestTrackerFollowsAndIsHeldBack(t *testing.T) {
	c := Coeff{Alpha: 2000, Beta: 0.05}
	b := perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
	run := func(samples int, to func(i int) Coeff) float64 {
		r := rand.New(rand.NewPCG(24, 24))
		tracker, err := NewTracker(c, FitReport{Scale: 0.015}, TrackerConfig{})
		require.NoError(t, err)
		for i := range samples {
			require.NoError(t, tracker.Observe(measured(t, r, to(i), 1, 32768, 0.015)[0]))
		}
		return tracker.Coeff().nanos(b) / c.nanos(b)
	}
	require.InDelta(t, 1, run(3000, func(int) Coeff { return c }), 0.01)
	require.InDelta(t, 0.95, run(20_000, func(int) Coeff { return Coeff{Alpha: 1900, Beta: 0.0475} }), 0.01, "faster is followed")
	require.Less(t, run(3000, func(int) Coeff { return Coeff{Alpha: 2600, Beta: 0.065} }), 1.021, "slower is followed only so far")
	require.Less(t, run(20_000, func(i int) Coeff {
		f := 1 + 0.3*float64(i)/20_000
		return Coeff{Alpha: 2000 * f, Beta: 0.05 * f}
	}), 1.021, "a slow ramp does not become the baseline")
	require.Less(t, run(100, func(int) Coeff { return Coeff{Alpha: 4000, Beta: 0.1} }), 1+100*2e-5+1e-9, "nothing moves faster than the limit")
}

func TestTrackerRefusesWhatCannotBe(t *testing.T) {
	good := Coeff{Alpha: 1}
	for _, c := range []Coeff{{}, {Alpha: -1}, {Beta: math.NaN()}} {
		_, err := NewTracker(c, FitReport{}, TrackerConfig{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	for _, cfg := range []TrackerConfig{{Window: 3}, {Every: -1}, {Every: 9999}, {Drift: 2}, {Cap: math.NaN()}} {
		_, err := NewTracker(good, FitReport{}, cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := NewTracker(good, FitReport{Scale: math.Inf(1)}, TrackerConfig{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	tracker, err := NewTracker(good, FitReport{}, TrackerConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, tracker.Observe(Sample{}), lockstep.ErrInvalid)
	require.ErrorIs(t, tracker.Reset(Coeff{}), lockstep.ErrInvalid)
	require.NoError(t, tracker.Reset(Coeff{Alpha: 5}))
	require.Equal(t, Coeff{Alpha: 5}, tracker.Coeff())
}

// FuzzRestoreTest feeds changed snapshots, with a right checksum, to RestoreTest, and goes
// on with what it accepts.
func FuzzRestoreTest(f *testing.F) {
	for _, m := range methods {
		n, test := newNoise(25, 0.015, 0.4, 0.02), newTest(f, TestConfig{Method: m, Warmup: 8, Lag: 2, Support: 9, Within: 2})
		for range 40 {
			observe(f, test, n.next())
		}
		body, err := json.Marshal(test.(imager).image())
		require.NoError(f, err)
		f.Add(body, []byte{1, 2, 200, 3, 0, 255})
	}
	f.Fuzz(func(t *testing.T, body, samples []byte) {
		var b bytes.Buffer
		require.NoError(t, snapshot.Write(&b, testFormat, version, body))
		test, err := RestoreTest(&b)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		for _, s := range samples {
			_, err := test.Observe(float64(int8(s)) / 64)
			require.NoError(t, err)
		}
		image := saved(t, test)
		again, err := RestoreTest(bytes.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, string(image), string(saved(t, again)))
	})
}
