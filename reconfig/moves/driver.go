package moves

import (
	"iter"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// DriverState is what a Driver is about.
type DriverState string

// The states of a Driver.
const (
	Preparing  DriverState = "preparing"  // Preparing: not all members have agreed.
	Committing DriverState = "committing" // Committing: all have agreed; there is no way back.
	Moving     DriverState = "moving"     // Moving: phases are under way.
	Finishing  DriverState = "finishing"  // Finishing: all state is in place.
	Done       DriverState = "done"       // Done: all members go on under the new plan.
	Aborting   DriverState = "aborting"   // Aborting: one did not agree or was lost in time, and the others are told.
	Aborted    DriverState = "aborted"    // Aborted: all go on under the old plan.
	Halting    DriverState = "halting"    // Halting: one was lost, or failed, when there was no way back, and the others are told.
	Halted     DriverState = "halted"     // Halted: all wait; plan anew from Sequence.After with Progress.
)

// ReportKind says what has happened.
type ReportKind string

// The kinds of Report.
const (
	ReportResume ReportKind = ""       // ReportResume: begin, or begin again after Restore; the answer is everything outstanding.
	ReportDone   ReportKind = "done"   // ReportDone: Device has done Action.
	ReportFailed ReportKind = "failed" // ReportFailed: Device refused Action, or failed in it.
	ReportLost   ReportKind = "lost"   // ReportLost: Device is gone.
	ReportGiveUp ReportKind = "giveUp" // ReportGiveUp: the host has waited long enough; it counts only while Preparing.
)

// Report is what a Driver is told.
type Report struct {
	Kind   ReportKind        `json:"kind,omitempty"`   // Kind is what has happened.
	Device lockstep.DeviceID `json:"device,omitempty"` // Device is who, of ReportDone, ReportFailed and ReportLost.
	Action Action            `json:"action,omitzero"`  // Action is what it was asked, of ReportDone and ReportFailed.
}

// Driver leads all members of a job through moves, so that all of them act on one
// digest or none does: every member prepares, then every member commits, then the
// phases follow one by one. Until the first commit is sent anything that goes wrong
// aborts; after it nothing is undone, and what goes wrong halts all members where they
// are, to be led on by moves that are planned from there.
//
// A host that must survive itself stores Snapshot before it sends the actions that a
// Step returned. A Driver is not safe for concurrent use.
type Driver struct {
	moves   *Sequence
	members []member
	at      map[lockstep.DeviceID]int
	state   DriverState
	phase   int        // the phase under way, or the first that is not over
	begun   bool       // it has begun
	kind    ActionKind // what members are asked now; DoMakeRoom or DoTransfer while Moving
}

// member is a device that takes part.
type member struct {
	id    lockstep.DeviceID
	role  bool // it has one in the plan
	until int  // it sends in no phase from this one on
	lost  bool
	owes  bool // has not answered
}

// NewDriver returns a Driver for moves and the plan that they lead to. Its members are
// the devices of the plan and those that send or give up something; a device that had
// a role and no state, in a stage without layers, is the host's to tell.
func NewDriver(m *Sequence, to *reconfig.Plan) (*Driver, error) {
	bad := func(field, reason string) error {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "moves: driver", Field: field, Reason: reason}
	}
	if m == nil || to == nil {
		return nil, bad("m", "want moves and their plan")
	}
	if m.Sum() != m.Digest {
		return nil, bad("m.Digest", "the moves are not those that their digest is of")
	}
	if m.Plan != to.Digest || to.Sum() != to.Digest {
		return nil, bad("to.Digest", "the moves lead to another plan")
	}
	d := &Driver{moves: m, at: map[lockstep.DeviceID]int{}, state: Preparing, kind: DoPrepare}
	roles := map[lockstep.DeviceID]bool{}
	for _, r := range to.Replicas {
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				roles[id] = true
				d.join(id)
			}
		}
	}
	for i, p := range m.Phases {
		for _, list := range [][]Release{p.Free, p.Stage} {
			for _, r := range list {
				d.join(r.Device)
			}
		}
		for _, t := range p.Transfers {
			if t.From != "" {
				d.members[d.join(t.From)].until = i + 1
			}
			d.join(t.To)
		}
	}
	slices.SortFunc(d.members, func(a, b member) int { return compareIDs(a.id, b.id) })
	for i := range d.members {
		e := &d.members[i]
		d.at[e.id], e.role, e.owes = i, roles[e.id], true
	}
	return d, nil
}

// join returns the place of a member, a new one if need be.
func (d *Driver) join(id lockstep.DeviceID) int {
	i, ok := d.at[id]
	if !ok {
		i = len(d.members)
		d.at[id] = i
		d.members = append(d.members, member{id: id})
	}
	return i
}

func compareIDs(a, b lockstep.DeviceID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// State returns what d is about.
func (d *Driver) State() DriverState { return d.state }

// Progress returns how many phases all members have finished, and before which one
// all have begun: what Sequence.After asks for.
func (d *Driver) Progress() (done, begun int) {
	if d.begun {
		return d.phase, d.phase + 1
	}
	return d.phase, d.phase
}

// Members returns the devices that take part and are not lost, sorted.
func (d *Driver) Members() []lockstep.DeviceID {
	var out []lockstep.DeviceID
	for i := range d.members {
		if !d.members[i].lost {
			out = append(out, d.members[i].id)
		}
	}
	return out
}

// Expects says whether a is outstanding: asked for and not answered.
func (d *Driver) Expects(a Action) bool {
	i, ok := d.at[a.Device]
	return ok && d.members[i].owes && a == d.action(i)
}

// action returns what member i is asked now.
func (d *Driver) action(i int) Action {
	a := Action{Kind: d.kind, Device: d.members[i].id, Digest: d.moves.Digest}
	switch d.kind {
	case DoMakeRoom, DoTransfer:
		a.Phase = d.phase
	case DoHalt:
		a.Phase, a.Begun = d.phase, d.begun
	}
	return a
}

// Step takes a report and returns what devices are to do because of it, by device. An
// answer to what is not outstanding is ErrStale, a device that takes no part
// ErrUnknown, and a kind that is none ErrInvalid; then nothing has changed.
func (d *Driver) Step(r Report) ([]Action, error) {
	bad := func(kind error, field, value, reason string) error {
		return &lockstep.Error{Kind: kind, Op: "moves: driver", Field: field, Value: value, Reason: reason}
	}
	switch r.Kind {
	case ReportResume:
		return d.outstanding(), nil
	case ReportGiveUp:
		if d.state == Preparing {
			return d.ask(Aborting, DoAbort), nil
		}
		return nil, nil
	case ReportDone, ReportFailed, ReportLost:
	default:
		return nil, bad(lockstep.ErrInvalid, "Kind", errtext.Quote(r.Kind), "unknown")
	}
	i, ok := d.at[r.Device]
	if !ok {
		return nil, bad(lockstep.ErrUnknown, "Device", errtext.Quote(r.Device), "takes no part")
	}
	switch {
	case r.Kind == ReportLost && d.members[i].lost:
		return nil, nil
	case r.Kind == ReportLost:
		d.members[i].lost = true
	case r.Action.Device != r.Device || !d.Expects(r.Action):
		return nil, bad(lockstep.ErrStale, "Action", errtext.Quote(r.Action.Kind), "is not outstanding")
	}
	if r.Kind == ReportDone {
		d.members[i].owes = false
		return d.advance(), nil
	}
	return d.wrong(i), nil
}

// wrong deals with a member that is lost or has failed.
func (d *Driver) wrong(i int) []Action {
	e := &d.members[i]
	switch d.state {
	case Preparing:
		return d.ask(Aborting, DoAbort)
	case Committing, Moving, Finishing:
		if !e.lost || !d.spared(e) {
			return d.ask(Halting, DoHalt)
		}
	case Aborting, Halting:
		if !e.lost {
			return nil // it owes until it does it, or is lost
		}
	}
	e.owes = false
	return d.advance()
}

// spared says whether the moves can go on without a member: it has no role, and what it
// sends is sent.
func (d *Driver) spared(e *member) bool { return !e.role && e.until <= d.phase }

// ask puts every member under an action.
func (d *Driver) ask(s DriverState, kind ActionKind) []Action {
	d.state, d.kind = s, kind
	for i := range d.members {
		d.members[i].owes = !d.members[i].lost
	}
	if out := d.outstanding(); len(out) > 0 {
		return out
	}
	return d.advance()
}

// outstanding lists what is asked and not answered.
func (d *Driver) outstanding() []Action {
	var out []Action
	for i := range d.members {
		if d.members[i].owes {
			out = append(out, d.action(i))
		}
	}
	return out
}

// advance goes on when nobody owes an answer.
func (d *Driver) advance() []Action {
	if slices.ContainsFunc(d.members, func(e member) bool { return e.owes }) {
		return nil
	}
	switch d.state {
	case Preparing:
		return d.ask(Committing, DoCommit)
	case Committing:
		d.state, d.kind = Moving, DoMakeRoom
		return d.move()
	case Moving:
		if d.kind == DoMakeRoom {
			d.kind = DoTransfer
			return d.move()
		}
		d.phase++
		d.begun, d.kind = false, DoMakeRoom
		return d.move()
	case Finishing:
		d.state = Done
	case Aborting:
		d.state = Aborted
	case Halting:
		d.state = Halted
	}
	return nil
}

// move asks those for whom the phase has something.
func (d *Driver) move() []Action {
	for ; d.phase < len(d.moves.Phases); d.phase++ {
		for {
			if out := d.concern(); len(out) > 0 {
				return out
			}
			if d.kind == DoTransfer {
				break
			}
			d.kind = DoTransfer
		}
		d.begun, d.kind = false, DoMakeRoom
	}
	return d.ask(Finishing, DoFinish)
}

// concern marks who has to do something now.
func (d *Driver) concern() []Action {
	for id := range d.parties() {
		if i, ok := d.at[id]; ok {
			d.members[i].owes = !d.members[i].lost
		}
	}
	out := d.outstanding()
	d.begun = d.begun || len(out) > 0
	return out
}

// parties yields those who make room, or transfer, in the phase under way.
func (d *Driver) parties() iter.Seq[lockstep.DeviceID] {
	p := &d.moves.Phases[d.phase]
	return func(yield func(lockstep.DeviceID) bool) {
		if d.kind == DoMakeRoom {
			for _, list := range [][]Release{p.Free, p.Stage} {
				for _, r := range list {
					if !yield(r.Device) {
						return
					}
				}
			}
			return
		}
		for _, t := range p.Transfers {
			if !yield(t.From) || !yield(t.To) {
				return
			}
		}
	}
}
