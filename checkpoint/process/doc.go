// Package process ends and holds the process trees of jobs: SIGTERM, a grace, SIGKILL, and SIGSTOP or the cgroup
// freezer in between.
//
// # Model
//
// A target is a process and all that came of it, as internal/proctree finds it: children, whoever has left its process
// group or session, and what daemonised, by the environment that a started job passes on, or by its cgroup. It is known
// by its pid and its start; each signal goes through a pidfd that was checked against the start, so whoever has got the
// pid since is never met.
//
// [Driver.Terminate] ends it. SIGTERM goes to the process that will act (Grace.To): the root alone as a kubelet has it,
// every member, or one that is named. Then it waits until all have ended or Grace.Period is over, and only then, or if
// told (Grace.Immediate, Grace.Linger), kills everybody. It returns when the kernel shows that nobody of the tree is
// alive, which is when devices may be given to others, and has then reaped what is this process's to reap.
//
// How a job ends says little about its work, so three things are kept apart. A claim is an acknowledgement (Grace.Ack,
// Grace.AckFile) or an exit code that Contract names; 0 is one only if it is named. A proof is an image that
// Contract.Image has found. The [Verdict] is Saved with a proof only, Unproven with a claim that nobody could hold
// against an image, and NotSaved otherwise: exit 0 without an image is not a save.
//
// [Driver] is a checkpoint.Driver as well. Locked means that every thread of every member is stopped or traced, or that
// its cgroup has frozen, as the kernel shows it, whoever did it. Device memory stays where it is: Suspend and Resume are
// not supported, and Probe says so.
//
// # Usage
//
//	d, err := process.New(process.Config{})
//	target, err := d.Start(cmd)        // or one that runs: process.Identify(pid)
//	err = d.Lock(ctx, target, checkpoint.LockOptions{Timeout: time.Second})
//	err = d.Unlock(ctx, target)
//	r, err := d.Terminate(ctx, target, process.Grace{
//		Period:   60 * time.Second,
//		AckFile:  "/run/job/saved",
//		Contract: process.Contract{Saved: []int{0}, Image: find},
//	})
//
// # Order of decision
//
// Terminate checks its input, then the target, then that AckFile is not there yet, and looks for what will go wrong
// (Report.Complaints, also from [Driver.Check]): a shell as who is asked, SIGTERM ignored, without a handler or dropped,
// a cgroup frozen by others. Then SIGTERM, and SIGCONT or a thaw so that what was held can act on it; the end of all,
// else the end of the grace; SIGKILL to all, over and over as long as somebody is alive, and cgroup.kill. A target whose
// root dies and leaves others gives them the rest of the grace. An acknowledgement does not end the grace, unless
// Linger says so. Last is Contract.Image.
//
// Lock and Unlock of one target take turns. A Lock that fails lets the target go again, if it ran before.
//
// # Errors
//
// Lock, Unlock and Terminate return a *checkpoint.DriverError with the state that was read afterwards, of kind ErrGone,
// ErrTimeout, ErrIllegalState (frozen by others, or told to end), ErrPermission, ErrUnsupported or ErrDriver, or
// lockstep.ErrInvalid for what is no job: pid 0 and 1, negative pids, this process and its ancestors, threads, threads
// of the kernel. Terminate returns a [*StuckError] with those who are alive: of kind checkpoint.ErrTimeout if ctx ended
// in the grace, when nobody was killed, or [ErrStillAlive] after SIGKILL. Grace.Validate joins all faults. An AckFile
// from before is lockstep.ErrConflict.
//
// # Concurrency
//
// A Driver is safe for concurrent use. State may be called while Terminate waits. No goroutine outlives its call.
//
// # Cost
//
// A look is O(P + T): a file for each of P processes on the host and each of T threads of the tree, see
// internal/proctree. Terminate takes one every 50 ms in the grace and one at each exit, and one stat of AckFile each
// Poll. A Driver keeps a pidfd for each target until Terminate, Release, or the first State that is Gone.
//
// # Limits
//
// Linux only. SIGSTOP stops processors and not what is queued on a device, and stops a rank anywhere, also inside a
// collective, where its peers spin: hold all ranks, or ask the job (checkpoint/cooperative). Of a target that was not
// started here, who daemonised before the first call is not known, and its exit code is its parent's to know; use
// Config.Within where it has a cgroup of its own. The freezer of cgroup v1 is not driven: what it holds cannot be killed
// and is ErrStillAlive. Only SIGTERM is sent: launchers do not pass SIGUSR1 on (pytorch#154849). A program that handles
// SIGTERM can still do nothing, which cannot be seen before; programs written in Go always have a handler. That no
// process is left on the device is for NVML to say (detect/nvml). What is left of a grace after a kubelet's preStop hook
// and a launcher's own limit is for checkpoint/interval.
//
// The rules are those of signal(7), pidfd_open(2), pid_namespaces(7), proc(5) and the kernel's document "Control Group
// v2"; that SIGTERM reaches the first process of a container alone, and the default of 30 s, are from the Kubernetes
// documentation, "Pod Lifecycle", section "Termination of Pods".
package process
