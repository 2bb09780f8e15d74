package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo"
)

func TestFIFOReplayIsAsKnown(t *testing.T) {
	makespan, bound := fifo(rayTrials, replayDevices)
	require.InDelta(t, 3906.2, makespan, 0.05)
	require.InDelta(t, 3841.5, bound, 0.05)
	count, sum := map[int]int{}, map[int]float64{}
	for _, x := range rayTrials {
		count[x.batch]++
		sum[x.batch] += x.seconds
	}
	require.Equal(t, map[int]int{128: 16, 256: 17, 512: 17}, count)
	require.InDelta(t, 397.7, sum[128]/16, 0.05)
	require.InDelta(t, 273.3, sum[256]/17, 0.05)
	require.InDelta(t, 256.3, sum[512]/17, 0.05)
}

func TestHydroReplayComesWithinItsLaunches(t *testing.T) {
	require.InDelta(t, reportedHydro, asHydro(), 0.01*reportedHydro)
}

func TestReplayRunsEveryBundleAndTarget(t *testing.T) {
	r, err := newRerun()
	require.NoError(t, err)
	require.NoError(t, r.play())
	require.NotContains(t, r.used, false)
	require.Equal(t, 2, r.targets)
	require.Less(t, r.makespan, reportedHydro)
	require.Greater(t, r.makespan, r.busy/replayDevices)
}

func TestSimulatedSearchesRepeatAndStayUnderTheBound(t *testing.T) {
	rule := hpo.Config{SHA: &hpo.SHA{Max: 9, Trials: 256}}
	alone, err := simulate(rule, 4096, 0, false, 1)
	require.NoError(t, err)
	require.Equal(t, uint64(16*(256*1+86*2+29*6)), alone.w.steps, "256, 86 and 29 trials of a cohort make 1, 2 and 6 steps more")
	for _, n := range []int{4, 11} {
		x, err := simulate(rule, 4096, n, false, 1)
		require.NoError(t, err)
		y, err := simulate(rule, 4096, n, false, 1)
		require.NoError(t, err)
		require.Equal(t, x.makespan, y.makespan)
		require.Equal(t, alone.w.steps, x.w.steps, "the same work on any slots")
		require.LessOrEqual(t, alone.makespan.Seconds()/x.makespan.Seconds(), 1+share*float64(n))
	}
}

func TestRunsFromTheCommandLine(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, run([]string{"-check", "-only", "replay"}, &out))
	require.Contains(t, out.String(), "1121.5")
	require.Equal(t, 2, run([]string{"-only", "nothing"}, io.Discard))
}

func TestCostCountsEveryReport(t *testing.T) {
	clock := harness.NewClock()
	x, err := measure(hpo.Config{ASHA: &hpo.ASHA{Max: 9}}, 2000, 1, clock, harness.NewCalibration(clock))
	require.NoError(t, err)
	require.Greater(t, x.reports, 2600)
	require.Less(t, x.reports, 3500)
}
