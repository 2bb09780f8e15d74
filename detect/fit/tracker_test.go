package fit

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

func TestTrackerGoesOnAfterRestore(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 23))
	c := Coeff{Alpha: 2000, Beta: 0.05}
	tracker, err := NewTracker(c, Report{Scale: 0.015}, TrackerConfig{})
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
}

func TestTrackerFollowsAndIsHeldBack(t *testing.T) {
	c := Coeff{Alpha: 2000, Beta: 0.05}
	b := perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
	run := func(samples int, to func(i int) Coeff) float64 {
		r := rand.New(rand.NewPCG(24, 24))
		tracker, err := NewTracker(c, Report{Scale: 0.015}, TrackerConfig{})
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
		_, err := NewTracker(c, Report{}, TrackerConfig{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	for _, cfg := range []TrackerConfig{{Window: 3}, {Every: -1}, {Every: 9999}, {Drift: 2}, {Cap: math.NaN()}} {
		_, err := NewTracker(good, Report{}, cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := NewTracker(good, Report{Scale: math.Inf(1)}, TrackerConfig{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	tracker, err := NewTracker(good, Report{}, TrackerConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, tracker.Observe(Sample{}), lockstep.ErrInvalid)
	require.ErrorIs(t, tracker.Reset(Coeff{}), lockstep.ErrInvalid)
	require.NoError(t, tracker.Reset(Coeff{Alpha: 5}))
	require.Equal(t, Coeff{Alpha: 5}, tracker.Coeff())
}

func TestRestoreRefusesWhatNoTrackerSaved(t *testing.T) {
	tracker, err := NewTracker(Coeff{Alpha: 2000, Beta: 0.05}, Report{Scale: 0.015}, TrackerConfig{})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(26, 26))
	for _, s := range measured(t, r, Coeff{Alpha: 2000, Beta: 0.05}, 40, 32768, 0.015) {
		require.NoError(t, tracker.Observe(s))
	}
	for name, change := range map[string]func(*trackerImage){ // the order does not matter: each case stands alone
		"no first fit":     func(i *trackerImage) { i.First = Coeff{} },
		"nothing now":      func(i *trackerImage) { i.Now = Coeff{} },
		"negative now":     func(i *trackerImage) { i.Now.Beta = -1 },
		"count":            func(i *trackerImage) { i.N = -1 },
		"too long a wait":  func(i *trackerImage) { i.N = 16 },
		"seen":             func(i *trackerImage) { i.Seen = 1 << 20 },
		"spread":           func(i *trackerImage) { i.Spread = 0 },
		"mean":             func(i *trackerImage) { i.Mean[0] = -1 },
		"sums":             func(i *trackerImage) { i.Gram[1][1] = -1 },
		"config":           func(i *trackerImage) { i.Config.Every = 0 },
		"impossible limit": func(i *trackerImage) { i.Config.Drift = 2 },
	} {
		img := *tracker.image()
		change(&img)
		var b bytes.Buffer
		require.NoError(t, snapshot.WriteJSON(&b, "x", format, version, &img))
		_, err = RestoreTracker(&b)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
}

func TestTrackerIsNotBentByAMinority(t *testing.T) {
	c := Coeff{Alpha: 2000, Beta: 0.05}
	tracker, err := NewTracker(c, Report{Scale: 0.015}, TrackerConfig{Drift: 1, Cap: 1})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(27, 27))
	for i := range 3000 {
		s := measured(t, r, c, 1, 32768, 0.015)[0]
		if i%20 == 0 {
			s.Took *= 5
		}
		require.NoError(t, tracker.Observe(s))
	}
	b := perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
	require.InEpsilon(t, c.nanos(b), tracker.Coeff().nanos(b), 0.02)
}
