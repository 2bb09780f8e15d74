// Command sim measures the composed scheduler: how fast a simulation of it runs,
// whether its memory stays flat over millions of jobs, how soon it is back after a
// restart, and what an event costs the ledger behind it. It uses one core.
//
//	go -C benchmarks run ./sim                   every figure, a few minutes
//	go -C benchmarks run ./sim -quick            the same with smaller inputs, within 30 seconds
//	go -C benchmarks run ./sim -check            leaves with status 1 when a target is missed
//	go -C benchmarks run ./sim -only life -jobs 10000000
//
// -only names the parts to run, of speed, life, restart and ledger; -cpuprofile
// writes a profile of them.
//
// # Speed
//
// A trace is replayed by sim.Run under LTGF, with terms of 900 s, and under FIFO
// with EASY backfill. Every job may be stopped, at 5 s for a checkpoint and 20 s
// for a resume, and says truly how long it runs. Making jobs and scheduler is not
// measured; all of sim.Run is, with its own ledger, its checks of every device,
// and its samples over time.
//
// The two weeks of Philly (with the weights of its tenants) are read from the
// directory traces of LOCKSTEP_SHARED, or of ../shared beside the module's parent
// where that is not set. Where it is absent that part says so and is passed over;
// a made up trace of like size needs no file.
//
// The extract offers 687 GPUs' worth of work on average, much of it by jobs that run
// for weeks beyond its end: on 704 GPUs some jobs wait at times, on 768 fewer; on
// 512 GPUs, printed for comparison, a queue stands for days.
//
// A job event is something that happens to a job, of which the scheduler has to
// take note or on which it has to decide:
//
//   - told (sim.Result.Events): a submission, the confirmation of one member of a
//     gang, the end of an eviction (the checkpoint is written, the devices are
//     clean), a finish;
//   - terms: the end of a holder's term, upon which it competes with all who wait
//     and is extended, or told to go. The lease table knows these times, so nobody
//     tells them to the scheduler. They are counted by their outcome:
//     extensions and preemptions.
//
// Under FIFO there are no terms. Decisions (sim.Result.Actions) are what the host
// is told to do: reserve, start, extend, evict. A term that ends is one event and
// one decision; what is told is never a decision. Steps are how many times the
// scheduler was asked to decide.
//
// Each replay is interrupted some twenty times for a calibration, which is left
// out of its times; its slowness is their first quartile. See package harness.
//
// # Long life
//
// Jobs are submitted, run and forgotten through a scheduler under LTGF on 8 nodes
// of 8 devices, by a host that keeps some number of them in the system: when one
// leaves, the next comes after a short while. Terms end, jobs are preempted and
// come back. The scheduler remembers the latest 1,024 that have left (its
// default) and forgets the rest; the host keeps nothing of them. After each tenth
// of the jobs the live heap is measured behind a collection. It is flat where no
// tenth ends with more than 1.1 times what the first ended with.
//
// # Restart
//
// A replay under LTGF is stopped where most jobs wait. Snapshot and Restore are
// timed there, and so is the replay of the inputs that come next, by the restored
// scheduler: each Apply and each Step, as the log has them, with gangs decoded
// beforehand. That it decides as the one that was never stopped did, byte for
// byte, is checked.
//
// # Ledger
//
// A fairness.Ledger of 100, 10,000 and 100,000 tenants, each with one job that
// runs and one that waits, takes the events of jobs that come and go, of tenants
// drawn at random. Submissions, starts, finishes and forgets come in batches, so
// that each kind has a time and allocations of its own. Opening a pass is measured
// beside that: it is O(tenants that wait).
package main
