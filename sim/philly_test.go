package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

// row is one line of the table of policies.
type row struct {
	name string
	*sim.Result
}

// table prints results as the report's table has them.
func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %9s %9s %9s %9s %6s %6s %12s %6s %6s %9s %9s %9s %8s\n", "policy", "JCT s", "p50", "p99", "wait s", "util", "frag", "max lag", "rho p1", "min", "preempt", "resumes", "extended", "lost h")
	for _, r := range rows {
		fmt.Fprintf(&b, "%-22s %9.0f %9.0f %9.0f %9.0f %6.3f %6.3f %12.0f %6.3f %6.3f %9d %9d %9d %8.1f\n", r.name,
			r.JCT.Mean.Seconds(), r.JCT.P50.Seconds(), r.JCT.P99.Seconds(), r.Wait.Mean.Seconds(), r.Utilization, r.Fragmentation,
			r.MaxLag.GPUSeconds(), r.P1Rho, r.MinRho, r.Preemptions, r.Resumes, r.Extensions, r.Overhead().GPUSeconds()/3600)
	}
	return b.String()
}

// TestLTGFIsFairestOnPhillyAtNoCostInJCT replays three days of Philly on 24×8
// devices, with true walltimes, and 5 s for each checkpoint and 20 s for each
// resume in every run.
func TestLTGFIsFairestOnPhillyAtNoCostInJCT(t *testing.T) {
	tr, weights := philly(t, "philly_sim3d_20171011.csv.gz"), phillyWeights(t)
	tree := cluster(t, 24)
	var rows []row
	run := func(name string, cfg scheduler.Config, unconditional bool) *sim.Result {
		cfg.Tree, cfg.Weights = tree, weights
		r, err := sim.Run(sim.Config{Tree: tree, Weights: weights, Unconditional: unconditional}, jobsOf(tr), newScheduler(t, cfg))
		require.NoError(t, err, name)
		require.Equal(t, 7022, r.Finished, name)
		require.Equal(t, r.Held, r.Service, name)
		rows = append(rows, row{name, r})
		return r
	}
	ltgf := run("LTGF leases", scheduler.Config{}, false)
	fifo := run("FIFO + EASY", scheduler.Config{Rule: scheduler.FIFO}, false)
	others := []*sim.Result{
		fifo,
		run("SRTF", scheduler.Config{Rule: scheduler.SRTF}, false),
		run("2D-LAS", scheduler.Config{Rule: scheduler.LAS}, false),
		run("static quota", scheduler.Config{Rule: scheduler.Static}, false),
	}
	always := run("LTGF, always released", scheduler.Config{}, true)
	run("LTGF, FIFO inside", scheduler.Config{Inside: scheduler.First}, false)
	run("LTGF, most owed inside", scheduler.Config{Inside: scheduler.MostOwed}, false)
	fmt.Print(table(rows))

	for _, r := range others {
		require.Negative(t, ltgf.MaxLag.Cmp(r.MaxLag))
	}
	require.LessOrEqual(t, ltgf.JCT.Mean*100, fifo.JCT.Mean*105)
	require.Less(t, ltgf.Resumes, always.Resumes)
	require.Negative(t, ltgf.Overhead().Cmp(always.Overhead()))
}
