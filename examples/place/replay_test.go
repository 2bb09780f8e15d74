package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/gang"
)

// play replays CSV rows and returns the replayer after its checks passed.
func play(t *testing.T, cfg replayConfig, rows string) (*replayer, *report) {
	t.Helper()
	jobs, err := readJobs(strings.NewReader(header+rows), 0)
	require.NoError(t, err)
	r, err := newReplayer(cfg)
	require.NoError(t, err)
	require.NoError(t, r.run(jobs))
	rep := r.report(time.Second)
	require.Empty(t, rep.Faults)
	return r, rep
}

// waits returns how long each job waited, in seconds.
func (r *replayer) waits() map[lockstep.JobID]float64 {
	out := make(map[lockstep.JobID]float64)
	for id, j := range r.jobs { // order: into another map
		if j.ran {
			out[id] = (j.start - j.Submit).Seconds()
		}
	}
	return out
}

// Two nodes of four devices. a holds the first until 10; b wants both and so
// waits for a. c fits beside a and is over at 7, before b can start, so it may
// pass b. d would run from 7 to 16 and delay b. e, from 7 to 8, does not.
const fiveJobs = "a,t,0,10,4,\nb,t,1,20,8,\nc,t,2,5,4,\nd,t,3,9,2,\ne,t,4,1,1,\n"

func TestReplayWaitsAreThoseWorkedOutByHand(t *testing.T) {
	cluster := clusterSpec{Nodes: 2, GPUs: 4}
	for _, tc := range []struct {
		name     string
		backfill gang.Backfill
		want     map[lockstep.JobID]float64
	}{
		{"easy", gang.EASY, map[lockstep.JobID]float64{"a": 0, "b": 9, "c": 0, "d": 27, "e": 3}},
		{"conservative", gang.Conservative, map[lockstep.JobID]float64{"a": 0, "b": 9, "c": 0, "d": 27, "e": 3}},
		// Nobody passes b, which ends at 30; then c, d and e fit side by side.
		{"none", gang.Strict, map[lockstep.JobID]float64{"a": 0, "b": 9, "c": 28, "d": 27, "e": 26}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, rep := play(t, replayConfig{Cluster: cluster, Backfill: tc.backfill}, fiveJobs)
			require.Equal(t, tc.want, r.waits())
			require.Equal(t, 39.0, rep.Makespan)
			require.Equal(t, 239.0, rep.Service, "4×10 + 8×20 + 4×5 + 2×9 + 1")
			require.InDelta(t, 239.0/(8*39), rep.Utilization, 1e-12)
		})
	}
}

func TestReplayWithoutWalltimesStillRunsEveryJobOnce(t *testing.T) {
	_, rep := play(t, replayConfig{Cluster: clusterSpec{Nodes: 2, GPUs: 4}, HideWalltime: true}, fiveJobs)
	require.Equal(t, 5, rep.Started)
	require.Equal(t, 239.0, rep.Service)
}

func TestReplayRejectsWhatNoClusterOfThisSizeHolds(t *testing.T) {
	r, rep := play(t, replayConfig{Cluster: clusterSpec{Nodes: 2, GPUs: 4}}, "a,t,0,10,9,\nb,t,1,5,8,\n")
	require.Equal(t, 1, rep.Rejected)
	require.Equal(t, map[lockstep.JobID]float64{"b": 0}, r.waits())
}

func TestGangOf(t *testing.T) {
	for gpus, want := range map[int][][2]int{ // order: each case stands alone
		1:  {{1, 1}},
		7:  {{1, 7}},
		8:  {{1, 8}},
		9:  {{1, 8}, {1, 1}},
		20: {{2, 8}, {1, 4}},
		32: {{4, 8}},
	} {
		g := gangOf(job{ID: "j", GPUs: gpus}, 8)
		require.NoError(t, g.Validate())
		require.EqualValues(t, gpus*1000, g.GPUs(nil))
		var got [][2]int
		for i := range g.Roles {
			got = append(got, [2]int{g.Roles[i].Min, g.Roles[i].Demand.GPUs})
		}
		require.Equal(t, want, got)
	}
}

// sharedTrace finds a trace of the collection that developers keep beside the
// repository; LOCKSTEP_SHARED names another place.
func sharedTrace(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("LOCKSTEP_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared") // beside the repository
		if _, err := os.Stat(filepath.Join("..", "..", "shared")); err == nil {
			dir = filepath.Join("..", "..", "shared") // or in it
		}
	}
	path := filepath.Join(dir, "traces", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared trace is not here (set LOCKSTEP_SHARED): %v", err)
	}
	return path
}

func TestReplayOfPhilly(t *testing.T) {
	path := sharedTrace(t, "philly_sim3d_20171011.csv.gz")
	limit, count := 0, 7022
	if testing.Short() {
		limit, count = 1500, 1500
	}
	jobs, err := readJobsFile(path, limit)
	require.NoError(t, err)
	require.Len(t, jobs, count)
	r, err := newReplayer(replayConfig{Cluster: clusterSpec{Nodes: 24, Racks: 3, GPUs: 8}})
	require.NoError(t, err)
	require.NoError(t, r.run(jobs))
	rep := r.report(time.Second)
	require.Empty(t, rep.Faults)
	require.Equal(t, count, rep.Started)
	require.Zero(t, rep.Rejected)
	require.NoError(t, rep.print(io.Discard))
}
