// Package sim runs a scheduler on a list of jobs, in simulated time, and measures
// what came of it.
//
// # Model
//
// Run is the host of a Scheduler: it submits each job at its time, does what the
// actions say, and reports what happens. A job that is reserved confirms
// (Config.Latency later), one that starts works for its duration. One that is
// told to go saves its work for as long as its gang's Capabilities.Save says,
// during which its devices are still its own, then waits with the rest of its
// work; when it starts again it first stands still for Capabilities.Restore. One
// that is extended in place pays nothing, unless Config.Unconditional asks what
// release at every boundary would have cost.
//
// Whatever the policy, tenants are measured by a fairness.Ledger of the
// simulation's own, with max-min entitlements. A tenant's lag is what it was
// entitled to less what it got, in GPU-time. Its greatest is taken over the times
// at which at least two tenants have jobs that wait: with one, nobody is in its
// way but itself.
//
// Invariants, checked in every run: no device is given to two jobs; no more is
// held than there is; time goes forward. Result.Service, from the ledger, and
// Result.Held, the sum over jobs of devices × time held, are equal, exactly.
//
// # Usage
//
//	jobs = append(jobs, sim.Job{Gang: j.Gang(8), Submit: j.Submit, Duration: j.Duration})
//	r, err := sim.Run(sim.Config{Tree: tree}, jobs, s)
//
// sim/trace reads and makes up such jobs.
//
// # Order of decision
//
// At one time jobs end first, then leave, then confirm, each in the order in
// which that was set off; then jobs are submitted, by time and ID; then the
// scheduler takes a step. With Config.Tick all of this happens at the next
// multiple of it, which is how simulators in rounds behave; with free
// preemption it reproduces the Tiresias authors' (Gu et al., NSDI 2019).
//
// # Errors
//
// ErrInvalid for a malformed Config or Job, ErrDuplicate for a job that occurs
// twice, what the scheduler refuses an event with, and ErrConflict for an action
// that does not suit its job or devices. Resizes are ErrInvalid: a trace does not
// say how fast a job would be with other members. Then there is no Result. A job
// that never gets its devices, such as a gang wider than the cluster, is no error:
// Run ends when nothing more will happen, and Result.Unfinished counts it.
//
// # Concurrency
//
// Run is a function of its arguments: runs with schedulers and gangs of their own
// may go on at once.
//
// # Cost
//
// O(log jobs) an event beside the scheduler, O(tenants) where tenants wait.
// BenchmarkRun prints job events (told and decided) a second.
//
// # Limits
//
// Jobs do not fail and nodes do not go down. Speed depends neither on where a job
// runs nor on its neighbours.
package sim
