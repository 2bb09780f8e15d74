package bubble

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestLogarithms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		b := 1 + r.Int64N(1<<(1+r.IntN(20)))
		a := b + r.Int64N(1<<(1+r.IntN(30)))
		want := 1000 * math.Log(float64(a)/float64(b))
		got := float64(logThousandths(a, b))
		require.LessOrEqual(t, got, want+1e-6)
		require.Greater(t, got, want-2)
	}
	require.Zero(t, logThousandths(3, 3))
	require.Zero(t, logThousandths(2, 3))
}

// On average a bet wins nothing while nothing has changed, whatever the number of samples.
func TestBetsAreFair(t *testing.T) {
	for _, n := range []int64{100, 1000, 4001, 100_001} {
		for _, bet := range []test{scaleTest(), driftTest(), calmTest()} {
			sum := 0.0
			for rank := int64(1); rank <= n; rank++ {
				sum += math.Exp(float64(bet.gain(rank, n))/1000) / float64(n)
			}
			require.LessOrEqual(t, sum, 1.0)
			require.Greater(t, sum, 0.6)
		}
	}
	for _, miss := range []int64{10, 100, 1000, 50_000, 600_000} {
		h := newHarmTest(miss)
		p := float64(miss) / million
		sum := float64(p*math.Exp(float64(h.win)/1000)) + float64((1-p)*math.Exp(-float64(h.lose)/1000))
		require.LessOrEqual(t, sum, 1.0)
	}
}

// The bet against a change of the size that it is made for is fair as well.
func TestTheBetAgainstAChangeIsFair(t *testing.T) {
	bet, n := calmTest(), int64(4001)
	sum := 0.0
	for rank := int64(1); rank <= n; rank++ {
		stake, _ := bet.against(0, rank, n)
		k := float64(bet.kappa) / 1000
		chance := math.Pow(float64(rank)/float64(n), k) - math.Pow(float64(rank-1)/float64(n), k) // of that rank after a change
		sum += chance * math.Exp(float64(stake)/1000)
	}
	require.LessOrEqual(t, sum, 1.001)
}

// until returns how many windows after a change filling stops, and why.
func until(t testing.TB, w *world, p *Packer) (int, lockstep.Reason) {
	for n := 1; n < 10_000; n++ {
		why := w.fill(t, p, (n-1)%len(w.cfg.Windows))
		w.now += time.Minute
		if v := p.View(); !v.Armed || v.Learning == len(w.cfg.Windows) {
			return n, why
		}
	}
	return 10_000, ""
}

func TestMoreScatterTripsTheBreakerAndNewSamplesArmIt(t *testing.T) {
	w := newWorld(small(), 5, 0.03, 0.04)
	w.cfg.Samples = 1200
	p := armed(t, w, 4000)
	w.run(t, p, 300)
	w.spread, w.uneven = 0.06, 0.08
	n, why := until(t, w, p)
	require.Equal(t, ReasonScale, why)
	require.LessOrEqual(t, n, 60)
	f, err := p.Begin(w.now+30*time.Second, 0)
	require.NoError(t, err)
	require.Equal(t, ReasonScale, f.Reason)
	_, err = p.Observe(Observation{Window: 0, Start: w.now + 30*time.Second, End: w.now + 30*time.Second + 400*ms})
	require.NoError(t, err)
	w.now += time.Minute
	before := p.View().Quanta
	old, _ := p.Margin()
	n, found := w.run(t, p, 1199)
	require.Equal(t, ReasonRearmed, found)
	require.Equal(t, 1199, n)
	require.Equal(t, before, p.View().Quanta)
	now, _ := p.Margin()
	require.InDelta(t, 2, now/old, 0.5)
	w.now += time.Minute
	w.run(t, p, 300)
	require.Greater(t, p.View().Quanta, before)
}

// A breaker that tripped by chance finds out soon.
func TestAFalseTripIsTakenBack(t *testing.T) {
	w := newWorld(small(), 6, 0.03, 0.04)
	p := armed(t, w, 4000)
	p.trip(ReasonScale)
	n, found := w.run(t, p, 300)
	require.Equal(t, ReasonRearmed, found)
	require.Less(t, n, 150)
	require.Len(t, p.jitter.ends, 4000)
}

// ... and hardly ever takes a true one back.
func TestATrueTripStands(t *testing.T) {
	back := 0
	for seed := range uint64(100) {
		w := newWorld(small(), 100+seed, 0.03, 0.04)
		p := armed(t, w, 1000)
		p.trip(ReasonScale)
		w.spread = 0.06
		if _, found := w.run(t, p, 300); found != "" {
			back++
		}
	}
	require.LessOrEqual(t, back, 1)
}

func TestALengthThatChangedIsLearnt(t *testing.T) {
	for _, stretch := range []float64{0.8, 0.9, 1.1, 1.3} {
		w := newWorld(small(), 7, 0.03, 0.04)
		p := armed(t, w, 4000)
		w.run(t, p, 60)
		w.stretch = stretch
		n, why := until(t, w, p)
		require.Equal(t, ReasonDrift, why)
		require.LessOrEqual(t, n, 10)
		f, err := p.Begin(w.now+30*time.Second, 1)
		require.NoError(t, err)
		require.Equal(t, ReasonDrift, f.Reason)
		_, err = p.Observe(Observation{Window: 1, Start: w.now + 30*time.Second, End: w.now + 30*time.Second + w.length(1)})
		require.NoError(t, err)
		w.now += time.Minute
		_, found := w.run(t, p, 90)
		require.Equal(t, ReasonRearmed, found)
		require.Zero(t, p.View().Learning)
		for i, win := range w.cfg.Windows {
			length, ok := p.Length(i)
			require.True(t, ok)
			require.InEpsilon(t, stretch*float64(win.End-win.Start), float64(length), 0.03)
		}
	}
}

func TestAWindowThatChangedAloneIsLearntAlone(t *testing.T) {
	w := newWorld(small(), 8, 0.02, 0.02)
	p := armed(t, w, 2000)
	w.run(t, p, 30)
	at := w.now
	for k := range 20 {
		start := at + time.Duration(k)*time.Minute
		for i, win := range w.cfg.Windows {
			length := w.length(i)
			if i == 1 {
				length = length * 11 / 10
			}
			why, err := p.Observe(Observation{Window: i, Start: start + win.Start, End: start + win.Start + length})
			require.NoError(t, err)
			if why != "" {
				require.Equal(t, ReasonDrift, why)
				require.Equal(t, 1, i)
				require.Equal(t, 1, p.View().Learning)
				return
			}
		}
	}
	require.Fail(t, "not found")
}

// Overruns stop filling even where windows are as long as ever.
func TestHarmTripsTheBreaker(t *testing.T) {
	w := newWorld(small(), 9, 0.01, 0.01)
	p := armed(t, w, 1000)
	for k := 0; ; k++ {
		start := time.Duration(k) * time.Minute
		f, err := p.Begin(start, 0)
		require.NoError(t, err)
		require.True(t, f.Feasible)
		_, why, err := p.MayStartQuantum(start+5*ms, 0)
		require.NoError(t, err)
		require.Empty(t, why)
		why, err = p.Observe(Observation{Window: 0, Start: start, End: start + 400*ms, Overrun: ms})
		require.NoError(t, err)
		if why != "" {
			require.Equal(t, ReasonHarm, why)
			require.LessOrEqual(t, k, 6)
			break
		}
	}
	require.Equal(t, ReasonHarm, p.View().Reason)
}

// What another stage's window has told holds in the ones that are open.
func TestOpenWindowsStopToo(t *testing.T) {
	p := armed(t, newWorld(small(), 9, 0.01, 0.01), 1000)
	_, err := p.Begin(0, 0)
	require.NoError(t, err)
	p.trip(ReasonScale)
	_, why, err := p.MayStartQuantum(5*ms, 0)
	require.NoError(t, err)
	require.Equal(t, ReasonScale, why)
}

// Where nothing scattered, less than a thousandth is no sign.
func TestQuietIsNoSign(t *testing.T) {
	w := newWorld(small(), 10, 0, 0)
	p := armed(t, w, 1000)
	w.spread = 0.0002
	_, found := w.run(t, p, 3000)
	require.True(t, found == "" || found == ReasonHarm, found)
	w = newWorld(small(), 10, 0, 0)
	p = armed(t, w, 1000)
	w.stretch = 1.1
	n, why := until(t, w, p)
	require.Equal(t, ReasonDrift, why)
	require.LessOrEqual(t, n, 5)
}

// A packer that only watches learns how windows scatter.
func TestWatchingArms(t *testing.T) {
	w := newWorld(small(), 12, 0.03, 0.04)
	w.cfg.Samples = 999
	p, err := New(w.cfg)
	require.NoError(t, err)
	_, steps := w.samples(1000)
	require.NoError(t, p.Calibrate(nil, steps))
	n, found := w.run(t, p, 1500)
	require.Equal(t, ReasonRearmed, found)
	require.Equal(t, 999, n)
	require.Positive(t, p.View().Quanta)
}
