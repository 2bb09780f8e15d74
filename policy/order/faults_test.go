package order

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// restored says, by the same configuration, whether r is a snapshot.
func restored(cfg Config) func(r io.Reader) error {
	return func(r io.Reader) error {
		_, err := Restore(cfg, r)
		return err
	}
}

// TestRestoreRefusesTheImpossible forges snapshots with a right checksum.
func TestRestoreRefusesTheImpossible(t *testing.T) {
	cfg := Config{Order: LAS{}}
	q := newQueue(t, cfg.Order)
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 8000, Duration: time.Hour}))
	require.NoError(t, q.Submit(t0, Job{ID: "b", GPUs: 1000}))
	require.NoError(t, q.Start(t0, "a"))
	require.NoError(t, q.Stop(at(time.Minute), "a"))
	snapshottest.RefusesForgeries(t, format, version, []byte(save(t, q)), restored(cfg), [][2]string{
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":""`},
		{`"gpus":"1"`, `"gpus":"-1"`},
		{`"duration":3600000000000`, `"duration":-1`},
		{`"phase":0`, `"phase":4`},
		{`"phase":0`, `"phase":-1`},
		{`"phase":0`, `"phase":2`},
		{`"submit":17`, `"submit":27`},
		{`"since":17`, `"since":27`},
		{`"now":17`, `"now":7`},
		{`"executed":6`, `"executed":9`},
		{`"spent":60000000000`, `"spent":-1`},
		{`"gpus":"1"`, `"gpus":"1","level":3`},
		{`"gauge":"4`, `"gauge":"5`},
		{`"gauge":"4`, `"gauge":"-4`},
		{`"class":1`, `"class":3`},
		{`"class":1`, `"class":-1`},
		{`"class":1`, `"class":2`},
		{`"class":1,"major":0`, `"class":1,"major":1`},
		{`"class":1,"major":0`, `"class":1,"major":-1`},
		{`"class":1,"major":0,"minor":1`, `"class":1,"major":0,"minor":2`},
		{`"class":2,"major":17`, `"class":2,"major":7`},
		{`"class":2,"major":17`, `"class":2,"major":27`},
		{`"class":2,"major":17`, `"major":17`},
		{`"class":2,"major":1767225600000000000`, `"class":1,"major":0,"minor":1`},
		{`{"order"`, ` {"order"`},
		{`{"order"`, `["order"`},
	})
}

func TestFaultsOfCollaborators(t *testing.T) {
	q := newQueue(t, LAS{})
	snapshottest.PassesFaultsOn(t, q.Snapshot, restored(Config{}))
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 1000}))
	j, _ := q.Job("a")
	require.Equal(t, t0, j.Submitted())
	require.NoError(t, q.Start(t0, "a"))
	wake, ok := q.NextWake(at(24 * time.Hour))
	require.True(t, ok)
	require.Equal(t, at(24*time.Hour), wake)
}
