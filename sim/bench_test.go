package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// BenchmarkRun simulates a trace under LTGF. The figure job-events/s counts the
// events that the scheduler was told and the actions that it decided.
func BenchmarkRun(b *testing.B) {
	b.Run("trace=synthetic/nodes=24/gpus=8", func(b *testing.B) {
		benchmark(b, synthetic(b, trace.SyntheticConfig{}), 24)
	})
	b.Run("trace=philly2w/nodes=96/gpus=8", func(b *testing.B) {
		benchmark(b, philly(b, "philly_2w_20171016.csv.gz"), 96)
	})
	b.Run("trace=philly3d/nodes=24/gpus=8", func(b *testing.B) {
		benchmark(b, philly(b, "philly_sim3d_20171011.csv.gz"), 24)
	})
}

func benchmark(b *testing.B, tr *trace.Trace, nodes int) {
	tree := cluster(b, nodes)
	happened, jobs := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		all := jobsOf(tr)
		s := newScheduler(b, scheduler.Config{Tree: tree})
		b.StartTimer()
		r, err := sim.Run(sim.Config{Tree: tree}, all, s)
		require.NoError(b, err)
		require.Equal(b, r.Jobs, r.Finished)
		happened += r.Events + r.Actions
		jobs += r.Jobs
	}
	b.ReportMetric(float64(happened)/b.Elapsed().Seconds(), "job-events/s")
	b.ReportMetric(float64(jobs)/b.Elapsed().Seconds(), "jobs/s")
}
