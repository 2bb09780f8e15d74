package instant

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const in In = "lease"

func TestTimesThatCannotBeKeptAreRefused(t *testing.T) {
	first, last := lockstep.FromNanos(math.MinInt64), lockstep.FromNanos(math.MaxInt64)
	for _, tt := range []struct {
		name        string
		at          time.Time
		nanos, kept bool // Nanos and SinceEpoch take it
	}{
		{"the zero time", time.Time{}, false, false},
		{"before the first", first.Add(-1), false, false},
		{"the first", first, true, false},
		{"before 1970", lockstep.FromNanos(-1), true, false},
		{"1970", lockstep.FromNanos(0), true, true},
		{"the last", last, true, true},
		{"after the last", last.Add(1), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(ns int64, err error, ok bool) {
				t.Helper()
				if ok {
					require.NoError(t, err)
					require.Equal(t, tt.at, lockstep.FromNanos(ns))
					return
				}
				var e *lockstep.Error
				require.ErrorAs(t, err, &e)
				require.ErrorIs(t, err, lockstep.ErrInvalid)
				require.Equal(t, "lease: grant", e.Op)
				require.Equal(t, "now", e.Field)
			}
			ns, err := in.Nanos("grant", "now", tt.at)
			check(ns, err, tt.nanos)
			ns, err = in.SinceEpoch("grant", "now", tt.at)
			check(ns, err, tt.kept)
		})
	}
}

func TestTimeDoesNotGoBackwards(t *testing.T) {
	for _, last := range []int64{math.MinInt64, 6, 7} {
		require.NoError(t, in.NotBefore("grant", "now", lockstep.FromNanos(7), 7, last))
	}
	err := in.NotBefore("grant", "now", lockstep.FromNanos(7).In(time.FixedZone("west", -7*3600)), 7, 8)
	require.ErrorIs(t, err, lockstep.ErrPast)
	require.EqualError(t, err, "lease: grant: now = 1970-01-01 00:00:00.000000007 +0000 UTC: is before 1970-01-01 00:00:00.000000008 +0000 UTC")
}

func TestAddIsHeld(t *testing.T) {
	require.EqualValues(t, 5, Add(2, 3))
	require.EqualValues(t, -1, Add(math.MinInt64, math.MaxInt64))
	require.Equal(t, int64(Never), Add(Never-2, 2))
	require.Equal(t, int64(Never), Add(Never-2, 3))
	require.Equal(t, int64(Never), Add(Never, math.MaxInt64))
	require.Equal(t, int64(Never), Add(Never, 0))
}

func TestReadingAllocatesNothing(t *testing.T) {
	now := lockstep.FromNanos(7)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ns, err := in.SinceEpoch("grant", "now", now)
		if err != nil || in.NotBefore("grant", "now", now, ns, 7) != nil {
			t.Fatal(err)
		}
	}))
}
