package lifecycle

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
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveSave, Time: at(time.Hour)}, Event{Move: MoveSubmit, Time: at(time.Hour), Job: "b"})
	_, body, _ := strings.Cut(save(t, m), "\n")
	for _, tt := range []struct{ from, to string }{
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":""`},
		{`"state":"queued"`, `"state":"asleep"`},
		{`"state":"running"`, `"state":"cleaning"`},
		{`"submitted":17`, `"submitted":27`},
		{`"at":17`, `"at":7`},
		{`"now":17`, `"now":7`},
		{`"risk":36`, `"risk":96`},
		{`"ran":3`, `"ran":-3`},
		{`"nanos":0`, `"nanos":-1`},
		{`"gpus":"8"`, `"gpus":"-8"`},
		{`"gpus":"8"`, `"gpus":"8","clean":"9"`},
		{`"time":[0,0,3600000000000`, `"time":[0,0,1`},
		{`"time":[0,0,3600000000000,0`, `"time":[0,-1,3600000000000,1`},
		{`"riskGPU":{"seconds":2`, `"riskGPU":{"seconds":9`},
		{`"state":"queued"`, `"state":"queued","gpus":"8"`},
		{`"state":"queued"`, `"state":"queued","saving":true`},
		{`"state":"queued"`, `"state":"queued","target":"1"`},
		{`"state":"queued"`, `"state":"starting"`},
		{`"state":"queued"`, `"state":"queued","used":[{"name":"app","n":0}]`},
		{`"saving":true`, `"saving":true,"clean":"1"`},
		{`"maxWait":`, `"maxWait":-`},
		{`{"config"`, ` {"config"`},
		{`{"config"`, `["config"`},
		{`"jobs":[`, `"jobs":[null,`},
	} {
		forged := strings.ReplaceAll(body, tt.from, tt.to)
		require.NotEqual(t, body, forged, tt.from)
		_, err := Restore(strings.NewReader(framed([]byte(forged))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s to %s", tt.from, tt.to)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

func TestFaultsOfCollaborators(t *testing.T) {
	fail := errors.New("disk full")
	m := newMachine(t, Config{})
	require.ErrorIs(t, m.Snapshot(brokenWriter{fail}), fail)
	_, err := Restore(iotest.ErrReader(fail))
	require.ErrorIs(t, err, fail)
	_, ok := m.NextWake(t0)
	require.False(t, ok)
	into(t, m, Queued)
	late := at(2 * lockstep.MaxWalltime)
	wake, ok := m.NextWake(late)
	require.True(t, ok)
	require.Equal(t, late, wake)
	require.Equal(t, "7", Parts.String())
}
