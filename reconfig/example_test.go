package reconfig_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// A job of two replicas of four stages loses one device, and later has it back.
func ExampleReplan() {
	job := reconfig.Job{
		Model:  perfmodel.Model{Layers: 40, Hidden: 5120, Heads: 40, FFN: 13824, Vocab: 32000, Gated: true},
		Layout: perfmodel.Layout{TP: 4, PP: 4, DP: 2},
		Micros: 16,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: 8 * time.Millisecond, Backward: 8 * time.Millisecond, Weight: 8 * time.Millisecond}},
		Allow:  reconfig.Constraints{FixedStages: true},
	}
	var devices []reconfig.Device
	for i := range 32 {
		devices = append(devices, reconfig.Device{
			ID:    lockstep.DeviceID(fmt.Sprintf("gpu-%02d", i)),
			Node:  lockstep.NodeID(fmt.Sprintf("node-%d", i/4)),
			Speed: 1,
		})
	}
	plan, err := reconfig.Replan(job, devices, nil, reconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("healthy:", plan.Estimate.Iteration, "split", plan.Split)

	devices[5].State = reconfig.Down
	next, err := reconfig.Replan(job, devices, plan, reconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("without gpu-05:", next.Estimate.Iteration, "split", next.Split)
	for _, s := range next.Replicas[0].Stages {
		fmt.Println(" ", s.Devices, "layers", s.Layers())
	}
	fmt.Println("standby:", next.Standby, "verified:", reconfig.Verify(job, devices, next) == nil)

	devices[5].State = reconfig.Up
	back, err := reconfig.Replan(job, devices, next, reconfig.Options{})
	fmt.Println("back:", back.Estimate.Iteration, err)
	// Output:
	// healthy: 660ms split [8 8]
	// without gpu-05: 720ms split [7 9]
	//   [gpu-00 gpu-01 gpu-02 gpu-03] layers 12
	//   [gpu-08 gpu-09 gpu-10 gpu-11] layers 12
	//   [gpu-12 gpu-13 gpu-14 gpu-15] layers 12
	//   [gpu-04 gpu-06] layers 4
	// standby: [gpu-07] verified: true
	// back: 660ms <nil>
}

// To go to a better layout takes a minute. It pays if the job stays long enough.
func ExampleShouldReplan() {
	slow, fast := reconfig.Estimate{Iteration: 12 * time.Second}, reconfig.Estimate{Iteration: 11 * time.Second}
	fmt.Println(reconfig.ShouldReplan(slow, fast, time.Minute, 10*time.Minute, 0))
	fmt.Println(reconfig.ShouldReplan(slow, fast, time.Minute, time.Hour, 0))
	// Output:
	// false
	// true
}

// A plan can be checked by anybody who knows the job and the devices.
func ExampleVerify() {
	job := reconfig.Job{
		Model:  perfmodel.Model{Layers: 4, Hidden: 64, Heads: 4, FFN: 256, Vocab: 512},
		Layout: perfmodel.Layout{TP: 2},
		Micros: 4,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: time.Millisecond, Backward: 2 * time.Millisecond}},
	}
	devices := []reconfig.Device{{ID: "a", Node: "n", Speed: 1}, {ID: "b", Node: "n", Speed: 1}}
	plan, err := reconfig.Replan(job, devices, nil, reconfig.Options{})
	fmt.Println(err, plan.Estimate.Iteration)
	devices[1].Speed = 0
	fmt.Println(reconfig.Verify(job, devices, plan))
	// Output:
	// <nil> 24ms
	// reconfig: tensor: dead: replica 0 stage 0: device "b"
}
