// Package health holds what devices and nodes are worth trusting with, from what
// observers see of them: errors of the driver, counters, levels, probes.
//
// # Model
//
// An [Event] is what an observer saw, with its own time. A [Policy] says, as data with its
// sources, what each [Code] means: its class, what one occurrence asks for, and when it is
// nothing. A [Machine] holds a [State] for each device and each node, and returns each
// change as a [Transition] with what it rests on:
//
//	Unknown → Healthy → Suspect → Cordoned → Draining → Quarantined → Probation → Healthy
//
// The way out is fast and may skip states: a state is entered the instant that evidence
// asks for it. The way back is slow: evidence has to be absent for a dwell, counted from
// the entry or the latest evidence, and a probe has to pass later than the evidence; of a
// Suspect whose evidence asks for no more only the dwell. A device that needs a reset,
// reboot or inspection has to have that done first, or what asked for it has to be over.
// The dwell doubles with each relapse up to a bound, and so many relapses, by one code or
// by any, ask for inspection, as do repetition and reboots that do not help.
//
// Invariants: what nobody vouches for is Unknown and takes no work; an unknown code is
// never healthy; a pass of one probe does not stand in for another that the evidence names;
// an Override holds against all evidence until it is ended; nothing leaves Retired;
// restarts forget nothing that was in the [Machine.Snapshot].
//
// Reports less than Coalesce apart are one occurrence. What may be nothing waits for Hold: a
// code of teardown for the end of a job, a sympathetic one for Crowd devices of the same
// job, one that matters alone for others, a lost device for the others of its observer,
// which at two and half of them is its own fault. Evidence that does not prove a fault
// closes no more than a share of the nodes of a domain, and makes suspects beyond. Counters
// count by growth; one that fell began anew.
//
// # Usage
//
//	m, err := health.New(health.Config{})
//	err = m.Track(now, "node-1", "GPU-0", "GPU-1")
//	err = m.Observe(health.Event{Time: t, Kind: health.Fault, Node: "node-1", Device: "GPU-0", Code: health.XID(79)})
//	changes, err := m.Step(now)
//
// Package detect/nvml makes events of what NVIDIA's library says. What package detect finds
// slow is a Fault of [CodeSlow]. [Status] says where work may go, and where rather not.
//
// # Order of decision
//
// Instants are decided in their order. Within one, all events are taken in, in an order of
// their own, so that the order of arrival is irrelevant; then each target moves, the gravest
// first, then by node and device, the node itself first. Of equally grave evidence the least
// code is named. What is told late counts from when it is told if it is evidence, and from
// when it was if it speaks for a device; a late level is ignored. What is told twice counts
// once.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or a writer returned, wrapped. ErrInvalid: a
// malformed event, policy, configuration or snapshot. ErrUnknown: what is not tracked.
// ErrDuplicate: a name twice in what is reconciled. ErrConflict: too many events without
// Step. ErrPast: a time before that of a Step. After any error nothing has changed.
//
// # Concurrency
//
// A Machine is not safe for concurrent use; the caller serializes calls. Results are values.
//
// # Cost
//
// With n targets and c codes known of one: Observe O(1), Step O(c + log n) an event and the
// sorting of those that wait, 1 to 2 µs each (BenchmarkEvents), and where a domain gets room
// O(c) for each that it holds back; what changes nothing allocates nothing. Reconcile, Snapshot
// and Restore O(n log n). Of a target 256 codes and 16 occurrences of each are kept, and at most
// 65536 events wait.
//
// # Limits
//
// The machine does nothing to a device; the host carries transitions out, and tells what was
// done. Codes are of Ampere and newer; hosts that decode NVLink 5 errors (144 to 150) append
// "/fatal" or "/nonfatal". Events further ahead of Step than Skew are dated back, so replays
// feed them in about the order of their times. Sources: NVIDIA's Xid catalog as mirrored by
// gpud (2025-10-29); three minutes of silence and five times in 24 hours, NVIDIA/NVSentinel
// (PR 248, issue 1710); two reboots, gpud (1726a87); the other defaults are this package's.
package health
