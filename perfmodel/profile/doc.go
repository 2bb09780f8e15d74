// Package profile keeps what was measured of jobs, and how sure it is: how much they suffer from distance, from
// neighbours and from the class of device, and how long they take; and runs the small pool on which new jobs are
// measured first.
//
// # Model
//
//   - [Store]: by [Kind] of job, iteration times by level of the topology, rates by class of device, and rates beside
//     other kinds on one device. Each answer is an [Estimate] with an interval and a [Source]: Measured, Inferred, or
//     Unknown, which is an answer. Invariant: a slowdown never falls from a finer level to a coarser one, and what
//     two kinds did beside each other is known of both or of neither.
//   - [Claim]: a job that wants devices close together. Of jobs that are owed the same, locality goes to the one that
//     needs it, as far as that is sure ([Store.Need]): an unmeasured job claims nothing.
//   - [Pool]: new jobs run there for at most Limit; short ones simply end there. Invariant: jobs have no more GPUs
//     than there are, and none waits that could start.
//   - [Durations]: how long jobs take, from like ones that ended and the caller's model; a bound on it that holds as
//     often as is asked for. [Distribution]: quantiles, and the Gittins [Index] of a job.
//
// # Usage
//
//	s, err := profile.New(profile.Config{Levels: levels})
//	err = s.ObserveLevel("llama-8b/64", "rack", took)
//	claims[i].Need = s.Need("llama-8b/64", lockstep.LevelNode, "rack")
//	slices.SortFunc(claims, profile.Claim.Compare)
//
//	ok, err := pool.Submit(now, job, gpus)
//	actions, err := pool.Step(now, actions[:0]) // again at pool.NextWake(now)
//
//	e, err := durations.Expect(job, model)
//	most, ok := durations.Bound(e.Duration, 50)
//
// # Order of decision
//
// Claims: more owed, more need, ID. Pool: fewest GPUs, first come, ID. Expect: jobs of the tenant with a like name
// and as many GPUs, with a like name, of the tenant, of the cluster; then Recent thousandths of their mean and the
// rest of the model. Beside and Rate: measured, then inferred by what both use, then by partners; of like kinds the
// nearest, then by name. Index: exact, by cross multiplication. Need and Gain are thousandths.
//
// # Sources
//
// The pool, its 500 s, and sharing scores by a mean speed of .95 and .85 of which two may come to 2: Hu et al.,
// "Lucid", ASPLOS 2023, and the authors' code. Mean and model as .1 and .9: Hu et al., "Characterization and
// Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters" (Helios), SC 2021, the artifact. Index:
// Gittins, 1979, as used by Gu et al., "Tiresias", NSDI 2019. A pair pays if its rates come to more than one job
// alone: Xiao et al., "Gandiva", OSDI 2018. Slowdowns linear in the use of second-level cache and memory of both:
// Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU Servers with Spatio-Temporal Sharing"
// (gpulet), ATC 2022. Rates by class and pair, and the nearest known job for one that is not: Narayanan et al.,
// "Gavel", OSDI 2020. Bounds: split conformal prediction, Vovk et al., "Algorithmic Learning in a Random World",
// 2005. Levels: pool adjacent violators over medians, the spread by the median absolute deviation.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or a writer returned, wrapped. ErrInvalid: a name, figure, count or time
// out of range, a broken snapshot. ErrDuplicate: a level named twice, a job that is in the pool. ErrUnknown: a level
// or job that is not there. ErrConflict: one more than can be kept. ErrPast: a time before one already seen. After
// any error nothing has changed.
//
// # Concurrency
//
// A Distribution is read only. The others are not safe for concurrent use, not even for reading, since a Store works
// out what it infers when it is asked; the caller serializes calls.
//
// # Cost
//
// Memory is bounded by Config: what was observed longest ago is forgotten. Slowdown and Need are O(levels × Keep) and
// allocate nothing; Rate of a class not measured is O(kinds × classes); the first Beside after a change that is not
// measured is O(pairs), about a microsecond for each pair. With n jobs in a pool, every call is O(n). Observe and
// Expect are O(Window log Window), Bound O(Misses log Misses), Gittins O(sizes). A kind, group or partner is found
// and forgotten in O(1).
//
// # Limits
//
// Intervals are of about 95 %, less where few measurements spread far more than the usual 5 %; those of what is
// inferred are how far off other inferences were. An iteration must be like the others of its kind: see package
// detect for those that are not. Whether and when jobs share a device is decided elsewhere, see package sharing,
// which takes the same thousandths. Figures are floats, and platforms may differ in their last digits.
package profile
