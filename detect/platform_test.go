package detect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestStatesAreTheSameBytesOnEveryPlatform pins what tests, fits and trackers keep after a
// series with a fault, so that a run on another architecture shows a fused multiplication or
// a function that rounds another way there.
func TestStatesAreTheSameBytesOnEveryPlatform(t *testing.T) {
	var all bytes.Buffer
	for _, m := range methods {
		test := newTest(t, TestConfig{Method: m})
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
	var samples []Sample
	c := Coeff{Alpha: 2000, Beta: 0.05}
	for i, x := range hashes(200) {
		b := perfmodel.Batch{Tokens: 32768, Pairs: float64(1000000 * (1 + i%17))}
		samples = append(samples, Sample{Batch: b, Took: quantise(c.nanos(b) * (1 + x/64))})
	}
	got, report, err := Fit(samples, FitOptions{})
	require.NoError(t, err)
	all.WriteString(text(got.Alpha) + text(got.Beta) + text(report.MAPE) + text(report.Scale) + text(report.Condition))
	tracker, err := NewTracker(got, report, TrackerConfig{})
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, tracker.Observe(s))
	}
	require.NoError(t, tracker.Snapshot(&all))
	sum := sha256.Sum256(all.Bytes())
	require.Equal(t, "91cd1bf657cc07b738e8543145353dee260e5aa0838a2042b023ac91fce9a27e", hex.EncodeToString(sum[:]))
}
