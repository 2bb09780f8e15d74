// Package resize decides what becomes of a training job's batch, learning rate and place in its data when the number of its
// replicas changes, and whether such a change is worth its pause.
//
// # Model
//
//   - [Elastic]: what a job declares: the batch at one size, which sizes it may have, and what happens at the others: the
//     batch stays and replicas accumulate ([FixedBatch]), it grows with them and the learning rate follows a rule
//     ([ScaledBatch]), or the size must stay ([NoResize]).
//   - [Batch]: what a step has at one size. Invariant: the micro-batches of Split add up to Micros, and times the samples
//     of a micro-batch to Global.
//   - [Cursor]: the place in the data, as epoch and samples done. Invariant: steps that follow each other through
//     [Cursor.Take] and [Deal] have each sample of each epoch once, whatever sizes they have; a step that did not complete
//     is taken again from the same cursor.
//   - [Guard]: how long a size lasts at the least, and what a [Change] must gain. Invariant: without a change of paces it
//     never allows a change and the change back.
//
// # Usage
//
//	batch, verdict, err := elastic.At(replicas, 0)           // verdict.Fit: the largest smaller size that is possible
//	step, next, err := cursor.Take(batch.Global, samples)    // next counts once the step is complete
//	parts, err := resize.Deal(step, elastic.Micro, batch.Split)
//	verdict, err = guard.Allow(change)
//
// # Order of decision
//
// At refuses by mode, then by Min and Max, then by how the micro-batches can be dealt out. The first replicas take what is
// left over. Rates are whole millionths: a linear one to the nearest, a square root rounded down. Allow: a forced change,
// then the dwell, which a job that stands still has not, then the break-even, which compares exactly; equal is not more.
//
// # Errors
//
// *lockstep.Error of kind ErrInvalid for bad input, all faults joined. That a job cannot have a size, or should not yet,
// is a lockstep.Verdict.
//
// # Concurrency
//
// Methods and functions on values; safe for concurrent use.
//
// # Cost
//
// At is O(replicas), and O(sizes) where it refuses; Take is O(epochs that the step reaches into); Deal is O(parts); Allow
// is O(1).
//
// # Limits
//
// It counts samples and shuffles none: the order of an epoch has to depend on its number only. A gain as AdaScale has it is
// measured by the job. What a pause takes comes from elsewhere (package reconfig/moves counts the bytes).
//
// # Sources
//
// Learning rates: Goyal et al., arXiv 1706.02677 (2017), linear; Krizhevsky, arXiv 1404.5997 (2014), square root; Johnson
// et al., "AdaScale SGD", ICML 2020, the gain and what a step counts for.
package resize
