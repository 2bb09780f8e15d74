// Package checkpoint pauses, saves, moves and resumes the GPU jobs of a cluster:
// all ranks of a job or none.
//
// # Model
//
// A [Target] is one process whose device state is to be held, and a [Driver] can
// do that: Lock drains what was submitted and blocks further calls, Suspend takes
// the state off the devices, Resume and Unlock are the way back. A job is a fixed
// set of ranks, one target each. An [Epoch] is one try to save them all. It is
// committed if and only if its [Manifest] can be read from the [Ledger].
//
// A [Coordinator] leads a job and an [Agent] keeps one rank. Both are pure: they
// take an [Event] at a time, and answer with a list of [Action]. [Leader], [Rank]
// and [Local] carry the actions out.
//
// The protocol is a two-phase commit that presumes abort (Mohan, Lindsay and
// Obermarck, "Transaction management in the R* distributed database management
// system", ACM TODS 11(4), 1986). The leader says, and a rank answers:
//
//	ask       step                     cooperative epochs only: which step are you at?
//	prepare   ready, refuse            lock; in a cooperative epoch before the collective of the step picked
//	snapshot  staged, stored           suspend and save; Early ranks say staged first
//	resume    resumed                  Early: all are staged, go on while the bytes are stored
//	          (Ledger.Commit)          once all are stored
//	commit    resumed, terminated      go on; or with StopAfter, terminate
//	abort     resumed, refuse          undo: Resume if suspended, Unlock if it was running
//
// A rank also says broken or gone, and busy where it is still on its way. Every
// message may be lost, repeated and overtaken: a rank answers each with how the
// epoch stands with it, and the leader repeats its last word. A number of an epoch
// is recorded before anybody hears it and never used again; a greater number, or
// a leader with a greater [Term], ends what a rank was in.
//
// # All running or all saved
//
// Before the commit every failure leads to an abort: a rank that refuses, dies, or
// does not answer in time, a save that fails, a leader that is gone. After the
// commit there is only one way, forward.
//
// A rank that is held and hears nothing for Silence, or is held for MaxPause,
// comes back by itself. That is safe in two ways. Where ranks go on after the
// commit, a rank that has stored comes back at once: its image stays valid, since
// it was made while all were locked, so that no message that was sent behind one
// rank's image is in another's; the epoch may still be committed, and everybody
// runs either way. A rank that has not stored never will for this epoch, so that
// it is not committed. With StopAfter a rank that has stored is in doubt: its
// peers may have been terminated. It shuts the leader out ([Ledger].Fence with the
// next term) and looks: with the manifest there it has itself terminated, else the
// epoch can never be committed and it comes back. While the ledger cannot be
// reached it stays as it is. A leader whose commit failed does the same to itself,
// and needs a new term after it.
//
// A successor is made with [Restore] and recovers: it fences, looks, and says
// commit or abort; there is no third state.
//
// Invariants, which the tests check in every state of small jobs and in random
// runs of large ones: no target is terminated before the commit; no rank that was
// to stop goes on once its epoch is committed; what is committed has an image of
// every rank; a target is unlocked as often as locked, unless it is reported as
// broken or gone; and left alone, every rank comes back by itself.
//
// # The edges of a target
//
// What is owed is recorded before the call that may make it due. Where the target
// is, read back after the call, counts for more than what the call returned.
//
//	from          event                          then
//	Running       Lock ok                        Locked; owes Unlock
//	Running       Lock timed out                 Running: refuse; Locked all the same: Unlock
//	Running       Lock illegal, or not Running   somebody else's: refuse, owes nothing
//	Running       Lock not supported, permitted  refuse
//	Locked        Suspend ok                     Checkpointed; owes Resume and Unlock
//	Locked        Suspend failed                 Locked: Unlock; Failed: wedged
//	any           call outlives its context      undo, and again until it has ended: only a call that
//	                                             the driver takes shows that it has
//	Locked        Unlock failed                  Running counts as done; else again, Tries times
//	Checkpointed  Resume ok                      Locked; owes Unlock
//	Checkpointed  Resume: bad map                again on the devices it was on
//	Checkpointed  Resume: no memory, or other    wedged: not tried again
//	Checkpointed  save failed                    Resume and Unlock; the epoch is void
//	any           Failed                         wedged: only killing it helps
//	any           Checkpointing, Restoring       read again
//	any           a state nobody knows           hands off; reported
//	any           died, or PID reused            gone; owes nothing
//
// A rank that is wedged, unknown, or cannot be undone is broken: the report names
// it, and who else is to be killed, since the job's next collective never ends.
//
// # Usage
//
//	job, err := checkpoint.NewLocal(checkpoint.LocalConfig{
//		Config: checkpoint.Config{Job: "job-1", Term: term}, Targets: targets, Driver: driver, Saver: saver, Ledger: ledger,
//	})
//	go job.Run(ctx)
//	report, err := job.Checkpoint(ctx, checkpoint.Request{})
//
// # Order of decision
//
// Ranks are told in their order. All are told at once, unless Sequential. Who is
// to blame is listed by rank, and the reason of the first is the report's. At one
// instant a deadline counts before a repetition. The wait before attempt n is
// Backoff·2^(n-2) times a number from 1/2 to 3/2 that comes from Seed and the
// epoch alone.
//
// # Errors
//
// [lockstep.ErrInvalid] names the field. [lockstep.ErrConflict]: a request while
// another runs, before Recover, in a cool-down after MaxAborts, or of a job that
// was stopped. [ErrFenced]: a newer leader. [lockstep.ErrPast]: time went
// backwards. A driver's are *[DriverError]. That a job could not be saved is no
// error but a [Report].
//
// # Concurrency
//
// Coordinator and Agent are not safe for concurrent use; the caller serializes
// calls. Leader, Local, Hub and Workers are safe. At most Workers calls into a
// driver are under way; a further one fails at once and is tried again.
//
// # Cost
//
// A step of an Agent is O(1), and so is a message to a Coordinator, but for the
// one that ends a stage, for a repetition, and for each with Sequential, which are
// O(ranks). About 400 bytes a rank.
//
// # Limits
//
// This is a control protocol on top of the driver's own checkpointing (CUDA 12.8
// and later), and not what FlowGPU's ghost process does (it proxies the device):
// copying does not overlap with the GPU's or the CPU's work, there are no stubs
// that let allocations live on while their memory is away, and no memory is
// filtered unless a saver does.
//
//   - A rank that stops inside a collective leaves its peers in a kernel that never
//     ends, so that their locks time out and the epoch aborts. Transparent epochs
//     lock all at once for that reason, and still abort where the driver cannot
//     drain; stop at a step boundary, or suspend the communicators first.
//   - The driver's lock does not stop CPU threads. A process that talks to the
//     outside while it is locked is not saved with what it said.
//   - Keep MaxPause below the framework's watchdog, which else kills the job that
//     was let go. A rank in doubt may be held for longer, while no ledger answers.
//   - A launcher may have a grace of its own: torchrun kills 30 s after a signal.
//   - A rank that comes back by itself does not keep to Sequential.
//   - A rank that was saved elsewhere has other PCI addresses; NCCL has to start
//     again.
//   - Agents trust their leader, and transports their peers: Listen says how to
//     keep others out.
//   - A job whose Journal is lost has to start above the ledger's latest epoch
//     (Config.After), with every agent of before ended.
package checkpoint
