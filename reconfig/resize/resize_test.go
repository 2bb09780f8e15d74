package resize_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

func at(t *testing.T, e resize.Elastic, n int, gain int64) (resize.Batch, lockstep.Verdict) {
	t.Helper()
	b, v, err := e.At(n, gain)
	require.NoError(t, err)
	return b, v
}

func TestFixedBatchAccumulatesMore(t *testing.T) {
	e := resize.Elastic{Global: 96, Micro: 2, Replicas: 8, Max: 16}
	require.Equal(t, []int{1, 2, 3, 4, 6, 8, 12, 16}, e.Sizes())
	b, v := at(t, e, 6, 0)
	require.True(t, v.Feasible)
	require.Equal(t, resize.Batch{Global: 96, Micros: 48, Split: []int{8, 8, 8, 8, 8, 8}, Rate: 1_000_000, Counts: 1_000_000}, b)
	_, v = at(t, e, 7, 0)
	require.Equal(t, lockstep.Verdict{Want: 7, Fit: 6, Reason: resize.ReasonBatch}, v)
	e.Uneven = true
	b, v = at(t, e, 7, 0)
	require.True(t, v.Feasible)
	require.Equal(t, []int{7, 7, 7, 7, 7, 7, 6}, b.Split)
}

func TestScaledBatchFollowsItsRule(t *testing.T) {
	e := resize.Elastic{Mode: resize.ScaledBatch, Rule: resize.LinearRate, Global: 256, Micro: 4, Replicas: 4, Max: 16}
	b, _ := at(t, e, 9, 0)
	require.Equal(t, int64(576), b.Global)
	require.Equal(t, 144, b.Micros)
	require.Equal(t, int64(2_250_000), b.Rate)
	e.Rule = resize.SqrtRate
	b, _ = at(t, e, 9, 0)
	require.Equal(t, int64(1_500_000), b.Rate)
	require.Equal(t, int64(2_250_000), b.Counts)
	e.Rule = resize.AdaScaleRate
	b, _ = at(t, e, 9, 1_700_000)
	require.Equal(t, int64(1_700_000), b.Rate)
	require.Equal(t, b.Rate, b.Counts, "a step counts for its gain")
	b, _ = at(t, e, 2, 800_000)
	require.Equal(t, int64(128), b.Global)
	for _, gain := range []int64{0, 999_999, 2_250_001} {
		_, _, err := e.At(9, gain)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "between 1 and the ratio")
	}
}

func TestSqrtRateIsExact(t *testing.T) {
	e := resize.Elastic{Mode: resize.ScaledBatch, Rule: resize.SqrtRate, Global: 1024, Replicas: 1024, Max: 1 << 20}
	for _, n := range []int{1, 2, 3, 1023, 1024, 1025, 999_999, 1 << 20} {
		b, _ := at(t, e, n, 0)
		want := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(1_000_000_000_000))
		want.Div(want, big.NewInt(1024)).Sqrt(want)
		require.Equal(t, want.Int64(), b.Rate)
	}
}

func TestForbiddenAndOutsideAreOutcomes(t *testing.T) {
	e := resize.Elastic{Mode: resize.NoResize, Global: 8, Replicas: 4, Max: 8}
	_, v := at(t, e, 5, 0)
	require.Equal(t, lockstep.Verdict{Want: 5, Fit: 4, Reason: resize.ReasonForbidden}, v)
	require.Equal(t, []int{4}, e.Sizes())
	e = resize.Elastic{Global: 8, Min: 2, Max: 4}
	_, v = at(t, e, 1, 0)
	require.Equal(t, lockstep.Verdict{Want: 1, Reason: resize.ReasonSize}, v)
	_, v = at(t, e, 9, 0)
	require.Equal(t, 4, v.Fit)
}

func TestElasticReportsEveryFault(t *testing.T) {
	for name, e := range map[string]resize.Elastic{ // the order does not matter: each case stands alone
		"nothing":         {},
		"unknown mode":    {Mode: "perhaps", Global: 8},
		"no rule":         {Mode: resize.ScaledBatch, Global: 8},
		"unknown rule":    {Mode: resize.ScaledBatch, Rule: "cubic", Global: 8},
		"needless rule":   {Rule: resize.LinearRate, Global: 8},
		"does not divide": {Global: 9, Micro: 2},
		"uneven base":     {Mode: resize.ScaledBatch, Rule: resize.LinearRate, Global: 9, Replicas: 2},
		"max below min":   {Global: 8, Min: 4, Max: 2},
		"huge":            {Global: math.MaxInt64, Micro: math.MaxInt64},
		"negative":        {Global: -1, Micro: -1, Replicas: -1, Min: -1, Max: -1},
	} {
		require.ErrorIs(t, e.Validate(), lockstep.ErrInvalid, name)
		_, _, err := e.At(1, 0)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		require.Nil(t, e.Sizes(), name)
	}
	_, _, err := resize.Elastic{Global: 8}.At(0, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, _, err = resize.Elastic{Global: 8}.At(1, 5)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "only AdaScale has a gain")
}

// TestNothingIsRepeatedOrSkipped replays the samples of jobs that are resized, and
// whose batch changes, at any step.
func TestNothingIsRepeatedOrSkipped(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		e := resize.Elastic{Global: int64(4 * (1 + rng.IntN(6))), Micro: int64(1 + rng.IntN(2)), Replicas: 2, Max: 6, Uneven: true}
		if seed%2 == 1 {
			e.Mode, e.Rule, e.Uneven = resize.ScaledBatch, resize.LinearRate, false
		}
		samples := int64(1 + rng.IntN(60))
		seen := []int{} // by epoch and place: how often
		var c resize.Cursor
		total := int64(0)
		for range 40 {
			sizes := e.Sizes()
			b, _, err := e.At(sizes[rng.IntN(len(sizes))], 0)
			require.NoError(t, err)
			step, next, err := c.Take(b.Global, samples)
			require.NoError(t, err)
			parts, err := resize.Deal(step, e.Micro, b.Split)
			require.NoError(t, err)
			if rng.IntN(4) == 0 {
				continue // a member was lost: the step does not count, and is done again
			}
			c = next
			for i, p := range parts {
				mine := int64(0)
				for _, r := range p {
					mine += r.Count
					for k := range r.Count {
						at := int(r.Epoch*samples + r.First + k)
						for len(seen) <= at {
							seen = append(seen, 0)
						}
						seen[at]++
					}
				}
				require.Equal(t, int64(b.Split[i])*e.Micro, mine)
			}
			total += b.Global
		}
		require.Len(t, seen, int(total), "seed %d: none is skipped", seed)
		for i, n := range seen {
			require.Equal(t, 1, n, "seed %d: place %d", seed, i)
		}
		require.Equal(t, total, c.Epoch*samples+c.Consumed)
	}
}

func TestCursorRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []resize.Cursor{{Epoch: -1}, {Consumed: -1}, {Consumed: 11}, {Step: -1}} {
		_, same, err := c.Take(1, 10)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, c, same)
	}
	_, _, err := resize.Cursor{}.Take(1, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, _, err = resize.Cursor{}.Take(1<<40, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "into too many epochs")
	_, err = resize.Deal([]resize.Range{{Count: 5}}, 2, []int{1, 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = resize.Deal([]resize.Range{{Count: 0}}, 0, []int{-1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Error(t, resize.Cursor{Epoch: -1}.Validate())
	_, c, err := resize.Cursor{Consumed: 10}.Take(3, 10)
	require.NoError(t, err)
	require.Equal(t, resize.Cursor{Epoch: 1, Consumed: 3, Step: 1}, c)
}

func TestGuardWaitsAndCounts(t *testing.T) {
	c := resize.Change{
		Old: resize.Pace{Samples: 100, Step: time.Second}, New: resize.Pace{Samples: 150, Step: time.Second},
		Pause: 10 * time.Minute, Since: time.Hour,
	}
	g := resize.Guard{Margin: resize.AnyGain}
	allow := func() lockstep.Verdict {
		v, err := g.Allow(c)
		require.NoError(t, err)
		return v
	}
	require.True(t, allow().Feasible)
	c.Pause = 20 * time.Minute // 40 minutes at 150 are 60 at 100
	require.Equal(t, resize.ReasonBreakEven, allow().Reason, "equal is not more")
	c.Pause -= time.Nanosecond
	require.True(t, allow().Feasible)
	g.Margin = 0
	require.Equal(t, resize.ReasonBreakEven, allow().Reason, "by a hundredth")
	c.Since = 9 * time.Minute
	require.Equal(t, lockstep.Verdict{Want: 1, Reason: resize.ReasonDwell, Requested: int64(10 * time.Minute), Available: int64(9 * time.Minute)}, allow())
	c.Forced = true
	require.True(t, allow().Feasible)
	c.Forced, c.Since, g.Dwell, c.Old.Samples = false, 0, resize.NoDwell, 0
	require.True(t, allow().Feasible, "anything is more than nothing")
	c.New.Samples = 0
	require.False(t, allow().Feasible)
}

func TestGuardNeverGoesBackAndForth(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 10))
		g := resize.Guard{Dwell: resize.NoDwell, Horizon: time.Duration(1 + rng.Int64N(int64(time.Hour)))}
		a := resize.Pace{Samples: 1 + rng.Int64N(1000), Step: time.Duration(1 + rng.Int64N(int64(time.Second)))}
		b := resize.Pace{Samples: 1 + rng.Int64N(1000), Step: time.Duration(1 + rng.Int64N(int64(time.Second)))}
		pause := time.Duration(rng.Int64N(int64(time.Hour)))
		there, err := g.Allow(resize.Change{Old: a, New: b, Pause: pause})
		require.NoError(t, err)
		back, err := g.Allow(resize.Change{Old: b, New: a, Pause: pause})
		require.NoError(t, err)
		require.False(t, there.Feasible && back.Feasible)
		same, err := g.Allow(resize.Change{Old: a, New: a})
		require.NoError(t, err)
		require.False(t, same.Feasible)
	}
}

func TestGuardRefusesImpossibleInput(t *testing.T) {
	_, err := resize.Guard{Dwell: -2, Horizon: -1, Margin: -2}.Allow(resize.Change{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = resize.Guard{}.Allow(resize.Change{Old: resize.Pace{Samples: 1}, New: resize.Pace{Samples: -1}, Pause: -1, Since: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = resize.Guard{Horizon: 365 * 24 * time.Hour, Margin: 1, Dwell: resize.NoDwell}.Allow(resize.Change{
		Old: resize.Pace{Samples: 1 << 40, Step: 365 * 24 * time.Hour}, New: resize.Pace{Samples: 1 << 40, Step: 1},
	})
	require.NoError(t, err)
}
