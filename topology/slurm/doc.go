// Package slurm reads and writes the topology files of Slurm.
//
// # Model
//
// A [Topology] is a tree of switches, base blocks that pair up, or flat, as the
// plugins topology/tree, topology/block and topology/flat have it. A topology.conf
// holds one, a topology.yaml a list of them with names. Names of nodes and
// switches come as host lists, which [Expand] expands and [Fold] writes. A valid
// tree has no cycle, and every switch and node is below one switch at most, though
// Slurm itself lets nodes be below several.
//
// # Usage
//
//	t, err := slurm.Parse(r)
//	levels, nodes, err := t.Inputs()
//	tree, err := topology.New(levels, nodes)
//
// and back:
//
//	t, err := slurm.TreeOf(tree, "core")
//	err = t.Write(w)
//
// # Order of decision
//
// Lists keep the order of the text. [Topology.Inputs], [TreeOf] and [BlocksOf] say
// in which order their results come.
//
// # Errors
//
// The readers return all faults joined, at most 64, each a [*lockstep.Error] whose
// Field says line and column in bytes: ErrInvalid for what is not of the form, an
// item without members, one of too many, a cycle; ErrUnknown for a switch that is
// not there; ErrDuplicate for a name, key or member given twice. They stop at the
// first fault of an item, and look at items together only where each is right.
// [Topology.Validate] and the writers name fields instead. An error of the reader
// is wrapped, one of the writer returned.
//
// # Concurrency
//
// Topologies are plain values; the package keeps nothing.
//
// # Cost
//
// O(bytes + names) time and memory.
//
// # Limits
//
// A text names at most 1,048,576 nodes, switches and blocks, those in lists
// included, and the names of one list take at most 64 MiB; a line has at most 4
// MiB. Switches nest 16 deep, as levels of topology.New. Rings and tori are not
// read, nor Include lines. Of YAML these are read: mappings and lists by indent,
// lists of texts in brackets on one line, texts on one line, plain or in quotation
// marks with \" and \\, comments, and --- at the beginning. Rules followed are
// those of the manual pages topology.conf(5) and topology.yaml(5) of Slurm 26.11.
package slurm
