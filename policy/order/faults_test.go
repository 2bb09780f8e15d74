package order

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// framed returns body behind the header that suits it.
func framed(body []byte) string {
	var b bytes.Buffer
	if err := snapshot.Write(&b, format, version, body); err != nil {
		panic(err)
	}
	return b.String()
}

// TestRestoreRefusesTheImpossible forges snapshots with a right checksum.
func TestRestoreRefusesTheImpossible(t *testing.T) {
	cfg := Config{Order: LAS{}}
	q := newQueue(t, cfg.Order)
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 8000, Duration: time.Hour}))
	require.NoError(t, q.Submit(t0, Job{ID: "b", GPUs: 1000}))
	require.NoError(t, q.Start(t0, "a"))
	require.NoError(t, q.Stop(at(time.Minute), "a"))
	_, body, _ := strings.Cut(save(t, q), "\n")
	for _, tt := range []struct{ from, to string }{
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
		{`"gauge":{"hi":0`, `"gauge":{"hi":1`},
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
	} {
		forged := strings.ReplaceAll(body, tt.from, tt.to)
		require.NotEqual(t, body, forged, tt.from)
		_, err := Restore(strings.NewReader(framed([]byte(forged))), cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s to %s in %s", tt.from, tt.to, body)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

func TestFaultsOfCollaborators(t *testing.T) {
	fail := errors.New("disk full")
	q := newQueue(t, LAS{})
	require.ErrorIs(t, q.Snapshot(brokenWriter{fail}), fail)
	_, err := Restore(iotest.ErrReader(fail), Config{})
	require.ErrorIs(t, err, fail)
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 1000}))
	j, _ := q.Job("a")
	require.Equal(t, t0, j.Submitted())
	require.NoError(t, q.Start(t0, "a"))
	wake, ok := q.NextWake(at(24 * time.Hour))
	require.True(t, ok)
	require.Equal(t, at(24*time.Hour), wake)
}
