package slurm

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Write writes t as a topology.conf, which Parse reads back into an equal
// Topology but for Name and Default. It writes nothing and returns what Validate
// does where t is not valid, and ErrInvalid for a flat one, which topology.conf
// has no words for; an error of w is returned as it is.
func (t *Topology) Write(w io.Writer) error {
	if err := t.validate("slurm: write"); err != nil {
		return err
	}
	var b bytes.Buffer
	switch t.Kind {
	case KindFlat:
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "slurm: write", Field: "Kind", Value: string(t.Kind), Reason: "want tree or block"}
	case KindTree:
		for i := range t.Switches {
			s := &t.Switches[i]
			b.WriteString("SwitchName=" + s.Name)
			if len(s.Switches) > 0 {
				b.WriteString(" Switches=" + Fold(s.Switches))
			} else {
				b.WriteString(" Nodes=" + Fold(s.Nodes))
			}
			if s.LinkSpeed != 0 {
				b.WriteString(" LinkSpeed=" + strconv.FormatUint(uint64(s.LinkSpeed), 10))
			}
			b.WriteByte('\n')
		}
	case KindBlock:
		for i := range t.Blocks {
			b.WriteString("BlockName=" + t.Blocks[i].Name + " Nodes=" + Fold(t.Blocks[i].Nodes) + "\n")
		}
		if len(t.Sizes) > 0 {
			b.WriteString("BlockSizes=")
			for i, size := range t.Sizes {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strconv.Itoa(size))
			}
			b.WriteByte('\n')
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteYAML writes topologies as a topology.yaml, which ParseYAML reads back into
// equal ones but for LinkSpeed, which it has no words for. It writes nothing and
// returns what Validate does where one of them is not valid, ErrInvalid for none
// at all or a bad name, and ErrDuplicate for a name given twice; an error of w is
// returned as it is.
func WriteYAML(w io.Writer, topologies []Topology) error {
	f := source.New("slurm: write YAML", strings.NewReader(""))
	if len(topologies) == 0 {
		f.FaultIn(lockstep.ErrInvalid, "topologies", "", "want at least one")
	}
	names := make(map[string]bool, len(topologies))
	var b bytes.Buffer
	for i := range topologies {
		t := &topologies[i]
		prefix := "topologies[" + strconv.Itoa(i) + "]."
		if reason := source.NameFault(t.Name); reason != "" {
			f.FaultIn(lockstep.ErrInvalid, prefix+"Name", t.Name, reason)
		}
		if names[t.Name] {
			f.FaultIn(lockstep.ErrDuplicate, prefix+"Name", t.Name, "names two topologies")
		}
		names[t.Name] = true
		c := checker{text: f, topology: t, prefix: prefix}
		if c.check(); !f.Faulty() {
			t.appendYAML(&b)
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (t *Topology) appendYAML(b *bytes.Buffer) {
	b.WriteString("- topology: " + scalar(t.Name) + "\n")
	b.WriteString("  cluster_default: " + strconv.FormatBool(t.Default) + "\n")
	switch t.Kind {
	case KindFlat:
		b.WriteString("  flat: true\n")
	case KindTree:
		b.WriteString("  tree:\n    switches:\n")
		for i := range t.Switches {
			s := &t.Switches[i]
			b.WriteString("      - switch: " + scalar(s.Name) + "\n")
			if len(s.Switches) > 0 {
				b.WriteString("        children: " + scalar(Fold(s.Switches)) + "\n")
			} else {
				b.WriteString("        nodes: " + scalar(Fold(s.Nodes)) + "\n")
			}
		}
	case KindBlock:
		b.WriteString("  block:\n")
		if len(t.Sizes) > 0 {
			b.WriteString("    block_sizes:\n")
			for _, size := range t.Sizes {
				b.WriteString("      - " + strconv.Itoa(size) + "\n")
			}
		}
		b.WriteString("    blocks:\n")
		for i := range t.Blocks {
			b.WriteString("      - block: " + scalar(t.Blocks[i].Name) + "\n        nodes: " + scalar(Fold(t.Blocks[i].Nodes)) + "\n")
		}
	}
}

// scalar writes a text for YAML: as it is where it can be nothing else, so begins
// with a letter and is of letters, digits and a few signs, and is no word for a
// truth value or nothing; else in quotation marks. A valid name has none of those
// itself, nor a backslash.
func scalar(s string) string {
	c := s[0]
	plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	for i := range len(s) {
		switch c := s[i]; {
		case isKey(c), c == '-', c == '[', c == ']', c == ',', c == '/', c == '+':
		default:
			plain = false
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return `"` + s + `"`
}
