package sim_test

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

// save and restore are what every run is charged.
const (
	save    = 5 * time.Second
	restore = 20 * time.Second
)

// cluster is nodes of eight devices each.
func cluster(t testing.TB, nodes int) *topology.Tree {
	t.Helper()
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{nodes}, Shape: shape})
	require.NoError(t, err)
	return tree
}

// jobsOf are the jobs of a trace, which know their durations and can be stopped.
func jobsOf(tr *trace.Trace) []sim.Job {
	jobs := make([]sim.Job, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		g := j.Gang(8)
		g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: save, Restore: restore}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	return jobs
}

func synthetic(t testing.TB, cfg trace.SyntheticConfig) *trace.Trace {
	t.Helper()
	tr, err := trace.Synthetic(cfg)
	require.NoError(t, err)
	return tr
}

func newScheduler(t testing.TB, cfg scheduler.Config) *scheduler.Scheduler {
	t.Helper()
	s, err := scheduler.New(cfg)
	require.NoError(t, err)
	return s
}

// shared returns a file of the shared traces, or skips the test.
func shared(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("LOCKSTEP_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared")
	}
	path := filepath.Join(dir, "traces", name)
	if _, err := os.Stat(path); err != nil {
		fmt.Printf("skipping %s: no %s; set LOCKSTEP_SHARED\n", t.Name(), path)
		t.Skipf("no %s", path)
	}
	return path
}

func philly(t testing.TB, name string) *trace.Trace {
	t.Helper()
	f, err := os.Open(shared(t, name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	tr, err := trace.ReadCSV(z)
	require.NoError(t, err)
	return tr
}

func phillyWeights(t testing.TB) map[lockstep.TenantID]int64 {
	t.Helper()
	f, err := os.Open(shared(t, "philly_weights.csv.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	weights := make(map[lockstep.TenantID]int64)
	for _, row := range rows[1:] {
		w, err := strconv.ParseInt(row[1], 10, 64)
		require.NoError(t, err)
		weights[lockstep.TenantID(row[0])] = w
	}
	return weights
}
