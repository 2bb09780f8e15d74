// Package lockstep holds the words that every Lockstep package shares: IDs,
// units, what a gang asks for, what a plan grants, and why.
//
// Lockstep is a set of small deterministic cores that a host program composes
// into its own GPU-cluster scheduler. The host owns the truth (nodes, jobs,
// processes), the clock, the goroutines and the I/O. Each core answers one
// question, from values, in values.
//
// # Map
//
// A package imports only packages on lower floors.
//
//	6  sim         what would a scheduler do on that trace?
//	5  scheduler   the reference composition of the packages below
//	4  gang        is this gang admitted now, all or nothing?
//	3  placement   which devices?
//	2  sharing     may these tenants live on one device?
//	   fairness    who is owed service, and who may use quota?
//	   lease       who holds what until when?
//	   policy      in what order, and how many devices each?
//	   detect      is something slow, dead or sick?
//	   reconfig    what is the best parallel plan for the devices left?
//	   hpo         which trial continues, which fuse, what fits in a bubble?
//	   checkpoint  how is a GPU job paused, saved, moved, resumed?
//	   serving     what batch, how many replicas, under this SLO?
//	1  topology    how far apart are two devices, and what contains what?
//	   perfmodel   what does this job cost?
//	   pipeline    when does each chunk of a schedule run?
//	   lifecycle   which transitions may this job make?
//	0  lockstep    what do the words mean?
//
// The packages that exist in this version are those that the module holds;
// README.md lists them.
//
// # Glossary
//
//   - node: a host with devices; device: a GPU, or a partition of one.
//   - domain: what one point of the topology contains, such as a rack; level: a
//     kind of domain. The finest level is [LevelNode].
//   - job: what a tenant submits; gang: the members that a job runs together,
//     all or none; role: a set of like members; member: one process group on
//     one node; rank: a member's number in its gang, from 0.
//   - demand: what one member needs; request: a gang as asked of a placer;
//     plan: devices for each rank; verdict: the short answer; explanation: the
//     long one, with the least changes that would let the gang in.
//   - hold: room kept while members confirm; reservation: room kept from a
//     future time on; backfill: running a later gang in the meantime.
//   - preempt: take devices within a queue; reclaim: across queues; victim: the
//     gang they are taken from; yield: give them back when a term ends.
//   - queue, nominal quota, borrowing, lending, fair share: as in Kubernetes
//     batch queues.
//   - fragmentation: free room that the waiting demands cannot use.
//
// # Outcomes and errors
//
// "Does not fit" is an outcome: a [Verdict] that is not feasible, with a
// [Reason]. An error means bad input ([ErrInvalid], [ErrDuplicate],
// [ErrUnknown]), a plan from an older state ([ErrStale]), a call that does not
// suit the state ([ErrConflict]) or time going backwards ([ErrPast]); then
// nothing has changed. The details are in [*Error].
//
// # Determinism
//
// A core reads no clock, starts no goroutine and draws no random number: the
// same calls give the same bytes on every platform. Ties end at an ID or at the
// order of the topology. Amounts are integers ([MilliGPU], [MilliCPU], [Bytes])
// whose sums saturate.
//
// # Concurrency
//
// Values of this package may be read from many goroutines. [Monotone] locks;
// nothing else does, and cores are not safe for concurrent use: the caller
// serializes calls.
package lockstep
