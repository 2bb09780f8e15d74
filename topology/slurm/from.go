package slurm

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// TreeOf returns a tree of switches for the nodes of t: a switch for each domain
// that has a name and holds a node, with the nodes of a lowest domain below it. A
// node whose lowest domain has no name gets a switch of its own, named after it,
// since in Slurm a switch with switches below has no nodes. The root, unless it is
// "", is a switch over all; without it jobs span domains of the first level only
// where Slurm lets them. A name that several domains have is led by the parent's,
// "block1.rack1". Switches come finest first, in the order of t. It returns what
// Validate does, and ErrInvalid for a t without levels where there is no root.
func TreeOf(t *topology.Tree, root string) (*Topology, error) {
	const op = "slurm: tree of"
	m := maker{tree: t, index: make(map[domain]int), count: make(map[string]int)}
	lowest := t.Levels() - 2
	if root != "" {
		m.add(domain{0, 0}, -1, root)
	} else if lowest == 0 {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "root", Reason: "want a root, the tree has no levels"}
	}
	for slot := range int32(t.Slots()) {
		node, ok := t.Node(slot)
		if !ok {
			continue
		}
		parent := -1
		if root != "" {
			parent = 0
		}
		for i, name := range node.Path {
			if name != "" {
				parent = m.add(domain{i + 1, t.DomainOf(i+1, slot)}, parent, name)
			}
		}
		if lowest > 0 && node.Path[lowest-1] == "" {
			parent = m.add(domain{lowest + 1, slot}, parent, string(node.ID))
		}
		m.switches[parent].nodes = append(m.switches[parent].nodes, string(node.ID))
	}
	out := m.topology()
	if err := out.validate(op); err != nil {
		return nil, err
	}
	return out, nil
}

// domain names a domain of a tree.
type domain struct {
	level int
	d     int32
}

// made is a switch being made.
type made struct {
	domain
	name     string
	parent   int
	children []int
	nodes    []string
}

// maker makes switches of domains, parents first.
type maker struct {
	tree     *topology.Tree
	switches []made
	index    map[domain]int
	count    map[string]int // how many switches have a name
}

// add returns the switch of a domain, which it makes where there is none.
func (m *maker) add(d domain, parent int, name string) int {
	i, ok := m.index[d]
	if !ok {
		i = len(m.switches)
		m.index[d] = i
		m.count[name]++
		m.switches = append(m.switches, made{domain: d, name: name, parent: parent})
		if parent >= 0 {
			m.switches[parent].children = append(m.switches[parent].children, i)
		}
	}
	return i
}

func (m *maker) topology() *Topology {
	for i := range m.switches { // parents first
		s := &m.switches[i]
		if m.count[s.name] > 1 && s.parent >= 0 {
			s.name = m.switches[s.parent].name + "." + s.name
		}
	}
	out := &Topology{Kind: KindTree}
	for level := m.tree.Levels() - 1; level >= 0; level-- {
		for i := range m.switches { // of a level in the order of the tree
			s := &m.switches[i]
			if s.level != level {
				continue
			}
			sw := Switch{Name: s.name, Nodes: s.nodes}
			for _, c := range s.children {
				sw.Switches = append(sw.Switches, m.switches[c].name)
			}
			out.Switches = append(out.Switches, sw)
		}
	}
	return out
}

// BlocksOf returns a block topology for the nodes of t: a block for each domain of
// a level that holds a node, in the order of t, with the sizes given. A name that
// several domains have is led by its number, "3.rack1". It returns what Validate
// does, and ErrUnknown for a level that t does not have.
func BlocksOf(t *topology.Tree, level lockstep.Level, sizes ...int) (*Topology, error) {
	const op = "slurm: blocks of"
	at, ok := t.LevelIndex(level)
	if !ok {
		return nil, &lockstep.Error{Kind: lockstep.ErrUnknown, Op: op, Field: "level", Value: source.Quote(string(level)), Reason: "the tree has no level of that name"}
	}
	out := &Topology{Kind: KindBlock, Sizes: append([]int(nil), sizes...)}
	count := make(map[string]int)
	for d := range int32(t.Domains(at)) {
		b := Block{Name: t.DomainName(at, d)}
		first, end := t.Range(at, d)
		for slot := first; slot < end; slot++ {
			if id, ok := t.NodeAt(slot); ok {
				b.Nodes = append(b.Nodes, string(id))
			}
		}
		if len(b.Nodes) > 0 {
			count[b.Name]++
			out.Blocks = append(out.Blocks, b)
		}
	}
	for i := range out.Blocks {
		if b := &out.Blocks[i]; count[b.Name] > 1 {
			b.Name = strconv.Itoa(i) + "." + b.Name
		}
	}
	if err := out.validate(op); err != nil {
		return nil, err
	}
	return out, nil
}
