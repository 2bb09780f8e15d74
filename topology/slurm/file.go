package slurm

import (
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// ParseYAML reads a topology.yaml. It returns ErrInvalid, ErrDuplicate or
// ErrUnknown as Parse does, for each fault that it finds, joined.
func ParseYAML(r io.Reader) ([]Topology, error) { return parseYAML(r, source.MaxHosts) }

func parseYAML(r io.Reader, limit int) ([]Topology, error) {
	root, text := readYAML("slurm: parse YAML", r)
	f := fileReader{text: text, limit: limit}
	switch {
	case text.Faulty():
	case root == nil:
		text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want a list of topologies")
	default:
		f.topologies(root)
	}
	if err := text.Err(); err != nil {
		return nil, err
	}
	return f.out, nil
}

// fileReader makes topologies of the values of a topology.yaml.
type fileReader struct {
	text  *source.Text
	limit int // names that may still come
	out   []Topology
}

// want reports whether v is of a kind, and notes a fault where it is not.
func (f *fileReader) want(v *value, at source.Pos, kind byte, what string) bool {
	if v != nil && v.kind == kind {
		return true
	}
	if v != nil {
		at = v.at
	}
	f.text.FaultAt(lockstep.ErrInvalid, at, "", "want "+what)
	return false
}

// each calls item for each entry of a list of mappings.
func (f *fileReader) each(v *value, at source.Pos, what string, item func(*value)) {
	if !f.want(v, at, 'l', "a list of "+what) {
		return
	}
	for _, m := range v.items {
		if f.want(m, v.at, 'm', "a mapping") {
			item(m)
		}
	}
}

func (f *fileReader) unknown(e entry) {
	f.text.FaultAt(lockstep.ErrInvalid, e.at, e.key, "no such key is known here")
}

func (f *fileReader) topologies(root *value) {
	names := make(map[string]bool)
	f.each(root, root.at, "topologies", func(m *value) {
		t := Topology{}
		c := checker{text: f.text, topology: &t, whole: m.at}
		for _, e := range m.entries {
			f.entry(&t, &c, e)
		}
		reason := source.NameFault(t.Name)
		switch {
		case f.text.Faulty():
			return
		case reason != "":
			f.text.FaultAt(lockstep.ErrInvalid, c.whole, t.Name, "want the key topology with a name: "+reason)
		case names[t.Name]:
			f.text.FaultAt(lockstep.ErrDuplicate, c.whole, t.Name, "names two topologies")
		case t.Kind == "":
			f.text.FaultAt(lockstep.ErrInvalid, c.whole, t.Name, "want one of the keys tree, block and flat")
		default:
			c.check()
		}
		names[t.Name] = true
		f.out = append(f.out, t)
	})
	if !f.text.Faulty() && len(f.out) == 0 {
		f.text.FaultAt(lockstep.ErrInvalid, root.at, "", "want at least one topology")
	}
}

// entry reads a key of a topology.
func (f *fileReader) entry(t *Topology, c *checker, e entry) {
	switch e.key {
	case "topology":
		t.Name, c.whole = f.string(e)
	case "cluster_default":
		t.Default = f.bool(e)
	case "flat":
		if f.bool(e) {
			f.kind(t, KindFlat, e)
		}
	case "tree":
		f.kind(t, KindTree, e)
		f.tree(t, c, e)
	case "block":
		f.kind(t, KindBlock, e)
		f.block(t, c, e)
	case "ring", "torus3d":
		f.text.FaultAt(lockstep.ErrInvalid, e.at, e.key, "rings and tori are not read")
	default:
		f.unknown(e)
	}
}

// kind sets the kind of a topology, once.
func (f *fileReader) kind(t *Topology, kind Kind, e entry) {
	if t.Kind != "" {
		f.text.FaultAt(lockstep.ErrInvalid, e.at, e.key, "the topology is of kind "+string(t.Kind)+" already")
		return
	}
	t.Kind = kind
}

func (f *fileReader) string(e entry) (string, source.Pos) {
	if !f.want(e.value, e.at, 's', "a text") {
		return "", e.at
	}
	return e.value.scalar, e.value.at
}

func (f *fileReader) bool(e entry) bool {
	s, at := f.string(e)
	switch s {
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	f.text.FaultAt(lockstep.ErrInvalid, at, s, "want true or false")
	return false
}

// list reads a host list.
func (f *fileReader) list(e entry) ([]string, source.Pos) {
	s, at := f.string(e)
	if s == "" {
		f.text.FaultAt(lockstep.ErrInvalid, at, "", "want a host list")
		return nil, at
	}
	names, offset, reason := expand(s, f.limit)
	if reason != "" {
		if !e.value.quoted { // else marks shift the columns
			at.Column += offset
		}
		f.text.FaultAt(lockstep.ErrInvalid, at, s[offset:], reason)
		return nil, at
	}
	f.limit -= len(names)
	return names, at
}

func (f *fileReader) tree(t *Topology, c *checker, e entry) {
	if !f.want(e.value, e.at, 'm', "a mapping with the key switches") {
		return
	}
	for _, e := range e.value.entries {
		if e.key != "switches" {
			f.unknown(e)
			continue
		}
		f.each(e.value, e.at, "switches", func(m *value) {
			s, at := Switch{}, position{name: m.at}
			for _, e := range m.entries {
				switch e.key {
				case "switch":
					s.Name, at.name = f.string(e)
				case "children":
					s.Switches, at.list = f.list(e)
				case "nodes":
					s.Nodes, at.list = f.list(e)
				default:
					f.unknown(e)
				}
			}
			t.Switches = append(t.Switches, s)
			c.positions = append(c.positions, at)
		})
	}
}

func (f *fileReader) block(t *Topology, c *checker, e entry) {
	if !f.want(e.value, e.at, 'm', "a mapping with the keys block_sizes and blocks") {
		return
	}
	for _, e := range e.value.entries {
		switch e.key {
		case "block_sizes":
			t.Sizes = f.sizes(e)
			c.sizes = e.at
		case "blocks":
			f.each(e.value, e.at, "blocks", func(m *value) {
				b, at := Block{}, position{name: m.at}
				for _, e := range m.entries {
					switch e.key {
					case "block":
						b.Name, at.name = f.string(e)
					case "nodes":
						b.Nodes, at.list = f.list(e)
					default:
						f.unknown(e)
					}
				}
				t.Blocks = append(t.Blocks, b)
				c.positions = append(c.positions, at)
			})
		default:
			f.unknown(e)
		}
	}
}

func (f *fileReader) sizes(e entry) (sizes []int) {
	if !f.want(e.value, e.at, 'l', "a list of sizes") {
		return nil
	}
	for _, v := range e.value.items {
		if !f.want(v, e.at, 's', "a number") {
			continue
		}
		n, err := strconv.ParseInt(v.scalar, 10, 32)
		if err != nil {
			f.text.FaultAt(lockstep.ErrInvalid, v.at, v.scalar, "want a number of 32 bits")
		}
		sizes = append(sizes, int(n))
	}
	return sizes
}
