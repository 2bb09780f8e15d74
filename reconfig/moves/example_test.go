package moves_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
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
func ExampleBetween() {
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

	have, err := moves.Held(job, old)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := moves.Between(job, devs, have, to, moves.Options{NoCheckpoint: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range m.Phases[0].Transfers {
		if t.Shard.Part == moves.Parameters {
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
	have, _ := moves.Held(job, old)
	m, err := moves.Between(job, devs, have, to, moves.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fake := movestest.NewFake(movestest.Bench{Job: job, Devices: devs})
	fake.Load(have, 1)
	for _, d := range devs {
		fake.Derive(d.ID, m)
	}
	d, err := moves.NewDriver(m, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := moves.Drive(d, fake)
	fmt.Println(state, err, fake.Moved() == m.Traffic.Total())
	// Output:
	// done <nil> true
}
