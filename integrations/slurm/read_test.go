package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func recording(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

// TestFormsOfOneVersionSayTheSame reads one queue in the three forms that Slurm 24.11 can print.
func TestFormsOfOneVersionSayTheSame(t *testing.T) {
	var first []Job
	for _, form := range []string{"v0.0.40", "v0.0.41", "v0.0.42"} {
		jobs, faults, err := ReadJobs(bytes.NewReader(recording(t, "squeue-24.11-"+form+".json")))
		require.NoError(t, err)
		require.Empty(t, faults, form)
		require.Len(t, jobs, 19)
		if first == nil {
			first = jobs
		}
		require.Equal(t, first, jobs, form)
	}
}

// TestVersionsSayTheSame reads like queues of Slurm 22.05 and 24.11, submitted by one test.
func TestVersionsSayTheSame(t *testing.T) {
	get := func(name string) map[string]Job {
		jobs, faults, err := ReadJobs(bytes.NewReader(recording(t, name)))
		require.NoError(t, err)
		require.Empty(t, faults)
		out := map[string]Job{}
		for _, j := range jobs {
			if j.HetOffset == 0 {
				out[j.Name] = j
			}
		}
		return out
	}
	old, now := get("squeue-22.05.json"), get("squeue-24.11-v0.0.42.json")
	require.Len(t, now, len(old))
	for name, a := range old { // each is compared by itself, so order cannot matter
		b := now[name]
		require.Equal(t, a.ID, b.ID, name)
		require.Equal(t, a.State, b.State, name)
		require.Equal(t, a.GPUs, b.GPUs, name)
		require.Equal(t, a.MinNodes, b.MinNodes, name)
		require.Equal(t, a.MaxNodes, b.MaxNodes, name)
		require.Equal(t, a.CPUs, b.CPUs, name)
		require.Equal(t, a.NodeMemory, b.NodeMemory, name)
		require.Equal(t, a.Limit, b.Limit, name)
		require.Equal(t, a.On, b.On, name)
		require.Equal(t, a.Tasks, b.Tasks, name)
		require.Equal(t, a.Exclusive, b.Exclusive, name)
		require.Equal(t, a.Held, b.Held, name)
		require.Equal(t, a.Require, b.Require, name)
	}
	require.Zero(t, old["must"].Switches, "22.05 does not tell")
	require.Equal(t, 1, now["must"].Switches)

	var all [][]Node
	for _, name := range []string{"sinfo-22.05.json", "scontrol-24.11.json", "sinfo-24.11.json"} {
		nodes, faults, err := ReadNodes(bytes.NewReader(recording(t, name)))
		require.NoError(t, err)
		require.Empty(t, faults, name)
		require.Len(t, nodes, 4, name)
		for i := range nodes {
			nodes[i].State = ""
			slices.Sort(nodes[i].Partitions)
		}
		all = append(all, nodes)
	}
	require.Equal(t, all[0], all[1])
	require.Equal(t, all[1], all[2])
	require.False(t, all[0][3].Open)
	require.Equal(t, 8, all[0][0].Used)
}

// TestABadJobHarmsNoOther breaks each field of a job that is read, in each of several ways: that job is left out with
// a fault that names it and the field, or the field is passed over, and the job beside it stays.
func TestABadJobHarmsNoOther(t *testing.T) {
	var doc struct {
		Jobs []map[string]json.RawMessage `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal(recording(t, "squeue-24.11-v0.0.42.json"), &doc))
	victim, other := doc.Jobs[0], doc.Jobs[7]
	wantOther := readOne(t, other)
	broken := 0
	for field := range victim { // each by itself, so order cannot matter
		for _, bad := range []string{`{"a":[]}`, `[[1]]`, `"\u0000x[1-"`, `-5`, `1e99`, `"9999999999999999999999"`, `true`} {
			mod := map[string]json.RawMessage{}
			for k, v := range victim {
				mod[k] = v
			}
			mod[field] = json.RawMessage(bad)
			data, err := json.Marshal(map[string]any{"jobs": []any{mod, other}})
			require.NoError(t, err)
			jobs, faults, err := ReadJobs(bytes.NewReader(data))
			require.NoError(t, err)
			require.Equal(t, 2, len(jobs)+len(faults))
			require.Contains(t, jobs, wantOther)
			for _, f := range faults {
				broken++
				require.ErrorIs(t, f, lockstep.ErrInvalid)
				require.True(t, strings.HasPrefix(f.Field, "job 1.") || field == "job_id" && strings.HasPrefix(f.Field, "jobs[0]."), f.Field)
				require.True(t, strings.Contains(f.Field, field) || strings.HasPrefix(f.Field, "job 1.job_resources") || field == "job_id", "%s: %v", field, f)
				require.NotContains(t, f.Error(), "\x00")
			}
		}
	}
	require.Greater(t, broken, 100)
}

func readOne(t *testing.T, m map[string]json.RawMessage) Job {
	data, err := json.Marshal(map[string]any{"jobs": []any{m}})
	require.NoError(t, err)
	jobs, faults, err := ReadJobs(bytes.NewReader(data))
	require.NoError(t, err)
	require.Empty(t, faults)
	return jobs[0]
}

func TestDocumentsThatAreNone(t *testing.T) {
	for _, in := range []string{"", "{", "[]", `{"nodes":[]}`, `{"jobs":null}`, `{"jobs":{}}`, "JOBID PARTITION"} {
		_, _, err := ReadJobs(strings.NewReader(in))
		require.ErrorIs(t, err, lockstep.ErrInvalid, in)
	}
	for _, in := range []string{"", "{", "[]", `{"jobs":[]}`, `{"sinfo":7}`} {
		_, _, err := ReadNodes(strings.NewReader(in))
		require.ErrorIs(t, err, lockstep.ErrInvalid, in)
	}
	for _, in := range []string{`{"jobs":[]}`, `{"jobs":[],"nodes":7}`} {
		jobs, faults, err := ReadJobs(strings.NewReader(in))
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Empty(t, faults)
	}
	_, _, err := ReadJobs(failing{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestJobsAndNodesThatCannotBe(t *testing.T) {
	jobs, faults, err := ReadJobs(strings.NewReader(`{"jobs":[null,7,{},{"job_id":0},{"job_id":1},{"job_id":2,"job_state":"PENDING"},{"job_id":2,"job_state":"PENDING"},
		{"job_id":3,"job_state":"RUNNING"},{"job_id":4,"job_state":"RUNNING","nodes":"n[1-"},{"job_id":5,"job_state":"RUNNING","nodes":"n1,n1"},{"job_id":6,"job_state":"FAILED","nodes":"n[1-"}]}`))
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	require.Equal(t, uint32(2), jobs[0].ID)
	require.True(t, jobs[0].Held, "it has no priority")
	require.Equal(t, Ended, jobs[1].State)
	require.Len(t, faults, 9)
	require.ErrorIs(t, faults[5], lockstep.ErrDuplicate)
	nodes, faults, err := ReadNodes(strings.NewReader(`{"nodes":[null,7,{},{"name":"a b"},{"name":"n1"},{"name":"n1"},{"name":"n2","gres":"gpu:65"},{"name":"n3","gres":"gpu:a:b:c:d"},{"name":"n4","cpus":-5}]}`))
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.False(t, nodes[0].Open, "its state is not told")
	require.Len(t, faults, 8)
}

func TestATimeAfterAllTimesIsRefused(t *testing.T) {
	_, faults, err := ReadJobs(strings.NewReader(`{"jobs":[{"job_id":1,"job_state":"PENDING","priority":1,"submit_time":99999999999},{"job_id":2,"job_state":"PENDING","priority":1,"time_limit":99999999}]}`))
	require.NoError(t, err)
	require.Len(t, faults, 2)
	require.Equal(t, "job 1.submit_time", faults[0].Field)
	require.Equal(t, "job 2.time_limit", faults[1].Field)
}

// FuzzRead holds that no text makes a reader or a plan panic, that what was read can be planned, and that each item is
// either read or a fault.
func FuzzRead(f *testing.F) {
	few := func(name, list string, from, to int) []byte { // small ones mutate faster
		var doc map[string]any
		require.NoError(f, json.Unmarshal(recording(f, name), &doc))
		out, err := json.Marshal(map[string]any{list: doc[list].([]any)[from:to]})
		require.NoError(f, err)
		return out
	}
	for i := range 6 {
		f.Add(few("squeue-22.05.json", "jobs", 3*i, 3*i+3), few("sinfo-22.05.json", "nodes", 0, 3))
		f.Add(few("squeue-24.11-v0.0.42.json", "jobs", 3*i+1, 3*i+4), few("scontrol-24.11.json", "nodes", 0, 4))
	}
	f.Add(few("squeue-24.11-v0.0.40.json", "jobs", 0, 2), few("sinfo-24.11.json", "sinfo", 0, 2))
	f.Add([]byte(`{"jobs":[{"job_id":1,"job_state":"RUNNING","nodes":"n1","gres_detail":["gpu:9"],"priority":3},{"job_id":2,"job_state":"PENDING","priority":7,"tres_per_job":"gpu:70","features":"(a|b)&c","dependency":"afterok:1","array_job_id":2,"array_task_string":"0-9%2","array_max_tasks":2}]}`),
		[]byte(`{"nodes":[{"name":"n1","state":"idle","gres":"gpu:x y:8","cpus":4,"gres_used":"gpu:8","alloc_cpus":9}]}`))
	f.Fuzz(func(t *testing.T, jobDoc, nodeDoc []byte) {
		if len(jobDoc)+len(nodeDoc) > 1<<20 {
			return
		}
		v := &View{Now: time.Unix(1796040400, 0)}
		jobs, faults, err := ReadJobs(bytes.NewReader(jobDoc))
		if err != nil {
			return
		}
		v.Jobs, v.Faults = jobs, faults
		if v.Nodes, faults, err = ReadNodes(bytes.NewReader(nodeDoc)); err != nil {
			return
		}
		v.Faults = append(v.Faults, faults...)
		if len(v.Nodes) > 200 {
			v.Nodes = v.Nodes[:200]
		}
		r, err := Plan(v, Config{Horizon: 24 * time.Hour, ArrayTasks: 4})
		if err != nil {
			t.Fatalf("what was read cannot be planned: %v", err)
		}
		sound(t, v, r, Config{})
	})
}
