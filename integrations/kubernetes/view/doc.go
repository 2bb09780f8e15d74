// Package view turns the objects of a Kubernetes cluster into the values of this
// library, and plans back into bindings. It decides nothing.
//
// # Model
//
//   - Cluster: nodes become a topology.Tree by their labels, and placement.Nodes by
//     what they have allocatable, less what pods of others take. MIG instances, which
//     a node counts and does not place, are laid out on devices made up for them so
//     that a placer hands out exactly as many as there are.
//   - gang: the pods of a namespace that name it in the annotation lockstep.dev/gang
//     or as their scheduling group; a pod that names none is one by itself, and so is
//     a bound pod of others that has devices. A PodGroup of that name wins over what
//     the pods say. Annotations lists what can be said.
//   - Assembler: takes pods and groups as they change, in any order, and tells which
//     gangs are touched; State is how one stands: from Incomplete or Gated over Ready
//     to Placed, or Partial where fewer than its least are bound.
//   - Bindings: a plan becomes a list of pods with nodes, whose rank, world size and
//     attempt travel in the Binding object, so they cost no write of their own.
//   - Seats: what is bound when a host starts becomes plans to adopt, with devices
//     made up where Kubernetes names none.
//
// Invariants: a gang has a Gang to submit if and only if nothing it says is wrong and
// its least members exist; pods are in rank order, role by role; a pod that was bound
// with a number keeps it while it lives; what is malformed holds its own gang, and is
// told by a *Fault that names object, key and value; what is bound is seen in any case,
// so its room can be held. The same objects give the same states, in whatever order
// they came.
//
// # Usage
//
//	cluster, err := cfg.Cluster(view.Inputs{Nodes: nodes, Foreign: gangs.Foreign()})
//	err = gangs.Upsert(pod) // a *Fault is to be told to the pod's owner
//	for _, id := range gangs.Take().Gangs { state, ok := gangs.State(id) }
//	bindings, err := view.Bindings(state, &plan, attempt)
//
// # Order of decision
//
// Pods of a role: by the number they were bound with; else by the one they say; the
// rest fill the gaps by name, numbers in names compared as numbers, then UID. Roles:
// role-order, then name. Nodes: by name. Of what pods of a gang say, the first in
// rank order is taken and the others must agree; of spec.priority, grace and deadline
// the highest counts. Dialects: as Config.Aliases lists them.
//
// # Errors
//
// *Fault, which wraps a *lockstep.Error: ErrInvalid, ErrUnknown for a level that there
// is not, ErrDuplicate for a rank that two pods have or a domain in two places,
// ErrConflict for pods that contradict each other. Bindings and Observe say theirs.
// "Does not fit" is no matter of this package.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. States, clusters and
// plans are immutable or the caller's, as each says.
//
// # Cost
//
// Upsert is O(containers + log members), and about 7 µs of CPU time and 600 bytes a pod
// (BenchmarkStart, TestMemoryOfAPod); State is O(members·log members) after a change
// and free otherwise; Cluster is O(nodes·(keys + labels)) (BenchmarkCluster).
//
// # Limits
//
// Not looked at: volumes and where they can be attached, host ports, preferred
// affinities, disruption budgets, ephemeral storage, PreferNoSchedule taints.
// Refused, since it could not be kept: required spreading, affinity of members to
// their own gang, selectors that compare numbers, alternatives other than values of
// one label, resources that nobody counts. A toleration of every key for one effect
// tolerates nothing. A node has devices of one model; which of them a pod gets, the
// kubelet says, unless claims do (package dra). Composite PodGroups are not read.
package view
