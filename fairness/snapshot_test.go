package fairness

import (
	"bytes"
	"fmt"
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
	return filled(t, Config{Capacity: 8000, DefaultWeight: 2})
}

// filled is a sample of another configuration.
func filled(t testing.TB, cfg Config) *Ledger {
	l := start(t, cfg)
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
	for _, cfg := range kept {
		cfg.Capacity, cfg.DefaultWeight = 8000, 2
		t.Run(fmt.Sprintf("%s %+v", cfg.Basis, cfg.Memory), func(t *testing.T) { refusesDamage(t, filled(t, cfg)) })
	}
}

func refusesDamage(t *testing.T, l *Ledger) {
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

	other := l.cfg
	other.Basis = map[Basis]Basis{MaxMin: Active, Active: Fixed, Fixed: MaxMin}[l.cfg.Basis]
	_, err := Restore(other, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrConflict, "another basis")
	other = l.cfg
	other.CreditCap, other.Memory = 0, Memory{Bucket: time.Hour, Buckets: 1}
	_, err = Restore(other, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrConflict, "another memory")
	_, err = Restore(Config{Basis: "none"}, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// kept are configurations that differ in what a snapshot holds.
var kept = []Config{
	{},
	{Basis: Active, Memory: Memory{Bucket: time.Second, Buckets: 3}, Payer: PayReclaimer},
	{Memory: Memory{HalfLife: time.Second}, Payer: PayNobody, JobOrder: LeastExpect},
	{CreditCap: time.Minute, JobOrder: LeastRun},
	{Basis: Fixed, Memory: Memory{HalfLife: 1}},
}

// FuzzRestore feeds bodies with a right checksum, so that what is behind it is
// reached: a ledger that is accepted is whole, saves as it was given, and goes on.
func FuzzRestore(f *testing.F) {
	for i, cfg := range kept {
		f.Add(byte(i), snapshottest.Body(f, saved(f, start(f, cfg))))
		cfg.Capacity, cfg.DefaultWeight = 8000, 2
		f.Add(byte(i), snapshottest.Body(f, saved(f, filled(f, cfg))))
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		cfg := kept[int(kind)%len(kept)]
		image := snapshottest.Frame(t, format, version, body)
		l, err := Restore(cfg, bytes.NewReader(image))
		if err != nil {
			require.Nil(t, l)
			return
		}
		same(t, image, saved(t, l))
		now := lockstep.FromNanos(l.now)
		_, err = l.AppendStatements(nil, now)
		require.NoError(t, err)
		drain(l, now, always(lockstep.Granted))
		for _, later := range []int64{1, int64(time.Minute), 1 << 60} {
			if l.now > l.now+later {
				break
			}
			now = lockstep.FromNanos(l.now + later)
			for _, id := range suits(l, EventStop) {
				require.NoError(t, l.Due(id))
			}
			for _, id := range suits(l, EventStart) {
				_, err := l.AppendReclaim(nil, now, id, 1000)
				require.NoError(t, err)
			}
			drain(l, now, always(lockstep.Blocked))
			_, err = l.AppendStatements(nil, now)
			require.NoError(t, err)
			require.NoError(t, l.SetCapacity(now, 4000))
			restore(t, cfg, saved(t, l))
		}
		for _, id := range ids(l.jobs) {
			_ = l.Finish(now, id)
			require.NoError(t, l.Forget(id))
		}
		require.Zero(t, l.demand)
		require.Zero(t, l.rate)
		require.Empty(t, l.ready)
	})
}
