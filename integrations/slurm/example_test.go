package slurm_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/integrations/slurm"
)

// Two jobs wait for a node that another holds for an hour more. One account has it all, so the other's job is first.
func Example() {
	jobs, _, err := slurm.ReadJobs(strings.NewReader(`{"jobs":[
		{"job_id":1,"job_state":["RUNNING"],"account":"ann","nodes":"n1","gres_detail":["gpu:a100:8(IDX:0-7)"],"cpus":8,"time_limit":120,"start_time":1893452400,"priority":7},
		{"job_id":2,"job_state":["PENDING"],"account":"ann","user_name":"ann","tres_per_node":"gres/gpu:8","time_limit":30,"eligible_time":1893452400,"priority":9},
		{"job_id":3,"job_state":["PENDING"],"account":"bob","user_name":"bob","tres_per_node":"gres/gpu:8","time_limit":60,"eligible_time":1893454200,"priority":8}
	]}`))
	if err != nil {
		panic(err)
	}
	nodes, _, err := slurm.ReadNodes(strings.NewReader(`{"nodes":[{"name":"n1","state":["ALLOCATED"],"cpus":64,"gres":"gpu:a100:8","gres_used":"gpu:a100:8(IDX:0-7)"}]}`))
	if err != nil {
		panic(err)
	}
	r, err := slurm.Plan(&slurm.View{Now: time.Unix(1893456000, 0), Nodes: nodes, Jobs: jobs}, slurm.Config{})
	if err != nil {
		panic(err)
	}
	for _, row := range r.Rows {
		fmt.Println(row.Turn, "job", row.Job, "of", row.Account, "starts", row.Start.Format(time.TimeOnly), "on", row.On, row.Reason)
	}
	for _, c := range r.Changes() {
		fmt.Println("job", c.Job, c.From, "->", c.To)
	}
	// Output:
	// 1 job 3 of bob starts 01:00:00 on [n1] busy
	// 2 job 2 of ann starts 02:00:00 on [n1] busy
	// job 3 8 -> 2000065536
	// job 2 9 -> 2000000000
}

// A job that cannot be read is told of, and the others are planned.
func ExampleReadJobs() {
	jobs, faults, err := slurm.ReadJobs(strings.NewReader(`{"jobs":[
		{"job_id":17,"job_state":"PENDING","time_limit":"soon"},
		{"job_id":18,"job_state":"PENDING","time_limit":{"set":true,"infinite":false,"number":90},"tres_per_node":"gres:gpu:a100:4","priority":3}
	]}`))
	fmt.Println(len(jobs), jobs[0].ID, jobs[0].GPUs, jobs[0].GPUKind, jobs[0].Limit, err)
	fmt.Println(faults[0])
	// Output:
	// 1 18 4 a100 1h30m0s <nil>
	// slurm: read jobs: job 17.time_limit = "soon": want a number
}

func ExampleReport_WriteText() {
	r, err := slurm.Plan(&slurm.View{Now: time.Unix(1893456000, 0)}, slurm.Config{Rule: slurm.FIFO})
	if err != nil {
		panic(err)
	}
	_ = r.WriteText(os.Stdout)
	// Output:
	// 2030-01-01T00:00:00Z  rule fifo  nodes 0 (0 open)  devices 0  running 0  waiting 0  changes 0
	//
	// TURN  JOB  USER  ACCOUNT  GPUS  NODES  LIMIT  PRIORITY  NEW  START  SLURM SAYS  WHERE  REASON
}
