package main

import (
	"container/heap"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestLifeEndsWithNothingLeft(t *testing.T) {
	const jobs = 3_000
	run := func(seed uint64) *lifeHost {
		h, err := newLifeHost(jobs, seed)
		require.NoError(t, err)
		for h.left < jobs {
			require.NoError(t, h.turn())
			require.LessOrEqual(t, len(h.present), lifeJobs)
			require.LessOrEqual(t, h.sched.Len(), 1024+lifeJobs)
		}
		return h
	}
	h := run(1)
	require.Equal(t, jobs, h.submitted)
	require.Empty(t, h.present)
	require.Equal(t, 1024, h.sched.Len())
	require.Positive(t, h.preempted, "terms end, and others are owed more")
	require.ErrorContains(t, h.turn(), "nothing will happen")

	again, other := run(1), run(2)
	require.Equal(t, h.now, again.now, "the same seed, the same life")
	require.Equal(t, h.preempted, again.preempted)
	require.NotEqual(t, h.now, other.now)
}

func TestTimetableIsByTimeThenByTheOrderMade(t *testing.T) {
	h := &lifeHost{now: time.Unix(0, 0)}
	for i, in := range []time.Duration{3, 1, 2, 1, 3, 1} {
		h.soon(lockstep.EventFinish, in, &lifeJob{version: uint64(i)})
	}
	var got []uint64
	for len(h.next) > 0 {
		got = append(got, heap.Pop(&h.next).(appointment).version)
	}
	require.Equal(t, []uint64{1, 3, 5, 2, 0, 4}, got)
}

func TestGrowthIsOfTheWorstTenth(t *testing.T) {
	require.InDelta(t, 1.5, growth([]float64{2, 2, 3, 2}), 0)
	require.InDelta(t, 0.5, growth([]float64{2, 1}), 0)
}
