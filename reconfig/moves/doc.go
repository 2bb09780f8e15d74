// Package moves decides how the state of a training job gets from the devices that hold it to those that a plan of package
// reconfig wants to hold it, and leads all members there together or not at all.
//
// # Model
//
//   - [Holding]: what a device holds, as [Shard]s: runs of parameters of a [Block] (layer, embedding, head), of the weights
//     or of the optimizer's state. [Held] is what a plan makes devices hold, ZeRO and experts included. Gradients are
//     nobody's state between two steps.
//   - [Sequence]: the moves, in phases. Invariants: a byte goes to a device that lacks it exactly once; no device ever holds
//     more than its memory less Job.Reserve and [Options].Keep, or than it did in the beginning; nothing is given up before
//     its last use; no other way has fewer bytes from the checkpoint, or as few and fewer over the fabric, or as few of
//     both and fewer between nodes.
//   - [Driver]: leads all members through moves, on one digest or not at all; an [Executor] does on devices what it says.
//     Until the first commit anything that goes wrong aborts. After it nothing is undone: members halt, and moves that are
//     planned from [Sequence.After] lead on.
//   - [Regrouping]: which communicators end, stay and are made, in an order that all members share.
//
// # Usage
//
//	have, err := moves.Held(job, plan)                                     // of the plan in force
//	seq, err := moves.Between(job, devicesNow, have, next, moves.Options{Cursor: cursor})
//	driver, err := moves.NewDriver(seq, next)                              // on one host; every member derives seq by itself
//	state, err := moves.Drive(driver, executor)                            // Done, Aborted, or Halted: plan on from seq.After
//
// # Order of decision
//
// A receiver gets a byte from its own host memory, else inside its node, else its leaf, else over the fabric, else from the
// checkpoint. Of several receivers in a leaf or node that lack it the one that has received least gets it and hands it on;
// of several donors the one that has sent least sends; then by leaf, node and ID. In a phase transfers that free a full
// sender come first, then slower links, then by block, receiver and parameter. Devices free late, only for room or at the
// end. If that comes to staging through host memory, a search over orders (up to 64 transfers, 20,000 states) looks for
// one that needs none.
//
// # Errors
//
// *lockstep.Error of kind ErrInvalid or ErrDuplicate for bad input, all faults of job, devices and options joined.
// *reconfig.Infeasible, which wraps reconfig.ErrInfeasible, if a device of the plan is not live or has two roles, if what it
// is to hold does not fit, or if a checkpoint is needed and may not be. [Driver.Step]: ErrStale for an answer to what is
// not outstanding, ErrUnknown for a device that takes no part. [RestoreDriver]: ErrStale for other moves, and what
// package snapshot says of bytes that are no snapshot. Nothing is changed in any case.
//
// # Concurrency
//
// Functions on values; calls share nothing. A [Driver] is not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Between is O(r log r) in the runs of parameters that devices hold and want, and each phase costs O(devices) besides
// (BenchmarkBetween has sizes up to 16,384 devices). A Driver's step is O(members).
//
// # Limits
//
// Without another copy the optimizer state that ZeRO gave to a lost device is lost, and all state then comes from the
// checkpoint (Options.CheckpointCurrent: only what is lost); copies that a job keeps elsewhere can be named in the holdings.
// Transfers of one device over one link share it unseen. All devices wait for each other between phases, of which there
// may be hundreds where memory is full. Host memory is not bounded; its use is reported. Random state and counters are the
// runtime's, but for the cursor, which is part of what members agree on. One driver leads at a time; that is a lease's
// business.
//
// # Sources
//
// One copy over the slow link and the hand-over inside the receiving node: ResiHP, arXiv 2605.06374v2 (2026), executor
// section. Commit: Gray, "Notes on Data Base Operating Systems" (1978), two-phase commit.
package moves
