package main

import (
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// library is a placement.State with the trace's nodes, and its arrivals as gangs of
// one member.
type library struct {
	trace *trace
	list  *list
	state *placement.State
	index map[lockstep.NodeID]int
}

// newLibrary makes the empty state. A tree has its nodes in the order of their IDs,
// which is that of the trace. Every shape is a kind of demand and has its index.
func newLibrary(t *trace, l *list, rule placement.Rule) (*library, error) {
	lib := &library{trace: t, list: l, index: map[lockstep.NodeID]int{}}
	shapes := make([]*topology.Shape, maxDevices+1)
	cfg := placement.Config{Rule: rule, RankAll: true, Views: 2 * len(l.shapes)}
	var nodes []topology.Node
	for x, n := range t.nodes {
		if shapes[n.devices] == nil {
			shape, err := topology.UniformShape(n.devices, topology.NVLink(1))
			if err != nil {
				return nil, err
			}
			shapes[n.devices] = shape
		}
		id := lockstep.NodeID(n.name)
		lib.index[id] = x
		nodes = append(nodes, topology.Node{ID: id, Shape: shapes[n.devices]})
		cfg.Nodes = append(cfg.Nodes, placement.Node{ID: id, CPU: lockstep.MilliCPU(n.cpu), Class: lockstep.DeviceClass(t.models[n.model])})
	}
	tree, err := topology.New(nil, nodes)
	if err != nil {
		return nil, err
	}
	lib.state, err = placement.New(tree, cfg)
	return lib, err
}

// gang returns the task that comes as the seq-th.
func (lib *library) gang(seq, task int) *lockstep.Gang {
	p := lib.list.shapeOf(task)
	d := lockstep.Demand{GPUs: p.devices, CPU: lockstep.MilliCPU(p.cpu)}
	if p.devices > 0 && p.milli < milli {
		d.Share = lockstep.MilliGPU(p.milli)
	}
	for _, name := range lib.trace.namesOf(p.models) {
		d.Classes = append(d.Classes, lockstep.DeviceClass(name))
	}
	return &lockstep.Gang{ID: lockstep.JobID("task-" + strconv.Itoa(seq)), Roles: []lockstep.Role{{Min: 1, Demand: d}}}
}

// replayLibrary is replay with decisions by placement: one is Arrived, Fit and, if
// there is room, Apply.
func replayLibrary(t *trace, l *list, rule placement.Rule, order []int, clock func() int64) (outcome, error) {
	lib, err := newLibrary(t, l, rule)
	if err != nil {
		return outcome{}, err
	}
	out := tally{capacity: t.capacity}
	var plan lockstep.Plan
	for seq, task := range order {
		g := lib.gang(seq, task)
		start := clock()
		fits, err := lib.decide(g, &plan)
		out.nanos = append(out.nanos, clock()-start)
		if err != nil {
			return outcome{}, fmt.Errorf("task %d: %w", seq, err)
		}
		out.add(l.shapeOf(task), fits)
		at := spot{node: -1}
		if fits {
			m := &plan.Members[0]
			at.node = lib.index[m.Node]
			for d := range m.Devices.All {
				at.devices = append(at.devices, d)
			}
		}
		out.placed = append(out.placed, at)
	}
	return out.outcome, nil
}

func (lib *library) decide(g *lockstep.Gang, plan *lockstep.Plan) (bool, error) {
	if err := lib.state.Arrived(g); err != nil {
		return false, err
	}
	v, err := lib.state.Fit(&lockstep.Request{Gang: g}, plan)
	if err != nil || !v.Feasible {
		return false, err
	}
	return true, lib.state.Apply(plan)
}
