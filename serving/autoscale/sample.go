package autoscale

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/policy"
)

// MaxReplicas is the most replicas that a service may have.
const MaxReplicas = 1 << 20

// Bounds of what is told.
const (
	maxCount   = 1_000_000_000 // requests, in one sample or at once
	maxTokens  = 1_000_000_000_000
	maxSources = 1 << 16
	maxOngoing = 2 * maxCount // over all sources: an hour of it, in microseconds, fits 64 bits
)

// Sample is what one source, such as a router or a replica, saw of the service. Requests to Output are counted since
// the source's last sample, Ongoing and Queued are how many there are now; those of
// all sources together count as 2 × 10^9 where they are more. Every figure is at least 0.
type Sample struct {
	Source   string `json:"source,omitempty"`   // Source is who tells; its next sample replaces Ongoing and Queued. UTF-8; "" is a source like others.
	Requests int64  `json:"requests,omitempty"` // Requests is how many arrived.
	Prompt   int64  `json:"prompt,omitempty"`   // Prompt is how many tokens their prompts have; 0 where requests have none.
	Finished int64  `json:"finished,omitempty"` // Finished is how many requests ended.
	Output   int64  `json:"output,omitempty"`   // Output is how many tokens were generated for those that ended, which tells what to expect of the next.
	Ongoing  int64  `json:"ongoing,omitempty"`  // Ongoing is how many requests are in replicas.
	Queued   int64  `json:"queued,omitempty"`   // Queued is how many wait for a replica.
}

// Validate reports every fault of s, joined.
func (s Sample) Validate() error {
	f := faults{op: "sample"}
	if len(s.Source) > lockstep.MaxIDLength {
		f.bad("Source", errtext.Quote(s.Source), "want at most "+strconv.Itoa(lockstep.MaxIDLength)+" bytes")
	}
	if !utf8.ValidString(s.Source) {
		f.bad("Source", errtext.Quote(s.Source), "is not UTF-8") // two such would be one once they are saved
	}
	f.count("Requests", s.Requests, 0, maxCount)
	f.count("Prompt", s.Prompt, 0, maxTokens)
	f.count("Finished", s.Finished, 0, maxCount)
	f.count("Output", s.Output, 0, maxTokens)
	f.count("Ongoing", s.Ongoing, 0, maxCount)
	f.count("Queued", s.Queued, 0, maxCount)
	return f.err()
}

// ReplicaID names one replica of a service.
type ReplicaID string

// Replica is one replica, as Decide is told of it.
type Replica struct {
	ID      ReplicaID `json:"id"`                // ID is its name, unique in the fleet; the rule is that of lockstep.JobID.
	Started time.Time `json:"started,omitzero"`  // Started is when it was started; zero counts as the oldest.
	Ongoing int64     `json:"ongoing,omitempty"` // Ongoing is how many requests it is working on, at least 0; it orders victims and nothing else.
}

// Fleet is which replicas a service has. The slices are read only and not kept.
type Fleet struct {
	Ready    []Replica `json:"ready,omitempty"`    // Ready are those that take requests.
	Starting []Replica `json:"starting,omitempty"` // Starting are those that were asked for and do not yet, whether the host created them or not.
	Draining []Replica `json:"draining,omitempty"` // Draining are those that were told to go; they count for nothing.
}

// Validate reports every fault of f, joined.
func (f Fleet) Validate() error {
	bad := faults{op: "fleet"}
	seen := make(map[ReplicaID]bool, len(f.Ready)+len(f.Starting)+len(f.Draining))
	for _, part := range []struct {
		name string
		list []Replica
	}{{"Ready", f.Ready}, {"Starting", f.Starting}, {"Draining", f.Draining}} {
		if len(part.list) > MaxReplicas {
			bad.bad(part.name, strconv.Itoa(len(part.list)), "want at most "+strconv.Itoa(MaxReplicas))
			continue
		}
		for i, r := range part.list {
			r.check(&bad, part.name, i, seen[r.ID])
			seen[r.ID] = true
		}
	}
	return bad.err()
}

// check checks the replica at place i of a list; the text of its name is made only where something is wrong.
func (r Replica) check(f *faults, list string, i int, twice bool) {
	named := lockstep.JobID(r.ID).Validate() == nil
	if named && !twice && r.Ongoing >= 0 && r.Ongoing <= maxCount {
		return
	}
	field := list + "[" + strconv.Itoa(i) + "]"
	switch {
	case !named:
		f.bad(field+".ID", errtext.Quote(r.ID), "is no usable name")
	case twice:
		f.errs = append(f.errs, fault(lockstep.ErrDuplicate, f.op, field+".ID", errtext.Quote(r.ID), "stands twice"))
	}
	f.count(field+".Ongoing", r.Ongoing, 0, maxCount)
}

// Decision is what to do now. It shares no memory with the Scaler.
type Decision struct {
	Term   uint64      `json:"term,omitempty"`   // Term is the Scaler's; see Fence.
	Seq    uint64      `json:"seq"`              // Seq counts the decisions of the term from 1.
	Want   int         `json:"want"`             // Want is how many replicas there should be, ready and starting together.
	Add    int         `json:"add,omitempty"`    // Add is how many to start.
	Remove []ReplicaID `json:"remove,omitempty"` // Remove are those to drain, the first to go first; nil where Add is not 0.
	Why    Why         `json:"why"`              // Why explains Want.
}

// Why explains a Decision: what the rule found, and what was made of it.
type Why struct {
	Reason  lockstep.Reason `json:"reason"`            // Reason is what decided Want last.
	Rule    int             `json:"rule"`              // Rule is what the rule asked for.
	Need    int64           `json:"need"`              // Need is that before rounding, in thousandths of a replica.
	Load    int64           `json:"load,omitempty"`    // Load is what the rule took for the present load, in thousandths: requests at once (KPA, QueueLength), requests a second (HeadRoom) or replicas (Predictive; HighWater, over one Load).
	Bound   int64           `json:"bound,omitempty"`   // Bound is what the load is forecast to stay below while a replica loads (Predictive), or its mark (HighWater), in thousandths of a replica; 0 otherwise.
	Backlog int64           `json:"backlog,omitempty"` // Backlog is what catching up takes besides, in the same unit; 0 of other rules than these.
	Current int             `json:"current"`           // Current is how many were ready or starting.
	Held    policy.Held     `json:"held,omitempty"`    // Held is the decorator of Config.Steady that keeps Want from what the rule asked for.
}

// The reasons of Why.
const (
	ReasonRule      lockstep.Reason = "rule"       // ReasonRule: the rule's own number.
	ReasonPanic     lockstep.Reason = "panic"      // ReasonPanic: KPA panics, and lowers nothing.
	ReasonBacklog   lockstep.Reason = "backlog"    // ReasonBacklog: requests wait, or will, and are to be caught up with.
	ReasonForecast  lockstep.Reason = "forecast"   // ReasonForecast: a lower number would not do for long, or a mark of HighWater stands.
	ReasonLoading   lockstep.Reason = "loading"    // ReasonLoading: HeadRoom changes nothing while replicas load.
	ReasonSteady    lockstep.Reason = "steady"     // ReasonSteady: a decorator of Config.Steady or a delay of the rule; Held says which.
	ReasonNoSamples lockstep.Reason = "no-samples" // ReasonNoSamples: nobody told anything of late, so nothing changes.
	ReasonIdle      lockstep.Reason = "idle"       // ReasonIdle: nothing was asked of the service for the grace.
	ReasonGrace     lockstep.Reason = "grace"      // ReasonGrace: the last replica stays for the grace.
	ReasonAwake     lockstep.Reason = "awake"      // ReasonAwake: something waits and there is no replica.
)
