// Package etcd keeps one scheduler at work where several run, and what it knows where
// the next one finds it: leadership with fencing tokens, a lease.Store, and snapshots
// with a log, on etcd v3.
//
// # Model
//
// A [Space] is the part of an etcd under one prefix. Processes campaign in it, and the
// one that wins is its [Leader] for a reign: until it resigns, or its etcd lease ends.
// Each reign has a token, higher than all before. Two things hold a leader to it:
//
//   - The guard. Every write is one transaction that also compares the mod revision of
//     the leader's key, which is gone with the lease, and the token. Whoever has been
//     succeeded can write nothing, also where its request was under way for an hour.
//   - The clock. [Leader.Check] says whether the reign is certain to last at this
//     moment: renewals count from before they were sent, by a clock that does not jump.
//     A process that was stopped past its lease knows so before it does anything.
//
// What is outside etcd, such as a device, does not see the guard: send it the token,
// and have it refuse every token lower than the highest it has seen.
//
// A [Store] is a lease.Store whose revisions are etcd's. A [Journal] is a snapshot of a
// core, such as scheduler.Scheduler or fairness.Ledger, and the log of its inputs
// since. One key, the head, says what counts: which parts are the snapshot, and which
// record and which batch are the last. It changes in the same transaction as what it
// counts. Whatever is longer than a request may be is cut into parts, which are
// written before the value that names them.
//
// Invariants: in the history of etcd, no write of a leader comes behind the
// beginning of a later reign. What a call acknowledged is there. What is recovered
// is the state after some number of inputs, no fewer than were acknowledged, bit
// for bit under the same configuration and version of this library (but for the
// versions of the room, by which plans from before are refused), or an error.
// Nothing that counts is overwritten in place, and nothing is skipped.
//
// # Usage
//
//	space, err := etcd.New(etcd.Config{Client: client})
//	err = space.Run(ctx, func(ctx context.Context, l *etcd.Leader) error {
//		journal, err := space.Journal("scheduler", l)
//		s, err := journal.Scheduler(ctx, scheduler.Config{...}) // as it was left
//		for { // until an error
//			err = s.Apply(event)
//			actions, err := s.Step(now)
//			err = journal.Commit(ctx, s) // first it is written down
//			err = l.Check()              // and then it is done, under l.Token()
//		}
//	})
//
// # Order of decision
//
// Whoever asks first once nobody leads is the next leader; there is no queue. The
// token is the revision at which the reign began, or one more than the highest of
// before and Config.Floor where that is not higher. Records are written in the order
// in which they were added, in as few transactions as Config.Chunk allows.
//
// # Errors
//
// *lockstep.Error of kind ErrInvalid for a fault of the Config or of a name;
// ErrDeposed, which is lockstep.ErrStale and ErrConflict, for whoever no longer leads;
// ErrConflict for a revision that is not the present one, a record out of place, a
// journal that was not recovered, and one of a reign with a later token; ErrCorrupt,
// which is ErrInvalid, for what is not as it was written. All else is what etcd or
// the context returned, wrapped: then it is not known whether a Swap or a Commit of
// a Leader took place. Flush, Commit and Snapshot of a Journal find out. They and
// Recover go on until their context or the reign ends, but return at once what etcd would say
// again: that there is no space, that the user may not, that the request is too
// long, that its data is damaged.
//
// # Concurrency
//
// Space, Leader and Store are safe for concurrent use. A Journal is not, nor are the
// cores. A Leader has one goroutine, until Resign; Run resigns. Run and Watch leave
// none behind.
//
// # Cost
//
// One transaction, of one log entry of etcd, per Swap, per act and per batch of
// records: a fenced append takes about 1.3 times as long as a bare put of the same
// bytes (BenchmarkFencedAppend). A snapshot of n bytes is n/Chunk + 1 transactions, and
// Recover is O(state + records since). A renewal every third of
// the TTL. Memory: one part while writing, the whole snapshot while reading. In etcd: the
// snapshot twice while it is replaced, the log since, and what etcd has not
// compacted, which is for its operator to set up.
//
// # Limits
//
// The clock is the process's monotonic one: it goes on while a process is stopped, but
// not on all systems while the whole machine is suspended, and etcd may end a lease
// early where a member's disk hangs (etcd-io/etcd#15247). Then Check is late, and the guard
// and the token are what protects. A record that was not committed when its process
// died is lost: the host tells it again. Nobody follows a log while it grows: who
// takes over reads it then. One leader a space; use prefixes for more. One
// Journal value a name and reign. Bytes are stored as they are: encryption is
// for etcd, the client and its disks.
package etcd
