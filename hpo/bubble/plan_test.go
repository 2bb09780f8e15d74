package bubble

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

func TestBoundsOfTheBenchmark(t *testing.T) {
	for _, c := range []struct {
		spare []int
		lp    float64
		free  [3]float64 // of the knapsack, Q = 1, 4, 16
	}{
		{[]int{3, 9, 16, 24}, 1947.0, [3]float64{1743, 1888.25, 1932.1875}},
		{[]int{5, 12, 21, 32}, 2342.3, [3]float64{2020, 2260.5, 2321.875}},
	} {
		for i, q := range []int{1, 4, 16} {
			cfg := job(t, q, FreeSwitching, c.spare...)
			require.Len(t, cfg.Windows, 15)
			lp, err := Bound(cfg, 0)
			require.NoError(t, err)
			require.InDelta(t, c.lp, lp, 0.05)
			most, err := Knapsack(cfg)
			require.NoError(t, err)
			require.InDelta(t, c.free[i], most, 0.1)
		}
	}
}

// Without jitter what is run is the exact optimum.
func TestWithoutJitterTheOptimumIsReached(t *testing.T) {
	for _, residency := range []Residency{FreeSwitching, ResidentSet} {
		for _, q := range []int{1, 4, 16} {
			w := newWorld(job(t, q, residency, 3, 9, 16, 24), 1, 0, 0)
			p := armed(t, w, 1000)
			_, found := w.run(t, p, 15)
			require.Empty(t, found)
			most, err := Knapsack(w.cfg)
			require.NoError(t, err)
			require.InDelta(t, most, p.View().Steps, 1e-9)
			require.Zero(t, p.View().Overruns)
		}
	}
}

// slowest is the knapsack by recursion over every sequence of quanta.
func slowest(room int64, quanta, worth []int64, may set) int64 {
	best := int64(0)
	for i, q := range quanta {
		if may.has(i) && q <= room {
			best = max(best, worth[i]+slowest(room-q, quanta, worth, may))
		}
	}
	return best
}

func TestKnapsackIsThatOfEverySequence(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var p pack
	for range 300 {
		n := 1 + r.IntN(4)
		quanta, worth := make([]int64, n), make([]int64, n)
		for i := range quanta {
			quanta[i], worth[i] = 3+r.Int64N(20), 1+r.Int64N(9)
		}
		room, may := r.Int64N(40), set(r.Uint64N(1<<n))
		want := slowest(room, quanta, worth, may)
		require.Equal(t, want, p.most(room, quanta, worth, may, 1000, true))
		limit := 2 + r.Int64N(8)
		require.LessOrEqual(t, p.most(room, quanta, worth, may, limit, true), want)
		require.GreaterOrEqual(t, p.most(room, quanta, worth, may, limit, false), want)
	}
}

// The members that are loaded, the memory they take and the work of a pass stay within all bounds.
func TestPlansKeepToTheirBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		w := newWorld(random(r), r.Uint64(), 0, 0)
		p := armed(t, w, 1000)
		last := map[BundleID]int64{}
		for stage, d := range w.cfg.Devices {
			sum := lockstep.Bytes(0)
			for _, h := range p.Residents(stage) {
				sum += h.Memory
				require.LessOrEqual(t, h.Memory, d.Memory-d.Peak)
				require.GreaterOrEqual(t, h.First, last[h.Bundle], "a member is loaded twice")
				last[h.Bundle] = h.First + h.Fused
			}
			require.True(t, w.cfg.Residency == FreeSwitching || sum <= d.Memory-d.Peak)
		}
		for _, b := range w.cfg.Bundles {
			require.True(t, b.Members == 0 || last[b.ID] <= b.Members)
		}
		w.run(t, p, len(w.cfg.Windows))
		worth := 0.0
		for _, b := range w.cfg.Bundles {
			worth = max(worth, float64(b.Weight))
		}
		most, err := Knapsack(w.cfg)
		require.NoError(t, err)
		lp, err := Bound(w.cfg, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, most, lp+1e-6)
		if worth <= 1 { // View counts trial-steps without weights
			require.LessOrEqual(t, p.View().Steps, most+1e-6)
		}
		require.Zero(t, p.View().Overruns)
	}
}

func TestMoreRoomIsNeverWorse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		cfg := random(r)
		lp, err := Bound(cfg, 0)
		require.NoError(t, err)
		most, err := Knapsack(cfg)
		require.NoError(t, err)
		if r.IntN(2) == 0 {
			cfg.Devices[0].Memory += 50
		} else {
			cfg.Windows = append(cfg.Windows, Window{Start: time.Hour, End: time.Hour + 300*ms})
		}
		lp2, err := Bound(cfg, 0)
		require.NoError(t, err)
		most2, err := Knapsack(cfg)
		require.NoError(t, err)
		require.GreaterOrEqual(t, lp2, lp-1e-9)
		require.GreaterOrEqual(t, most2, most)
	}
}

func TestFineQuantaReachTheBound(t *testing.T) {
	cfg := small()
	lp, err := Bound(cfg, 0)
	require.NoError(t, err)
	last := 0.0
	for _, q := range []int{1, 8, 64, 512} {
		cfg.Quanta = q
		most, err := Knapsack(cfg)
		require.NoError(t, err)
		require.GreaterOrEqual(t, most, last-1e-9)
		last = most
	}
	require.Greater(t, last, 0.99*lp)
}

func TestSupplyBindsTheBound(t *testing.T) {
	cfg := small()
	free, err := Bound(cfg, 0)
	require.NoError(t, err)
	cfg.Bundles[0].Steps = 1 << 40
	ample, err := Bound(cfg, 0)
	require.NoError(t, err)
	require.InDelta(t, free, ample, 1e-6, "the tableau finds what the closed form says")
	cfg.Bundles[0].Steps = 10
	scarce, err := Bound(cfg, 0)
	require.NoError(t, err)
	require.InDelta(t, 10, scarce, 1e-6)
}

// corner returns the best corner of a programme of two variables.
func corner(s *simplex) float64 {
	lines := make([][3]float64, 0, len(s.limits)+2) // a x + b y <= c
	for i, limit := range s.limits {
		l := [3]float64{0, 0, limit}
		for j, c := range s.columns {
			for _, e := range c.at {
				if e.row == i {
					l[j] += e.uses
				}
			}
		}
		lines = append(lines, l)
	}
	lines = append(lines, [3]float64{-1, 0, 0}, [3]float64{0, -1, 0})
	best := 0.0
	for i, a := range lines {
		for _, b := range lines[:i] {
			det := float64(a[0]*b[1]) - float64(a[1]*b[0])
			if math.Abs(det) < 1e-12 {
				continue
			}
			x, y := (float64(a[2]*b[1])-float64(b[2]*a[1]))/det, (float64(a[0]*b[2])-float64(b[0]*a[2]))/det
			ok := true
			for _, l := range lines {
				ok = ok && float64(l[0]*x)+float64(l[1]*y) <= l[2]+1e-9
			}
			if ok {
				best = max(best, float64(s.columns[0].gain*x)+float64(s.columns[1].gain*y))
			}
		}
	}
	return best
}

func TestSimplexFindsTheBestCorner(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 500 {
		s := &simplex{limits: make([]float64, 2+r.IntN(4)), columns: make([]column, 2)}
		for i := range s.limits {
			s.limits[i] = float64(r.IntN(10))
		}
		for j := range s.columns {
			s.columns[j].gain = float64(r.IntN(6))
			for i := range s.limits {
				if i == j || r.IntN(2) == 0 {
					s.columns[j].at = append(s.columns[j].at, entry{i, float64(1 + r.IntN(5))})
				}
			}
		}
		require.InDelta(t, corner(s), s.maximum(), 1e-6)
	}
}

// expect is what solver.run finds, by recursion from the definition.
func expect(s *solver, price float64, i int) float64 {
	if i >= len(s.risk) {
		return -price * float64(len(s.ends)+1)
	}
	best := -price * float64(s.risk[i])
	for c, steps := range s.steps {
		if len(steps) == 0 {
			continue
		}
		v := float64(s.worth[c])
		for _, to := range steps {
			v += float64(to.weight) / whole * expect(s, price, i+int(to.cells))
		}
		best = max(best, v)
	}
	return best
}

func TestPolicyIsThatOfTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 30 {
		s := &solver{task: task{
			length: 1000, resume: 10, pause: 10, quanta: []int64{150 + r.Int64N(100), 250 + r.Int64N(200)}, worth: []int64{1 << 24, 3 << 23}, may: 3,
			ends: []int64{-90_000, -40_000, 0, 20_000, 50_000}, parts: []part{{whole / 4, 900_000}, {whole / 2, 1_000_000}, {whole / 4, 1_200_000}},
		}}
		require.True(t, s.grid())
		s.fillRisk()
		s.fillSteps()
		price := int64(1) << (18 + r.IntN(8))
		s.run(price)
		require.InDelta(t, expect(s, float64(price), 0), float64(s.value[0]), 100)
	}
}

// What a policy is expected to make and to miss is what it does if lengths are drawn from its samples.
func TestPolicyKeepsWhatItPromises(t *testing.T) {
	w := newWorld(small(), 11, 0.03, 0.04)
	w.cfg.MissFraction = 0.02
	p := armed(t, w, 2000)
	var expected, miss float64
	for i := range w.cfg.Windows {
		start := w.now + w.cfg.Windows[i].Start
		f, err := p.Begin(start, i)
		require.NoError(t, err)
		require.True(t, f.Feasible)
		require.LessOrEqual(t, f.Miss, 0.01+1e-9)
		expected, miss = expected+f.Expected, miss+f.Miss
		_, err = p.Observe(Observation{Window: i, Start: start, End: start + w.cfg.Windows[i].End - w.cfg.Windows[i].Start})
		require.NoError(t, err)
	}
	w.now += time.Minute
	n := 30_000
	if testing.Short() {
		n = 6000
	}
	w.run(t, p, n)
	v := p.View()
	passes := float64(n) / float64(len(w.cfg.Windows))
	require.InEpsilon(t, expected, v.Steps/passes, 0.02)
	require.Less(t, float64(v.Overruns)/passes, 1.5*miss)
	require.Greater(t, float64(v.Overruns)/passes, 0.4*miss)
}

// Whatever lengths are distributed like, windows overrun no more often than they may.
func TestMissesStayWithinWhatIsAllowed(t *testing.T) {
	noises := map[string]func(*rand.Rand) float64{
		"normal":    (*rand.Rand).NormFloat64,
		"uniform":   func(r *rand.Rand) float64 { return (r.Float64() - 0.5) * 3.46 },
		"skewed":    func(r *rand.Rand) float64 { return 1 - r.ExpFloat64() },
		"heavy":     func(r *rand.Rand) float64 { return r.NormFloat64() / math.Sqrt(0.2+r.ExpFloat64()) },
		"two kinds": func(r *rand.Rand) float64 { return r.NormFloat64()/3 - float64(r.IntN(20)/19)*2 },
	}
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	for _, name := range []string{"normal", "uniform", "skewed", "heavy", "two kinds"} {
		t.Run(name, func(t *testing.T) {
			var overruns, filled float64
			for seed := range uint64(4) {
				w := newWorld(small(), 20+seed, 0.03, 0.04)
				w.noise = noises[name]
				p := armed(t, w, 4000)
				w.run(t, p, n/4)
				overruns += float64(p.View().Overruns)
				filled += float64(p.View().Windows)
			}
			sigma := math.Sqrt(1e-3 / filled)
			require.LessOrEqual(t, overruns/filled, 1e-3+3*sigma)
		})
	}
}

func TestMargin(t *testing.T) {
	p, err := New(small())
	require.NoError(t, err)
	_, ok := p.Margin()
	require.False(t, ok)
	var windows, steps []Sample
	for i := range 999 {
		windows = append(windows, Sample{time.Second, time.Second - time.Duration(i)*time.Microsecond})
		steps = append(steps, Sample{ms, ms})
	}
	require.NoError(t, p.Calibrate(windows[:998], steps))
	_, ok = p.Margin()
	require.False(t, ok, "998 samples cannot tell what happens once in a thousand times")
	require.Equal(t, ReasonSamples, p.View().Reason)
	require.NoError(t, p.Calibrate(windows, nil))
	m, ok := p.Margin()
	require.True(t, ok)
	require.InDelta(t, 998e-6, m, 1e-12)
	require.True(t, p.View().Armed)
}

// Where steps do not scatter, all is over before the margin begins.
func TestQuantaEndBeforeTheMargin(t *testing.T) {
	w := newWorld(small(), 13, 0.03, 0)
	p := armed(t, w, 4000)
	margin, ok := p.Margin()
	require.True(t, ok)
	for i, win := range w.cfg.Windows {
		start := w.now + win.Start
		_, err := p.Begin(start, i)
		require.NoError(t, err)
		at := start + w.cfg.Resume
		for {
			q, why, err := p.MayStartQuantum(at, win.Stage)
			require.NoError(t, err)
			if why != "" {
				break
			}
			at += q.Expected
		}
		length := win.End - win.Start
		require.Greater(t, at, start+length/2)
		require.LessOrEqual(t, at+w.cfg.Pause-start, time.Duration(float64(length)*(1-margin)))
		_, err = p.Observe(Observation{Window: i, Start: start, End: start + length})
		require.NoError(t, err)
	}
}

// The largest configs are planned in bounded time.
func TestManyChoicesArePlanned(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: a plan of the largest size")
	}
	cfg := small()
	cfg.Bundles = nil
	for b := range 4 {
		bundle := Bundle{ID: BundleID(rune('a' + b)), Members: 400}
		for i := range 16 {
			bundle.Points = append(bundle.Points, fusion.Point{Fused: i + 1, Step: time.Duration(20+3*i+b) * ms, Memory: lockstep.Bytes(i + 1 + b)})
		}
		cfg.Bundles = append(cfg.Bundles, bundle)
	}
	w := newWorld(cfg, 1, 0.03, 0.04)
	p := armed(t, w, 2000)
	w.run(t, p, 30)
	require.Positive(t, p.View().Steps)
	most, err := Knapsack(cfg)
	require.NoError(t, err)
	require.LessOrEqual(t, p.View().Steps/10, most*1.05)
}

func TestKindsAndShares(t *testing.T) {
	points := []fusion.Point{{Fused: 1, Step: 10 * ms, Memory: 1}}
	cfg := Config{
		Bundles: []Bundle{{ID: "wide", Points: points, Weight: 9}, {ID: "narrow", Points: points, LowBandwidth: true}},
		Devices: []Device{{Memory: 10}},
		Windows: []Window{{End: 100 * ms}, {Start: 200 * ms, End: 300 * ms, Kind: pipeline.CommWait}, {Start: 400 * ms, End: 500 * ms, ShareFraction: 0.5}},
	}
	p := armed(t, newWorld(cfg, 1, 0, 0), 1000)
	for i, want := range []Quantum{{Bundle: "wide", Fused: 1, Expected: 10 * ms}, {Bundle: "narrow", Fused: 1, Expected: 10 * ms}, {Bundle: "wide", Fused: 1, Expected: 20 * ms}} {
		_, err := p.Begin(cfg.Windows[i].Start, i)
		require.NoError(t, err)
		q, why, err := p.MayStartQuantum(cfg.Windows[i].Start, 0)
		require.NoError(t, err)
		require.Empty(t, why)
		require.Equal(t, want, q)
		_, err = p.Observe(Observation{Window: i, Start: cfg.Windows[i].Start, End: cfg.Windows[i].End})
		require.NoError(t, err)
	}
	cfg.Bundles = cfg.Bundles[:1]
	p = armed(t, newWorld(cfg, 1, 0, 0), 1000)
	f, err := p.Begin(0, 1)
	require.NoError(t, err)
	require.Equal(t, ReasonMemory, f.Reason)
}

func TestWhyAWindowIsLeft(t *testing.T) {
	big := small()
	big.Devices[1] = Device{Memory: 10, Peak: 5}
	short := small()
	short.Windows[2].End = short.Windows[2].Start + 12*ms
	for _, c := range []struct {
		cfg  Config
		want lockstep.Reason
	}{{big, ReasonMemory}, {short, ReasonShort}} {
		p := armed(t, newWorld(c.cfg, 1, 0, 0), 1000)
		f, err := p.Begin(0, 2)
		require.NoError(t, err)
		require.Equal(t, Fill{Reason: c.want}, f)
		_, why, err := p.MayStartQuantum(0, 1)
		require.NoError(t, err)
		require.Equal(t, ReasonShort, why)
	}
}

func TestBundlesRunOut(t *testing.T) {
	cfg := small()
	cfg.Bundles[0].Steps = 25
	w := newWorld(cfg, 1, 0.01, 0.01)
	p := armed(t, w, 1000)
	w.run(t, p, 30)
	v := p.View()
	require.LessOrEqual(t, v.Steps, 25.0)
	require.Greater(t, v.Steps, 24.0)
	f, err := p.Begin(w.now, 0)
	require.NoError(t, err)
	require.Equal(t, ReasonSupply, f.Reason)
}

func TestPlansDoNotDependOnTheOrderOfSamples(t *testing.T) {
	w := newWorld(small(), 3, 0.03, 0.04)
	windows, steps := w.samples(1500)
	plans := map[string]bool{}
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
		r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		p, err := New(w.cfg)
		require.NoError(t, err)
		require.NoError(t, p.Calibrate(windows, steps))
		plans[fmt.Sprint(p.windows, p.stages)] = true
	}
	require.Len(t, plans, 1)
}
