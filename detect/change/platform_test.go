package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// hashes returns a noise of sums of uniform whole numbers, the same bits everywhere, in [-1, 1].
func hashes(n int) []float64 {
	out := make([]float64, n)
	x := uint64(1)
	for i := range out {
		sum := 0
		for range 4 {
			x = x*6364136223846793005 + 1442695040888963407
			sum += int(x >> 48)
		}
		out[i] = float64(sum-2*65536) / (2 * 65536)
	}
	return out
}

// TestStatesAreTheSameBytesOnEveryPlatform pins what tests keep after a series with a fault, so that
// a run on another architecture shows a fused multiplication or a function that rounds another way there.
func TestStatesAreTheSameBytesOnEveryPlatform(t *testing.T) {
	var all bytes.Buffer
	for _, m := range methods {
		test := newTest(t, Config{Method: m})
		for i, x := range hashes(400) {
			x = float64(x * 0.03)
			if i > 150 && i < 220 || i > 300 {
				x += 0.4
			}
			d := observe(t, test, x)
			if d.Alarm {
				all.WriteString(text(d.Shift))
			}
		}
		all.Write(saved(t, test))
	}
	sum := sha256.Sum256(all.Bytes())
	require.Equal(t, "928d1c27487be79d3bbc07ea644cd03f396a2908245fd9336f768763d3c77cf7", hex.EncodeToString(sum[:]))
}
