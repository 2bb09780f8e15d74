package elastic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

type power struct{ local, apart float64 }

func (p power) Speedup(nodes, gpus int) (float64, bool) {
	x := math.Pow(float64(gpus), p.local)
	if nodes > 1 {
		x *= p.apart
	}
	return x, true
}

// cheapest returns the least sum of costs over all allocations, by trying every count of every job on every node.
func (s *Search) cheapest(from int) int64 {
	if from == len(s.jobs) {
		return 0
	}
	best := int64(math.MaxInt64)
	j := &s.jobs[from]
	var spots []Spot
	var choose func(node, n int)
	choose = func(node, n int) {
		if node == len(s.free) {
			if n > 0 && (n < j.least || n > j.most) || !s.fits(spots) {
				return
			}
			s.take(spots)
			if rest := s.cheapest(from + 1); rest < math.MaxInt64 {
				best = min(best, j.costOn(spots)+rest)
			}
			s.drop(spots)
			return
		}
		choose(node+1, n)
		for g := 1; g <= s.free[node] && n+g <= j.most; g++ {
			spots = append(spots, Spot{node, g})
			choose(node+1, n+g)
			spots = spots[:len(spots)-1]
		}
	}
	choose(0, 0)
	return best
}

// On clusters small enough to try all allocations the search is mostly best, never far from it.
func TestSearchIsNearTheBestOnSmallClusters(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	rounds := 300
	if testing.Short() {
		rounds = 40
	}
	best, worst, sum := 0, 1.0, 0.0
	for range rounds {
		nodes := make([]int, 1+rng.IntN(3))
		for i := range nodes {
			nodes[i] = 1 + rng.IntN(3)
		}
		var jobs []Candidate
		for i := range 1 + rng.IntN(4) {
			c := Candidate{
				ID: lockstep.JobID(fmt.Sprint(i)), Speed: power{rng.Float64(), rng.Float64()}, Max: 1 + rng.IntN(6), Age: time.Duration(rng.IntN(3600)) * time.Second, Restarts: rng.IntN(3),
				Capabilities: lockstep.Capabilities{Resizable: true, Preemptible: true},
			}
			if n := rng.IntN(len(nodes)); i < len(nodes) && rng.IntN(2) == 0 && nodes[n] > 0 {
				c.Held = []Spot{{i, 1}}
			}
			jobs = append(jobs, c)
		}
		s, err := NewSearch(SearchConfig{Seed: rng.Uint64()})
		require.NoError(t, err)
		s.run(nodes, jobs)
		got := int64(0)
		for i := range s.jobs {
			got += s.jobs[i].cost
			s.drop(s.jobs[i].cur)
		}
		want := s.cheapest(0)
		require.GreaterOrEqual(t, got, want)
		ratio := float64(got) / float64(want)
		if got == want {
			best++
		}
		worst, sum = max(worst, ratio), sum+ratio
	}
	t.Logf("best in %d of %d, cost %.4f of the best at worst, %.4f on average", best, rounds, worst, sum/float64(rounds))
	require.Less(t, worst, 1.5)
	require.Less(t, sum/float64(rounds), 1.01)
}
