// Package nvml watches the GPUs of this host by NVIDIA's management library and makes
// events for package health of what it says.
//
// # Model
//
// A [Watcher] opens the library, registers for errors of the driver (XIDs) and double
// bit errors, and reads each GPU once a round. It hands each batch to its host as a
// [Report]:
//
//   - an XID is a Fault of its code;
//   - the counts of memory errors, replaced rows, NVLinks that were up and are down, what
//     holds the clocks down, the temperature and what the driver asks for are Readings;
//   - a GPU that was read without an error is Seen, one that does not answer is Lost, and
//     one of which a call failed is neither;
//   - where there is no library, driver or support for it, or the watch did not start,
//     the whole node is Lost: it is not known how its devices are, which is not that
//     they are healthy;
//   - the boot of the host is a Boot.
//
// What a library or device does not do is no evidence.
//
// # Usage
//
//	w, err := nvml.New(nvml.Config{Node: "host-1", Report: func(r nvml.Report) { ... }})
//	err = w.Run(ctx)
//
// The host tracks Report.Devices in its [health.Machine] and has it Observe the events.
//
// # Order of decision
//
// None is made here. Reports follow each other in the order of time; in one, devices are
// in the library's order.
//
// # Errors
//
// New returns ErrInvalid for a Config that cannot be. Run returns nil when its context
// ends; [ErrUnavailable] at once where this build has no library, and ErrConflict where
// the process has loaded another or the Watcher runs already, after a report that says
// so. All other failures are reported, and tried again after a round; their kinds are
// ErrUnavailable, [ErrLost] and [ErrFailed].
//
// # Concurrency
//
// A Watcher runs once at a time. Run starts no goroutine; Report is called by that of
// Run and must not block for long. When Run returns, nothing is left: the library was
// shut down and the watch is freed.
//
// # Cost
//
// About 20 calls a GPU and round, each microseconds to milliseconds. In between Run waits
// in the library for at most a quarter of a second at a time, so that it ends soon after
// its context. Of many reports of one XID of one GPU in a batch one is kept.
//
// # Limits
//
// Built with cgo on Linux; elsewhere Run returns ErrUnavailable. Network cards, use of
// processors and memory, and the details of NVLink 5 errors are not read; hosts that know
// them add events. XIDs that came before the watch began are not told. GPUs are looked for
// when the library is opened: one that is added later is found by the next Run. A call that
// the driver never answers keeps Run past the end of its context. Nothing of this was seen
// on hardware; package internal/nvml says what it was run against.
package nvml
