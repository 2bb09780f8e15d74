package imagestore

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bf16 returns n bytes of bfloat16 numbers with mean 0 and deviation 0.02.
func bf16(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, n+2)
	for i := 0; i < n; i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16(math.Float32bits(float32(rng.NormFloat64()*0.02))>>16))
	}
	return b[:n]
}

// f32 returns n bytes of float32 numbers of the same distribution.
func f32(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 4))
	b := make([]byte, n+4)
	for i := 0; i < n; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(rng.NormFloat64()*0.02)))
	}
	return b[:n]
}

func text(n int) []byte {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, "layer.%d.weight shape [4096 %d] dtype bf16\n", i, 128*(i%7))
	}
	return b[:n]
}

func TestCodecsGiveBackWhatTheyGot(t *testing.T) {
	for _, level := range []Level{LevelDefault, LevelFastest, LevelFast, LevelSmall} {
		c, err := newCoder(level)
		require.NoError(t, err)
		for _, n := range []int{1, 5, 63, 64, 65, 127, 1000, 4099, 70001, 131072, 262147} {
			same := make([]byte, n)
			for i := range same {
				same[i] = 7
			}
			for name, b := range map[string][]byte{"bf16": bf16(1, n), "f32": f32(1, n), "noise": noise(1, n), "text": text(n), "same": same} { // cases stand alone: order cannot matter
				for _, width := range []int{0, 1, 2, 4, 8} {
					kind, out := c.encode(make([]byte, 3, n/2+3), b, width)
					coded := out[3:]
					if kind == codecRaw {
						require.Empty(t, coded)
						coded = b
					}
					require.LessOrEqual(t, len(coded), n)
					got := make([]byte, n)
					require.NoError(t, c.decode(got, kind, coded), "%s %s %d", level, name, n)
					require.Equal(t, b, got)
				}
			}
		}
	}
}

func TestPlanesHalveWhatExponentsTake(t *testing.T) {
	c, err := newCoder(LevelDefault)
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		b    []byte
		most float64
	}{{"bf16", bf16(1, 1<<17), 0.70}, {"f32", f32(1, 1<<17), 0.86}, {"text", text(1 << 17), 0.2}, {"shifted bf16", bf16(1, 1<<17)[1:], 0.70}} {
		kind, out := c.encode(nil, tt.b, 0)
		require.NotEqual(t, codecRaw, kind, tt.name)
		require.Less(t, float64(len(out))/float64(len(tt.b)), tt.most, tt.name)
	}
	kind, _ := c.encode(nil, noise(1, 1<<17), 0)
	require.Equal(t, codecRaw, kind)
}

func BenchmarkEncode(b *testing.B) {
	for _, level := range []Level{LevelDefault, LevelFast, LevelSmall} {
		for name, d := range map[string][]byte{"bf16": bf16(1, 128<<10), "f32": f32(1, 128<<10), "noise": noise(1, 128<<10), "text": text(128 << 10)} { // order does not matter
			b.Run(fmt.Sprintf("%s/%s", level, name), func(b *testing.B) {
				c, _ := newCoder(level)
				var out []byte
				kind := codecRaw
				b.SetBytes(int64(len(d)))
				b.ReportAllocs()
				for b.Loop() {
					kind, out = c.encode(out[:0], d, 0)
				}
				if kind == codecRaw {
					out = d
				}
				b.ReportMetric(float64(len(out))/float64(len(d)), "ratio")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, d := range map[string][]byte{"bf16": bf16(1, 128<<10), "f32": f32(1, 128<<10), "text": text(128 << 10)} { // order does not matter
		b.Run(name, func(b *testing.B) {
			c, _ := newCoder(LevelDefault)
			kind, out := c.encode(nil, d, 0)
			got := make([]byte, len(d))
			b.SetBytes(int64(len(d)))
			b.ReportAllocs()
			for b.Loop() {
				_ = c.decode(got, kind, out)
			}
		})
	}
}

func BenchmarkSplit(b *testing.B) {
	d := bf16(1, 128<<10)
	c, _ := newCoder(LevelDefault)
	for _, w := range []int{2, 4} {
		b.Run(fmt.Sprint(w), func(b *testing.B) {
			b.SetBytes(int64(len(d)))
			for b.Loop() {
				c.split(d, w)
			}
		})
	}
}

func BenchmarkCut(b *testing.B) {
	d := noise(1, 4<<20)
	var pieces []piece
	b.SetBytes(int64(len(d)))
	for b.Loop() {
		c := contentCutter(128 << 10)
		pieces, _ = c.cut(pieces[:0], d, true)
	}
	b.ReportMetric(float64(len(d))/float64(len(pieces)), "bytes/region")
}
