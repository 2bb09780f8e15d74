package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	h := history{total: 8}
	require.Zero(t, h.utilization(), "nothing happened")
	require.Equal(t, []float64{0, 0}, h.bins(2))
	h.add(10*time.Second, 8, 0, 0) // full for 10 s
	h.add(20*time.Second, 4, 2, 3) // half full for 20 s, jobs wait, 2 of the 4 free scattered
	h.add(40*time.Second, 2, 6, 0) // a quarter full for 10 s, nobody waits
	h.add(50*time.Second, 0, 0, 0)
	require.InDelta(t, (8*10+4*20+2*10)/(8.0*40), h.utilization(), 1e-12)
	idle, scattered := h.idleWhileWaiting()
	require.InDelta(t, 0.5, idle, 1e-12)
	require.InDelta(t, 0.5, scattered, 1e-12)
	require.InDeltaSlice(t, []float64{1, 0.5, 0.5, 0.25}, h.bins(4), 1e-12)
	require.InDeltaSlice(t, []float64{0.75, 0.375}, h.bins(2), 1e-12)
}
