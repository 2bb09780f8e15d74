package checkpointtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// TestLedger runs the conformance tests, each with a new and empty ledger.
func TestLedger(t *testing.T, newLedger func(t *testing.T) checkpoint.Ledger) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, l checkpoint.Ledger)
	}{
		{"an empty ledger has nothing", ledgerEmpty},
		{"what was committed comes back", ledgerRoundTrip},
		{"the same manifest again is success", ledgerAgain},
		{"another manifest under one number is a conflict", ledgerConflict},
		{"a fence only rises", ledgerFence},
		{"a fenced leader cannot commit", ledgerFenced},
		{"the latest is the greatest number", ledgerLatest},
		{"jobs do not meet", ledgerJobs},
		{"a manifest is checked before it is kept", ledgerInvalid},
		{"manifests are copied", ledgerCopied},
		{"a context that is over changes nothing", ledgerCancelled},
		{"of two leaders at once one is fenced or first", ledgerRace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, newLedger(t)) })
	}
}

// Manifest returns a manifest that a ledger has to take, for tests: two ranks
// at step 7·epoch.
func Manifest(job lockstep.JobID, epoch checkpoint.Epoch, term checkpoint.Term) *checkpoint.Manifest {
	m := &checkpoint.Manifest{Job: job, Epoch: epoch, Term: term, Step: 7 * uint64(epoch)}
	for r := range 2 {
		m.Ranks = append(m.Ranks, checkpoint.RankImage{
			Rank: r, Image: checkpoint.Digest{byte(r), byte(epoch), 1}, Bytes: lockstep.GiB, Step: m.Step, Took: time.Second,
		})
	}
	return m
}

func ledgerEmpty(t *testing.T, l checkpoint.Ledger) {
	m, ok, err := l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok)
	require.Nil(t, m)
	m, ok, err = l.Committed(t.Context(), "j", 1)
	require.NoError(t, err)
	require.False(t, ok)
	require.Nil(t, m)
}

func ledgerRoundTrip(t *testing.T, l checkpoint.Ledger) {
	want := Manifest("j", 3, 1)
	require.NoError(t, l.Commit(t.Context(), want))
	got, ok, err := l.Committed(t.Context(), "j", 3)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
	_, ok, err = l.Committed(t.Context(), "j", 2)
	require.NoError(t, err)
	require.False(t, ok, "a number that was skipped is not committed")
}

func ledgerAgain(t *testing.T, l checkpoint.Ledger) {
	for range 3 {
		require.NoError(t, l.Commit(t.Context(), Manifest("j", 1, 1)))
	}
	got, ok, err := l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Manifest("j", 1, 1), got)
}

func ledgerConflict(t *testing.T, l checkpoint.Ledger) {
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 1, 1)))
	other := Manifest("j", 1, 1)
	other.Ranks[1].Image[5] ^= 1
	require.ErrorIs(t, l.Commit(t.Context(), other), lockstep.ErrConflict)
	later := Manifest("j", 1, 2)
	require.ErrorIs(t, l.Commit(t.Context(), later), lockstep.ErrConflict, "the term is part of the manifest")
	got, _, err := l.Committed(t.Context(), "j", 1)
	require.NoError(t, err)
	require.Equal(t, Manifest("j", 1, 1), got, "the first stays")
}

func ledgerFence(t *testing.T, l checkpoint.Ledger) {
	require.NoError(t, l.Fence(t.Context(), "j", 3))
	require.NoError(t, l.Fence(t.Context(), "j", 3), "the same fence again is success")
	require.ErrorIs(t, l.Fence(t.Context(), "j", 2), checkpoint.ErrFenced)
	require.NoError(t, l.Fence(t.Context(), "j", 5))
	require.ErrorIs(t, l.Fence(t.Context(), "j", 4), checkpoint.ErrFenced)
}

func ledgerFenced(t *testing.T, l checkpoint.Ledger) {
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 1, 2)))
	require.NoError(t, l.Fence(t.Context(), "j", 3))
	require.ErrorIs(t, l.Commit(t.Context(), Manifest("j", 2, 2)), checkpoint.ErrFenced)
	_, ok, err := l.Committed(t.Context(), "j", 2)
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = l.Committed(t.Context(), "j", 1)
	require.NoError(t, err)
	require.True(t, ok, "what was committed before the fence stays")
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 2, 3)))
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 3, 9)), "a commit needs no fence of its own")
}

func ledgerLatest(t *testing.T, l checkpoint.Ledger) {
	for _, e := range []checkpoint.Epoch{2, 10, 9} { // as text, 9 would be the greatest
		require.NoError(t, l.Commit(t.Context(), Manifest("j", e, 1)))
	}
	got, ok, err := l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Manifest("j", 10, 1), got)
	top := Manifest("j", 1<<63, 1<<63)
	require.NoError(t, l.Commit(t.Context(), top))
	got, _, err = l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.Equal(t, top, got, "numbers have all their bits")
}

func ledgerJobs(t *testing.T, l checkpoint.Ledger) {
	// All of these are job IDs: a ledger on files has to keep them apart, and inside.
	jobs := []lockstep.JobID{"j", "J", "j.1", "j-1", "j1", "a/b", "a", "a%2Fb", "../a", ".", "..", "é", lockstep.JobID(strings.Repeat("x", lockstep.MaxIDLength))}
	for i, j := range jobs {
		require.NoError(t, l.Commit(t.Context(), Manifest(j, checkpoint.Epoch(i+1), 1)))
	}
	require.NoError(t, l.Fence(t.Context(), "j", 100))
	for i, j := range jobs {
		got, ok, err := l.Latest(t.Context(), j)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Manifest(j, checkpoint.Epoch(i+1), 1), got)
	}
	require.NoError(t, l.Commit(t.Context(), Manifest("j1", 50, 1)), "a fence is one job's")
}

func ledgerInvalid(t *testing.T, l checkpoint.Ledger) {
	change := map[string]func(m *checkpoint.Manifest){
		"no job":         func(m *checkpoint.Manifest) { m.Job = "" },
		"epoch 0":        func(m *checkpoint.Manifest) { m.Epoch = 0 },
		"no ranks":       func(m *checkpoint.Manifest) { m.Ranks = nil },
		"a rank twice":   func(m *checkpoint.Manifest) { m.Ranks[1].Rank = 0 },
		"ranks unsorted": func(m *checkpoint.Manifest) { m.Ranks[0], m.Ranks[1] = m.Ranks[1], m.Ranks[0] },
		"a rank missing": func(m *checkpoint.Manifest) { m.Ranks = m.Ranks[1:] },
		"negative bytes": func(m *checkpoint.Manifest) { m.Ranks[0].Bytes = -1 },
		"another step":   func(m *checkpoint.Manifest) { m.Ranks[0].Step++ },
	}
	for name, f := range change { // each is tried alone, so order cannot matter
		m := Manifest("j", 1, 1)
		f(m)
		require.ErrorIs(t, l.Commit(t.Context(), m), lockstep.ErrInvalid, name)
	}
	require.ErrorIs(t, l.Commit(t.Context(), nil), lockstep.ErrInvalid)
	for _, j := range []lockstep.JobID{"", "-x", "a b", "a\x00b", "\xff", lockstep.JobID(strings.Repeat("x", lockstep.MaxIDLength+1))} {
		require.ErrorIs(t, l.Commit(t.Context(), Manifest(j, 1, 1)), lockstep.ErrInvalid, "%.20q", j)
		require.ErrorIs(t, l.Fence(t.Context(), j, 1), lockstep.ErrInvalid, "%.20q", j)
	}
	_, ok, err := l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok)
}

func ledgerCopied(t *testing.T, l checkpoint.Ledger) {
	given := Manifest("j", 1, 1)
	require.NoError(t, l.Commit(t.Context(), given))
	given.Ranks[0].Image = checkpoint.Digest{9}
	got, _, err := l.Committed(t.Context(), "j", 1)
	require.NoError(t, err)
	require.Equal(t, Manifest("j", 1, 1), got, "the argument is the caller's")
	got.Ranks[0].Bytes = 1
	got, _, err = l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.Equal(t, Manifest("j", 1, 1), got, "so is the result")
}

func ledgerCancelled(t *testing.T, l checkpoint.Ledger) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, l.Commit(over, Manifest("j", 1, 1)))
	require.Error(t, l.Fence(over, "j", 9))
	_, _, err := l.Latest(over, "j")
	require.Error(t, err)
	_, _, err = l.Committed(over, "j", 1)
	require.Error(t, err)
	_, ok, err := l.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, l.Commit(t.Context(), Manifest("j", 1, 1)), "nothing was fenced")
}

// ledgerRace has a leader commit while its successor fences and looks. What
// the successor saw has to hold for ever.
func ledgerRace(t *testing.T, l checkpoint.Ledger) {
	for e := checkpoint.Epoch(1); e <= 20; e++ {
		term := checkpoint.Term(2 * e)
		var wg sync.WaitGroup
		var commit error
		wg.Go(func() { commit = l.Commit(t.Context(), Manifest("j", e, term)) })
		require.NoError(t, l.Fence(t.Context(), "j", term+1))
		_, seen, err := l.Committed(t.Context(), "j", e)
		require.NoError(t, err)
		wg.Wait()
		_, after, err := l.Committed(t.Context(), "j", e)
		require.NoError(t, err)
		require.Equal(t, seen, after, "what was seen behind the fence holds")
		require.Equal(t, commit == nil, after, "success is what is committed: %v", commit)
		if commit != nil {
			require.ErrorIs(t, commit, checkpoint.ErrFenced)
		}
	}
}
