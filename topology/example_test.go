package topology_test

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

func Example() {
	shape := topology.NVSwitch8()
	tree, err := topology.New(
		[]topology.Level{{Name: "block", Bandwidth: 25e9}, {Name: "rack", Bandwidth: 50e9}},
		[]topology.Node{
			{ID: "a", Path: []string{"b0", "r0"}, Shape: shape},
			{ID: "b", Path: []string{"b0", "r0"}, Shape: shape},
			{ID: "c", Path: []string{"b0", "r1"}, Shape: shape},
			{ID: "d", Path: []string{"b1", ""}, Shape: shape}, // no rack: its own
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, _ := tree.Slot("a")
	for _, id := range []lockstep.NodeID{"a", "b", "c", "d"} {
		slot, _ := tree.Slot(id)
		x, y := topology.Device{Slot: a}, topology.Device{Slot: slot, Index: 1}
		bandwidth, _ := tree.Estimate(x, y)
		fmt.Println("a", id, tree.LevelAt(tree.LCA(a, slot)).Name, tree.Distance(x, y), bandwidth)
	}
	rack, _ := tree.LevelIndex("rack")
	first, end := tree.Range(rack, tree.DomainOf(rack, a))
	fmt.Println(tree, "rack of a:", first, end)
	// Output:
	// a a node 46 450G/s
	// a b rack 69 50G/s
	// a c block 70 25G/s
	// a d cluster 71 0/s
	// cluster=1 block=2 rack=3 node=4 vacant=0 rack of a: 0 2
}

func ExampleUniform() {
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "block"}, {Name: "rack"}},
		Fanout: []int{2, 4, 16},
		Shape:  topology.NVSwitch8(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	node, _ := tree.Node(20)
	fmt.Println(tree, node.ID, node.Path, tree.DeviceCount(20))
	// Output:
	// cluster=1 block=2 rack=8 node=128 vacant=0 n20 [block-0 rack-1] 8
}

func ExampleTree_With() {
	tree, _ := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "rack"}}, Fanout: []int{2, 3}, Shape: topology.PCIe8(),
	})
	// n1 is replaced by spare in the same rack, which takes its slot.
	next, err := tree.With(
		topology.Change{Kind: topology.Leave, Node: topology.Node{ID: "n1"}},
		topology.Change{Kind: topology.Join, Node: topology.Node{ID: "spare", Path: []string{"rack-0"}, Shape: topology.PCIe8()}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	slots, ok := next.Changes(tree)
	id, _ := next.NodeAt(1)
	fmt.Println(slots, ok, id)

	_, err = tree.With(topology.Change{Kind: topology.Leave, Node: topology.Node{ID: "n9"}})
	fmt.Println(err)
	// Output:
	// [1] true spare
	// topology: with: changes[0].Node.ID = "n9": the tree has no node of that ID
}

func ExampleTree_SameRail() {
	board, _ := topology.NVSwitch8().WithRails([]int{0, 1, 2, 3, 4, 5, 6, 7}) // device i is on leaf i of its unit
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "unit", Rails: true}}, Fanout: []int{2, 4}, Shape: board,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := topology.Device{Slot: 0, Index: 3}
	for _, b := range []topology.Device{{Slot: 0, Index: 5}, {Slot: 1, Index: 3}, {Slot: 1, Index: 4}, {Slot: 4, Index: 3}} {
		fmt.Println(b, tree.SameRail(a, b), tree.Distance(a, b))
	}
	// Output:
	// {0 5} false 46
	// {1 3} true 69
	// {1 4} false 70
	// {4 3} false 71
}

func ExampleTree_AppendRankOrder() {
	tree, _ := topology.Uniform(topology.UniformConfig{Fanout: []int{2}, Shape: topology.PCIe8()})
	order := tree.AppendRankOrder(nil, []topology.Device{
		{Slot: 1, Index: 4},
		{Slot: 0, Index: 5},
		{Slot: 0, Index: 0},
		{Slot: 1, Index: 0},
		{Slot: 0, Index: 1},
		{Slot: 0, Index: 7},
	})
	fmt.Println(order)
	// Output:
	// [{0 0} {0 1} {0 5} {0 7} {1 0} {1 4}]
}

func ExampleTree_MarshalJSON() {
	pair, _ := topology.UniformShape(2, topology.NVLink(4))
	tree, _ := topology.New([]topology.Level{{Name: "rack"}}, []topology.Node{
		{ID: "a", Path: []string{"r0"}, Shape: pair, Address: "10.0.0.1"},
		{ID: "b", Path: []string{"r0"}},
	})
	tree, _ = tree.With(topology.Change{Kind: topology.Leave, Node: topology.Node{ID: "b"}})
	text, _ := json.Marshal(tree)
	fmt.Println(string(text))

	var read topology.Tree
	err := json.Unmarshal(text, &read)
	fmt.Println(&read, err)
	// Output:
	// {"version":1,"levels":[{"name":"cluster"},{"name":"rack"},{"name":"node"}],"shapes":[{"links":[["X","NV4"],["NV4","X"]]}],"cluster":{"domains":[{"name":"r0","slots":[{"id":"a","shape":0,"address":"10.0.0.1"},null]}]}}
	// cluster=1 rack=1 node=2 vacant=1 <nil>
}

func ExampleShape_Closest() {
	shape := topology.PCIe8()                 // pairs share a bridge, fours a socket
	free := lockstep.DeviceSet(0b1111_1110)   // device 0 is taken
	fmt.Println(shape.Closest(free, 1))       // its neighbour, whose pair is broken already
	fmt.Println(shape.Closest(free, 2))       // a whole pair, of the socket that is broken already
	fmt.Println(shape.Closest(free, 4))       // a whole socket
	fmt.Println(shape.Closest(free, 8).Len()) // there are not so many
	fmt.Println(shape.AppendOrder(nil, shape.Closest(free, 3)))
	// Output:
	// 1
	// 2-3
	// 4-7
	// 0
	// [1 2 3]
}
