package change

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// TestPowerIsThatOfSimulation plays the statistics out.
func TestPowerIsThatOfSimulation(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 41))
	const plays = 20_000
	for _, cfg := range []Config{{}, {Threshold: 5, Reference: 0.25, Horizon: 15}, {Clip: 2, Horizon: 60, Power: 0.9}} {
		cfg = cfg.withDefaults()
		rise := cusumRise(cfg)
		found := 0
		for range plays {
			s := 0.0
			for i := 0; i < cfg.Horizon && s < cfg.Threshold; i++ {
				s = max(0, s+num.Clip(r.NormFloat64()+rise, cfg.Clip)-cfg.Reference)
			}
			if s >= cfg.Threshold {
				found++
			}
		}
		require.InDelta(t, cfg.Power, float64(found)/plays, 0.04, "%+v", cfg)
	}
	for _, cfg := range []Config{{Method: EWMA}, {Method: EWMA, Weight: 0.05, Threshold: 3}, {Method: EWMA, Weight: 1, Threshold: 3}} {
		cfg = cfg.withDefaults()
		rise := ewmaRise(cfg)
		limit := cfg.Threshold * math.Sqrt(cfg.Weight/(2-cfg.Weight))
		found := 0
		for range plays {
			s := 0.0
			for i := 0; i < cfg.Horizon && s < limit; i++ {
				s = (1-cfg.Weight)*s + cfg.Weight*num.Clip(r.NormFloat64()+rise, cfg.Clip)
			}
			if s >= limit {
				found++
			}
		}
		require.InDelta(t, cfg.Power, float64(found)/plays, 0.05, "%+v", cfg)
	}
}

func TestQuantileIsTheInverseOfTheDistribution(t *testing.T) {
	require.InDelta(t, 1.6448536, quantile(0.95), 1e-5)
	for p := 0.001; p < 1; p += 0.037 {
		require.InDelta(t, p, num.Normal(quantile(p)), 1e-7)
	}
}
