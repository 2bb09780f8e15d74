package fit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// packed returns a micro-batch of exactly n tokens of documents of many lengths.
func packed(t testing.TB, r *rand.Rand, n int) perfmodel.Batch {
	t.Helper()
	var lens []int
	for left := n; left > 0; {
		l := min(left, max(1, int(math.Exp(math.Log(1500)+1.5*r.NormFloat64()))))
		lens = append(lens, l)
		left -= l
	}
	b, err := perfmodel.Mask{}.Batch(lens)
	require.NoError(t, err)
	return b
}

// measured returns samples that c explains up to noise.
func measured(t testing.TB, r *rand.Rand, c Coeff, n, tokens int, noise float64) []Sample {
	t.Helper()
	out := make([]Sample, n)
	for i := range out {
		b := packed(t, r, tokens)
		out[i] = Sample{Batch: b, Took: num.Duration(c.nanos(b) * math.Exp(noise*r.NormFloat64()))}
	}
	return out
}

func TestFitFindsExactCoefficients(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, want := range []Coeff{{Alpha: 2000, Beta: 0.05}, {Alpha: 2000}, {Beta: 1}, {Alpha: 3, Beta: 7}} {
		got, report, err := Solve(measured(t, r, want, 20, 32768, 0), Options{})
		require.NoError(t, err)
		require.InEpsilon(t, want.Alpha+1e-9, got.Alpha+1e-9, 1e-4, "%+v", got)
		require.InEpsilon(t, want.Beta+1e-9, got.Beta+1e-9, 1e-4, "%+v", got)
		require.Less(t, report.MAPE, 1e-6)
		require.Equal(t, 20, report.Samples)
	}
}

func TestFitIsWithinItsNoise(t *testing.T) {
	want := Coeff{Alpha: 2000, Beta: 0.05}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		got, report, err := Solve(measured(t, r, want, 200, 32768, 0.015), Options{})
		require.NoError(t, err)
		require.InEpsilon(t, want.Alpha, got.Alpha, 0.03)
		require.InEpsilon(t, want.Beta, got.Beta, 0.06)
		require.InDelta(t, 0.015, report.Scale, 0.005)
		require.InDelta(t, 0.012, report.MAPE, 0.004)
	}
}

func TestFitIsNotBentByAMinority(t *testing.T) {
	want := Coeff{Alpha: 2000, Beta: 0.05}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		samples := measured(t, r, want, 200, 32768, 0.015)
		for i := range 60 { // three in ten come from a device at half speed
			samples[i].Took *= 2
		}
		got, report, err := Solve(samples, Options{})
		require.NoError(t, err)
		for _, s := range samples[:10] {
			require.InEpsilon(t, want.nanos(s.Batch), got.nanos(s.Batch), 0.02)
		}
		require.GreaterOrEqual(t, report.Outliers, 55)
	}
}

func TestFitOfAFixedPart(t *testing.T) {
	want := Coeff{Alpha: 2000, Beta: 0.05, Fixed: 3e6}
	r := rand.New(rand.NewPCG(4, 4))
	var samples []Sample
	for _, tokens := range []int{1024, 4096, 8192, 16384, 32768} {
		samples = append(samples, measured(t, r, want, 40, tokens, 0.01)...)
	}
	got, _, err := Solve(samples, Options{Fixed: true})
	require.NoError(t, err)
	require.InEpsilon(t, want.Alpha, got.Alpha, 0.05)
	require.InEpsilon(t, want.Beta, got.Beta, 0.05)
	require.InEpsilon(t, want.Fixed, got.Fixed, 0.1)
}

func TestFitOfSumsIsThatOfTheirParts(t *testing.T) {
	want := Coeff{Alpha: 2000, Beta: 0.05}
	r := rand.New(rand.NewPCG(5, 5))
	var sums []Sample
	for range 30 {
		var sum Sample
		for _, s := range measured(t, r, want, 8, 32768, 0) {
			sum.Batch.Tokens += s.Batch.Tokens
			sum.Batch.Pairs += s.Batch.Pairs
			sum.Took += s.Took
			sum.Count++
		}
		sums = append(sums, sum)
	}
	got, _, err := Solve(sums, Options{})
	require.NoError(t, err)
	require.InEpsilon(t, want.Beta, got.Beta, 1e-3)
}

func TestFitSaysWhatItLacks(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	varied := measured(t, r, Coeff{Alpha: 2000, Beta: 0.05}, 20, 32768, 0.01)
	same := make([]Sample, 20)
	for i := range same {
		same[i] = varied[0]
	}
	noPairs := make([]Sample, 5)
	for i := range noPairs {
		noPairs[i] = Sample{Batch: perfmodel.Batch{Tokens: int64(100 + i)}, Took: time.Second}
	}
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		samples []Sample
		options Options
		field   string
	}{
		"no samples":                           {nil, Options{}, "samples"},
		"fewer samples than coefficients":      {varied[:1], Options{}, "samples"},
		"all samples the same":                 {same, Options{}, "samples.Pairs"},
		"packed to a constant and a fixed one": {varied, Options{Fixed: true}, "samples.Tokens"},
		"no pairs at all":                      {noPairs, Options{}, "samples.Pairs"},
		"no pairs and a fixed one":             {same, Options{Fixed: true, Linear: true}, "samples.Tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Solve(c.samples, c.options)
			require.ErrorIs(t, err, ErrUnidentifiable)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
		})
	}
	_, _, err := Solve(same, Options{Linear: true})
	require.NoError(t, err, "one coefficient needs no spread")
}

func TestFitRefusesWhatCannotBeMeasured(t *testing.T) {
	good := Sample{Batch: perfmodel.Batch{Tokens: 10, Pairs: 55}, Took: time.Millisecond}
	for name, change := range map[string]func(*Sample){ // the order does not matter: each case stands alone
		"zero time":      func(s *Sample) { s.Took = 0 },
		"negative time":  func(s *Sample) { s.Took = -1 },
		"no tokens":      func(s *Sample) { s.Batch.Tokens = 0 },
		"negative pairs": func(s *Sample) { s.Batch.Pairs = -1 },
		"NaN pairs":      func(s *Sample) { s.Batch.Pairs = math.NaN() },
		"infinite pairs": func(s *Sample) { s.Batch.Pairs = math.Inf(1) },
		"negative count": func(s *Sample) { s.Count = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			_, _, err := Solve([]Sample{good, bad, good}, Options{})
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.NotErrorIs(t, err, ErrUnidentifiable)
		})
	}
	for _, spread := range []float64{-1, 1, math.NaN()} {
		_, _, err := Solve([]Sample{good}, Options{MinSpread: spread})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestFitDoesNotOverflow(t *testing.T) {
	var samples []Sample
	for i := range 10 { // documents of a million tokens by the thousand: their squares are beyond int64
		n := float64(i + 1)
		samples = append(samples, Sample{
			Batch: perfmodel.Batch{Tokens: 1 << 40, Pairs: 1e21 * n},
			Took:  time.Duration(1e15 * (1 + n)),
		})
	}
	c, _, err := Solve(samples, Options{})
	require.NoError(t, err)
	require.InEpsilon(t, 1e-6, c.Beta, 1e-6)
	require.Equal(t, time.Duration(math.MaxInt64), c.Time(perfmodel.Batch{Tokens: 1, Pairs: 1e30}))
	require.Error(t, Coeff{Beta: math.NaN()}.Validate())
	require.Error(t, Coeff{Alpha: math.Inf(1)}.Validate())
	require.Error(t, Coeff{Fixed: -1}.Validate())
}

// TestFitIsNonNegativeLeastSquares compares the fit of clean samples with a search for the same least loss.
func TestFitIsNonNegativeLeastSquares(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		var n normalEquations
		for range 3 + r.IntN(20) {
			n.add([3]float64{r.Float64(), r.Float64(), r.Float64()}, 3*r.Float64()-1, r.Float64())
		}
		use := [3]bool{true, r.IntN(2) == 0, r.IntN(2) == 0}
		c := n.solve(use)
		got := n.loss(c.array())
		x := [3]float64{}
		for range 4000 { // coordinate descent, projected
			for j := range x {
				if use[j] {
					rest := n.rhs[j]
					for k := range x {
						if k != j {
							rest -= n.gram[j][k] * x[k]
						}
					}
					x[j] = max(0, rest/n.gram[j][j])
				}
			}
		}
		require.InDelta(t, n.loss(x), got, 1e-6*n.yy)
	}
}

func TestTimeUnitScalesCoefficients(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	samples := measured(t, r, Coeff{Alpha: 2000, Beta: 0.05}, 50, 32768, 0.015)
	one, _, err := Solve(samples, Options{})
	require.NoError(t, err)
	for i := range samples {
		samples[i].Took *= 1000
	}
	thousand, _, err := Solve(samples, Options{})
	require.NoError(t, err)
	require.InEpsilon(t, one.Alpha*1000, thousand.Alpha, 1e-9)
	require.InEpsilon(t, one.Beta*1000, thousand.Beta, 1e-9)
}
