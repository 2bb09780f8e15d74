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
// holders whose boundary has come, for one admission pass, and the pass records an outcome for
// each:
//
//   - [Table.Extend]: the job keeps its devices for another term. The token stays and there is
//     nothing to do to the job, so it costs nothing.
//   - [Table.HoldOver]: it keeps them until somebody else should have them, which may be any time.
//   - [Table.Yield]: the job saves its work and gives everything back by a deadline.
//   - [Table.Shrink]: the job gives a part back by a deadline; [Table.Resize] says that it has,
//     and fences off the members that left with a new token.
//
// A lease ends only by [Table.Release] (the holder gives it back), or [Table.Revoke] (the
// scheduler takes it). Nothing ends by the passing of time alone: [Table.AppendOverdue] names the
// holders that let a deadline pass or fell silent, for the host to stop and revoke. What was held
// is returned as a [Charge], which ends at the revoke and not at the holder's consent.
//
// A [Loan] is capacity that its lender does not need for now. Leases are granted on it by
// [Table.Borrow], to jobs that can give back within its notice, and [Table.Recall] has it back by
// a deadline: what is free at once; then the leases on it are due until enough of them were told
// to go; and what is missing at the deadline [Table.AppendSettled] takes.
//
// Invariants: tokens strictly increase; a job's charges do not overlap and leave no gap between
// its grant and its end; a lease that was yielded is never extended; the scheduler takes none
// before its boundary without a reason; a recall is never late.
//
// # Usage
//
//	t, err := lease.New(lease.Config{})
//	l, err := t.Grant(now, "job-1", 8*lockstep.WholeGPU, 0)
//	// ... at t.NextWake:
//	charges, err := t.AppendSettled(nil, now) // where there are loans
//	for _, l := range t.AppendDue(nil, now) {
//		l, err = t.Extend(now, l.Job) // or Yield, or Shrink
//	}
//	charge, err := t.Release(now, "job-1", l.Token)
//
// # Terms
//
// A shorter term reacts sooner and costs more: each boundary at which a job yields is paid with a
// checkpoint and a resume. [Config.TermFor] lengthens a job's term until that overhead is at most
// the share Loss of it: overhead 25 s and a loss of 2 % give 1250 s. Terms may begin short and
// grow (First, Growth), since jobs that are short themselves are then over, and boundaries may be
// spread (Jitter). (Ye et al., "ASTRAEA", IEEE TPDS 2022, has one term for all jobs.)
//
// # Order of decision
//
// AppendDue goes by the time since which a lease is due, then by job ID. AppendOverdue goes by
// the time since which a holder is overdue, then by job ID. A boundary that is decided late keeps
// its phase: the next one is the first multiple of the term behind now. AppendSettled takes who is
// giving back, by deadline, then the latest grant, then the greatest ID. [AppendReclaim] has the
// order in which lent servers are emptied.
//
// # Errors
//
// All are *lockstep.Error, or what a reader, a writer or a store returned, wrapped. ErrInvalid: a
// value out of range, an empty reason, a broken snapshot. ErrDuplicate: a job that holds a lease.
// ErrStale: a token that is no longer valid. ErrUnknown: no such lease, loan or token. ErrConflict:
// what the state of the lease or loan forbids, and a grant once tokens have run out. ErrPast: a
// time before one already seen. After any error nothing has changed.
//
// # Concurrency
//
// A Table and a [Memory] are not safe for concurrent use; the caller serializes calls. Leases and
// charges are values.
//
// # Cost
//
// With n leases: every change O(log n), of one on a loan O(leases on it · (log n + recalls)) at
// most; reading one O(1), AppendDue and AppendOverdue O(what they name), Snapshot, Restore, Save
// and Load O(n log n). About 300 bytes a lease. What ended leaves nothing behind.
//
// # Limits
//
// The table does not know devices, only amounts; placement does. It does not choose the outcome.
// A token is only as durable as the last Save: save before telling a holder its token, or
// [Table.Raise] the table above all that were told after it was restored.
package lease
