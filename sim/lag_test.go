package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

// TestLagStaysWithinTheBound runs random jobs of one to eight devices under LTGF and
// holds the greatest lag of any tenant against the constant that package scheduler
// states: tenants × capacity × (Horizon + 3 × (Term + Round + Save)), and what was
// wasted: what could have been held and was not. It also says how near the lag comes
// to one tenant's part of that on more than one node.
func TestLagStaysWithinTheBound(t *testing.T) {
	runs, nearest := 60, 0.0
	if testing.Short() {
		runs = 8
	}
	for seed := range runs {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		nodes, tenants := 1+r.IntN(4), 2+r.IntN(5)
		capacity := lockstep.MilliGPU(nodes*8) * lockstep.WholeGPU
		term := time.Duration(5+r.IntN(25)) * time.Minute
		weights := map[lockstep.TenantID]int64{}
		for i := range tenants {
			weights[lockstep.TenantID(fmt.Sprint("t", i))] = int64(1 + r.IntN(5))
		}
		jobs := make([]sim.Job, 150)
		for i := range jobs {
			g := &lockstep.Gang{
				ID: lockstep.JobID(fmt.Sprint("j", i)), Tenant: lockstep.TenantID(fmt.Sprint("t", min(r.IntN(tenants), r.IntN(tenants)))),
				Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1 << r.IntN(4)}}},
				Capabilities: lockstep.Capabilities{Preemptible: true, Save: save, Restore: restore},
			}
			duration := time.Duration(r.ExpFloat64()*float64(time.Hour)) + time.Second
			g.Walltime = duration
			jobs[i] = sim.Job{Gang: g, Submit: time.Duration(r.IntN(4)) * time.Duration(r.IntN(3600)) * time.Second, Duration: duration}
		}
		tree := cluster(t, nodes)
		s := newScheduler(t, scheduler.Config{Tree: tree, Weights: weights, Term: term})
		got, err := sim.Run(sim.Config{Tree: tree, Weights: weights}, jobs, s)
		require.NoError(t, err)
		require.Zero(t, got.Unfinished)
		one := lockstep.GPUTimeOf(capacity, term+3*(2*term+save))
		bound := got.Wanted.Sub(got.Service)
		for range weights {
			bound = bound.Add(one)
		}
		require.LessOrEqual(t, got.MaxLag.Cmp(bound), 0, "seed %d: a lag of %s, beyond %s", seed, got.MaxLag, bound)
		if nodes == 1 {
			continue // one wide gang empties the cluster: most of the lag is waste
		}
		nearest = max(nearest, got.MaxLag.GPUSeconds()/one.GPUSeconds())
	}
	require.Positive(t, nearest)
	t.Logf("the greatest lag was %.2f of one tenant's part of the bound", nearest)
}
