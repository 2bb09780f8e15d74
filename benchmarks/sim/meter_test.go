package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMiddleIsOneOfTheRounds(t *testing.T) {
	a := cost{wall: 1, cpu: 10, slowness: 1}
	b := cost{wall: 2, cpu: 40, slowness: 2}
	c := cost{wall: 3, cpu: 30, slowness: 1}
	require.Equal(t, b, middle([]cost{c, a, b}), "judged by what the reference core would have taken: 10, 20, 30")
	require.Equal(t, a, middle([]cost{b, a}), "the lower of two")
}

func TestCostsDivideAndAddUp(t *testing.T) {
	a := cost{wall: 100, cpu: 80, slowness: 2, allocs: 10, bytes: 1000}
	require.Equal(t, cost{wall: 10, cpu: 8, slowness: 2, allocs: 1, bytes: 100}, a.per(10))
	require.Equal(t, a, a.per(0), "of nothing there is one")
	b := cost{wall: 1, cpu: 10, slowness: 1, allocs: 1, bytes: 8}
	sum := cost{}.plus(a).plus(b)
	require.InDelta(t, a.ref()+b.ref(), sum.ref(), 1e-9)
	require.Equal(t, []float64{101, 90, 11, 1008}, []float64{sum.wall, sum.cpu, sum.allocs, sum.bytes})
	require.InDelta(t, 2e6, perSecond(500), 0)
}

func TestQuietIsTheFirstQuartile(t *testing.T) {
	all := []float64{9, 1, 8, 2, 7, 3, 6, 4}
	require.InDelta(t, 2, quiet(all), 0)
	require.InDelta(t, 9, all[0], 0, "as they were")
	require.InDelta(t, 1, quiet([]float64{3, 1}), 0)
}

func TestRoundsMeasureWorkAlone(t *testing.T) {
	m := newMeter()
	var kept [][]byte
	prepared := 0
	c, err := m.rounds(5, func() error {
		prepared++
		kept = append(kept, make([]byte, 1<<20))
		return nil
	}, func() error {
		kept = append(kept, make([]byte, 1<<16))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 5, prepared)
	require.Len(t, kept, 10)
	require.GreaterOrEqual(t, c.bytes, float64(1<<16))
	require.Less(t, c.bytes, float64(1<<19), "what preparation allocates is not counted")
	require.Positive(t, c.slowness)

	fault := errors.New("fault")
	_, err = m.rounds(1, func() error { return fault }, nil)
	require.ErrorIs(t, err, fault)
	_, err = m.rounds(1, nil, func() error { return fault })
	require.ErrorIs(t, err, fault)
}

func TestWatchLeavesCalibrationsOut(t *testing.T) {
	m := newMeter()
	w := m.watch()
	start := m.clock.Nanos()
	for range 20 {
		w.calibrate()
	}
	all := float64(m.clock.Nanos() - start)
	c := w.stop()
	require.Len(t, w.slowness, 22)
	require.Less(t, c.wall, all/2)
}
