package lease

import (
	"context"
	"errors"
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
	table := newTable(t, Config{})
	grant(t, table, at(0), "a", 2000, 0)
	_, err := table.Yield(at(0), "a", at(time.Minute), "x")
	require.NoError(t, err)
	grant(t, table, at(1), "b", 2000, 0)
	snapshottest.RefusesForgeries(t, format, version, []byte(save(t, table)), restored, [][2]string{
		{`"job":"b"`, `"job":"a"`},
		{`"job":"b"`, `"job":""`},
		{`"token":2`, `"token":1`},
		{`"token":2`, `"token":0`},
		{`"token":2`, `"token":3`},
		{`"amount":"2"`, `"amount":"0"`},
		{`"amount":"2"`, `"amount":"2","target":"2"`},
		{`"boundary"`, `"extended":-1,"boundary"`},
		{`"term":1800000000000`, `"term":0`},
		{`"granted":17`, `"granted":27`},
		{`"since":17`, `"since":27`},
		{`"renewed":17`, `"renewed":27`},
		{`"boundary":17`, `"boundary":7`},
		{`"boundary":17`, `"boundary":18`},
		{`"deadline":17`, `"deadline":7`},
		{`"state":"held"`, `"state":"free"`},
		{`"state":"held"`, `"state":"yielding"`},
		{`"state":"yielding"`, `"state":"held"`},
		{`"state":"yielding"`, `"state":"shrinking"`},
		{`"now":17`, `"now":7`},
		{`"loss":20000`, `"loss":-1`},
		{`{"config"`, ` {"config"`},
		{`{"config"`, `{"more":1,"config"`},
		{`{"config"`, `["config"`},
		{`"last":2`, `"last":2,"leases":[]`},
	})
}

// TestRestoreRefusesImpossibleLoans forges snapshots of a table with loans.
func TestRestoreRefusesImpossibleLoans(t *testing.T) {
	image := save(t, recalled(t))
	snapshottest.RefusesForgeries(t, format, version, []byte(image), restored, [][2]string{
		{`"id":"night"`, `"id":"day"`},
		{`"id":"night"`, `"id":"a b"`},
		{`"lender":"inference"`, `"lender":"a b"`},
		{`"notice":60000000000`, `"notice":-1`},
		{`"amount":"4","deadline"`, `"amount":"0","deadline"`},
		{`"amount":"4","deadline"`, `"amount":"40","deadline"`},
		{`"amount":"4","deadline"`, `"amount":"3","deadline":1}, {"amount":"1","deadline"`},
		{`"id":"night","lender":"inference","amount":"16"`, `"id":"night","lender":"inference","amount":"17"`},
		{`"id":"night","lender":"inference","amount":"16"`, `"id":"night","lender":"inference","amount":"15"`},
		{`"id":"night","lender":"inference","amount":"16"`, `"id":"night","lender":"inference","amount":"-1"`},
		{`,"since":1767225720000000000}]`, `,"since":9223372036854775807}]`},
		{`,"since":1767225720000000000}]`, `,"since":1767225720000000001}]`},
		{`"state":"heldover"`, `"state":"heldover","told":1`},
		{`"loan":"night"`, `"loan":"day"`},
		{`"resumed":9223372036854775807`, `"resumed":1`},
		{`"growth":1500`, `"growth":1`},
		{`"jitter":1000`, `"jitter":-1`},
		{`"first":60000000000`, `"first":-1`},
		{`"longest":3600000000000`, `"longest":1`},
	})
}

// broken is a store that fails.
type broken struct{ err error }

func (b broken) Load(context.Context, string) ([]byte, Revision, error) { return nil, 0, b.err }

func (b broken) Swap(context.Context, string, Revision, []byte) (Revision, error) { return 0, b.err }

func TestFaultsOfCollaborators(t *testing.T) {
	fail := errors.New("disk full")
	table := newTable(t, Config{})
	grant(t, table, t0, "a", 1000, 0)
	snapshottest.PassesFaultsOn(t, table.Snapshot, restored)
	rev, err := table.Save(t.Context(), broken{fail}, "k", 7)
	require.ErrorIs(t, err, fail)
	require.Equal(t, Revision(7), rev, "so that rev, err = Save(rev) can be tried again")
	_, _, err = Load(t.Context(), broken{fail}, "k")
	require.ErrorIs(t, err, fail)
	var m Memory
	_, err = m.Swap(t.Context(), "k", 0, []byte("no table"))
	require.NoError(t, err)
	_, _, err = Load(t.Context(), &m, "k")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, Token(1), table.Last())
	_, ok := newTable(t, Config{}).NextWake(t0)
	require.False(t, ok)
	wake, ok := table.NextWake(at(time.Hour))
	require.True(t, ok)
	require.Equal(t, at(time.Hour), wake)
}
