package signal

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

func ptr[T any](x T) *T { return &x }

func newSignals(t testing.TB, cfg Config) *Watch {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

func findings(t testing.TB, s *Watch, r Reading) Findings {
	t.Helper()
	f, err := s.Observe(r)
	require.NoError(t, err)
	return f
}

// usual is a reading of a healthy job.
func usual(r *rand.Rand) Reading {
	return Reading{
		TokensPerSecond: ptr(1e6 * (1 + 0.02*r.NormFloat64())),
		Step:            ptr(time.Duration(1e9 * (1 + 0.03*r.NormFloat64()))),
		Loss:            ptr(2.5 + 0.05*r.NormFloat64()),
		GradNorm:        ptr(math.Exp(0.3 * r.NormFloat64())),
	}
}

func TestWhatIsNotReportedIsUnknownAndNotNormal(t *testing.T) {
	s := newSignals(t, Config{})
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 100 {
		require.Equal(t, Findings{}, findings(t, s, Reading{}), "reading %d", i)
	}
	for range 31 {
		f := findings(t, s, usual(r))
		require.Equal(t, Unknown, f.Throughput)
		require.Equal(t, Unknown, f.Loss)
	}
	findings(t, s, usual(r))
	require.Equal(t, Findings{Normal, Normal, Normal, Normal}, findings(t, s, usual(r)))
	require.Equal(t, Findings{Loss: Normal}, findings(t, s, Reading{Loss: ptr(2.5)}))
}

func TestSignalsOfAJob(t *testing.T) {
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		change func(*Reading)
		times  int
		want   Findings
	}{
		"throughput drops":               {func(r *Reading) { *r.TokensPerSecond *= 0.7 }, 1, Findings{Abnormal, Normal, Normal, Normal}},
		"some steps lag":                 {func(r *Reading) { *r.Step *= 2 }, 3, Findings{Normal, Abnormal, Normal, Normal}},
		"loss jumps":                     {func(r *Reading) { *r.Loss += 3 }, 1, Findings{Normal, Normal, Abnormal, Normal}},
		"loss is NaN":                    {func(r *Reading) { *r.Loss = math.NaN() }, 1, Findings{Normal, Normal, Abnormal, Normal}},
		"gradients jump":                 {func(r *Reading) { *r.GradNorm = 1e3 }, 1, Findings{Normal, Normal, Normal, Abnormal}},
		"gradients vanish into infinity": {func(r *Reading) { *r.GradNorm = math.Inf(1) }, 1, Findings{Normal, Normal, Normal, Abnormal}},
		"a negative norm":                {func(r *Reading) { *r.GradNorm = -1 }, 1, Findings{Normal, Normal, Normal, Abnormal}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignals(t, Config{})
			r := rand.New(rand.NewPCG(2, 2))
			for range 200 {
				findings(t, s, usual(r))
			}
			var got Findings
			for range c.times {
				reading := usual(r)
				c.change(&reading)
				got = findings(t, s, reading)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestSignalsRefuseWhatCannotBe(t *testing.T) {
	s := newSignals(t, Config{})
	for _, r := range []Reading{
		{TokensPerSecond: ptr(-1.0)},
		{TokensPerSecond: ptr(math.NaN())},
		{TokensPerSecond: ptr(math.Inf(1))},
		{Step: ptr(time.Duration(0))},
		{Step: ptr(-time.Second)},
	} {
		_, err := s.Observe(r)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.Empty(t, s.throughput.sorted)
	err := Config{Window: 3, Least: 2, Drop: 1, Gap: 0.5, Jump: -1, GradJump: math.NaN()}.Validate()
	for _, field := range []string{"Window", "Least", "Drop", "Gap", "Jump", "GradJump"} {
		require.ErrorContains(t, err, " "+field+" ")
	}
}

func TestAWindowIsItsLastValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	w := newWindow(16)
	var all []float64
	for range 200 {
		x := float64(r.IntN(10))
		w.add(x)
		all = append(all, x)
		last := all[max(0, len(all)-16):]
		require.Equal(t, last, w.values())
		sorted := slices.Sorted(slices.Values(last))
		require.Equal(t, sorted, w.sorted)
		require.InDelta(t, sorted[len(sorted)-1], w.quantile(100), 0)
		require.InDelta(t, sorted[(len(sorted)-1)/2], w.quantile(50), 0)
	}
}

func TestSignalsGoOnAfterRestore(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	s := newSignals(t, Config{Window: 40})
	for i := range 90 {
		var b bytes.Buffer
		require.NoError(t, s.Snapshot(&b))
		again, err := Restore(&b)
		require.NoError(t, err)
		reading := usual(r)
		if i%7 == 0 {
			*reading.Loss += 3
		}
		require.Equal(t, findings(t, s, reading), findings(t, again, reading))
		s = again
	}
	_, err := Restore(bytes.NewReader([]byte("x")))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	s.Reset()
	require.Equal(t, Findings{}, findings(t, s, Reading{Loss: ptr(1.0)}))
}

func TestNamesOfLevels(t *testing.T) {
	require.Equal(t, "unknown normal abnormal Level(9)", Unknown.String()+" "+Normal.String()+" "+Abnormal.String()+" "+Level(9).String())
}

// TestASignalDoesNotFlap has steps whose gap wavers about its limit, and a single pause.
func TestASignalDoesNotFlap(t *testing.T) {
	s := newSignals(t, Config{})
	step := func(seconds float64) Level {
		return findings(t, s, Reading{Step: ptr(time.Duration(seconds * 1e9))}).StepGap
	}
	for range 60 {
		step(1)
	}
	require.Equal(t, Normal, step(3), "one pause is no gap")
	changes, last := 0, Normal
	for i := range 2000 {
		x := 1.0
		if i%40 == 0 {
			x = 1.7 + 0.1*float64(i/40%2) // above the limit and below, by turns
		}
		l := step(x)
		if l != last {
			changes++
		}
		last = l
	}
	require.Equal(t, 1, changes)
	for range 200 {
		last = step(1)
	}
	require.Equal(t, Normal, last)
}

func TestRestoreRefusesWhatNoWatchSaved(t *testing.T) {
	for name, img := range map[string]image{ // the order does not matter: each case stands alone
		"config":           {Config: Config{Window: 3}},
		"defaults missing": {},
		"too many":         {Config: Config{Window: 16}.withDefaults(), Values: [4][]float64{make([]float64, 17)}},
		"too few":          {Config: Config{Window: 16}.withDefaults(), Beyond: [4]bool{true}},
	} {
		var b bytes.Buffer
		require.NoError(t, snapshot.WriteJSON(&b, "x", format, version, &img))
		_, err := Restore(&b)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	s := newSignals(t, Config{})
	r := usual(rand.New(rand.NewPCG(5, 5)))
	for range 200 {
		findings(t, s, r)
	}
	require.Zero(t, testing.AllocsPerRun(200, func() { findings(t, s, r) }))
}
