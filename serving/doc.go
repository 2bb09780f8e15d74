// Package serving says which requests of a model to run as one batch, and when, under an objective for latency.
//
// # Model
//
//   - A [Latency] is the time of a batch by its size: a [Linear] one, [Points] as measured, or what a [Learner] fitted.
//     Invariant: it does not fall as the batch grows. [Largest], [Saturated] and [Residual] are the largest batches that an
//     objective allows.
//   - A [Batcher] queues the requests of one model and forms batches for its instances, one at a time on each.
//   - [AIMD] and [Learner] find the most requests of a batch while it serves, for [Batcher.Limit].
//
// Invariants of a Batcher: every request that was accepted is in exactly one batch, or given back as rejected or lost, or
// cancelled, or waits; no batch is larger than the limit; by Latency no request in a batch is over later than its
// deadline less the slack, unless it was deferred; an instance has one batch.
//
// # Usage
//
//	b, err := serving.NewBatcher(serving.BatcherConfig{MaxBatch: 8, Preferred: []int{4, 8},
//		MaxDelay: 2 * time.Millisecond, SLO: 50 * time.Millisecond, Latency: curve})
//	receipt, err := b.Submit(now, serving.Request{ID: 17})
//	err = b.Step(now, &plan)      // send plan.Batches
//	wake, ok := b.NextWake(now)   // call Step again then, or after the next event
//	err = b.Done(now, instance)   // and Step
//
// Times come from one clock that does not go back, such as start.Add(time.Since(start)): a wall clock that is set
// back is refused. A service that scales calls Up when a replica has loaded and Drain before it ends one. A request is turned
// down in two places: by the Receipt, and later in Plan.Rejected. What a Plan holds is overwritten by the next Step.
//
// # Order of decision
//
// On arrival a request is refused if the queue is full, then if it cannot be over in time: if those ahead of it go in
// batches of the size with the most throughput, each on the instance that is free first, and it in the batch after them. With
// concave latencies nothing that other batches could have served in time is refused so, if no instance comes up and none
// ahead is cancelled.
//
// Requests go by level, those in time before deferred ones, by deadline under EDF, by arrival. Step gives up instances by
// index, then requests in the order in which they expired, then serves idle instances by index. With n the number that
// wait, or the limit if that is less, an idle instance gets the first
//
//  1. m, the most that may be in one batch without any of them being late, if m < n: waiting would only make it less;
//  2. n, if the largest preferred size p up to n would leave requests behind that cannot be over in time after it, while no other
//     instance is idle;
//  3. p, if there is one;
//  4. n, if that is the limit, or the oldest of them has waited for MaxDelay, or waiting any longer would make m < n.
//
// Else they are held. 3 and 4 without the last clause are the rule of Triton's dynamic batcher; 1, 2 and that clause put the
// objective above it, so that a preferred size never makes a request late.
//
// # Sources
//
// Dynamic batching: NVIDIA Triton Inference Server 2.x, user guide, "Dynamic Batcher" (preferred sizes, delay, priority
// levels, queue policy; a level here is its priority level less one). Refusal on arrival and never starting what will be
// late: Gujarati et al., "Serving DNNs like Clockwork", OSDI 2020, section 4. Sizes under an objective: Shen et al., "Nexus",
// SOSP 2019, section 6.1; Crankshaw et al., "Clipper", NSDI 2017, section 4.3, and its code of 2018. The look at those left behind,
// the proportional and widening estimates beyond what was seen, and all defaults without a source are ours.
//
// # Errors
//
// All are *lockstep.Error. ErrInvalid: a configuration (all faults, joined), a Latency that falls or is not in range, a
// request or a time out of range. ErrPast: a time before one already seen. ErrUnknown: no such instance. ErrConflict: Done
// of an instance without a batch, Up of one that is neither down nor being drained. That a request is not served is no error: see [Receipt] and
// [Rejection]. After an error nothing has changed.
//
// # Concurrency
//
// No type is safe for concurrent use, except Linear and Points; the caller serializes calls.
//
// # Cost
//
// With q requests that wait and i instances: Submit is O(log q + i), or O(log q + 60 i) with several instances and more than a batch
// ahead; Cancel is O(log q); Step is O(log² q) and O(log q) for each request that it sends or gives back, and O(i). They allocate
// nothing once the most requests that ever waited at once were there. A Batcher keeps 104 bytes for each of those.
//
// # Limits
//
// The latency of a batch depends on its size alone, and is the same on all instances; it is read once, by NewBatcher. What a
// request accepted is promised is that it never starts in order to be late: later requests of a lower level or an earlier
// deadline may still push it out, and it is given back then. There is no snapshot: after a restart the host submits anew.
package serving
