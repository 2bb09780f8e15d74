package autoscale

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// TestWhateverIsTakenCanBeSaved: what Validate lets pass makes no state that Restore refuses.
func TestWhateverIsTakenCanBeSaved(t *testing.T) {
	for name, sample := range map[string]Sample{ // the order does not matter: each stands alone
		"tokens without requests": {Prompt: maxTokens, Output: maxTokens},
		"many tokens":             {Requests: 1, Prompt: maxTokens, Finished: 1, Output: maxTokens},
		"all":                     {Source: "ü\u2028\"", Requests: maxCount, Prompt: maxTokens, Finished: maxCount, Output: maxTokens, Ongoing: maxCount, Queued: maxCount},
	} {
		for _, rule := range ruleNames {
			cfg := everyRule()[rule]
			s := newScaler(t, cfg)
			for i := range 300 {
				observe(t, s, at(time.Duration(i)*time.Second), sample)
			}
			image := snapshottest.Save(t, s.Snapshot)
			again, err := Restore(cfg, bytes.NewReader(image))
			require.NoError(t, err, "%s %s", name, rule)
			require.Equal(t, decide(t, s, at(300*time.Second), fleet(3, 0)), decide(t, again, at(300*time.Second), fleet(3, 0)))
		}
	}
}

func TestSourcesAreText(t *testing.T) {
	require.ErrorIs(t, Sample{Source: "a\xff"}.Validate(), lockstep.ErrInvalid, "it would be saved as another")
}

func TestPointersToNothingAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Rule: (*KPA)(nil)},
		{Rule: (*HighWater)(nil)},
		{Rule: HighWater{}, Demand: Demand{Capacity: (*Tokens)(nil)}},
		{Rule: KPA{}, Demand: Demand{Capacity: (*Batched)(nil)}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := New(Config{Rule: &HighWater{}, Demand: Demand{Capacity: &Tokens{Step: 1, PerToken: 2}}})
	require.NoError(t, err)
}

// TestManySourcesThatExpireTakeNoSquare: 65536 sources that fell silent one after the other are dropped at once.
func TestManySourcesThatExpireTakeNoSquare(t *testing.T) {
	s := newScaler(t, Config{Rule: KPA{Target: 1000}})
	for i := range maxSources - 1 { // inserted at the end, so that this costs nothing
		s.gauges = append(s.gauges, gauge{fmt.Sprintf("s%06d", i), t0.UnixNano() + int64(i), 1, 1})
	}
	observe(t, s, t0.Add(time.Millisecond), Sample{Source: "z"})
	require.Len(t, s.gauges, maxSources)
	observe(t, s, at(time.Hour), Sample{Source: "z"})
	require.Len(t, s.gauges, 1)
	require.Zero(t, s.level.Value)
}

// TestCountsThatExpireTogetherOrApart: expiry in one call is expiry in many.
func TestCountsThatExpireTogetherOrApart(t *testing.T) {
	a, b := newScaler(t, Config{Rule: KPA{Target: 1000}}), newScaler(t, Config{Rule: KPA{Target: 1000}})
	for i := range 10 {
		for _, s := range []*Scaler{a, b} {
			observe(t, s, at(time.Duration(i)*time.Second), Sample{Source: fmt.Sprint(i % 7), Ongoing: int64(10 + i)})
		}
	}
	for i := range 90 {
		decide(t, b, at(time.Duration(10+i)*time.Second), fleet(1, 0))
	}
	last := at(99 * time.Second)
	require.Equal(t, decide(t, a, last, fleet(1, 0)).Why.Load, decide(t, b, last, fleet(1, 0)).Why.Load)
}

// TestWorkOfASilenceIsNoBurst: what came in during a silence longer than Expiry came in during all of it.
func TestWorkOfASilenceIsNoBurst(t *testing.T) {
	s := newScaler(t, everyRule()["predictive"])
	for i := range 60 {
		observe(t, s, at(time.Duration(i)*time.Second), Sample{Requests: 20, Ongoing: 2})
	}
	observe(t, s, at(10*time.Minute), Sample{Requests: 20 * 541, Ongoing: 2}) // a load of two as before
	require.LessOrEqual(t, s.open(), int64(2*thousand+thousand/10))
	w := newScaler(t, everyRule()["high-water"])
	for i := range 60 {
		observe(t, w, at(time.Duration(i)*time.Second), Sample{Requests: 20, Ongoing: 2})
	}
	observe(t, w, at(10*time.Minute), Sample{Requests: 20 * 541, Ongoing: 2})
	require.InDelta(t, 2*thousand, w.water.swell(), 10)
}

// TestArithmeticAtTheEnds: the rules' arithmetic is exported, and holds at both ends of int64.
func TestArithmeticAtTheEnds(t *testing.T) {
	require.Equal(t, MaxReplicas-5, HeadRoom{PerReplica: 1000, Growth: 1000, Load: time.Second}.Delta(math.MaxInt64, 5))
	require.Equal(t, MaxReplicas, QueueLength{Target: 1}.Scale(math.MaxInt64, 1))
	require.Equal(t, MaxReplicas, QueueLength{}.Scale(math.MaxInt64, math.MaxInt))
	require.Equal(t, 0, QueueLength{}.Scale(math.MinInt64, 0))
	calm, hasty, over := KPA{}.Scale(math.MaxInt64, math.MaxInt64, 2000)
	require.Equal(t, []any{MaxReplicas, MaxReplicas, true}, []any{calm, hasty, over})
	calm, hasty, _ = KPA{}.Scale(math.MaxInt64, math.MaxInt64, math.MaxInt)
	require.Equal(t, []any{MaxReplicas, MaxReplicas}, []any{calm, hasty})
}

// TestALongSeasonOfLargeLoadsDoesNotWrap: sums over a season of the largest loads.
func TestALongSeasonOfLargeLoadsDoesNotWrap(t *testing.T) {
	const season = 20_160
	f, err := NewForecaster(ForecastConfig{Horizons: []Horizon{{1, 500}}, Season: season})
	require.NoError(t, err)
	for range season + 50 {
		require.NoError(t, f.Observe(maxLoad))
	}
	point, ok := f.Point(0)
	require.True(t, ok)
	require.Equal(t, maxLoad, point)
	for _, v := range f.s.Season {
		require.Zero(t, v, "a constant load has no season")
	}
}
