// Package rendezvous forms the nodes of an elastic job into rounds and gives them ranks.
//
// # Model
//
// Nodes join; when there are enough of them a round forms and everybody in it has a rank. A round never changes:
// a member that fails, leaves or falls silent ends it, and the next round has a higher number, so that whoever
// still acts for an older round can be told by its number. Each node brings slots, one for each process it will
// run; the ranks of the processes follow from the ranks of the nodes.
//
// A [Machine] is in one [State]:
//
//   - Gathering: nodes join. When a round of them could form the last call begins, for those who are a little late;
//     the round forms at its end, or as soon as there are nodes for the largest one. If none could form once Join has
//     passed, or later since some left in the last call, it closes.
//   - Running: a round has formed.
//   - Stopped: a round ended by a fault. Its nodes stay joined while they are heard. The scheduler decides what
//     comes next: [Retry] gathers again, [Close] ends the job. The budget of restarts is the scheduler's, for only
//     it knows whose fault the end was; the machine never retries a fault by itself.
//   - Closed: nothing more will form.
//
// More nodes than a round takes wait. If they would make the round larger, and it has lasted Dwell, it ends and
// the machine gathers again at once: growing is no fault and costs no restart.
//
// This is the contract of torchrun (PyTorch 2, elastic launch, --nnodes=MIN:MAX, with its time-outs as defaults:
// join 600 s, last call 30 s, keep-alive 5 s three times), except that ranks are stable, that sizes may be held
// to a multiple, and that restarts are granted from outside.
//
// Invariants:
//
//  1. Numbers of rounds strictly increase.
//  2. A round has between Min and Max nodes, a multiple of Multiple, with ranks 0 to n-1, each once.
//  3. A node that was in the last round keeps its rank if it is below the size of the new one, also if it left and
//     joined again in between.
//  4. Only Retry leads out of Stopped, other than Close.
//  5. Nothing is remembered of a node that left, but its rank until the next round forms, if it was in the last.
//
// # Usage
//
//	m, err := rendezvous.New(rendezvous.Config{Min: 4, Max: 8})
//	events, err = m.Step(events[:0], now, rendezvous.Call{Kind: rendezvous.Join, Node: "n1", Slots: 8})
//
// At [Machine.NextWake] call Step with a [Tick]. On an event of kind Formed start the workers of Event.Round; on
// Stopped stop them; if m.State() is Stopped then, which it is not after CauseGrow and CauseRetry, Retry or Close.
//
// # Order of decision
//
// Time passes first: what falls due up to the time of a call happens before it, each at its own time; silence is
// found before a round forms, and of members that fall silent at once the first by ID is named. What falls due at an
// instant happens at that instant. A round takes nodes that were in the last one before others, these by rank and
// those by the time they joined and then by ID. Of the nodes of the last round those whose rank is too high for the
// new one take the free ranks in the order of their ranks; then newcomers take the rest.
//
// # Errors
//
// New and Step return *lockstep.Error: ErrInvalid for a field out of range, ErrUnknown for a node that has not
// joined, ErrStale for a round that is over, ErrConflict for a call that the state forbids, ErrPast for time that
// goes backwards. After an error nothing has changed.
//
// # Concurrency
//
// A Machine is not safe for concurrent use; the caller serializes calls. A Round is the caller's own.
//
// # Cost
//
// With n nodes a call that changes no round is O(n) and allocates only what a Join adds; forming a round is O(n log n)
// and allocates its members. A call for which something falls due works on a copy, and is O(n) for each instant at
// which something did. Memory is O(n).
//
// # Limits
//
// It keeps no store and sends nothing: one host runs it, or a replicated log does. It does not choose which node
// is slow or sick, nor what layout a round uses.
package rendezvous
