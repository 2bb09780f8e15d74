// Package cooperative has a job save itself: all ranks stop before one step, write their images, and go on or leave.
//
// # Model
//
// A [Host] runs beside the ranks of one job on one node. Each rank has a hook in its training loop, [Hook] in Go or
// cooperative.py in Python, that the loop calls before each step. The hook connects to the host's socket, answers when
// the loop comes by, stands still before a step that the host has named, and saves there, in the loop: never in a signal
// handler, never in the middle of a collective. A signal only makes the hook tell the host (Config.Notice), which then
// stops all ranks at the same step.
//
// A hook stands still for as long as it hears of its host. When the connection ends, or nothing was heard for
// Config.Hold, it goes on by itself, as a job does that nobody watches; so a host that is killed or hangs never leaves
// a rank behind. What a save has written is at its place whole or not at all: the hook writes beside it, syncs, sums up,
// renames, and syncs the folder; the host then reads it again and compares.
//
// A Host is a checkpoint.Driver: Lock is to stand still before the next step, whichever that is. Coordinated ranks need
// the same step, so a leader asks each for its [Host.TrainingStep], picks one that lies far enough ahead of the foremost
// for the messages to arrive, has all stop there ([Host.LockAt]) and [Host.Save], and then Commit, Unlock, Abort or
// Terminate: checkpoint.Leader does, with Request.Cooperative, AgentConfig.NoSuspend and [Host.Saver]. A rank that has
// begun the step already cannot stop before it, and the others wait for it inside the step's collective: the timeout of
// LockAt ends that, and the leader aborts all and picks a step farther ahead. Where steps are short, Config.Margin of the
// leader has to be long: half a second's worth.
//
// # Usage
//
//	h, err := cooperative.New(cooperative.Config{Socket: path, Ranks: []checkpoint.Target{{Rank: 0}, {Rank: 1}}})
//	go h.Run(ctx)
//	target, err := h.Target(ctx, 0)                // waits for the hook
//	err = h.LockAt(ctx, target, step, checkpoint.LockOptions{Timeout: time.Minute})
//	image, err := h.Save(ctx, target, cooperative.Save{Epoch: 7, Place: "/images/7/0"})
//	err = h.Commit(ctx, target, 7)
//	err = h.Unlock(ctx, target)                    // or h.Terminate
//
// The job, in Go or with cooperative.py in Python:
//
//	hook, err := cooperative.Dial(ctx, cooperative.HookConfig{Save: write})
//	for step := start; hook.Next(ctx, step) == nil; step++ {
//		train(step)
//	}
//
// # Protocol
//
// A byte stream over a Unix socket of lines, as package internal/proctree/coop has them: words of printable ASCII split
// by one space (0x20), a newline (0x0a) at the end, 256 bytes with it at the most, the first word of letters a to z, at
// most 8 more. Numbers are decimal, without sign, below 2^63. Times are readings of CLOCK_MONOTONIC, and durations, both
// in nanoseconds. The first lines are
//
//	hook  hello 1 checkpoint RANK
//	host  welcome 1 NOW, or refuse user | process | name | taken | service | version | hello
//
// and a hook whose clock is behind NOW does not go on. Then the host asks, and the hook answers each question once, when
// the loop comes by, with the question's SERIAL, which grows:
//
//	step SERIAL                           step SERIAL STEP: the step that would run next
//	prepare SERIAL STEP BY HOLD           ready SERIAL STEP: stands before it; refuse SERIAL late | passed | state
//	snapshot SERIAL EPOCH PLACE           progress SERIAL DONE TOTAL, any number of times, in bytes, TOTAL 0 if unknown; then
//	                                      stored SERIAL STEP BYTES SHA256 TOOK, or refuse SERIAL state | save | space | none
//	commit SERIAL EPOCH                   done SERIAL: the epoch is durable, older ones may go
//	resume SERIAL                         resumed SERIAL STEP: goes on
//	abort SERIAL EPOCH                    resumed SERIAL STEP: the epoch is void; goes on
//	terminate SERIAL                      leaving SERIAL STEP: leaves the loop
//	hold 0 UNTIL                          (no answer) the host lives: stand still until then
//
// STEP 0 of prepare is whichever comes next. A hook that has not got there at BY refuses, and it stands for HOLD from
// ready on, longer if it hears hold. A later prepare replaces one that is open; resume, abort and terminate drop it. PLACE
// is an absolute path, bytes outside of '!' to '~' and '%' written %XX; SHA256 is 64 digits in lower case, of the file
// there. By itself a hook says
//
//	notice SIGNAL                         was sent a signal and asks to be saved
//	resumed 0 STEP                        has gone on for want of a word from the host
//
// Answers are idempotent: one that stands says ready again; a save of the same epoch, place and step is answered from
// memory; one that runs answers resume. Verbs that one side does not know are passed over, as are answers to nothing. A
// line that is no message, or lacks words, ends the connection. The first connection of a rank is kept until it ends, or
// its process has: a child that was forked may have a copy.
//
// The kernel says who connects (SO_PEERCRED): a process of Config.UIDs, and of the rank's target or below it where that
// is given.
//
// # Order of decision
//
// Calls for one rank take turns; the first answer counts. What a hook says of itself (ready, resumed, leaving) is its
// state, whether somebody waits for it or not. A hook drains what has arrived, in order, before it looks where it is.
//
// # Errors
//
// Calls return a *checkpoint.DriverError with the state read afterwards: ErrTimeout (the rank was told to forget it and
// is as it was), ErrRefused (the step is over; the save failed), ErrIllegalState (it does not stand, or elsewhere),
// ErrNoSpace, ErrCorrupt (what is at the place is not what the hook says), ErrInFlight (a save that outlived its caller),
// ErrGone (the process ended), ErrUnsupported, ErrDriver with io.EOF (the hook went and its process lives), or
// lockstep.ErrInvalid. Config.Validate joins all faults. Next returns [ErrLeave] or the end of its context, and nothing
// else: a job does not fail of its host. Dial is [ErrRefused] if the host does not want it.
//
// # Concurrency
//
// A Host is safe for concurrent use; its callbacks are called from its goroutines. When Run returns they have ended. A
// Hook is for the goroutine of the loop; Notice may be called from any.
//
// # Cost
//
// Next is one system call where nothing has arrived. LockAt and Save are a message and an answer each, Save reads the
// image twice (hook and host; Config.SkipDigest saves the second) at about the speed of SHA-256. A standing rank costs
// four messages each Hold, and each hook two looks at its process a second.
//
// # Limits
//
// Linux only. A hook is trusted to stand still when it says so, and to wait for its device in Save. An image is one file
// a rank, mode 0600, in the framework's own format; the host makes the folder and removes what is void or old, and
// whether an epoch is complete is for the checkpoint.Ledger. Children of a rank, such as data loaders, do not stand
// still. Device memory stays in place: Suspend is not supported. A save cannot be interrupted. What is in one is not
// encrypted here. A step that never ends is only seen as a timeout.
package cooperative
