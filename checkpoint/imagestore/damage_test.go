package imagestore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// gcm is a Sealer of the kind that a caller would write.
type gcm struct{ aead cipher.AEAD }

func newGCM(t testing.TB, key byte) *gcm {
	t.Helper()
	block, err := aes.NewCipher(append(make([]byte, 31), key))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return &gcm{aead}
}

func (g *gcm) Seal(dst, plain, ad []byte) ([]byte, error) {
	nonce := make([]byte, g.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return g.aead.Seal(append(dst, nonce...), nonce, plain, ad), nil
}

func (g *gcm) Open(dst, sealed, ad []byte) ([]byte, error) {
	n := g.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("too short")
	}
	return g.aead.Open(dst, sealed[:n], sealed[n:], ad)
}

// storedFiles returns the files of a store that hold something, by path.
func storedFiles(n *node, dir string) map[string]*node {
	files := map[string]*node{}
	for name, c := range n.now { // into a map: order cannot matter
		switch {
		case c.dir:
			maps.Copy(files, storedFiles(c, dir+name+"/"))
		case len(c.data) > 0:
			files[dir+name] = c
		}
	}
	return files
}

// smallStore makes a store of two ranks, two epochs of which one was dropped, and
// a fence.
func smallStore(t testing.TB, size int, change func(*Config)) (*simFS, Config, []content) {
	t.Helper()
	cfg := Config{Dir: "sim", Workers: 1, Clock: newHands()}
	if change != nil {
		change(&cfg)
	}
	f := newSim(1)
	s, err := open(cfg, f)
	require.NoError(t, err)
	ranks := []content{
		{"a": bf16(1, size), "b": text(size), "zero": make([]byte, 100)},
		{"a": bf16(1, size), "c": noise(3, size/2)},
	}
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, ranks))
	require.NoError(t, s.Fence(t.Context(), "j", 1))
	require.NoError(t, saveEpoch(t.Context(), s, "j", 2, ranks))
	require.NoError(t, s.Drop(t.Context(), "j", 1))
	require.NoError(t, s.Close())
	return f, cfg, ranks
}

// damaged says that Verify finds a fault, and that no image is read wrongly.
func damaged(t testing.TB, f *simFS, cfg Config, ranks []content, what string) {
	t.Helper()
	s, err := open(cfg, f)
	if err != nil {
		require.True(t, errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, lockstep.ErrInvalid), "%s: %v", what, err)
		return
	}
	for r, want := range ranks {
		got, err := load(t.Context(), s, "j", 2, r)
		if err == nil {
			requireSame(t, want, got)
			continue
		}
		require.True(t, errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, lockstep.ErrUnknown), "%s: %v", what, err)
	}
	rep, err := s.Verify(t.Context())
	require.ErrorIs(t, err, checkpoint.ErrCorrupt, what)
	require.NotEmpty(t, rep.Damage, what)
	require.NoError(t, s.Close())
}

// TestFlippedBitIsFound flips a bit in every byte of every file of a small store.
func TestFlippedBitIsFound(t *testing.T) {
	for name, change := range map[string]func(*Config){ // each alone: order cannot matter
		"plain": nil, "sealed": func(c *Config) { c.Sealer = newGCM(t, 1); c.IDKey = &[32]byte{5} },
	} {
		t.Run(name, func(t *testing.T) {
			f, cfg, ranks := smallStore(t, 500, change)
			rng := mrand.New(mrand.NewPCG(1, 1))
			flips := 0
			for path, n := range storedFiles(f.root, "") { // each alone: order cannot matter
				for i := range n.data {
					if testing.Short() && i%11 != 0 {
						continue
					}
					bit := byte(1) << rng.IntN(8)
					n.data[i] ^= bit
					damaged(t, f, cfg, ranks, fmt.Sprintf("%s, byte %d", path, i))
					n.data[i] ^= bit
					flips++
				}
			}
			t.Logf("%d flips", flips)
			s, err := open(cfg, f)
			require.NoError(t, err)
			_, err = s.Verify(t.Context())
			require.NoError(t, err, "nothing else was wrong")
		})
	}
}

// TestCutFileIsFound truncates every file at every byte, and lengthens it, and
// removes those that the committed epoch needs.
func TestCutFileIsFound(t *testing.T) {
	f, cfg, ranks := smallStore(t, 300, nil)
	for path, n := range storedFiles(f.root, "") { // each alone: order cannot matter
		whole := n.data
		for k := 0; k <= len(whole); k++ {
			if testing.Short() && k%11 != 0 {
				continue
			}
			n.data = whole[:k]
			if k == len(whole) {
				n.data = append(slices.Clone(whole), 0)
			}
			damaged(t, f, cfg, ranks, fmt.Sprintf("%s, cut to %d of %d", path, len(n.data), len(whole)))
		}
		n.data = whole
		if strings.HasPrefix(path, dirPacks) {
			d, base, err := f.parent(path)
			require.NoError(t, err)
			delete(d.now, base)
			damaged(t, f, cfg, ranks, path+" removed")
			d.now[base] = n
		}
	}
}

// TestFlippedBitOfALargeImageIsFound tries random places of a larger store.
func TestFlippedBitOfALargeImageIsFound(t *testing.T) {
	f, cfg, ranks := smallStore(t, 1<<20, nil)
	rng := mrand.New(mrand.NewPCG(2, 2))
	files := storedFiles(f.root, "")
	paths := slices.Sorted(maps.Keys(files))
	tries := 60
	if testing.Short() {
		tries = 10
	}
	for range tries {
		path := paths[rng.IntN(len(paths))]
		b := files[path].data
		at, bit := rng.IntN(len(b)), byte(1)<<rng.IntN(8)
		b[at] ^= bit
		damaged(t, f, cfg, ranks, fmt.Sprintf("%s, byte %d", path, at))
		b[at] ^= bit
	}
}

// TestDamageIsStoredAnew: a region that Verify found damaged is not counted on by
// the next save, which heals older epochs too.
func TestDamageIsStoredAnew(t *testing.T) {
	clock := newHands()
	s := newStore(t, func(c *Config) { c.Clock = clock })
	c := []content{{"a": noise(1, 300<<10)}}
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, c))
	packs, err := filepath.Glob(s.cfg.Dir + "/packs/*")
	require.NoError(t, err)
	b, err := os.ReadFile(packs[0])
	require.NoError(t, err)
	b[5000] ^= 1
	require.NoError(t, os.WriteFile(packs[0], b, 0o600))
	_, err = s.Verify(t.Context())
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	_, err = load(t.Context(), s, "j", 1, 0)
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.NoError(t, saveEpoch(t.Context(), s, "j", 2, c))
	for e := range checkpoint.Epoch(2) {
		got, err := load(t.Context(), s, "j", e+1, 0)
		require.NoError(t, err)
		requireSame(t, c[0], got)
	}
}
