package lifecycle

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// restored says whether r is a snapshot.
func restored(r io.Reader) error {
	_, err := Restore(r)
	return err
}

// TestRestoreRefusesTheImpossible forges snapshots with a right checksum.
func TestRestoreRefusesTheImpossible(t *testing.T) {
	m := newMachine(t, Config{})
	running(t, m, 0)
	apply(t, m, Event{Move: MoveSave, Time: at(time.Hour)}, Event{Move: MoveSubmit, Time: at(time.Hour), Job: "b"})
	snapshottest.RefusesForgeries(t, format, version, []byte(save(t, m)), restored, [][2]string{
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":""`},
		{`"state":"queued"`, `"state":"asleep"`},
		{`"state":"running"`, `"state":"cleaning"`},
		{`"submitted":17`, `"submitted":27`},
		{`"at":17`, `"at":7`},
		{`"now":17`, `"now":7`},
		{`"risk":36`, `"risk":96`},
		{`"ran":3`, `"ran":-3`},
		{`"gpu":["0"`, `"gpu":["-1"`},
		{`"gpu":["0"`, `"gpu":["170141183460469231731687303715884105728"`},
		{`"gpu":["0"`, `"gpu":["00"`},
		{`"gpus":"8"`, `"gpus":"-8"`},
		{`"gpus":"8"`, `"gpus":"8","clean":"9"`},
		{`"time":[0,0,3600000000000`, `"time":[0,0,1`},
		{`"time":[0,0,3600000000000,0`, `"time":[0,-1,3600000000000,1`},
		{`"riskGPU":"2`, `"riskGPU":"9`},
		{`"riskGPU":"2`, `"riskGPU":"-2`},
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
	})
}

func TestFaultsOfCollaborators(t *testing.T) {
	m := newMachine(t, Config{})
	snapshottest.PassesFaultsOn(t, m.Snapshot, restored)
	_, ok := m.NextWake(t0)
	require.False(t, ok)
	into(t, m, Queued)
	late := at(2 * lockstep.MaxWalltime)
	wake, ok := m.NextWake(late)
	require.True(t, ok)
	require.Equal(t, late, wake)
	require.Equal(t, "7", Parts.String())
}
