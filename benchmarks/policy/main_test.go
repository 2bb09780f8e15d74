package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/internal/lp"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

func quiet() *program {
	p := &program{clock: harness.NewClock()}
	p.calibration = harness.NewCalibration(p.clock)
	p.Bench = &harness.Bench{Seed: 1}
	return p
}

// The programme that is built here is the one that package hetero solves, and gonum agrees.
func TestTheComparisonIsOfTheSameProgramme(t *testing.T) {
	p := quiet()
	input := problem(madeUp(rand.New(rand.NewPCG(1, 1))), 8, 3)
	form := programme(input)
	s, err := lp.Solve(form)
	require.NoError(t, err)
	require.Equal(t, lp.Optimal, s.Status)
	a, err := hetero.MaxMin(input)
	require.NoError(t, err)
	require.InEpsilon(t, a.Objective, -s.Objective, 1e-9)
	objective, _, err := p.gonum(form)
	require.NoError(t, err)
	require.InEpsilon(t, objective, s.Objective, 1e-8)
}

func TestDecisionsAreMade(t *testing.T) {
	for _, d := range list {
		decide, err := d.prepare(quiet())
		require.NoError(t, err, d.name)
		require.NoError(t, decide(), d.name)
		require.NoError(t, decide(), d.name)
	}
}

// Two jobs of all devices for two rounds each, one after the other in any order.
func TestReplayByHand(t *testing.T) {
	jobs := []job{{id: "a", gpus: trendDevices, duration: 240, left: 240}, {id: "b", gpus: trendDevices, duration: 240, left: 240}}
	makespan, mean, err := replay(jobs, hetero.WaterFill)
	require.NoError(t, err)
	require.Equal(t, 480.0, makespan)
	require.Contains(t, []float64{360, 420, 390}, mean) // turns of one or two rounds
}
