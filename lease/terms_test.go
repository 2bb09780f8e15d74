package lease

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestTermsGrowToTheLongest(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour, First: 10 * time.Minute, Growth: 3000})
	l := grant(t, table, t0, "a", 1000, 0)
	require.Equal(t, []time.Duration{10 * time.Minute, time.Hour}, []time.Duration{l.Term, l.Longest})
	var err error
	for _, want := range []time.Duration{10 * time.Minute, 40 * time.Minute, 100 * time.Minute, 160 * time.Minute} {
		require.Equal(t, at(want), l.Boundary)
		require.Equal(t, "a", names(table.AppendDue(nil, l.Boundary)))
		l, err = table.Extend(l.Boundary, "a")
		require.NoError(t, err)
	}
	require.Equal(t, time.Hour, l.Term)

	// A first term longer than the job's own is the job's own.
	require.Equal(t, time.Minute, grant(t, table, l.Granted.Add(5*time.Hour), "b", 1000, time.Minute).Term)
	// One that is decided late goes on by multiples of the term it has grown to.
	l = grant(t, table, at(6*time.Hour), "c", 1000, 0)
	l, err = table.Extend(at(9*time.Hour), "c")
	require.NoError(t, err)
	require.Equal(t, at(6*time.Hour+10*time.Minute+6*30*time.Minute), l.Boundary)
}

func TestGrowthAndJitterStayInRange(t *testing.T) {
	c := Config{First: 1, Growth: 1001}.withDefaults()
	require.Equal(t, int64(2), c.grow(1, 5), "rounded up, so that the shortest term grows too")
	require.Equal(t, int64(1), (&Config{Growth: 1000}).grow(1, 5))
	require.Equal(t, int64(math.MaxInt64), c.grow(math.MaxInt64-1, math.MaxInt64))
	require.Equal(t, int64(5), c.grow(7, 5))
	c = Config{Growth: 1_000_000}.withDefaults()
	require.Equal(t, int64(lockstep.MaxWalltime), c.grow(int64(lockstep.MaxWalltime)-1, int64(lockstep.MaxWalltime)))

	c = Config{Jitter: 1_000_000}
	require.GreaterOrEqual(t, c.jitter("x", lockstep.MaxWalltime), time.Duration(0))
	require.LessOrEqual(t, c.jitter("x", lockstep.MaxWalltime), lockstep.MaxWalltime)
	require.Zero(t, Config{}.jitterOf("x"))
}

// jitterOf is jitter of an hour.
func (c Config) jitterOf(job lockstep.JobID) time.Duration { return c.jitter(job, time.Hour) }

func TestJitterSpreadsBoundaries(t *testing.T) {
	const jobs, bins = 4000, 10
	c := Config{Jitter: 200_000} // up to 12 minutes of an hour
	var counts [bins]int
	for i := range jobs {
		d := c.jitterOf(lockstep.JobID(fmt.Sprintf("job-%d", i)))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, 12*time.Minute)
		counts[min(int(d*bins/(12*time.Minute)), bins-1)]++
	}
	for i, n := range counts {
		require.InDelta(t, jobs/bins, n, jobs/bins/4, "bin %d of %v", i, counts)
	}
	table := newTable(t, c)
	l := grant(t, table, t0, "a", 1000, time.Hour)
	require.Equal(t, at(time.Hour+c.jitterOf("a")), l.Boundary, "no lease ends before its term")
	next, err := table.Extend(l.Boundary, "a")
	require.NoError(t, err)
	require.Equal(t, l.Boundary.Add(time.Hour), next.Boundary)
}

func TestHeldOverIsNotDueAndMayYieldAtAnyTime(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	grant(t, table, t0, "a", 1000, 0)
	_, err := table.HoldOver(at(time.Minute), "a")
	require.ErrorIs(t, err, lockstep.ErrConflict, "its term is not over")
	l, err := table.HoldOver(at(time.Hour), "a")
	require.NoError(t, err)
	require.Equal(t, HeldOver, l.State)
	require.Empty(t, table.AppendDue(nil, at(100*time.Hour)))
	_, ok := table.NextWake(at(time.Hour))
	require.False(t, ok)
	again, err := table.HoldOver(at(2*time.Hour), "a")
	require.NoError(t, err)
	require.Equal(t, l, again)

	saved := save(t, table)
	l, err = table.Extend(at(150*time.Minute), "a")
	require.NoError(t, err)
	require.Equal(t, Held, l.State)
	require.Equal(t, at(3*time.Hour), l.Boundary, "the phase is kept")
	require.NotEqual(t, saved, save(t, table))
	_, err = table.HoldOver(at(3*time.Hour), "a")
	require.NoError(t, err)
	l, err = table.Yield(at(3*time.Hour), "a", at(4*time.Hour), "preempted")
	require.NoError(t, err)
	require.Equal(t, Yielding, l.State)
	for _, call := range []func() error{
		func() error { _, err := table.HoldOver(at(4*time.Hour), "a"); return err },
		func() error { _, err := table.Extend(at(4*time.Hour), "a"); return err },
	} {
		require.ErrorIs(t, call(), lockstep.ErrConflict, "a yield is final")
	}
	_, err = table.HoldOver(at(4*time.Hour), "b")
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestChargesSayWhatOverheadTook(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	l := grant(t, table, t0, "a", 4000, 0)
	_, err := table.Resumed(at(20*time.Second), "a", l.Token)
	require.NoError(t, err)
	_, err = table.Resumed(at(30*time.Second), "a", l.Token)
	require.NoError(t, err, "it may be repeated")
	_, err = table.Shrink(at(time.Hour), "a", 2000, at(61*time.Minute), "served")
	require.NoError(t, err)
	l, charge, err := table.Resize(at(time.Hour+5*time.Second), "a", 2000)
	require.NoError(t, err)
	require.Equal(t, 20*time.Second, charge.Resume)
	require.Equal(t, 5*time.Second, charge.Save)
	_, err = table.Yield(at(2*time.Hour), "a", at(3*time.Hour), "served")
	require.NoError(t, err)
	charge, err = table.Release(at(2*time.Hour+7*time.Second), "a", l.Token)
	require.NoError(t, err)
	require.Zero(t, charge.Resume, "nobody said that it restored anything")
	require.Equal(t, 7*time.Second, charge.Save)

	// Told to go before it worked at all: no moment is counted twice.
	l = grant(t, table, at(4*time.Hour), "b", 1000, 0)
	_, err = table.Yield(at(4*time.Hour+time.Second), "b", at(5*time.Hour), "served")
	require.NoError(t, err)
	_, err = table.Resumed(at(4*time.Hour+3*time.Second), "b", l.Token)
	require.NoError(t, err)
	charge, err = table.Revoke(at(4*time.Hour+10*time.Second), "b", "overdue")
	require.NoError(t, err)
	require.Equal(t, []time.Duration{3 * time.Second, 7 * time.Second}, []time.Duration{charge.Resume, charge.Save})
	_, err = table.Resumed(at(5*time.Hour), "b", l.Token)
	require.ErrorIs(t, err, lockstep.ErrStale)
}
