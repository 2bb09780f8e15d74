package goodput

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestTablesOfExtremeFiguresAreNumbers(t *testing.T) {
	for seed := range uint64(800) {
		rng := rand.New(rand.NewPCG(seed, 5))
		extreme := func() float64 {
			return []float64{1 / maxRate, maxRate, 1, 1 + rng.Float64(), math.Pow(10, 100*rng.Float64()-50)}[rng.IntN(5)]
		}
		points := make([]Point, 1+rng.IntN(6))
		for i := range points {
			points[i] = Point{GPUs: 1 + rng.IntN(6), Rate: extreme(), Weight: extreme() * float64(rng.IntN(2))}
		}
		if rng.IntN(4) == 0 {
			points[0].GPUs = maxGPUs
		}
		table, err := NewTable(points)
		require.NoError(t, err)
		last := 0.0
		for _, n := range []int{1, 2, 3, 4, 5, 6, 7, maxGPUs, math.MaxInt} {
			rate, _ := table.Rate(n)
			require.True(t, rate > 0 && rate <= maxRate*float64(maxGPUs), "%v at %d: %v", points, n, rate)
			require.GreaterOrEqual(t, rate, last*(1-1e-9), "%v", points)
			last = rate
			x, _ := table.Speedup(n)
			require.True(t, x > 0 && x <= float64(n)*(1+1e-9), "%v at %d: %v", points, n, x)
			require.GreaterOrEqual(t, table.Saved(n, time.Hour), time.Duration(0))
		}
		c, miss, err := FitCurve(points)
		require.NoError(t, err)
		for _, v := range []float64{c.Parallel, c.Serial, c.Each, miss} {
			require.True(t, v >= 0 && v <= math.MaxFloat64, "%v: %+v %v", points, c, miss)
		}
	}
}

func TestFiguresOutOfRangeAreRefused(t *testing.T) {
	for _, p := range []Point{
		{1, 5e-324, 0},
		{1, 1e51, 0},
		{1, 0, 0},
		{1, -1, 0},
		{1, math.NaN(), 0},
		{1, math.Inf(1), 0},
		{1, 1, 5e-324},
		{1, 1, 1e51},
		{1, 1, -1},
		{1, 1, math.NaN()},
		{0, 1, 0},
		{maxGPUs + 1, 1, 0},
	} {
		_, err := NewTable([]Point{p})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%+v", p)
		_, _, err = FitCurve([]Point{p})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%+v", p)
	}
	for _, l := range []Linear{{}, {Alpha: 5e-324}, {Beta: 1e-13}, {Alpha: math.NaN()}, {Beta: math.Inf(1)}, {Alpha: -1, Beta: 2}} {
		require.ErrorIs(t, Params{Compute: l}.Validate(), lockstep.ErrInvalid, "%+v", l)
	}
}

func TestModelsOfExtremeFiguresAreNumbers(t *testing.T) {
	for seed := range uint64(800) {
		rng := rand.New(rand.NewPCG(seed, 6))
		coefficient := func() float64 { return []float64{0, minPass, maxSeconds, rng.Float64()}[rng.IntN(4)] }
		noise := func() float64 { return []float64{0, 5e-324, maxFigure, rng.Float64()}[rng.IntN(4)] }
		batch := func() int64 { return []int64{1, maxBatch, 1 + rng.Int64N(1000)}[rng.IntN(3)] }
		m, err := New(Config{
			Params: Params{
				Compute: Linear{coefficient() + minPass/2, coefficient() + minPass/2}, Local: Linear{coefficient(), coefficient()},
				Remote: Linear{coefficient(), coefficient()}, Gamma: []float64{0, 1, maxGamma, 1 + rng.Float64()}[rng.IntN(4)],
			},
			Noise: Noise{noise(), noise()}, Initial: batch(), Limits: Limits{MaxSamples: maxBatch, MaxBatch: batch(), Accumulate: rng.IntN(2) == 0},
		})
		if err != nil {
			continue // a batch above another
		}
		for _, gpus := range []int{1, 2, 3, 64, maxGPUs} {
			c, ok := m.Best(1+rng.IntN(gpus), gpus)
			if !ok {
				continue
			}
			require.True(t, c.Goodput >= 1/maxRate && c.Goodput <= maxRate, "%+v", c)
			require.True(t, c.Efficiency > 0 && c.Efficiency <= 1, "%+v", c)
			require.LessOrEqual(t, c.Shape.Samples(), int64(maxBatch))
		}
		for _, n := range []int64{1, m.cfg.Initial, maxBatch, math.MaxInt64} {
			e := m.Efficiency(n)
			require.True(t, e > 0 && e <= math.MaxFloat64, "%+v of %d: %v", m.cfg, n, e)
		}
	}
}

func TestFitOfGarbageIsValid(t *testing.T) {
	runs := 150
	if testing.Short() {
		runs = 60
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 7))
		anything := func(most int64) int64 { return int64(math.Exp(rng.Float64() * math.Log(float64(most)))) }
		var samples []Sample
		for range 1 + rng.IntN(6) {
			s := Sample{Step: time.Duration(anything(int64(lockstep.MaxWalltime)))}
			s.Shape.GPUs = 1 + rng.IntN(8)
			s.Shape.Nodes, s.Shape.Batch, s.Shape.Accumulate = 1+rng.IntN(s.Shape.GPUs), anything(1<<30), rng.Int64N(3)
			if rng.IntN(2) == 0 {
				s.Compute = time.Duration(rng.Int64N(int64(s.Step) + 1))
			}
			samples = append(samples, s)
		}
		fit, err := FitParams(samples)
		require.NoError(t, err)
		require.NoError(t, fit.Params.Validate(), "%+v", samples)
		_, err = json.Marshal(fit) // which takes no figure that is not a number
		require.NoError(t, err)
	}
}

// allowed returns the goodput of each shape that Best may choose, by its samples.
func allowed(m *Model, nodes, gpus int) map[int64]float64 {
	all := map[int64]float64{}
	l, n := m.cfg.Limits, int64(gpus)
	for each := (m.cfg.Initial + n - 1) / n; each <= l.MaxSamples/n; each++ {
		passes := (each + l.MaxBatch - 1) / l.MaxBatch
		if gpus == 1 && each > m.cfg.Initial && l.Accumulate {
			passes = max(passes, 2)
		}
		if each%passes == 0 && each/passes >= l.MinBatch && (passes == 1 || l.Accumulate) {
			s := Shape{Nodes: nodes, GPUs: gpus, Batch: each / passes, Accumulate: passes - 1}
			all[s.Samples()] = m.Goodput(s)
		}
	}
	return all
}

func TestBestComesOfAllShapesThatAreAllowed(t *testing.T) {
	runs := 1500
	if testing.Short() {
		runs = 500
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 8))
		e := func() float64 { return math.Exp(rng.Float64()*14 - 10) }
		cfg := Config{
			Params:  Params{Linear{e(), e() / 10}, Linear{e(), e() / 10}, Linear{e(), e() / 10}, 1 + 9*rng.Float64()*float64(rng.IntN(2))},
			Noise:   Noise{e() * float64(rng.IntN(2)), e() * float64(rng.IntN(2))},
			Initial: 1 + rng.Int64N(40),
			Limits:  Limits{MaxBatch: rng.Int64N(40), MinBatch: rng.Int64N(5), Accumulate: rng.IntN(2) == 0},
		}
		cfg.Limits.MaxSamples = cfg.Initial + rng.Int64N(200)
		m, err := New(cfg)
		if err != nil {
			continue // MinBatch above MaxBatch
		}
		gpus := 1 + rng.IntN(5)
		nodes := 1 + rng.IntN(gpus)
		if rng.IntN(4) == 0 {
			m.cfg.Params.Compute.Alpha = 0 // passes cost nothing: many shapes are as good
		}
		all := allowed(m, nodes, gpus)
		want := 0.0
		for _, g := range all { // in any order: the greatest is the same
			want = max(want, g)
		}
		got, ok := m.Best(nodes, gpus)
		require.Equal(t, want > 0, ok)
		if ok {
			require.InEpsilon(t, want, got.Goodput, 2e-6, "%+v on %d of %d", cfg, gpus, nodes)
			require.InEpsilon(t, all[got.Shape.Samples()], got.Goodput, 1e-12, "the fewest passes: %+v", got.Shape)
			for n, g := range all { // in any order: each is compared with the choice alone
				require.False(t, n < got.Shape.Samples() && g >= want*(1-4e-7), "%d samples do as well as %+v: %v, %v", n, got.Shape, g, want)
			}
		}
	}
}

func TestPowerMeanNearTheGeometricOne(t *testing.T) {
	for _, p := range []float64{0, 1e-300, -1e-300, 1e-17, -1e-17, 1e-9, 1.1e-8, -1.1e-8, 1e-6} {
		got, ok := PowerMean(p, []float64{1, 4})
		require.True(t, ok)
		require.InDelta(t, 2, got, 1e-5, "%v", p)
	}
}

func TestQuantiseHoldsBothEnds(t *testing.T) {
	for v, want := range map[float64]int64{
		math.Inf(-1): math.MinInt64, -1e300: math.MinInt64, math.Inf(1): math.MaxInt64, 1e300: math.MaxInt64, -1.5: -1_500_000, 1e-7: 0,
	} {
		require.Equal(t, want, quantise(v), "%v", v)
	}
	table, err := NewTable([]Point{{GPUs: 1, Rate: 1}})
	require.NoError(t, err)
	for _, x := range []float64{math.Inf(-1), -1e300, 0, 1} {
		n, ok := table.Smallest(x)
		require.True(t, ok)
		require.Equal(t, 1, n)
	}
	for _, x := range []float64{math.Inf(1), math.NaN(), 1.001} {
		_, ok := table.Smallest(x)
		require.False(t, ok)
	}
}

func TestLossIsThatOfPollux(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	truth := Params{Compute: Linear{.05, .01}, Local: Linear{.05, .02}, Remote: Linear{.2, .06}, Gamma: 2}
	var samples []Sample
	for range 60 {
		s := Sample{Shape: Shape{Nodes: 1 + rng.IntN(2), GPUs: 2 + rng.IntN(7), Batch: 1 + rng.Int64N(64)}}
		noise := math.Exp(.05 * rng.NormFloat64())
		s.Step, s.Compute = duration(truth.step(s.Shape)*noise), duration(truth.compute(s.Shape.Batch)*noise)
		samples = append(samples, s)
	}
	samples[7].Step *= 40 // one is far off
	fit, err := FitParams(samples)
	require.NoError(t, err)
	p := fit.Params
	pass := 0.0
	for _, s := range samples {
		pass += math.Pow(math.Log(p.compute(s.Shape.Batch)/s.Compute.Seconds()), 2) / float64(len(samples))
	}
	hold := math.Pow(p.Local.Beta/p.Local.Alpha, 2) + math.Pow(p.Remote.Beta/p.Remote.Alpha, 2)
	require.Greater(t, hold, .01, "it counts")
	require.InDelta(t, fit.RMSLE+math.Sqrt(pass)+1e-3*math.Pow(p.Gamma-1, 2)+1e-2*hold, fit.Loss, 1e-9)
	require.Less(t, fit.Spread, .6, "what one in sixty is off by does not count")
	require.Less(t, fit.Error, fit.Spread)
}
