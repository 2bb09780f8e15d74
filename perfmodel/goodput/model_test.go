package goodput

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// known is a job whose figures were worked out by hand.
func known(gamma float64) Config {
	return Config{
		Params:  Params{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: gamma},
		Noise:   Noise{Norm: 1, Variance: 4},
		Initial: 32,
	}
}

func TestGoodputOfKnownShapes(t *testing.T) {
	for _, tt := range []struct {
		shape               Shape
		step                time.Duration
		thr, eff, good, two float64 // two is the goodput with gamma 2
	}{
		{Shape{1, 1, 32, 0}, 370 * time.Millisecond, 86.486, 1, 86.486, 86.486},
		{Shape{1, 4, 32, 0}, 424 * time.Millisecond, 301.887, .625, 188.679, 213.950},
		{Shape{2, 4, 32, 0}, 590 * time.Millisecond, 216.949, .625, 135.593, 185.846},
		{Shape{1, 4, 8, 0}, 184 * time.Millisecond, 173.913, 1, 173.913, 227.322},
	} {
		one, err := New(known(1))
		require.NoError(t, err)
		two, err := New(known(2))
		require.NoError(t, err)
		require.Equal(t, tt.step, one.StepTime(tt.shape))
		require.InDelta(t, tt.thr, one.Throughput(tt.shape), .0005)
		require.InDelta(t, tt.eff, one.Efficiency(tt.shape.Samples()), 1e-12)
		require.InDelta(t, tt.good, one.Goodput(tt.shape), .0005)
		require.InDelta(t, tt.two, two.Goodput(tt.shape), .0005)
	}
}

func TestOverlapTurnsTheBestBatchAround(t *testing.T) {
	best := func(gamma float64) float64 {
		m, err := New(known(gamma))
		require.NoError(t, err)
		return m.Goodput(Shape{1, 4, 32, 0}) - m.Goodput(Shape{1, 4, 8, 0})
	}
	require.Positive(t, best(1), "without overlap 128 samples beat 32")
	require.Negative(t, best(2), "with overlap they do not")
}

func TestEfficiencyIsThatOfTheNoiseScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		cfg := known(1)
		cfg.Initial = 1 + rng.Int64N(1000)
		cfg.Noise = Noise{Norm: rng.Float64() + 1e-3, Variance: 100 * rng.Float64()}
		m, err := New(cfg)
		require.NoError(t, err)
		phi := float64(cfg.Initial) * cfg.Noise.Variance / cfg.Noise.Norm
		n := 1 + rng.Int64N(100_000)
		require.InEpsilon(t, (phi+float64(cfg.Initial))/(phi+float64(n)), m.Efficiency(n), 1e-12)
	}
	unknown, err := New(Config{Params: known(1).Params, Initial: 32})
	require.NoError(t, err)
	require.Equal(t, .25, unknown.Efficiency(128), "samples beyond the initial batch count for nothing")
	noisy, err := New(Config{Params: known(1).Params, Initial: 32, Noise: Noise{Variance: 1}})
	require.NoError(t, err)
	require.Equal(t, 1., noisy.Efficiency(1<<30), "pure noise: every sample counts")
}

// slow is Best by trying everything.
func slow(m *Model, nodes, gpus int) (best Choice, ok bool) {
	l := m.cfg.Limits
	for k := int64(1); k*int64(gpus) <= l.MaxSamples; k++ {
		if k > 1 && !l.Accumulate {
			break
		}
		for b := l.MinBatch; b <= l.MaxBatch; b++ {
			s := Shape{nodes, gpus, b, k - 1}
			n := s.Samples()
			if n < m.cfg.Initial || n > l.MaxSamples {
				continue
			}
			fewer := (b*k + l.MaxBatch - 1) / l.MaxBatch // passes that would do
			if l.Accumulate && gpus == 1 && n > m.cfg.Initial {
				fewer = max(fewer, 2)
			}
			if k != fewer {
				continue
			}
			if g := m.Goodput(s); !ok || g > best.Goodput {
				best, ok = Choice{s, m.Throughput(s), m.Efficiency(n), g}, true
			}
		}
	}
	return best, ok
}

func TestBestIsTheBestOfAll(t *testing.T) {
	rounds := 6000
	if testing.Short() {
		rounds = 600
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range rounds {
		cfg := Config{
			Params: Params{
				Compute: Linear{rng.Float64() * .2, rng.Float64() * .02},
				Local:   Linear{rng.Float64() * .2, rng.Float64() * .02},
				Remote:  Linear{rng.Float64(), rng.Float64() * .1},
				Gamma:   1 + 9*rng.Float64()*float64(rng.IntN(2)),
			},
			Noise:   Noise{Norm: rng.Float64(), Variance: 100 * rng.Float64() * rng.Float64()},
			Initial: 1 + rng.Int64N(40),
		}
		cfg.Limits = Limits{MaxSamples: cfg.Initial + rng.Int64N(300), Accumulate: rng.IntN(3) > 0}
		if rng.IntN(3) > 0 {
			cfg.Limits.MaxBatch = 1 + rng.Int64N(40)
			cfg.Limits.MinBatch = rng.Int64N(min(cfg.Limits.MaxBatch, cfg.Limits.MaxSamples) + 1)
		}
		m, err := New(cfg)
		require.NoError(t, err)
		gpus := 1 + rng.IntN(20)
		nodes := 1 + rng.IntN(min(gpus, 4))
		want, ok := slow(m, nodes, gpus)
		got, found := m.Best(nodes, gpus)
		require.Equal(t, ok, found, "round %d", i)
		if !ok {
			continue
		}
		require.InEpsilon(t, want.Goodput, got.Goodput, 1.1e-6, "round %d: %+v on %d/%d: %+v, %+v", i, cfg, nodes, gpus, want, got)
		n := got.Shape.Samples()
		require.GreaterOrEqual(t, n, m.cfg.Initial)
		require.LessOrEqual(t, n, m.cfg.Limits.MaxSamples)
		require.LessOrEqual(t, got.Shape.Batch, m.cfg.Limits.MaxBatch)
		require.GreaterOrEqual(t, got.Shape.Batch, m.cfg.Limits.MinBatch)
		require.InEpsilon(t, got.Goodput, got.Throughput*got.Efficiency, 1e-12)
	}
}

func TestBestIsQuickWhereThereIsMuchToTry(t *testing.T) {
	cfg := known(2)
	cfg.Limits = Limits{MaxSamples: maxBatch, MaxBatch: 1, Accumulate: true}
	m, err := New(cfg)
	require.NoError(t, err)
	c, ok := m.Best(1, 1)
	require.True(t, ok)
	require.Equal(t, int64(1), c.Shape.Batch)
	require.Zero(t, testing.AllocsPerRun(10, func() { m.Best(4, 16) }))
}

func TestSpeedup(t *testing.T) {
	cfg := known(1)
	cfg.Limits = Limits{MaxSamples: 2048, MaxBatch: 64, Accumulate: true}
	m, err := New(cfg)
	require.NoError(t, err)
	one, ok := m.Speedup(1, 1)
	require.True(t, ok)
	require.Equal(t, 1., one)
	four, ok := m.Speedup(1, 4)
	require.True(t, ok)
	apart, ok := m.Speedup(2, 4)
	require.True(t, ok)
	require.Greater(t, four, apart)
	require.Greater(t, four, 1.)

	cfg.Limits = Limits{MaxBatch: 16} // the initial batch does not fit on one GPU
	m, err = New(cfg)
	require.NoError(t, err)
	_, ok = m.Speedup(1, 1)
	require.False(t, ok)
	_, ok = m.Speedup(1, 4)
	require.False(t, ok)
	_, ok = m.Best(1, 4)
	require.True(t, ok)
	for _, n := range [][2]int{{0, 1}, {2, 1}, {1, 0}, {-1, -1}, {1, maxGPUs + 1}, {1, 33}} {
		_, ok := m.Best(n[0], n[1])
		require.False(t, ok, "%v", n)
	}
}

func TestShapesThatCannotBeMakeNoProgress(t *testing.T) {
	m, err := New(known(1))
	require.NoError(t, err)
	for _, s := range []Shape{
		{},
		{0, 1, 1, 0},
		{2, 1, 1, 0},
		{1, 1, 0, 0},
		{1, 1, 1, -1},
		{1, maxGPUs + 1, 1, 0},
		{1, 1, maxBatch + 1, 0},
		{1, 1, 1, maxBatch},
		{1, 1, maxBatch, 1},
		{math.MinInt, math.MinInt, math.MinInt64, math.MinInt64},
		{1, 1, math.MaxInt64, math.MaxInt64},
	} {
		require.Zero(t, m.StepTime(s))
		require.Zero(t, m.Throughput(s))
		require.Zero(t, m.Goodput(s))
	}
	require.Zero(t, m.Efficiency(0))
	slow, err := New(Config{Params: Params{Compute: Linear{maxSeconds, maxSeconds}}})
	require.NoError(t, err)
	require.Equal(t, time.Duration(math.MaxInt64), slow.StepTime(Shape{1, 1, maxBatch, 0}))
}

// fields returns the fields that err says are wrong.
func fields(t *testing.T, err error) (out []string) {
	t.Helper()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	for _, err := range joined.Unwrap() {
		var e *lockstep.Error
		require.True(t, errors.As(err, &e))
		require.NotEmpty(t, e.Error())
		out = append(out, e.Field)
	}
	return out
}

func TestBadInputIsNamed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	_, err := New(Config{
		Params:  Params{Compute: Linear{-1, nan}, Local: Linear{inf, -inf}, Gamma: .5},
		Noise:   Noise{Norm: -1, Variance: nan},
		Initial: -1,
		Limits:  Limits{MaxSamples: -1, MinBatch: 3, MaxBatch: -2},
	})
	require.Equal(t, []string{
		"Params.Compute.Alpha", "Params.Compute.Beta", "Params.Local.Alpha", "Params.Local.Beta", "Params.Gamma", "Noise.Norm", "Noise.Variance", "Initial",
		"Limits.MaxSamples", "Limits.MaxBatch", "Limits.MinBatch",
	}, fields(t, err))
	_, err = New(Config{})
	require.Equal(t, []string{"Params.Compute"}, fields(t, err))
	require.Equal(t, []string{"Compute", "Gamma"}, fields(t, Params{Gamma: 11}.Validate()))
	require.NoError(t, Params{Compute: Linear{1, 0}}.Validate())

	_, err = FitParams(nil)
	require.Equal(t, []string{"samples"}, fields(t, err))
	_, err = FitParams([]Sample{{Step: -1, Compute: 1}, {Shape: Shape{1, 1, 1, 0}, Step: 5, Compute: 6}})
	require.Equal(t, []string{"samples[0].Shape", "samples[0].Step", "samples[0].Compute", "samples[1].Compute"}, fields(t, err))

	_, err = NewTable(nil)
	require.Equal(t, []string{"points"}, fields(t, err))
	_, err = NewTable([]Point{{0, nan, -1}, {1, 0, inf}, {1, inf, 1}})
	require.Equal(t, []string{"points[0].GPUs", "points[0].Rate", "points[0].Weight", "points[1].Rate", "points[1].Weight", "points[2].Rate"}, fields(t, err))
	_, _, err = FitCurve([]Point{{-1, 1, 0}})
	require.Equal(t, []string{"points[0].GPUs"}, fields(t, err))
	var many []Point
	for n := range 65 {
		many = append(many, Point{n + 1, 1, 0})
	}
	_, err = NewTable(many)
	require.Equal(t, []string{"points"}, fields(t, err))
}

func TestPowerMean(t *testing.T) {
	for _, tt := range []struct {
		p, want float64
		xs      []float64
	}{
		{-1, 2, []float64{2, 2, 2, 2}},
		{-1, 16. / 11, []float64{4, 2, 1, 1}},
		{-1, 1.5, []float64{3, 3, 1, 1}},
		{1, 2, []float64{4, 2, 1, 1}},
		{0, 2, []float64{1, 4}},
		{-1, 0, []float64{0, 5}},
		{0, 0, []float64{0, 5}},
		{1, 2.5, []float64{0, 5}},
		{2, 0, []float64{0, 0}},
		{-300, 1e-200, []float64{1e-200, 1e200}},
	} {
		got, ok := PowerMean(tt.p, tt.xs)
		require.True(t, ok)
		require.InDelta(t, tt.want, got, 1e-2*tt.want+1e-300, "%v", tt)
		if tt.p == -1 {
			require.InDelta(t, tt.want, got, 1e-12)
		}
	}
	for _, xs := range [][]float64{nil, {-1}, {math.NaN()}, {math.Inf(1)}} {
		_, ok := PowerMean(-1, xs)
		require.False(t, ok)
	}
	_, ok := PowerMean(math.NaN(), []float64{1})
	require.False(t, ok)
}

func TestRestartFactor(t *testing.T) {
	const delay = 30 * time.Second
	require.InDelta(t, .857, RestartFactor(600*time.Second, 2, delay), .0005)
	require.InDelta(t, .667, RestartFactor(60*time.Second, 0, delay), .0005)
	require.Zero(t, RestartFactor(60*time.Second, 3, delay))
	require.Zero(t, RestartFactor(0, 0, 0))
	require.Zero(t, RestartFactor(-1, 0, delay))
	require.Zero(t, RestartFactor(1, -1, delay))
	require.Zero(t, RestartFactor(1, 1, -delay))
	require.Equal(t, 1., RestartFactor(time.Second, 5, 0))
}

func TestPointsMakeATable(t *testing.T) {
	cfg := known(1)
	cfg.Limits = Limits{MaxSamples: 2048, MaxBatch: 64, Accumulate: true}
	m, err := New(cfg)
	require.NoError(t, err)
	points := m.Points(4, 100)
	require.Len(t, points, 64)
	for _, p := range points {
		c, ok := m.Best((p.GPUs+3)/4, p.GPUs)
		require.True(t, ok)
		require.Equal(t, c.Goodput, p.Rate)
	}
	tab := table(t, points)
	require.Less(t, tab.Error(), .1)
	require.Nil(t, m.Points(0, 5))
	require.Nil(t, m.Points(5, 0))
	cfg.Limits = Limits{MaxBatch: 16}
	m, err = New(cfg)
	require.NoError(t, err)
	require.Equal(t, 2, m.Points(8, 4)[0].GPUs, "the initial batch does not fit on one GPU")
}
