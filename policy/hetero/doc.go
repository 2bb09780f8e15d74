// Package hetero says who gets how much time on which class of device, where jobs run faster on one than on another,
// and turns that into rounds.
//
// # Model
//
// A [Group] is identical jobs: so many devices each, a rate on each [Class], a weight. A share X[m][c] is the part of its
// time that one job of group m has on class c, with all its devices. Shares of a job sum to at most 1, and what all jobs
// have of a class is at most its devices. The rate of a job is the sum of rate × share.
//
// The equal split is what fairness is measured by: each job has the devices of every class over the jobs, by weight, cut
// to the whole of its time. A normal rate is the rate over that on the equal split.
//
//	MaxMin      the least normal rate is the largest there can be (least attained service)
//	WaterFill   and then the next least, and so on
//	FinishTime  the largest time to the end over that on the equal split is the least there can be
//	Makespan    the last job ends as early as can be
//	MinCost     every deadline is met for the least money
//	PerCost     the most work is done for the money
//	EqualSplit  the fast path: equal shares and what is left, without a programme
//
// [Match] puts jobs on machines in turns instead, by AlloX. [Rounds] gives each class, round by round, to the jobs that
// have received least of it for their share.
//
// Invariants: shares in parts of a million satisfy [Check] exactly; a job that can run nowhere gets nothing and is Blocked
// with the reason; under MaxMin, WaterFill and EqualSplit no other job's normal rate is below 1; jobs of a group get what
// they would as groups of one, and so do groups that are alike but for ID and count; the order of input decides nothing.
//
// # Usage
//
//	a, err := hetero.WaterFill(hetero.Problem{Classes: classes, Groups: groups})
//	r, err := hetero.NewRounds(hetero.RoundsConfig{Classes: classes})
//	err = r.Set(targets) // a.Shares[i] for each job of groups[i]
//	for _, g := range r.Next() { run(g.Job, g.Class) } // every six minutes, say
//
// With policy.Seam, EqualSplit answers at every event and WaterFill proposes when it is done; Check judges both.
//
// # Order of decision
//
// Groups and classes are taken by ID. Where several optima exist the solver's pivots decide, always the same way.
// Shares are rounded by largest remainder, ties by group and class. Rounds sort pairs of job and class by due over
// received, exactly; of those that received nothing, what is due more comes first; then whoever has the class already,
// job ID, class. Explore comes after what is due, Spare after that; both prefer who is there, then the ID.
//
// # Sources
//
// Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI 2020:
// the programmes (section 4) and the rounds (section 5), whose X/received is taken over all rounds here, with what was due
// under earlier shares. Le et al., "AlloX", EuroSys 2020. Finish-time fairness from Mahajan et al., "Themis", NSDI 2020.
// Where Gavel finds saturated jobs by an integer programme, WaterFill reads them off the prices; where it bisects
// finish time, FinishTime closes in from both sides by shares and prices.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid, ErrDuplicate and ErrUnknown for a problem (all faults, joined); ErrConflict from
// Check, and where figures are so far apart that the solver proves nothing. Deadlines that cannot be met are an outcome.
//
// # Concurrency
//
// Functions are safe for concurrent use. A Rounds is not; the caller serializes calls.
//
// # Cost
//
// A policy is one programme of 2·groups + classes rows and groups × classes columns; FinishTime a handful; WaterFill one for each
// level, at most one a group. Rounds.Next sorts jobs × classes pairs. The benchmark of package policy has figures.
//
// # Limits
//
// Jobs do not share a device here (Gavel's pairs are left out). A job's devices are all of one class at a time. Rounds
// count devices and know nothing of nodes: placement may have to Revoke. Rates that are unknown count as 0. A class
// where a job has less than 10^-9 of its best rate counts as none, and a job that could do with less than 10^-9 of its time as
// one that wants that.
package hetero
