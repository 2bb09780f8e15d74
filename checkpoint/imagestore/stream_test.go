package imagestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// patches is a stream of numbers, noise and zeros, long and short.
func patches(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 8))
	var b []byte
	for len(b) < n {
		k := 1 + rng.IntN(1<<rng.IntN(19))
		switch rng.IntN(3) {
		case 0:
			b = append(b, make([]byte, k)...)
		case 1:
			b = append(b, noise(rng.Uint64(), k)...)
		default:
			b = append(b, bf16(rng.Uint64(), k)...)
		}
	}
	return b[:n]
}

// TestManifestDependsOnBytesAlone: however a stream arrives, and however many
// workers there are, the digest of the image is the same.
func TestManifestDependsOnBytesAlone(t *testing.T) {
	for _, hint := range []checkpoint.StreamHint{{}, {Region: 64 * lockstep.KiB}} {
		for seed := range uint64(2) {
			b := patches(seed, 3<<20)
			var want checkpoint.Digest
			for i, piece := range []int{len(b), 1 << 16, 4097, 1_000_003} {
				s := newStore(t, func(c *Config) { c.Workers = 1 + i; c.Level = LevelFastest })
				v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1})
				require.NoError(t, err)
				w, err := v.Create("a", hint)
				require.NoError(t, err)
				for at := 0; at < len(b); at += piece {
					_, err := w.Write(b[at:min(at+piece, len(b))])
					require.NoError(t, err)
				}
				require.NoError(t, w.Close())
				image, err := v.Commit(t.Context())
				require.NoError(t, err)
				if i == 0 {
					want = image.Image
				}
				require.Equal(t, want, image.Image, "pieces of %d", piece)
				require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 1, Ranks: []checkpoint.RankImage{image}}))
				got, err := load(t.Context(), s, "j", 1, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(b, got["a"]))
			}
		}
	}
}

// TestCutterCoversTheStream compares the cutter, fed in pieces, with itself fed
// at once, and checks its bounds.
func TestCutterCoversTheStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for seed := range uint64(20) {
		b := patches(seed, 1<<20+rng.IntN(1000))
		whole := contentCutter(64 << 10)
		want, covered := whole.cut(nil, b, true)
		require.Equal(t, len(b), covered)
		fed := contentCutter(64 << 10)
		var ends []int
		at, end := 0, 0
		for at < len(b) {
			end = min(len(b), end+1+rng.IntN(100_000))
			pieces, n := fed.cut(nil, b[at:end], end == len(b))
			for _, p := range pieces {
				ends = append(ends, at+p.to)
				require.Equal(t, p.zero, isZero(b[at+p.from:at+p.to]))
			}
			at += n
		}
		for _, p := range want { // runs of zeros may come in more pieces, all others in one
			require.Contains(t, ends, p.to, "seed %d", seed)
			if !p.zero {
				require.LessOrEqual(t, p.to-p.from, 256<<10)
			}
		}
	}
}

// TestMemoryIsBounded: what a save and a restore allocate does not grow with the
// image.
func TestMemoryIsBounded(t *testing.T) {
	s := newStore(t, nil)
	block := bf16(1, 2<<20)
	save := func(e checkpoint.Epoch, blocks int) {
		v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: e})
		require.NoError(t, err)
		w, err := v.Create("a", checkpoint.StreamHint{Region: 2 * lockstep.MiB})
		require.NoError(t, err)
		for range blocks {
			_, err = w.Write(block)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		image, err := v.Commit(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: e, Ranks: []checkpoint.RankImage{image}}))
		m, err := s.Image(t.Context(), "j", e, 0)
		require.NoError(t, err)
		require.NoError(t, m.CopyTo(t.Context(), "a", nowhere{}))
		require.NoError(t, m.Close())
	}
	save(1, 4)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	save(2, 128)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "256 MiB were saved and restored")
}

type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func TestLeaveKeepsWhatIsStored(t *testing.T) {
	s := newStore(t, nil)
	o := SaveOptions{Job: "j", Epoch: 1}
	v, err := s.Begin(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, put(v, content{"a": noise(1, 1<<20)}, checkpoint.StreamHint{}))
	require.NoError(t, v.Leave())
	_, err = v.Commit(t.Context())
	require.Error(t, err)
	_, st, err := saveRank(t.Context(), s, o, content{"a": noise(1, 1<<20)}, checkpoint.StreamHint{})
	require.NoError(t, err)
	require.Zero(t, st.Stored)
}

// TestAbortWaits aborts while batches are under way: nothing runs afterwards, so
// the store can be closed.
func TestAbortWaits(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Level = LevelSmall })
	for range 5 {
		v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1})
		require.NoError(t, err)
		w, err := v.Create("a", checkpoint.StreamHint{})
		require.NoError(t, err)
		_, err = w.Write(noise(1, 5<<20))
		require.NoError(t, err)
		require.NoError(t, v.Abort())
		_, err = w.Write(noise(1, 5<<20))
		require.ErrorIs(t, err, errAborted)
		require.Error(t, w.Close())
		names, err := s.fs.list(dirOpen)
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

func TestTexts(t *testing.T) {
	require.Equal(t, "[default fastest fast small level(9)]", fmt.Sprint([]Level{LevelDefault, LevelFastest, LevelFast, LevelSmall, 9}))
}
