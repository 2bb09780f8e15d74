// Package criu writes a process tree to an image with CRIU and starts it from there: a checkpoint.Imager.
//
// # Model
//
// CRIU (criu.org) saves the host side of a process: memory, files, sockets, threads. What is on a GPU it does not see:
// have the state brought to the host first, by a checkpoint.Driver such as checkpoint/cuda, so that it is in the
// image with the rest:
//
//	lock all ranks, suspend all ranks, Dump each, then resume and unlock all, or kill all
//
// [Imager.Dump] leaves the target as it found it. Every file that CRIU writes becomes a stream of the image.
// [Imager.Load] writes them to a private folder, restores, and looks whether the process is there and lives: CRIU's
// own word is not enough.
//
// Invariants: the pid of a dump is that of the target, by its start time, when the call begins; nothing of an image
// leaves its folder; folders are 0700, files 0600, and gone when the call ends. A call under way is never killed, which
// would leave its target with CRIU's code inside: where the context ends first the call is checkpoint.ErrInFlight, and
// so is another for that target until it has ended. CRIU's timeout bounds only the collecting of the tree.
//
// # Usage
//
//	c, err := criu.New(criu.Config{})
//	caps, err := c.Probe(ctx)             // caps.Limits says why not
//	err = c.Dump(ctx, target, writer)     // an imagestore.Save
//	target, err = c.Load(ctx, reader)     // an imagestore.Image
//
// # Errors
//
// *lockstep.Error of kind ErrInvalid for a fault of the Config or of a stream's name. *checkpoint.DriverError otherwise:
// checkpoint.ErrUnsupported with what "criu check" says, ErrGone for a target that is not there any more, ErrIllegalState
// for one that is stopped, ErrPermission, ErrTimeout, ErrNoSpace, ErrMemory, and ErrDriver with the errors of CRIU's log.
// What the writer or the reader returned is passed on, wrapped.
//
// # Concurrency
//
// Safe for concurrent use. A process that was loaded is this process's child: it is waited for in the background, so
// that it does not stay a zombie.
//
// # Cost
//
// One CRIU process a call; the image is on disk once besides the stream. As measured with CRIU 4.2 on a disk shared
// with others: 1 GiB dumped in 1.6 s and restored in 1.1 s.
//
// # Limits
//
// Linux, with the rights that CRIU needs (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE). A restore needs
// the pid, and its group and session, to be free (Config.Subreap where orphans stay zombies), the same files in place, and, for a GPU, device files under the names they had: map others by
// Config.External and ExternalLoad. Debian 12's CRIU 3.17 does not start on kernels of 2025 and later; Probe reports it. Do not freeze or
// stop targets before their devices are locked: the lock would wait for ever. CRIU's own CUDA plugin is not used.
// This package's tests run against a stand-in for CRIU that speaks its protocol, and against CRIU where "criu check"
// passes.
package criu
