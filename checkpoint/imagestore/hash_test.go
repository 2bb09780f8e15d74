package imagestore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// noise returns n bytes without structure.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 77))
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b[:n]
}

func TestSumIsBLAKE3(t *testing.T) {
	b := noise(1, 300<<10)
	key := [32]byte{1, 2, 3}
	plain, keyed := newHasher(nil), newHasher(&key)
	sizes := []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3000, 5 << 10, 16 << 10, 16<<10 + 1, 17 << 10, 31<<10 + 5, 32 << 10, 48 << 10, 64 << 10, 65<<10 + 1, 128 << 10, 255 << 10, 300 << 10}
	for _, n := range sizes {
		require.Equal(t, regionID(blake3.Sum256(b[:n])), plain.sum(b[:n]), "%d", n)
		h := blake3.New(32, key[:])
		_, _ = h.Write(b[:n])
		require.Equal(t, h.Sum(nil), func() []byte { s := keyed.sum(b[:n]); return s[:] }(), "%d", n)
	}
}

func TestSumAllocatesNothing(t *testing.T) {
	b := noise(1, 200<<10)
	h := newHasher(nil)
	require.Zero(t, testing.AllocsPerRun(10, func() { h.sum(b) }))
}

func TestZeros(t *testing.T) {
	for _, n := range []int{0, 1, 7, 63, 64, 65, 200} {
		b := make([]byte, n)
		require.True(t, isZero(b))
		for i := range b {
			b[i] = 1
			require.Equal(t, i, zeros(b), "%d of %d", i, n)
			b[i] = 0
		}
	}
}

func BenchmarkSum(b *testing.B) {
	d := noise(1, 128<<10)
	h := newHasher(nil)
	b.SetBytes(int64(len(d)))
	for b.Loop() {
		h.sum(d)
	}
}
