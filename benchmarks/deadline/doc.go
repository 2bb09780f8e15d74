// Deadline replays what the authors of two schedulers for jobs with deadlines published, under admission by package
// policy/deadline, and prints the share of deadlines that are met beside theirs.
//
//	go -C benchmarks run ./deadline -check
//
// # ElasticFlow
//
// Gu et al., "ElasticFlow", ASPLOS 2023: the trace of 195 jobs of their testbed and eight of the ten clusters of their simulation,
// with the throughputs that they measured on A100s, on clusters of the size that they used for each. Rows:
//
//   - ours: deadline.Elastic admits, policy/elastic gives what nobody must have to the best marginal return. Each event is a
//     decision and a resize costs nothing, so that estimates are exact, and none of those admitted may miss.
//   - ours, in slots, with pauses: the same in the world of the authors' simulator, with decisions every 60 s (240 s for the
//     testbed's trace), at each of which every job that runs stands still for 2 s, or 7 s from 256 devices on, and one that is
//     resized for 2 s more, and as much for each doubling. Jobs are admitted as if their deadlines were one slot
//     earlier. A pause is no part of a plan: up to eight jobs in a thousand miss, and are shown.
//   - ours, pauses planned: the same, and those who are asked about are said to be slower, by one pause in each slot. Nobody
//     misses.
//   - ours, gangs as asked: deadline.Table, with the number of devices that the trace asks for and leases of 240 s, beside
//     their runs of Chronus.
//   - EDF, least laxity, LAS and FIFO without admission; EDF also with as many devices as a job can run on, faster or not,
//     which is the published EDF. LAS stands beside Tiresias, with the limits of the authors' simulator.
//
// Targets: nobody that the first, third and fourth admit misses. The shares of the first, second and fourth are at least the
// published ones; where the third's is not it is said.
//
// What differs in the published runs: placement on nodes of eight devices, which ours leaves out, and for the 195 jobs that
// they ran on a real cluster. How much that makes is to be seen by the published EDF, which comes out 1 to 12 % above
// its published shares here.
//
// Their run of 100 jobs is shown as published; its trace is not public.
//
// # Chronus
//
// Gao et al., "Chronus", SoCC 2021: two traces of Philly's jobs, MIX1 with 30 % of the jobs without a deadline, and SLO, in which
// all have one, on 960 devices with leases of 20 minutes. Rows: deadline.Table, which gives idle devices to jobs without a
// deadline first, or, eager, to those with one; and orders without admission, all in the same slots. There are
// no published figures by trace, only the claims of the abstract, which are printed beside ours.
//
// SLO asks for more than there is. First come, first promised is not the way to meet the most deadlines then: without
// promises many short jobs can be served instead of a few large ones. The share of device-hours shows the other side.
//
// # Flags
//
// -quick replays four of ElasticFlow's traces and the head of Chronus'. Where the traces are absent it says so, measures nothing and
// exits with 0.
package main
