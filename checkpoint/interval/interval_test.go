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

// must returns the value of a call that is not to fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// waste is the plain oracle: what the exact waste minimises.
func waste(t, c, m float64) float64 { return math.Expm1((t+c)/m) / t }

// root finds the minimum by golden section.
func root(c, m float64) float64 {
	lo, hi := 1e-9*m, m
	g := (math.Sqrt(5) - 1) / 2
	for range 200 {
		a, b := hi-g*(hi-lo), lo+g*(hi-lo)
		if waste(a, c, m) < waste(b, c, m) {
			hi = b
		} else {
			lo = a
		}
	}
	return (lo + hi) / 2
}

func TestOptimumIsTheMinimumOfTheWaste(t *testing.T) {
	const m = float64(10 * time.Hour)
	for _, x := range []float64{1e-6, 1e-4, .01, .1, .3, .5, 1, 2, 5, 10} {
		got := must[time.Duration](t)(Optimum(time.Duration(x*m), 10*time.Hour))
		require.InEpsilon(t, root(x*m, m), float64(got), 2e-6, "C/M = %g", x)
	}
}

func TestPublishedDistancesFromTheOptimum(t *testing.T) {
	const between = 1000 * time.Hour
	m := float64(between)
	for _, c := range []struct{ ratio, daly, young, youngWaste float64 }{
		{.01, 0, .049, .0002},
		{.1, .0004, .167, .005},
		{.5, .0055, .43, .05},
		{1, .018, 0, 0},
		{2, .055, 0, 0},
	} {
		stall := time.Duration(c.ratio * m)
		best := must[time.Duration](t)(Optimum(stall, between))
		daly := must[time.Duration](t)(Daly(stall, between))
		if c.daly > 0 {
			require.InDelta(t, c.daly, math.Abs(float64(daly)/float64(best)-1), c.daly/8)
		}
		if c.young > 0 {
			young := must[time.Duration](t)(Young(stall, between))
			require.InDelta(t, c.young, float64(young)/float64(best)-1, c.young/30)
			more := waste(float64(young), float64(stall), m) / waste(float64(best), float64(stall), m)
			// The oracle's figure is of exp((T+C)/M)/T, whose least value is above 0.
			require.Less(t, more-1, 1.4*c.youngWaste)
		}
	}
}

func TestIntervalsRiseWithStallAndTimeBetweenFailures(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, f := range map[string]func(c, m time.Duration) (time.Duration, error){"young": Young, "optimum": Optimum} { // order cannot matter
		for range 3000 {
			c, m := log(r), log(r)+1
			base := must[time.Duration](t)(f(c, m))
			require.Positive(t, base)
			require.LessOrEqual(t, base, must[time.Duration](t)(f(c+log(r), m)), "%s %v %v", name, c, m)
			require.LessOrEqual(t, base, must[time.Duration](t)(f(c, m+log(r))), "%s %v %v", name, c, m)
		}
	}
}

// log draws a duration whose logarithm is uniform, up to a year.
func log(r *rand.Rand) time.Duration {
	return time.Duration(math.Exp(r.Float64() * math.Log(float64(365*24*time.Hour))))
}

func TestOwnLogarithmAndExponential(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		x := math.Exp(-40 * r.Float64())
		require.InDelta(t, math.Log(x), ln(x), 4e-15*(1+math.Abs(math.Log(x))))
		require.InEpsilon(t, math.Exp(-40*x), exp(-40*x), 1e-12)
		y := r.Float64() * .9
		require.InDelta(t, -math.Log1p(-y)-y, logGap(y), 1e-15)
	}
}

func TestWasteIsWhatASimulationLoses(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const interval, stall, restart, between = 30.0, 3.0, 5.0, 60.0
	takes, runs := 0.0, 200_000
	for range runs {
		for left := interval + stall; ; {
			fails := r.ExpFloat64() * between
			if fails >= left {
				takes += left
				break
			}
			takes += fails
			for { // a failure while restarting restarts again
				again := r.ExpFloat64() * between
				if again >= restart {
					break
				}
				takes += again
			}
			takes += restart
			left = interval + stall
		}
	}
	got := must[float64](t)(Waste(30*time.Minute, 3*time.Minute, 5*time.Minute, time.Hour))
	require.InDelta(t, 1-interval*float64(runs)/takes, got, .01)
}

func TestFailuresAdd(t *testing.T) {
	_, ok := Failures{}.Between()
	require.False(t, ok)
	m, ok := Failures{Unit: 1000 * time.Hour, Units: 100, Preempted: 10 * time.Hour}.Between()
	require.True(t, ok)
	require.Equal(t, 5*time.Hour, m)
}

func TestLevelsAgainstEveryRatio(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	loss := func(ls []Level, ts []float64) float64 {
		sum := 0.0
		for i, l := range ls {
			sum += float64(l.Stall)/ts[i] + ts[i]/2/float64(l.Between)
		}
		return sum
	}
	for range 200 {
		ls := make([]Level, 3)
		for i := range ls {
			scale := math.Pow(6, float64(i))
			ls[i] = Level{
				Stall:   time.Duration(scale * (1 + 5*r.Float64()) * float64(time.Second)),
				Between: time.Duration(scale * (1 + 5*r.Float64()) * float64(time.Hour)),
			}
		}
		got := must[[]time.Duration](t)(Levels(ls))
		best := math.Inf(1)
		for a := int64(1); a < 60; a++ {
			for b := int64(1); b < 60; b++ {
				x, y := parts(ls, []int64{1, a, b})
				best = min(best, math.Sqrt(2*x*y))
			}
		}
		ts := make([]float64, 3)
		for i, d := range got {
			ts[i] = float64(d)
			if i > 0 {
				require.Zero(t, d%got[i-1])
			}
		}
		require.InEpsilon(t, best, loss(ls, ts), 1e-3)
	}
}

func TestLevelsAtTheBounds(t *testing.T) {
	most := Level{Stall: lockstep.MaxWalltime, Between: lockstep.MaxWalltime}
	least := Level{Stall: 1, Between: 1}
	for _, ls := range [][]Level{{most, least}, {least, most}, {most, most, most, most, most, most, most, most}, {least, most, most}} {
		for _, d := range must[[]time.Duration](t)(Levels(ls)) {
			require.Positive(t, d)
			require.LessOrEqual(t, d, lockstep.MaxWalltime)
		}
	}
}

// The article's case: a save every two hours and a warning of 60 s.
func TestAWarningOfAMinuteAndASaveEveryTwoHours(t *testing.T) {
	chain := []Link{{Name: "scheduler", Grace: time.Minute}}
	need := Need{Save: 120 * time.Second, Step: time.Second}
	c := must[Contract](t)(Check(chain, need, 2*time.Hour))
	require.False(t, c.Feasible)
	require.Equal(t, ShortGrace, c.Reason)
	require.Equal(t, time.Hour, c.Expected)
	require.Equal(t, 2*time.Hour, c.Worst)
	require.Contains(t, c.Note().Detail, "1h0m0s on average")

	// With a preemption every four hours the policy brings it to what Daly gives.
	p := must[*Policy](t)(New(Config{Rule: ByDaly, Failures: Failures{Preempted: 4 * time.Hour}, Stall: 20 * time.Second}))
	a := must[Advice](t)(p.Advise("j"))
	daly := must[time.Duration](t)(Daly(20*time.Second, 4*time.Hour))
	require.Equal(t, daly, a.Interval)
	c = must[Contract](t)(Check(chain, need, a.Interval))
	require.Less(t, c.Expected, 7*time.Minute)

	// A save that fits loses a step at most.
	need.Save = 40 * time.Second
	c = must[Contract](t)(Check(chain, need, 2*time.Hour))
	require.True(t, c.Feasible)
	require.Equal(t, time.Second, c.Worst)
}

// pytorch/pytorch#119856: the launcher kills after 30 s whatever the scheduler grants.
func TestComplaint20LauncherIsPartOfTheChain(t *testing.T) {
	chain := []Link{{Name: "scheduler", Grace: 10 * time.Minute}, {Name: "kubelet", Grace: 5 * time.Minute, Spent: time.Minute}, {Name: "torchrun", Grace: 30 * time.Second}}
	c := must[Contract](t)(Check(chain, Need{Save: 30 * time.Second}, time.Hour))
	require.False(t, c.Feasible)
	require.Equal(t, "torchrun", c.Link)
	require.Equal(t, 30*time.Second, c.Grace)
	require.Equal(t, 37500*time.Millisecond, c.Need, "a quarter of margin")
}

func TestEmptyChainLeavesNothing(t *testing.T) {
	c := must[Contract](t)(Check(nil, Need{Save: 1}, 0))
	require.False(t, c.Feasible)
	require.Equal(t, lockstep.MaxWalltime, c.Worst)
	require.Contains(t, c.String(), "loses all work")
}

func TestNeedSaturates(t *testing.T) {
	n := Need{Signal: lockstep.MaxWalltime, Step: lockstep.MaxWalltime, Save: lockstep.MaxWalltime, Flush: lockstep.MaxWalltime, Margin: million}
	require.Equal(t, lockstep.MaxWalltime, n.Total())
	n = Need{Signal: math.MaxInt64, Step: math.MaxInt64, Save: math.MaxInt64, Flush: math.MaxInt64, Margin: math.MaxInt}
	require.Equal(t, lockstep.MaxWalltime, n.Total())
	require.Zero(t, Need{Signal: math.MinInt64, Save: -1, Margin: -5}.Total())
	require.Equal(t, 2*time.Nanosecond, Need{Save: 1}.Total(), "rounds up")
}

func TestCost(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := Progress{Saved: now.Add(-time.Hour), Save: time.Minute, Restore: 2 * time.Minute, Step: time.Second, Devices: 4000}
	require.Equal(t, lockstep.EvictionCost{Lost: time.Hour, Restore: 2 * time.Minute, Devices: 4000}, must[lockstep.EvictionCost](t)(Cost(now, p)))
	p.Contract.Feasible = true
	require.Equal(t, lockstep.EvictionCost{Lost: time.Second, Save: time.Minute, Restore: 2 * time.Minute, Devices: 4000}, must[lockstep.EvictionCost](t)(Cost(now, p)))
	_, err := Cost(p.Saved.Add(-1), p)
	require.ErrorIs(t, err, lockstep.ErrPast)
}

func TestPolicy(t *testing.T) {
	p := must[*Policy](t)(New(Config{}))
	a := must[Advice](t)(p.Advise("j"))
	require.Equal(t, lockstep.MaxWalltime, a.Interval, "nothing fails")
	require.Zero(t, a.Waste)

	p = must[*Policy](t)(New(Config{Failures: Failures{Unit: time.Minute}, Stall: time.Hour}))
	a = must[Advice](t)(p.Advise("j"))
	require.Equal(t, NoProgress, a.Reason)
	require.LessOrEqual(t, a.Interval, time.Minute)

	// One save at a time, and half of the storage: 10 minutes of writing every 20.
	p = must[*Policy](t)(New(Config{Failures: Failures{Unit: time.Hour}, Stall: time.Second, Write: 10 * time.Minute, Share: 500}))
	a = must[Advice](t)(p.Advise("j"))
	require.Equal(t, Clamped, a.Reason)
	require.Equal(t, 20*time.Minute-time.Second, a.Interval)
}

func TestAdviceIsSteady(t *testing.T) {
	p := must[*Policy](t)(New(Config{Failures: Failures{Unit: 10 * time.Hour}}))
	require.NoError(t, p.Saved(time.Minute))
	first := must[Advice](t)(p.Advise("j"))
	require.NoError(t, p.Saved(70*time.Second))
	require.Equal(t, first.Interval, must[Advice](t)(p.Advise("j")).Interval)
	for range 30 {
		require.NoError(t, p.Saved(5*time.Minute))
	}
	require.Greater(t, must[Advice](t)(p.Advise("j")).Interval, first.Interval)
	longest, ok := p.Longest(950)
	require.True(t, ok)
	require.Equal(t, 5*time.Minute, longest)
}

func TestAdviceKeepsItsBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 3000 {
		lo := log(r)
		cfg := Config{
			Failures: Failures{Unit: log(r), Units: r.IntN(1000), Preempted: log(r)}, Stall: log(r), Restart: log(r),
			Min: lo, Max: lo + log(r), Step: log(r), Write: log(r), Share: r.IntN(1001), Spread: r.IntN(501), Steady: r.IntN(1001),
		}
		if r.IntN(2) == 0 {
			cfg.Step, cfg.Write = 0, 0
		}
		p := must[*Policy](t)(New(cfg))
		for range 3 {
			a := must[Advice](t)(p.Advise("job"))
			busy := p.busy()
			require.Positive(t, a.Interval)
			require.GreaterOrEqual(t, a.Interval, min(max(cfg.Min, busy), lockstep.MaxWalltime-cfg.Step))
			require.LessOrEqual(t, a.Interval, max(cfg.Max, busy, time.Microsecond)+cfg.Step)
			if cfg.Step > 0 {
				require.Zero(t, a.Interval%cfg.Step)
			}
			require.False(t, math.IsNaN(a.Waste))
			require.NoError(t, p.Saved(log(r)))
		}
	}
}

func TestSpreadKeepsJobsApart(t *testing.T) {
	p := must[*Policy](t)(New(Config{Failures: Failures{Unit: 10 * time.Hour}, Stall: time.Minute, Spread: 200, NoSteady: true}))
	seen := map[time.Duration]bool{}
	for _, j := range []lockstep.JobID{"a", "b", "c", "d"} {
		a := must[Advice](t)(p.Advise(j))
		require.InDelta(t, .9, float64(a.Interval)/float64(a.Best), .1001)
		seen[a.Interval] = true
	}
	require.Len(t, seen, 4)
}

func TestSnapshot(t *testing.T) {
	cfg := Config{Failures: Failures{Unit: 10 * time.Hour}, Stall: time.Minute, Spread: 10}
	p := must[*Policy](t)(New(cfg))
	for i := range 100 {
		data := snapshottest.Save(t, p.Snapshot)
		back := must[*Policy](t)(Restore(bytesReader(data)))
		require.Equal(t, data, snapshottest.Save(t, back.Snapshot))
		for _, q := range []*Policy{p, back} {
			require.NoError(t, q.Saved(time.Duration(i)*time.Second))
		}
		require.Equal(t, must[Advice](t)(p.Advise("j")), must[Advice](t)(back.Advise("j")))
	}
}

func TestQuietestAgainstEveryMoment(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		const step = 1000 * time.Millisecond
		n := 40 + r.IntN(60)
		samples := make([]Sample, n)
		for i := range samples {
			at := time.Duration(i)*step/time.Duration(n) + step*time.Duration(r.IntN(3))
			samples[i] = Sample{At: at, Used: lockstep.Bytes(r.IntN(20))}
		}
		r.Shuffle(n, func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		pause := time.Duration(r.Int64N(int64(step) + 1))
		got := must[Moment](t)(Quietest(samples, step, pause))

		best := Moment{Used: -1}
		for _, s := range samples {
			off, most := s.At%step, lockstep.Bytes(0)
			for _, o := range samples {
				if d := (o.At%step - off + step) % step; d <= pause || (pause == step) {
					most = max(most, o.Used)
				}
			}
			if best.Used < 0 || most < best.Used || (most == best.Used && off < best.Offset) {
				best.Used, best.Offset = most, off
			}
		}
		require.Equal(t, best.Used, got.Used)
		require.Equal(t, best.Offset, got.Offset)
	}
}

func TestFlatMemoryIsSaidToBe(t *testing.T) {
	samples := make([]Sample, 32)
	for i := range samples {
		samples[i] = Sample{At: time.Duration(i) * time.Millisecond, Used: 80 << 30}
	}
	m := must[Moment](t)(Quietest(samples, 32*time.Millisecond, 0))
	require.True(t, m.Flat)
}
