// Package quota decides whether a queue may use so much now, and from whom room may be taken for it: a tree of queues
// with nominal quotas, borrowing and lending. It implements gang.Quota, and gang's Reclaimer. A flat list of tenants
// with weights is the special case without a tree.
//
// # Model
//
// A gang is charged to the leaf that its Queue names; where that is empty, to the one named as its Tenant. It needs
// what Demand.Resources says of its members, and room for its spares. For each resource in Config.Capacity (others are
// not limited), in its own unit, a queue has
//
//   - a nominal quota: its own figure, or a part by weight of what is left of the parent's, by largest remainder. If
//     figures add up to more than the parent has, all are cut by the same fraction, guarantees last, so that nominal
//     quotas never add up to more;
//   - what it keeps: its Guarantee, or nominal less LendLimit if more. That is never lent;
//   - a limit: the lesser of Max and nominal plus BorrowLimit;
//   - a load: what its jobs use, or its queues hold, where a queue holds its load or, if more, what it keeps. It
//     borrows what its load exceeds nominal by;
//   - a share: its part of the parent's share, the capacity at the top. First each queue gets what it wants of its
//     nominal quota, then what is left is poured by weight until each has what it wants (weighted max-min): those with
//     a weight before those of weight 0, higher tiers before lower. It wants what its jobs demand, within its limit. A
//     job demands what Demand told or, if more, what it is charged with; if nobody tells, what it is charged with.
//
// As others have it: Kueue's nominalQuota, borrowingLimit, lendingLimit and fair weight are Nominal, BorrowLimit,
// LendLimit and Weight, where a cohort's Nominal counts its queues' too; Volcano's guarantee <= deserved <= capability
// are Guarantee, Nominal and Max; KAI's quota, over-quota weight, limit and priority are Nominal, Weight, Max and
// Tier.
//
// Invariants: used is the sum of charges; Charge and Refund of one job cancel; shares of siblings add up to the lesser
// of the parent's and what they want, exactly.
//
// # Usage
//
//	q, err := quota.New(quota.Config{
//		Capacity: lockstep.Resources{lockstep.ResourceGPU: 64_000},
//		Queues:   []quota.Queue{{Name: "vision", Weight: 3}, {Name: "speech", Weight: 1}},
//	})
//	err = q.Demand(gang, nil)         // it waits
//	if v := q.Check(gang, nil); v.Feasible {
//		err = q.Charge(gang, nil) // or, if there is no room, q.Reclaim(gang, nil, &candidates)
//	}
//	err = q.Refund(gang.ID)           // evicted; q.Withdraw(gang.ID) when it is over
//
// # Order of decision
//
// Check: a gang may run if, up to the top, each queue stays within its limit and uses what it keeps or what is free in
// its parent; or has a right to it, since it comes to no more than nominal or share. By right it may run even where
// others borrowed all: the placer finds no room, and Reclaim says whose to take. Room that others below the same
// parent must make is counted on only while nobody else keeps idle room, which it would be placed in: else ask
// Reclaim, then CheckAfter. A verdict names the first resource, by name, that does not suffice, the queue that limits
// it, and how many members fit, in rank order.
//
// Reclaim: of jobs that are Preemptible, those of lower priority in the gang's queue, and those in queues from which
// it may take back. Let a be where the two meet. The gang's side, up to below a, must come to no more than nominal or
// share. The other side, from below a down, keeps its nominal quota, and its share too unless the gang's side comes to
// no more than nominal: Limits see to that in each resource of which the gang cannot borrow enough (all it needs, if
// there is none). Shares here are those against a queue that wants all. Order: other queues' jobs first; weight 0,
// lower tier (of the side), lower priority, newest.
//
// CheckAfter: Check with what evictions give back, and nobody is evicted so that another may borrow.
//
// Whom a job displaced cannot displace it. Say j of queue q took the room of i, of queue v, in a resource that q was
// short of. Where q's side came to no more than nominal, that protects it. Else v kept its nominal quota, and may only
// claim a share that is larger than what it has, hence than the one it lost by: it had not got what it wants. Who has
// not changes nothing by wanting more, so the share it lost by was against both wanting all. Were j to be had now, q
// would hold more than its share against v wanting all, would not have got what it wants either, and so that is the
// same share; but j was let in within it. So j stays until demands, rules or charges change. Without such changes,
// random trees whose demands are told came to rest: with one resource always (10^6 trees), with two all but 2 in 10^6,
// where three jobs took turns by priority in one resource and by share in the other.
//
// # Errors
//
// lockstep.ErrInvalid for what is out of range, a parent that cannot be, a damaged snapshot; ErrDuplicate for a queue
// named or a job charged twice; ErrUnknown for what is not there; ErrConflict for a queue that has jobs, or queues
// under it, and must not, and for a job in another queue. Check answers with a verdict: lockstep.ReasonQuota, also
// where there is no such queue.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Check, Charge, Refund and Demand are O((roles + depth) × resources); Check allocates nothing. Shares are divided
// when asked for, where demands changed: O(k log k) for k siblings. Reclaim is O(queues + candidates), sorted, Limits
// excepted. A change of queues or capacity is O(queues log queues × resources). Memory is O(queues + jobs).
//
// # Limits
//
// Gangs must be valid. Charge records what it is told, above quota too, since what runs must be counted. Resources are
// divided one by one; see package drf. Sources: max-min by water-filling, Bertsekas and Gallager, Data Networks, 1992,
// section 6.5.2; borrowing as in Kueue (commit ff69552), where a subtree's unused guarantee counts as used above it.
// Complaints from the trackers of Kueue, Volcano and KAI are tests by number in reclaim_test.go.
package quota
