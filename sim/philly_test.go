package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

func TestPhilly(t *testing.T) {
	tr := philly(t, "philly_sim3d_20171011.csv.gz")
	weights := phillyWeights(t)
	tree := cluster(t, 24)
	for _, rule := range scheduler.Rules() {
		s := newScheduler(t, scheduler.Config{Rule: rule, Weights: weights, Tree: tree})
		began := time.Now()
		r, err := sim.Run(sim.Config{Tree: tree, Weights: weights}, jobsOf(tr), s)
		require.NoError(t, err)
		d := time.Since(began)
		fmt.Printf("%-7q done %d/%d JCT %v p50 %v p99 %v wait %v mk %v util %.3f frag %.3f maxlag %.0f rho %.3f/%.3f preempt %d resumes %d ext %d ovh %.1fh ev %d act %d steps %d in %v = %.0f/s\n", rule, r.Finished, r.Jobs, r.JCT.Mean, r.JCT.P50, r.JCT.P99, r.Wait.Mean, r.Makespan, r.Utilization, r.Fragmentation, r.MaxLag.GPUSeconds(), r.MinRho, r.P1Rho, r.Preemptions, r.Resumes, r.Extensions, r.Overhead().GPUSeconds()/3600, r.Events, r.Actions, r.Steps, d, float64(r.Events+r.Actions)/d.Seconds())
		require.Equal(t, r.Service, r.Held)
	}
}
