package liveness

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func restoredMonitor(r io.Reader) error { _, err := RestoreMonitor(r); return err }

func restoredCoordinator(r io.Reader) error { _, err := RestoreCoordinator(r, racks); return err }

// troubled is a monitor with a rank of each kind.
func troubled(t testing.TB) *Monitor {
	m := newMonitor(t, Config{Window: 4, Reconnect: minute, Rules: []Rule{{Phase: PhaseStep, Gap: 8 * sec}}}, 0, 1, 2, 3)
	keep(t, m, 10*sec, 0, 1, 2)
	for _, e := range []struct {
		rank int
		e    Evidence
	}{{0, Broken}, {1, Disconnected}, {2, Seen}} {
		_, err := m.Evidence(at(10*sec), e.rank, 1, e.e)
		require.NoError(t, err)
	}
	_, err := m.Check(nil, at(10*sec))
	require.NoError(t, err)
	return m
}

// split is a coordinator with a partition, accusations and a dead node.
func split(t testing.TB) *Coordinator {
	j := newJob(t, Config{Window: 4, Domain: racks, PartitionNodes: 2}, 13, 1)
	j.run(10 * sec)
	silence(j, 10, 13)
	j.dead[2] = true
	j.run(10 * sec)
	for _, a := range []Accusation{{4, 5, 2}, {6, 5, 3}} {
		_, err := j.c.Accuse(at(j.now), a)
		require.NoError(t, err)
	}
	j.run(sec)
	return j.c
}

func TestRestoreRefusesDamage(t *testing.T) {
	m := newMonitor(t, Config{Window: 2}, 3)
	snapshottest.RefusesDamage(t, []byte(save(t, m)), restoredMonitor)
	snapshottest.PassesFaultsOn(t, m.Snapshot, restoredMonitor)
	c, err := NewCoordinator(Config{Window: 2})
	require.NoError(t, err)
	require.NoError(t, c.Join(t0, "n0", 1, []Member{{Rank: 1}}))
	snapshottest.RefusesDamage(t, []byte(save(t, c)), restoredCoordinator)
	snapshottest.PassesFaultsOn(t, c.Snapshot, restoredCoordinator)
}

// TestRestoreRefusesTheImpossible forges snapshots with a right checksum.
func TestRestoreRefusesTheImpossible(t *testing.T) {
	snapshottest.RefusesForgeries(t, monitorFormat, version, []byte(save(t, troubled(t))), restoredMonitor, [][2]string{
		{`"node":"n0"`, `"node":"a b"`},
		{`"window":4`, `"window":1`},
		{`"window":4`, `"window":3`},
		{`"now":1`, `"now":-1`},
		{`"now":17`, `"now":16`},
		{`"pausedTo":0`, `"pausedTo":-1`},
		{`"pausedTo":0`, `"pausedTo":9223372036854775807`},
		{`"late":9223372036854775807`, `"late":-1`},
		{`"blindAt":9223372036854775807`, `"blindAt":9023372036854775807`},
		{`"seen":[`, `"seen":[-`},
		{`"block":`, `"block":9`},
		{`"key":1`, `"key":0`},
		{`"key":3`, `"key":-3`},
		{`"life":1`, `"life":4`},
		{`"told":"alive"`, `"told":"fine"`},
		{`"said":"beating"`, `"said":""`},
		{`"why":"broken",`, ``},
		{`"joined":17`, `"joined":18`},
		{`"joined":17`, `"joined":-17`},
		{`"last":17`, `"last":18`},
		{`"life":0`, `"life":2`},
		{`"paused":17`, `"paused":37`},
		{`"hold":17`, `"hold":37`},
		{`"hold":17`, `"cohort":-1,"hold":17`},
		{`"cutAt":17`, `"cutAt":16`},
		{`"cutAt":17`, `"cutAt":18`},
		{`"quiet":true,"cutAt"`, `"cutAt"`},
		{`"calmAt":9223372036854775807`, `"calmAt":17`},
		{`"steady":17`, `"relapse":6,"steady":17`},
		{`"steady":17`, `"steady":18`},
		{`"samples":[`, `"samples":[1,1,1,1,`},
		{`"samples":[750000`, `"samples":[75000000000`},
		{`"samples":[750000`, `"samples":[75000000`},
		{`"phase":0,"mask"`, `"phase":9,"mask"`},
		{`"phase":0,"mask"`, `"phase":16,"mask"`},
		{`"mask":1`, `"mask":2`},
		{`"moved":17`, `"moved":18`},
		{`"since":17`, `"since":18`},
		{`"spoke":17`, `"spoke":18`},
		{`{"node"`, `{"more":1,"node"`},
		{`{"node"`, ` {"node"`},
	})
	snapshottest.RefusesForgeries(t, coordinatorFormat, version, []byte(save(t, split(t))), restoredCoordinator, [][2]string{
		{`"key":"n00"`, `"key":"a b"`},
		{`"key":"n01"`, `"key":"n00"`},
		{`"window":4`, `"window":0`},
		{`"cutAt"`, `"hung":true,"cutAt"`},
		{`"domains":[`, `"domains":["x",`},
		{`"number":1,`, `"number":0,`},
		{`"number":1,`, `"number":-1,`},
		{`"node":"n01"`, `"node":"n77"`},
		{`"own":{"rank":0`, `"own":{"rank":1`},
		{`"told":"alive","said":"beating","since"`, `"told":"alive","said":"","since"`},
		{`"told":"alive","said":"beating","since"`, `"told":"dead","said":"silent","since"`},
		{`"told":"alive","said":"beating","since"`, `"told":"unknown","said":"joined","since"`},
		{`"told":"dead","said":"silent","since"`, `"told":"alive","said":"beating","since"`},
		{`"blame":"accused"`, `"blame":"silent"`},
		{`"blame":"accused",`, ``},
		{`"open":[{"of":5,"by":4`, `"open":[{"of":5,"by":7`},
		{`"open":[{"of":5,"by":4`, `"open":[{"of":5,"by":5`},
		{`"open":[{"of":5,"by":4`, `"open":[{"of":55,"by":4`},
		{`"group":2`, `"group":1`},
		{`"first":17`, `"first":18`},
		{`"last":1767225620`, `"last":1867225620`},
		{`"faultAt":17`, `"faultAt":18`},
		{`"faultAt":17`, `"faultAt":-17`},
		{`"parts":[{`, `"parts":[{"domain":"rack-1","until":9},{`},
		{`"until":17`, `"until":-17`},
		{`"epoch":0`, `"epoch":2`},
		{`"standing":`, `"standing":1`},
		{`"lists":[`, `"lists":null,"more":[`},
		{`{"table"`, `{"more":1,"table"`},
	})
}

func TestASequenceIsNotRepeatedAfterARestore(t *testing.T) {
	j := newJob(t, Config{}, 1, 1)
	j.run(5 * sec)
	old := save(t, j.mons[0])
	j.run(10 * sec)
	back, err := RestoreMonitor(strings.NewReader(old))
	require.NoError(t, err)
	j.mons[0] = back
	require.Equal(t, "", j.run(20*sec))
	require.Equal(t, Alive, j.state(0))
}

func TestAnEpochIsNotRepeatedOnceRaised(t *testing.T) {
	c := split(t)
	before := c.Faults()
	c.Raise(0)
	c.Raise(100)
	require.Equal(t, before, c.Faults())
	back, err := RestoreCoordinator(strings.NewReader(save(t, c)), nil)
	require.NoError(t, err)
	_, err = back.Evidence(at(21*sec), "n00", 1, Exited)
	require.NoError(t, err)
	_, err = back.Check(nil, at(21*sec))
	require.NoError(t, err)
	require.Equal(t, uint64(101), back.Faults().Epoch)
	_, ok := back.FaultsAt(before.Epoch)
	require.True(t, ok)
}

// FuzzRestore: no bytes make a restore panic, and what it takes goes on.
func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, []byte(save(f, troubled(f)))), true)
	f.Add(snapshottest.Body(f, []byte(save(f, split(f)))), false)
	f.Fuzz(func(t *testing.T, body []byte, monitor bool) {
		if monitor {
			m, err := RestoreMonitor(strings.NewReader(string(snapshottest.Frame(t, monitorFormat, version, body))))
			if err == nil {
				goOn(t, m, m.t.now)
				m.Report()
			}
			return
		}
		c, err := RestoreCoordinator(strings.NewReader(string(snapshottest.Frame(t, coordinatorFormat, version, body))), nil)
		if err == nil {
			goOn(t, c, c.t.now)
		}
	})
}

// goOn has what was restored decide until it has nothing more to tell, within bounds.
func goOn(t *testing.T, c interface {
	Check([]Event, time.Time) ([]Event, error)
	NextWake(time.Time) (time.Time, bool)
	Snapshot(io.Writer) error
}, ns int64,
) {
	now := lockstep.FromNanos(ns)
	for range 30 {
		_, err := c.Check(nil, now)
		require.NoError(t, err)
		wake, ok := c.NextWake(now)
		if !ok || wake.UnixNano() == never {
			break
		}
		require.False(t, wake.Before(now))
		now = wake
	}
	save(t, c)
}
