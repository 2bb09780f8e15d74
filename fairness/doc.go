// Package fairness keeps, exactly, what each tenant and job was entitled to and
// what it got, and proposes jobs in the order in which they are owed: long-term
// GPU-time fairness.
//
// # Model
//
// A [Ledger] knows a capacity, tenants with weights, and jobs. A job asks for
// its demand from Submit to Finish and holds its grant from Start to Stop. At
// every instant a tenant demands the sum of its jobs' demands and is entitled to
// a share of the capacity: under [MaxMin] the weighted max-min share, which is
// its demand, or, for those that demand more, a part by weight of what is left;
// under [Fixed] its weight's part of all, or its demand if that is less, which is
// ASTRAEA's rule. Service is the grants, and Entitlement the shares, over time.
// Lag is entitlement less service, in GPU-time: what is owed, and what to
// schedule by. Index is service over entitlement: what to report. A job's
// entitlement is an equal part of its tenant's, among the tenant's live jobs.
//
// Tenants of weight 0 share what the others leave, equally; under Fixed they are
// entitled to nothing. An idle tenant is neither owed nor forgiven anything, nor
// is one that left and joins again.
//
// # Exactness
//
// Time is in nanoseconds, rates in MilliGPU, sums in 128 bits. Service, Wanted
// and Totals are exact. Entitlement is kept to 2^-64, rounded down, and what does
// not divide is carried to the next division: under MaxMin the entitlements of
// all tenants and the carry are the integral of min(capacity, demand), exactly,
// and those of its jobs, with a carry of whole units, are the tenant's. One
// entitlement differs from that of real numbers by at most [Ledger.ErrorBound],
// two MilliGPU-nanoseconds until events times weights exceed 2^64. It is read,
// and compared, in whole units, where 2^-20 below one counts as that one: equal
// claims stay equal however weights are scaled. Reading changes nothing, and how
// an interval is cut does not matter to the last bit.
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
// would be owed a Horizon from now: Lag, plus what they are entitled to over the
// horizon at present shares, less what their running jobs will hold over it, less
// what this pass granted times the horizon. So a grant counts at once, for as
// long as it is likely to last, in later passes too. Most owed first; tenants of
// weight 0 after all others; ties to less service per weight, then to the lesser
// ID. A horizon of one nanosecond is plain Lag.
//
// A tenant's jobs come most owed first, or by submission under [FIFO]; ties to
// the earlier submission, then the lesser ID. After a blocked job the tenant's
// next one is tried; the tenant leaves the pass when all were proposed, each
// once. Running jobs are proposed from [Ledger.Due] on, and their grants do not
// count as held over the horizon.
//
// # Errors
//
// Kinds are those of package lockstep. ErrInvalid: a value out of range, a
// damaged snapshot. ErrDuplicate: what is there already. ErrUnknown: what is not
// there. ErrConflict: a job not in that phase, a tenant with jobs, a gap in the
// log, a snapshot of another basis. ErrPast: a time before the latest event.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// An event is O(log tenants + log jobs of the tenant), however many tenants it
// lifts over the water level, and allocates only for what it adds. Statement is
// O(log tenants), Begin O(tenants with jobs to propose), Next O(log tenants + log
// jobs). Memory is O(tenants + jobs) that are not forgotten. Nothing happens by
// itself: there is no NextWake.
//
// # Limits
//
// The ledger refuses no grant, beyond the capacity or a share. There is one kind
// of device. ASTRAEA caps a job's entitlement by its gang at every instant; here
// only Index does, over the job's whole time, so that waiting jobs keep their
// places. ASTRAEA rounds quotas down to whole devices: give those as weights and
// their sum as the capacity, and Fixed is the same; its order by service over
// quota-time is Service over Nominal. Worst is exact at the tenant's own events;
// in between, others may have made Lag greater.
//
// Sources: Ye et al., ASTRAEA, IEEE TPDS 2022, by its artifact, commit 7ab4bac;
// virtual time of fair queueing: Demers, Keshav and Shenker, SIGCOMM 1989, and
// Parekh and Gallager, IEEE/ACM ToN 1993.
package fairness
