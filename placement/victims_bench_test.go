package placement

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// packed returns a cluster so full that no gang of 64 whole nodes finds a block,
// and every job as a candidate. Costs are spread over an hour of work, Min is half. The
// jobs are of 1 to most whole nodes, or where most is 0 of one node and some devices.
func packed(tb testing.TB, nodes, tiers, most int) (*State, *lockstep.Candidates) {
	c := newChurn(tb, nodes)
	if most < 64 {
		for _, id := range c.s.Jobs() {
			require.NoError(tb, c.s.Release(id))
		}
	}
	for misses, n := 0, 0; misses < nodes/20+100; n++ {
		g := gangOf(lockstep.JobID(fmt.Sprintf("p-%06d", n)), 1, 1<<c.rng.IntN(4))
		if most > 0 {
			g = gangOf(g.ID, 1<<c.rng.IntN(bits.Len(uint(most))), 8)
		}
		g.Required = "block"
		if g.Roles[0].Min <= 16 {
			g.Required = "rack"
		}
		v, err := c.s.Fit(&lockstep.Request{Gang: g}, &c.plan)
		require.NoError(tb, err)
		if !v.Feasible {
			misses++
			continue
		}
		require.NoError(tb, c.s.Apply(&c.plan))
	}
	u := c.s.Usage()
	tb.Logf("%d%% full", 100-100*u.Free/u.Devices)
	rng := rand.New(rand.NewPCG(3, uint64(nodes)))
	out := &lockstep.Candidates{}
	for _, id := range c.s.Jobs() {
		n := len(c.s.jobs[c.s.byID[id]].seats)
		devices := lockstep.MilliGPU(milliOf(&c.s.jobs[c.s.byID[id]].gang.Roles[0].Demand) * int64(n))
		o := lockstep.Candidate{Job: id, Tier: int32(rng.IntN(tiers)), Cost: lockstep.EvictionCost{Lost: time.Duration(rng.IntN(3600)) * time.Second, Devices: devices}}
		if rng.IntN(2) == 0 && n > 1 {
			o.Min, o.Shrink = []int{(n + 1) / 2}, o.Cost
			o.Shrink.Lost /= 2
		}
		out.Jobs = append(out.Jobs, o)
	}
	return c.s, out
}

func BenchmarkVictims(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, of := range []struct{ tiers, most int }{{1, 64}, {3, 64}, {1, 16}, {1, 1}, {1, 0}} {
			b.Run(fmt.Sprintf("nodes=%d/gpus=8/members=64/tiers=%d/jobs=%d", nodes, of.tiers, of.most), func(b *testing.B) {
				s, c := packed(b, nodes, of.tiers, of.most)
				g := gangOf("big", 64, 8)
				g.Required = "block"
				r := &lockstep.Request{Gang: g}
				var out lockstep.Preempted
				_, err := s.Victims(r, c, &out)
				require.NoError(b, err)
				b.ReportAllocs()
				var took []time.Duration
				for b.Loop() {
					start := b.Elapsed()
					v, err := s.Victims(r, c, &out)
					took = append(took, b.Elapsed()-start)
					if err != nil || !v.Feasible || len(out.Evictions) == 0 {
						b.Fatal(v, err)
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
				b.ReportMetric(float64(len(c.Jobs)), "candidates")
				b.ReportMetric(float64(len(out.Evictions)), "evictions")
				b.ReportMetric(float64(boolInt(out.Exact)), "exact")
			})
		}
	}
}
