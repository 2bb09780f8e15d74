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
	for range 8_000 {
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
	require.Greater(t, taken, 20)
}

// TestConstantWorkComesToRestUnderAnyConfig: a host that follows at once, and calls again at Wake.
func TestConstantWorkComesToRestUnderAnyConfig(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	span := func() time.Duration { return time.Duration(pick(0, 0, 1, 10, 60)) * time.Second }
	tried := 0
	for range 3000 {
		cfg := Config{
			Each: 1 + r.IntN(4), Spare: r.IntN(3), TakeBusy: r.IntN(2) == 0,
			Hysteresis:  policy.Hysteresis{UpFraction: float64(r.IntN(3)) / 10, DownFraction: float64(r.IntN(3)) / 10},
			Delayed:     policy.Delayed{Up: span(), Down: span()},
			RateLimited: policy.RateLimited{Interval: span(), UpAmount: pick(0, 1, 4), DownAmount: pick(0, 1, 4), UpFactor: float64(pick(0, 2)), DownFactor: float64(pick(0, 2))},
			Cooldown:    policy.Cooldown{Up: span(), Down: span()},
			Bounded:     policy.Bounded{Min: pick(0, 1, 3), Max: pick(0, 20, 40), Step: pick(0, 1, 4), PowersOfTwo: r.IntN(6) == 0},
		}
		if cfg.Validate() != nil {
			continue
		}
		tried++
		have, work, now := r.IntN(50), r.IntN(100), t0
		var s State
		var d Decision
		changes, rest := 0, 0
		for rest < 20 {
			running := min(work, have*cfg.Each)
			c := Counts{Pending: work - running, Running: running, Ready: have, Idle: have - (running+cfg.Each-1)/cfg.Each}
			d, s = next(t, now, cfg, c, s)
			rest++
			if d.Desired != have {
				have, rest = d.Desired, 0
				changes++
				require.Less(t, changes, 500, "%+v with %d pieces of work", cfg, work)
			}
			if now = now.Add(2 * time.Minute); !d.Wake.IsZero() {
				now = d.Wake
			}
		}
		if cfg.Bounded == (policy.Bounded{}) && cfg.Hysteresis == (policy.Hysteresis{}) {
			require.Equal(t, d.Wish.Ceil(), have, "%+v", cfg)
		}
	}
	require.Greater(t, tried, 500)
}
