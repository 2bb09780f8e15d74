package serving

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const ms = time.Millisecond

// curve is 5 + 1.5 b milliseconds.
var curve = Linear{Base: 5 * ms, Each: 1500 * time.Microsecond}

func TestBatchUnderAnObjective(t *testing.T) {
	require.Equal(t, 13, Saturated(curve, 50*ms))
	require.InDelta(t, 530.61, Throughput(curve, 13), 0.005)
	batch, duty := Residual(curve, 50*ms, 408.16)
	require.Equal(t, 11, batch)
	require.InDelta(t, 26.95, float64(duty)/1e6, 0.005)
	require.InDelta(t, 0.798, float64(curve.Batch(11))/float64(duty), 0.0005)
	batch, duty = Residual(curve, 50*ms, 200)
	require.Equal(t, 6, batch)
	require.Equal(t, 30*ms, duty)
	require.Equal(t, 14*ms, curve.Batch(batch))
	require.InDelta(t, 0.467, float64(curve.Batch(6))/float64(duty), 0.0005)
}

func TestResidualAtItsEnds(t *testing.T) {
	batch, duty := Residual(curve, 50*ms, 1) // the next comes after a second
	require.Equal(t, 1, batch)
	require.Equal(t, 43500*time.Microsecond, duty)
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		batch, duty = Residual(curve, 50*ms, rate)
		require.Zero(t, batch)
		require.Zero(t, duty)
	}
	batch, _ = Residual(curve, 6*ms, 100)
	require.Zero(t, batch, "not even one in time")
	batch, _ = Residual(curve, 50*ms, math.MaxFloat64)
	require.Equal(t, 30, batch)
	batch, duty = Residual(curve, 50*ms, math.SmallestNonzeroFloat64)
	require.Equal(t, 1, batch)
	require.Equal(t, 43500*time.Microsecond, duty)
	batch, _ = Residual(Linear{}, time.Hour, 1e9)
	require.Equal(t, MaxSize, batch)
	require.Zero(t, Saturated(curve, -1))
	require.Zero(t, Saturated(curve, 12*ms))
	require.Equal(t, 1, Saturated(curve, 13*ms))
	require.Zero(t, Throughput(Linear{}, 1))
	require.Zero(t, Throughput(curve, 0))
}

// TestSearchesDoWhatTryingAllDoes compares with the formulas, size by size.
func TestSearchesDoWhatTryingAllDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var l Latency = Linear{time.Duration(r.IntN(1e7)), time.Duration(1e5 + r.IntN(1e6))}
		if r.IntN(2) == 0 {
			p := Points{{1 + r.IntN(3), time.Duration(1e6 + r.IntN(1e7))}}
			for range r.IntN(5) {
				last := p[len(p)-1]
				p = append(p, Point{last.Size + 1 + r.IntN(9), last.Time + time.Duration(r.IntN(1e7))})
			}
			require.NoError(t, p.Validate())
			l = p
		}
		slo, rate := time.Duration(r.IntN(1e8)), math.Pow(10, 1+3*r.Float64())
		saturated, residual, largest, most := 0, 0, 0, 1+r.IntN(20)
		for b := 1; b < 2000; b++ {
			require.GreaterOrEqual(t, l.Batch(b+1), l.Batch(b))
			if 2*l.Batch(b) <= slo {
				saturated = b
			}
			if float64(b)/rate*1e9+float64(l.Batch(b)) <= float64(slo) {
				residual = b
			}
			if l.Batch(b) <= slo && b <= most {
				largest = b
			}
		}
		require.Equal(t, saturated, Saturated(l, slo))
		require.Equal(t, largest, Largest(l, slo, most))
		got, duty := Residual(l, slo, rate)
		if residual == 0 && got == 1 {
			require.Equal(t, slo, l.Batch(1)+duty)
			continue
		}
		require.Equal(t, residual, got)
	}
}

func TestPoints(t *testing.T) {
	p := Points{{2, 10}, {4, 20}, {8, 23}}
	for n, want := range map[int]time.Duration{1: 10, 2: 10, 3: 15, 4: 20, 5: 21, 6: 22, 7: 23, 8: 23, 9: 26, 16: 46} { // order does not matter
		require.Equal(t, want, p.Batch(n), "%d", n)
	}
	require.Equal(t, time.Duration(30), Points{{1, 1}, {2, 2}, {3, 10}, {4, 20}}.Batch(5), "the last line is steeper")
	require.Zero(t, Points(nil).Batch(3))
	require.Equal(t, maxTime, Points{{1, maxSpan}}.Batch(math.MaxInt32))
	require.Equal(t, maxTime, Linear{maxSpan, maxSpan}.Batch(math.MaxInt32))

	require.ErrorIs(t, Points{}.Validate(), lockstep.ErrInvalid)
	err := Points{{0, 1}, {5, 0}, {5, 7}, {MaxSize + 1, 6}, {MaxSize, maxSpan + 1}}.Validate()
	for _, text := range []string{"Points[0].Size = 0", "Points[1].Time = 0s", "Points[2].Size = 5", "Points[3].Size = 65537", "Points[3].Time = 6ns", "Points[4].Size", "Points[4].Time"} {
		require.ErrorContains(t, err, text)
	}
	err = Linear{-1, maxSpan + 1}.Validate()
	require.ErrorContains(t, err, "Base")
	require.ErrorContains(t, err, "Each")
}

func TestAIMDCycles(t *testing.T) {
	a, err := NewAIMD(AIMDConfig{SLO: 20 * ms, Add: 4})
	require.NoError(t, err)
	var sizes []int
	for range 12 {
		sizes = append(sizes, a.Size())
		a.Observe(a.Size(), curve.Batch(a.Size()))
	}
	require.Equal(t, []int{1, 5, 9, 13, 11, 9, 13, 11, 9, 13, 11, 9}, sizes)
}

func TestAIMDLearnsOnlyFromWhatItAskedFor(t *testing.T) {
	a, err := NewAIMD(AIMDConfig{SLO: 20 * ms, Least: 2, Most: 6, Add: 3, CutFraction: 0.5})
	require.NoError(t, err)
	step := func(size int, took time.Duration, want int) {
		t.Helper()
		a.Observe(size, took)
		require.Equal(t, want, a.Size())
	}
	step(1, 0, 2)       // a small batch says nothing of larger ones
	step(2, 20*ms, 5)   // in time
	step(9, 0, 6)       // up to Most
	step(6, 21*ms, 3)   // late
	step(1, 99*ms, 2)   // a small one was late, but not below Least
	step(0, 99*ms, 2)   // nonsense
	step(-1, 0, 2)      //
	step(2, -1, 2)      //
	step(2, 20*ms+1, 2) //
	a, err = NewAIMD(AIMDConfig{})
	require.NoError(t, err)
	a.Observe(1, time.Hour)
	require.Equal(t, 2, a.Size(), "without an objective nothing is late")
	_, err = NewAIMD(AIMDConfig{SLO: -1, Add: -1, CutFraction: 1, Least: 9, Most: 8})
	for _, field := range []string{"SLO", "Add", "CutFraction = 1", "Least = 9"} {
		require.ErrorContains(t, err, field)
	}
	_, err = NewAIMD(AIMDConfig{CutFraction: math.NaN()})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestLearnerExploresAndThenKeepsToTheBudget(t *testing.T) {
	l, err := NewLearner(LearnerConfig{Samples: 3, Small: 5, Seed: 1})
	require.NoError(t, err)
	require.Equal(t, 1, l.Size(time.Hour))
	r := rand.New(rand.NewPCG(1, 1))
	took := func(n int) time.Duration { return curve.Batch(n) + time.Duration(r.NormFloat64()*1e5) }
	var sizes []int
	for range 300 {
		n := l.Size(50 * ms)
		sizes = append(sizes, n)
		l.Observe(n, took(n))
	}
	require.Equal(t, []int{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5}, sizes[:15], "by one while small")
	// 0.92 × 50 = 46 ms: b = 27 takes 45.5, and two deviations of 0.1 ms fit above it.
	for _, n := range sizes[200:] {
		require.InDelta(t, 27, n, 1)
	}
	require.InDelta(t, 9, l.Size(20*ms+5*ms/10), 1) // 18.9 ms
	require.Equal(t, 1, l.Size(0))
	require.Equal(t, 1, l.Size(-time.Hour))
	require.InDelta(t, float64(curve.Batch(10)), float64(l.Batch(10)), 5e5)

	for range 9000 { // the model is now twice as slow
		n := l.Size(50 * ms)
		l.Observe(n, 2*took(n))
	}
	require.InDelta(t, 12, l.Size(50*ms), 1) // 2 × (5 + 1.5 × 12) = 46
}

// TestLearnerDoesNotExploreWhatItKnowsToBeLate: what was worst is forgotten in time, but not how long large batches take.
func TestLearnerDoesNotExploreWhatItKnowsToBeLate(t *testing.T) {
	l, err := NewLearner(LearnerConfig{Samples: 2, Keep: 10})
	require.NoError(t, err)
	for n := range 30 { // seen under another objective
		l.Observe(n+1, curve.Batch(n+1))
	}
	for range 2000 {
		n := l.Size(20 * ms)
		require.LessOrEqual(t, curve.Batch(n), 20*ms)
		l.Observe(n, curve.Batch(n))
	}
	require.InDelta(t, 8, l.Size(20*ms), 1) // 17 of 18.4 ms
}

// TestLearnerFindsThatBatchesAreNearlyFree: one takes more than half of the budget, and forty hardly more.
func TestLearnerFindsThatBatchesAreNearlyFree(t *testing.T) {
	l, err := NewLearner(LearnerConfig{Most: 40})
	require.NoError(t, err)
	flat := Linear{Base: 10 * ms, Each: 50 * time.Microsecond}
	for range 1000 {
		n := l.Size(18 * ms)
		l.Observe(n, flat.Batch(n))
	}
	require.Equal(t, 40, l.Size(18*ms))
}

func TestLearnerNoiseIsCounted(t *testing.T) {
	size := func(sigmas float64) int {
		l, err := NewLearner(LearnerConfig{Sigmas: sigmas, Samples: 5})
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(2, 2))
		for n := 1; n <= 40; n++ {
			for range 10 {
				l.Observe(n, curve.Batch(n)+time.Duration(r.NormFloat64()*3e6))
			}
		}
		return l.Size(50 * ms)
	}
	require.InDelta(t, 27-int(3/1.5), size(1), 1)
	require.InDelta(t, 27-int(6/1.5), size(2), 1)
}

func TestLearnerBadInput(t *testing.T) {
	_, err := NewLearner(LearnerConfig{BudgetFraction: math.Inf(1), Sigmas: math.NaN(), Small: -1, Samples: -1, Keep: -1, Most: -1})
	for _, field := range []string{"BudgetFraction", "Sigmas = NaN", "Small", "Samples", "Keep", "Most"} {
		require.ErrorContains(t, err, field)
	}
	l, err := NewLearner(LearnerConfig{Most: 3, Samples: 1})
	require.NoError(t, err)
	require.Zero(t, l.Batch(5))
	for _, o := range []struct {
		size int
		took time.Duration
	}{{0, 1}, {-1, 1}, {1, -1}, {MaxSize + 1, 1}, {1, maxSpan + 1}} {
		l.Observe(o.size, o.took)
	}
	require.Zero(t, l.Batch(5), "nonsense is ignored")
	for n := range 10 {
		l.Observe(n+1, time.Duration(10-n)) // falls
		require.LessOrEqual(t, l.Size(time.Hour), 3)
	}
	require.GreaterOrEqual(t, l.Batch(100), l.Batch(1), "the line does not fall")
	require.GreaterOrEqual(t, l.Batch(1), time.Duration(0))
	l.Observe(MaxSize, maxSpan)
	require.LessOrEqual(t, l.Batch(math.MaxInt32), maxTime)
}
