package pipeline

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// plainSlowed runs l with every op of a stage x times as long, in thousandths of a nanosecond.
func plainSlowed(t testing.TB, l *Line, c *Costs, stage int, x Factor) time.Duration {
	t.Helper()
	scaled := Costs{Send: times(c.Send, 1000), Return: times(c.Return, 1000), Across: 1000 * c.Across}
	wide := func(of []time.Duration) []time.Duration {
		if len(of) == len(l.next) {
			out := make([]time.Duration, 0, len(of)*l.cfg.Micros)
			for _, d := range of {
				out = append(out, fill(l.cfg.Micros, d)...)
			}
			of = out
		}
		return times(of, 1000)
	}
	scaled.Forward, scaled.Backward, scaled.Weight = wide(c.Forward), wide(c.Backward), wide(c.Weight)
	for i, op := range l.Order(stage) {
		at := l.base[stage] + 1 + int32(i)
		of := [][]time.Duration{scaled.Forward, scaled.Backward, scaled.Weight}[op.Kind]
		of[l.full[at]] = of[l.full[at]] / 1000 * time.Duration(x)
		if op.Kind == Backward && c.Weight != nil && !l.splitAt(at) {
			scaled.Weight[l.full[at]] = scaled.Weight[l.full[at]] / 1000 * time.Duration(x)
		}
	}
	var r Result
	require.NoError(t, l.Run(&scaled, &r))
	return (r.Makespan + 500) / 1000
}

func times(of []time.Duration, by time.Duration) []time.Duration {
	if of == nil {
		return nil
	}
	out := make([]time.Duration, len(of))
	for i := range of {
		out[i] = of[i] * by
	}
	return out
}

func TestSlowedEqualsARunWithTheStageSlowed(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 9))
	var r Result
	for round := range 400 {
		cfg := shuffled(rng, 0)
		if round%2 == 0 {
			p := 1 + rng.IntN(6)
			cfg = Config{Schedule: Schedule(rng.IntN(5)), Stages: p, Micros: p * (1 + rng.IntN(3))}
		}
		l, err := New(cfg)
		require.NoError(t, err)
		c := drawn(l, rng, []int64{1, 5, 1000}[rng.IntN(3)])
		if rng.IntN(3) == 0 {
			c = l.Uniform(time.Duration(rng.IntN(9)), time.Duration(rng.IntN(9)), time.Duration(btoi(l.splits)*rng.IntN(9)))
		}
		require.NoError(t, l.Run(&c, &r))
		stage := rng.IntN(l.Stages())
		factors := make([]Factor, rng.IntN(12))
		for i := range factors {
			factors[i] = []Factor{Factor(rng.IntN(3000)), Factor(1000 + rng.IntN(100)), Factor(10 * rng.IntN(150)), Same, 0, MaxFactor}[rng.IntN(6)]
		}
		got, err := r.AppendSlowed([]time.Duration{-7}, stage, factors...)
		require.NoError(t, err)
		require.Len(t, got, 1+len(factors))
		require.Equal(t, time.Duration(-7), got[0])
		for i, x := range factors {
			require.Equal(t, plainSlowed(t, l, &c, stage, x), got[1+i], "%+v stage %d factor %d of %v", cfg, stage, x, factors)
		}
	}
}

// Times as long as may be: nothing may pass the range on the way to a result that does not.
func TestSlowedIsExactUpToTheEndOfTheRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 17))
	var r Result
	for range 200 {
		p := 1 + rng.IntN(4)
		l, err := New(Config{Schedule: Schedule(rng.IntN(5)), Stages: p, Micros: p * (1 + rng.IntN(3))})
		require.NoError(t, err)
		c := drawn(l, rng, 1000)
		require.NoError(t, l.Run(&c, &r))
		unit := math.MaxInt64 / 2 / 1000 / max(1, r.Makespan)
		for _, of := range [][]time.Duration{c.Forward, c.Backward, c.Weight, c.Send, c.Return} {
			copy(of, times(of, unit))
		}
		require.NoError(t, l.Run(&c, &r))
		stage, factors := rng.IntN(p), []Factor{0, 3, 500, Same, 1001, 1000}
		got, err := r.AppendSlowed(nil, stage, factors...)
		if int64(r.Busy[stage]) > math.MaxInt64/2/1001 { // nearly all of the iteration
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		require.NoError(t, err)
		for i, x := range factors {
			require.Equal(t, plainSlowed(t, l, &c, stage, x), got[i])
		}
	}
}

func TestLinesSpareEvaluations(t *testing.T) {
	l, r := equal(t, Config{Stages: 16, Micros: 64}, 1_000_003, 2_000_005, 0, 1_007)
	factors := make([]Factor, 40)
	for i := range factors {
		factors[i] = Same + Factor(25*i)
	}
	for s := range l.Stages() {
		_, err := r.AppendSlowed(nil, s, factors...)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, r.slow.passes, 3*l.Stages(), "of ten passes a stage")
	passes := r.slow.passes
	_, err := r.AppendSlowed(nil, 3, Same, Same)
	require.NoError(t, err)
	require.Equal(t, passes, r.slow.passes, "a factor that changes nothing is known")
}

func TestSlowedRefusesWhatItCannotTell(t *testing.T) {
	var none Result
	_, err := none.AppendSlowed(nil, 0, Same)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, r := equal(t, Config{Stages: 2, Micros: 2}, 1, 1, 0, 0)
	for _, stage := range []int{-1, 2} {
		_, err = r.AppendSlowed(nil, stage, Same)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	for _, x := range []Factor{-1, MaxFactor + 1, math.MaxInt64, math.MinInt64} {
		got, err := r.AppendSlowed([]time.Duration{5}, 0, Same, x)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, []time.Duration{5}, got)
	}
	_, r = equal(t, Config{Stages: 1, Micros: 1}, math.MaxInt64/2, 1, 0, 0)
	_, err = r.AppendSlowed(nil, 0, Same)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, r = equal(t, Config{Stages: 1, Micros: 1}, math.MaxInt64/1_000_000, 1, 0, 0)
	_, err = r.AppendSlowed(nil, 0, MaxFactor)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = r.AppendSlowed(nil, 0, Same)
	require.NoError(t, err)
}
