package imagestore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

func smallManifest() *rankManifest {
	refs := []ref{{id: regionID{1}, n: 70_000}, {n: 1 << 40, zero: true}, {id: regionID{2}, n: 5}}
	return &rankManifest{
		job: "j", epoch: 3, rank: 1, step: 9, parent: 2, created: 77, meta: map[string]string{"host": "n1", "driver": "580"},
		streams: []stream{{name: "a", sum: listSum(nil)}, {name: "b", size: 70_005 + 1<<40, width: 2, sum: listSum(refs), refs: refs}},
	}
}

func TestManifestsAreRefusedByName(t *testing.T) {
	refs := func(r ...ref) func(m *rankManifest) {
		return func(m *rankManifest) {
			m.streams[1].refs = r
			m.streams[1].sum = listSum(r)
		}
	}
	_, err := decodeRank(smallManifest().encode())
	require.NoError(t, err)
	for name, change := range map[string]func(m *rankManifest){ // each alone: order cannot matter
		"no job":                 func(m *rankManifest) { m.job = "" },
		"a path as job":          func(m *rankManifest) { m.job = "-x" },
		"epoch 0":                func(m *rankManifest) { m.epoch, m.parent = 0, 0 },
		"a parent to come":       func(m *rankManifest) { m.parent = 3 },
		"a stream twice":         func(m *rankManifest) { m.streams[1].name = "a" },
		"unsorted":               func(m *rankManifest) { m.streams[1].name = "A" },
		"a path as name":         func(m *rankManifest) { m.streams[1].name = "../b" },
		"dot-dot":                func(m *rankManifest) { m.streams[1].name = ".." },
		"no name":                func(m *rankManifest) { m.streams[0].name = "" },
		"another sum":            func(m *rankManifest) { m.streams[1].sum[0] ^= 1 },
		"another length":         func(m *rankManifest) { m.streams[1].size++ },
		"a region of nothing":    refs(ref{id: regionID{1}}),
		"a region that is large": refs(ref{id: regionID{1}, n: maxRegion + 1}),
		"zeros side by side":     refs(ref{n: 5, zero: true}, ref{n: 1<<40 + 70_000, zero: true}),
		"too long": func(m *rankManifest) {
			m.streams[0].size = 1<<63 - 1
			m.streams[0].refs = []ref{{n: 1<<63 - 1, zero: true}}
			m.streams[0].sum = listSum(m.streams[0].refs)
		},
	} {
		m := smallManifest()
		change(m)
		_, err := decodeRank(m.encode())
		require.Error(t, err, name)
	}
	remake := func(change func(b []byte) []byte) error {
		b := smallManifest().encode()
		_, err := decodeRank(seal(change(b[:len(b)-32])))
		return err
	}
	require.ErrorContains(t, remake(func(b []byte) []byte { b[6] = 2; return b }), "version 2")
	require.ErrorContains(t, remake(func(b []byte) []byte { b[7] = 9; return b }), "algorithm 9")
	require.Error(t, remake(func(b []byte) []byte { return append(b, 0) }), "something behind the end")
	require.Error(t, remake(func(b []byte) []byte { return b[:len(b)-1] }))
	// A count that no file of this length can hold is refused before it is
	// believed.
	huge := []byte(rankMagic + "\x01\x01\x00\x01j\x03\x01\x09\x02\x4d\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
	_, err = decodeRank(seal(huge))
	require.Error(t, err)
	// A number in more bytes than it needs is another encoding of the same.
	require.Error(t, remake(func(b []byte) []byte {
		return append(append(bytes.Clone(b[:8]), 0x80, 0x00), b[9:]...)
	}))
}

// FuzzManifest seals what it is given, so that the fuzzer gets behind the
// checksum.
func FuzzManifest(f *testing.F) {
	b := smallManifest().encode()
	f.Add(b[:len(b)-32])
	e := encodeEpoch(&checkpoint.Manifest{Job: "j", Epoch: 1, Term: 2, Step: 3, Ranks: []checkpoint.RankImage{{Bytes: 5, Step: 3, Took: 7}}})
	f.Add(e[:len(e)-32])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = seal(bytes.Clone(b))
		if m, err := decodeRank(b); err == nil {
			require.Equal(t, b, m.encode(), "there is one encoding")
			for _, s := range m.streams {
				require.Empty(t, streamNameFault(s.name))
			}
		}
		if m, err := decodeEpoch(b); err == nil {
			require.NoError(t, m.Validate())
			require.Equal(t, b, encodeEpoch(m))
		}
	})
}

// packBytes returns a pack of two regions, and what is in it.
func packBytes(t testing.TB) ([]byte, *worker) {
	t.Helper()
	f := newSim(1)
	s, err := open(Config{Dir: "sim", Workers: 1, Clock: newHands()}, f)
	require.NoError(t, err)
	_, _, err = saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1}, content{"a": bf16(1, 600), "b": noise(2, 100)}, checkpoint.StreamHint{})
	require.NoError(t, err)
	w, err := s.worker()
	require.NoError(t, err)
	for path, n := range storedFiles(f.root, "") { // there is one pack
		if path[:5] == dirPacks {
			return n.data, w
		}
	}
	t.Fatal("no pack")
	return nil, nil
}

// FuzzPack reads anything as a pack, finished and not. Nothing but errors may
// come of it, and what a scan keeps is whole.
func FuzzPack(f *testing.F) {
	b, w := packBytes(f)
	f.Add(b)
	f.Add(b[:len(b)-tailLen])
	f.Add(b[:headLen+frameLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		_, entries, err := readPack(r, int64(len(b)))
		var fe formatError
		require.True(t, err == nil || errors.As(err, &fe))
		for i := range entries {
			e := &entries[i]
			dst := make([]byte, e.raw)
			if err := w.fetch(simReader{r}, &loc{off: e.off, raw: e.raw, stored: e.stored}, e.id, dst); err == nil {
				require.Equal(t, e.id, newHasher(nil).sum(dst))
			}
		}
		_, entries, end, err := scanPack(r, int64(len(b)), w.verify)
		require.LessOrEqual(t, end, int64(len(b)))
		require.True(t, err == nil || errors.As(err, &fe))
		for _, e := range entries {
			require.LessOrEqual(t, e.end(), end)
		}
	})
}

// simReader is a file that is only read.
type simReader struct{ *bytes.Reader }

func (simReader) Write([]byte) (int, error) { return 0, errDead }
func (simReader) Close() error              { return nil }
func (simReader) Sync() error               { return nil }
func (simReader) Truncate(int64) error      { return errDead }
func (s simReader) Size() (int64, error)    { return s.Reader.Size(), nil }

// FuzzDecode decodes anything as a region.
func FuzzDecode(f *testing.F) {
	c, err := newCoder(LevelDefault)
	require.NoError(f, err)
	for _, b := range [][]byte{bf16(1, 3000), text(3000), f32(1, 3000)} {
		kind, out := c.encode(nil, b, 0)
		f.Add(out, uint8(kind), uint32(3000))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8, n uint32) {
		dst := make([]byte, 1+n%(1<<18), 1<<18+64)
		guard := dst[len(dst) : len(dst)+64]
		for i := range guard {
			guard[i] = 0xa5
		}
		_ = c.decode(dst, codec(kind%4), b)
		require.Equal(t, bytes.Repeat([]byte{0xa5}, 64), guard, "nothing is written behind the region")
	})
}
