package detect

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// sane checks what holds of every verdict.
func sane(t testing.TB, v Verdict) {
	t.Helper()
	for _, x := range []float64{v.Score, v.Ratio, v.MinDetectable} {
		require.GreaterOrEqual(t, x, 0.0, "%+v", v)
	}
	require.LessOrEqual(t, v.Score, math.MaxFloat64, "%+v", v)
	require.True(t, v.Onset == 0 || v.State == Slow || v.State == Paused, "%+v", v)
	require.NotEmpty(t, v.Reason)
	for _, s := range v.Suspects {
		require.GreaterOrEqual(t, s.Score, 0.0, "%+v", v)
		require.Greater(t, s.Factor, 0.0, "%+v", v)
	}
}

// TestALongJobStaysInBounds has a healthy job of 100,000 iterations, of 3000 with -short.
func TestALongJobStaysInBounds(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 3000
	}
	for _, c := range []struct {
		cfg    Config
		chunks bool
		most   int // false alarms
	}{
		{Config{}, false, 30},
		{Config{Pipeline: pipeline.Config{Stages: 2, Micros: 2}, Replicas: 2, Rates: ratesFor(2)}, false, 20},
		{Config{Pipeline: pipeline.Config{Stages: 2, Micros: 2}, Replicas: 2, Refit: true}, true, 10},
	} {
		j := newJob(t, 71)
		j.shape, j.rates, j.tokens = pipeline.Config{Stages: 2, Micros: 2}, ratesFor(2), 4096
		m := newMonitor(t, c.cfg)
		raised, early := 0, 0
		for i := range n {
			it := j.next()
			if !c.chunks {
				it.Chunks = nil
			}
			v, err := m.Observe(it)
			require.NoError(t, err)
			sane(t, v)
			if v.Alarm {
				raised++
			}
			if i == 1000 {
				early = len(state(t, m))
			}
		}
		require.LessOrEqual(t, raised, c.most)
		require.Less(t, len(state(t, m)), early+2048, "nothing is kept for ever, but numbers have more digits")
	}
}

// TestRampsAreFoundInPipelinesOfAllShapes slows the last stage of the last replica little by little.
func TestRampsAreFoundInPipelinesOfAllShapes(t *testing.T) {
	for _, stages := range []int{1, 2, 4} {
		for _, replicas := range []int{1, 2, 3} {
			for _, chunks := range []bool{true, false} {
				j := newJob(t, 72)
				j.shape, j.rates, j.replicas = pipeline.Config{Stages: stages, Micros: 4}, ratesFor(stages), replicas
				j.factor = func(n uint64, r, s int) float64 {
					if r != replicas-1 || s != stages-1 || n <= 150 {
						return 1
					}
					return 1 + 0.3*min(1, float64(n-150)/200)
				}
				next := j.next
				if !chunks {
					next = timesOnly(next)
				}
				m := newMonitor(t, Config{Pipeline: j.shape, Replicas: replicas, Rates: j.rates})
				vs := watch(t, m, 400, next)
				for _, v := range vs {
					sane(t, v)
				}
				require.NotEmpty(t, alarms(vs), "%d stages, %d replicas, chunks %v", stages, replicas, chunks)
				last := vs[len(vs)-1]
				require.Equal(t, Slow, last.State)
				if chunks || stages > 1 && replicas > 1 {
					require.Equal(t, Hardware, last.Cause)
					require.Equal(t, Suspect{Replica: replicas - 1, Stage: stages - 1, Rank: Everywhere, Factor: last.Suspects[0].Factor, Score: last.Suspects[0].Score}, last.Suspects[0])
				} else {
					require.NotEmpty(t, last.Probes)
				}
			}
		}
	}
}

// TestTimesOfAnySizeAreJudged has the shortest and the longest times that there are.
func TestTimesOfAnySizeAreJudged(t *testing.T) {
	for _, took := range []time.Duration{1, 2, 1000, math.MaxInt64 / 3, math.MaxInt64} {
		for _, cfg := range []Config{{}, tiny()} {
			m := newMonitor(t, cfg)
			model := cfg.Rates.Forward != nil
			for i := range 200 {
				it := &Iteration{Number: uint64(i + 1), Took: took}
				switch {
				case i > 180:
					it.Took = math.MaxInt64
				case i > 100 && i%3 == 0:
					it.Took = 1 + took/7
				}
				if model && i%2 == 0 {
					it.Batches = [][]perfmodel.Batch{{{Tokens: 1 << 34, Pairs: 1e12}, {Tokens: 1}}, {{Tokens: 1}, {Tokens: 1 << 34}}}
				}
				if model && i > 60 && it.Batches != nil {
					it.Chunks = []Chunk{{Took: took, Micro: AllMicros}, {Took: 1, Replica: 1}, {Took: math.MaxInt64, Stage: 1}, {Took: math.MaxInt64, Stage: 1}}
				}
				v, err := m.Observe(it)
				require.NoError(t, err)
				sane(t, v)
			}
			again, err := Restore(strings.NewReader(state(t, m)))
			require.NoError(t, err)
			require.Equal(t, state(t, m), state(t, again))
		}
	}
}

// TestBatchesAreCheckedWithoutAModelToo has figures that a snapshot could not hold.
func TestBatchesAreCheckedWithoutAModelToo(t *testing.T) {
	m := newMonitor(t, Config{})
	before := state(t, m)
	for _, b := range []perfmodel.Batch{{Tokens: 1, Pairs: math.NaN()}, {Tokens: 1, Pairs: math.Inf(1)}, {Tokens: 1, Pairs: -1}, {Tokens: -1}, {}} {
		_, err := m.Observe(&Iteration{Number: 1, Took: time.Second, Batches: [][]perfmodel.Batch{{b}}})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := m.Observe(&Iteration{Number: 1, Took: time.Second, Batches: [][]perfmodel.Batch{{}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, before, state(t, m))
}

// TestALayoutThatFlapsIsNeverCalledHealthy changes the number of micro-batches all the time.
func TestALayoutThatFlapsIsNeverCalledHealthy(t *testing.T) {
	j := newJob(t, 73)
	m := newMonitor(t, j.config())
	r := rand.New(rand.NewPCG(73, 73))
	for range 300 {
		it := j.next()
		it.Chunks = nil
		n := 7 + r.IntN(2)
		for d := range it.Batches {
			it.Batches[d] = it.Batches[d][:n]
		}
		v, err := m.Observe(it)
		require.NoError(t, err)
		require.Equal(t, Learning, v.State)
	}
}

// TestMinDetectableIsHonestWithoutNoise has exact chunk times: a fault that is said to be found is,
// and the smallest one is not below what is looked for.
func TestMinDetectableIsHonestWithoutNoise(t *testing.T) {
	for _, part := range []float64{1.05, 1.5, 3} {
		j := newJob(t, 74)
		j.noise, j.drift, j.pause = 0, 0, 0
		m := newMonitor(t, j.config())
		next := func() *Iteration {
			it := j.next()
			it.Took = 0
			return it
		}
		vs := watch(t, m, 60, next)
		factor := 1 + part*(vs[59].MinDetectable-1)
		require.Greater(t, factor, 1.005)
		j.factor = stepAt(61, 1, 2, factor)
		vs = watch(t, m, 30, next)
		require.NotEmpty(t, alarms(vs), "%g", factor)
		require.Equal(t, 2, vs[29].Suspects[0].Stage)
	}
}

func TestTheRankThatOthersWaitForIsNamed(t *testing.T) {
	j := newJob(t, 75)
	j.factor = stepAt(61, 1, 2, 1.3)
	m := newMonitor(t, j.config())
	ms := time.Millisecond
	next := func() *Iteration {
		it := j.next()
		it.Waits = []Wait{
			{Replica: 0, Stage: 2, Ranks: []time.Duration{ms, 9 * ms, 9 * ms, 9 * ms}},
			{Replica: 1, Stage: 2, Ranks: []time.Duration{30 * ms, 31 * ms, 2 * ms, 30 * ms}},
		}
		return it
	}
	vs := watch(t, m, 90, next)
	require.Equal(t, Slow, vs[89].State)
	s := vs[89].Suspects[0]
	require.Equal(t, [3]int{1, 2, 2}, [3]int{s.Replica, s.Stage, s.Rank})
	require.Equal(t, Everywhere, watch(t, m, 1, j.next)[0].Suspects[0].Rank, "waits that were not measured name none")

	before := state(t, m)
	for _, w := range []Wait{{Replica: 2}, {Replica: -1}, {Stage: 4}, {Stage: -1}, {Ranks: []time.Duration{1, -1}}} {
		it := j.next()
		it.Waits = []Wait{w}
		_, err := m.Observe(it)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.Equal(t, before, state(t, m))
}

// TestASlowDeviceBesideAGrowingLossLayerIsTold has both on the last stage.
func TestASlowDeviceBesideAGrowingLossLayerIsTold(t *testing.T) {
	j := newJob(t, 76)
	j.factor = func(n uint64, r, s int) float64 {
		switch {
		case n <= 80 || s != 3:
			return 1
		case r == 1:
			return 1.4
		}
		return 1.05
	}
	m := newMonitor(t, j.config())
	vs := watch(t, m, 110, j.next)
	require.Equal(t, Hardware, vs[109].Cause)
	require.Equal(t, [2]int{1, 3}, [2]int{vs[109].Suspects[0].Replica, vs[109].Suspects[0].Stage})
}

// TestAnAlarmThatIsNotHeardOfIsDropped has chunk times until an alarm, and then none.
func TestAnAlarmThatIsNotHeardOfIsDropped(t *testing.T) {
	j := newJob(t, 77)
	j.factor = stepAt(61, 1, 2, 1.3)
	m := newMonitor(t, j.config())
	watch(t, m, 80, j.next)
	require.True(t, m.standing[byChunks])
	j.factor = nil
	next := timesOnly(j.next)
	watch(t, m, unheard-1, next)
	require.True(t, m.standing[byChunks])
	watch(t, m, 1, next)
	require.False(t, m.standing[byChunks])
}

func TestASlowIterationAfterSuspicionIsNoPause(t *testing.T) {
	e := evidence{timed: true, test: byWhole}
	e.whole.Residual = alone
	var w workload
	w.spike(&e, true)
	require.False(t, w.pause)
	w = workload{}
	w.spike(&e, false)
	require.True(t, w.pause)
	w.spike(&e, false)
	require.False(t, w.pause, "two in a row are none")
}

// TestAnAlarmEndsAtTheRootOfItsThreshold sets the odds of a place and then has an iteration that measures nothing.
func TestAnAlarmEndsAtTheRootOfItsThreshold(t *testing.T) {
	j := newJob(t, 78)
	j.factor = stepAt(61, 1, 2, 1.3)
	m := newMonitor(t, j.config())
	watch(t, m, 80, j.next)
	c := m.chunks
	p := &c.places[1*4+2]
	require.True(t, p.standing)
	nothing := make([]time.Duration, len(c.places))
	p.odds = math.Sqrt(c.limit) * 1.01
	d, err := c.Observe(nothing, nothing)
	require.NoError(t, err)
	require.True(t, d.Standing)
	p.odds = math.Sqrt(c.limit) * 0.99
	d, err = c.Observe(nothing, nothing)
	require.NoError(t, err)
	require.False(t, d.Standing)
}

// TestAStageIsTakenAnewWhereMostReplicasShowIt sets the odds of one stage in five replicas.
func TestAStageIsTakenAnewWhereMostReplicasShowIt(t *testing.T) {
	c, err := NewChunks(ChunkConfig{Replicas: 5, Stages: 1})
	require.NoError(t, err)
	observed, expected := make([]time.Duration, 5), make([]time.Duration, 5)
	r := rand.New(rand.NewPCG(79, 79))
	for range 60 {
		for i := range observed {
			expected[i] = time.Second
			observed[i] = time.Duration(1e9 * math.Exp(0.01*r.NormFloat64()))
		}
		_, err = c.Observe(observed, expected)
		require.NoError(t, err)
	}
	for i := range c.places {
		c.places[i].odds = 0
	}
	c.places[1].odds, c.places[2].odds = c.limit/2, c.limit/2
	require.False(t, c.together(0), "two of four others")
	c.places[3].odds = c.limit / 2
	require.True(t, c.together(0), "three of four others")

	before := c.places[3].series
	for k := range c.places[3].branches {
		c.places[3].branches[k].odds, c.places[3].branches[k].size = 1, 1
	}
	c.rebase(0)
	after := c.places[3].series
	require.Greater(t, after.level, before.level+slower[0])
	require.InDelta(t, after.level-before.level, after.top-before.top, 1e-12, "what may be learned moves along")
}

// TestALevelIsLearnedToRiseOnlySoFar has a series that becomes 20 % slower in 5000 samples.
func TestALevelIsLearnedToRiseOnlySoFar(t *testing.T) {
	r := rand.New(rand.NewPCG(80, 80))
	first := make([]float64, 30)
	for i := range first {
		first[i] = 0.01 * r.NormFloat64()
	}
	var s series
	s.begin(first, make([]float64, 30), leastScale)
	for i := range 5000 {
		s.learn(0.2*float64(i)/5000+0.01*r.NormFloat64(), leastScale)
	}
	require.Greater(t, s.level, levelRise, "a little is learned")
	require.Less(t, s.level, levelRise+0.02)
	for range 5000 {
		s.learn(-0.02+0.01*r.NormFloat64(), leastScale)
	}
	require.InDelta(t, -0.02, s.level, 0.005, "faster is learned whole")
}

// TestEachReplicaMayChangeItsMicroBatches changes the number of the first replica only.
func TestEachReplicaMayChangeItsMicroBatches(t *testing.T) {
	rates := ratesFor(2)
	p, err := NewPredictor(pipeline.Config{Stages: 2, Micros: 3}, rates)
	require.NoError(t, err)
	batches := func(first int) [][]perfmodel.Batch {
		b := perfmodel.Batch{Tokens: 1000, Pairs: 1e6}
		return [][]perfmodel.Batch{slices.Repeat([]perfmodel.Batch{b}, first), slices.Repeat([]perfmodel.Batch{b}, 3)}
	}
	three, err := p.Expect(batches(3))
	require.NoError(t, err)
	for _, n := range []int{6, 2, 3, 1} {
		got, err := p.Expect(batches(n))
		require.NoError(t, err)
		if n > 3 {
			require.Greater(t, got, three)
		} else {
			require.Equal(t, three, got, "the other replica is the slowest one")
		}
	}
}
