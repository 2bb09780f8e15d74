package liveness

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// State is what is known of a rank or a node.
type State uint8

// The states, of which all but Alive are no proof of health.
const (
	Unknown State = iota // Unknown: it joined and was not heard of yet.
	Alive                // Alive: it beats, and a rank gets on.
	Hung                 // Hung: it beats and does not get on.
	Suspect              // Suspect: it is silent, or cut off, or accused.
	Dead                 // Dead: final for this incarnation; beats do not revive it.
	Left                 // Left: it was taken out in good order.
	states
)

// String returns the name under which s is reported.
func (s State) String() string {
	return nameOf(int(s), "unknown", "alive", "hung", "suspect", "dead", "left")
}

// MarshalText writes the form of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *State) UnmarshalText(text []byte) error {
	for i := range states {
		if i.String() == string(text) {
			*s = i
			return nil
		}
	}
	return fault(lockstep.ErrInvalid, "state", "text", strconv.Quote(string(text)), "is no state")
}

// Phase is what a rank says that it is doing. Phases from PhaseOwn up to 15 are the
// host's; they need a Rule.
type Phase uint8

// The phases that every configuration knows.
const (
	PhaseStep       Phase = iota // PhaseStep: training steps, each of which is progress.
	PhaseFirst                   // PhaseFirst: loading, warming up, the first steps.
	PhaseCompile                 // PhaseCompile: kernels or graphs are being compiled.
	PhaseCheckpoint              // PhaseCheckpoint: a checkpoint is being written or read.
	PhaseEvaluation              // PhaseEvaluation: evaluation between steps.
	PhaseTeardown                // PhaseTeardown: it is stopping; one that does not get done is dead and not hung.
	PhaseOwn                     // PhaseOwn is the first phase of the host's own.
)

// maxPhases is how many phases there may be.
const maxPhases = 16

// String returns the name of p, or its number for the host's own.
func (p Phase) String() string {
	return nameOf(int(p), "step", "first", "compile", "checkpoint", "evaluation", "teardown")
}

// Outcome is what became of something that was reported. It is no error: networks
// repeat, delay and reorder.
type Outcome uint8

// The outcomes.
const (
	Accepted Outcome = iota // Accepted: it counts.
	Repeated                // Repeated: it says nothing new, or is older than what is known; nothing changed.
	Rewound                 // Rewound: it counts as a beat, but its progress is below what the incarnation had reached, so that neither it nor its phase counts.
	Stranger                // Stranger: nobody of this name joined.
	Retired                 // Retired: it has left.
	Stale                   // Stale: it is of an older incarnation than the present one.
	Early                   // Early: it is of an incarnation that has not joined.
	Fenced                  // Fenced: it was declared dead; it has to join again as a new incarnation.
	Dropped                 // Dropped: too much of this kind is open.
)

// String returns the name under which o is reported.
func (o Outcome) String() string {
	return nameOf(int(o), "accepted", "repeated", "rewound", "stranger", "retired", "stale", "early", "fenced", "dropped")
}

// Evidence is what somebody else than a rank or node knows of it.
type Evidence uint8

// The kinds of evidence.
const (
	Exited       Evidence = iota // Exited: its process ended, or its host is off; it is dead at once.
	Broken                       // Broken: a health check or an operator condemned it; it is dead at once.
	Disconnected                 // Disconnected: its connection closed; it is suspect at once, and dead unless it beats again within Config.Reconnect, or is part of a partition.
	Seen                         // Seen: a witness sees it live; for Config.Hold it does not die of silence.
)

// String returns the name under which e is reported.
func (e Evidence) String() string {
	return nameOf(int(e), "exited", "broken", "disconnected", "seen")
}

// The reasons of this package.
const (
	reasonSilent       lockstep.Reason = "silent"        // no beat for too long.
	reasonNeverStarted lockstep.Reason = "never-started" // no first beat within Config.Startup.
	reasonDisconnected lockstep.Reason = "disconnected"  // its connection closed.
	reasonExited       lockstep.Reason = "exited"        // its process ended.
	reasonBroken       lockstep.Reason = "broken"        // it was condemned by other evidence.
	reasonNoProgress   lockstep.Reason = "no-progress"   // it beats, and gets no further.
	reasonTeardown     lockstep.Reason = "teardown"      // it did not get done with stopping.
	reasonNode         lockstep.Reason = "node"          // it is its node that is so.
	reasonAccused      lockstep.Reason = "accused"       // most of its peers cannot reach it.
	reasonAccuser      lockstep.Reason = "accuser"       // it accused a peer that nobody else has fault to find with.
	reasonUnreported   lockstep.Reason = "unreported"    // its node's monitor does not speak of it.
	reasonJoined       lockstep.Reason = "joined"        // a new incarnation joined.
	reasonLeft         lockstep.Reason = "left"          // it was taken out.
	reasonBeating      lockstep.Reason = "beating"       // it is heard of, for the first time or again for long enough.
	reasonProgress     lockstep.Reason = "progress"      // it gets on again.
	reasonCohort       lockstep.Reason = "cohort"        // too many fell silent together to be dead all of them.
	reasonConfirmed    lockstep.Reason = "confirmed"     // evidence showed that nodes of the partition are dead.
	reasonExpired      lockstep.Reason = "expired"       // nobody returned within Config.Hold.
	reasonLate         lockstep.Reason = "late"          // the caller came back too late to judge silence.
)

// Beat is what a rank reports of itself.
type Beat struct {
	Incarnation uint64        `json:"incarnation"`     // Incarnation is the one that joined. One that goes back to a checkpoint is a new one.
	Progress    uint64        `json:"progress"`        // Progress only grows within an incarnation, such as the number of the step.
	Phase       Phase         `json:"phase,omitempty"` // Phase is what it does from now on.
	Pause       time.Duration `json:"pause,omitempty"` // Pause is how long from now on it may be silent on purpose, at most lockstep.MaxWalltime; it does not excuse a lack of progress.
}

// Member is a rank as its node's monitor, or the coordinator, judges it.
type Member struct {
	Rank        int             `json:"rank"`             // Rank is which.
	Node        lockstep.NodeID `json:"node,omitempty"`   // Node is where it runs.
	Incarnation uint64          `json:"incarnation"`      // Incarnation is the one of which that was told.
	State       State           `json:"state"`            // State is what is known.
	Reason      lockstep.Reason `json:"reason,omitempty"` // Reason is why, as in an Event.
	Since       time.Time       `json:"since,omitzero"`   // Since is the last beat, of a Hung rank the last progress.
}

// Report is what the monitor of a node tells the coordinator: all of its ranks. It
// is a whole state, so that a lost one is made good by the next.
type Report struct {
	Node        lockstep.NodeID `json:"node"`        // Node is whose.
	Incarnation uint64          `json:"incarnation"` // Incarnation is the node's.
	Sequence    uint64          `json:"sequence"`    // Sequence grows with each report of the incarnation, not by one.
	Members     []Member        `json:"members"`     // Members are the ranks in increasing order.
}

// Kind says what an Event is about.
type Kind uint8

// The kinds of event.
const (
	RankChanged        Kind = iota // RankChanged: Rank went From one state To another.
	NodeChanged                    // NodeChanged: Node went From one state To another.
	PartitionSuspected             // PartitionSuspected: Silent of the Count nodes of Domain fell silent together; they are not declared dead for now.
	PartitionResolved              // PartitionResolved: it is over, since they returned, were confirmed dead, or Config.Hold passed.
	ObserverLate                   // ObserverLate: the caller was away from Since on; silence is counted anew.
)

// String returns the name under which k is reported.
func (k Kind) String() string {
	return nameOf(int(k), "rank", "node", "partition suspected", "partition resolved", "observer late")
}

// Event is something that Check decided. Fields that its kind does not name are zero.
type Event struct {
	Kind        Kind            // Kind says what happened.
	At          time.Time       // At is when it was decided.
	Rank        int             // Rank is which rank.
	Node        lockstep.NodeID // Node is which node, or where the rank runs.
	Incarnation uint64          // Incarnation is which of the rank's or node's.
	From        State           // From is what it was.
	To          State           // To is what it is; the same as From where only Incarnation is new.
	Reason      lockstep.Reason // Reason is why: silent, never-started, disconnected, exited, broken, no-progress, teardown, node, accused, accuser, unreported, joined, left, beating or progress; of a partition cohort, beating, confirmed or expired; or late.
	Since       time.Time       // Since is the last beat, the last progress of a rank that is Hung, or when the caller was last here.
	Domain      string          // Domain is the domain of a partition; empty means all nodes.
	Silent      int             // Silent is how many nodes of the domain are silent.
	Count       int             // Count is how many nodes of the domain live or are silent.
}

// String returns e on one line.
func (e Event) String() string {
	switch e.Kind {
	case RankChanged:
		return "rank " + strconv.Itoa(e.Rank) + ": " + e.From.String() + " -> " + e.To.String() + " (" + string(e.Reason) + ")"
	case NodeChanged:
		return "node " + string(e.Node) + ": " + e.From.String() + " -> " + e.To.String() + " (" + string(e.Reason) + ")"
	case ObserverLate:
		return "observer late since " + e.Since.Format(time.RFC3339Nano)
	}
	where := "all nodes"
	if e.Domain != "" {
		where = e.Domain
	}
	return e.Kind.String() + ": " + where + ": " + strconv.Itoa(e.Silent) + " of " + strconv.Itoa(e.Count) + " silent (" + string(e.Reason) + ")"
}

// Status is all that is known of one rank or node.
type Status struct {
	Member                  // Member is what it is, and why.
	Phase     Phase         // Phase is what it said that it does.
	Progress  uint64        // Progress is how far it has come.
	Last      time.Time     // Last is its last beat; its join before the first.
	Mean      time.Duration // Mean is the mean interval of its beats.
	Sigma     time.Duration // Sigma is their standard deviation, not below Config.MinSigma.
	Phi       float64       // Phi is the suspicion at the time asked for, whatever the Method; 0 before the first beat.
	SuspectAt time.Time     // SuspectAt is when silence makes it Suspect; zero of one that is dead or left.
	DeadAt    time.Time     // DeadAt is when silence makes it Dead, a witness or partition aside; zero of one that is dead or left.
	HungAt    time.Time     // HungAt is when a lack of progress makes it Hung; zero where progress is not judged.
}

// nameOf returns the i-th name, or i itself.
func nameOf(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return strconv.Itoa(i)
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: value, Reason: reason}
}
