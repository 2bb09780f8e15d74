// Package gate lets a trial run in the pipeline bubbles of another job, and keeps it still between them.
//
// # Model
//
// A [Gate] is one trial's, and closed at first. Open gives the trial a lease: it may run until a time. Close takes
// it back. A window of the main job is an epoch; only the latest counts, and one that was closed stays closed.
//
// The gate fails closed. The trial itself holds the lease, asks before each quantum whether it may run one
// ([Hook.Next]), and does not start what would not end in time. So a supervisor that is killed, hangs or is cut
// off stops its trials by saying nothing.
//
// A trial is still ([Gate.Quiesced]) when its hook has said that it is quiet, which it says only after the device
// has nothing queued and which holds until it is told anew; or when every thread of its process tree was seen to
// be stopped; or when nobody of it is alive. Signals are the backstop: they come when a hook does not answer
// within Patience, when it goes, or at once where there is none. They stop processors and not what is queued on
// the device, and a process stopped in a driver's call can make others wait, so a trial that should do no harm has
// a hook.
//
// [Machine] decides; it is pure, and Gate runs it. It numbers messages (serial) and signals (op), so an answer to
// an earlier one counts for nothing.
//
// # Usage
//
//	g, err := gate.New(gate.Config{Name: "trial-7", Command: cmd, Socket: path})
//	go g.Run(ctx)                  // starts the trial, and ends it with ctx
//	err = g.Open(epoch, until)     // the bubble begins
//	err = g.Close(epoch)           // the main job is back
//	still, err := g.Quiesced()
//
// The trial, in Go or with gate.py in Python:
//
//	h, err := gate.Dial(ctx, gate.HookConfig{Settle: synchronize})
//	for h.Next(ctx, quantum) == nil {
//		step()
//	}
//
// # Protocol
//
// Lines over a Unix socket, with the first lines, the bounds and the clock of package internal/proctree/coop
// (version 1, at most 256 bytes, CLOCK_MONOTONIC in nanoseconds):
//
//	hook        hello 1 gate NAME
//	supervisor  welcome 1 NOW, or refuse user | name | process | version | service | hello
//	supervisor  open EPOCH SERIAL UNTIL    close EPOCH SERIAL
//	hook        quiet SERIAL QUANTA END
//
// A hook that has connected is quiet. It answers every message with quiet when it stops: the largest serial it
// knows, under which it runs nothing from then on, how many quanta it has run since the last quiet, and when the
// last one ended. Other verbs are ignored. The process that connects has to be of one of Config.UIDs and of the
// trial's tree.
//
// # Order of decision
//
// Open of an older or closed epoch, with a time that is past or earlier than one given, is a no-op; so is Close of
// an older epoch. At one moment a window that is over ends first, then the event counts, then what is due is done.
// A lease is sent before a stopped trial is continued. A signal that fails is tried again after Patience.
//
// # Errors
//
// New returns all faults of a Config, joined. Open is ErrInvalid for too long a lease. Run is ErrConflict the
// second time or if the socket is somebody's, and returns what starting or ending the trial failed of.
// [ErrUnsupported] comes where there is no Linux. A hook's errors all mean: do not run.
//
// # Concurrency
//
// A Gate is safe for concurrent use; Open, Close and Quiesced do not wait. When Run returns, its goroutines have
// ended, the socket is removed, and a trial that it started is reaped. A Machine and a Hook are for one goroutine.
//
// # Cost
//
// A window takes two messages and an answer, a question before a quantum three system calls. Signals
// look at all processes of the host, see internal/proctree.
//
// # Limits
//
// Linux only. A hook is trusted to be quiet when it says so. A quantum that takes longer than it was said to ends
// after the lease, and Report.Overrun tells. A trial that is still cannot beat, and one that was stopped sees a gap in
// time: whoever watches it, as package detect does, has to exempt it (Status). It is not noticed if somebody else
// continues a stopped trial. One whose root ends is over, with all its children. One that is stopped when its
// supervisor dies stays so, or is continued by the kernel with SIGHUP, finds no supervisor, and does not run.
package gate
