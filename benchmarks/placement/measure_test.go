package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeasureCountsEveryStep(t *testing.T) {
	m := newMeter()
	steps := 0
	f, err := m.measure(3, 100, func() (int64, error) {
		steps++
		return int64(steps), nil
	})
	require.NoError(t, err)
	require.Equal(t, 300, steps)
	require.Equal(t, 300, f.count)
	require.Equal(t, 300, len(m.tail)+f.dropped)
	require.Positive(t, f.slowness)
	require.Positive(t, f.wall)
	require.Zero(t, f.allocs)
	if f.dropped == 0 {
		require.Equal(t, 150.0, f.p50, "the median over the rounds")
		require.Equal(t, 297.0, f.all99)
		require.Equal(t, 300.0, f.worst)
	}
	require.InDelta(t, f.p50/f.p50Ref, f.slowness, f.slowness, "times are judged by the slowness of their moment")
}

func TestMeasureStopsAtAnError(t *testing.T) {
	fail := errors.New("no")
	_, err := newMeter().measure(3, 100, func() (int64, error) { return 0, fail })
	require.ErrorIs(t, err, fail)
}
