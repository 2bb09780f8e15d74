package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/integrations/slurm"
)

// tool builds the command for a test, unless LOCKSTEP_SLURM names one: Slurm may be somewhere without a compiler.
func tool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("LOCKSTEP_SLURM"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "lockstep-slurm")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/lockstep-slurm").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// plan is what the command prints as JSON.
type plan struct {
	Jobs []struct {
		ID       uint32
		Job      string
		Turn     int
		Reason   string
		Current  uint32
		Priority uint32
		Start    time.Time
	}
	Faults []string
}

func (c *cluster) plan(path string, args ...string) plan {
	c.t.Helper()
	args = append([]string{"-json", "-topology", c.dir + "/topology.conf"}, args...)
	cmd := exec.Command(path, args...)
	cmd.Env = c.env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(c.t, cmd.Run(), said.String())
	c.t.Log(strings.TrimSpace(said.String()))
	var p plan
	require.NoError(c.t, json.Unmarshal(out.Bytes(), &p))
	require.Empty(c.t, p.Faults)
	return p
}

// priorities asks Slurm, of arrays as a whole, or with --array of each task.
func (c *cluster) priorities(more ...string) map[string]uint32 {
	out := map[string]uint32{}
	for line := range strings.Lines(c.run("squeue", append(more, "--noheader", "--states=PENDING", "--format=%i %Q")...)) {
		id, p, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(p, 10, 32)
		require.NoError(c.t, err)
		out[id] = uint32(n)
	}
	return out
}

// TestSlurmStartsJobsInTheOrderThatWasPlanned plans a queue, sees that a dry run changes nothing, applies the order, and
// watches the real slurmctld start the jobs: each takes all devices, so they start one by one.
func TestSlurmStartsJobsInTheOrderThatWasPlanned(t *testing.T) {
	c := start(t, 4)
	path := tool(t)
	all := []string{"--nodes=4", "--gres=gpu:a100:8"}
	blocker := c.submit("300", append(all, "--account=busy", "--time=10", "--job-name=blocker")...)
	c.until("blocker", 20*time.Second, func() bool {
		return strings.Contains(c.run("squeue", "--noheader", "--job="+blocker, "--format=%T"), "RUNNING")
	})
	// Submitted so that neither the order of submission nor its reverse is the order of limits.
	for _, j := range []struct{ account, minutes string }{{"busy", "2"}, {"ann", "30"}, {"bob", "20"}, {"ann", "10"}, {"bob", "40"}} {
		c.submit("1", append(all, "--account="+j.account, "--time="+j.minutes, "--job-name=turn")...)
	}
	held := c.submit("1", "--gres=gpu:1", "--hold", "--account=ann")
	c.until("priorities", 20*time.Second, func() bool { return len(c.priorities()) == 6 })

	before := c.priorities()
	p := c.plan(path)
	require.Equal(t, before, c.priorities(), "a dry run changes nothing")
	again := c.plan(path)
	require.Equal(t, len(p.Jobs), len(again.Jobs))
	var want []string
	for i, j := range p.Jobs {
		require.Equal(t, j.Job, again.Jobs[i].Job, "plans repeat")
		if j.Turn > 0 {
			want = append(want, j.Job)
		}
	}
	require.Len(t, want, 5)
	require.False(t, slices.IsSorted(want), "the order is not that of submission, or the test shows nothing: %v", want)
	t.Log("planned order:", want)

	p = c.plan(path, "-apply", "-rate", "100")
	after := c.priorities()
	require.Equal(t, before[held], after[held], "a held job stays held")
	for i, j := range p.Jobs {
		if j.Turn == 0 {
			continue
		}
		require.Equal(t, j.Priority, after[j.Job])
		if i > 0 {
			require.Greater(t, after[p.Jobs[i-1].Job], after[j.Job])
		}
	}
	for _, j := range c.plan(path).Jobs {
		if j.Turn > 0 {
			require.Equal(t, j.Current, j.Priority, "nothing is left to change")
		}
	}

	c.run("scancel", blocker)
	var got []string
	c.until("all jobs", 90*time.Second, func() bool {
		got = c.started(t, want)
		return len(got) == len(want)
	})
	require.Equal(t, want, got)
}

// started returns those of ids that have started, in the order in which they did.
func (c *cluster) started(t *testing.T, ids []string) []string {
	type one struct {
		id string
		at time.Time
	}
	var all []one
	for line := range strings.Lines(c.run("squeue", "--noheader", "--states=all", "--format=%i %T %S")) {
		f := strings.Fields(line)
		if len(f) != 3 || !slices.Contains(ids, f[0]) || f[1] == "PENDING" {
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05", f[2])
		require.NoError(t, err)
		all = append(all, one{f[0], at})
	}
	slices.SortStableFunc(all, func(a, b one) int { return a.at.Compare(b.at) })
	var out []string
	for i, o := range all {
		if i > 0 {
			require.True(t, o.at.After(all[i-1].at), "each takes all devices, so no two start in one second")
		}
		out = append(out, o.id)
	}
	return out
}

// TestApplyLeavesAloneWhatChangedMeanwhile holds, lets go and ends jobs between plan and apply.
func TestApplyLeavesAloneWhatChangedMeanwhile(t *testing.T) {
	c := start(t, 2)
	t.Setenv("SLURM_CONF", c.dir+"/slurm.conf")
	blocker := c.submit("300", "--nodes=2", "--gres=gpu:8", "--time=10")
	c.until("blocker", 20*time.Second, func() bool {
		return strings.Contains(c.run("squeue", "--noheader", "--job="+blocker, "--format=%T"), "RUNNING")
	})
	var ids []string
	for range 3 {
		ids = append(ids, c.submit("300", "--gres=gpu:8", "--time=5"))
	}
	array := c.submit("300", "--gres=gpu:8", "--time=5", "--array=0-3%2")
	c.until("priorities", 20*time.Second, func() bool { return len(c.priorities()) == 4 })
	client := slurm.Client{Rate: 1000}
	v, err := client.View(context.Background())
	require.NoError(t, err)
	r, err := slurm.Plan(v, slurm.Config{Rule: slurm.FIFO})
	require.NoError(t, err)
	require.Len(t, r.Changes(), 4)
	c.run("scontrol", "hold", ids[0])
	c.run("scancel", ids[1])
	applied, err := client.Apply(context.Background(), r.Changes())
	require.NoError(t, err)
	require.Len(t, applied, 4)
	for _, a := range applied {
		require.Equal(t, a.Change.Job == ids[2] || a.Change.Job == array, a.Done, "%+v", a)
	}
	now := c.priorities()
	require.Zero(t, now[ids[0]], "held")
	require.EqualValues(t, 4, len(r.Rows))
	require.Greater(t, now[ids[2]], uint32(1_000_000_000))
	require.Greater(t, now[array+"_[0-3%2]"], uint32(1_000_000_000))

	// A job that is no more is refused by Slurm or seen before; either way the rest goes on.
	bad := []slurm.Change{{ID: 4000000, Job: "4000000", To: 5}, {ID: number(t, ids[2]), Job: ids[2], To: 1_500_000_000}}
	applied, err = client.Apply(context.Background(), bad)
	require.NoError(t, err)
	require.False(t, applied[0].Done)
	require.True(t, applied[1].Done)
	require.EqualValues(t, 1_500_000_000, c.priorities()[ids[2]])

	// To hold and release gives a job back to Slurm's own priorities, as README.md says.
	c.run("scontrol", "hold", ids[2])
	c.run("scontrol", "release", ids[2])
	c.until("priority", 20*time.Second, func() bool {
		p := c.priorities()[ids[2]]
		return p > 0 && p < 1000
	})
}

func number(t *testing.T, id string) uint32 {
	n, err := strconv.ParseUint(id, 10, 32)
	require.NoError(t, err)
	return uint32(n)
}

// TestPartsOfAnArrayGetPrioritiesOfTheirOwn splits a task off an array, as a change or a requeue does.
func TestPartsOfAnArrayGetPrioritiesOfTheirOwn(t *testing.T) {
	c := start(t, 2)
	t.Setenv("SLURM_CONF", c.dir+"/slurm.conf")
	blocker := c.submit("300", "--nodes=2", "--gres=gpu:8", "--time=10")
	c.until("blocker", 20*time.Second, func() bool {
		return strings.Contains(c.run("squeue", "--noheader", "--job="+blocker, "--format=%T"), "RUNNING")
	})
	array := c.submit("300", "--gres=gpu:8", "--time=5", "--array=0-5")
	c.until("priorities", 20*time.Second, func() bool { return len(c.priorities()) == 1 })
	c.run("scontrol", "update", "job="+array+"_2", "priority=77")
	require.EqualValues(t, 77, c.priorities("--array")[array+"_2"])
	client := slurm.Client{Rate: 1000}
	v, err := client.View(context.Background())
	require.NoError(t, err)
	r, err := slurm.Plan(v, slurm.Config{Rule: slurm.FIFO})
	require.NoError(t, err)
	require.Len(t, r.Rows, 2)
	require.Len(t, r.Changes(), 2)
	applied, err := client.Apply(context.Background(), r.Changes())
	require.NoError(t, err)
	for _, a := range applied {
		require.True(t, a.Done, "%+v", a)
	}
	one, rest := r.Rows[0], r.Rows[1]
	if one.Tasks != 1 {
		one, rest = rest, one
	}
	require.Equal(t, 5, rest.Tasks)
	got := c.priorities("--array")
	require.Len(t, got, 6)
	for task := range 6 {
		want := rest.Priority
		if task == 2 {
			want = one.Priority
		}
		require.Equal(t, want, got[array+"_"+strconv.Itoa(task)], task)
	}
	again, err := client.View(context.Background())
	require.NoError(t, err)
	require.Len(t, again.Jobs, len(v.Jobs), "the rest of the array is still one")
	r, err = slurm.Plan(again, slurm.Config{Rule: slurm.FIFO})
	require.NoError(t, err)
	require.Empty(t, r.Changes())
}

// TestLongArraysAreReadInFull: by itself Slurm cuts the list of tasks after 64 bytes, and variables may hide jobs.
func TestLongArraysAreReadInFull(t *testing.T) {
	c := start(t, 2)
	t.Setenv("SLURM_CONF", c.dir+"/slurm.conf")
	t.Setenv("SQUEUE_STATES", "RUNNING")
	t.Setenv("SQUEUE_USERS", "nobody")
	blocker := c.submit("300", "--nodes=2", "--gres=gpu:8", "--time=10")
	c.until("blocker", 20*time.Second, func() bool {
		return strings.Contains(c.run("squeue", "--noheader", "--job="+blocker, "--format=%T"), "RUNNING")
	})
	var tasks []string
	for i := range 31 {
		tasks = append(tasks, strconv.Itoa(i*i)) // no step that would make it short
	}
	array := c.submit("300", "--gres=gpu:8", "--time=5", "--array="+strings.Join(tasks, ","))
	c.until("priorities", 20*time.Second, func() bool { return len(c.priorities("--array")) == len(tasks) })
	c.run("scontrol", "update", "job="+array+"_4", "priority=77")
	client := slurm.Client{Rate: 1000}
	v, err := client.View(context.Background())
	require.NoError(t, err)
	require.Len(t, v.Jobs, 3, "the one that runs, the task that was split off, and the rest")
	r, err := slurm.Plan(v, slurm.Config{Rule: slurm.FIFO})
	require.NoError(t, err)
	require.Len(t, r.Rows, 2)
	require.Equal(t, len(tasks), r.Rows[0].Tasks+r.Rows[1].Tasks)
	applied, err := client.Apply(context.Background(), r.Changes())
	require.NoError(t, err)
	require.Len(t, applied, 2)
	for _, a := range applied {
		require.True(t, a.Done, "%+v", a)
	}
	got := c.priorities("--array")
	for i := range r.Rows {
		n := 0
		for _, p := range got { // a count, so order cannot matter
			if p == r.Rows[i].Priority {
				n++
			}
		}
		require.Equal(t, r.Rows[i].Tasks, n, "each part has its own")
	}
}
