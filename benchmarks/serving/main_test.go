package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/sim/serve"
)

func TestDominates(t *testing.T) {
	a := point{attained: 0.9, gpuTime: time.Hour}
	require.False(t, a.dominates(a))
	require.True(t, point{attained: 0.9, gpuTime: time.Minute}.dominates(a))
	require.False(t, point{attained: 0.8, gpuTime: time.Minute}.dominates(a))
}

func TestEverySettingPlays(t *testing.T) {
	q, err := serve.Day{Seed: 1, Span: 5 * time.Minute, Period: 5 * time.Minute, Peak: 4}.Requests()
	require.NoError(t, err)
	points, err := plane(objectives[1], settings(objectives[1], true), q)
	require.NoError(t, err)
	for _, p := range points {
		require.Positive(t, p.gpuTime, p.rule)
		require.Positive(t, p.attained, p.rule)
	}
}
