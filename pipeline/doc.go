// Package pipeline says when each chunk of a pipeline-parallel iteration runs, where its bubbles are, and what it holds.
//
// # Model
//
//   - [Op]: the forward, the backward or the weight gradient of one micro-batch in one chunk of the model. A stage runs one op
//     at a time, in a fixed order: that of a [Schedule], or one of its own.
//   - [Line]: such orders, compiled. The chunks of all stages make a chain of virtual stages, chunk*Stages+stage; forwards go
//     up it, backwards come down, a weight op follows its backward. Several replicas may be in one Line.
//   - [Costs]: what ops and transfers take. A transfer keeps no stage busy, and there is none within a stage.
//   - [Result]: an op starts once its stage is free and what it needs has come. So Makespan is the length of the longest path
//     through the ops. Invariants: it is at least what any stage is busy, and at most the sum of all costs; it never falls as a
//     cost rises; ops and [Window] values of a stage fill it without overlap.
//
// Forwards and backwards in flight are counted by replay of the order, never by a formula.
//
// # Usage
//
//	line, err := pipeline.New(pipeline.Config{Schedule: pipeline.ZBH1, Stages: 4, Micros: 8})
//	costs := line.Uniform(2*time.Millisecond, 2*time.Millisecond, time.Millisecond)
//	var r pipeline.Result
//	err = line.Run(&costs, &r)
//	for _, w := range r.AppendWindows(nil, 0) { ... }
//
// Equal costs of all micro-batches need one entry a stage; micro-batches of unlike length have one each.
//
// # Order of decision
//
// Nothing is decided but by the orders. The binding chain prefers the op of the same stage where two bind, and the lower stage
// where two end last. Moved keeps the order in which ops started, then that of evaluation: rows in turn, one op each.
//
// # Sources
//
// GPipe: Huang et al., NeurIPS 2019. One forward, one backward with a flush: Narayanan et al., SOSP 2019 (PipeDream) and ICML
// 2021 (PipeDream-2BW, section 3). Interleaved: Narayanan et al., SC 2021, section 2.2. ZB-H1 and ZB-H2: Qi et al., "Zero Bubble
// Pipeline Parallelism", ICLR 2024, section 2; a weight op runs once more than s of them are pending on stage s, or 2s for
// ZB-H2, and after every backward once no forward is left. Equal stages without transfers take, for m micro-batches, p stages
// and v chunks, f, b and w of a stage (tests hold the package to these and to the windows; they are not how it works):
//
//	GPipe, 1F1B  (m+p-1)(f+b+w)
//	interleaved  m(f+b+w) + (p-1)(f+b+w)/v
//	ZB-H1        m(f+b+w) + (p-1)(f+b-w)      for m >= p and w <= f, w <= b; it takes longer otherwise
//	ZB-H2        m(f+b+w) + (p-1)(f+b-2w)     from first to last op of stage 0, for m >= 2p-1 and w <= f, w <= b
//
// A slowed stage: the makespan is convex and piecewise linear in the factor, so that known points and slopes settle others
// (Eisner and Severance, JACM 1976).
//
// # Errors
//
// All are *lockstep.Error, of kind ErrInvalid unless said otherwise. New: a field out of range, an op that is missing, out of range
// or away from its forward, ErrDuplicate for one that is there twice, and a [*DeadlockError], which names the ops that wait for
// each other. Run: a slice of a wrong length, a negative cost, a sum past the range of int64. AppendSlowed, Moved and PeakBytes: an
// argument out of range, a sum past the range. Looking up what is not there gives zero. After any error nothing has changed.
//
// # Concurrency
//
// A Line and Costs are read only. A Result is not safe for concurrent use; the caller serializes calls. Slack and
// AppendSlowed write to its memory as well. A copy of a Result shares that memory, so only one of the two may be used.
//
// # Cost
//
// With n ops: New O(n) time and about 70 bytes an op; Run, the first Slack after it, and AppendChain O(n); AppendWindows O(ops of
// the stage). AppendSlowed with k factors is at most k/4, rounded up, passes of O(n). All but New, PeakBytes and Moved
// allocate nothing once their memory is large enough. BenchmarkRun has the figures.
//
// # Limits
//
// The orders are fixed: a stage does not take another op because one is late. Transfers between two stages do not queue for
// the link, nor slow the ops beside them. The optimizer's step and the reduction of gradients come after Makespan. Schedules
// in which a chunk's virtual stage is not chunk*Stages+stage, such as V-shaped ones, are not there. At most 2^24 ops.
package pipeline
