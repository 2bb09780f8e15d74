package interval

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// TestLinksAndNeedsThatWereNotChecked: Left, Shortest and Total take any value, as they return no error.
func TestLinksAndNeedsThatWereNotChecked(t *testing.T) {
	for _, l := range []Link{{Grace: math.MinInt64, Spent: 1}, {Grace: -1, Spent: math.MaxInt64}, {Grace: math.MinInt64, Spent: math.MaxInt64}, {Grace: 5, Spent: 6}} {
		require.Zero(t, l.Left(), "%+v", l)
	}
	require.Equal(t, time.Duration(math.MaxInt64), Link{Grace: math.MaxInt64, Spent: math.MinInt64}.Left())
	for _, margin := range []int{-1, math.MinInt, math.MaxInt} {
		for _, d := range []time.Duration{-1, 0, time.Second, math.MaxInt64, math.MinInt64} {
			total := Need{Signal: d, Step: d, Save: d, Flush: d, Margin: margin}.Total()
			require.GreaterOrEqual(t, total, time.Duration(0))
			require.LessOrEqual(t, total, lockstep.MaxWalltime)
			require.GreaterOrEqual(t, total, min(max(d, 0), lockstep.MaxWalltime), "no less than a part")
		}
	}
}

// TestWholeStepsComeBeforeBounds: where no whole step is within them.
func TestWholeStepsComeBeforeBounds(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want time.Duration
	}{
		{Config{Step: 8 * time.Second, Max: 7 * time.Second}, 8 * time.Second},
		{Config{Step: 4 * time.Second, Min: 5 * time.Second, Max: 7 * time.Second}, 8 * time.Second},
		{Config{Step: 4 * time.Second, Max: 7 * time.Second}, 4 * time.Second},
		{Config{Step: 7 * time.Hour, Min: lockstep.MaxWalltime}, lockstep.MaxWalltime - lockstep.MaxWalltime%(7*time.Hour)},
	} {
		p, err := New(c.cfg)
		require.NoError(t, err)
		a, err := p.Advise("job")
		require.NoError(t, err)
		require.Equal(t, c.want, a.Interval)
	}
}

// TestAdviceOfAnyConfigKeepsItsBounds draws configurations from both ends of what is valid, and saves and restores on the way.
func TestAdviceOfAnyConfigKeepsItsBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	span := func() time.Duration {
		return []time.Duration{0, 0, 1, time.Microsecond, time.Second, 7 * time.Second, time.Hour, lockstep.MaxWalltime / 3, lockstep.MaxWalltime - 1, lockstep.MaxWalltime}[r.IntN(10)]
	}
	share := func(most int) int { return []int{0, 1, most / 2, most}[r.IntN(4)] }
	valid := 0
	for range 4_000 {
		cfg := Config{
			Rule: []Rule{ByOptimum, ByDaly, ByYoung}[r.IntN(3)], Failures: Failures{Unit: span(), Units: []int{0, 1, 1 << 30}[r.IntN(3)], Preempted: span()},
			Stall: span(), Restart: span(), Min: span(), Max: span(), Step: span(), Write: span(), Share: share(1000), Smooth: share(1000), Steady: share(1000), Spread: share(500), NoSteady: r.IntN(4) == 0,
		}
		p, err := New(cfg)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		valid++
		for range 3 {
			a, err := p.Advise("job")
			require.NoError(t, err)
			require.Positive(t, a.Interval, "%+v", cfg)
			require.LessOrEqual(t, a.Interval, lockstep.MaxWalltime, "%+v", cfg)
			require.True(t, a.Waste >= 0 && a.Waste <= 1, "%+v", cfg)
			require.GreaterOrEqual(t, a.Interval, min(cfg.Min, lockstep.MaxWalltime-cfg.Step), "%+v", cfg)
			if lo := max(cfg.Min, p.busy(), time.Microsecond); cfg.Max != 0 && lo <= cfg.Max-cfg.Step {
				require.LessOrEqual(t, a.Interval, cfg.Max, "%+v", cfg)
			}
			if cfg.Step > 0 {
				require.Zero(t, a.Interval%cfg.Step, "%+v", cfg)
			}
			data := snapshottest.Save(t, p.Snapshot)
			p, err = Restore(bytesReader(data))
			require.NoError(t, err, "%+v", cfg)
			require.Equal(t, data, snapshottest.Save(t, p.Snapshot))
			require.NoError(t, p.Saved(span()))
		}
	}
	require.Greater(t, valid, 400)
}

// TestIntervalsRiseWithStallAndTime on a grid from end to end; the doc names Daly's exception.
func TestIntervalsRiseWithStallAndTime(t *testing.T) {
	grid := []time.Duration{1, time.Microsecond, time.Millisecond, time.Second}
	for d := 2 * time.Second; d < lockstep.MaxWalltime; d += d / 3 {
		grid = append(grid, d)
	}
	grid = append(grid, lockstep.MaxWalltime)
	for name, f := range map[string]func(c, m time.Duration) (time.Duration, error){"optimum": Optimum, "young": Young, "daly": Daly} { // each by itself
		for i, c := range grid {
			for k, m := range grid {
				got, err := f(c, m)
				require.NoError(t, err)
				require.True(t, got > 0 && got <= lockstep.MaxWalltime)
				if name != "young" {
					require.LessOrEqual(t, got, max(m+time.Microsecond/2, time.Microsecond), "%s %v %v", name, c, m)
				}
				if i > 0 {
					less, err := f(grid[i-1], m)
					require.NoError(t, err)
					require.LessOrEqual(t, less, got, "%s: stall %v, between %v", name, c, m)
				}
				if k > 0 && (name != "daly" || c < 2*grid[k-1]) {
					less, err := f(c, grid[k-1])
					require.NoError(t, err)
					require.LessOrEqual(t, less, got, "%s: stall %v, between %v", name, c, m)
				}
			}
		}
	}
}

// TestLevelsAreWholeMultiplesAtAnyLength: where the bound of a duration cuts one short, too. With a search that goes by
// ones it takes minutes, and else a second.
func TestLevelsAreWholeMultiplesAtAnyLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	span := func() time.Duration {
		return max(time.Duration(math.Exp(r.Float64()*math.Log(float64(lockstep.MaxWalltime)))), 1)
	}
	for range 800 {
		levels := make([]Level, 1+r.IntN(maxLevels))
		for i := range levels {
			levels[i] = Level{span(), span()}
			if r.IntN(3) == 0 {
				levels[i] = Level{lockstep.MaxWalltime / time.Duration(1+r.IntN(9)), lockstep.MaxWalltime / time.Duration(1+r.IntN(9))}
			}
		}
		got, err := Levels(levels)
		require.NoError(t, err)
		for i, d := range got {
			require.Positive(t, d)
			require.LessOrEqual(t, d, lockstep.MaxWalltime)
			if i > 0 {
				require.Zero(t, d%got[i-1], "%v of %+v", got, levels)
			}
		}
	}
}

func TestNamesInErrorsAreCut(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	before := snapshottest.Save(t, p.Snapshot)
	long := make([]byte, 5000)
	_, err = p.Advise(lockstep.JobID(long))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Less(t, len(err.Error()), 500)
	require.Equal(t, before, snapshottest.Save(t, p.Snapshot))
}
