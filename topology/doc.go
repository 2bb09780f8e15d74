// Package topology says how far apart two devices are and what contains what.
//
// # Model
//
// A [Tree] holds the nodes of a cluster as the leaves of a tree of domains. Its levels run
// from 0, the whole cluster, over those that the host names (zone, block, rack, NVLink
// domain, leaf switch) to single nodes. Leaves are slots in depth-first order; a slot
// holds a node or is vacant. Always:
//
//   - the domains of a level partition the slots into ranges, in order, and so do
//     the children of a domain its range;
//   - no domain is empty of slots but the cluster of a tree without any, and level
//     and index of a domain say all that is needed to name it;
//   - a Tree never changes. [Tree.With] gives the tree after nodes joined, left or
//     were re-cabled, which shares what is equal. Where it keeps the layout, every
//     slot, domain and index means what it did; [Tree.Changes] tells.
//
// A [Shape] is how the devices of a kind of node are joined, a matrix of [Link] with NUMA
// node, nearest network card and rail of each device. A [Node] says where a node belongs
// by its path. An empty element of a path is a domain that holds just the next named one
// below, or the node: so a tree may be of uneven depth, and a fabric that is a forest is
// one tree whose roots are the first level.
//
// On a rail-optimised fabric device i of each node of a unit is on leaf switch i of the
// unit, its rail: [Level.Rails] marks the level of units, the shape has rails.
//
// Packages below this one read clusters (slurm, labels of Kubernetes, ibnet) and hosts
// (smi for nvidia-smi, nccl for its XML, nvml for this host).
//
// # Usage
//
//	tree, err := topology.New(
//		[]topology.Level{{Name: "rack", Bandwidth: 50e9}},
//		[]topology.Node{{ID: "a", Path: []string{"r0"}, Shape: topology.NVSwitch8()}})
//
// # Order of decision
//
// Slots: a domain stands where its first node does in the list given to [New], with its
// nodes in that order. A joining node takes the lowest vacant slot of its lowest domain;
// With says what a new layout looks like.
//
// Devices: [Shape.Closest] takes the least sum of pairwise cost, then the set that leaves
// the closest rest, then the lowest indices. [Shape.AppendOrder] takes the least sum along
// the path, then the least cost to close it, then the lowest indices. A link costs about
// the inverse of its bandwidth, in integers: n NVLinks 100,000/n, PIX 120,000, PXB
// 130,000, PHB 160,000, NODE 200,000, SYS 400,000. Ranks go node by node in the order of
// slots.
//
// [Distance] orders as Link does inside a node, then by level outside, where in a unit
// with rails those of one rail come first.
//
// # Errors
//
// New, [Uniform], [NewShape], [UniformShape], With and the JSON readers return all faults
// joined, up to 64 of them, each a [*lockstep.Error]: ErrInvalid for what can never be
// right, ErrDuplicate for a name given twice, ErrUnknown for a change to a node that is
// not there, and ErrConflict for reading JSON into a value that is not zero. Nothing else
// fails. A level, domain or slot that the tree does not have panics, or a slot reads as
// vacant; devices may be any.
//
// # Concurrency
//
// Trees and shapes are immutable and safe for concurrent use.
//
// # Cost
//
// With N slots and L levels: New is O(N·L) time and takes about 4·L + 100 bytes a slot,
// and 16 for each device with a name, beside the names that it is given. Reads are a few
// array reads, LCA and Distance O(L) in a cache line or two for each slot, and Slot one
// hash; none allocates but Node, String and MarshalJSON. With is O(N/64 + changes) where
// the layout is kept, else as New; Changes is O(N/256 + changes). A shape of up to 8
// devices, unless they are all joined alike, lays up all its answers when it is made,
// which takes a few milliseconds at most and 3 KiB.
//
// # Limits
//
// Bandwidth and latency decide nothing. At most 2^24 slots, 16 levels between the cluster
// and the nodes, 64 devices in a node, 65,536 rails in a unit. A link inside a node counts
// as nearer than any way out of it, also where NVLink leaves the node. Distance takes it
// that a node reaches all rails of its unit; [Tree.Estimate] looks. Orders of devices do
// not look at rails. The hash of node IDs is not seeded, so IDs are to come from the
// operator, not from tenants.
package topology
