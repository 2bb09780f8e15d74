// Package fairness keeps, exactly, what each tenant and job was entitled to and
// what it got, and proposes jobs in the order in which they are owed: long-term
// GPU-time fairness, after Ye et al., ASTRAEA, IEEE TPDS 2022.
//
// # Model
//
// A [Ledger] knows a capacity, tenants with weights, and jobs. A job asks for
// its demand from Submit to Finish and holds its grant from Start to Stop. At
// every instant a tenant demands the sum of its jobs' demands and is entitled to
// a share of the capacity: under [MaxMin] the weighted max-min share, which is
// its demand, or, for those that demand more, a part by weight of what is left;
// under [Fixed] its weight's part of all, and under [Active] its weight's part
// among those that demand anything, or its demand if that is less.
// Service is the grants, and Entitlement the shares, over time. Lag is
// entitlement less service, in GPU-time: what is owed, and what to schedule by.
// Index is service over entitlement: what to report. A job's entitlement is an
// equal part of its tenant's, among the tenant's live jobs.
//
// Tenants of weight 0 share what the others leave, equally; under Fixed they are
// entitled to nothing. An idle tenant is neither owed nor forgiven anything, nor
// is one that left and joins again, but for the credit that Config.CreditCap lets
// one save up while it is idle.
//
// What orders tenants is their claim: the lag that counts by [Memory] (all of it, a
// sliding window, or with a half-life), with credit, and with the overhead of
// checkpoints that [Payer] has others pay. Accounts are in one unit; where devices
// differ, [Prices] makes it, and what was held in devices is kept beside it.
//
// Invariants: Service is exact. Under MaxMin all entitlements, with what is not
// divided yet, are the integral of min(capacity, demand) to the last bit, and
// those of jobs their tenant's; each differs from that of real numbers by at most
// [Ledger.ErrorBound]. They are compared in whole MilliGPU-nanoseconds, so that
// equal claims stay equal however weights are scaled, until events × weights
// exceed 2^44. Reading changes nothing; how an interval is cut does not matter, to
// the bit, nor for a window, credit or a half-life (in gaps below 140 half-lives).
//
// # Usage
//
//	l, err := fairness.New(fairness.Config{Capacity: 64 * lockstep.WholeGPU})
//	err = l.Join(now, "vision", 3)
//	err = l.Submit(now, "train-1", "vision", 8*lockstep.WholeGPU)
//	l.Begin(now)
//	job, ok := l.Next()
//	l.Outcome(job, lockstep.Granted)
//	err = l.Start(now, job, 8*lockstep.WholeGPU)
//	err = l.Finish(later, job)
//
// # Order of decision
//
// A pass (Begin, Next, Outcome; a gang.Orderer) compares tenants by what they
// would be owed a Horizon from now: their claim, plus what they are entitled to over it at
// present shares, less what their running jobs will hold and what this pass
// granted, times the horizon. Most owed first; tenants of weight 0 after all
// others; ties to less service per weight, then to the lesser ID. A tenant's jobs
// come as [JobOrder] says, most owed first if nothing; ties to the earlier
// submission, then the lesser ID. Each is proposed once. Running jobs are proposed
// from [Ledger.Due] on, and what they hold does not count as held over the horizon.
//
// # Errors
//
// ErrInvalid: a value out of range, a damaged snapshot. ErrDuplicate: what is
// there already. ErrUnknown: what is not there. ErrConflict: a job not in that
// phase, a tenant with jobs, a gap in the log, a snapshot of another basis or memory.
// ErrPast: a time before the latest event.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// An event is O(log tenants + log jobs of the tenant), and allocates only for what
// it adds. Statement is O(log tenants), Begin O(tenants with jobs to propose + due
// jobs), Next O(log tenants) and, after a change, O(log jobs); none allocates, but for
// Statement with a half-life. [Ledger.AppendReclaim] is O(jobs log jobs). A window adds
// O(tenants) at each bucket and 48 bytes a bucket and tenant; CreditCap O(tenants) where
// the capacity, a weight or who joined changes; a half-life twice the cost and memory,
// and O(tenants + jobs) every ten. There is no NextWake.
//
// # Limits
//
// The ledger refuses no grant. What a job asks for is owed while it waits, though it
// could never be placed: set the Demand of one that cannot run to 0. ASTRAEA caps a
// job's entitlement by its gang at every instant; here only Index does, over the job's
// whole time. Worst is exact at the tenant's own events only. What Memory forgets it
// forgives: in each window, or 1.44 half-lives, a tenant may get up to a term of its
// widest job beyond its part, so let that be little of them. With a half-life, times
// count in steps of 2^-48 of it, and at most a unit in 2^52 is lost every ten.
package fairness
