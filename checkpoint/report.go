package checkpoint

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Outcome says how a request ended.
type Outcome string

// The outcomes.
const (
	OutcomeCommitted Outcome = "committed" // OutcomeCommitted: the epoch is in the ledger.
	OutcomeAborted   Outcome = "aborted"   // OutcomeAborted: it never will be.
	OutcomeHeld      Outcome = "held"      // OutcomeHeld: the ranks are paused until they are released; another report follows then.
	OutcomeFenced    Outcome = "fenced"    // OutcomeFenced: a newer leader has taken over and decides.
)

// RankFault is a rank that did not end as it should have.
type RankFault struct {
	Rank   int             `json:"rank"`             // Rank is which.
	Reason lockstep.Reason `json:"reason"`           // Reason is why, for branching.
	State  State           `json:"state,omitempty"`  // State is where its target was last seen; "" if nowhere.
	Detail string          `json:"detail,omitempty"` // Detail is one line for people.
}

// Report is how a request ended. With Broken empty, every rank is running, or
// terminated after a commit with StopAfter.
type Report struct {
	Epoch    Epoch           `json:"epoch"`              // Epoch is the last that was tried; 0 for none.
	Outcome  Outcome         `json:"outcome"`            // Outcome is what became of it.
	Attempts int             `json:"attempts"`           // Attempts is how many epochs were tried.
	Reason   lockstep.Reason `json:"reason,omitempty"`   // Reason is why it was aborted; "" if it was not.
	Blame    []RankFault     `json:"blame,omitempty"`    // Blame is who had it aborted, sorted by rank.
	Broken   []RankFault     `json:"broken,omitempty"`   // Broken is who is neither known to run nor known to be terminated as planned, sorted by rank: the job can not go on.
	Kill     []int           `json:"kill,omitempty"`     // Kill is the ranks that are alive where one is broken, sorted: all are to be killed, since the next collective never ends.
	Fenced   bool            `json:"fenced,omitempty"`   // Fenced says that this leader can commit no more and needs a newer term.
	Stopped  bool            `json:"stopped,omitempty"`  // Stopped says that all ranks are terminated, so that their devices can be given away.
	Pause    time.Duration   `json:"pause,omitempty"`    // Pause is from the first order to stop to the last rank's end, as the leader saw it.
	Manifest *Manifest       `json:"manifest,omitempty"` // Manifest is what was committed; nil for nothing. It is the reader's.
}

// String returns r on one line.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d %s", r.Epoch, r.Outcome)
	if r.Reason != "" {
		fmt.Fprintf(&b, ": %s", r.Reason)
	}
	faults(&b, "because of", r.Blame)
	faults(&b, "broken", r.Broken)
	if len(r.Kill) > 0 {
		fmt.Fprintf(&b, "; kill %d", r.Kill)
	}
	return b.String()
}

func faults(b *strings.Builder, lead string, list []RankFault) {
	for i, f := range list {
		if i == 0 {
			fmt.Fprintf(b, "; %s", lead)
		} else {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, " rank %d (%s)", f.Rank, f.Reason)
	}
}

// Progress is where one rank is.
type Progress struct {
	Rank  int            `json:"rank"`            // Rank is which.
	Phase string         `json:"phase"`           // Phase is the last that it said, such as "ready" or "stored"; "" for nothing.
	State State          `json:"state,omitempty"` // State is where its target was last seen.
	Bytes lockstep.Bytes `json:"bytes,omitempty"` // Bytes is how much of its image has been written.
	Step  uint64         `json:"step,omitempty"`  // Step is its training step, if it has said so.
}
