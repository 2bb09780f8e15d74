package ibnet_test

import (
	"fmt"
	"strings"

	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/ibnet"
)

func Example() {
	fabric, err := ibnet.Parse(strings.NewReader(`
Switch	3 "S-00000000000000f0"		# "leaf-0" enhanced port 0 lid 1 lmc 0
[1]	"H-00000000000000a0"[1](a0) 		# "a mlx5_0" lid 11 4xNDR
[2]	"H-00000000000000b0"[1](b0) 		# "b mlx5_0" lid 12 4xNDR

Switch	3 "S-00000000000000f1"		# "leaf-1" enhanced port 0 lid 2 lmc 0
[1]	"H-00000000000000a1"[1](a1) 		# "a mlx5_3" lid 13 4xNDR
[2]	"H-00000000000000b1"[1](b1) 		# "b mlx5_3" lid 14 4xNDR
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	shape, err := topology.NewShape(topology.ShapeConfig{
		Links: [][]topology.Link{{topology.Self, topology.NVLink(18)}, {topology.NVLink(18), topology.Self}},
		NICs:  []string{"mlx5_0", "mlx5_3"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	levels, nodes, err := fabric.Inputs(ibnet.Config{Shape: shape})
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := topology.New(levels, nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	for d := range 2 {
		b := topology.Device{Slot: 1, Index: d}
		fmt.Println(nodes[1].ID, "device", d, "rail", tree.Shape(1).Rail(d), tree.SameRail(topology.Device{Slot: 0, Index: 1}, b))
	}
	fmt.Println(tree, levels[0].Bandwidth)

	_, err = ibnet.Parse(strings.NewReader("Switch\t3 \"S-00000000000000f0\"\n[4]\t\"S-00000000000000f1\"[1]\n"))
	fmt.Println(err)
	// Output:
	// b device 0 rail 0 false
	// b device 1 rail 1 true
	// cluster=1 unit=1 node=2 vacant=0 50G/s
	// ibnet: parse: line 2, column 1 = "4": want a port of 1 to 3
}
