package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

func TestScenariosRunOnSmallClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second or two: left out of short tests")
	}
	var out bytes.Buffer
	b, err := harness.New("placement", []string{"-quick"}, &out, nil)
	require.NoError(t, err)
	p := &program{Bench: b, meter: newMeter(), release: random, fill: 70}

	c, memory, err := p.churned(500)
	require.NoError(t, err)
	require.Positive(t, memory)
	require.Zero(t, c.refusedShare(), "measuring begins after the warm-up")
	f, err := p.meter.run(b, p.timed(c))
	require.NoError(t, err)
	p.report(500, f, c.refusedShare(), memory, limits{})
	require.Contains(t, out.String(), "result nodes=500/p50-ref ")

	for _, rebuild := range []bool{false, true} {
		rate, err := p.likeKAI(50, rebuild)
		require.NoError(t, err)
		require.Positive(t, rate)
	}
	rate, err := p.likeHiveD(256)
	require.NoError(t, err)
	require.Positive(t, rate)
}
