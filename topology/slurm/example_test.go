package slurm_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

func Example() {
	t, err := slurm.Parse(strings.NewReader(`
SwitchName=leaf1 Nodes=n[01-04]
SwitchName=leaf2 Nodes=n[05-08]
SwitchName=core Switches=leaf[1-2]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	levels, nodes, err := t.Inputs()
	if err != nil {
		fmt.Println(err)
		return
	}
	levels[1].Bandwidth = 50e9 // figures are the caller's
	tree, err := topology.New(levels, nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tree)
	fmt.Println(nodes[4].ID, nodes[4].Path)

	_, err = slurm.Parse(strings.NewReader("SwitchName=core Switches=leaf[1-\n"))
	fmt.Println(err)
	// Output:
	// cluster=1 tier2=1 tier1=2 node=8 vacant=0
	// n05 [core leaf2]
	// slurm: parse: line 1, column 33: want a number
}

func ExampleParseYAML() {
	all, err := slurm.ParseYAML(strings.NewReader(`
- topology: racks
  cluster_default: true
  block:
    block_sizes: [18, 36]
    blocks:
    - block: r1
      nodes: c[01-18]
    - block: r2
      nodes: c[19-36]
- topology: rest
  flat: true
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range all {
		levels, nodes, _ := all[i].Inputs()
		fmt.Println(all[i].Name, all[i].Kind, len(levels), len(nodes))
	}
	// Output:
	// racks block 2 36
	// rest flat 0 0
}

func ExampleTreeOf() {
	tree, err := topology.Uniform(topology.UniformConfig{Levels: []topology.Level{{Name: "block"}, {Name: "rack"}}, Fanout: []int{2, 2, 3}})
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := slurm.TreeOf(tree, "core")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := t.Write(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// SwitchName=rack-0 Nodes=n[0-2]
	// SwitchName=rack-1 Nodes=n[3-5]
	// SwitchName=rack-2 Nodes=n[6-8]
	// SwitchName=rack-3 Nodes=n[9-11]
	// SwitchName=block-0 Switches=rack-[0-1]
	// SwitchName=block-1 Switches=rack-[2-3]
	// SwitchName=core Switches=block-[0-1]
}

func ExampleExpand() {
	names, err := slurm.Expand("rack[1-2]-n[08-10]")
	fmt.Println(names, err)
	fmt.Println(slurm.Fold(names))
	// Output:
	// [rack1-n08 rack1-n09 rack1-n10 rack2-n08 rack2-n09 rack2-n10] <nil>
	// rack1-n[08-10],rack2-n[08-10]
}
