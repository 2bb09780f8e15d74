package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockstep-gpu/lockstep"
)

// fake makes a folder of commands that are shell scripts.
func fake(t *testing.T, scripts map[string]string) *Client {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts { // each is a file of its own, so order cannot matter
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ndir='"+dir+"'\n"+body+"\n"), 0o755))
	}
	return &Client{Bin: dir, Rate: 1000}
}

const twoJobs = `echo '{"jobs":[{"job_id":1,"job_state":"PENDING","priority":5},{"job_id":2,"job_state":"RUNNING","nodes":"n1","priority":5},{"job_id":3,"job_state":"PENDING","priority":0},{"job_id":4,"job_state":"PENDING","priority":9}]}'`

func TestApplySetsWhatStillSuits(t *testing.T) {
	c := fake(t, map[string]string{
		"squeue":   twoJobs,
		"scontrol": `echo "$@" >> "$dir/log"; case "$2" in job=4) echo "Access/permission denied for job 4" >&2; exit 1;; esac`,
	})
	core, logs := observer.New(zap.DebugLevel)
	c.Logger = zap.New(core)
	applied, err := c.Apply(context.Background(), []Change{{1, "1", 0, 10}, {2, "2", 0, 9}, {3, "3", 0, 8}, {4, "4", 0, 7}, {5, "5", 0, 6}, {1, "1", 0, 11}})
	require.NoError(t, err)
	require.Len(t, applied, 6)
	for i, want := range []bool{true, false, false, false, false, true} {
		require.Equal(t, want, applied[i].Done, i)
		require.Equal(t, !want, applied[i].Why != nil, i)
	}
	for _, i := range []int{1, 2, 4} {
		require.ErrorIs(t, applied[i].Why, lockstep.ErrStale)
	}
	var failed *CommandError
	require.ErrorAs(t, applied[3].Why, &failed)
	require.Equal(t, "Access/permission denied for job 4", failed.Said)
	require.ErrorContains(t, failed, "scontrol update job=4 priority=7: exit status 1")
	said, err := os.ReadFile(filepath.Join(c.Bin, "log"))
	require.NoError(t, err)
	require.Equal(t, "update job=1 priority=10\nupdate job=4 priority=7\nupdate job=1 priority=11\n", string(said))
	require.Equal(t, 6, logs.Len())

	applied, err = c.Apply(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, applied)
}

// TestApplyLooksAgain: a job that is held while others get their priorities stays held.
func TestApplyLooksAgain(t *testing.T) {
	c := fake(t, map[string]string{
		"squeue":   `if [ -e "$dir/log" ]; then p=0; else p=5; fi; echo '{"jobs":[{"job_id":1,"job_state":"PENDING","priority":5},{"job_id":2,"job_state":"PENDING","priority":'$p'}]}'`,
		"scontrol": `echo "$@" >> "$dir/log"`,
	})
	changes := []Change{{1, "1", 5, 10}, {2, "2", 5, 9}}
	applied, err := c.Apply(context.Background(), changes)
	require.NoError(t, err)
	require.True(t, applied[1].Done, "seen a moment ago")
	require.NoError(t, os.Remove(filepath.Join(c.Bin, "log")))
	c.look = 1
	applied, err = c.Apply(context.Background(), changes)
	require.NoError(t, err)
	require.True(t, applied[0].Done)
	require.ErrorIs(t, applied[1].Why, lockstep.ErrStale)
}

func TestApplyKeepsToItsRate(t *testing.T) {
	c := fake(t, map[string]string{"squeue": twoJobs, "scontrol": `exit 0`})
	c.Rate = 20
	began := time.Now()
	_, err := c.Apply(context.Background(), make([]Change, 0))
	require.NoError(t, err)
	changes := []Change{{1, "1", 0, 1}, {1, "1", 0, 2}, {1, "1", 0, 3}, {1, "1", 0, 4}}
	applied, err := c.Apply(context.Background(), changes)
	require.NoError(t, err)
	require.Len(t, applied, 4)
	require.GreaterOrEqual(t, time.Since(began), 140*time.Millisecond)
}

func TestApplyStopsWithItsContext(t *testing.T) {
	before := runtime.NumGoroutine()
	c := fake(t, map[string]string{"squeue": twoJobs, "scontrol": `exec sleep 60`})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	applied, err := c.Apply(ctx, []Change{{1, "1", 0, 1}, {4, "4", 0, 2}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, len(applied), 2)
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "no goroutine is left")
}

func TestViewAsksWhoKnows(t *testing.T) {
	jobs, old := recording(t, "squeue-22.05.json"), recording(t, "sinfo-22.05.json")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "jobs"), jobs, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nodes"), old, 0o600))
	cat := func(name string) string { return "exec cat " + filepath.Join(dir, name) }
	for name, scripts := range map[string]map[string]string{ // each by itself, so order cannot matter
		"scontrol knows JSON":         {"squeue": cat("jobs"), "scontrol": cat("nodes"), "sinfo": "exit 1"},
		"scontrol knows no JSON":      {"squeue": cat("jobs"), "scontrol": `echo "unrecognized option --json" >&2; exit 1`, "sinfo": cat("nodes")},
		"scontrol says something":     {"squeue": cat("jobs"), "scontrol": "echo NodeName=n1", "sinfo": cat("nodes")},
		"neither knows":               {"squeue": cat("jobs"), "scontrol": "exit 1", "sinfo": "echo no controller >&2; exit 1"},
		"squeue finds no controller":  {"squeue": "echo Unable to contact slurm controller >&2; exit 1", "scontrol": cat("nodes"), "sinfo": cat("nodes")},
		"squeue prints something":     {"squeue": "echo JOBID PARTITION", "scontrol": cat("nodes"), "sinfo": cat("nodes")},
		"squeue is not there at all":  {"scontrol": cat("nodes"), "sinfo": cat("nodes")},
		"sinfo prints something else": {"squeue": cat("jobs"), "scontrol": "exit 1", "sinfo": "echo PARTITION"},
	} {
		v, err := fake(t, scripts).View(context.Background())
		if strings.Contains(name, "scontrol") {
			require.NoError(t, err, name)
			require.Len(t, v.Nodes, 4)
			require.Len(t, v.Jobs, 19)
			continue
		}
		require.Error(t, err, name)
		var failed *CommandError
		require.True(t, errors.As(err, &failed) || errors.Is(err, lockstep.ErrInvalid), name)
	}
}

func TestCommandsThatHangAreEnded(t *testing.T) {
	c := fake(t, map[string]string{"squeue": "exec sleep 60"})
	c.Timeout = 100 * time.Millisecond
	_, _, err := c.Jobs(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTopologyIsReadInBothForms(t *testing.T) {
	topo, err := ReadTopology("topology.conf", strings.NewReader("SwitchName=a Nodes=n1\n"))
	require.NoError(t, err)
	require.Len(t, topo.Switches, 1)
	topo, err = ReadTopology("topology.yaml", strings.NewReader("- topology: x\n  cluster_default: false\n  flat: true\n- topology: y\n  cluster_default: true\n  flat: true\n"))
	require.NoError(t, err)
	require.Equal(t, "y", topo.Name)
	topo, err = ReadTopology("topology.yaml", strings.NewReader("- topology: x\n  cluster_default: false\n  flat: true\n"))
	require.NoError(t, err)
	require.Equal(t, "x", topo.Name)
	_, err = ReadTopology("topology.yaml", strings.NewReader("nothing"))
	require.Error(t, err)
	_, err = ReadTopology("topology.conf", strings.NewReader("SwitchName=a Nodes=n[1\n"))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}
