package goodput

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steps returns the points of a job with those seconds a step on 1, 2, 3... GPUs.
func steps(seconds ...float64) (out []Point) {
	for i, s := range seconds {
		out = append(out, Point{GPUs: i + 1, Rate: 1 / s})
	}
	return out
}

func table(t *testing.T, points []Point) *Table {
	t.Helper()
	tab, err := NewTable(points)
	require.NoError(t, err)
	return tab
}

// Optimus: every job has one GPU, and the next goes where it saves most.
func TestNextGPUGoesWhereItSavesMost(t *testing.T) {
	tables := []*Table{table(t, steps(10, 6, 5, 4.6)), table(t, steps(8, 4.4, 3.2, 2.6))}
	work := []time.Duration{100 * 10 * time.Second, 50 * 8 * time.Second}
	var saved [][2]time.Duration
	have := []int{1, 1}
	for range 3 {
		a, b := tables[0].Saved(have[0], work[0]), tables[1].Saved(have[1], work[1])
		saved = append(saved, [2]time.Duration{a, b})
		if a >= b {
			have[0]++
		} else {
			have[1]++
		}
	}
	require.Equal(t, [][2]time.Duration{
		{400 * time.Second, 180 * time.Second}, {100 * time.Second, 180 * time.Second}, {100 * time.Second, 60 * time.Second},
	}, saved)
	require.Equal(t, []int{3, 2}, have)
}

func TestTableAnswersBothWays(t *testing.T) {
	tab := table(t, []Point{{1, 10, 0}, {2, 18, 0}, {4, 32, 0}, {8, 40, 0}})
	speed := func(n int, want float64, b Basis) {
		t.Helper()
		x, got := tab.Speedup(n)
		require.InDelta(t, want, x, 1e-12)
		require.Equal(t, b, got)
	}
	speed(1, 1, Measured)
	speed(2, 1.8, Measured)
	speed(3, 2.5, Inferred)
	speed(8, 4, Measured)
	speed(16, 4, Inferred)
	speed(18, 4, Unknown)
	speed(0, 0, Unknown)
	speed(-5, 0, Unknown)
	for _, tt := range []struct {
		x  float64
		n  int
		ok bool
	}{{0, 1, true}, {-1, 1, true}, {1, 1, true}, {1.01, 2, true}, {1.8, 2, true}, {1.81, 3, true}, {4, 8, true}, {4.1, 0, false}, {math.Inf(1), 0, false}, {math.NaN(), 0, false}} {
		n, ok := tab.Smallest(tt.x)
		require.Equal(t, tt.ok, ok, "%v", tt.x)
		require.Equal(t, tt.n, n, "%v", tt.x)
	}
	require.Zero(t, tab.Error())
	require.Zero(t, tab.Saved(0, time.Hour))
	require.Zero(t, tab.Saved(1, -time.Hour))
	require.Zero(t, tab.Saved(8, time.Hour))

	far := table(t, []Point{{4, 40, 0}, {8, 60, 0}})
	x, b := far.Speedup(8)
	require.InDelta(t, 6, x, 1e-12)
	require.Equal(t, Inferred, b, "one GPU was not measured")
}

func TestRepairIsTheNearestConcaveLine(t *testing.T) {
	// 2 GPUs were measured too slow beside 4: the line goes between.
	tab := table(t, []Point{{1, 10, 0}, {2, 10, 0}, {4, 30, 0}})
	rng := rand.New(rand.NewPCG(3, 3))
	points := []Point{{1, 10, 0}, {2, 10, 0}, {4, 30, 0}}
	miss := func(y [3]float64) float64 {
		return square(y[0]/10-1) + square(y[1]/10-1) + square(y[2]/30-1)
	}
	var mine [3]float64
	for i, p := range points {
		mine[i], _ = tab.Rate(p.GPUs)
	}
	require.Positive(t, tab.Error())
	for range 200_000 {
		y := [3]float64{mine[0] + rng.NormFloat64(), mine[1] + rng.NormFloat64(), mine[2] + rng.NormFloat64()}
		if y[0] < 0 || y[1]-y[0] > y[0] || y[1] < y[0] || (y[2]-y[1])/2 > y[1]-y[0] || y[2] < y[1] {
			continue
		}
		require.GreaterOrEqual(t, miss(y), miss(mine)-1e-9)
	}
}

func TestTablesRiseEverLessSteeply(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 500 {
		var points []Point
		scale := math.Pow(10, float64(rng.IntN(60)-30))
		for range 1 + rng.IntN(30) {
			n := 1 + rng.IntN(40)
			points = append(points, Point{n, scale * math.Pow(float64(n), rng.Float64()*1.5) * math.Exp(rng.NormFloat64()*.2), float64(rng.IntN(3))})
		}
		tab := table(t, points)
		was, _ := tab.Rate(1)
		require.Positive(t, was)
		rise, saved := was, time.Duration(math.MaxInt64/2)
		for n := 2; n < 60; n++ {
			now, _ := tab.Rate(n)
			require.GreaterOrEqual(t, now, was*(1-1e-9))
			require.LessOrEqual(t, now-was, rise+1e-9*now)
			rise, was = now-was, now
			s := tab.Saved(n-1, time.Hour)
			require.LessOrEqual(t, s, saved+time.Microsecond)
			saved = s
			if x, _ := tab.Speedup(n); x > 0 {
				got, ok := tab.Smallest(x)
				require.True(t, ok)
				require.LessOrEqual(t, got, n)
			}
		}
		rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		require.Equal(t, tab, table(t, points))
	}
}

func TestCurveFindsKnownParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		want := Curve{rng.Float64() * 100, rng.Float64() * 20 * float64(rng.IntN(2)), rng.Float64() * float64(rng.IntN(2))}
		var points []Point
		for _, n := range []int{1, 2, 4, 8, 16} {
			points = append(points, Point{n, want.Rate(n), 0})
		}
		got, miss, err := FitCurve(points)
		require.NoError(t, err)
		require.InDelta(t, 0, miss, 1e-6)
		require.InDelta(t, want.Parallel, got.Parallel, 1e-4*(want.Parallel+1))
		require.InDelta(t, want.Serial, got.Serial, 1e-4*(want.Parallel+want.Serial+1))
		require.InDelta(t, want.Each, got.Each, 1e-4*(want.Parallel+1))
	}
}

// A fit is as good as the best of a grid around it.
func TestCurveIsTheBestFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		var points []Point
		for range 1 + rng.IntN(8) {
			points = append(points, Point{1 + rng.IntN(16), math.Exp(rng.NormFloat64()), 0})
		}
		got, _, err := FitCurve(points)
		require.NoError(t, err)
		miss := func(c Curve) (sum float64) {
			for _, p := range points {
				if r := c.Rate(p.GPUs); r > 0 {
					sum += square(p.Rate/r - 1)
				} else {
					sum += 1
				}
			}
			return sum
		}
		for range 500 {
			other := Curve{
				max(0, got.Parallel+rng.NormFloat64()*.1), max(0, got.Serial+rng.NormFloat64()*.1), max(0, got.Each+rng.NormFloat64()*.01),
			}
			require.GreaterOrEqual(t, miss(other), miss(got)-1e-9)
		}
	}
}

func TestCurveOfOneCountScalesWithoutEnd(t *testing.T) {
	c, miss, err := FitCurve([]Point{{4, 2, 0}})
	require.NoError(t, err)
	require.InDelta(t, 0, miss, 1e-9)
	require.InDelta(t, 4, c.Rate(8), 1e-9)
	require.Zero(t, c.Serial)
	require.Zero(t, c.Rate(0))
	require.Zero(t, Curve{}.Rate(4))
	require.Nil(t, Curve{}.Points(4))
	require.Len(t, c.Points(200), 64)
	require.Len(t, Curve{Parallel: 16, Each: 1}.Points(64), 4, "a fifth GPU would cost more than it brings")
}
