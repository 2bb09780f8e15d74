package checkpoint

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Plan is what all ranks of an epoch have to know; the leader sends it along.
type Plan struct {
	Lock        time.Duration `json:"lock"`                  // Lock is how long a target may take to drain.
	Silence     time.Duration `json:"silence"`               // Silence is how long a paused rank waits for a word from the leader before it undoes by itself.
	Pause       time.Duration `json:"pause"`                 // Pause is the longest that a rank is held.
	StopStep    uint64        `json:"stopStep,omitempty"`    // StopStep is the step before whose collective all stop, if Cooperative.
	Cooperative bool          `json:"cooperative,omitempty"` // Cooperative has the ranks stop at a step boundary rather than anywhere.
	StopAfter   bool          `json:"stopAfter,omitempty"`   // StopAfter has the ranks terminated once the epoch is committed.
	Early       bool          `json:"early,omitempty"`       // Early lets ranks go on once all are staged, before anything is durable.
	Hold        bool          `json:"hold,omitempty"`        // Hold saves nothing: the ranks are held until they are released.
}

// Message is what a leader and a rank tell each other. A transport carries it
// and does not look inside; it may lose, repeat and reorder messages. Which
// messages there are is said in the package documentation.
type Message struct {
	Kind    string          `json:"kind"`              // Kind is the name of the message, such as "prepare".
	Job     lockstep.JobID  `json:"job"`               // Job is whose message it is; others are ignored.
	Rank    int             `json:"rank"`              // Rank is the rank that it goes to or comes from.
	Epoch   Epoch           `json:"epoch"`             // Epoch is what it is about.
	Term    Term            `json:"term"`              // Term is the leader's, or the greatest that the rank has heard of.
	Plan    Plan            `json:"plan,omitzero"`     // Plan comes with "prepare".
	Step    uint64          `json:"step,omitempty"`    // Step is the rank's training step; 0 if it does not know.
	State   State           `json:"state,omitempty"`   // State is where the rank's target was last seen.
	Bytes   lockstep.Bytes  `json:"bytes,omitempty"`   // Bytes is how much of the image has been written, for progress.
	Stored  bool            `json:"stored,omitempty"`  // Stored says that Image is durable.
	Image   RankImage       `json:"image,omitzero"`    // Image is the rank's part of the epoch, if Stored.
	Seen    Epoch           `json:"seen,omitempty"`    // Seen is the greatest epoch that the rank has heard of.
	Devices []DevicePair    `json:"devices,omitempty"` // Devices is where the target is to resume; nil means where it was. It comes with "abort".
	Reason  lockstep.Reason `json:"reason,omitempty"`  // Reason is why not, for branching.
	Detail  string          `json:"detail,omitempty"`  // Detail is one line for people.
}

// The messages of a leader.
const (
	msgAsk      = "ask"      // which step are you at?
	msgPrepare  = "prepare"  // stop, and say ready or refuse
	msgSnapshot = "snapshot" // all are ready: save
	msgResume   = "resume"   // all are staged: go on while the bytes are being stored
	msgCommit   = "commit"   // the epoch is committed: go on, or terminate
	msgAbort    = "abort"    // the epoch is void: undo
)

// The messages of a rank. Each but the first three is final: the rank holds
// nothing of the epoch any more.
const (
	msgStep       = "step"       // the answer to ask
	msgBusy       = "busy"       // on the way to the next of these
	msgReady      = "ready"      // locked
	msgStaged     = "staged"     // a copy is in memory that outlives the target's going on
	msgStored     = "stored"     // a copy is durable
	msgRefuse     = "refuse"     // has not stopped, and will not in this epoch
	msgResumed    = "resumed"    // was stopped and is running
	msgTerminated = "terminated" // has been terminated, and its exit was seen
	msgBroken     = "broken"     // only killing it helps, or it cannot be undone
	msgGone       = "gone"       // the target died
)

// Reasons why an epoch was aborted, or a rank is broken.
const (
	reasonTimeout  lockstep.Reason = "timeout"  // not everyone answered in time
	reasonRefused  lockstep.Reason = "refused"  // the driver could not stop the target
	reasonForeign  lockstep.Reason = "foreign"  // somebody else holds the target
	reasonGone     lockstep.Reason = "gone"     // the target died
	reasonWedged   lockstep.Reason = "wedged"   // the driver gave the target up
	reasonUnknown  lockstep.Reason = "unknown"  // the target is in a state nobody knows
	reasonSave     lockstep.Reason = "save"     // the image could not be written
	reasonSilence  lockstep.Reason = "silence"  // no word from the leader
	reasonPause    lockstep.Reason = "pause"    // the pause had become too long
	reasonStale    lockstep.Reason = "stale"    // a newer term or epoch is known
	reasonLedger   lockstep.Reason = "ledger"   // the commit failed
	reasonReleased lockstep.Reason = "released" // the host let the ranks go on
	reasonLeader   lockstep.Reason = "leader"   // the leader was lost
	reasonStuck    lockstep.Reason = "stuck"    // a call into the driver does not end
	reasonRecord   lockstep.Reason = "record"   // the record could not be written
)

// EventKind says what has happened to a Coordinator or an Agent.
type EventKind int

// The kinds of event.
const (
	EventTick     EventKind = iota // nothing but that time has passed
	EventMessage                   // Message has come
	EventStart                     // a Coordinator is to run Request
	EventRelease                   // a Coordinator is to let ranks that are held go on, on Devices; or to give up what is not committed
	EventRecover                   // a Coordinator is to find out how the epoch that it was restored with ended
	EventDone                      // the action Op has ended, with Err; an ActionRecord is only answered if it failed
	EventStaged                    // the save Op has its bytes in memory that outlives the target's going on
	EventProgress                  // the save Op has written Bytes
)

// Event is what a Coordinator or an Agent is told. Which fields count depends
// on Kind.
type Event struct {
	Kind    EventKind      // Kind is what happened.
	Message Message        // Message is what came, for EventMessage.
	Request Request        // Request is what to do, for EventStart.
	Devices [][]DevicePair // Devices is by rank where to resume, for EventRelease; nil means where they were.

	Op      uint64         // Op is the action that this is about.
	Err     error          // Err is how it failed; nil means well. The kinds of this package count.
	Before  State          // Before is the target's state before a lock; one that was not Running was not locked.
	State   State          // State is the target's state read back after the call; "" if it could not be read.
	Step    uint64         // Step is the training step at which a lock found the target; 0 if unknown.
	Bytes   lockstep.Bytes // Bytes is how much a save has written.
	Image   RankImage      // Image is what a save stored.
	Epoch   *Manifest      // Epoch is what ActionSettle found in the ledger; nil for nothing.
	Details string         // Details is one line for people about Err; "" means its text.
}

// ActionKind says what to do.
type ActionKind int

// The kinds of action.
const (
	ActionSend    ActionKind = iota + 1 // send Message; it may be lost, so no event answers
	ActionRecord                        // make what Snapshot returns durable before the next action of the list is begun; if that fails leave the rest out and answer with Err
	ActionLock                          // read the state; if Running, Driver.Lock
	ActionSuspend                       // Driver.Suspend
	ActionSave                          // write the image
	ActionCancel                        // end the save Op soon; the save is answered, this is not
	ActionResume                        // Driver.Resume on Devices
	ActionUnlock                        // Driver.Unlock
	ActionRead                          // Driver.State
	ActionStep                          // Stepper.TrainingStep, if the driver is one; then Driver.State
	ActionKill                          // end the target and see that it has ended; State is Gone then
	ActionCommit                        // Ledger.Commit of Manifest
	ActionSettle                        // Ledger.Fence of Term, whose ErrFenced is passed on, and then Ledger.Committed of Epoch
	ActionReport                        // give Report to the host; no event answers
)

// Action is what a Coordinator or an Agent wants done. The actions of a list
// are begun in its order. An action with an Op is answered by an EventDone with
// that Op once it has ended, whatever has happened meanwhile.
type Action struct {
	Kind     ActionKind    // Kind is what to do.
	Op       uint64        // Op numbers the action; larger than any before.
	Message  Message       // Message is for ActionSend.
	Epoch    Epoch         // Epoch is what it is for.
	Term     Term          // Term is for ActionSettle.
	StopStep uint64        // StopStep is the step to stop before, for ActionLock, or that was stopped before, for ActionSave; 0 means anywhere.
	Timeout  time.Duration // Timeout is how long the call may take.
	Devices  []DevicePair  // Devices is for ActionResume.
	Manifest *Manifest     // Manifest is for ActionCommit.
	Report   *Report       // Report is for ActionReport.
}

// String returns the kind in a word.
func (k ActionKind) String() string {
	names := [...]string{"none", "send", "record", "lock", "suspend", "save", "cancel", "resume", "unlock", "read", "step", "kill", "commit", "settle", "report"}
	if k < 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}
