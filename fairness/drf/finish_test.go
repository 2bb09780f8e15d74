package drf

import (
	"bytes"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// drain returns a pass.
func drain(f *FinishTimes, now time.Time) (ids []lockstep.JobID) {
	f.Begin(now)
	for id, ok := f.Next(); ok; id, ok = f.Next() {
		ids = append(ids, id)
		f.Outcome(id, lockstep.Granted)
	}
	return ids
}

// Two jobs of which either would take an hour on half of the cluster. The one that came an hour later is better off, until
// the other has got ahead.
func TestWorstOffComesFirst(t *testing.T) {
	var f FinishTimes
	require.Empty(t, drain(&f, epoch))
	require.NoError(t, f.Submit(App{"old", epoch, time.Hour, time.Hour}))
	require.NoError(t, f.Submit(App{"young", epoch.Add(time.Hour), time.Hour, time.Hour}))
	require.NoError(t, f.Submit(App{"none", epoch.Add(time.Hour), time.Hour, 0}))
	now := epoch.Add(time.Hour)
	require.Equal(t, []lockstep.JobID{"none", "old", "young"}, drain(&f, now))
	rho, ok := f.Rho(now, "old")
	require.True(t, ok)
	require.Equal(t, "2/1", rho.String())
	require.NoError(t, f.Progress("old", 0, 2*time.Hour))
	require.NoError(t, f.Finish("none"))
	require.Equal(t, []lockstep.JobID{"young", "old"}, drain(&f, now))
	rho, _ = f.Rho(epoch.Add(-time.Hour), "old")
	require.Equal(t, "0", rho.String())
	rho, _ = f.Rho(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), "old")
	require.Equal(t, 1, rho.Cmp(RatioOf(1000, 1)))
	rho, _ = f.Rho(time.Time{}, "old")
	require.Equal(t, "0", rho.String())
	_, ok = f.Rho(now, "none")
	require.False(t, ok)
	f.Begin(now)
	require.NoError(t, f.Finish("young"))
	id, _ := f.Next()
	require.Equal(t, lockstep.JobID("old"), id, "who ended is not proposed")
}

func TestFinishTimesAgainstRationals(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for range rounds(500) {
		var f FinishTimes
		apps := map[lockstep.JobID]App{}
		for i := range 12 {
			a := App{lockstep.JobID(fmt.Sprint("j", i)), epoch.Add(time.Duration(r.IntN(4)) * time.Hour), time.Duration(r.IntN(5)) * time.Hour, time.Duration(1+r.IntN(5)) * time.Hour}
			require.NoError(t, f.Submit(a))
			apps[a.Job] = a
		}
		now := epoch.Add(time.Duration(r.IntN(8)) * time.Hour)
		rho := func(a App) *big.Rat { return big.NewRat(int64(max(now.Sub(a.Arrived), 0)+a.Left), int64(a.Ideal)) }
		got := drain(&f, now)
		require.Len(t, got, len(apps))
		require.True(t, slices.IsSortedFunc(got, func(x, y lockstep.JobID) int {
			a, b := apps[x], apps[y]
			if c := rho(b).Cmp(rho(a)); c != 0 {
				return c
			}
			if c := a.Arrived.Compare(b.Arrived); c != 0 {
				return c
			}
			return bytes.Compare([]byte(x), []byte(y))
		}), "%v", got)
	}
}

func TestFinishTimesRefusesBadInput(t *testing.T) {
	var f FinishTimes
	require.NoError(t, f.Submit(App{"a", epoch, 1, 1}))
	for _, a := range []App{{"", epoch, 1, 1}, {"b", time.Time{}, 1, 1}, {"b", epoch.Add(-100 * 365 * 24 * time.Hour), 1, 1}, {"b", epoch, -1, 1}, {"b", epoch, 1, -1}} {
		require.ErrorIs(t, f.Submit(a), lockstep.ErrInvalid)
	}
	require.ErrorIs(t, f.Submit(App{"a", epoch, 1, 1}), lockstep.ErrDuplicate)
	require.ErrorIs(t, f.Progress("b", 1, 1), lockstep.ErrUnknown)
	require.ErrorIs(t, f.Progress("a", -1, 1), lockstep.ErrInvalid)
	require.ErrorIs(t, f.Finish("b"), lockstep.ErrUnknown)
	require.Equal(t, []lockstep.JobID{"a"}, drain(&f, epoch))
	err := f.Submit(App{"", time.Time{}, -1, -1})
	for _, field := range []string{"Job", "Arrived", "Left", "Ideal"} {
		require.ErrorContains(t, err, field)
	}
}

func TestFinishTimesComeBack(t *testing.T) {
	var f FinishTimes
	for i := range 5 {
		require.NoError(t, f.Submit(App{lockstep.JobID(fmt.Sprint("j", i)), epoch.Add(time.Duration(i)), time.Duration(i), time.Duration(7 + i)}))
	}
	image := snapshottest.Save(t, f.Snapshot)
	restore := func(r io.Reader) error { _, err := RestoreFinishTimes(r); return err }
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.PassesFaultsOn(t, f.Snapshot, restore)
	snapshottest.RefusesForgeries(t, finishFormat, finishVersion, image, restore, [][2]string{
		{`"left":3`, `"left":-3`}, {`"job":"j2"`, `"job":"j1"`}, {`"job":"j2"`, `"job":"j9"`}, {`"job":"j2"`, `"job":"j 2"`}, {`"ideal":9`, `"ideal":9.0`},
	})
	again, err := RestoreFinishTimes(bytes.NewReader(image))
	require.NoError(t, err)
	require.Equal(t, drain(&f, epoch.Add(time.Hour)), drain(again, epoch.Add(time.Hour)))
}
