// Package lockstep holds the words that every Lockstep package shares: IDs,
// units, what a gang asks for, what a plan grants, and why.
//
// Lockstep is a set of small deterministic cores that a host program composes
// into its own GPU-cluster scheduler. The host owns the truth (nodes, jobs,
// processes), the clock, the goroutines and the I/O. Each core answers one
// question, from values, in values, and imports only packages on lower floors:
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
// README.md lists the packages that this version holds.
//
// # Model
//
//   - node: a host with devices; device: a GPU, or a partition of one.
//   - domain: what one point of the topology contains, such as a rack; level: a
//     kind of domain, the finest being [LevelNode].
//   - job: what a tenant submits; gang: the members that a job runs together,
//     all or none; role: a set of like members; member: one process group on
//     one node; rank: a member's number in its gang, from 0.
//   - demand: what one member needs; request: a gang as asked of a placer; plan:
//     devices for each rank; verdict: the short answer; explanation: the long one.
//   - hold: room kept while members confirm; reservation: room kept from a
//     future time on; backfill: running a later gang in the meantime.
//   - preempt: take devices within a queue; reclaim: across queues; victim: the
//     gang they are taken from; yield: give them back when a term ends.
//   - queue, nominal quota, borrowing, lending, fair share: as in Kueue.
//   - fragmentation: free room that the waiting demands cannot use.
//
// Amounts are integers ([MilliGPU], [GPUTime], [MilliCPU], [Bytes]) whose sums saturate.
//
// # Usage
//
//	var g lockstep.Gang
//	err := json.Unmarshal(data, &g) // then g.Validate()
//	verdict, err := placer.Fit(&lockstep.Request{Gang: &g}, &plan)
//	env, err := plan.Env(rank)
//
// # Order of decision
//
// This package decides nothing. A core gives the same bytes for the same calls on
// every platform; ties end at an ID or at the order of the topology.
//
// # Errors
//
// "Does not fit" is a [Verdict] with a [Reason]. An error wraps an [*Error]: it is
// bad input ([ErrInvalid], [ErrDuplicate], [ErrUnknown]), a plan of an older state
// ([ErrStale]), a call that the state forbids ([ErrConflict]) or time going
// backwards ([ErrPast]); then nothing has changed. Indices and counts given to
// accessors ([Schema.Name], [Gang.GPUs]) must be in range, or they panic.
//
// # Concurrency
//
// Values may be read from many goroutines. [Monotone] locks; no core does, and
// the caller serializes calls.
//
// # Cost and limits
//
// Making a [Verdict] and arithmetic on amounts allocate nothing; [Plan.Env] is
// O(members) for one rank. The environment speaks of NVIDIA devices only.
package lockstep
