package main

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// The shape of every cluster here.
const (
	nodeGPUs   = 8
	rackNodes  = 16
	blockRacks = 16

	levelRack  lockstep.Level = "rack"
	levelBlock lockstep.Level = "block"
)

// newTree returns a cluster of n nodes; the last rack and the last block may be
// smaller than the others.
func newTree(n int) (*topology.Tree, error) {
	nodes := make([]topology.Node, n)
	shape := topology.NVSwitch8()
	var path []string
	for i := range nodes {
		if i%rackNodes == 0 {
			rack := i / rackNodes
			path = []string{"b" + strconv.Itoa(rack/blockRacks), "r" + strconv.Itoa(rack)}
		}
		nodes[i] = topology.Node{ID: lockstep.NodeID("n" + strconv.Itoa(i)), Path: path, Shape: shape}
	}
	return topology.New([]topology.Level{{Name: levelBlock}, {Name: levelRack}}, nodes)
}

// newState returns an empty state over a cluster of n nodes.
func newState(n int) (*placement.State, error) {
	tree, err := newTree(n)
	if err != nil {
		return nil, err
	}
	return placement.New(tree, placement.Config{})
}
