// Package proctree stops, continues and ends a process with all that came of it, on Linux, for hpo/gate and
// checkpoint/process.
//
// # Model
//
// A [Tree] has a root and members. A process is a member if it is a child of one, or in a process group or session
// that a member founded, or in the tree's cgroup, or if its environment names the tree. That it once was one is
// enough: parents die, and children change their group and session. The environment finds those that did all of
// this between two looks; only a program that clears its environment as well is lost, and inside a cgroup not even
// that one.
//
// A process is known by its pid and its start ([Identity]). It is signalled through a pidfd that was opened first
// and checked against the start afterwards, so nobody who has got the pid since is met. A process group is
// signalled as one, which a fork cannot slip through, if it is the tree's. The dead root of a tree that was
// started is reaped last, so that its pid and group stay its own. A tree that is adopted can have the cgroup that it
// is in already (Config.Within).
//
// Paused means that every thread of every member reads T or t in its stat file, or that the cgroup says frozen.
// Dead threads do not count.
//
// # Usage
//
//	t, err := proctree.Start(cmd, proctree.Config{})
//	out, err := t.Pause(ctx, epoch)
//	out, err = t.Resume(ctx, epoch+1)
//	r, err := t.Terminate(ctx, 30*time.Second)
//	err = t.Close()
//
// # Order of decision
//
// Commands are ordered by epoch, and in one epoch Resume comes before Pause; one that is older than the last is
// [Stale] and does nothing. Equal ones are idempotent. Terminate is the last of all.
//
// Pause looks, signals whoever runs, and looks again, until two looks in a row find the same members, all halted;
// the first pauses between looks are half a millisecond, then longer up to Config.Poll. A parent in vfork cannot
// be stopped while its child has not called exec, so such children are let go for a moment at every eighth look.
// Terminate sends SIGTERM, then SIGCONT, waits, and sends SIGKILL. Ask, Await and Terminate with no grace are its
// parts, for whoever asks only some or ends the grace early.
//
// # Errors
//
// [ErrUnsupported], [ErrFailed], [ErrTimeout] with a [StuckError], and those of package lockstep. After an error
// of Pause or Resume some of the tree may have been signalled; either may be called again, and Resume undoes all.
// A context without an end waits as long as it takes, which in a broken driver is for ever.
//
// # Concurrency
//
// A Tree is safe for concurrent use. Calls take turns, except Wait. No goroutine is started. [Subreap] is for the
// whole process.
//
// # Cost
//
// A look is O(P + T): one small file for each of P processes on the host and each of T threads of the tree, about
// 10 to 20 µs a file (BenchmarkState); the environment of each process is read once if it is younger than the root
// and not otherwise related. Pause takes three looks and Resume two where nobody forks. Two descriptors are held
// for each member that was signalled by itself.
//
// # Limits
//
// SIGSTOP stops processors, not devices: kernels that were queued run on, and a process stopped inside a driver's
// call or with a lock held makes others wait. Ask the job first. Clocks go on, so the watchdogs of a job see a gap
// when it resumes. When a supervisor dies, the kernel sends SIGHUP and SIGCONT to stopped groups that become
// orphans, and does not to those in another session (Config.Session): neither keeps a tree paused and well. A
// group outside the tree that a member has joined is signalled member by member. Zombies whose parent is not this
// process are its parent's or init's to reap. Processes that change their user may refuse signals.
//
// The rules are those of signal(7), proc(5), pidfd_open(2), prctl(2) and of the kernel's document "Control Group
// v2", section "Core Interface Files" (cgroup.freeze since Linux 5.2, cgroup.kill since 5.14); POSIX.1-2017, 2.4.3
// and _exit say what stops and orphans.
package proctree
