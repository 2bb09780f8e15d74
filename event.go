package lockstep

import "time"

// EventKind says what happened.
type EventKind string

// The kinds of event that a host reports.
const (
	EventSubmit  EventKind = "submit"  // EventSubmit: Gang arrived.
	EventCancel  EventKind = "cancel"  // EventCancel: Job is no longer wanted, waiting or running.
	EventConfirm EventKind = "confirm" // EventConfirm: the member of Job with Rank is ready to start.
	EventRefuse  EventKind = "refuse"  // EventRefuse: preflight of the members of Job on Node failed.
	EventFinish  EventKind = "finish"  // EventFinish: Job ended by itself and its devices are clean.
	EventFail    EventKind = "fail"    // EventFail: Job died; Reason says of what.
	EventEvicted EventKind = "evicted" // EventEvicted: the eviction or shrink of Job is done and its devices are clean.
	EventDue     EventKind = "due"     // EventDue: the term of Job's hold on its devices is over, so that it competes for them.
	EventDown    EventKind = "down"    // EventDown: Node is lost with all that runs on it.
	EventUp      EventKind = "up"      // EventUp: Node is healthy again.
	EventCordon  EventKind = "cordon"  // EventCordon: Node takes no more members; those on it stay.
	EventOpen    EventKind = "open"    // EventOpen: Node takes members again.
)

// Event is something that the host observed, as data that can be stored and
// replayed. Fields that its kind does not name are zero.
type Event struct {
	Kind   EventKind `json:"kind"`             // Kind says what happened and which fields count.
	Time   time.Time `json:"time"`             // Time is when, by the host's clock.
	Job    JobID     `json:"job,omitempty"`    // Job is whom it concerns.
	Gang   *Gang     `json:"gang,omitempty"`   // Gang is what was submitted.
	Node   NodeID    `json:"node,omitempty"`   // Node is where.
	Rank   int       `json:"rank,omitempty"`   // Rank is the member that confirmed.
	Reason Reason    `json:"reason,omitempty"` // Reason is the cause, where the host knows one.

	// Attempt is the attempt of Job that the event is about, as the action
	// that began it said; 0 means whichever is present.
	Attempt Attempt `json:"attempt,omitempty"`
}

// Attempt tells the holds of a job apart, so that a late event of an earlier
// one is not taken for the present one's. Attempts only grow; 0 is none.
type Attempt uint64

// ActionKind says what a host is to do.
type ActionKind string

// The kinds of action that a scheduler decides.
const (
	ActionReserve ActionKind = "reserve" // ActionReserve: Plan's devices are held for Job until Deadline; preflight its members and confirm each.
	ActionStart   ActionKind = "start"   // ActionStart: every member confirmed; run Plan.
	ActionRelease ActionKind = "release" // ActionRelease: the hold of Job is given back, for Reason; tell its members.
	ActionExtend  ActionKind = "extend"  // ActionExtend: Job keeps its devices for another term; there is nothing to do to it.
	ActionEvict   ActionKind = "evict"   // ActionEvict: stop the members that Eviction names, then report them evicted.
	ActionResize  ActionKind = "resize"  // ActionResize: Job goes on as Plan, with other members than before.
	ActionMove    ActionKind = "move"    // ActionMove: Job stops and goes on as Plan, elsewhere.
	ActionReject  ActionKind = "reject"  // ActionReject: Job will not be tried again, for Reason.
)

// Action is a decision for the host to carry out, in the order given.
type Action struct {
	Kind     ActionKind `json:"kind"`               // Kind says what to do and which fields count.
	Time     time.Time  `json:"time"`               // Time is when it was decided.
	Job      JobID      `json:"job"`                // Job is whom it concerns.
	Plan     *Plan      `json:"plan,omitempty"`     // Plan is where its members go; the receiver may keep it.
	Deadline time.Time  `json:"deadline,omitzero"`  // Deadline is when the hold ends by itself; zero means none.
	Eviction *Eviction  `json:"eviction,omitempty"` // Eviction is who must go, with cause and cost.
	Reason   Reason     `json:"reason,omitempty"`   // Reason is why.
	Attempt  Attempt    `json:"attempt,omitempty"`  // Attempt is which of the job's holds it is about; events about it repeat it.
}
