package placement

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

func bytesOf(t testing.TB, s *State) []byte {
	var b bytes.Buffer
	require.NoError(t, s.Snapshot(&b))
	return b.Bytes()
}

// TestRestoredStateDecidesTheSame saves random states, and asks both the same.
func TestRestoredStateDecidesTheSame(t *testing.T) {
	sequences := 2_000
	if testing.Short() {
		sequences = 300
	}
	shapes := someShapes(t)
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 10 {
			w.step()
		}
		saved := bytesOf(t, w.s)
		again, err := Restore(w.s.Tree(), Config{}, bytes.NewReader(saved))
		require.NoError(t, err)
		require.NoError(t, again.verify())
		require.Equal(t, saved, bytesOf(t, again))
		require.Equal(t, w.s.Lost(), again.Lost())
		require.Equal(t, w.s.Usage(), again.Usage())
		for range 3 {
			r := w.request()
			var a, b lockstep.Plan
			x, err := w.s.Fit(r, &a)
			require.NoError(t, err)
			y, err := again.Fit(r, &b)
			require.NoError(t, err)
			require.Equal(t, x, y)
			require.Equal(t, a, b)
		}
	}
}

// TestRollbackRestoresTheBytes holds that a what-if leaves nothing behind.
func TestRollbackRestoresTheBytes(t *testing.T) {
	sequences := 2_000
	if testing.Short() {
		sequences = 300
	}
	shapes := someShapes(t)
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		w.marks = nil
		before, version := bytesOf(t, w.s), w.s.Version()
		mark, ref := w.s.Mark(), w.ref.clone()
		w.marks = append(w.marks, worldMark{mark, ref})
		for range 6 {
			if w.rng.IntN(20) < 9 {
				w.fit(w.request())
			} else if id := w.anyJob(); id != "" && w.rng.IntN(2) == 0 {
				require.NoError(t, w.s.Release(id))
				delete(w.ref.jobs, id)
			} else if id := w.anyNode(); id != "" {
				w.flag(id)
			}
		}
		issued := w.s.issued
		require.NoError(t, w.s.Rollback(mark))
		require.Equal(t, before, bytesOf(t, w.s))
		require.Equal(t, version, w.s.Version())
		require.Equal(t, issued, w.s.issued, "a version could be given out twice")
		require.NoError(t, w.s.verify())
		w.ref = ref
		w.checkPlans()
	}
}

func TestRestoreRefusesOtherTrees(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	saved := bytesOf(t, s)
	small := stateOf(t, nodesOf(3), Config{})
	_, err := Restore(small.Tree(), Config{}, bytes.NewReader(saved))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	renamed := nodesOf(4)
	renamed[0].ID = "x"
	_, err = Restore(stateOf(t, renamed, Config{}).Tree(), Config{}, bytes.NewReader(saved))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	for name, text := range map[string]string{ // any order
		"empty": "", "other": "hello\n", "short": string(saved[:len(saved)-3]), "flipped": strings.Replace(string(saved), "n1", "n2", 1),
	} {
		_, err = Restore(s.Tree(), Config{}, strings.NewReader(text))
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	_, err = Restore(s.Tree(), Config{}, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Restore(nil, Config{}, bytes.NewReader(saved))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Restore(s.Tree(), Config{Nodes: []Node{{ID: "n0"}}}, bytes.NewReader(saved))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestRestoreRefusesWhatSnapshotNeverWrites damages and forges saved bytes.
func TestRestoreRefusesWhatSnapshotNeverWrites(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", CPU: 4000}}})
	s.mustPlace(t, gangOf("a", 2, 4))
	s.mustPlace(t, gangOf("b", 1, 4))
	require.NoError(t, s.SetPenalty("n1", 3))
	restore := func(r io.Reader) error {
		_, err := Restore(s.Tree(), Config{}, r)
		return err
	}
	saved := bytesOf(t, s)
	snapshottest.RefusesDamage(t, saved, restore)
	snapshottest.PassesFaultsOn(t, s.Snapshot, restore)
	snapshottest.RefusesForgeries(t, snapshotFormat, snapshotVersion, saved, restore, [][2]string{
		{`"version":`, `"version":-`},
		{`{"version":4`, `{"version":0`},
		{`"cpu":`, `"cpus":`},
		{`"penalty":3`, `"penalty":-3`},
		{`{"id":"n1"`, `{"id":"n0"`},
		{`"id":"b"`, `"id":"a"`},
		{`"id":"b"`, `"id":" "`},
		{`"role":0`, `"role":1`},
		{`"role":0`, `"role":-1`},
		{`"node":"n1"`, `"node":"n0"`},
		{`"node":"n1"`, `"node":""`},
		{`"devices":"0-3"`, `"devices":"0-4"`},
		{`"devices":"4-7"`, `"devices":"3-6"`},
		{`"min":2`, `"min":1`},
		{`}]}`, `}]}{}`},
	})
}

func TestRestoreNeverReusesAVersion(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	saved := bytesOf(t, s)
	p := s.mustPlace(t, gangOf("a", 1, 1))
	p2 := s.mustPlace(t, gangOf("b", 1, 1))
	again, err := Restore(s.Tree(), Config{}, bytes.NewReader(saved))
	require.NoError(t, err)
	again.mustPlace(t, gangOf("c", 1, 1))
	require.ErrorIs(t, again.Apply(p), lockstep.ErrStale)
	require.ErrorIs(t, again.Apply(p2), lockstep.ErrStale)
}

// FuzzRestore feeds bodies with a right checksum, so that the fuzzer gets
// behind it: what Restore takes must be sound.
func FuzzRestore(f *testing.F) {
	tree, err := topology.New([]topology.Level{{Name: "rack"}}, nodesOf(4))
	require.NoError(f, err)
	s, err := New(tree, Config{Nodes: []Node{{ID: "n0", CPU: 4000, Taints: []lockstep.Taint{{Key: "k"}}}}})
	require.NoError(f, err)
	var p lockstep.Plan
	_, err = s.Fit(&lockstep.Request{Gang: gangOf("a", 3, 4)}, &p)
	require.NoError(f, err)
	require.NoError(f, s.Apply(&p))
	require.NoError(f, s.Cordon("n2"))
	_, body, _ := bytes.Cut(bytesOf(f, s), []byte("\n"))
	f.Add(body)
	f.Add([]byte(`{"version":1,"nodes":[],"jobs":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var sealed bytes.Buffer
		require.NoError(t, snapshot.Write(&sealed, snapshotFormat, snapshotVersion, body))
		s, err := Restore(tree, Config{}, &sealed)
		if err != nil {
			return
		}
		require.NoError(t, s.verify())
		first := bytesOf(t, s)
		again, err := Restore(tree, Config{}, bytes.NewReader(first))
		require.NoError(t, err)
		require.Equal(t, first, bytesOf(t, again))
		for _, id := range s.Jobs() {
			require.NoError(t, s.Release(id))
		}
		require.NoError(t, s.verify())
	})
}
