package imagestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

func errorIsStale(err error) bool {
	return errors.Is(err, lockstep.ErrStale) || errors.Is(err, lockstep.ErrUnknown)
}

func errorIsUnknown(err error) bool { return errors.Is(err, lockstep.ErrUnknown) }

func TestBadConfigs(t *testing.T) {
	for field, c := range map[string]Config{ // each alone: order cannot matter
		"Dir": {}, "Level": {Dir: "x", Level: 9}, "Workers": {Dir: "x", Workers: -1}, "Average": {Dir: "x", Average: 100_000},
		"PackBytes": {Dir: "x", PackBytes: 1}, "MaxChain": {Dir: "x", MaxChain: -1}, "MinLive": {Dir: "x", MinLive: math.NaN()},
		"Grace": {Dir: "x", Grace: -1}, "MaxManifest": {Dir: "x", MaxManifest: math.MaxInt64},
	} {
		_, err := Open(c)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, field)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, field, e.Field)
	}
	err := Config{Workers: -1, MinLive: 2, Average: -1}.Validate()
	for _, f := range []string{"Dir", "Workers", "MinLive", "Average"} {
		require.ErrorContains(t, err, f)
	}
}

func TestBadSaves(t *testing.T) {
	s := newStore(t, nil)
	for name, o := range map[string]SaveOptions{ // each alone: order cannot matter
		"no job": {Epoch: 1}, "path as job": {Job: "a b", Epoch: 1}, "epoch 0": {Job: "j"}, "negative rank": {Job: "j", Epoch: 1, Rank: -1},
		"huge rank": {Job: "j", Epoch: 1, Rank: math.MaxInt32}, "parent": {Job: "j", Epoch: 2, Parent: 2}, "long note": {Job: "j", Epoch: 1, Meta: map[string]string{"k": strings.Repeat("x", 5000)}},
	} {
		_, err := s.Begin(t.Context(), o)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Begin(over, SaveOptions{Job: "j", Epoch: 1})
	require.ErrorIs(t, err, context.Canceled)
}

func TestBadStreams(t *testing.T) {
	s := newStore(t, nil)
	v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1})
	require.NoError(t, err)
	defer v.Abort()
	for _, name := range []string{"", ".", "..", "a/b", `a\b`, "../x", "/etc/passwd", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		_, err := v.Create(name, checkpoint.StreamHint{})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%q", name)
	}
	for _, hint := range []checkpoint.StreamHint{{Region: -1}, {Region: 3}, {Region: 100_000}, {Region: math.MinInt64}, {Width: -1}, {Width: 1 << 20}} {
		_, err := v.Create("x", hint)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%v", hint)
	}
	for _, active := range [][]Range{{{0, 0}}, {{-1, 5}}, {{0, -5}}, {{0, 10}, {5, 10}}, {{10, 5}, {0, 5}}, {{math.MaxInt64, 1}}, {{1, math.MaxInt64}}} {
		_, err := v.CreateActive("x", checkpoint.StreamHint{}, active)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%v", active)
	}
	w, err := v.Create("x", checkpoint.StreamHint{})
	require.NoError(t, err)
	_, err = v.Create("x", checkpoint.StreamHint{})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.ErrorIs(t, w.(*Stream).Skip(-1), lockstep.ErrInvalid)
	require.NoError(t, w.(*Stream).Skip(math.MaxInt64))
	require.ErrorIs(t, w.(*Stream).Skip(1), lockstep.ErrInvalid, "a stream ends within 2^63 bytes")
	_, err = w.Write([]byte{1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = v.Commit(t.Context())
	require.ErrorIs(t, err, lockstep.ErrConflict, "a stream is open")
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Close(), fs.ErrClosed)
	_, err = w.Write([]byte{1})
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestTwoWritersOfOneRankAreRefused(t *testing.T) {
	dir := t.TempDir() + "/s"
	a := newStore(t, func(c *Config) { c.Dir = dir })
	b := newStore(t, func(c *Config) { c.Dir = dir })
	o := SaveOptions{Job: "j", Epoch: 1}
	v, err := a.Begin(t.Context(), o)
	require.NoError(t, err)
	for _, s := range []*Store{a, b} {
		_, err = s.Begin(t.Context(), o)
		require.ErrorIs(t, err, lockstep.ErrConflict)
	}
	w, err := b.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1, Rank: 1})
	require.NoError(t, err)
	require.NoError(t, w.Abort())
	require.ErrorIs(t, a.Close(), lockstep.ErrConflict, "a save is open")
	require.NoError(t, v.Abort())
	require.NoError(t, v.Abort())
	_, err = v.Create("x", checkpoint.StreamHint{})
	require.Error(t, err)
	v, err = b.Begin(t.Context(), o)
	require.NoError(t, err, "the rank is free again")
	require.NoError(t, v.Abort())
}

func TestCommitChecksImages(t *testing.T) {
	s := newStore(t, nil)
	image, _, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1, Step: 3}, content{"a": noise(1, 1000)}, checkpoint.StreamHint{})
	require.NoError(t, err)
	good := checkpoint.Manifest{Job: "j", Epoch: 1, Term: 1, Step: 3, Ranks: []checkpoint.RankImage{image}}
	for name, f := range map[string]func(m *checkpoint.Manifest){ // each alone: order cannot matter
		"other job":   func(m *checkpoint.Manifest) { m.Job = "k" },
		"other epoch": func(m *checkpoint.Manifest) { m.Epoch = 2 },
		"other step":  func(m *checkpoint.Manifest) { m.Step = 4; m.Ranks[0].Step = 4 },
		"other size":  func(m *checkpoint.Manifest) { m.Ranks[0].Bytes++ },
	} {
		m := good.Clone()
		f(m)
		require.ErrorIs(t, s.Commit(t.Context(), m), lockstep.ErrInvalid, name)
	}
	m := good.Clone()
	m.Ranks[0].Image[0] ^= 1
	require.ErrorIs(t, s.Commit(t.Context(), m), lockstep.ErrUnknown)
	_, ok, err := s.Latest(t.Context(), "j")
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, s.Commit(t.Context(), &good))
	_, err = s.Image(t.Context(), "j", 1, 1)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = s.Image(t.Context(), "j", 1, -1)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestActiveMemory(t *testing.T) {
	s := newStore(t, nil)
	b := noise(1, 1<<20)
	active := []Range{{1000, 200_000}, {300_000, 1}, {700_001, 100_000}}
	want := make([]byte, len(b), len(b)+5000)
	for _, r := range active {
		copy(want[r.Offset:r.Offset+r.Length], b[r.Offset:])
	}
	want = want[:len(b)+5000]
	v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1})
	require.NoError(t, err)
	w, err := v.CreateActive("mem", checkpoint.StreamHint{}, active)
	require.NoError(t, err)
	active[0].Length = 5 // the store has its own copy
	for at := 0; at < len(b); at += 77_777 {
		n, err := w.Write(b[at:min(at+77_777, len(b))])
		require.NoError(t, err)
		require.Equal(t, min(77_777, len(b)-at), n)
	}
	require.NoError(t, w.Skip(5000))
	require.NoError(t, w.Close())
	none, err := v.CreateActive("none", checkpoint.StreamHint{}, nil)
	require.NoError(t, err)
	_, err = none.Write(b)
	require.NoError(t, err)
	require.NoError(t, none.Close())
	image, err := v.Commit(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, v.Stats().Stored, lockstep.Bytes(300_001+20*frameLen))
	require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 1, Ranks: []checkpoint.RankImage{image}}))
	got, err := load(t.Context(), s, "j", 1, 0)
	require.NoError(t, err)
	requireSame(t, content{"mem": want, "none": make([]byte, len(b))}, got)
}

func TestModesAndLinks(t *testing.T) {
	s := newStore(t, nil)
	require.NoError(t, saveEpoch(t.Context(), s, "a/../b", 1, []content{{"a": noise(1, 1000)}}))
	require.NoError(t, filepath.WalkDir(s.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		require.Equal(t, want, st.Mode().Perm(), path)
		return nil
	}))
	link := t.TempDir() + "/link"
	require.NoError(t, os.Symlink(s.cfg.Dir, link))
	_, err := Open(Config{Dir: link})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "the folder is a link")
	packs, err := filepath.Glob(s.cfg.Dir + "/packs/*")
	require.NoError(t, err)
	moved := t.TempDir() + "/pack"
	b, err := os.ReadFile(packs[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(moved, b, 0o600))
	require.NoError(t, os.Remove(packs[0]))
	require.NoError(t, os.Symlink(moved, packs[0]))
	_, err = load(t.Context(), s, "a/../b", 1, 0)
	require.Error(t, err, "a pack is a link out of the store")
	require.NoError(t, os.Remove(packs[0]))
	require.NoError(t, os.WriteFile(filepath.Dir(packs[0])+"/../trash/x", b, 0o600))
	require.NoError(t, os.Symlink("../trash/x", packs[0]))
	_, err = load(t.Context(), s, "a/../b", 1, 0)
	require.Error(t, err, "a pack is a link inside the store")
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(Config{Dir: file})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Open(Config{Dir: t.TempDir() + "/no/such/parent"})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSealedStore(t *testing.T) {
	dir := t.TempDir() + "/s"
	key := [32]byte{7}
	s := newStore(t, func(c *Config) { c.Dir, c.Sealer, c.IDKey = dir, newGCM(t, 1), &key })
	secret := bytes.Repeat([]byte("these are the weights. "), 9000)
	c := []content{{"secret-name": secret}, {"secret-name": secret}}
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, c))
	got, err := load(t.Context(), s, "j", 1, 1)
	require.NoError(t, err)
	requireSame(t, c[0], got)
	require.Equal(t, 1, packCount(t, s), "ranks share regions, sealed or not")
	id := newHasher(nil).sum(secret[:64<<10])
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NotContains(t, string(b), "weights")
		require.NotContains(t, string(b), "secret-name")
		require.NotContains(t, string(b), string(id[:]), "an identity tells nothing without the key")
		return err
	}))
	for name, cfg := range map[string]Config{ // each alone: order cannot matter
		"no sealer": {Dir: dir, IDKey: &key}, "no key": {Dir: dir, Sealer: newGCM(t, 1)}, "another key": {Dir: dir, Sealer: newGCM(t, 1), IDKey: &[32]byte{8}},
	} {
		_, err := Open(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	wrong, err := Open(Config{Dir: dir, IDKey: &key, Sealer: newGCM(t, 2)})
	require.NoError(t, err)
	_, err = wrong.Image(t.Context(), "j", 1, 0)
	require.ErrorIs(t, err, checkpoint.ErrCorrupt, "what another key sealed does not open")
	require.NoError(t, wrong.Close())
}

// fullFS has no room for new files.
type fullFS struct{ fsys }

func (fullFS) create(string) (file, error) { return nil, syscall.ENOSPC }

// TestFullDiskCanBeRead: a restore needs no room, and Collect stays out meanwhile.
func TestFullDiskCanBeRead(t *testing.T) {
	f := newSim(1)
	s, err := sim(t, f, newHands())
	require.NoError(t, err)
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{{"a": noise(1, 100)}}))
	cfg := Config{Dir: "sim", Workers: 1, Clock: newHands()}
	s, err = open(cfg, fullFS{f})
	require.NoError(t, err)
	m, err := s.Image(t.Context(), "j", 1, 0)
	require.NoError(t, err)
	_, ok, err := f.lock(fileLock, true)
	require.NoError(t, err)
	require.False(t, ok, "Collect is kept out")
	r, err := m.Open("a")
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, noise(1, 100), b)
	require.NoError(t, r.Close())
	require.NoError(t, m.Close())
	unlock, ok, err := f.lock(fileLock, true)
	require.NoError(t, err)
	require.True(t, ok)
	unlock()
}

func TestContextEndsASave(t *testing.T) {
	s := newStore(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	v, err := s.Begin(ctx, SaveOptions{Job: "j", Epoch: 1})
	require.NoError(t, err)
	w, err := v.Create("a", checkpoint.StreamHint{})
	require.NoError(t, err)
	cancel()
	_, err = w.Write(noise(1, 100))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, w.Close(), context.Canceled)
	_, err = v.Commit(t.Context())
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, v.Abort())
	names, err := s.fs.list(dirOpen)
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestCopyTo(t *testing.T) {
	s := newStore(t, nil)
	b := join(noise(1, 500_000), make([]byte, 300_000), bf16(1, 500_000))
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{{"a": b}}))
	m, err := s.Image(t.Context(), "j", 1, 0)
	require.NoError(t, err)
	path := t.TempDir() + "/out"
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, m.CopyTo(t.Context(), "a", f))
	require.NoError(t, f.Close())
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
	require.ErrorIs(t, m.CopyTo(t.Context(), "b", f), lockstep.ErrUnknown)
	require.Error(t, m.CopyTo(t.Context(), "a", f), "the file is closed")
	r, err := m.Open("a")
	require.NoError(t, err)
	var out bytes.Buffer
	head := make([]byte, 10)
	_, err = io.ReadFull(r, head)
	require.NoError(t, err)
	n, err := io.Copy(&out, r) // by WriteTo
	require.NoError(t, err)
	require.EqualValues(t, len(b)-10, n)
	require.True(t, bytes.Equal(b[10:], out.Bytes()))
	require.NoError(t, r.Close())
	_, err = r.Read(head)
	require.ErrorIs(t, err, fs.ErrClosed)
	n2, ok := m.Size("a")
	require.True(t, ok)
	require.EqualValues(t, len(b), n2)
	require.NoError(t, m.Close())
	_, err = m.Open("a")
	require.ErrorIs(t, err, fs.ErrClosed)
}
