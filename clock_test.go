package lockstep_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

var _ lockstep.Clock = (*lockstep.Monotone)(nil)

func TestMonotoneNeverGoesBackwards(t *testing.T) {
	const readers, readings = 8, 500
	tick := 0
	clock := &lockstep.Monotone{Source: func() time.Time { // under the clock's lock, so tick needs none
		tick++
		return lockstep.FromNanos(int64(tick*10 - tick%7*100)) // jumps back by up to 600 ns
	}}
	var wg sync.WaitGroup
	results := make([][]time.Time, readers)
	for i := range readers {
		wg.Go(func() {
			for range readings {
				results[i] = append(results[i], clock.Now())
			}
		})
	}
	wg.Wait()
	require.Equal(t, readers*readings, tick)
	for _, seen := range results {
		for i := 1; i < len(seen); i++ {
			require.False(t, seen[i].Before(seen[i-1]))
		}
	}
}

func TestMonotoneGivesWhatAReplayCanStore(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	clock := &lockstep.Monotone{Source: func() time.Time { return time.Unix(5, 7).In(zone) }}
	require.Equal(t, time.Unix(5, 7).UTC(), clock.Now(), "in UTC")

	synctest.Test(t, func(t *testing.T) { // where the system's clock stands still
		var system lockstep.Monotone
		now := system.Now()
		require.Equal(t, time.Now().Round(0).UTC(), now)
		require.Equal(t, now, system.Now())
	})
}

func TestNanosHoldsTheEndsAndRefusesBeyond(t *testing.T) {
	for _, ns := range ends {
		at := lockstep.FromNanos(ns)
		got, err := lockstep.Nanos(at)
		require.NoError(t, err)
		require.Equal(t, ns, got)
		require.Equal(t, time.UTC, at.Location())
		got, err = lockstep.Nanos(at.In(time.FixedZone("west", -7*3600)))
		require.NoError(t, err)
		require.Equal(t, ns, got, "the zone does not matter")
	}
	first, last := lockstep.FromNanos(math.MinInt64), lockstep.FromNanos(math.MaxInt64)
	require.Equal(t, "1677-09-21", first.Format(time.DateOnly))
	require.Equal(t, "2262-04-11", last.Format(time.DateOnly))
	for _, at := range []time.Time{
		{},
		first.Add(-1), last.Add(1), first.AddDate(-1, 0, 0), last.AddDate(1, 0, 0),
		last.AddDate(585, 0, 0), time.Unix(1<<62, 0), time.Unix(-1<<62, 0),
	} {
		ns, err := lockstep.Nanos(at)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, "time", e.Field)
		require.Zero(t, ns)
	}
}
