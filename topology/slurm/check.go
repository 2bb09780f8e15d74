package slurm

import (
	"math/bits"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Bounds on a topology.
const (
	maxName  = 64 // as Slurm's manual says of switches
	maxTiers = 16 // as many levels as topology.New takes
)

// position is where a switch or block stands in a text.
type position struct {
	name, list source.Pos
}

// checker checks a topology. Where it was read from a text, positions say where
// its parts stand; else they go by their fields.
type checker struct {
	text      *source.Text
	topology  *Topology
	prefix    string // of fields
	positions []position
	sizes     source.Pos // of the sizes
	whole     source.Pos // of the topology
}

// fault notes a fault of an item of the list of that name: of its name where part
// is "Name", else of entry j of another part.
func (c *checker) fault(kind error, list string, i int, part string, j int, value, reason string) {
	if c.positions != nil {
		at := c.positions[i].list
		if part == "Name" || at.Line == 0 {
			at = c.positions[i].name
		}
		c.text.FaultAt(kind, at, value, reason)
		return
	}
	field := c.prefix + list + "[" + strconv.Itoa(i) + "]." + part
	if part != "Name" && j >= 0 {
		field += "[" + strconv.Itoa(j) + "]"
	}
	c.text.FaultIn(kind, field, value, reason)
}

// field notes a fault of a field of the topology itself.
func (c *checker) field(name, value, reason string) {
	for _, at := range [...]source.Pos{c.sizes, c.whole} {
		if at.Line != 0 {
			c.text.FaultAt(lockstep.ErrInvalid, at, value, reason)
			return
		}
	}
	c.text.FaultIn(lockstep.ErrInvalid, c.prefix+name, value, reason)
}

func (c *checker) check() {
	t := c.topology
	if t.Kind != KindTree && len(t.Switches) > 0 {
		c.text.FaultIn(lockstep.ErrInvalid, c.prefix+"Switches", "", "only a tree has switches")
	}
	if t.Kind != KindBlock && len(t.Blocks)+len(t.Sizes) > 0 {
		c.text.FaultIn(lockstep.ErrInvalid, c.prefix+"Blocks", "", "only a block topology has blocks and sizes")
	}
	switch t.Kind {
	case KindTree:
		c.tree()
	case KindBlock:
		c.blocks()
	case KindFlat:
	default:
		c.text.FaultIn(lockstep.ErrInvalid, c.prefix+"Kind", string(t.Kind), "want tree, block or flat")
	}
}

// names checks the names of a list and returns which item has each.
func (c *checker) names(list string, n int, name func(int) string) map[string]int {
	index := make(map[string]int, n)
	for i := range n {
		s := name(i)
		reason := source.NameFault(s)
		if reason == "" && len(s) > maxName {
			reason = "must be at most " + strconv.Itoa(maxName) + " bytes"
		}
		if reason != "" {
			c.fault(lockstep.ErrInvalid, list, i, "Name", 0, s, reason)
		}
		if _, ok := index[s]; ok {
			c.fault(lockstep.ErrDuplicate, list, i, "Name", 0, s, "is the name of another one")
			continue
		}
		index[s] = i
	}
	return index
}

// members checks the nodes of an item, of which owner knows those of others.
func (c *checker) members(list string, i int, nodes []string, owner map[string]int, name func(int) string) {
	for j, node := range nodes {
		if reason := source.NameFault(node); reason != "" {
			c.fault(lockstep.ErrInvalid, list, i, "Nodes", j, node, reason)
		}
		if o, ok := owner[node]; ok {
			c.fault(lockstep.ErrDuplicate, list, i, "Nodes", j, node, "is a node of "+name(o)+" already")
			continue
		}
		owner[node] = i
	}
}

func (c *checker) tree() {
	t := c.topology
	if len(t.Switches) == 0 {
		c.field("Switches", "", "a tree needs switches")
		return
	}
	name := func(i int) string { return t.Switches[i].Name }
	index := c.names("Switches", len(t.Switches), name)
	owner := make(map[string]int)
	parent := make([]int, len(t.Switches))
	for i := range parent {
		parent[i] = -1
	}
	for i := range t.Switches {
		s := &t.Switches[i]
		switch {
		case len(s.Switches) > 0 && len(s.Nodes) > 0:
			c.fault(lockstep.ErrInvalid, "Switches", i, "Nodes", -1, "", "a switch has either switches or nodes below it")
		case len(s.Switches) == 0 && len(s.Nodes) == 0:
			c.fault(lockstep.ErrInvalid, "Switches", i, "Name", 0, s.Name, "a switch needs switches or nodes below it")
		}
		c.members("Switches", i, s.Nodes, owner, name)
		for j, child := range s.Switches {
			k, ok := index[child]
			switch {
			case !ok:
				c.fault(lockstep.ErrUnknown, "Switches", i, "Switches", j, child, "there is no switch of that name")
			case parent[k] >= 0:
				c.fault(lockstep.ErrDuplicate, "Switches", i, "Switches", j, child, "is below "+name(parent[k])+" already")
			default:
				parent[k] = i
			}
		}
	}
	c.cycles(parent)
}

// cycles reports one switch of each cycle, and switches that are too deep.
func (c *checker) cycles(parent []int) {
	depth := make([]int, len(parent)) // 0 where not known
	walk := make([]int, len(parent))  // 1 + the switch from which a walk came by
	var way []int
	for i := range parent {
		way = way[:0]
		at := i
		for at >= 0 && depth[at] == 0 && walk[at] == 0 {
			walk[at] = i + 1
			way = append(way, at)
			at = parent[at]
		}
		d := 0
		if at >= 0 {
			d = depth[at]
		}
		if at >= 0 && d == 0 { // came by in this walk
			c.fault(lockstep.ErrInvalid, "Switches", at, "Name", 0, c.topology.Switches[at].Name, "is below itself")
			for _, s := range way {
				depth[s] = 1
			}
			continue
		}
		for k := len(way) - 1; k >= 0; k-- {
			d++
			depth[way[k]] = d
			if d == maxTiers+1 {
				c.fault(lockstep.ErrInvalid, "Switches", way[k], "Name", 0, c.topology.Switches[way[k]].Name, "is deeper than "+strconv.Itoa(maxTiers)+" switches")
			}
		}
	}
}

func (c *checker) blocks() {
	t := c.topology
	if len(t.Blocks) == 0 {
		c.field("Blocks", "", "a block topology needs blocks")
		return
	}
	name := func(i int) string { return t.Blocks[i].Name }
	c.names("Blocks", len(t.Blocks), name)
	owner := make(map[string]int)
	for i := range t.Blocks {
		nodes := t.Blocks[i].Nodes
		if len(nodes) == 0 {
			c.fault(lockstep.ErrInvalid, "Blocks", i, "Name", 0, name(i), "a block needs nodes")
		} else if len(t.Sizes) > 0 && len(nodes) < t.Sizes[0] {
			c.fault(lockstep.ErrInvalid, "Blocks", i, "Nodes", -1, strconv.Itoa(len(nodes))+" nodes", "want at least as many as the first of the sizes says, "+strconv.Itoa(t.Sizes[0]))
		}
		c.members("Blocks", i, nodes, owner, name)
	}
	for i, size := range t.Sizes {
		switch {
		case size < 1 || size > source.MaxHosts:
			c.field("Sizes", strconv.Itoa(size), "want 1 to "+strconv.Itoa(source.MaxHosts))
			return
		case i > 0 && (size <= t.Sizes[i-1] || size%t.Sizes[0] != 0 || bits.OnesCount(uint(size/t.Sizes[0])) != 1):
			c.field("Sizes", strconv.Itoa(size), "want the first size times a power of two, greater than the one before")
			return
		case i == maxTiers:
			c.field("Sizes", strconv.Itoa(len(t.Sizes))+" sizes", "at most "+strconv.Itoa(maxTiers))
			return
		}
	}
}
