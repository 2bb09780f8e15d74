// Package meter turns what a host sees of a scheduler into measurements: events
// that go in, actions that come out, and where jobs stand.
//
// # Model
//
// A Meter is told of each event behind its Apply and of each Step behind it. It
// keeps a small entry for every job that has not ended, asks the scheduler where
// those stand that were touched, and records what has changed. Sample records
// the levels. Metrics is the table of all descriptors, which an adapter declares
// before the first measurement; it holds those of other packages too, for a host
// to record where it has them:
//
//   - scheduler/meter, by itself: jobs and their states, waits, decisions,
//     evictions, restarts, resizes, devices by class, device time;
//   - by Meter.Tenants, from scheduler.Scheduler.Statements: quota, borrowed,
//     lent and shares of tenants;
//   - the host, from what the package says that Feeder names: fragmentation
//     (placement.State.Fragmentation), deadlines met and rejected (policy/deadline),
//     fencing and loans (lease), packing and oversubscription (sharing), requests
//     and replicas (serving), predictions (perfmodel), health and verdicts (detect).
//
// gang.Metrics and profile.Metrics describe what those packages record themselves.
//
// Invariants: no label is a job. Every job that was begun is in one state, or was
// counted as ended. The counts of GPUSeconds over all kinds add up to the device
// time of lifecycle's ledgers, less than a second a tenant and kind left over.
// Like calls lead to like measurements in a like order.
//
// A Meter tells the first Config.Values queues and tenants apart and adds up the
// others as Other, those that are called so among them. Beyond that, for whatever is
// recorded, Bounds cap how many values a label has and how many series a metric has;
// what is beyond becomes Other, and is counted. Adapters have them built in; put
// Bounds.Recorder in front of a Recorder of your own.
//
// # Usage
//
//	m, err := meter.New(meter.Config{Tree: tree, Recorder: recorder})
//	s, err := scheduler.New(scheduler.Config{Tree: tree, Recorder: m.Tap()})
//	err = s.Apply(e)
//	m.Event(s, &e, err)
//	actions, err := s.Step(now)
//	m.Step(s, now, took, actions) // took is how long Step took
//	m.Sample(s, now)              // before a scrape
//
// Where the scheduler knew of jobs before, since it was restored or has adopted
// them, tell a new Meter of each by Follow; nodes it finds by itself, at the next
// Sample. Give it a Recorder of its own too: it does not know which levels another
// one set, and would leave those that are over as they are.
//
// # Order of decision
//
// None is made here. Events and actions are recorded in their order, levels by
// their labels, jobs in the order of their submission. Bounds keep the values
// that come first.
//
// # Words
//
// Admission wait runs from the submission, or from the end of a job's last attempt
// with what it waited in backoff, to the grant of room; start latency from there to
// the start.
// A job is placed when it is granted room, deferred when a pass tried it in vain
// (which Tap counts), rejected when it was refused or will not be tried again.
// States are lifecycle's. Allocated is what running and leaving jobs hold,
// reserved what is held for those that have not started, spares included;
// quarantined devices, on nodes that are down or cordoned, may be allocated too.
// Productive time that is lost in the end was counted before, so the counter
// stands still until as much was made up for.
//
// # Errors
//
// New and NewBounds return ErrInvalid; nothing else fails.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls with those of the
// scheduler.
//
// # Cost
//
// A Meter that is off costs a comparison. Else an event or action costs a
// Scheduler.Status and what the recorder takes, a node that is lost one Status a
// job, Sample one a job and O(members + nodes). About 350 bytes a job.
//
// # Limits
//
// The table has about fifty names, more than a package should have; they are one
// list. The budget of a restart is found by its cause alone, as if the exit code
// were 1. States that are passed in no time are not seen. How long a job took to
// grow is known to its host only: ResizeStall is about those that shrink or lost
// members. Deadlines met are the host's to count. Scheduler.Run tells nobody of an
// event that was taken, nor how long its steps take: a host that measures has a
// loop of its own.
package meter
