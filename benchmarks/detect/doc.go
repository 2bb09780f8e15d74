// Command detect measures how well slow devices are found: by this library's tests and by
// those of others, on the same synthetic jobs, in the same run.
//
//	go -C benchmarks run ./detect                  every cell, some minutes
//	go -C benchmarks run ./detect -quick -check    a few cells and jobs, looser limits
//	go -C benchmarks run ./detect -cells step/32K  the cells whose names contain that
//
// # Jobs
//
// A job trains a model of 7B's layers with a 1F1B pipeline and data-parallel replicas.
// Each micro-batch is packed full with documents of log-normal lengths, what does not
// fit of the last one begins the next micro-batch; so its cost varies with the squares
// of the lengths. What a chunk should take follows from package perfmodel, with
// attention at half the speed of matrix products, and what an iteration should take from
// package pipeline; that is what the detectors are told.
//
// What chunks really take differs by noise of each chunk (log-normal), by noise of each
// stage of each replica that lasts over iterations (an autoregression), and by an error
// of the model of each stage, the same in all replicas. The iteration is the critical
// path of that, of the slowest replica, times an autoregression of its own; in one of a
// hundred, one stage of one replica pauses, and all wait. Every parameter is a flag, and
// the same seed gives the same jobs on any number of cores.
//
// Half of the jobs have a fault, which begins between iteration 50 and 250 at a random
// place: a stage of a replica that takes longer by a factor from then on (step), by and
// by (ramp), ten iterations of twenty (intermittent), for sixty iterations (recover), with a
// second place fifteen iterations later (two), or a link between two stages (link). In
// cells named loss the last stage also computes a loss that takes as long as nine layers. In
// cells named limit the factor is the smallest one that the test says, before the onset, that it
// can find at that place.
//
// # Figures
//
// An alarm is counted when it is raised. It is false before the onset, and, for a fault
// that ends, later than a window after its end; false alarms are per job of all jobs.
// Recall is the share of faults with an alarm within the window, 30 iterations from the
// onset, delay the median number of iterations from the onset to it, top-1 the share of
// those found in which the place is the first suspect at the alarm. The columns behind it
// say the same of ten iterations later, of the place and of its replica: a large fault is
// found after one or two iterations, which is too soon to tell its place from iteration
// times, and makes a pipeline take the same whichever of its stages has it.
//
// # Comparison
//
// Ours runs at its default rate of false alarms, which the tables show, and, for the
// comparison with the others, at a ladder of rates fixed beforehand (-rungs prints it). A
// baseline is dominated where ours, told no more than it, finds at least as much with as many false
// alarms: at a rung, or at two neighbouring rungs mixed by chance. Where a fault is too small for any
// detector, all find what a false alarm happens to coincide with; so a baseline counts
// as ahead from three standard errors on, and a note tells of any lead below that. No
// threshold is chosen from the jobs of the run; the constants of the tests were set with
// other seeds.
package main
