package placement_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Members take shares of a device with memory of it, and MIG instances of others.
func Example_shares() {
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{1}, Shape: topology.NVSwitch8()})
	if err != nil {
		panic(err)
	}
	id, _ := tree.NodeAt(0)
	state, err := placement.New(tree, placement.Config{
		Nodes: []placement.Node{{ID: id, GPUMemory: 80 * lockstep.GiB, MIG: "h100-80gb"}},
	})
	if err != nil {
		panic(err)
	}
	for i, d := range []lockstep.Demand{
		{GPUs: 1, Share: 700, GPUMemory: 40 * lockstep.GiB},
		{GPUs: 1, Share: 300, GPUMemory: 20 * lockstep.GiB},
		{GPUs: 1, Share: 300, GPUMemory: 30 * lockstep.GiB},
		{GPUs: 1, Profile: "3g.40gb"},
		{GPUs: 1, Profile: "3g.40gb"},
		{GPUs: 6},
		{GPUs: 5},
	} {
		gang := &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint("job-", i)), Roles: []lockstep.Role{{Min: 1, Demand: d}}}
		var plan lockstep.Plan
		verdict, err := state.Fit(&lockstep.Request{Gang: gang}, &plan)
		if !verdict.Feasible {
			fmt.Println(gang.ID, verdict, err)
			continue
		}
		m := plan.Members[0]
		fmt.Println(gang.ID, "devices", m.Devices, "start", m.Start, state.Apply(&plan))
	}
	status, _ := state.Node(id)
	for _, p := range status.Parts {
		fmt.Println("device", p.Device, "left", p.Share, p.Memory, "held", p.Held)
	}
	// Output:
	// job-0 devices 0 start 0 <nil>
	// job-1 devices 0 start 0 <nil>
	// job-2 devices 1 start 0 <nil>
	// job-3 devices 2 start 4 <nil>
	// job-4 devices 2 start 0 <nil>
	// job-5 does not fit: busy, 0 of 1 members in cluster, gpu asked 6 free 5 <nil>
	// job-6 devices 3-7 start 0 <nil>
	// device 0 left 0 20Gi held 00000000
	// device 1 left 700m 50Gi held 00000000
	// device 2 left 0 0 held 11111111
}
