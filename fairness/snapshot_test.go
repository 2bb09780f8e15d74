package fairness

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func restore(t testing.TB, cfg Config, data []byte) *Ledger {
	l, err := Restore(cfg, bytes.NewReader(data))
	require.NoError(t, err)
	return l
}

// TestRestoreAndReplayIsAsIfUninterrupted is invariant 14: whatever the point of
// the crash and of the snapshot before it, the log leads to the same bytes, and
// the same proposals.
func TestRestoreAndReplayIsAsIfUninterrupted(t *testing.T) {
	both(t, 300, func(t *testing.T, _ int, cfg Config, src *source) {
		l := start(t, cfg)
		var snapshots [][]byte
		var log []Event
		l.cfg.Log = func(e Event) { log = append(log, e) }
		for range 100 {
			if src.IntN(12) == 0 {
				snapshots = append(snapshots, saved(t, l))
			}
			_ = l.Apply(src.next(l))
		}
		want := saved(t, l)
		now := src.now.Add(time.Minute)
		order := drain(l, now, always(lockstep.Granted))
		for _, snapshot := range snapshots {
			r := restore(t, cfg, snapshot)
			same(t, snapshot, saved(t, r))
			for _, e := range log {
				if err := r.Apply(e); err != nil {
					require.ErrorIs(t, err, lockstep.ErrDuplicate)
					require.LessOrEqual(t, e.Seq, r.Seq())
				}
			}
			same(t, want, saved(t, r))
			require.Equal(t, order, drain(r, now, always(lockstep.Granted)))
			if len(log) > 0 {
				again := log[len(log)-1]
				require.ErrorIs(t, r.Apply(again), lockstep.ErrDuplicate)
				again.Seq += 2
				require.ErrorIs(t, r.Apply(again), lockstep.ErrConflict)
				same(t, want, saved(t, r))
			}
		}
	})
}

// sample is a ledger with something of everything.
func sample(t testing.TB) *Ledger {
	l := start(t, Config{Capacity: 8000, DefaultWeight: 2})
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	require.NoError(t, l.Join(at(0), "", 3))
	require.NoError(t, l.Join(at(1), "guest", 0))
	require.NoError(t, l.Submit(at(1), "a", "auto", 8000))
	require.NoError(t, l.Submit(at(2), "b", "", 8000))
	require.NoError(t, l.Submit(at(2), "c", "guest", 1000))
	require.NoError(t, l.Submit(at(3), "d", "guest", 1000))
	require.NoError(t, l.Start(at(4), "a", 3000))
	require.NoError(t, l.Finish(at(7), "d"))
	require.NoError(t, l.Join(at(8), "gone", 1))
	_, err := l.Leave(at(9), "gone")
	require.NoError(t, err)
	return l
}

func TestRestoreRefusesDamage(t *testing.T) {
	l := sample(t)
	data := saved(t, l)
	same(t, data, saved(t, restore(t, l.cfg, data)))
	restored := func(r io.Reader) error { _, err := Restore(l.cfg, r); return err }
	snapshottest.RefusesDamage(t, data, restored)
	snapshottest.PassesFaultsOn(t, l.Snapshot, restored)
	body := snapshottest.Body(t, data)
	for n := range body {
		require.ErrorIs(t, restored(bytes.NewReader(snapshottest.Frame(t, format, version, body[:n]))), lockstep.ErrInvalid, "cut off at %d", n)
	}
	more := snapshottest.Frame(t, format, version, append(bytes.Clone(body), 0))
	require.ErrorIs(t, restored(bytes.NewReader(more)), lockstep.ErrInvalid)
	newer := snapshottest.Frame(t, format, version+1, body)
	require.ErrorIs(t, restored(bytes.NewReader(newer)), lockstep.ErrInvalid)

	_, err := Restore(Config{Basis: Fixed}, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrConflict, "another basis")
	_, err = Restore(Config{Basis: "none"}, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// FuzzRestore feeds bodies with a right checksum, so that what is behind it is
// reached: a ledger that is accepted is whole, and saves as it was given.
func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, saved(f, sample(f))))
	f.Add(snapshottest.Body(f, saved(f, start(f, Config{}))))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := snapshottest.Frame(t, format, version, body)
		l, err := Restore(Config{}, bytes.NewReader(image))
		if err != nil {
			require.Nil(t, l)
			return
		}
		same(t, image, saved(t, l))
		now := lockstep.FromNanos(l.now)
		_, err = l.AppendStatements(nil, now)
		require.NoError(t, err)
		drain(l, now, always(lockstep.Granted))
		for _, id := range ids(l.jobs) {
			_ = l.Finish(now, id)
			require.NoError(t, l.Forget(id))
		}
		require.Zero(t, l.demand)
		require.Zero(t, l.rate)
		require.Empty(t, l.ready)
	})
}
