// Package labels makes a topology of the labels of Kubernetes nodes.
//
// # Model
//
// A [Config] lists label keys, coarsest first; each is a level, and the value of a
// node's label names the domain that it is in. Values count within the domain
// above: racks r1 of two zones are two racks. The label [Clique], which NVIDIA's
// feature discovery writes, is the NVLink domain of a node, the UUID of the cluster
// and the number of the clique with a dot between them; the UUID of all zeros means
// that it is in none. Lists of keys that others write come with [EKS], [GKE] and
// [Topograph].
//
// # Usage
//
//	nodes, err := labels.Parse(r) // kubectl get nodes -o json
//	levels, placed, err := labels.Inputs(labels.Config{Keys: labels.EKS()}, nodes)
//	tree, err := topology.New(levels, placed)
//
// A host that watches nodes fills in [Node] values itself.
//
// # Order of decision
//
// Nodes keep their order.
//
// # Errors
//
// All faults are returned joined, at most 64, each a [*lockstep.Error]. [Parse]
// says line and column in bytes: ErrInvalid for what is not JSON of that form, for
// a node without a name or with a bad one, and for a node that takes more than 4
// MiB; ErrDuplicate for a name given twice. [Inputs] names fields: ErrInvalid for a
// value that can be no name, a clique that is none, and a label that is missing
// where [Refuse] asks for it; ErrDuplicate for a key given twice, and for a value
// below two domains where the key is to be unique. An error of the reader is
// wrapped.
//
// # Concurrency
//
// The package keeps nothing.
//
// # Cost
//
// O(bytes) and O(nodes × keys) time; Parse keeps one node's text at a time.
//
// # Limits
//
// At most 1,048,576 nodes. Shapes are the caller's to fill in, as Kubernetes does
// not say how the devices of a node are joined. The keys are those of the sources'
// documentation as of 2026; any others will do.
package labels
