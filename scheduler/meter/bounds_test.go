package meter_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

func bounds(t testing.TB, values, series int) *meter.Bounds {
	t.Helper()
	b, err := meter.NewBounds(meter.BoundsConfig{Metrics: meter.Metrics(), Values: values, Series: series})
	require.NoError(t, err)
	return b
}

func TestValuesBeyondTheFirstAreOther(t *testing.T) {
	b := bounds(t, 2, 0)
	for _, c := range []struct {
		queue, want string
		fate        meter.Fate
	}{
		{"a", "a", meter.FateKept},
		{"b", "b", meter.FateKept},
		{"c", meter.Other, meter.FateFolded},
		{"a", "a", meter.FateKept},
		{"d", meter.Other, meter.FateFolded},
		{meter.Other, meter.Other, meter.FateKept},
		{"b", "b", meter.FateKept},
	} {
		l, fate := b.Fold(meter.AdmissionWait, lockstep.MetricLabels{Queue: lockstep.QueueID(c.queue), Tenant: "is dropped"})
		require.Equal(t, lockstep.MetricLabels{Queue: lockstep.QueueID(c.want)}, l)
		require.Equal(t, c.fate, fate, c.queue)
	}
	l, fate := b.Fold(meter.StartLatency, lockstep.MetricLabels{Queue: "c"})
	require.Equal(t, meter.FateKept, fate, "each metric has its own")
	require.EqualValues(t, "c", l.Queue)
	_, fate = b.Fold("nobody_knows", lockstep.MetricLabels{})
	require.Equal(t, meter.FateUnknown, fate)
}

// However many names there are, the series of a metric stay few.
func TestSeriesAreBounded(t *testing.T) {
	const most = 50
	b := bounds(t, 20, most)
	seen := map[lockstep.MetricLabels]bool{}
	for i := range 10_000 {
		l, _ := b.Fold(meter.PendingReason, lockstep.MetricLabels{Queue: lockstep.QueueID(strconv.Itoa(i % 97)), Reason: lockstep.Reason(strconv.Itoa(i % 89))})
		seen[l] = true
	}
	require.LessOrEqual(t, len(seen), most+1)
	require.True(t, seen[lockstep.MetricLabels{Queue: meter.Other, Reason: meter.Other}])
}

func TestFoldedAndUnknownAreCounted(t *testing.T) {
	rec := newTally()
	out := bounds(t, 1, 0).Recorder(rec)
	for _, q := range []lockstep.QueueID{"a", "b", "c"} {
		out.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: q}, 1)
		out.Gauge(meter.Jobs, lockstep.MetricLabels{Queue: q, State: "queued"}, 1)
	}
	out.Count("nobody_knows", lockstep.MetricLabels{}, 1)
	out.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term"}, 2)
	require.EqualValues(t, 2, rec.counts[series{meter.Folded, lockstep.MetricLabels{Kind: string(meter.AdmissionWait)}}])
	require.EqualValues(t, 2, rec.counts[series{meter.Folded, lockstep.MetricLabels{Kind: string(meter.Jobs)}}])
	require.EqualValues(t, 1, rec.total(meter.Dropped, nil))
	require.EqualValues(t, 2, rec.total(meter.Preemptions, nil))
	require.Len(t, rec.sampled(meter.AdmissionWait), 3)
	require.Nil(t, bounds(t, 1, 0).Recorder(nil))
}

func TestBoundsAreValidated(t *testing.T) {
	_, err := meter.NewBounds(meter.BoundsConfig{Values: -1, Series: 1 << 30, Metrics: []lockstep.MetricDescriptor{{Name: "Bad"}}})
	for _, want := range []string{"Values", "Series", "Bad"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestFoldAllocatesNothingForWhatItKnows(t *testing.T) {
	b := bounds(t, 1, 0)
	l := lockstep.MetricLabels{Queue: "a", State: "queued"}
	more := lockstep.MetricLabels{Queue: "b", State: "queued"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.Fold(meter.Jobs, l)
		b.Fold(meter.Jobs, more)
	}))
}

func BenchmarkFold(b *testing.B) {
	for _, name := range []string{"known", "folded"} {
		b.Run(name, func(b *testing.B) {
			bs := bounds(b, 1, 0)
			bs.Fold(meter.Jobs, lockstep.MetricLabels{Queue: "known", State: "queued"})
			l := lockstep.MetricLabels{Queue: lockstep.QueueID(name), State: "queued"}
			b.ReportAllocs()
			for b.Loop() {
				bs.Fold(meter.Jobs, l)
			}
		})
	}
}

func ExampleBounds() {
	b, _ := meter.NewBounds(meter.BoundsConfig{Metrics: meter.Metrics(), Values: 2})
	for _, q := range []lockstep.QueueID{"prod", "batch", "alice", "prod"} {
		l, _ := b.Fold(meter.AdmissionWait, lockstep.MetricLabels{Queue: q})
		fmt.Println(q, "→", l.Queue)
	}
	// Output:
	// prod → prod
	// batch → batch
	// alice → other
	// prod → prod
}
