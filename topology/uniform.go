package topology

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// UniformConfig describes a cluster in which all domains of a level are alike.
// The zero UniformConfig is a cluster without nodes.
type UniformConfig struct {
	Levels []Level // Levels are as New takes them; nil means none between the cluster and the nodes.

	// Fanout says how many domains of the next level each domain holds, for every
	// level but the last: blocks in the cluster, racks in a block, nodes in a
	// rack. Each is at least 0; nil means a cluster without nodes.
	Fanout []int

	Shape *Shape // Shape is every node's devices; nil means none.
}

// Uniform returns the tree that cfg describes. Domains are named after their
// level and index, "rack-0", and nodes after their slot, "n0". It returns
// ErrInvalid for what New refuses, a Fanout of another length, more nodes than a
// tree may have, and a level whose name leaves no room for the index.
func Uniform(cfg UniformConfig) (*Tree, error) {
	f := faults{op: "topology: uniform"}
	levels := completeLevels(&f, "Levels", cfg.Levels)
	depth := len(levels) - 2
	if cfg.Fanout != nil && len(cfg.Fanout) != depth+1 {
		f.invalid("Fanout", strconv.Itoa(len(cfg.Fanout))+" entries", "want one a level above the nodes, "+strconv.Itoa(depth+1))
	}
	total := min(len(cfg.Fanout), 1)
	for i, n := range cfg.Fanout {
		switch {
		case n < 0:
			f.invalid("Fanout["+strconv.Itoa(i)+"]", strconv.Itoa(n), "must not be negative")
		case n > 0 && total > maxSlots/n || n > maxSlots:
			f.invalid("Fanout["+strconv.Itoa(i)+"]", strconv.Itoa(n), "at most "+strconv.Itoa(maxSlots)+" nodes")
			return nil, f.err()
		default:
			total *= n
		}
	}
	// No index is longer than the last node's.
	longest := lockstep.MaxIDLength - len("-") - len(strconv.Itoa(total))
	for i := range cfg.Levels {
		if name := string(cfg.Levels[i].Name); total > 0 && len(name) > longest && len(name) <= lockstep.MaxIDLength {
			f.invalid("Levels["+strconv.Itoa(i)+"].Name", quote(name), "at most "+strconv.Itoa(longest)+" bytes, so that its domains can be named")
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	t, _ := build(levels, uniformNodes(levels, cfg.Fanout, total, cfg.Shape)) // no two IDs are equal
	return t, nil
}

// uniformNodes lists the nodes; those of a lowest domain share their path.
func uniformNodes(levels []Level, fanout []int, total int, shape *Shape) []Node {
	// The IDs are cut from one text, since a million strings of their own cost
	// more than all else.
	text := make([]byte, 0, total*8)
	ends := make([]int, total)
	for i := range total {
		text = strconv.AppendInt(append(text, 'n'), int64(i), 10)
		ends[i] = len(text)
	}
	ids := string(text)
	nodes := make([]Node, total)
	var path []string
	for i, begin := 0, 0; i < total; i++ {
		path = uniformPath(path, levels, fanout, i)
		nodes[i] = Node{ID: lockstep.NodeID(ids[begin:ends[i]]), Path: path, Shape: shape}
		begin = ends[i]
	}
	return nodes
}

// uniformPath returns the path of node i: path, where i is not the first node of
// its lowest domain, since that is then its own as well.
func uniformPath(path []string, levels []Level, fanout []int, i int) []string {
	depth := len(fanout) - 1
	below := fanout[depth]
	if path != nil && i%below != 0 {
		return path
	}
	path = make([]string, depth)
	for l := depth; l > 0; l-- {
		path[l-1] = string(levels[l].Name) + "-" + strconv.Itoa(i/below)
		below *= fanout[l-1]
	}
	return path
}
