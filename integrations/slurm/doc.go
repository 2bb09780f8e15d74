// Package slurm plans the queue of a Slurm cluster with Lockstep, beside the Slurm that runs it: in which order, when and
// where jobs would start, why the others wait, and which priorities would make Slurm start them in that order.
//
// # Model
//
// A View is what Slurm's commands tell of a cluster at one time: its nodes, its jobs, and topology.conf. Plan puts it into
// the scheduler composition of the library and runs that ahead in time.
//
//   - A Job becomes a gang: a member for each node, all or none, with devices, processors and host memory. Components of
//     a heterogeneous job are one gang. Each task of an array is one, as many at once as the array allows.
//   - Partition, features, required and excluded nodes and reservations become the set of nodes on which it may run.
//   - Jobs that run stay where they are, on the devices that Slurm says, and end when their limits say. What a node has
//     in use and no job explains is left alone: others may have jobs that Slurm does not show.
//   - Jobs have turns: when one is granted room or, while there is none, has room reserved so that nobody behind may
//     delay it. Report.Rows are in that order, each with its start and nodes, or the Reason why it has none.
//
// Invariants: a job that cannot be read or used is a fault in the Report, by job and field, and harms no other; a plan
// depends on nothing but View and Config, and not on the order of their lists; priorities fall strictly with the turn,
// and of all that do so those are given that leave most jobs as they are; no job is given one that is held, waits for
// another or for its time, is kept back by what is not looked at here, or is not of Config.Users; Plan
// changes nothing, and only Client.Apply tells Slurm anything.
//
// # Usage
//
//	var c slurm.Client
//	v, err := c.View(ctx)                    // or ReadJobs and ReadNodes, on files
//	v.Topology, err = slurm.ReadTopology("topology.conf", f)
//	r, err := slurm.Plan(v, slurm.Config{})
//	err = r.WriteText(os.Stdout)
//	applied, err := c.Apply(ctx, r.Changes()) // only to put it into effect
//
// The command lockstep-slurm does this.
//
// # Order of decision
//
// By Rule. LTGF: the account that is owed most, by what it holds and wanted over Config.History; within one the shortest
// limit; then the longest wait. FIFO, SRTF and LAS as package policy/order says, over the time since jobs were eligible.
// Slurm: the priorities that jobs have. Ties end at the lower number, of tasks at the lower task. Who may pass a job that
// is blocked, gang says (Config.Backfill).
//
// # Errors
//
// Readers and Plan return a *lockstep.Error. ErrInvalid: what is no document, or one of errors alone; a Config or time
// out of range, a number of a node that none has, a topology that is none. ErrDuplicate: a node that a View has twice.
// Faults are *lockstep.Error too: Field is "job 17.time_limit" or "node n01.gres", of ErrInvalid, ErrDuplicate (of two
// jobs with one number the first counts), ErrUnknown (a node that the topology does not name) or ErrConflict. A command
// of Slurm that failed is a *CommandError. In an Applied ErrStale is a change that no longer suits its job, and
// ErrInvalid one that no Report gives.
//
// # Concurrency
//
// Readers and Plan keep nothing and may be called from anywhere. A Client may be used from several goroutines; it starts
// none but those of os/exec, which end with the command. A command that is ended takes along what it started. Two that
// apply to one cluster undo each other's work.
//
// # Cost
//
// Reading is O(bytes). Plan takes a step of the scheduler for each time, by Config.Resolution, at which jobs end. With
// 1,000 nodes and 7,000 jobs (BenchmarkPlan) reading takes 0.3 s, planning a week 1.3 s and planning the present alone
// 0.2 s. About 10 KiB a job.
//
// # Limits
//
// Not looked at: limits of associations and QOS and licenses (what Slurm says it keeps back for them has no start),
// preemption, gang scheduling in time slices, priority tiers of partitions, reservations that have yet to begin, MPS,
// shards and MIG, burst buffers, federations; sockets and cores are processors. Nodes with several kinds of devices have
// none by name. Members of a job may share a node where Slurm would take two: they are spread, but not forced apart. Jobs
// that others wait for are taken to end well; who waits for an array of more than Config.ArrayTasks tasks, or for a job
// that never starts, has no start. Accounts begin with what the View shows: what ended jobs got is not known. Starts are
// what limits say; jobs that end sooner start others sooner. Slurm 22.05 does not tell of switches. Variables that filter
// Slurm's commands, such as SQUEUE_USERS, do not count; SLURM_CONF and SLURM_CLUSTERS do.
package slurm
