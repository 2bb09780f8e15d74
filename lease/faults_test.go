package lease

import (
	"bytes"
	"context"
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
	table := newTable(t, Config{})
	grant(t, table, at(0), "a", 2000, 0)
	_, err := table.Yield(at(0), "a", at(time.Minute), "x")
	require.NoError(t, err)
	grant(t, table, at(1), "b", 2000, 0)
	_, body, _ := strings.Cut(save(t, table), "\n")
	for _, tt := range []struct{ from, to string }{
		{`"job":"b"`, `"job":"a"`},
		{`"job":"b"`, `"job":""`},
		{`"token":2`, `"token":1`},
		{`"token":2`, `"token":0`},
		{`"token":2`, `"token":3`},
		{`"amount":"2"`, `"amount":"0"`},
		{`"amount":"2"`, `"amount":"2","target":"2"`},
		{`"extended":0`, `"extended":-1`},
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
	} {
		forged := strings.ReplaceAll(body, tt.from, tt.to)
		if tt.from == `"extended":0` {
			forged = strings.ReplaceAll(body, `"job":"b"`, `"job":"b","extended":-1`)
		}
		require.NotEqual(t, body, forged, tt.from)
		_, err := Restore(strings.NewReader(framed([]byte(forged))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s to %s", tt.from, tt.to)
	}
}

// broken is a store and a writer that fails.
type broken struct{ err error }

func (b broken) Load(context.Context, string) ([]byte, Revision, error) { return nil, 0, b.err }

func (b broken) Swap(context.Context, string, Revision, []byte) (Revision, error) { return 0, b.err }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestFaultsOfCollaborators(t *testing.T) {
	fail := errors.New("disk full")
	table := newTable(t, Config{})
	grant(t, table, t0, "a", 1000, 0)
	require.ErrorIs(t, table.Snapshot(broken{fail}), fail)
	_, err := Restore(iotest.ErrReader(fail))
	require.ErrorIs(t, err, fail)
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
