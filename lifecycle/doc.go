// Package lifecycle says which transitions a job may make, what an exit means, and where the job's time went.
//
// # Model
//
// A job is in one [State]. Queued, Admitted and Reserving lead to Starting and Running; Draining, Lost and
// Cleaning lead away; Held, Suspended and Backoff wait; Succeeded, Failed, Cancelled and DeadlineExceeded are
// the end. [Legal] is the table. A [Move] is what asks for a transition; one move may pass through several
// states in no time, as a cancel of a held job passes through Queued, and every passage is legal by itself.
// Checkpointing and resizing are flags of Running, not states.
//
// Each time a job is reserved begins an attempt. Attempts only grow, and what an agent says about one that is
// over is counted and dropped.
//
// Invariants:
//
//  1. Devices go back to the pool only at the end of Cleaning, as they are confirmed; those that are not by the
//     deadline are quarantined, not freed. Before the start (Reserving) all go back at once.
//  2. Events of attempts that are over change nothing, whoever sends them.
//  3. Each attempt of a job starts at most once.
//  4. One cause consumes one budget once: an attempt is charged at most once.
//  5. A job has one pending transition at most: what is being drained is not drained again, only cancelled.
//  6. Replaying the events that were applied reaches the same bytes.
//  7. The parts of a job's ledger sum to the time since its submit, exactly, and the same for device time.
//  8. No move leads out of a terminal state.
//  9. A gang moves together: there is one state for all its members.
//  10. Every non-terminal state except Held, Running and Suspended has a deadline with an exit: Queued to
//     DeadlineExceeded, Admitted and Reserving to Queued, Starting to Draining, Draining to Cleaning, Lost to
//     Cleaning, Cleaning to where it was bound, Backoff to Queued.
//
// # Usage
//
//	m, err := lifecycle.New(lifecycle.Config{})
//	steps, err := m.Apply(nil, &lifecycle.Event{Move: lifecycle.MoveSubmit, Time: now, Job: "a"})
//
// With a gang scheduler, let [Machine.ForAction] and [Machine.ForEvent] translate. Store each event that Apply
// accepted: they are the log (and each Forget, which is no event). A step to Queued from Backoff, Held or
// Suspended is when a host submits the job to the gang scheduler again.
//
// # What an exit means
//
// An intent recorded before the exit (MoveDrain with its cause) decides, unless the work is done; then the
// cause that the exit is reported with; then out of memory; the exit code only breaks what is left. [Rule]s are
// tried in order, the first that matches says where the job goes and which budget pays. [DefaultRules] send a
// clean exit to Succeeded, a preempted job to Queued free of charge, a lost node to Backoff at the cost of the
// infra budget, out of memory and bad set-ups to Held, and other exits to Backoff at the cost of the app
// budget. A budget that is used up turns into Failed. Backoff doubles from Config.Backoff to Config.BackoffMax.
// Budgets start afresh after Config.Stable of running. (Kubernetes podFailurePolicy, JobSet and Volcano share
// the shape of the rules.)
//
// # Order of decision
//
// Time passes first: deadlines up to an event's time fire before it, each at its own time, by deadline and then
// by job ID; so it does not matter how often MoveTick is called. A deadline counts as met at its very instant.
//
// # Ledger
//
// Held, Queued, Admitted, Reserving, Suspended and Backoff are waiting; a Running job is productive, or
// checkpoint while it saves; the productive time since the last durable save is moved to lost when an attempt
// ends without saving or succeeding.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or a writer returned, wrapped. ErrInvalid: a field or time out of
// range (there is none before 1970), an unknown move, a broken snapshot. ErrDuplicate: a job submitted twice.
// ErrUnknown: a job or a future attempt. ErrStale: a Reserve with an attempt already used. ErrConflict: a move
// that the job's state does not allow. ErrPast: a time before one already seen. After an error nothing has
// changed, not even a deadline has fired. A dropped event is not an error.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// O(log n) a step with n jobs, about 500 bytes a job. Terminal jobs stay until Forget, or for Config.Retain.
//
// # Limits
//
// No members: who is lost in a gang is the host's to say. Which step of a workflow may run is package
// lifecycle/dag's. [State.In] and [StateIn] translate the words of Kubernetes, Volcano, Kueue and Slurm, as far as a
// word alone can say where a job is.
package lifecycle
