// Policy measures the solvers behind package policy/hetero, and what a decision of package policy costs.
//
//	go -C benchmarks run ./policy -check
//
// # LP
//
// Gavel's max-min programme (Narayanan et al., OSDI 2020, section 4.1) on job types drawn from the throughput tables that
// its authors published, or made-up ones where those are absent: each type with 1 to 20 jobs, four classes of device (the
// fourth is the V100 at 1.3 to 2.2 times its speed). Our simplex and gonum's (v0.17.0) solve the same figures; gonum is
// given the slack basis to start from, which is feasible. Objectives have to agree within 10^-6, ours has to prove itself by
// its prices, and 512 types on four classes have to take at most a second. Times are processor time.
//
// # Assign
//
// Random costs: our assignment beside the linear programme over the same costs, solved by gonum at 8 × 8 and by our own
// simplex up to 24 × 24, and beside potentials that prove it at any size.
//
// # Decide
//
// 10,000 devices in four classes and 5,000 jobs: each entry of the list in decide.go is one decision of one package, and
// is to take at most 20 ms, but for the search of policy/elastic, which has no limit: it takes what its Effort lets it.
//
// # Trend
//
// The 120 jobs of Shockwave's trace (Zheng et al., NSDI 2023) on 32 devices in rounds of 120 s, by our policies, beside
// the simulation that its authors published. Their jobs change batch sizes as they run and ours do not, so
// only the direction can be compared. Nothing is judged here.
package main
