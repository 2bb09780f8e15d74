package desired

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
)

// TestCountsAtTheirEnds: the sums of two counts at their most do not wrap, where int has 32 bits either.
func TestCountsAtTheirEnds(t *testing.T) {
	all := Counts{policy.MaxCount, policy.MaxCount, policy.MaxCount, policy.MaxCount, policy.MaxCount}
	d, _ := next(t, t0, Config{Spare: policy.MaxCount}, all, State{})
	require.Equal(t, policy.MaxCount, d.Desired)
	require.Equal(t, policy.MaxCount*policy.One, d.Wish)
	all.Idle = 0
	d, _ = next(t, t0, Config{Bounded: policy.Bounded{Max: 1}}, all, State{})
	require.Equal(t, policy.MaxCount, d.Desired)
	require.True(t, d.Busy)
	d, _ = next(t, t0, Config{Each: policy.MaxCount}, Counts{Pending: 1}, State{})
	require.EqualValues(t, 1, d.Wish, "a thousandth, never none")
	require.Equal(t, 1, d.Desired)
}

// TestAllFaultsAreNamedAtOnce: those of decorators and counts beside those of the rest.
func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	cfg := Config{Each: -1, Delayed: policy.Delayed{Up: -1}, RateLimited: policy.RateLimited{UpFactor: math.NaN()}, Bounded: policy.Bounded{Min: 3, Max: 2}}
	_, _, err := Next(t0, cfg, Counts{Pending: math.MinInt}, State{Cooldown: policy.CooldownState{Now: -1}})
	for _, field := range []string{"Config.Each", "Delayed.Up", "RateLimited.UpFactor", "Bounded.", "Counts.Pending", "Cooldown.State"} {
		require.ErrorContains(t, err, field)
	}
}

// TestAnythingIsTakenOrRefused draws numbers from both ends.
func TestAnythingIsTakenOrRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	count := func() int {
		return []int{0, 0, 1, 2, 7, r.IntN(50), policy.MaxCount, policy.MaxCount + 1, -1, math.MaxInt, math.MinInt}[r.IntN(11)]
	}
	span := func() time.Duration {
		return []time.Duration{0, 0, time.Second, time.Hour, -1, math.MaxInt64, math.MinInt64}[r.IntN(7)]
	}
	taken := 0
	for range 20_000 {
		cfg := Config{Each: count(), Spare: count(), LookBack: span(), TakeBusy: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			cfg = Config{Each: 1 + r.IntN(3)}
			cfg.Delayed.Up, cfg.Cooldown.Down, cfg.Bounded.Max, cfg.RateLimited.UpAmount = span(), span(), count(), count()
		}
		c := Counts{count(), count(), count(), count(), count()}
		s := State{Delayed: policy.DelayedState{Have: count()}, Cooldown: policy.CooldownState{Changed: int64(span())}}
		if r.IntN(2) == 0 {
			s = State{}
		}
		d, _, err := Next(t0, cfg, c, s)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		taken++
		require.GreaterOrEqual(t, d.Desired, 0)
		require.LessOrEqual(t, d.Desired, policy.MaxCount)
	}
	require.Greater(t, taken, 50)
}
