package fit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
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

// TestFitsAreTheSameBytesOnEveryPlatform pins a fit and what a Tracker makes of it, so that a run on
// another architecture shows a fused multiplication there.
func TestFitsAreTheSameBytesOnEveryPlatform(t *testing.T) {
	var all bytes.Buffer
	var samples []Sample
	c := Coeff{Alpha: 2000, Beta: 0.05}
	for i, x := range hashes(200) {
		b := perfmodel.Batch{Tokens: 32768, Pairs: float64(1000000 * (1 + i%17))}
		samples = append(samples, Sample{Batch: b, Took: num.Duration(c.nanos(b) * (1 + x/64))})
	}
	got, report, err := Solve(samples, Options{})
	require.NoError(t, err)
	all.WriteString(text(got.Alpha) + text(got.Beta) + text(report.MAPE) + text(report.Scale) + text(report.Condition))
	tracker, err := NewTracker(got, report, TrackerConfig{})
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, tracker.Observe(s))
	}
	require.NoError(t, tracker.Snapshot(&all))
	sum := sha256.Sum256(all.Bytes())
	require.Equal(t, "7da053f2500aff409d83ceb86bc42d49a75976eb5b1dc66b5bf6b20846ca6492", hex.EncodeToString(sum[:]))
}
