package reconfig_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/reconfigtest"
)

// small is a job and four devices on two nodes.
func small() (reconfig.Job, []reconfig.Device) {
	job := reconfig.Job{
		Model:  perfmodel.Model{Layers: 4, Hidden: 64, Heads: 4, FFN: 256, Vocab: 512},
		Layout: perfmodel.Layout{TP: 2, PP: 2},
		Micros: 8,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: time.Millisecond, Backward: 2 * time.Millisecond}},
	}
	var devs []reconfig.Device
	for i := range 4 {
		devs = append(devs, reconfig.Device{
			ID: lockstep.DeviceID(fmt.Sprintf("gpu-%d", i)), Node: lockstep.NodeID(fmt.Sprintf("node-%d", i/2)), Speed: 1,
		})
	}
	return job, devs
}

// One stage goes from two devices to one: the second half of its tensors has to move,
// as the device of the other half was cordoned.
func ExamplePlanMoves() {
	job, devs := small()
	stage := func(first, layers int, ids ...lockstep.DeviceID) reconfig.Stage {
		return reconfig.Stage{Devices: ids, Spans: []reconfig.Span{{First: first, Layers: layers}}}
	}
	old := &reconfig.Plan{Split: []int{8}, Replicas: []reconfig.Replica{{Stages: []reconfig.Stage{
		stage(0, 2, "gpu-0", "gpu-1"), stage(2, 2, "gpu-2", "gpu-3"),
	}}}}
	to := &reconfig.Plan{Split: []int{8}, Replicas: []reconfig.Replica{{Stages: []reconfig.Stage{
		stage(0, 3, "gpu-0", "gpu-1"), stage(3, 1, "gpu-2"),
	}}}}
	old.Digest, to.Digest = old.Sum(), to.Sum()
	devs[3].State = reconfig.Cordoned

	have, err := reconfig.Held(job, old)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := reconfig.PlanMoves(job, devs, have, to, reconfig.MoveOptions{NoCheckpoint: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range m.Phases[0].Transfers {
		if t.Shard.Part == reconfig.Parameters {
			fmt.Println(t.Shard.Block, t.From, "to", t.To, t.Link, t.Bytes)
		}
	}
	fmt.Printf("kept %v, inside nodes %v, between nodes %v\n", m.Kept, m.Traffic.Node, m.Traffic.Leaf)
	// Output:
	// layer 2 gpu-2 to gpu-0 leaf 49408
	// layer 2 gpu-3 to gpu-1 leaf 48Ki
	// head gpu-3 to gpu-2 node 32Ki
	// layer 3 gpu-3 to gpu-2 node 48Ki
	// kept 2418304, inside nodes 575232, between nodes 689920
}

// All members act on one digest, here on devices in memory.
func ExampleDrive() {
	job, devs := small()
	old, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	devs[1].State = reconfig.Cordoned
	to, err := reconfig.Replan(job, devs, old, reconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	have, _ := reconfig.Held(job, old)
	m, err := reconfig.PlanMoves(job, devs, have, to, reconfig.MoveOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fake := reconfigtest.NewFake(reconfigtest.Bench{Job: job, Devices: devs})
	fake.Load(have, 1)
	for _, d := range devs {
		fake.Derive(d.ID, m)
	}
	d, err := reconfig.NewDriver(m, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := reconfig.Drive(d, fake)
	fmt.Println(state, err, fake.Moved() == m.Traffic.Total())
	// Output:
	// done <nil> true
}

// A job of 96 samples a step keeps its batch when it shrinks, and its place in the
// data.
func ExampleElastic() {
	e := reconfig.Elastic{Global: 96, Micro: 4, Replicas: 8}
	fmt.Println("possible:", e.Sizes())
	b, v, err := e.At(6, 0)
	if err != nil || !v.Feasible {
		fmt.Println(v, err)
		return
	}
	fmt.Println("micro-batches of each replica:", b.Split)

	c := reconfig.Cursor{Epoch: 2, Consumed: 960, Step: 30}
	step, next, _ := c.Take(b.Global, 1000)
	parts, _ := reconfig.Deal(step, e.Micro, b.Split)
	fmt.Println("replica 2 takes", parts[2])
	fmt.Println("then", next)
	// Output:
	// possible: [1 2 3 4 6 8]
	// micro-batches of each replica: [4 4 4 4 4 4]
	// replica 2 takes [{2 992 8} {3 0 8}]
	// then {3 56 31}
}

// Growing by half costs ten minutes, and the size will last for an hour.
func ExampleGuard() {
	g := reconfig.Guard{}
	v, _ := g.Allow(reconfig.Change{
		Old:   reconfig.Pace{Samples: 512, Step: 3 * time.Second},
		New:   reconfig.Pace{Samples: 512, Step: 2 * time.Second},
		Pause: 10 * time.Minute,
		Since: 2 * time.Hour,
	})
	fmt.Println(v.Feasible)
	// Output: true
}
