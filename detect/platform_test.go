package detect

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
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

// TestAJobIsTheSameBytesOnEveryPlatform pins the verdicts and the state of Monitors of a job with a
// fault, from chunk times and from iteration times, so that a run on another architecture shows a
// fused multiplication or a function that rounds another way there.
func TestAJobIsTheSameBytesOnEveryPlatform(t *testing.T) {
	all := sha256.New()
	for _, chunks := range []bool{true, false} {
		cfg := Config{Pipeline: pipeline.Config{Stages: 4, Micros: 4}, Replicas: 2, Rates: ratesFor(4)}
		if chunks {
			cfg.Rates, cfg.Refit = Rates{}, true
		}
		m := newMonitor(t, cfg)
		rates := ratesFor(4)
		noise := hashes(1 << 14)
		draw := func() float64 { // of the fixed noise, around and around
			x := noise[0]
			noise = append(noise[1:], x)
			return x
		}
		for n := range uint64(220) {
			it := &Iteration{Number: n + 1}
			slow := 1.0
			if n > 120 {
				slow = 1.3
			}
			for d := range 2 {
				it.Batches = append(it.Batches, nil)
				for micro := range 4 {
					b := perfmodel.Batch{Tokens: 8192, Pairs: float64(1_000_000 * (10 + (int(n)+3*micro+d)%17))}
					it.Batches[d] = append(it.Batches[d], b)
					for s := range 4 {
						for k, c := range []fit.Coeff{rates.Forward[s], rates.Backward[s]} {
							x := float64(c.Time(b)) * float64(1+float64(draw()*0.03))
							if d == 1 && s == 2 {
								x = float64(x * slow)
							}
							it.Chunks = append(it.Chunks, Chunk{Replica: d, Stage: s, Kind: pipeline.Kind(k), Micro: micro, Took: num.Duration(x)})
						}
					}
				}
			}
			p, err := NewPredictor(cfg.Pipeline, rates)
			require.NoError(t, err)
			took, err := p.Expect(it.Batches)
			require.NoError(t, err)
			it.Took = num.Duration(float64(float64(took)*slow) * float64(1+float64(draw()*0.02)))
			if !chunks {
				it.Chunks = nil
			}
			v, err := m.Observe(it)
			require.NoError(t, err)
			body, err := json.Marshal(v.Suspects)
			require.NoError(t, err)
			all.Write(body)
			all.Write([]byte(v.State.String() + v.Cause.String() + text(v.Score) + text(v.Ratio)))
		}
		all.Write([]byte(state(t, m)))
	}
	require.Equal(t, "5039b5d83863a449d987ab1689a09d11d22da4bd10d54d8b501bc3fa22772d51", hex.EncodeToString(all.Sum(nil)))
}
