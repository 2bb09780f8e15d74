// Package interval says how often a job should be saved, whether a warning is long enough to save in, and what
// stopping the job would cost.
//
// # Model
//
// A save stalls the job for C, a failure comes every M on average and costs the work since the last save and a
// restart of R. The interval T is work between saves, the stall not counted.
//
//   - [Young], [Daly] and [Optimum] give T. Optimum is the exact one for failures that come independently of each
//     other; Daly is within .6 % of it while C ≤ M/2. [Waste] is the share of time that an interval loses.
//   - [Failures] turns failures of units and preemptions without enough warning into one M.
//   - [Levels] gives intervals for saves to several places (memory, a peer, a disk, a remote store), each of which
//     helps after a worse failure. Each interval is a whole multiple of the one before.
//   - A [Policy] measures stalls and advises a job: clamped, in whole steps, within its share of the storage's
//     bandwidth, steady against small changes, and spread between jobs that save to the same place.
//   - A [Contract] holds if the shortest warning of a chain (scheduler, node agent, launcher) is as long as a save
//     may take. Where it does not, the loss of a preemption is half an interval on average and all of it at worst.
//   - [Cost] is a lockstep.EvictionCost, which placement weighs victims by and whose Save and Restore
//     lease.Config.TermFor takes.
//   - [Quietest] finds the moment of a training step at which least memory is in use, from samples.
//
// Invariants: an interval is positive and within its clamps, or one whole step outside where there is none within; it
// does not fall as C or M rises, but for Daly's where M passes C/2; a contract that holds has a warning of at least the
// time needed, margin included.
//
// # Usage
//
//	t, err := interval.Optimum(90*time.Second, 6*time.Hour)
//
//	c, err := interval.Check(chain, interval.Need{Step: step, Save: p99}, t)
//	if !c.Feasible { /* refuse the lease with c.Note() */ }
//
// # Order of decision
//
// Check takes the shortest warning, the first of equal ones. Levels starts from the ratios of the independent
// intervals and changes one at a time, alone or with another that makes up for it, first levels first, by halving
// amounts down to one, while the loss falls. Quietest takes the least memory, then the earliest moment. An advice
// leaves the last interval alone while the new one differs by no more than Config.Steady.
//
// # Sources
//
// Young, "A First Order Approximation to the Optimum Checkpoint Interval", CACM 1974. Daly, "A higher order estimate
// of the optimum checkpoint interval for restart dumps", FGCS 2006, equation 37, and equation 20 for the time of a
// whole run. Several levels: Moody et al., "Design, Modeling, and Evaluation of a Scalable Multi-level Checkpointing
// System", SC 2010, of which this is the first-order case. A launcher's fixed warning of 30 s is torchrun's
// (pytorch/pytorch#119856), that of a Kubernetes pod by default too; 25 % of margin is ours.
//
// # Errors
//
// All are *lockstep.Error, and all faults of an argument are reported together. ErrInvalid: a duration that is negative
// or longer than lockstep.MaxWalltime, no time between failures, too few samples or a gap between them. ErrPast: a Cost
// before what was saved. A contract that does not hold is an outcome. [Restore] refuses bytes that Snapshot did not write.
//
// # Concurrency
//
// Functions and values are safe to share. A Policy is not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Everything is O(1) but Levels, O(levels³) a round and a few rounds for each of 20 amounts, Quietest, O(samples log
// samples), and Policy.Longest, which sorts 64 values. Nothing but errors, Levels, Quietest and the reason in an advice allocates.
//
// # Limits
//
// Failures are taken to be independent. Where they come in bursts, shorter times between them in
// Failures are the safe side. Whether saving in the background slows the job is the caller's to count as stall.
// Quietest sees what it is given: device memory that a caching allocator has reserved looks the same all the time
// (Moment.Flat), so take samples from the framework if you can.
package interval
