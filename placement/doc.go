// Package placement decides which devices a gang gets, and keeps who holds what.
//
// # Model
//
// A State lies over a topology.Tree. Every node has devices, processor, memory,
// network endpoints and member slots; a member of a gang takes whole devices and
// amounts of the rest on one node, and always one slot. Fit finds a place and
// changes nothing; Apply takes a plan of the present version, all of it or none.
// These hold after every call:
//
//   - no device has two members, and no amount or slot of a node is given out
//     twice (a node that shrank under its members may be overdrawn until they go);
//   - all members of a gang sit in one domain of its required level, and each
//     inner group in one domain of the group's level;
//   - a call that returns an error has changed nothing.
//
// What-if is the same code: Mark, act, Rollback; only what was changed is undone.
//
// # Usage
//
//	state, err := placement.New(tree, placement.Config{})
//	verdict, err := state.Fit(&lockstep.Request{Gang: gang}, &plan)
//	if verdict.Feasible { err = state.Apply(&plan) }
//	err = state.Release(gang.ID)
//
// # Order of decision
//
// A domain's room for a role is counted in units: members below the level of the
// role's inner groups, whole groups in a domain of that level (its members divided
// by the size, rounded down) and, summed up, in coarser ones. A node's members are
// the least over the resources that the role asks for. A node counts only when
// it is open, healthy, not excluded, and meets classes, device memory, selectors,
// taints and affinities. Fit decides in this order:
//
//  1. Penalty. Nodes of the least class of penalty alone, then also of the next,
//     until the gang fits. The class of penalty p is the bit length of p.
//  2. Counts. The most members of each role if they fit, else the least, and then
//     roles in order as many more as fit, found by bisection.
//  3. Level. The finest first, from the preferred level, or from nodes where none
//     is preferred, to the required level, or the cluster. Spread begins at the
//     required level where none is preferred. Preferred finer than required holds.
//  4. Domain, by the first role in packing order (most devices, CPU, memory,
//     endpoints, then role order). Pack: least units that suffice; Spread: most
//     units; ties to the lowest index. Among nodes, for both: a node with members
//     on it, least units, then fewest free devices, then lowest slot; if there is
//     none, an idle node, of the lowest domain (the level above nodes) with least
//     room, then lowest index, and in it by the same terms.
//  5. Inside the domain, level by level. Pack: the child with least units that
//     hold all that is left, if any; else the child with most units takes all it
//     can, and again. Nodes: for the last part one in use before an idle one, then
//     least units; for a full part most units, then one in use; then fewest free
//     devices; ties to the lowest index. Spread: every child the same number, or
//     all it can hold; those left over to the children with most units, ties to
//     the lowest index; inside an inner group's domain as Pack.
//  6. Devices of each member in turn: topology.Shape.Closest of those free.
//  7. Ranks: role by role, in slot order.
//
// Several roles go into one domain in packing order, each on what those before
// left; a domain that does not take them so is passed over for the next in order
// of step 4, then the next level. With Prefer, steps 1 and 2 are the same; then
// members that may stay, by whole inner groups, in the domain of the required
// level that holds most of them (ties to the lowest), keep node and devices, and
// the others go into the finest domain around them that takes them; where that
// fails, Prefer is without effect.
//
// Explain counts for each node the first that rules it out: cordoned, unhealthy,
// excluded, device, selector, taint, affinity, capacity, busy. Its changes, in
// this order: the finest coarser level that fits; as many members as fit; no
// constraints; fewest nodes to open; fewest nodes to free; what to add.
//
// # Errors
//
// Fit, Explain and Room return ErrInvalid and ErrUnknown; Apply and Adopt also
// ErrDuplicate and ErrConflict, Apply ErrStale; Rollback and Commit ErrStale;
// calls that name a node or a job ErrUnknown; Restore ErrInvalid and ErrConflict.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. Plans, verdicts and
// explanations are the caller's.
//
// # Cost
//
// A kind of demand (what a role needs, its constraints and groups) is indexed when
// it is first asked for: O(nodes) time and about 4 bytes a node. From then on Fit
// costs O(levels + nodes of the plan + slots changed since), Apply and Release
// O(members), Rollback what was changed, Rebase O(nodes changed). Several roles
// cost that for each domain tried. None of Fit, Apply, Release allocates once
// warm. The benchmarks are BenchmarkDecision and BenchmarkLargeGang.
//
// # Limits
//
// For a single role the answer is exact: it fits if and only if a domain has room
// in units as above. Several roles are packed greedily; that is exact where all
// take whole nodes, or all ask for the same, under the same constraints and
// without inner groups, and may miss a packing otherwise. ChangeFree and ChangeOpen
// are the fewest nodes for a single role without inner groups above nodes, else
// few; every change named was tried, ChangeAdd excepted. Shares of a device are
// refused with ReasonUnsupported. A node takes at most MaxSlots members, a tree
// has at most 18 levels and 2^21-1 slots. Members of the same gang do not count
// for its own affinities.
package placement
