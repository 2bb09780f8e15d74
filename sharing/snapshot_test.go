package sharing

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func restoreLedger(r io.Reader) error { _, err := RestoreLedger(r); return err }

func restoreLanes(r io.Reader) error { _, err := RestoreLanes(r); return err }

func restorePairs(r io.Reader) error { _, err := RestorePairs(r); return err }

// sampleLedger is above High, with a tenant that was told to give back.
func sampleLedger(t testing.TB) *Ledger {
	t.Helper()
	l := ledger(t, LedgerConfig{Capacity: 100 * mib, Factor: 2000})
	admit(t, l, Tenant{ID: "a", Request: 80 * mib, HardCap: 20 * mib, Priority: -1}, Tenant{ID: "b", Request: 80 * mib, Opportunistic: true})
	require.NoError(t, l.Report(at(1), "a", 90*mib, false))
	require.NoError(t, l.Report(at(1), "b", 80*mib, true))
	_, _, err := l.Relieve(at(1), nil)
	require.NoError(t, err)
	require.NoError(t, l.Report(at(2), "b", 75*mib, false))
	return l
}

// sampleLanes has one lane with one that runs and one that waits, and one lane that rests.
func sampleLanes(t testing.TB) *Lanes {
	t.Helper()
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 2})
	join(t, l, Session{ID: "a", Persistent: 10 * mib, Ephemeral: 30 * mib})
	join(t, l, Session{ID: "b", Persistent: 10 * mib, Ephemeral: 40 * mib, Priority: 3})
	join(t, l, Session{ID: "c", Ephemeral: 20 * mib, Opportunistic: true})
	require.NoError(t, l.Ready(at(1), "a"))
	require.NoError(t, l.Ready(at(1), "c"))
	_, err := l.Next(at(1), nil)
	require.NoError(t, err)
	require.NoError(t, l.Pause(at(3), "a"))
	_, err = l.Next(at(3), nil)
	require.NoError(t, err)
	require.NoError(t, l.Ready(at(4), "a"))
	return l
}

func samplePairs(t testing.TB) *Pairs {
	t.Helper()
	p := pairs(t, PackConfig{Gain: 200})
	require.NoError(t, p.Set("b", "a", 500, 700))
	_, err := p.Observe("c", "a", 400, 300)
	require.NoError(t, err)
	return p
}

func TestDamagedSnapshotsAreRefused(t *testing.T) {
	snapshottest.RefusesDamage(t, snapshottest.Save(t, sampleLedger(t).Snapshot), restoreLedger)
	snapshottest.RefusesDamage(t, snapshottest.Save(t, sampleLanes(t).Snapshot), restoreLanes)
	snapshottest.RefusesDamage(t, snapshottest.Save(t, samplePairs(t).Snapshot), restorePairs)
	require.ErrorIs(t, restoreLanes(bytes.NewReader(snapshottest.Save(t, sampleLedger(t).Snapshot))), lockstep.ErrInvalid, "of another kind")
}

func TestForgedSnapshotsAreRefused(t *testing.T) {
	image := snapshottest.Save(t, sampleLedger(t).Snapshot)
	snapshottest.RefusesForgeries(t, ledgerFormat, version, image, restoreLedger, [][2]string{
		{`"capacity":"100Mi"`, `"capacity":"0"`},
		{`"capacity":"100Mi"`, `"capacity":"90Mi"`},
		{`"factor":2000`, `"factor":1500`},
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":"0"`},
		{`"hardCap":"20Mi"`, `"hardCap":"21Mi"`},
		{`"hardCap":"20Mi"`, `"hardCap":"20971519"`},
		{`"used":"75Mi"`, `"used":"-1"`},
		{`"used":"75Mi"`, `"used":"0"`},
		{`"used":"75Mi"`, `"going":"1","used":"0"`},
		{`"above":1893456002000000000`, `"above":1893456002000000001`},
		{`"above":1893456002000000000`, `"above":9223372036854775807`},
		{`"now":1893456002000000000`, `"now":-1`},
		{`"priority":-1`, `"priority":0`},
		{`"until":1893456061000000000`, `"until":1893456063000000000`},
	})
	image = snapshottest.Save(t, sampleLanes(t).Snapshot)
	snapshottest.RefusesForgeries(t, lanesFormat, version, image, restoreLanes, [][2]string{
		{`"capacity":"100Mi"`, `"capacity":"89Mi"`},
		{`"lanes":2`, `"lanes":1`},
		{`"lanes":2`, `"lanes":-1`},
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":"d"`},
		{`"id":"b"`, `"id":""`},
		{`"phase":2`, `"phase":3`},
		{`"phase":2`, `"phase":0`},
		{`"phase":1`, `"phase":2`},
		{`"lane":1`, `"lane":-1`},
		{`"lane":1`, `"lane":4096`},
		{`"served":2000000000`, `"served":-2`},
		{`"since":1893456003000000000`, `"since":1893456004000000001`},
		{`"now":1893456004000000000`, `"now":1`},
		{`"now":1893456004000000000`, `"now":-1`},
	})
	image = snapshottest.Save(t, samplePairs(t).Snapshot)
	snapshottest.RefusesForgeries(t, pairsFormat, version, image, restorePairs, [][2]string{
		{`"gain":200`, `"gain":-1`},
		{`"a":"a","b":"c"`, `"a":"c","b":"a"`},
		{`"a":"a","b":"c"`, `"a":"a","b":"b"`},
		{`"b":"c"`, `"b":""`},
		{`"bad":1`, `"bad":3`},
		{`"bad":1`, `"bad":-1`},
		{`[700,500]`, `[700,-1]`},
		{`[700,500]`, `[700]`},
	})
}

func TestSnapshotPassesOnWhatItsWriterReturns(t *testing.T) {
	for _, save := range []func(io.Writer) error{sampleLedger(t).Snapshot, sampleLanes(t).Snapshot, samplePairs(t).Snapshot} {
		require.ErrorIs(t, save(failing{}), io.ErrShortWrite)
		require.ErrorIs(t, save(nil), lockstep.ErrInvalid)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, snapshottest.Save(f, sampleLedger(f).Snapshot)))
	f.Add(snapshottest.Body(f, snapshottest.Save(f, sampleLanes(f).Snapshot)))
	f.Add(snapshottest.Body(f, snapshottest.Save(f, samplePairs(f).Snapshot)))
	f.Fuzz(func(t *testing.T, body []byte) {
		if l, err := RestoreLedger(bytes.NewReader(snapshottest.Frame(t, ledgerFormat, version, body))); err == nil {
			checkLedger(t, l)
			require.Equal(t, body, snapshottest.Body(t, snapshottest.Save(t, l.Snapshot)))
		} else {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
		if l, err := RestoreLanes(bytes.NewReader(snapshottest.Frame(t, lanesFormat, version, body))); err == nil {
			checkLanes(t, l)
			require.Equal(t, body, snapshottest.Body(t, snapshottest.Save(t, l.Snapshot)))
		} else {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
		if p, err := RestorePairs(bytes.NewReader(snapshottest.Frame(t, pairsFormat, version, body))); err == nil {
			require.Equal(t, body, snapshottest.Body(t, snapshottest.Save(t, p.Snapshot)))
		} else {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
	})
}
