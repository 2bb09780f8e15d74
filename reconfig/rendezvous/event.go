package rendezvous

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// State is what a Machine is doing.
type State string

// The states.
const (
	Gathering State = "gathering" // nodes join
	Running   State = "running"   // a round has formed
	Stopped   State = "stopped"   // a fault ended the round; Retry or Close
	Closed    State = "closed"    // nothing more will form
)

// CallKind is what a Call says.
type CallKind string

// The kinds of calls.
const (
	Tick  CallKind = ""      // time passes
	Join  CallKind = "join"  // Node is there with Slots; from a member of the running round: its agent began anew, which ends the round
	Heard CallKind = "heard" // Node is alive
	Leave CallKind = "leave" // Node is gone: it said so, or the host found out
	Fail  CallKind = "fail"  // workers of Node failed in Round; its agent lives on
	Retry CallKind = "retry" // gather again: a restart is granted, or (while Running) wanted; while Gathering it changes nothing
	Close CallKind = "close" // end it
)

// Call is one input of a Machine.
type Call struct {
	Kind  CallKind        `json:"kind,omitempty"`  // what it says
	Node  lockstep.NodeID `json:"node,omitempty"`  // whom it is about; not of Tick, Retry and Close
	Slots int             `json:"slots,omitempty"` // of Join: processes that the node will run, at least 1
	Round uint64          `json:"round,omitempty"` // of Fail, which needs it; of Leave: 0 for any, else ErrStale if it is over
}

// EventKind is what an Event tells.
type EventKind string

// The kinds of events.
const (
	EventFormed  EventKind = "formed"  // a round formed: start its workers
	EventStopped EventKind = "stopped" // the round ended: stop its workers
	EventClosed  EventKind = "closed"  // nothing more will form
)

// The causes of an end.
const (
	CauseGrow   lockstep.Reason = "grow"   // nodes that waited make the next round larger; no fault, gathering goes on
	CauseRetry  lockstep.Reason = "retry"  // Retry while it ran; no fault, gathering goes on
	CauseFailed lockstep.Reason = "failed" // workers of a member failed
	CauseLeft   lockstep.Reason = "left"   // a member left
	CauseSilent lockstep.Reason = "silent" // a member fell silent
	CauseRejoin lockstep.Reason = "rejoin" // the agent of a member began anew
	CauseFew    lockstep.Reason = "few"    // too few nodes joined in time
	CauseClosed lockstep.Reason = "closed" // Close
)

// Event is one thing that happened.
type Event struct {
	Kind   EventKind       `json:"kind"`            // what happened
	Time   time.Time       `json:"time"`            // when
	Number uint64          `json:"number"`          // the round that formed or stopped; of EventClosed: the last that formed
	Cause  lockstep.Reason `json:"cause,omitempty"` // why it stopped or closed
	Node   lockstep.NodeID `json:"node,omitempty"`  // the member whose fault it was
	Round  *Round          `json:"round,omitempty"` // of EventFormed, the caller's own
}

// Member is one node of a Round.
type Member struct {
	Node  lockstep.NodeID `json:"node"`  // which node
	Slots int             `json:"slots"` // processes on it
	First int             `json:"first"` // rank of its first process; the others follow
}

// Round is a set of nodes that run together.
type Round struct {
	Number  uint64   `json:"number"`  // from 1, strictly increasing
	Members []Member `json:"members"` // by rank of the node
	World   int      `json:"world"`   // processes in all
}

// Rank returns the rank of node in the round.
func (r *Round) Rank(node lockstep.NodeID) (int, bool) {
	for rank := range r.Members {
		if r.Members[rank].Node == node {
			return rank, true
		}
	}
	return 0, false
}
