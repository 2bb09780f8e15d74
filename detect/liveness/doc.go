// Package liveness tells which ranks and nodes of a job live, hang or died, and when it is the network.
//
// # Model
//
// Two levels, so that load grows with nodes. Ranks beat to the [Monitor] of their node, with how far
// they have come; its [Report] is the beat of the node to the one [Coordinator] of the job. A monitor
// times ranks and a coordinator times nodes; nothing is timed twice.
//
// A member joins as an incarnation and is [Unknown] until its first beat. Silence makes it [Suspect],
// then [Dead]; a rank that beats and does not get on is [Hung]; in good order it is [Left]. Dead is
// final: the same process joins again only as a later incarnation. What of a rank its monitor does not
// name is Unknown, which is not healthy; so are the ranks of a node that joined anew, until it reports.
//
// Silence is judged by phi, or by its length alone ([Deadline]). Phi is -log10 of the chance of a
// longer interval, of a normal law with the mean and deviation of the last Window intervals
// (Hayashibara et al., "The phi accrual failure detector", 2004), with the threshold, least deviation,
// pause and first estimate of Akka (akka/akka, akka-cluster reference.conf 000953e). With beats each
// second that is Suspect after 4.6 s, about the 5 s of torchft (heartbeat_timeout_ms, 1de2c1d), and
// Dead after 10 s, which is this package's; [Evidence] need not wait for it. A Suspect that beats is
// Alive once it did so for Settle, twice as long after each relapse.
//
// Progress: each [Phase] has a [Rule] with a gap. Once Learn gaps were seen it is Factor times the
// longest of them (5, as safety_factor of NVIDIA/nvidia-resiliency-ext d8686d9), unless Fixed. A rank
// is hung when its phase takes longer than its gap, or all phases since the last progress take longer
// than theirs together. Ranks, by phase or [Beat].Pause, and the host, by Pause, announce silence.
//
// If more than Partition of a domain's nodes are overdue together, a [PartitionSuspected] stands for
// their deaths: they stay Suspect until they return, evidence condemns them, or Hold is over. If the
// caller comes later than it was asked to, it is [ObserverLate], and silence counts anew. An
// [Accusation] is weighed against those of the other peers.
//
// Invariants: a dead incarnation never lives again; one Check makes at most one new [List]; who is
// Dead, Left or Unknown does not take part; every timeout acts through Check alone.
//
// # Usage
//
//	m, err := liveness.NewMonitor(cfg, "node-1", 1)
//	err = m.Join(now, rank, 1)
//	out, err := m.Beat(now, rank, liveness.Beat{Incarnation: 1, Progress: step})
//	events, err := m.Check(events[:0], now) // at m.NextWake, at least
//	out, err = coordinator.Report(now, m.Report())
//	events, err = coordinator.Check(events[:0], now)
//	list := coordinator.Faults()
//
// # Order of decision
//
// What comes with one time may come in any order, if Check comes last, and twice. Check tells that the
// caller was late, then partitions by domain, all nodes before any domain; nodes by ID; ranks by
// number. Of one member: Reconnect is over, silence is over, it has settled; then hung. Of one rank at
// the coordinator: dead or left, its node suspect, itself suspect, accused, the rest. Thresholds become
// instants once, rounded up; decisions compare nanoseconds.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or writer returned, wrapped. ErrInvalid: a value out of
// range, a phase without a rule, a broken snapshot. ErrDuplicate, ErrStale: an incarnation that has
// joined, or a later one has. ErrUnknown, ErrConflict: to forget who is not there, or lives; to tune
// away a phase in use. ErrPast: a time before one already seen. After any error nothing has changed.
// Late, repeated and foreign beats are an [Outcome].
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. Events and lists are values.
//
// # Cost
//
// With n members: a beat O(1), a report O(ranks of its node), a check and NextWake n comparisons and
// O(1) for each member that is due, none of which allocates where nothing changes; a check with a
// partition O(n). About 300 bytes a member and 4 for each interval of Window. BenchmarkCheck reads
// 100000 ranks in well under 1 ms; BenchmarkCheckAllSilent finds them all silent at once and writes as
// many events in about 10 ms. A fault list is O(faults), and History of them are kept; at most 4096
// accusations are open. Members stay until Forget.
//
// # Limits
//
// Times are of one clock that does not go back, such as lockstep.Monotone: after a leap ahead all is
// ErrPast until the clock is there again. It stops nobody: the host does, and fences with lease. Ranks
// that wait for a hung one are soon hung as well; whose fault it is, is not told here. A rank that goes
// back to a checkpoint as the same incarnation makes no progress until it is past where it was.
package liveness
