package profile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestRateIsInferredFromTheMostAlike(t *testing.T) {
	s := store(t, Config{})
	rate := func(k Kind, c lockstep.DeviceClass, v float64) {
		t.Helper()
		require.NoError(t, s.ObserveRate(k, c, v))
	}
	// "like" is half as fast as "new" on both, "other" is unlike it.
	rate("like", "a100", 10)
	rate("like", "v100", 5)
	rate("like", "t4", 2)
	rate("other", "a100", 10)
	rate("other", "v100", 9)
	rate("other", "t4", 8)
	rate("new", "a100", 20)
	require.Equal(t, Inferred, s.Rate("new", "t4").Source)
	rate("new", "v100", 10)
	e := s.Rate("new", "t4")
	require.Equal(t, Inferred, e.Source)
	require.InDelta(t, 5.6, e.Value, 1.2, "nearer to 4 than to 11")
	require.True(t, e.Low < e.Value && e.Value < e.High)
	rate("new", "t4", 4.2)
	require.Equal(t, Measured, s.Rate("new", "t4").Source)
	require.InDelta(t, 4.2, s.Rate("new", "t4").Value, 1e-9)

	require.Zero(t, s.Rate("new", "h100"), "nobody was measured there")
	require.Zero(t, s.Rate("nobody", "t4"))
	rate("apart", "mi300", 1)
	require.Zero(t, s.Rate("apart", "t4"), "nobody was measured where it was")
}

func TestExploreAsksForTheUnknownFirst(t *testing.T) {
	s := store(t, Config{Explore: 2})
	classes := []lockstep.DeviceClass{"a100", "v100", "h100"}
	explore := func(want lockstep.DeviceClass, ok bool) {
		t.Helper()
		c, found := s.Explore("k", classes)
		require.Equal(t, ok, found)
		require.Equal(t, want, c)
	}
	explore("a100", true)
	require.NoError(t, s.ObserveRate("k", "a100", 1))
	explore("v100", true)
	require.NoError(t, s.ObserveRate("other", "a100", 1))
	require.NoError(t, s.ObserveRate("other", "v100", 1))
	explore("h100", true) // v100 is inferred
	require.NoError(t, s.ObserveRate("other", "h100", 1))
	explore("v100", true)
	require.NoError(t, s.ObserveRate("k", "h100", 1))
	explore("", false)
	_, ok := s.Explore("k", nil)
	require.False(t, ok)
}

func TestSpeedsAreBesideTheFastest(t *testing.T) {
	s := store(t, Config{})
	require.NoError(t, s.ObserveRate("k", "a100", 40))
	require.NoError(t, s.ObserveRate("k", "t4", 10))
	require.NoError(t, s.ObserveRate("k", "toaster", 1e-9))
	got := s.AppendSpeeds(nil, "k", []lockstep.DeviceClass{"t4", "h100", "toaster", "a100"})
	require.Equal(t, []lockstep.ClassSpeed{{Class: "t4", PerMille: 250}, {Class: "toaster", PerMille: 1}, {Class: "a100", PerMille: 1000}}, got)
	require.Empty(t, s.AppendSpeeds(nil, "nobody", []lockstep.DeviceClass{"t4"}))
}
