// Package drf shares several resources by dominant resource fairness: an order of jobs that serves the tenant
// with the least dominant share, flat or in a tree, beside the fluid division that it approaches, and an order
// by finish-time fairness.
//
// # Model
//
// The share of a resource that a tenant uses is a part of the capacity; the greatest of them, over the
// tenant's weight, is its dominant share ([Dominant], a [Ratio], which compares by cross multiplication
// without rounding).
//
// A [Queue] knows tenants, jobs that wait and what jobs that run use. A pass (Begin, Next, Outcome; it is a
// gang.Orderer) proposes a job of the tenant with the least dominant share, and a grant counts at once.
// Tenants may stand under others. A tenant with others below it is compared by the sum of what those use, in
// which all that still have something to propose, and use something, are scaled down to the least share among
// them by weight: hierarchical DRF, which neither starves children with complementary needs nor leaves
// resources idle. Shares in a tree are in units of 2^-62, rounded down.
//
// Devices may have a price by class, in thousandths of a reference device, and jobs speed-ups by class
// instead, held within bounds ([Prices]): used and capacity are counted so.
//
// [Fluid] is what jobs that can be cut at will would get, exactly. [FinishTimes] orders jobs by [Rho], the
// time that they take over the time that they would take alone on their part.
//
// Invariants of Fluid, which tests hold it to: nobody can have more without another having less; nobody
// prefers another's part to its own, by weight; everybody has at least what its part of the capacity, by
// weight, would give it; nobody gains by misstating its needs; who leaves takes from nobody, where all need
// some of everything. It is not so that more capacity gives everybody more.
//
// # Usage
//
//	q, err := drf.New(drf.Config{
//		Capacity: lockstep.Resources{lockstep.ResourceGPU: 64_000, lockstep.ResourceCPU: 512_000},
//		Tenants:  []drf.Tenant{{ID: "vision", Weight: 1}, {ID: "speech", Weight: 1}},
//	})
//	err = q.Submit(gang, nil, nil)
//	q.Begin(now)
//	for id, ok := q.Next(); ok; id, ok = q.Next() {
//		q.Outcome(id, lockstep.Granted) // or Blocked; then q.Start(id, nil) when it runs
//	}
//
// # Order of decision
//
// From the top down, among siblings with something to propose: those with a weight first, then the least
// dominant share, then the lesser ID. Of a tenant's jobs: higher priority, then earlier submission. Each is
// proposed once a pass. After one that does not fit, OnBlocked says who is passed over. FinishTimes: greatest
// Rho, then earlier arrival, then the lesser ID.
//
// # Errors
//
// lockstep.ErrInvalid: out of range, or a damaged snapshot. ErrDuplicate: named or submitted twice.
// ErrUnknown: not there. ErrConflict: a job not in that phase; a tenant that has jobs, or tenants below it,
// and must not. After an error nothing has changed.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// With n tenants and k siblings at each of d levels: Begin is O(n × resources + due jobs); Next and Outcome
// are O(d log k), and O(k × resources) a level where there are tenants below others; other events the same and
// O(log jobs). FinishTimes sorts in Begin. Fluid: see there. Memory is O(n + jobs).
//
// # Limits
//
// A Queue refuses nothing and takes nothing back: see package quota. It looks at the present only: see package
// fairness for what is owed over time. Sources: Ghodsi et al., Dominant Resource Fairness, NSDI 2011, section
// 4; Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter Workloads, SoCC 2013, where what is
// blocked is added unscaled as by Volcano's drf plugin (commit 0069b39); Mahajan et al., Themis, NSDI 2020;
// prices after Narayanan et al., Gavel, OSDI 2020.
package drf
