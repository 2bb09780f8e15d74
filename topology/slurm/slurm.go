package slurm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Kind says which of Slurm's plugins a topology is for.
type Kind string

// The kinds.
const (
	KindTree  Kind = "tree"  // KindTree: switches over switches over nodes.
	KindBlock Kind = "block" // KindBlock: blocks of nodes, which pair up into larger ones.
	KindFlat  Kind = "flat"  // KindFlat says nothing about nodes.
)

// Topology is one topology of a Slurm cluster.
type Topology struct {
	Kind Kind `json:"kind"` // Kind says which of the fields below it uses.

	Name    string `json:"name,omitempty"`    // Name is unique in a topology.yaml; topology.conf has none.
	Default bool   `json:"default,omitempty"` // Default is the mark cluster_default of topology.yaml.

	Switches []Switch `json:"switches,omitempty"` // Switches are those of a tree, in any order.

	Blocks []Block `json:"blocks,omitempty"` // Blocks are those of a block topology; order says which pair up.
	Sizes  []int   `json:"sizes,omitempty"`  // Sizes are BlockSizes: the base size, at most that of the smallest block, then multiples of it by growing powers of two. nil means just the blocks.
}

// Switch is a switch of a tree. It has either switches below it or nodes.
type Switch struct {
	Name      string   `json:"name"`                // Name is unique and at most 64 bytes.
	Switches  []string `json:"switches,omitempty"`  // Switches are those right below; each is below one only.
	Nodes     []string `json:"nodes,omitempty"`     // Nodes are those right below; each is below one only.
	LinkSpeed uint32   `json:"linkSpeed,omitempty"` // LinkSpeed is without unit, and Slurm does not use it; 0 means not given.
}

// Block is a base block.
type Block struct {
	Name  string   `json:"name"`  // Name is unique and at most 64 bytes.
	Nodes []string `json:"nodes"` // Nodes are its nodes, at least one; each is in one block only.
}

// Validate reports what is wrong with t, all faults joined: ErrInvalid, and
// ErrDuplicate for a name given twice, a switch or node below two switches, or a
// node in two blocks.
func (t *Topology) Validate() error { return t.validate("slurm: validate") }

func (t *Topology) validate(op string) error {
	c := checker{text: source.New(op, strings.NewReader("")), topology: t}
	c.check()
	return c.text.Err()
}

// Inputs returns the levels and nodes of t as topology.New takes them, the levels
// coarsest first and without figures, the nodes without shapes. The slices are
// the caller's; nodes of a leaf or block share their path. It returns what
// Validate does.
//
// A tree has a level for each tier of switches, "tier1" nearest to the nodes, up
// to the highest switch. A node's path has the switch of each tier above it, ""
// where there is none of the tier. The nodes come depth-first, from the first
// switch listed that is below no other.
//
// A block topology has the level "block" and above it "block-36" for each further
// size 36 of Sizes, up to the first at which all blocks are one. A larger block is
// named after the first and last base block in it, "b1..b2". The nodes come by
// Blocks. A flat topology has neither levels nor nodes.
func (t *Topology) Inputs() (levels []topology.Level, nodes []topology.Node, err error) {
	if err := t.validate("slurm: inputs"); err != nil {
		return nil, nil, err
	}
	switch t.Kind {
	case KindTree:
		levels, nodes = t.treeInputs()
	case KindBlock:
		levels, nodes = t.blockInputs()
	}
	return levels, nodes, nil
}

func (t *Topology) blockInputs() (levels []topology.Level, nodes []topology.Node) {
	sizes := t.aggregates()
	for _, size := range slices.Backward(sizes) {
		levels = append(levels, topology.Level{Name: lockstep.Level("block-" + strconv.Itoa(size))})
	}
	levels = append(levels, topology.Level{Name: "block"})
	for i := range t.Blocks {
		var path []string
		for _, size := range slices.Backward(sizes) {
			n := size / t.Sizes[0]
			first := i / n * n
			last := min(first+n, len(t.Blocks)) - 1
			path = append(path, t.Blocks[first].Name+".."+t.Blocks[last].Name)
		}
		nodes = appendNodes(nodes, append(path, t.Blocks[i].Name), t.Blocks[i].Nodes)
	}
	return levels, nodes
}

func appendNodes(dst []topology.Node, path, names []string) []topology.Node {
	for _, name := range names {
		dst = append(dst, topology.Node{ID: lockstep.NodeID(name), Path: path})
	}
	return dst
}

// aggregates returns the sizes above the base block, up to the first at which all
// blocks are one.
func (t *Topology) aggregates() (sizes []int) {
	if len(t.Sizes) == 0 {
		return nil
	}
	for i, size := range t.Sizes[1:] {
		if t.Sizes[i]/t.Sizes[0] >= len(t.Blocks) {
			break
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// tiers returns how high each switch is: 1 above nodes, else one more than the
// highest below it. The switches have no cycle.
func (t *Topology) tiers() []int {
	index := t.index()
	tiers := make([]int, len(t.Switches))
	var tier func(i int) int
	tier = func(i int) int {
		if tiers[i] == 0 {
			tiers[i] = 1
			for _, name := range t.Switches[i].Switches {
				tiers[i] = max(tiers[i], tier(index[name])+1)
			}
		}
		return tiers[i]
	}
	for i := range t.Switches {
		tier(i)
	}
	return tiers
}

// index returns the switches by name.
func (t *Topology) index() map[string]int {
	index := make(map[string]int, len(t.Switches))
	for i := range t.Switches {
		index[t.Switches[i].Name] = i
	}
	return index
}

func (t *Topology) treeInputs() (levels []topology.Level, nodes []topology.Node) {
	index, tiers := t.index(), t.tiers()
	height := slices.Max(tiers)
	for tier := height; tier > 0; tier-- {
		levels = append(levels, topology.Level{Name: lockstep.Level("tier" + strconv.Itoa(tier))})
	}
	below := make([]bool, len(t.Switches))
	for i := range t.Switches {
		for _, name := range t.Switches[i].Switches {
			below[index[name]] = true
		}
	}
	path := make([]string, height)
	var walk func(i int)
	walk = func(i int) {
		s := &t.Switches[i]
		at := height - tiers[i]
		path[at] = s.Name
		for _, name := range s.Switches {
			clear(path[at+1:])
			walk(index[name])
		}
		if len(s.Nodes) > 0 {
			nodes = appendNodes(nodes, slices.Clone(path), s.Nodes)
		}
	}
	for i := range t.Switches {
		if !below[i] {
			clear(path)
			walk(i)
		}
	}
	return levels, nodes
}
