package change

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

var methods = [...]Method{CUSUM, EWMA, Raw, BOCD, Greyhound, ResiHP} // all; immutable

// noise is a series of logarithms of ratios: an autoregression with pauses.
type noise struct {
	r       *rand.Rand
	sd, rho float64
	pause   float64 // chance of a pause
	u       float64
}

func newNoise(seed uint64, sd, rho, pause float64) *noise {
	return &noise{r: rand.New(rand.NewPCG(seed, 77)), sd: sd, rho: rho, pause: pause}
}

func (n *noise) next() float64 {
	n.u = n.rho*n.u + n.sd*math.Sqrt(1-n.rho*n.rho)*n.r.NormFloat64()
	x := n.u
	if n.r.Float64() < n.pause {
		x += math.Log(1.05 + 0.35*n.r.Float64())
	}
	return x
}

func newTest(t testing.TB, cfg Config) Test {
	t.Helper()
	out, err := New(cfg)
	require.NoError(t, err)
	return out
}

// observe gives a test a sample that was expected to be 0.
func observe(t testing.TB, test Test, x float64) Decision {
	t.Helper()
	var d Decision
	var err error
	if p, ok := test.(Predictive); ok {
		d, err = p.ObserveExpected(x, 0)
	} else {
		d, err = test.Observe(x)
	}
	require.NoError(t, err)
	return d
}

func saved(t testing.TB, test Test) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, test.Snapshot(&b))
	return b.Bytes()
}

func TestTestsFindAStepAndItsOnset(t *testing.T) {
	for _, m := range methods {
		t.Run(m.String(), func(t *testing.T) {
			found := 0
			for seed := range uint64(20) {
				n := newNoise(seed, 0.015, 0, 0)
				test := newTest(t, Config{Method: m})
				early := false
				for i := range 100 {
					d := observe(t, test, n.next())
					early = early || d.Alarm
					require.Equal(t, i < 30, d.Learning)
				}
				for i := 0; i < 6 && !early; i++ {
					d := observe(t, test, n.next()+math.Log(1.5))
					if !d.Alarm {
						continue
					}
					found++
					require.True(t, d.Standing)
					if m != EWMA { // its mean forgets when it rose
						require.InDelta(t, i+1, d.Since, 3)
						require.InDelta(t, math.Log(1.5), d.Shift, 0.3)
					}
					break
				}
			}
			require.GreaterOrEqual(t, found, 19)
		})
	}
}

func TestFewFalseAlarms(t *testing.T) {
	for _, m := range [...]Method{CUSUM, EWMA, BOCD, Greyhound} {
		alarms, jobs := 0, 100
		for seed := range jobs {
			n := newNoise(uint64(seed), 0.04, 0.5, 0.01)
			test := newTest(t, Config{Method: m})
			for range 300 {
				if observe(t, test, n.next()).Alarm {
					alarms++
				}
			}
		}
		limit := 0.15
		if m == BOCD || m == Greyhound {
			limit = 0.6 // what they are known for
		}
		require.LessOrEqual(t, float64(alarms)/float64(jobs), limit, m)
	}
}

// TestMinDetectableIsFoundAsOftenAsItSays has a fault of exactly the size that a test
// reports, in noise of several kinds, and wants it found in 50 to 70 jobs of 100, where the
// test says 60.
func TestMinDetectableIsFoundAsOftenAsItSays(t *testing.T) {
	for _, m := range [...]Method{CUSUM, EWMA, Raw} {
		for _, kind := range []struct{ sd, rho, pause float64 }{{0.015, 0, 0}, {0.04, 0.5, 0.01}, {0.03, 0.3, 0}} {
			name := fmt.Sprintf("%v/sd=%v/rho=%v/pauses=%v", m, kind.sd, kind.rho, kind.pause)
			if m == Raw && kind.rho == 0.5 {
				continue // noise alone is over its limit
			}
			t.Run(name, func(t *testing.T) {
				found, jobs, want := 0, 0, 600
				if testing.Short() {
					want = 300
				}
				test := newTest(t, Config{Method: m})
				for seed := uint64(0); jobs < want; seed++ {
					n := newNoise(seed, kind.sd, kind.rho, kind.pause)
					test.Reset()
					least, before := 0.0, false
					for range 100 + seed%100 {
						d := observe(t, test, n.next())
						least, before = d.MinDetectable, before || d.Alarm
					}
					if before {
						continue
					}
					jobs++
					require.Greater(t, least, 1.0)
					for range 30 {
						if observe(t, test, n.next()+math.Log(least)).Alarm {
							found++
							break
						}
					}
				}
				require.InDelta(t, 0.6, float64(found)/float64(jobs), 0.1)
			})
		}
	}
}

func TestMinDetectableGrowsWithNoiseAndPower(t *testing.T) {
	least := func(sd float64, cfg Config) float64 {
		n, test := newNoise(1, sd, 0, 0), newTest(t, cfg)
		var d Decision
		for range 200 {
			d = observe(t, test, n.next())
		}
		return d.MinDetectable
	}
	for _, m := range [...]Method{CUSUM, EWMA} {
		require.Less(t, least(0.01, Config{Method: m}), least(0.02, Config{Method: m}))
		require.Less(t, least(0.01, Config{Method: m, Power: 0.3}), least(0.01, Config{Method: m, Power: 0.9}))
		require.Less(t, least(0.01, Config{Method: m, Horizon: 60}), least(0.01, Config{Method: m, Horizon: 10}))
		require.Less(t, least(0.01, Config{Method: m}), least(0.01, Config{Method: m, Threshold: 12}))
	}
	require.Equal(t, math.Inf(1), least(0.01, Config{Threshold: 50, Horizon: 2}), "no fault is found so soon")
}

// TestLargerFaultsAreFoundNoLater is exact for a cumulative sum: whatever the noise, more of a fault is no less evidence.
func TestLargerFaultsAreFoundNoLater(t *testing.T) {
	for seed := range uint64(50) {
		before := math.MaxInt
		for _, factor := range []float64{1.02, 1.05, 1.1, 1.3, 2, 10} {
			n, test := newNoise(seed, 0.02, 0.4, 0.01), newTest(t, Config{})
			delay := math.MaxInt
			for i := range 300 {
				x := n.next()
				if i >= 100 {
					x += math.Log(factor)
				}
				if d := observe(t, test, x); d.Alarm && i >= 100 {
					delay = i
					break
				}
			}
			require.LessOrEqual(t, delay, before, "factor %v", factor)
			before = delay
		}
	}
}

func TestNoFaultAndAnExactModelMakeNoAlarm(t *testing.T) {
	for _, m := range methods {
		for _, jitter := range []float64{0, 1e-9} {
			n, test := newNoise(3, jitter, 0, 0), newTest(t, Config{Method: m})
			for range 5000 {
				require.False(t, observe(t, test, 0.7+n.next()).Alarm, m)
			}
		}
	}
}

func TestTheUnitOfTimeDoesNotMatter(t *testing.T) {
	for _, m := range methods {
		n := newNoise(4, 0.02, 0.3, 0.01)
		ms, ns := newTest(t, Config{Method: m}), newTest(t, Config{Method: m})
		for i := range 400 {
			x := n.next()
			if i > 250 {
				x += 0.4
			}
			a, err := ms.Observe(x)
			require.NoError(t, err)
			b, err := ns.Observe(x + math.Log(1e6))
			require.NoError(t, err)
			require.Equal(t, a.Alarm, b.Alarm)
			require.Equal(t, a.Since, b.Since)
			require.InDelta(t, a.Score, b.Score, 1e-6)
		}
	}
}

// TestASlowRampDoesNotHideInTheBaseline has faults that take from 20 to 20,000 samples to grow to a tenth.
func TestASlowRampDoesNotHideInTheBaseline(t *testing.T) {
	for _, rise := range []int{20, 100, 500, 2000, 20_000} {
		for seed := range uint64(10) {
			n, test := newNoise(seed, 0.015, 0.3, 0.01), newTest(t, Config{})
			for range 200 {
				observe(t, test, n.next())
			}
			alarm := false
			for i := 0; i < rise+100 && !alarm; i++ {
				alarm = observe(t, test, n.next()+math.Log(1+0.1*min(1, float64(i)/float64(rise)))).Alarm
			}
			require.True(t, alarm, "ramp over %d samples", rise)
		}
	}
}

func TestWhatLeadsToAnAlarmIsNotLearned(t *testing.T) {
	n := newNoise(5, 0.015, 0, 0)
	a := newCUSUM(Config{}.withDefaults())
	b := newCUSUM(Config{}.withDefaults())
	for range 200 {
		x := n.next()
		observe(t, a, x)
		observe(t, b, x)
	}
	alarm := false
	for i := 0; !alarm; i++ {
		require.Less(t, i, 30)
		require.InDelta(t, a.base.mean, b.base.mean, 0, "both learned the same healthy samples")
		x := n.next()
		observe(t, a, x)
		alarm = observe(t, b, x+math.Log(1.03)).Alarm
	}
	mean := b.base.mean
	for range 500 {
		observe(t, b, n.next()+math.Log(1.03))
	}
	require.InDelta(t, mean, b.base.mean, 0, "nothing is learned while an alarm stands")
}

func TestASecondSlowdownIsNotSilent(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(6, 0.015, 0.3, 0), newTest(t, Config{Method: m})
		alarms := func(samples int, factor float64) (count int, last Decision) {
			for range samples {
				last = observe(t, test, n.next()+math.Log(factor))
				if last.Alarm {
					count++
				}
			}
			return count, last
		}
		none, _ := alarms(100, 1)
		require.Zero(t, none, m)
		for range 3 { // the same stage stalls again and again
			count, d := alarms(60, 1.4)
			require.Equal(t, 1, count, m)
			require.True(t, d.Standing, m)
			count, d = alarms(100, 1)
			require.Zero(t, count, m)
			require.False(t, d.Standing, "%v: the alarm ends when the slowdown does", m)
		}
	}
}

func TestASecondFaultOnTopOfAFirstIsNotSilent(t *testing.T) {
	for _, m := range [...]Method{CUSUM, BOCD, Greyhound, ResiHP} {
		n, test := newNoise(7, 0.015, 0, 0), newTest(t, Config{Method: m})
		count := 0
		for i := range 300 {
			x := n.next()
			if i >= 100 {
				x += math.Log(1.4)
			}
			if i >= 200 {
				x += math.Log(1.4)
			}
			if observe(t, test, x).Alarm {
				count++
			}
		}
		require.Equal(t, 2, count, m)
	}
}

func TestIsolatedSpikesAreNoAlarm(t *testing.T) {
	for _, size := range []float64{1.4, 5, 1e6} {
		n, test := newNoise(8, 0.02, 0.3, 0), newTest(t, Config{})
		for i := range 1000 {
			x := n.next()
			if i%25 == 24 {
				x += math.Log(size)
			}
			require.False(t, observe(t, test, x).Alarm, "sample %d", i)
		}
	}
}

func TestTuneKeepsWhatWasLearned(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(9, 0.015, 0, 0), newTest(t, Config{Method: m})
		for range 100 {
			observe(t, test, n.next())
		}
		strict := Config{Method: m, Threshold: 0.99}
		if m < BOCD {
			strict.Threshold = 1000
		}
		require.NoError(t, test.Tune(strict))
		for range 20 {
			d := observe(t, test, n.next()+math.Log(1.4))
			require.False(t, d.Learning)
			require.False(t, m < BOCD && d.Alarm, m)
		}
		require.ErrorIs(t, test.Tune(Config{Method: m, Warmup: 99}), lockstep.ErrInvalid)
		require.ErrorIs(t, test.Tune(Config{Method: (m + 1) % 6}), lockstep.ErrInvalid)
		require.ErrorIs(t, test.Tune(Config{Method: m, Clip: math.NaN()}), lockstep.ErrInvalid)
		before := saved(t, test)
		require.Error(t, test.Tune(Config{Method: m, Lag: 7}))
		require.Equal(t, before, saved(t, test), "after an error nothing has changed")
	}
	test := newTest(t, Config{Threshold: 1000})
	n := newNoise(10, 0.015, 0, 0)
	for range 100 {
		observe(t, test, n.next())
	}
	require.NoError(t, test.Tune(Config{}))
	alarm := false
	for range 10 {
		alarm = alarm || observe(t, test, n.next()+math.Log(1.2)).Alarm
	}
	require.True(t, alarm)
}

func TestResetForgetsAll(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(11, 0.015, 0.2, 0), newTest(t, Config{Method: m})
		fresh := saved(t, test)
		for i := range 150 {
			observe(t, test, n.next()+0.4*float64(i/100))
		}
		test.Reset()
		require.Equal(t, string(fresh), string(saved(t, test)))
	}
}

func TestTestsRefuseWhatIsNoSample(t *testing.T) {
	for _, m := range methods {
		test := newTest(t, Config{Method: m})
		n := newNoise(12, 0.01, 0, 0)
		for range 50 {
			observe(t, test, n.next())
		}
		before := saved(t, test)
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e9} {
			_, err := test.Observe(x)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			if p, ok := test.(Predictive); ok {
				_, err := p.ObserveExpected(0, x)
				require.ErrorIs(t, err, lockstep.ErrInvalid)
			}
		}
		require.Equal(t, before, saved(t, test))
	}
}

func TestTestConfigReportsAllFaults(t *testing.T) {
	err := Config{
		Method: 9, Warmup: 1, Lag: -1, Threshold: math.NaN(), Reference: -1, Weight: 2, Clip: 1, Shift: 0.5, Hazard: 1,
		Support: 3, Within: 99, Horizon: -1, Power: 1, Drift: -1, Cap: 2, MinScale: math.Inf(1),
	}.Validate()
	for _, field := range []string{
		"Method", "Warmup", "Lag", "Threshold", "Reference", "Weight", "Clip", "Shift", "Hazard", "Support", "Within", "Horizon", "Power", "Drift", "Cap", "MinScale",
	} {
		require.ErrorContains(t, err, " "+field+" ")
	}
	_, err = New(Config{Warmup: 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.NoError(t, Config{}.Validate())
}

func TestObserveAllocatesNothing(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(13, 0.02, 0.3, 0.01), newTest(t, Config{Method: m})
		for range 100 {
			observe(t, test, n.next())
		}
		xs := make([]float64, 1000)
		for i := range xs {
			xs[i] = n.next() + 0.5*float64(i/300%2)
		}
		i := 0
		require.Zero(t, testing.AllocsPerRun(900, func() {
			if _, err := test.Observe(xs[i]); err != nil {
				panic(err)
			}
			i++
		}), m)
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, m := range methods {
		b.Run(m.String(), func(b *testing.B) {
			n, test := newNoise(13, 0.02, 0.3, 0.01), newTest(b, Config{Method: m})
			xs := make([]float64, 4096)
			for i := range xs {
				xs[i] = n.next()
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := test.Observe(xs[i&4095]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func TestNamesOfMethods(t *testing.T) {
	names := ""
	for _, m := range append(methods[:len(methods):len(methods)], 99) {
		names += m.String() + " "
	}
	require.Equal(t, "cusum ewma raw bocd greyhound resihp Method(99) ", names)
}

// TestTheLevelRisesToTheCapOnly has a series that rises by less a sample than the baseline may, and a test that never alarms.
func TestTheLevelRisesToTheCapOnly(t *testing.T) {
	n, test := newNoise(81, 0.01, 0.3, 0), newTest(t, Config{Threshold: 1e6})
	for i := range 50_000 {
		observe(t, test, n.next()+2e-6*float64(i))
	}
	require.Greater(t, test.Level(), 0.02)
	require.Less(t, test.Level(), 0.035)
	require.Equal(t, 1e6, test.Config().Threshold)
}
