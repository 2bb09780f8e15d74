package lockstep_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// A gang arrives as JSON; a placer (here: by hand) turns it into a plan; the
// host starts each member with the environment that the plan gives it.
func Example() {
	const spec = `{
		"id": "team-a/llama", "queue": "research", "required": "rack",
		"roles": [{"name": "worker", "min": 2, "demand": {"gpus": 4, "gpuMemory": "80Gi", "cpu": "16", "memory": "256Gi"}}]
	}`
	var gang lockstep.Gang
	if err := json.Unmarshal([]byte(spec), &gang); err != nil {
		fmt.Println(err)
		return
	}
	if err := gang.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	plan := lockstep.Plan{
		Job: gang.ID, Gang: &gang, Version: 1, Level: "rack", Port: 29500,
		Members: []lockstep.Member{
			{Node: "node-7", Devices: 0x0f},
			{Node: "node-9", Devices: 0xf0},
		},
	}
	env, err := plan.Env(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, line := range env {
		fmt.Println(line)
	}
	fmt.Print(plan.Hostfile())
	// Output:
	// RANK=1
	// LOCAL_RANK=0
	// WORLD_SIZE=2
	// LOCAL_WORLD_SIZE=1
	// NNODES=2
	// NODE_RANK=1
	// MASTER_ADDR=node-7
	// MASTER_PORT=29500
	// LOCKSTEP_JOB=team-a/llama
	// LOCKSTEP_ROLE=worker
	// NVIDIA_VISIBLE_DEVICES=4,5,6,7
	// CUDA_VISIBLE_DEVICES=4,5,6,7
	// CUDA_DEVICE_ORDER=PCI_BUS_ID
	// node-7 slots=1
	// node-9 slots=1
}

func ExampleGang_Validate() {
	gang := lockstep.Gang{ID: "j1", Roles: []lockstep.Role{{Min: 0, Demand: lockstep.Demand{GPUs: 65}}}}
	err := gang.Validate()
	fmt.Println(err)

	var first *lockstep.Error
	fmt.Println(errors.Is(err, lockstep.ErrInvalid), errors.As(err, &first), first.Field, first.Value)
	// Output:
	// lockstep: gang: Roles[0].Min = 0: want 1 to 1048576
	// lockstep: gang: Roles[0].Demand.GPUs = 65: want 0 to 64
	// true true Roles[0].Min 0
}

func ExampleParseBytes() {
	for _, s := range []string{"80Gi", "1.5GiB", "900MB", "0.5"} {
		b, err := lockstep.ParseBytes(s)
		fmt.Println(int64(b), b, err)
	}
	// Output:
	// 85899345920 80Gi <nil>
	// 1610612736 1536Mi <nil>
	// 900000000 900000000 <nil>
	// 0 0 lockstep: parse: Bytes = "0.5": not a whole number of the base unit
}

func ExampleMilliGPU() {
	half, _ := lockstep.ParseMilliGPU("0.5")
	fmt.Println(half, half.Mul(3), half.Mul(4), lockstep.WholeGPU.Sub(half))
	// Output: 500m 1500m 2 500m
}

func ExampleBytesPerSecond() {
	link, _ := lockstep.ParseBandwidth("50G")
	half, _ := lockstep.ParseBandwidth("25GB/s")
	fmt.Println(link, half, link/2 == half)
	// Output: 50G/s 25G/s true
}

func ExampleResources() {
	demand := lockstep.Demand{GPUs: 2, Classes: []lockstep.DeviceClass{"h100"}, CPU: 1500, Memory: 64 * lockstep.GiB}
	r := demand.Resources()
	text, _ := json.Marshal(r)
	fmt.Println(r)
	fmt.Println(string(text))
	// Output:
	// cpu=1500m gpu=2 gpu/h100=2 memory=64Gi slots=1
	// {"cpu":"1500m","gpu":"2","gpu/h100":"2","memory":"64Gi","slots":"1"}
}

func ExampleSchema() {
	schema, err := lockstep.NewSchema(lockstep.ResourceGPU, lockstep.ResourceMemory)
	if err != nil {
		fmt.Println(err)
		return
	}
	free, _ := schema.Vector(lockstep.Resources{"gpu": 8000, "memory": int64(512 * lockstep.GiB)})
	member, _ := schema.Vector(lockstep.Resources{"gpu": 2000, "memory": int64(200 * lockstep.GiB)})
	if i, ok := member.Mul(3).Fits(free); !ok {
		fmt.Println("short of", schema.Name(i))
	}
	fmt.Println(schema.Resources(free.Sub(member.Mul(2))))
	// Output:
	// short of memory
	// gpu=4 memory=112Gi
}

func ExampleDeviceSet() {
	set := lockstep.DeviceSet(0b1100_1111)
	fmt.Println(set, set.Len(), set.Has(4))
	for i := range set.All {
		fmt.Print(i, " ")
	}
	// Output:
	// 0-3,6-7 6 false
	// 0 1 2 3 6 7
}

func ExampleExplanation() {
	why := lockstep.Explanation{
		Job: "j1",
		Verdict: lockstep.Verdict{
			Reason: lockstep.ReasonFragmented, Fit: 3, Want: 4, Level: "rack", Domain: "r2",
			Resource: lockstep.ResourceGPU, Requested: 32000, Available: 24500,
		},
		Counts: []lockstep.ReasonCount{
			{Reason: lockstep.ReasonUnhealthy, Nodes: 1},
			{Reason: lockstep.ReasonBusy, Detail: "gpu", Nodes: 2},
			{Reason: lockstep.ReasonBusy, Detail: "gpu", Nodes: 3},
		},
		Changes: []lockstep.Change{
			{Kind: lockstep.ChangeFree, Level: "rack", Domain: "r2", Nodes: []lockstep.NodeID{"n5"}},
			{Kind: lockstep.ChangeShrink, Amount: 3},
		},
		Notes: []lockstep.Note{{Stage: "quota", Reason: lockstep.ReasonQuota, Detail: "queue research is at its limit"}},
	}
	why.Sort()
	fmt.Println(why)
	// Output:
	// j1: does not fit: fragmented, 3 of 4 members in rack r2, gpu asked 32 free 24500m
	//   5 nodes: busy (gpu)
	//   1 node: unhealthy
	//   would fit: free n5 in rack r2
	//   would fit: ask for 3 members
	//   quota: quota (queue research is at its limit)
}

func ExampleMonotone() {
	readings := []int64{10, 5, 20} // a host clock that is set back once
	clock := lockstep.Monotone{Source: func() time.Time {
		now := readings[0]
		readings = readings[1:]
		return lockstep.FromNanos(now)
	}}
	for range 3 {
		fmt.Println(clock.Now().UnixNano())
	}
	// Output:
	// 10
	// 10
	// 20
}
