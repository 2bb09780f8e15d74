// Package cuda pauses CUDA processes from outside, takes their memory off the devices and puts it back, on the
// same devices or on others, with the checkpoint functions of NVIDIA's driver.
//
// # Model
//
// A [Driver] is a checkpoint.Driver. There are three ways to NVIDIA's driver, and one set of rules above them:
//
//   - [New] calls libcuda.so.1 in this process. It is loaded at run time, so a program needs neither cgo nor the
//     toolkit, and runs where there is no GPU; a call costs a microsecond. A fault in the library ends the program.
//   - [NewHelper] calls it in a helper process, which a program becomes by [HelperMain]. A fault ends the helper.
//   - [NewCLI] runs NVIDIA's program cuda-checkpoint for each call. It works with release 555, which has no
//     functions to call, and initialises CUDA at each run, which takes seconds on a large host.
//
// A target goes Running, Locked, Checkpointed, Locked, Running. What a call came to is what is read from the driver
// afterwards, and never its code alone: on the way into a pause (Lock, Suspend) both have to agree, and a failed
// lock that locked all the same is undone at once; on the way out (Resume, Unlock) the state is all that counts.
// States that do not last (CUDA 13.4) are waited for, and numbers that nobody knows are left alone.
//
// That a target may have to be undone is noted before each call. A call that has not returned when its context ends
// is ErrInFlight, and goes on: it cannot be stopped, and neither the helper nor the program is ever killed, since
// that would leave the driver's talk with the target half finished. Until it returns, all other calls for that
// target but State are ErrInFlight. When it does, nobody is waiting for what it did, so the Driver itself takes the
// target back to Running: it resumes what was suspended, by the same map, and unlocks what was locked. Hence no
// target stays half paused because somebody gave up. [Driver.Owed] lists whoever is held, has a call in flight, could
// not be brought back, or is wedged; [Driver.Undo] brings one back, and waits for the call in flight.
//
// Invariants, which hold after any one fault of the library or the target, once calls have returned and the caller
// has undone what failed: each target is Running, or Gone, or Failed and named by Owed; of those that run, each was
// unlocked as often as it was locked. At most 3·Workers calls are blocked, each on a thread of its own.
//
// # Usage
//
//	d, err := cuda.New(cuda.Config{})
//	caps, err := d.Probe(ctx)
//	err = d.Lock(ctx, target, checkpoint.LockOptions{Timeout: 10 * time.Second})
//	moved, err := d.Suspend(ctx, target)
//	moved, err = d.Resume(ctx, target, checkpoint.ResumeOptions{})
//	err = d.Unlock(ctx, target)
//
// With a helper, main begins with cuda.HelperMain(), and cuda.NewHelper(cuda.HelperConfig{}) takes New's place.
//
// Ranks that talk to each other through NCCL go together: Lock all at the same time with the same timeout, since
// one of them drains only when its peers do, and while one is locked every call for its peers may hang, even the
// reading of a state. So Suspend, Resume and Unlock them at the same time as well; if any lock fails, Undo all.
// Ranks that share memory by CUDA IPC are different: release 610 can pause them inside a job that
// cuda-checkpoint --launch-job started (CanIPC), one member after another: lock each, suspend each, then resume and
// unlock each, all in the same order.
//
// Timeouts nest: that of a lock is shorter than its context's, and that shorter than the coordinator's. Suspending
// takes seconds a device and more, so a context under a minute is wrong for most jobs.
//
// # Order of decision
//
// The library is Config.Library, or whatever the loader finds, or what is found in Roots, in their order, each by
// the usual folders; one that cannot be loaded or is a stub is passed over. A target is refused before any call if
// its PID is none, 1, or this process; if /proc is not of this PID namespace; if it is a thread, a kernel thread,
// dead, dying, or not what Start says; and for Lock if it is stopped or frozen. Then comes what is in flight, what is
// wedged, the bound on calls, and the state that is read. Last the host's [Facts] are heard: MIG and too little host
// memory for Suspend; a map that leaves a device out, another chip, MIG, and too little device memory for Resume.
//
// # Errors
//
// The calls return *checkpoint.DriverError with CUDA's number and name and the state that was read. Kinds:
// lockstep.ErrInvalid: what can never be right, such as a thread's number, a timeout that does not fit 32 bits of
// milliseconds, or a map. ErrTimeout: the lock's timeout (600 or 909), or a context that was over before the call.
// ErrInFlight: above. ErrIllegalState: 401, a state that the call does not lead from, or a stopped target.
// ErrUnsupported: 34, 36, 100, 500, 801, 803, no library, a missing function, a driver that is too old.
// ErrPermission: 304, which comes of rights and containers. ErrMemory: 2, or what Facts foresee. ErrWedged: a target
// that is FAILED, or whose Resume failed with 2 or 304, as all later ones would: kill it. ErrGone. ErrDriver: 1, 3,
// 999, a driver that says it worked while the state says otherwise, a helper that died, output of the program
// that is no state, and, with lockstep.ErrConflict, a Driver that is closed or has too many calls blocked.
// New, NewCLI and NewHelper return all faults of a configuration, joined, as ErrInvalid.
//
// [Driver.Probe] gives no error where there is no driver: nothing can be done then, and Limits say why.
//
// # Concurrency
//
// A Driver is safe for concurrent use, and locks; Facts is called without a lock. Each call runs in a goroutine on a
// locked thread, which ends when the call does. Close leaves nothing behind once no call is in flight.
//
// # Cost
//
// A call of the library takes 0.8 µs more than its own time, one through the helper 60 µs, a run of the program 1.3 ms
// (BenchmarkCall, with the fake library). A call of the Driver reads /proc eight times and the state twice:
// 0.2 ms (BenchmarkCycle). Memory: a few hundred bytes for each target that is owed something.
//
// # Sources
//
// Functions, structures, codes and states are those of the CUDA driver API's reference, versions 12.8 to 13.4,
// section "CUDA checkpointing"; options and texts those of cuda-checkpoint 580.65.06 --help; releases, limits and
// the ways in which it fails those of its README and of what users report in NVIDIA/cuda-checkpoint
// #18 #26 #28 #30 #35 #37 #39 #41 #42 #43 #44 #45 #46 #51 #58 and checkpoint-restore/criu #2470 #2547 #2953 #2993.
//
// # Limits
//
// Verified with a library and a program written for the tests (package cudatest), which behave as documented and
// as reported; they are loaded and run in the same way as NVIDIA's, by real processes. Not seen on hardware: any of
// it. In particular unknown are which of 600 and 909 a lock that timed out returns, what reading a state costs while
// a target drains, whether managed memory is refused or harms, what state a job is in when one member's restore
// fails, and the program's text for 909. On linux/amd64 and linux/arm64 only; elsewhere New's calls are
// ErrUnsupported, and off Linux all are.
//
// A program that imports this package is linked dynamically, even without cgo. It does not write images (CRIU does,
// once a target is Checkpointed), stop CPU threads, quiesce NCCL or MPS, see managed memory, or use the custom
// storage of CUDA 13.4: memory goes to the host, which has to have room. Two programs that pause the same target
// undo each other. When this program ends, what was locked stays locked, unless HelperConfig.UndoOnLoss is set.
// That a Resume has wedged its target is known to this Driver alone; another finds out by 304.
// Between the look at a target and the call its PID may pass to another process: it is noticed afterwards, and a
// stranger that was locked is let go.
package cuda
