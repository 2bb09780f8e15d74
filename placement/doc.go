// Package placement decides which devices a gang gets, and keeps who holds what.
//
// # Model
//
// A State lies over a topology.Tree. A member of a gang takes devices, wholly, or a share and memory of each,
// or a MIG instance of one, amounts of processor, memory and network endpoints on one node, and always one
// member slot. Fit finds a place and changes nothing; Apply takes a plan of the present version, all of it or
// none. After every call: a device has one member, or shares of no more than all of it, or instances that its
// layout allows; nothing of a node is given out twice (a node that shrank under its members is overdrawn
// until they go); plans of Fit keep a gang in one domain of its required level and each inner group in one of
// the group's; a call that returned an error has changed nothing. What-if is the same code: Mark, act,
// Rollback; or a View, which is a copy.
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
// A domain's room for a role is counted in units: whole inner groups (members divided by the size, rounded
// down) in a domain of the level of its inner groups and their sum in coarser ones, members below. Fit
// decides in this order:
//
//  1. Penalty: nodes of the least class of penalty alone, then of the next as well, until the gang fits. The
//     class of penalty p is the bit length of p.
//  2. Counts: the most members if they fit, else the least, and then roles in order as many more as fit,
//     found by bisection.
//  3. Level: finest first, from the preferred level (nodes where none is; the required one for Spread, or
//     where preferred is coarser) to the required level, or the cluster. At each: the fastest class of
//     Request.Speeds, the next by itself, those two, and so on; then any.
//  4. Domain, by the first role in packing order (most devices, CPU, memory, endpoints, role order). Pack:
//     least units that suffice; Spread: most; ties to the lowest index. Nodes, for both: one in use, by least
//     units, fewest free devices, lowest slot; if there is none an idle one, of the lowest domain above nodes
//     by least room and index, and in it by the same terms.
//  5. Inside, level by level. Pack: the child with least units that hold all that is left, if any; else the
//     child with most units takes all it can, and again. Of nodes, for the last part one in use, then least
//     units; for a full part most units, then one in use; for both fewest free devices. Spread: every child
//     the same number or all it can hold, the odd ones to those with most units; inside an inner group's
//     domain as Pack. Ties to the lowest index. Of nodes for shares, instances, or all with Config.RankAll, 4
//     and 5 take the one that Rule prefers of those that hold all that is left; for a full part, of those
//     with most units; ties to the lowest slot.
//  6. Devices of each member in turn: topology.Shape.Closest of those free; then, where the tree has rails,
//     others as close that lower RailCost. Shares, instances: see Rule.
//  7. Ranks: role by role, in slot order. Spares, all or none: off the members' nodes if there is room, in
//     the finest domain around, within the required one.
//
// Several roles go into one domain in packing order, each on what those before left; a domain that does not
// take them is passed over for the next by 4 and 3. What Request.Prefer changes is with Fit, the order of
// reasons with Explain.
//
// # Errors
//
// All are *lockstep.Error but a reader's or writer's own. ErrInvalid and ErrUnknown: whatever takes a
// request, a node, a job or a tree. Also ErrDuplicate: New, Rebase, Apply, Adopt, Victims, Repack;
// ErrConflict: Apply, Adopt, Exchange, Restore; ErrStale: Apply, Rollback, Commit.
//
// # Concurrency and cost
//
// Not safe for concurrent use; the caller serializes calls. Plans, verdicts, explanations and views are the
// caller's.
//
// A kind of demand is indexed when first asked for, and again when Config.Views others were since: O(nodes).
// From then on Fit is O(levels + nodes of the plan + slots changed since), and allocates nothing, nor do
// Apply and Release (BenchmarkDecision, BenchmarkLargeGang); BenchmarkRefusal has what does not fit. Memory
// is about 210 bytes a node, 24 a member, and 4 a node for each kind; where there are shares 32 a node and 16
// a device more, and 16 a node for each kind of them. Each slot that changed costs such a kind O(devices),
// each step of Arrived O(nodes) (BenchmarkShare).
//
// # Limits
//
// For one role the answer is exact: it fits if and only if a domain has the units. Several roles are packed
// greedily: exact where all ask for the same, or for whole nodes that are alike, under the same constraints
// and without inner groups; else a packing may be missed. A gang does not count for its own affinities.
// Device memory has no hard caps; instances are placed, not made. At most 2^21-1 slots.
package placement
