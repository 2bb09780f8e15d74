// Package order says whose turn it is: a queue of jobs under an order that is put together from
// comparators.
//
// # Model
//
// An [Order] compares two jobs. Orders nest, each breaking the ties of the one around it, so that
// Priority{Then: Aging{Then: LAS{}}} is strict priority, within it who came in an earlier window, within
// that least attained service:
//
//	FIFO      earliest submit first
//	Priority  higher priority first, strictly
//	Aging     priority that rises by one with every Step of waiting
//	SJF       shortest expected duration first
//	Fewest    fewest devices first
//	SRTF      shortest remaining time first
//	SRSF      shortest remaining service first: time × devices
//	QSSF      shortest expected service first
//	EDF       earliest deadline first
//	LeastLaxity  least time to spare before the deadline first
//	Attained  least attained service first
//	Gittins   most likely to end for the service it takes to see, going by past jobs
//	LAS       the same in few queues: two-dimensional least attained service, discretised
//
// A [Queue] keeps the jobs. One that waits is in the order. One that runs attains service and is out of it,
// until [Queue.Due] lets it compete for the devices it holds, at a lease boundary or, for a preemptive
// policy, at every pass. Queue implements gang.Orderer: Begin, then Next and Outcome in turn.
//
// Invariants: attained service is the exact sum of devices × time between Start and Stop; feeding time in
// smaller steps changes nothing; the order is total and does not depend on the order of equal-time submits.
//
// # Usage
//
//	q, err := order.New(order.Config{Order: order.Priority{Then: order.LAS{}}})
//	err = q.Submit(now, order.JobOf(gang))
//	q.Begin(now)
//	for id, ok := q.Next(); ok; id, ok = q.Next() {
//		q.Outcome(id, lockstep.Granted) // then q.Start(now, id) when it runs
//	}
//
// # Order of decision
//
// Every chain ends with submit time and job ID. Jobs without an expected duration come after those with one
// in SJF, SRTF, SRSF and QSSF, jobs without a deadline after those with one in EDF and LeastLaxity.
//
// Gittins looks one quantum of service ahead, as two-dimensional Gittins does in the same paper: the index is
// the probability that a job ends within the quantum, given what it attained, over the service that it is
// expected to take of it. It is exact here; that of the authors' simulator, which differs in three ways, is in
// this package's tests. QSSF is that of Hu et al., "Characterization and Prediction of Deep Learning Workloads
// in Large-Scale GPU Datacenters" (Helios), SC 2021, section 4.2.
//
// LAS has a queue for each limit and one more. A job sinks to the next queue when its service since it came
// to the first reaches the limit, at that very instant, also while it runs. A job below the first queue
// that has waited since its last run for at least Knob times what it ran since it last came to the first
// queue goes back there and its service counts afresh. Inside a queue the jobs that were let run come
// first, by when they were let; then the others, by when they came into the queue (at one instant, by
// submit time and ID); a job that is stopped goes to the head of those. So no job is stopped for another of
// its queue that waits. (Gu et al., "Tiresias", NSDI 2019, section 3.2. The default limits are those of the
// authors' simulator, which this package's tests reproduce job for job.)
//
// Aging groups arrivals into windows of Step: the key is the number of the window in which the job was
// submitted or last stopped running, less its priority. The key never changes while the job waits, so that
// aging costs nothing, and each job's key is in the end less than that of all newcomers: nobody starves.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or a writer returned, wrapped. ErrInvalid: a field or a time
// out of range (there is none before 1970), a pointer where an order is meant, a broken snapshot, a
// snapshot of another order. ErrDuplicate: a job submitted twice. ErrUnknown: a job that is not there.
// ErrConflict: a call that does not suit the job's phase, such as Start of one that runs. ErrPast: a time
// before one already seen. After an error nothing has changed. Begin takes an earlier time as the latest
// one.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// With n jobs: Submit, Start, Stop, Due and Finish O(log n) comparisons, as is an Outcome of Granted or
// Kept and the Next after a change; others are O(1). Begin O(c log n) for c competing jobs and O(log n) for
// each job that changed its queue. About 250 bytes a job; finished jobs leave nothing behind.
//
// # Limits
//
// An order says who is next and not who must go. Remaining times come from the expected duration; they are
// as good as it is. EDF and LeastLaxity order; whether all deadlines can be met is policy/deadline's to say.
package order
