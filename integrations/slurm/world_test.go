package slurm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

// epoch is the time of made up clusters.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// documents makes what scontrol and squeue would print of a cluster that is full: running jobs of whole nodes and
// parts, and waiting ones, in the form of data_parser v0.0.41. The same seed gives the same bytes.
func documents(nodes, waiting int, seed uint64) (nodeDoc, jobDoc, topology []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	var n, j, t bytes.Buffer
	n.WriteString(`{"meta":{},"nodes":[`)
	j.WriteString(`{"meta":{},"jobs":[`)
	id := 0
	job := func(state, reason string, nodeCount, gpus, limit int, more string) {
		if id++; id > 1 {
			j.WriteByte(',')
		}
		fmt.Fprintf(&j, `{"job_id":%d,"name":"train","job_state":["%s"],"state_reason":"%s","user_name":"u%d","user_id":%d,"account":"acct%d","qos":"normal","partition":"main",`+
			`"priority":{"set":true,"infinite":false,"number":%d},"hold":false,"submit_time":{"set":true,"infinite":false,"number":%d},"eligible_time":{"set":true,"infinite":false,"number":%d},`+
			`"time_limit":{"set":true,"infinite":false,"number":%d},"array_job_id":{"set":true,"infinite":false,"number":0},"array_task_id":{"set":false,"infinite":false,"number":0},`+
			`"array_task_string":"","het_job_id":{"set":true,"infinite":false,"number":0},"dependency":"","node_count":{"set":true,"infinite":false,"number":%d},"max_nodes":{"set":false,"infinite":false,"number":0},`+
			`"cpus":{"set":true,"infinite":false,"number":%d},"tasks":{"set":true,"infinite":false,"number":%d},"memory_per_node":{"set":false,"infinite":false,"number":0},"memory_per_cpu":{"set":true,"infinite":false,"number":8000},`+
			`"tres_per_node":"gres/gpu:h100:%d","tres_req_str":"cpu=%d,mem=%dM,node=%d,billing=1,gres/gpu=%d","shared":[],"exclusive":[],"features":"","required_nodes":"","excluded_nodes":""%s}`,
			id, state, reason, r.IntN(40), r.IntN(40), r.IntN(12), 1000+r.IntN(100000), epoch.Unix()-int64(r.IntN(86400)), epoch.Unix()-int64(r.IntN(86400)), limit, nodeCount, 8*gpus*nodeCount, nodeCount, gpus,
			8*gpus*nodeCount, 64000*gpus*nodeCount, nodeCount, gpus*nodeCount, more)
	}
	for i := range nodes {
		if i > 0 {
			n.WriteByte(',')
		}
		fmt.Fprintf(&n, `{"name":"n%04d","state":["ALLOCATED"],"cpus":96,"effective_cpus":96,"real_memory":1024000,"gres":"gpu:h100:8(S:0-1)","gres_used":"gpu:h100:8(IDX:0-7)","alloc_cpus":64,"alloc_memory":512000,`+
			`"features":["h100","ib"],"active_features":["h100","ib"],"partitions":["main"],"reservation":"","weight":1}`, i)
		for from := 0; from < 8; {
			gpus := []int{8, 4, 4, 2}[r.IntN(4)]
			gpus = min(gpus, 8-from)
			limit := 60 + r.IntN(2880)
			job("RUNNING", "None", 1, gpus, limit, fmt.Sprintf(`,"nodes":"n%04d","start_time":{"set":true,"infinite":false,"number":%d},"gres_detail":["gpu:h100:%d(IDX:%d-%d)"],"job_resources":{"nodes":{"count":1,"list":"n%04d","allocation":[{"name":"n%04d","cpus":{"count":%d,"used":0},"memory":{"used":0,"allocated":%d}}]}}`,
				i, epoch.Unix()-int64(r.IntN(60*limit)), gpus, from, from+gpus-1, i, i, 8*gpus, 64000*gpus))
			from += gpus
		}
	}
	for range waiting {
		size := []int{1, 1, 1, 1, 2, 4, 8}[r.IntN(7)]
		gpus := []int{1, 2, 4, 8}[r.IntN(4)]
		if size > 1 {
			gpus = 8
		}
		job("PENDING", "Priority", size, gpus, 30+r.IntN(1440), "")
	}
	n.WriteString("]}")
	j.WriteString("]}")
	leaves := 0
	for i := 0; i < nodes; i += 32 {
		fmt.Fprintf(&t, "SwitchName=leaf%d Nodes=n[%04d-%04d]\n", leaves, i, min(i+31, nodes-1))
		leaves++
	}
	fmt.Fprintf(&t, "SwitchName=core Switches=leaf[0-%d]\n", leaves-1)
	return n.Bytes(), j.Bytes(), t.Bytes()
}

// read makes a view of documents, of which nothing may be left out.
func read(t testing.TB, nodeDoc, jobDoc, topology []byte) *View {
	t.Helper()
	v := &View{Now: epoch}
	var err error
	v.Nodes, v.Faults, err = ReadNodes(bytes.NewReader(nodeDoc))
	require.NoError(t, err)
	require.Empty(t, v.Faults)
	v.Jobs, v.Faults, err = ReadJobs(bytes.NewReader(jobDoc))
	require.NoError(t, err)
	require.Empty(t, v.Faults)
	if topology != nil {
		v.Topology, err = slurm.Parse(bytes.NewReader(topology))
		require.NoError(t, err)
	}
	return v
}

func text(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	return b.String()
}
