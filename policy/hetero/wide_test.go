package hetero

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rates over fifteen orders of magnitude between jobs and six between classes of one job are solved all the same.
func TestWideFiguresAreSolved(t *testing.T) {
	for seed := range rounds(300, 30) {
		rng := rand.New(rand.NewPCG(uint64(seed), 12))
		p := random(rng, 1+rng.IntN(20), 1+rng.IntN(4))
		for g := range p.Groups {
			scale := math.Pow(10, 15*rng.Float64()-8)
			for r := range p.Groups[g].Rates {
				p.Groups[g].Rates[r].PerSecond *= scale * math.Pow(10, 6*rng.Float64()-3)
			}
			p.Groups[g].Remaining *= scale
			p.Groups[g].Weight = 1 + rng.Int64N(1000)
		}
		for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, MinCost, PerCost} {
			a, err := policy(p)
			require.NoError(t, err, "seed %d", seed)
			if a.Feasible {
				checkShares(t, p, a)
			}
		}
	}
}
