package detect

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// rig makes iterations whose micro-batches differ, with noise about the times.
type rig struct {
	t        testing.TB
	rng      *rand.Rand
	line     *pipeline.Line
	stages   int
	micros   int
	noise    float64 // of the iteration, autoregressive
	chunk    float64 // of each place
	unit     time.Duration
	u        float64
	costs    []pipeline.Costs
	factor   func(replica, stage int) float64
	expect   Expectation
	observed []time.Duration
	expected []time.Duration
}

func newRig(t testing.TB, seed uint64, replicas int) *rig {
	g := &rig{
		t: t, rng: rand.New(rand.NewPCG(seed, 5)), stages: 3, micros: 4, noise: 0.03, chunk: 0.01, unit: time.Millisecond,
		costs:    make([]pipeline.Costs, replicas),
		observed: make([]time.Duration, 3*replicas), expected: make([]time.Duration, 3*replicas),
	}
	var err error
	g.line, err = pipeline.New(pipeline.Config{Stages: g.stages, Micros: g.micros})
	require.NoError(t, err)
	for r := range g.costs {
		n := g.stages * g.micros
		g.costs[r] = pipeline.Costs{Forward: make([]time.Duration, n), Backward: make([]time.Duration, n)}
	}
	return g
}

// next makes an iteration and returns what it took; the rest is in the rig.
func (g *rig) next() time.Duration {
	slowest := time.Duration(0)
	var r pipeline.Result
	for d := range g.costs {
		c := &g.costs[d]
		for m := range g.micros {
			size := 1 + 0.4*g.rng.Float64()
			for s := range g.stages {
				c.Forward[s*g.micros+m] = time.Duration(size * 100 * float64(g.unit))
				c.Backward[s*g.micros+m] = time.Duration(size * 200 * float64(g.unit))
			}
		}
	}
	require.NoError(g.t, g.expect.Evaluate([]*pipeline.Line{g.line}, g.costs, nil))
	for d := range g.costs {
		c := &g.costs[d]
		for s := range g.stages {
			p, factor := d*g.stages+s, math.Exp(g.chunk*g.rng.NormFloat64())
			if g.factor != nil {
				factor *= g.factor(d, s)
			}
			g.observed[p], g.expected[p] = 0, 0
			for m := range g.micros {
				for _, x := range []*time.Duration{&c.Forward[s*g.micros+m], &c.Backward[s*g.micros+m]} {
					g.expected[p] += *x
					*x = time.Duration(float64(*x) * factor)
					g.observed[p] += *x
				}
			}
		}
		require.NoError(g.t, g.line.Run(c, &r))
		slowest = max(slowest, r.Makespan)
	}
	g.u = 0.5*g.u + g.noise*math.Sqrt(0.75)*g.rng.NormFloat64()
	return time.Duration(float64(slowest) * math.Exp(g.u))
}

func slowAt(replica, stage int, factor float64) func(int, int) float64 {
	return func(r, s int) float64 {
		if r == replica && s == stage {
			return factor
		}
		return 1
	}
}

func matchedFor(t testing.TB, g *rig) *MatchedTest {
	t.Helper()
	m, err := NewMatched(MatchedConfig{Replicas: len(g.costs), Stages: g.stages})
	require.NoError(t, err)
	return m
}

// feed shows some iterations to a test and returns those that raised an alarm, and the last decision.
func feed(t testing.TB, g *rig, m *MatchedTest, iterations int) (at []int, last change.Decision) {
	t.Helper()
	for i := range iterations {
		took := g.next()
		d, err := m.Observe(took, &g.expect)
		require.NoError(t, err)
		if d.Alarm {
			at = append(at, i)
		}
		last = d
	}
	return at, last
}

func TestBellIsTheExponential(t *testing.T) {
	for z := 0.0; z < 100; z += 0.013 {
		require.InDelta(t, math.Exp(-z/2), bell(z), 1e-9, z)
	}
	require.Zero(t, bell(math.Inf(1)))
	require.Zero(t, bell(math.NaN()))
}

func TestStraysSayLittle(t *testing.T) {
	atHome, sure := density(0)
	require.Greater(t, sure, 0.99)
	far, unsure := density(400)
	require.Less(t, unsure, 1e-9)
	require.Less(t, num.Log(atHome/far), 9.0, "one sample alone is no proof")
}

func TestASeriesLearnsLevelNoiseAndMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	u := 0.0
	next := func() float64 {
		u = 0.6*u + 0.02*rng.NormFloat64()
		if rng.Float64() < 0.01 {
			return 1 + u + 0.3
		}
		return 1 + u
	}
	first, scratch := make([]float64, 30), make([]float64, 30)
	for i := range first {
		first[i] = next()
	}
	var s series
	s.begin(first, scratch, leastScale)
	require.InDelta(t, 1, s.level, 0.04)
	for range 2000 {
		s.learn(next(), leastScale)
	}
	require.InDelta(t, 1, s.level, 0.01)
	require.InDelta(t, 0.02, math.Sqrt(s.noise), 0.004)
	require.InDelta(t, 0.6, s.keep, 0.12)
}

// The rate of false alarms rests on this: without a fault the odds grow by at most one a sample in the mean.
func TestOddsGrowByAtMostOneASample(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	const samples, runs = 40, 4000
	for _, shift := range []float64{0.01, 0.05} {
		sum := 0.0
		for range runs {
			s := series{level: 0, noise: 0.03 * 0.03, square: 1, cov: 0.5, keep: 0.5, n: levelMemory}
			s.ready()
			var b branch
			b.start(&s)
			u := 0.0
			for range samples {
				u = 0.5*u + 0.03*rng.NormFloat64()
				r := u - s.mean
				healthy, _ := density(r * r / s.scale)
				b.take(&s, u, shift, healthy, 1)
				s.pass(u)
			}
			sum += b.odds
		}
		require.Less(t, sum/runs, samples*1.4, shift)
	}
}

func TestExpectationIsWhatEachSlowedRunTakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var e Expectation
	for range 60 {
		replicas, stages, micros := 1+rng.IntN(3), 1+rng.IntN(4), 1+rng.IntN(6)
		line, err := pipeline.New(pipeline.Config{Stages: stages, Micros: micros, Schedule: pipeline.Schedule(rng.IntN(2))})
		require.NoError(t, err)
		costs := make([]pipeline.Costs, replicas)
		draw := func(n int) []time.Duration {
			x := make([]time.Duration, n)
			for i := range x {
				x[i] = time.Duration(1000 * (1 + rng.IntN(9)))
			}
			return x
		}
		for i := range costs {
			costs[i] = pipeline.Costs{Forward: draw(stages * micros), Backward: draw(stages * micros), Send: draw(stages), Return: draw(stages)}
		}
		e.Fixed = time.Duration(rng.IntN(5000))
		factors := []pipeline.Factor{1100, 1500, 3000}
		require.NoError(t, e.Evaluate([]*pipeline.Line{line}, costs, factors))
		var r pipeline.Result
		span := func(replica, stage int, f pipeline.Factor) (all time.Duration) {
			for i, c := range costs {
				if i == replica {
					c.Forward, c.Backward = slices.Clone(c.Forward), slices.Clone(c.Backward)
					for m := range micros {
						c.Forward[stage*micros+m] = c.Forward[stage*micros+m] * time.Duration(f) / 1000
						c.Backward[stage*micros+m] = c.Backward[stage*micros+m] * time.Duration(f) / 1000
					}
				}
				require.NoError(t, line.Run(&c, &r))
				all = max(all, r.Makespan)
			}
			return all + e.Fixed
		}
		require.Equal(t, span(-1, 0, 0), e.Took)
		for replica := range replicas {
			for stage := range stages {
				for i, f := range factors {
					want := math.Log(float64(span(replica, stage, f)) / float64(e.Took))
					require.InDelta(t, want, e.shifts[(replica*stages+stage)*len(factors)+i], 1e-9)
				}
			}
		}
		require.Positive(t, e.Replica(replicas-1))
		require.Zero(t, e.Replica(replicas))
	}
}

func TestIterationTimesNameASlowStage(t *testing.T) {
	named := 0
	for seed := range uint64(6) {
		g := newRig(t, seed, 2)
		m := matchedFor(t, g)
		at, d := feed(t, g, m, 120)
		require.Empty(t, at)
		require.Greater(t, d.MinDetectable, 1.0)
		g.factor = slowAt(1, 2, 1.5)
		at, d = feed(t, g, m, 40)
		require.Len(t, at, 1)
		require.Less(t, at[0], 20)
		require.True(t, d.Standing)
		require.InDelta(t, 40, d.Since, 8)
		require.Greater(t, m.Places(), 0.5)
		suspects := m.AppendSuspects(nil, 3)
		require.NotEmpty(t, suspects)
		if suspects[0].Replica == 1 && suspects[0].Stage == 2 {
			named++
			require.InDelta(t, 1.5, suspects[0].Factor, 0.35)
		}
		g.factor = nil
		_, d = feed(t, g, m, 60)
		require.False(t, d.Standing, "recovered")
	}
	require.GreaterOrEqual(t, named, 4)
}

func TestASlowdownOfEverythingIsOfNoPlace(t *testing.T) {
	g := newRig(t, 9, 3)
	m := matchedFor(t, g)
	feed(t, g, m, 100)
	for range 40 {
		took := g.next()
		_, err := m.Observe(took+took/4, &g.expect)
		require.NoError(t, err)
	}
	require.True(t, m.standing)
	require.Less(t, m.Places(), 0.5)
}

func TestAnExactModelWithoutFaultsRaisesNothing(t *testing.T) {
	g := newRig(t, 1, 2)
	g.noise, g.chunk = 0, 0
	m := matchedFor(t, g)
	at, d := feed(t, g, m, 600)
	require.Empty(t, at)
	require.Less(t, d.MinDetectable, 1.01)
	g.factor = slowAt(0, 1, 1.05)
	at, _ = feed(t, g, m, 10)
	require.NotEmpty(t, at, "and a small fault is seen at once")
	suspects := m.AppendSuspects(nil, 1)
	require.Equal(t, 0, suspects[0].Replica)
}

func TestMatchedDoesNotMindTheUnitOfTime(t *testing.T) {
	a, b := newRig(t, 2, 2), newRig(t, 2, 2)
	b.unit = time.Microsecond * 1000 * 64
	ma, mb := matchedFor(t, a), matchedFor(t, b)
	for i := range 150 {
		if i == 100 {
			a.factor = slowAt(0, 1, 1.6)
			b.factor = a.factor
		}
		x, y := a.next(), b.next()
		da, err := ma.Observe(x, &a.expect)
		require.NoError(t, err)
		db, err := mb.Observe(y, &b.expect)
		require.NoError(t, err)
		require.Equal(t, da.Alarm, db.Alarm)
		require.InDelta(t, da.Score, db.Score, 1e-3)
	}
}

func TestALargerFaultIsNotFoundLater(t *testing.T) {
	before := 1000
	for _, factor := range []float64{1.2, 1.4, 1.8, 2.5, 4} {
		g := newRig(t, 6, 2)
		m := matchedFor(t, g)
		feed(t, g, m, 100)
		g.factor = slowAt(1, 1, factor)
		at, _ := feed(t, g, m, 60)
		require.NotEmpty(t, at)
		require.LessOrEqual(t, at[0], before)
		before = at[0]
	}
}

func TestDetectableFallsWithPowerAndRisesWithNoise(t *testing.T) {
	factor := func(noise, power float64) float64 {
		g := newRig(t, 6, 2)
		g.noise = noise
		m, err := NewMatched(MatchedConfig{Replicas: 2, Stages: 3, Power: power})
		require.NoError(t, err)
		_, ok := m.Detectable(0, 1)
		require.False(t, ok, "nothing is known yet")
		feed(t, g, m, 150)
		f, ok := m.Detectable(0, 1)
		require.True(t, ok)
		_, ok = m.Detectable(2, 1)
		require.False(t, ok)
		return f
	}
	require.Less(t, factor(0.02, 0.5), factor(0.02, 0.9))
	require.Less(t, factor(0.01, 0), factor(0.04, 0))
}

func TestReachIsTheChanceOfAWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 1))
	for _, want := range []float64{0.3, 0.6, 0.9} {
		j := neededInformation(8, want)
		require.InDelta(t, want, reach(8, j), 1e-6)
		const steps, walks = 400, 1500
		found := 0
		for range walks {
			x := 0.0
			for range steps {
				x += j/steps + math.Sqrt(2*j/steps)*rng.NormFloat64()
				if x >= 8 {
					found++
					break
				}
			}
		}
		require.InDelta(t, want, float64(found)/walks, 0.06)
	}
	require.Zero(t, reach(8, 0))
}

func TestMatchedGoesOnFromASnapshot(t *testing.T) {
	for _, cut := range []int{0, 12, 80, 130} {
		g := newRig(t, 7, 2)
		m := matchedFor(t, g)
		feed(t, g, m, cut)
		if cut > 100 {
			g.factor = slowAt(0, 0, 2)
			feed(t, g, m, 10)
		}
		var a, b bytes.Buffer
		require.NoError(t, m.Snapshot(&a))
		again, err := RestoreMatched(bytes.NewReader(a.Bytes()))
		require.NoError(t, err)
		require.NoError(t, again.Snapshot(&b))
		require.Equal(t, a.String(), b.String())
		for range 50 {
			took := g.next()
			d, err := m.Observe(took, &g.expect)
			require.NoError(t, err)
			e, err := again.Observe(took, &g.expect)
			require.NoError(t, err)
			require.Equal(t, d, e)
		}
		require.Equal(t, m.AppendSuspects(nil, 8), again.AppendSuspects(nil, 8))
	}
}

func TestADamagedSnapshotIsRefused(t *testing.T) {
	g := newRig(t, 7, 1)
	m := matchedFor(t, g)
	feed(t, g, m, 40)
	var a bytes.Buffer
	require.NoError(t, m.Snapshot(&a))
	_, err := RestoreMatched(strings.NewReader(a.String()[:a.Len()-2]))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, damage := range []func(*matchedImage){
		func(i *matchedImage) { i.Series.Noise = 0 },
		func(i *matchedImage) { i.Series.N = 3 },
		func(i *matchedImage) { i.Branches = i.Branches[1:] },
		func(i *matchedImage) { i.Branches[0][0] = -1 },
		func(i *matchedImage) { i.Moments = nil },
		func(i *matchedImage) { i.Moments[0][1] = math.Inf(1) },
		func(i *matchedImage) { i.Seen = 1000 },
		func(i *matchedImage) { i.Total = -1 },
		func(i *matchedImage) { i.Warm = []float64{1} },
		func(i *matchedImage) { i.Config.Replicas = 2 },
		func(i *matchedImage) { i.Config.Stages = 0 },
	} {
		img := m.image()
		damage(img)
		_, err := matchedOf(img)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestMatchedRefusesWhatCannotBe(t *testing.T) {
	_, err := NewMatched(MatchedConfig{Replicas: -1, FalseAlarms: 2, Warmup: 3, Horizon: -1, Power: math.NaN(), Factors: []pipeline.Factor{900}})
	for _, field := range []string{"Replicas", "Stages", "FalseAlarms", "Warmup", "Horizon", "Power", "factors[0]"} {
		require.ErrorContains(t, err, field)
	}
	_, err = NewMatched(MatchedConfig{Replicas: 1, Stages: 1, Factors: []pipeline.Factor{}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewMatched(MatchedConfig{Replicas: 1 << 18, Stages: 1 << 18})
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	g := newRig(t, 1, 2)
	m := matchedFor(t, g)
	feed(t, g, m, 50)
	before := m.image()
	for _, tc := range []struct {
		took time.Duration
		e    *Expectation
	}{{0, &g.expect}, {-1, &g.expect}, {1, nil}, {1, &Expectation{}}} {
		_, err := m.Observe(tc.took, tc.e)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.ErrorIs(t, m.Tune(1), lockstep.ErrInvalid)
	require.Equal(t, before, m.image())

	var e Expectation
	lines := []*pipeline.Line{g.line}
	require.ErrorIs(t, e.Evaluate(nil, g.costs, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, e.Evaluate(lines, nil, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, e.Evaluate([]*pipeline.Line{nil}, g.costs, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, e.Evaluate(lines, g.costs, []pipeline.Factor{1500, 1200}), lockstep.ErrInvalid)
	require.ErrorIs(t, e.Evaluate(lines, make([]pipeline.Costs, 2), nil), lockstep.ErrInvalid)
	zero := pipeline.Costs{Forward: make([]time.Duration, 3), Backward: make([]time.Duration, 3)}
	require.ErrorIs(t, e.Evaluate(lines, []pipeline.Costs{zero}, nil), lockstep.ErrInvalid)
	require.Zero(t, e.Took)
	e.Fixed = -1
	require.ErrorIs(t, e.Evaluate(lines, g.costs, nil), lockstep.ErrInvalid)
}

func TestMatchedCanBeTunedRearmedAndReset(t *testing.T) {
	g := newRig(t, 1, 2)
	m := matchedFor(t, g)
	feed(t, g, m, 60)
	require.NoError(t, m.Tune(0.01))
	g.factor = slowAt(0, 1, 3)
	at, d := feed(t, g, m, 15)
	require.NotEmpty(t, at)
	require.True(t, d.Standing)
	require.NoError(t, m.Tune(1e-9))
	require.True(t, m.standing)
	m.Rearm()
	require.False(t, m.standing)
	require.Empty(t, m.AppendSuspects(nil, 4))
	at, _ = feed(t, g, m, 15)
	require.NotEmpty(t, at, "the fault is still there")
	m.Reset()
	fresh := matchedFor(t, g)
	require.NoError(t, fresh.Tune(1e-9))
	require.Equal(t, fresh.image(), m.image())
}

func TestMatchedAllocatesNothing(t *testing.T) {
	g := newRig(t, 1, 2)
	m := matchedFor(t, g)
	feed(t, g, m, 60)
	took := g.next()
	lines, suspects := []*pipeline.Line{g.line}, make([]Suspect, 0, 8)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if err := g.expect.Evaluate(lines, g.costs, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Observe(took, &g.expect); err != nil {
			t.Fatal(err)
		}
		suspects = m.AppendSuspects(suspects[:0], 4)
	}))
}

func FuzzRestoreMatched(f *testing.F) {
	g := newRig(f, 7, 1)
	m, err := NewMatched(MatchedConfig{Replicas: 1, Stages: 3})
	require.NoError(f, err)
	feed(f, g, m, 40)
	var b bytes.Buffer
	require.NoError(f, m.Snapshot(&b))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := RestoreMatched(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, m.Snapshot(&again))
		require.Equal(t, string(data), again.String())
	})
}
