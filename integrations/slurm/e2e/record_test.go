package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/slurm"
)

var update = flag.Bool("update", false, "write what Slurm prints to ../testdata")

// TestReadersTakeWhatSlurmPrints submits a job of each kind, reads what the real Slurm says of them and checks that it
// means what was asked for.
func TestReadersTakeWhatSlurmPrints(t *testing.T) {
	c := start(t, 4)
	t.Setenv("SLURM_CONF", c.dir+"/slurm.conf")
	name := func(s string) string { return "--job-name=" + s }
	c.submit("300", name("holds"), "--account=ann", "--nodes=2", "--nodelist=n[01-02]", "--gres=gpu:a100:6", "--time=10", "--cpus-per-task=8", "--mem=2000")
	c.submit("300", name("part"), "--account=bob", "--nodelist=n03", "--gpus=3", "--time=20")
	for node, gpus := range []string{"n01:2", "n02:2", "n03:5"} {
		on, n, _ := strings.Cut(gpus, ":")
		c.submit("300", name("fill"+strconv.Itoa(node)), "--account=bob", "--nodelist="+on, "--gpus="+n, "--time=40")
	}
	c.run("scontrol", "update", "nodename=n04", "state=drain", "reason=for the test")
	c.until("holders", 20*time.Second, func() bool {
		return strings.Count(c.run("squeue", "--noheader", "--format=%T"), "RUNNING") == 5
	})
	whole := c.submit("300", name("whole"), "--account=bob", "--nodes=4", "--gres=gpu:8", "--time=30")
	c.submit("300", name("perjob"), "--account=ann", "--gpus=5", "--time=25")
	c.submit("300", name("pertask"), "--account=ann", "--ntasks=7", "--gpus-per-task=1", "--cpus-per-task=2", "--time=25")
	c.submit("300", name("array"), "--account=ann", "--array=0-9:3%2", "--gres=gpu:1", "--time=45")
	c.submit("300", name("held"), "--account=ann", "--hold", "--gres=gpu:1")
	c.submit("300", name("waits"), "--account=bob", "--dependency=afterany:"+whole, "--gres=gpu:1", "--time=25")
	c.submit("300", name("later"), "--account=bob", "--begin=now+1hour", "--gres=gpu:1", "--time=25")
	c.submit("300", name("feature"), "--account=bob", "--constraint=a100&ib", "--gres=gpu:7", "--time=25")
	c.submit("300", name("alone"), "--account=bob", "--exclusive", "--nodes=1", "--time=25")
	c.submit("300", name("range"), "--account=cat", "--nodes=2-3", "--gpus-per-node=6", "--time=25")
	c.submit("300", name("not"), "--account=cat", "--exclude=n[01,04]", "--partition=short,main", "--gres=gpu:7", "--time=25")
	c.submit("300", name("must"), "--account=cat", "--nodes=2", "--nodelist=n02", "--gpus-per-node=7", "--switches=1", "--time=25")
	c.submit("300", name("het"), "--account=cat", "--gres=gpu:7", "--time=25", ":", "--gres=gpu:8", "--nodes=1")
	time.Sleep(3 * time.Second) // let the backfill scheduler look at them
	jobDoc, nodeDoc := c.run("squeue", "--all", "--json"), c.run("sinfo", "-N", "--json")

	jobs, faults, err := slurm.ReadJobs(strings.NewReader(jobDoc))
	require.NoError(t, err)
	require.Empty(t, faults)
	by := map[string]*slurm.Job{}
	for i := range jobs {
		by[jobs[i].Name] = &jobs[i]
	}
	check(t, by)
	nodes, faults, err := slurm.ReadNodes(strings.NewReader(nodeDoc))
	require.NoError(t, err)
	require.Empty(t, faults)
	require.Len(t, nodes, 4)
	require.Equal(t, 8, nodes[0].GPUs)
	require.Equal(t, "a100", nodes[0].GPUKind)
	require.Equal(t, 8, nodes[0].Used)
	require.Equal(t, 8, nodes[0].InUse.Len())
	require.Equal(t, []string{"a100", "ib"}, nodes[0].Features)
	require.ElementsMatch(t, []string{"main", "short"}, nodes[0].Partitions)
	require.Equal(t, 8, nodes[2].Used)
	require.True(t, nodes[2].Open)
	require.False(t, nodes[3].Open, nodes[3].State)
	require.Equal(t, "for the test", nodes[3].Why)

	client := slurm.Client{}
	v, err := client.View(context.Background())
	require.NoError(t, err)
	require.Empty(t, v.Faults)
	f, err := os.Open(filepath.Join(c.dir, "topology.conf"))
	require.NoError(t, err)
	defer f.Close()
	v.Topology, err = slurm.ReadTopology(f.Name(), f)
	require.NoError(t, err)
	r, err := slurm.Plan(v, slurm.Config{Rule: slurm.Slurm})
	require.NoError(t, err)
	require.Empty(t, r.Faults)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	t.Log("\n" + text.String())
	for _, row := range r.Rows { // the whole cluster, of which a node is drained
		if row.Name == "whole" {
			require.Zero(t, row.Start)
			require.Equal(t, lockstep.ReasonUnhealthy, row.Reason)
		}
	}
	if *update {
		c.record()
	}
}

func check(t *testing.T, by map[string]*slurm.Job) {
	h := by["holds"]
	require.Equal(t, slurm.Running, h.State)
	require.Len(t, h.On, 2)
	require.EqualValues(t, 6, h.On[1].GPUs)
	require.Equal(t, 6, h.On[1].Devices.Len())
	require.EqualValues(t, 8, h.On[0].CPUs)
	require.Equal(t, 2000*lockstep.MiB, h.On[0].Memory)
	require.Equal(t, 10*time.Minute, h.Limit)
	require.EqualValues(t, 3, by["part"].On[0].GPUs)
	for name, gpus := range map[string]int64{"whole": 32, "perjob": 5, "pertask": 7, "array": 1, "feature": 7, "not": 7, "must": 14} {
		require.Equal(t, slurm.Pending, by[name].State, name)
		require.Equal(t, gpus, by[name].GPUs, name)
		require.False(t, by[name].Held, name)
		require.False(t, by[name].Exclusive, name)
	}
	require.Equal(t, 4, by["array"].Tasks)
	require.Equal(t, 2, by["array"].TaskLimit)
	require.EqualValues(t, 14, by["pertask"].CPUs)
	require.True(t, by["held"].Held)
	require.Contains(t, by["waits"].Dependency, "afterany:")
	require.True(t, by["later"].Eligible.After(by["later"].Submitted.Add(50*time.Minute)))
	require.Equal(t, "a100&ib", by["feature"].Features)
	require.True(t, by["alone"].Exclusive)
	require.Equal(t, 2, by["range"].MinNodes)
	require.Equal(t, 3, by["range"].MaxNodes)
	require.Equal(t, []string{"n01", "n04"}, by["not"].Exclude)
	require.ElementsMatch(t, []string{"main", "short"}, strings.Split(by["not"].Partition, ","))
	require.Equal(t, []string{"n02"}, by["must"].Require)
	require.NotZero(t, by["het"].Het)
}

// record writes what Slurm prints to ../testdata, in each form that it knows.
func (c *cluster) record() {
	version := strings.Fields(c.run("squeue", "--version"))[1]
	version = strings.Join(strings.Split(version, ".")[:2], ".")
	jobs := []string{"squeue", "--all", "--json"}
	forms := []string{"v0.0.40", "v0.0.41", "v0.0.42"}
	if _, err := c.try("squeue", "--json="+forms[0]); err != nil { // before there were forms to choose from
		scrub(c.t, "squeue-"+version+".json", c.run(jobs[0], jobs[1:]...))
		forms = nil
	}
	for _, form := range forms {
		scrub(c.t, "squeue-"+version+"-"+form+".json", c.run("squeue", "--all", "--json="+form))
	}
	scrub(c.t, "sinfo-"+version+".json", c.run("sinfo", "-N", "--json"))
	if doc, err := c.try("scontrol", "show", "nodes", "--json"); err == nil {
		scrub(c.t, "scontrol-"+version+".json", string(doc))
	}
}

// scrub writes a document without what belongs to the machine that it was made on, an item a line.
func scrub(t *testing.T, name, doc string) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	v["meta"] = map[string]any{"note": "recorded from a test's own cluster"}
	var out strings.Builder
	out.WriteString("{")
	for i, key := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			out.WriteString(",")
		}
		items, ok := v[key].([]any)
		if !ok {
			fmt.Fprintf(&out, "\n%q: %s", key, encode(t, v[key]))
			continue
		}
		fmt.Fprintf(&out, "\n%q: [", key)
		for k, item := range items {
			if k > 0 {
				out.WriteString(",")
			}
			out.WriteString("\n " + encode(t, plain(item)))
		}
		out.WriteString("\n]")
	}
	out.WriteString("\n}\n")
	require.NoError(t, os.WriteFile(filepath.Join("..", "testdata", name), []byte(out.String()), 0o644))
}

func encode(t *testing.T, v any) string {
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// plain puts other values for those of the machine, wherever they are.
func plain(v any) any {
	of := map[string]any{
		"hostname": "host", "address": "host", "operating_system": "Linux", "user_name": "ann", "group_name": "ann", "user_id": 1000, "group_id": 1000,
		"current_working_directory": "/home/ann", "command": "", "submit_line": "", "port": 6818, "reason_set_by_user": "ann", "architecture": "x86_64",
		"allocating_node": "host", "batch_host": "",
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v { // each is replaced by itself, so order cannot matter
			if other, ok := of[key]; ok {
				v[key] = other
			} else if key == "free_memory" || key == "free_mem" || key == "cpu_load" || key == "boot_time" || key == "slurmd_start_time" {
				v[key] = nil
			} else {
				v[key] = plain(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}
