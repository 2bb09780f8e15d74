package health

import (
	"cmp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Kind says what an observer saw.
type Kind string

// The kinds of events.
const (
	Fault    Kind = "fault"    // Fault: Code happened.
	Clear    Kind = "clear"    // Clear: what Code stands for, and its special cases, is over.
	Reading  Kind = "reading"  // Reading: the counter or level of Code is Value.
	Probe    Kind = "probe"    // Probe: the probe named Code ran, and Passed says how.
	Seen     Kind = "seen"     // Seen: the checks of Source run and see the device.
	Lost     Kind = "lost"     // Lost: Source no longer sees the device; without a device, that its checks do not run on the node.
	Boot     Kind = "boot"     // Boot: the node runs since the boot named Boot.
	JobEnd   Kind = "jobend"   // JobEnd: Job ended there.
	Drained  Kind = "drained"  // Drained: no work is left there.
	Repaired Kind = "repaired" // Repaired: Action was done to it.
	Override Kind = "override" // Override: somebody, Source, holds it in State whatever comes, because of Note; an empty State ends that. One older than the latest does not count; of two of one time that of the later State in the order of the states does.
)

// rank orders the kinds within one instant.
func (k Kind) rank() int {
	for i, o := range [...]Kind{Boot, Fault, Reading, Lost, JobEnd, Clear, Repaired, Drained, Probe, Seen, Override} {
		if k == o {
			return i
		}
	}
	return -1
}

// Event is what an observer saw, as data that can be stored and replayed. Fields
// that its kind does not name may be empty.
type Event struct {
	Time   time.Time         `json:"time"`             // Time is when, by the observer's clock; from 1970 on.
	Kind   Kind              `json:"kind"`             // Kind says what it is.
	Node   lockstep.NodeID   `json:"node"`             // Node is where; it must be tracked.
	Device lockstep.DeviceID `json:"device,omitempty"` // Device is at which device; "" is the node itself, and for Seen, Lost, JobEnd, Drained and Repaired all devices of it too.
	Code   Code              `json:"code,omitempty"`   // Code is the evidence, or the name of a probe.
	Value  int64             `json:"value,omitempty"`  // Value is what a Reading read, at least 0.
	Passed bool              `json:"passed,omitempty"` // Passed says that a Probe passed.
	Boot   string            `json:"boot,omitempty"`   // Boot names the boot of the node in which it was, "" where not known.
	Job    lockstep.JobID    `json:"job,omitempty"`    // Job is whose work ran there, "" where not known.
	Source string            `json:"source,omitempty"` // Source is the observer. All devices of one that are lost at once are its own fault.
	Action Action            `json:"action,omitempty"` // Action is what a Repaired did: ActionReset, ActionReboot or ActionInspect.
	State  State             `json:"state,omitempty"`  // State is where an Override holds it.
	Note   string            `json:"note,omitempty"`   // Note is why there is an Override.
}

// maxText is the longest note, source and name of a boot, in bytes.
const maxText = 1024

func (e *Event) bad(field, value, reason string) error {
	return fault(lockstep.ErrInvalid, "observe", field, value, reason)
}

// check reports what is wrong with e by itself.
func (e *Event) check() error {
	switch {
	case e.Kind.rank() < 0:
		return e.bad("Kind", errtext.Quote(e.Kind), "is no kind of event")
	case e.Job != "" && e.Job.Validate() != nil:
		return e.bad("Job", errtext.Quote(e.Job), "is no ID")
	case !utf8.ValidString(e.Boot) || !utf8.ValidString(e.Source) || !utf8.ValidString(e.Note):
		return e.bad("Boot, Source or Note", "", "want UTF-8")
	case len(e.Boot) > maxText || len(e.Source) > maxText || len(e.Note) > maxText:
		return e.bad("Boot, Source or Note", "", "want at most "+strconv.Itoa(maxText)+" bytes")
	}
	return e.checkKind()
}

// checkKind reports what is wrong with the fields that e's kind names.
func (e *Event) checkKind() error {
	switch e.Kind {
	case Fault, Clear, Reading, Probe:
		switch {
		case !e.Code.valid():
			return e.bad("Code", errtext.Quote(e.Code), "is no code")
		case e.Kind == Probe && len(e.Code)+len(codeProbe) >= maxCode:
			return e.bad("Code", errtext.Quote(e.Code), "the name of a probe is shorter")
		case e.Kind == Reading && e.Value < 0:
			return e.bad("Value", strconv.FormatInt(e.Value, 10), "must not be negative")
		}
	case Boot:
		if e.Boot == "" || e.Device != "" {
			return e.bad("Boot", errtext.Quote(e.Boot), "want the name of a boot of a node")
		}
	case Repaired:
		if e.Action.rank() < ActionReset.rank() {
			return e.bad("Action", errtext.Quote(e.Action), "want reset, reboot or inspect")
		}
	case Override:
		if e.State != "" && e.State.rank() < 0 {
			return e.bad("State", errtext.Quote(e.State), "is no state")
		}
	}
	return nil
}

// compare orders the events of one instant; only equal ones compare equal.
func (e *Event) compare(o *Event) int {
	passed := func(e *Event) int {
		if e.Passed {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(e.Kind.rank(), o.Kind.rank()), cmp.Compare(e.Node, o.Node), cmp.Compare(e.Device, o.Device),
		cmp.Compare(e.Code, o.Code), cmp.Compare(e.Boot, o.Boot), cmp.Compare(e.Value, o.Value), cmp.Compare(e.Job, o.Job),
		cmp.Compare(e.Source, o.Source), cmp.Compare(passed(e), passed(o)), cmp.Compare(e.Action.rank(), o.Action.rank()),
		cmp.Compare(e.State, o.State), cmp.Compare(e.Note, o.Note), cmp.Compare(e.Action, o.Action), e.Time.Compare(o.Time),
	)
}

// State is what a device or node is held to be.
type State string

// The states.
const (
	Unknown     State = "unknown"     // Unknown: nobody vouches for it; no new work.
	Healthy     State = "healthy"     // Healthy: work may be placed.
	Suspect     State = "suspect"     // Suspect: work may be placed where there is no better.
	Cordoned    State = "cordoned"    // Cordoned: no new work; what runs stays.
	Draining    State = "draining"    // Draining: the work is to leave.
	Quarantined State = "quarantined" // Quarantined: no work; it is to be repaired.
	Probation   State = "probation"   // Probation: no work; probes have to pass and time without evidence.
	Retired     State = "retired"     // Retired: no work ever again. Only an Override leads here, and nothing leads out.
)

// rank returns where s stands in the order above, -1 for no state.
func (s State) rank() int {
	for i, o := range [...]State{Unknown, Healthy, Suspect, Cordoned, Draining, Quarantined, Probation, Retired} {
		if s == o {
			return i
		}
	}
	return -1
}

// Open reports whether new work may be placed.
func (s State) Open() bool { return s == Healthy || s == Suspect }

// closed reports whether s counts against Config.Blast.
func (s State) closed() bool {
	return s == Cordoned || s == Draining || s == Quarantined || s == Probation
}

// The reasons of transitions.
const (
	reasonEvidence lockstep.Reason = "evidence" // Code asks for it
	reasonRepeated lockstep.Reason = "repeated" // Code came too often, or came back in spite of reboots
	reasonRelapse  lockstep.Reason = "relapse"  // Code came back too often after recovery
	reasonCapped   lockstep.Reason = "capped"   // Code asks for more, which Config.Blast forbids
	reasonQuiet    lockstep.Reason = "quiet"    // long enough without evidence, and what had to pass passed
	reasonCleared  lockstep.Reason = "cleared"  // all there was is over
	reasonDrained  lockstep.Reason = "drained"  // no work is left
	reasonRepaired lockstep.Reason = "repaired" // what it needed was done
	reasonVouched  lockstep.Reason = "vouched"  // a probe passed, or an observer saw it
	reasonObserver lockstep.Reason = "observer" // its observer failed
	reasonStale    lockstep.Reason = "stale"    // its observer is silent
	reasonManual   lockstep.Reason = "manual"   // an Override says so
)

// Transition is a decision, for the host to carry out, with what it rests on.
type Transition struct {
	Time   time.Time         `json:"time"`             // Time is when it holds from.
	Node   lockstep.NodeID   `json:"node"`             // Node is where.
	Device lockstep.DeviceID `json:"device,omitempty"` // Device is which; "" is the node itself, which closes all its devices.
	From   State             `json:"from"`             // From is the state before.
	To     State             `json:"to"`               // To is the state now; the same as From where only Action became graver.
	Action Action            `json:"action"`           // Action is what is to be done to it.
	Reason lockstep.Reason   `json:"reason"`           // Reason is why: evidence, repeated, relapse, capped, quiet, cleared, drained, repaired, vouched, observer, stale, manual, or of Reconcile drift.
	Code   Code              `json:"code,omitempty"`   // Code is the gravest evidence, "" where there is none.
	Count  int               `json:"count,omitempty"`  // Count is how many occurrences of it are remembered, at most 16.
	First  time.Time         `json:"first,omitzero"`   // First is when the latest occurrence began, by its observer's clock.
	Last   time.Time         `json:"last,omitzero"`    // Last is when it was last reported.
	Job    lockstep.JobID    `json:"job,omitempty"`    // Job is whose work ran there then, "" where not known.
	Source string            `json:"source,omitempty"` // Source is who asked for it, of an Override; "" of others.
}

// Status is a copy of what is held of a device or node.
type Status struct {
	Node    lockstep.NodeID   `json:"node"`             // Node is where.
	Device  lockstep.DeviceID `json:"device,omitempty"` // Device is which; "" is the node itself.
	State   State             `json:"state"`            // State is its own.
	Open    bool              `json:"open"`             // Open says that new work may be placed: its own state and its node's allow it. A node itself of which only the devices are watched stays Unknown and does not stand in their way.
	Since   time.Time         `json:"since"`            // Since is from when State holds.
	Action  Action            `json:"action"`           // Action is what is to be done to it.
	Code    Code              `json:"code,omitempty"`   // Code is the gravest evidence that stands, "" for none.
	Dwell   time.Duration     `json:"dwell,omitempty"`  // Dwell is how long without evidence it has to be before it may leave State; 0 where that is no question of time.
	Manual  string            `json:"manual,omitempty"` // Manual is who holds it in State, "" for nobody.
	Note    string            `json:"note,omitempty"`   // Note is why.
	Penalty int               `json:"penalty"`          // Penalty is what it is worth less than others, in thousandths, by what happened of late, open or not. The greatest of the devices of a node will do for placement.State.SetPenalty.
}
