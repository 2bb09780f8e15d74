// Command reconfig measures how good the plans of package reconfig are, and how fast they come.
//
//	go -C benchmarks run ./reconfig                  everything
//	go -C benchmarks run ./reconfig -only matrix     one part: matrix, failstop or time
//	go -C benchmarks run ./reconfig -quick -check    small, and with status 1 when a target is missed
//
// # matrix
//
// Jobs on 8 to 16,384 devices, each under several kinds of fault, against five other ways to go on, all judged by
// reconfig.Evaluate or, for what a plan cannot say, by the same simulation of pipelines:
//
//   - no action: the layout stays; a dead device stops the job.
//   - drop replica: replicas with a dead device, or with any that is not healthy, whichever is better, go; their
//     micro-batches go to the others.
//   - drop group: a tensor-parallel group with a dead device goes and its replica divides the layers anew over the
//     rest, micro-batches to even out (as Oobleck's templates do, SOSP 2023).
//   - re-route: the layout stays and what a dead group would compute, the same stage of other replicas do (as ReCycle
//     does, SOSP 2024; in 1F1B order, without its split backward passes).
//   - greedy uniform: the best power of two of each group, layers by speed but alike in all replicas, micro-batches to
//     even out (as published for ResiHP, arXiv 2605.06374).
//
// Figures are throughput over that of the healthy job, scaled to what is left: 1 is the healthy job's times the sum of
// the speeds over the number of devices. "bound" has all work spread by speed and nothing waiting, which no layout
// can reach. "ours" may change any replica for any gain, as the others may; the target is that it is never below the
// best of them. "calm" changes replicas that lost nothing only for the default of 2 % (Options.Disturb), and so may be
// below by up to that; "moved" is its traffic over all state that devices are to hold, "groups" its new communicators.
//
// # failstop
//
// Devices die one after the other, evenly over a session at whose harshest rate half of them are left, as in table 1.4 of
// the ResiHP paper; throughput is averaged over the session. As there, a session that ends is an abort and has no
// throughput, so means are over those that lasted, and the number of the others is printed. The published fractions of
// fault-free stand beside. Where a rebuilt system is not within a tenth of its own, the comparison says that it is
// uncalibrated; no constant is fitted. Known differences: the paper does not say in which order devices die (here any),
// ReCycle's backward passes are not split here, and ResiHP here migrates once a step by counts, not by progress.
//
// # time
//
// How long Replan takes from a healthy plan after some devices died.
package main
