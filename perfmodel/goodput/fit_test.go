package goodput

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shapes are those that a profile might hold, of up to four nodes of four GPUs.
func shapes() []Shape {
	var out []Shape
	for _, gpus := range []int{1, 2, 3, 4, 8, 12, 16} {
		for _, batch := range []int64{8, 16, 32, 64, 128} {
			for acc := range int64(2) {
				out = append(out, Shape{Nodes: (gpus + 3) / 4, GPUs: gpus, Batch: batch, Accumulate: acc})
			}
		}
	}
	return out
}

func measure(p Params, shapes []Shape, noise float64, rng *rand.Rand) []Sample {
	p = p.filled()
	out := make([]Sample, len(shapes))
	for i, s := range shapes {
		blur := func() float64 {
			if noise == 0 {
				return 1
			}
			return math.Exp(noise * rng.NormFloat64())
		}
		out[i] = Sample{Shape: s, Step: duration(p.step(s) * blur())}
		out[i].Compute = min(duration(p.compute(s.Batch)*blur()), out[i].Step)
	}
	return out
}

func TestFitFindsKnownParameters(t *testing.T) {
	for _, want := range []Params{
		{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 1},
		{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 2},
		{Compute: Linear{.002, .0003}, Local: Linear{.01, .0001}, Remote: Linear{.03, .001}, Gamma: 1.5},
		{Compute: Linear{.5, .001}, Local: Linear{.02, .0005}, Remote: Linear{1, .05}, Gamma: 3},
	} {
		t.Run(fmt.Sprintf("%v", want), func(t *testing.T) {
			got, err := FitParams(measure(want, shapes(), 0, nil))
			require.NoError(t, err)
			// What holds parameters back pulls them from the truth by its own weight.
			require.Less(t, got.Error, .01)
			require.Less(t, got.RMSLE, .02)
			require.InEpsilon(t, want.Compute.Beta, got.Params.Compute.Beta, .01)
			require.InEpsilon(t, want.Compute.Alpha, got.Params.Compute.Alpha, .05)
			require.InDelta(t, want.Gamma, got.Params.Gamma, .5)
			for _, s := range shapes() {
				require.InEpsilon(t, want.step(s), got.Params.step(s), .06, "%+v", s)
			}
		})
	}
}

// random walks downhill from the best of many random points: slow, and with nothing in
// common with the descent.
func (p *problem) random(rng *rand.Rand, tries int) float64 {
	best, loss := vector{}, math.Inf(1)
	for range tries / 4 {
		var x vector
		for j := range x {
			x[j] = p.lo[j] + (min(p.hi[j], math.Log(10))-p.lo[j])*rng.Float64()
		}
		x[gamma] = p.lo[gamma] + (p.hi[gamma]-p.lo[gamma])*rng.Float64()
		if f := p.loss(p.held(x)); f < loss {
			best, loss = p.held(x), f
		}
	}
	width := 1.0
	for range tries {
		x := best
		for j := range x {
			if rng.IntN(3) == 0 {
				x[j] += width * rng.NormFloat64()
			}
		}
		x = p.held(x)
		if f := p.loss(x); f < loss {
			best, loss, width = x, f, width*1.3
		} else {
			width = max(width*.98, 1e-7)
		}
	}
	return loss
}

func TestFitIsNoWorseThanRandomSearch(t *testing.T) {
	rounds, tries := 12, 6000
	if testing.Short() {
		rounds, tries = 3, 2000
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		truth := Params{
			Compute: Linear{.2 * rng.Float64(), .01 * rng.Float64()},
			Local:   Linear{.1 * rng.Float64(), .01 * rng.Float64()},
			Remote:  Linear{.3 * rng.Float64(), .02 * rng.Float64()},
			Gamma:   1 + 4*rng.Float64(),
		}
		all := shapes()
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		samples := measure(truth, all[:10+rng.IntN(40)], .05, rng)
		got, err := FitParams(samples)
		require.NoError(t, err)
		r := Fit{MinBatch: got.MinBatch, MaxBatch: got.MaxBatch, Local: got.Local, Remote: got.Remote}
		p := newProblem(samples, &r)
		require.LessOrEqual(t, got.Loss, p.random(rng, tries)+1e-6, "%+v", truth)
	}
}

func TestSlopesAreThoseOfTheLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	truth := Params{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 2}
	samples := measure(truth, shapes(), .1, rng)
	p := newProblem(samples, &Fit{MinBatch: 1, MaxBatch: 2, Local: true, Remote: true})
	for range 20 {
		var x vector
		for j := range x {
			x[j] = -6 + 5*rng.Float64()
		}
		x[gamma] = 1.1 + 5*rng.Float64()
		g, _ := p.slopes(x)
		for j := range x {
			const h = 1e-6
			up, down := x, x
			up[j] += h
			down[j] -= h
			require.InDelta(t, (p.loss(up)-p.loss(down))/(2*h), g[j], 1e-5*max(1, math.Abs(g[j])), "slope %d", j)
		}
	}
}

func TestWhatWasNeverMeasuredIsThoughtFree(t *testing.T) {
	truth := Params{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 1}
	only := func(keep func(Shape) bool) Fit {
		var some []Shape
		for _, s := range shapes() {
			if keep(s) {
				some = append(some, s)
			}
		}
		r, err := FitParams(measure(truth, some, 0, nil))
		require.NoError(t, err)
		return r
	}
	near := func(want, got float64) { t.Helper(); require.InEpsilon(t, want, got, .001) }
	t.Run("one GPU", func(t *testing.T) {
		r := only(func(s Shape) bool { return s.GPUs == 1 })
		for _, v := range []float64{r.Params.Local.Alpha, r.Params.Local.Beta, r.Params.Remote.Alpha, r.Params.Remote.Beta} {
			near(least, v)
		}
		near(.05, r.Params.Compute.Alpha)
		near(.01, r.Params.Compute.Beta)
		require.Equal(t, Measured, r.Basis(Shape{Nodes: 1, GPUs: 1, Batch: 20}))
		require.Equal(t, Inferred, r.Basis(Shape{Nodes: 1, GPUs: 1, Batch: 2000}))
		require.Equal(t, Unknown, r.Basis(Shape{Nodes: 1, GPUs: 2, Batch: 20}))
	})
	t.Run("one node", func(t *testing.T) {
		r := only(func(s Shape) bool { return s.Nodes == 1 })
		near(least, r.Params.Remote.Alpha)
		near(least, r.Params.Remote.Beta)
		require.Equal(t, Measured, r.Basis(Shape{Nodes: 1, GPUs: 3, Batch: 20}))
		require.Equal(t, Inferred, r.Basis(Shape{Nodes: 1, GPUs: 8, Batch: 20}))
		require.Equal(t, Unknown, r.Basis(Shape{Nodes: 1, GPUs: 9, Batch: 20}), "more than twice what was measured")
		require.Equal(t, Unknown, r.Basis(Shape{Nodes: 2, GPUs: 4, Batch: 20}))
	})
	t.Run("two GPUs at most", func(t *testing.T) {
		r := only(func(s Shape) bool { return s.GPUs <= 2 })
		near(least, r.Params.Local.Beta)
	})
	t.Run("one batch", func(t *testing.T) {
		r := only(func(s Shape) bool { return s.Batch == 32 })
		near(.185, r.Params.Compute.Alpha) // half of a pass
	})
	require.Equal(t, Unknown, Fit{}.Basis(Shape{Nodes: 1, GPUs: 1, Batch: 1}))
}

func TestFitDoesNotDependOnTheOrderOfSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	truth := Params{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 2}
	samples := measure(truth, shapes(), .1, rng)
	want, err := FitParams(samples)
	require.NoError(t, err)
	for range 3 {
		rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		got, err := FitParams(samples)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestFitStaysInBoundsOnHostileSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 30 {
		var samples []Sample
		for range 1 + rng.IntN(12) {
			nodes := 1 + rng.IntN(3)
			s := Sample{
				Shape: Shape{Nodes: nodes, GPUs: nodes + rng.IntN(9), Batch: 1 + rng.Int64N(1<<uint(rng.IntN(20))), Accumulate: rng.Int64N(3)},
				Step:  time.Duration(1 + rng.Int64N(1<<uint(1+rng.IntN(55)))),
			}
			if rng.IntN(2) == 0 {
				s.Compute = time.Duration(rng.Int64N(int64(s.Step) + 1))
			}
			samples = append(samples, s)
		}
		r, err := FitParams(samples)
		require.NoError(t, err)
		require.NoError(t, r.Params.Validate())
		require.False(t, math.IsNaN(r.Loss) || math.IsInf(r.Loss, 0))
	}
}

// profiles reads the step times that the authors of Pollux measured for an application.
func profiles(t *testing.T, app string) []Sample {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "traces", "pollux-osdi21", "profiles", app)
	var out []Sample
	read := func(name string, shape func(row []string) (nodes, gpus int, rest []string)) {
		f, err := os.Open(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			t.Skipf("no profiles of Pollux at %s: the fit is held against generated samples only", dir)
		}
		require.NoError(t, err)
		defer f.Close()
		rows, err := csv.NewReader(f).ReadAll()
		require.NoError(t, err)
		for _, row := range rows[1:] {
			nodes, gpus, rest := shape(row)
			number := func(i int) float64 {
				v, err := strconv.ParseFloat(rest[i], 64)
				require.NoError(t, err)
				return v
			}
			out = append(out, Sample{
				Shape: Shape{Nodes: nodes, GPUs: gpus, Batch: int64(number(0))},
				Step:  duration(number(1)), Compute: duration(number(1) - number(2)),
			})
		}
	}
	read("placements.csv", func(row []string) (nodes, gpus int, rest []string) {
		for _, digit := range row[0] {
			gpus += int(digit - '0')
		}
		return len(row[0]), gpus, row[1:]
	})
	read("scalability.csv", func(row []string) (nodes, gpus int, rest []string) {
		nodes, err := strconv.Atoi(row[0])
		require.NoError(t, err)
		gpus, err = strconv.Atoi(row[1])
		require.NoError(t, err)
		return nodes, gpus, row[2:]
	})
	return out
}

func TestFitOfThePolluxProfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: six fits of hundreds of measured samples each; generated ones are fitted")
	}
	// A bound is what the fit comes to, rounded up: seven numbers stand for hundreds of measurements.
	for app, bound := range map[string]float64{ // in any order: each case stands alone
		"bert": .045, "cifar10": .07, "deepspeech2": .075, "imagenet": .06, "ncf": .075, "yolov3": .075,
	} {
		t.Run(app, func(t *testing.T) {
			samples := profiles(t, app)
			r, err := FitParams(samples)
			require.NoError(t, err)
			t.Logf("%d samples: median error %.1f%%, RMSLE %.3f, loss %.4f, %+v", len(samples), 100*r.Error, r.RMSLE, r.Loss, r.Params)
			require.Less(t, r.Error, bound)
			q := Fit{MinBatch: r.MinBatch, MaxBatch: r.MaxBatch, Local: r.Local, Remote: r.Remote}
			p := newProblem(samples, &q)
			require.LessOrEqual(t, r.Loss, p.random(rand.New(rand.NewPCG(9, 10)), 600)+1e-6)
		})
	}
}

// What was not measured is foretold from what was: layouts of four nodes and more from
// those of up to three.
func TestFitForetellsLargerLayoutsOfThePolluxProfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: six fits of hundreds of measured samples each; generated ones are fitted")
	}
	for _, app := range []string{"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"} {
		t.Run(app, func(t *testing.T) {
			var small, large []Sample
			for _, s := range profiles(t, app) {
				if s.Shape.Nodes <= 3 {
					small = append(small, s)
				} else {
					large = append(large, s)
				}
			}
			r, err := FitParams(small)
			require.NoError(t, err)
			var misses []float64
			for _, s := range large {
				misses = append(misses, math.Abs(r.Params.step(s.Shape)/s.Step.Seconds()-1))
			}
			miss := median(misses)
			t.Logf("%d samples foretell %d: median error %.1f%% (of the %d themselves: %.1f%%)", len(small), len(large), 100*miss, len(small), 100*r.Error)
			require.Less(t, miss, .25)
		})
	}
}
