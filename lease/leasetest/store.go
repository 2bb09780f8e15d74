package leasetest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// TestStore runs the conformance tests against stores that newStore makes, each
// empty and, where it has to be closed, closed by t.Cleanup.
func TestStore(t *testing.T, newStore func(t *testing.T) lease.Store) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, s lease.Store)
	}{
		{"absent key has revision zero", absent},
		{"swap needs the present revision", compare},
		{"revisions grow", grow},
		{"keys do not meet", keys},
		{"bytes come back as they were", verbatim},
		{"data is copied", copied},
		{"a cancelled context changes nothing", cancelled},
		{"the second scheduler deposes the first", depose},
		{"tokens grow across a takeover", takeover},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, newStore(t)) })
	}
}

func absent(t *testing.T, s lease.Store) {
	data, rev, err := s.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, rev)
	require.Nil(t, data)
	_, _, err = lease.Load(t.Context(), s, "k")
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func compare(t *testing.T, s lease.Store) {
	_, err := s.Swap(t.Context(), "k", 7, []byte("x"))
	require.ErrorIs(t, err, lockstep.ErrConflict, "a key that is absent has revision 0 only")
	rev := swap(t, s, "k", 0, "one")
	_, err = s.Swap(t.Context(), "k", 0, []byte("x"))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = s.Swap(t.Context(), "k", rev+1, []byte("x"))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	data, have, err := s.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
	require.Equal(t, rev, have)
}

func grow(t *testing.T, s lease.Store) {
	var rev lease.Revision
	for range 20 {
		next := swap(t, s, "k", rev, "same")
		require.Greater(t, next, rev, "also when the data is the same")
		rev = next
	}
}

func keys(t *testing.T, s lease.Store) {
	names := []string{"a", "A", "a/b", "a/", "ä"}
	revs := make([]lease.Revision, len(names))
	for i, k := range names {
		revs[i] = swap(t, s, k, 0, "v:"+k)
	}
	for i, k := range names {
		data, rev, err := s.Load(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, "v:"+k, string(data))
		require.Equal(t, revs[i], rev)
	}
}

func verbatim(t *testing.T, s lease.Store) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	var rev lease.Revision
	for _, want := range [][]byte{all, {}, bytes.Repeat(all, 256)} {
		rev = swap(t, s, "k", rev, string(want))
		data, have, err := s.Load(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, rev, have)
		require.True(t, bytes.Equal(want, data))
	}
}

func copied(t *testing.T, s lease.Store) {
	in := []byte("one")
	_, err := s.Swap(t.Context(), "k", 0, in)
	require.NoError(t, err)
	in[0] = 'X'
	out, _, err := s.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(out))
	out[0] = 'Y'
	out, _, err = s.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(out))
}

func cancelled(t *testing.T, s lease.Store) {
	rev := swap(t, s, "k", 0, "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Swap(ctx, "k", rev, []byte("two"))
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = s.Load(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	data, have, err := s.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
	require.Equal(t, rev, have)
}

func depose(t *testing.T, s lease.Store) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, err := lease.New(lease.Config{})
	require.NoError(t, err)
	_, err = first.Grant(now, "a", 1000, 0)
	require.NoError(t, err)
	rev, err := first.Save(t.Context(), s, "leases", 0)
	require.NoError(t, err)

	second, rev2, err := lease.Load(t.Context(), s, "leases")
	require.NoError(t, err)
	require.Equal(t, rev, rev2)
	_, err = second.Grant(now, "b", 1000, 0)
	require.NoError(t, err)
	_, err = second.Save(t.Context(), s, "leases", rev2)
	require.NoError(t, err)

	_, err = first.Grant(now, "c", 1000, 0)
	require.NoError(t, err)
	_, err = first.Save(t.Context(), s, "leases", rev)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	last, _, err := lease.Load(t.Context(), s, "leases")
	require.NoError(t, err)
	_, ok := last.Get("c")
	require.False(t, ok)
	_, ok = last.Get("b")
	require.True(t, ok)
}

func takeover(t *testing.T, s lease.Store) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var rev lease.Revision
	var seen lease.Token
	for i := range 5 {
		table, err := lease.New(lease.Config{})
		require.NoError(t, err)
		if i > 0 {
			table, rev, err = lease.Load(t.Context(), s, "leases")
			require.NoError(t, err)
		}
		l, err := table.Grant(now, "a", 1000, 0)
		require.NoError(t, err)
		require.Greater(t, l.Token, seen)
		seen = l.Token
		_, err = table.Release(now, "a", l.Token)
		require.NoError(t, err)
		_, err = table.Save(t.Context(), s, "leases", rev)
		require.NoError(t, err)
	}
}

func swap(t *testing.T, s lease.Store, key string, old lease.Revision, data string) lease.Revision {
	t.Helper()
	rev, err := s.Swap(t.Context(), key, old, []byte(data))
	require.NoError(t, err)
	return rev
}
