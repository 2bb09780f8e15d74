package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

func TestScenario(t *testing.T) {
	for memory, want := range bounds {
		cfg, err := scenario(memory, 4, bubble.ResidentSet)
		require.NoError(t, err)
		require.Len(t, cfg.Windows, 15)
		sum := 0.0
		for _, w := range cfg.Windows {
			sum += (w.End - w.Start).Seconds()
		}
		require.InDelta(t, 5.4, sum, 1e-9)
		lp, err := bubble.Bound(cfg, 0)
		require.NoError(t, err)
		require.InDelta(t, want, lp, 0.05)
	}
}

// Most of these figures are those of an earlier prototype of the same policies. Two are of this program only: FreeRide's
// rule where F=20 does not fit the first stage, which the prototype let it fill, and the elastic rule with a margin, of
// which the prototype made 0.686.
func TestRivalsShowWhatTheyAreKnownFor(t *testing.T) {
	cfg, err := scenario("A", 1, bubble.FreeSwitching)
	require.NoError(t, err)
	one, set := bestLoaded(&cfg)
	require.InDelta(t, 1575, one, 0)
	require.InDelta(t, 1610, set, 0)
	require.InDelta(t, 1620, inSteps(&cfg, func(int, int) bool { return true }), 0)
	lp, err := bubble.Bound(cfg, 0)
	require.NoError(t, err)
	known := []struct{ lp, overrun float64 }{{0.098, 1}, {0.557, 0.733}, {0.442, 0.018}, {0.585, 0.031}, {0.832, 0.062}, {0.668, 0}, {0.749, 0}, {0.807, 0.0001}}
	for i, r := range rivals(&cfg, 0.099, 1.118) {
		o := newWorld(cfg, 77, 1).play(r, 15_000)
		require.InDelta(t, known[i].lp, o.steps/1000/lp, 0.008, r.name)
		require.InDelta(t, known[i].overrun, float64(o.overruns)/15_000, 0.006, r.name)
	}
}

func TestWithoutJitterOursIsTheOptimum(t *testing.T) {
	b, err := harness.New("bubblepack", []string{"-check"}, io.Discard, nil)
	require.NoError(t, err)
	p := &program{b}
	require.NoError(t, p.still())
	require.Zero(t, p.Close())
}

func TestRunsRepeat(t *testing.T) {
	b, err := harness.New("bubblepack", nil, io.Discard, nil)
	require.NoError(t, err)
	p := &program{b}
	r := run{"A", 4, bubble.FreeSwitching, 1}
	x, err := p.ours(r, 1, 1500)
	require.NoError(t, err)
	y, err := p.ours(r, 1, 1500)
	require.NoError(t, err)
	require.Equal(t, x, y)
	lp, _ := x.ratios()
	require.Greater(t, lp, 0.8)
}
