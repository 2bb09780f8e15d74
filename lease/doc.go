// Package lease keeps who holds which amount of devices until when, and fences off those who no
// longer do.
//
// # Model
//
// A lease gives one job an amount of devices for a term. It carries a token; tokens of one table
// only grow and are never used twice, so that whoever guards a device can refuse every holder
// with a lower token than the highest it has seen. A job holds at most one lease.
//
// The end of a term, its boundary, is a decision and not a release. [Table.AppendDue] names the
// holders whose boundary has come, for one admission pass, and the pass records one of three
// outcomes for each:
//
//   - [Table.Extend]: the job keeps its devices for another term. The token stays and there is
//     nothing to do to the job, so it costs nothing.
//   - [Table.Yield]: the job saves its work and gives everything back by a deadline.
//   - [Table.Shrink]: the job gives a part back by a deadline; [Table.Resize] says that it has,
//     and fences off the members that left with a new token.
//
// A lease is [Held], [Yielding] or [Shrinking], and ends only by [Table.Release] (the holder
// gives it back), or [Table.Revoke] (the scheduler takes it). Nothing ends by the passing of time
// alone: [Table.AppendOverdue] names the holders that let a deadline pass or fell silent, for the
// host to stop and revoke. What was held is returned as a [Charge], which ends at the revoke and
// not at the holder's consent.
//
// Invariants: tokens strictly increase; a job's charges do not overlap and leave no gap between
// its grant and its end; a lease that was yielded is never extended; the scheduler takes none
// before its boundary without a reason.
//
// # Usage
//
//	t, err := lease.New(lease.Config{})
//	l, err := t.Grant(now, "job-1", 8*lockstep.WholeGPU, 0)
//	// ... at t.NextWake:
//	for _, l := range t.AppendDue(nil, now) {
//		l, err = t.Extend(now, l.Job) // or Yield, or Shrink
//	}
//	charge, err := t.Release(now, "job-1", l.Token)
//
// # Terms
//
// A shorter term reacts sooner and costs more: each boundary at which a job yields is paid with a
// checkpoint and a resume. [Config.TermFor] lengthens a job's term until that overhead is at most
// the share Loss of it: overhead 25 s and a loss of 2 % give 1250 s. (Ye et al., "ASTRAEA", IEEE
// TPDS 2022, has one term for all jobs and leaves this choice as future work.)
//
// # Order of decision
//
// AppendDue goes by the time since which a lease is due, then by job ID. AppendOverdue goes by
// the time since which a holder is overdue, then by job ID. A boundary that is decided late keeps
// its phase: the next one is the first multiple of the term behind now.
//
// # Errors
//
// All are *lockstep.Error, or what a reader, a writer or a store returned, wrapped. ErrInvalid: a
// time, an amount, a term, a deadline or an ID out of range, an empty reason, a broken snapshot.
// ErrDuplicate: Grant for a job that holds a lease. ErrStale: Renew or Release with a token that
// is no longer valid. ErrUnknown: no lease of that job, or a token that was never issued.
// ErrConflict: Extend of a lease that is not due or is giving back, Yield of one that yields,
// Shrink or Resize to an amount that does not suit, and a Grant or Resize once tokens have run
// out. ErrPast: a time before one already seen. After any error nothing has changed.
//
// # Concurrency
//
// A Table and a [Memory] are not safe for concurrent use; the caller serializes calls. Leases and
// charges are values.
//
// # Cost
//
// With n leases: every change O(log n), reading one O(1), AppendDue and AppendOverdue O(what they
// name), Snapshot, Restore, Save and Load O(n log n). About 250 bytes a lease. An ended lease
// leaves nothing behind, so there is nothing to forget.
//
// # Limits
//
// The table does not know devices, only amounts; placement does. It does not choose the outcome.
// A token is only as durable as the last Save: save before telling a holder its token, or
// [Table.Raise] the table above all that were told after it was restored.
package lease
