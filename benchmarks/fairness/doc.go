// Fairness measures what package fairness is exact about, and what it costs.
//
//	go -C benchmarks run ./fairness -check
//
// # Quality
//
// Public traces are replayed under every rule of our scheduler and under other
// schedulers' orders, rebuilt from their formulas as policies of ours, so that
// placement, backfill, leases and overhead are the same for all: dominant resource
// fairness, KAI's decayed share, Kueue's half-life, Themis' finish-time ratio. Gangs are
// members of one device each, which may spread over nodes, as in ASTRAEA's simulator,
// whose own run (package sim/astraea; nothing is charged there) stands beside. A job's
// rho is its work over what it deserved by ASTRAEA's rule, and a tenant's its service
// over what it deserved, over the whole run; see index.go. "ltgf-floor" rows are
// scheduler.Config.Floor: i and ii know nothing of durations, iii knows them. For these
// 30 shuffles of the durations and, for iii, 20 sets of wrong durations (a factor with a
// logarithm of standard deviation 1) follow.
//
// # Drift
//
// Three tenants of weights 1, 2 and 4 run jobs that start, change size and end at
// random times, some of them between one sample of another scheduler and the next.
// Service and max-min entitlement of a ledger are held against integers that are
// worked out anew from the definition at every event, with the water level by
// rounds; entitlements are exact there as multiples of 1/420, since every sum of
// those weights divides 420. Beside it stand the ways in which others keep usage,
// each rebuilt from its formula and fed with the same events:
//
//   - sums of float64, in the order of events;
//   - a tick of 10 s that adds what is held when it comes (ASTRAEA's simulator,
//     Ye et al., IEEE TPDS 2022, artifact 7ab4bac, server/cluster.py);
//   - decay by a period of 5 minutes with the linear factor 1 - 0.693/h (Slurm's
//     priority_multifactor, 284c3b9), with its default half-life of 7 days and with
//     10 minutes;
//   - a sample every 5 minutes into an average with a half-life (Kueue's admission
//     fair sharing, ff69552);
//   - a sample every minute, summed over a window (KAI's time-based shares, 72de64f,
//     which reads them from a metrics database).
//
// Decayed figures are held against the integral of rate × 2^(-age/h), which is in
// closed form between events, in float64; so is the ledger's own half-life.
//
// # Cost
//
// Event and pick at 10,000 tenants, by kind of memory. A pick is one proposal of a
// pass that is open (Next and Outcome); opening a pass is O(tenants that wait) and
// stands beside it. Package sim's benchmark has the events by kind.
package main
