package moves

import (
	"io"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// The form in which a Driver saves itself.
const (
	driverFormat  = "lockstep/reconfig/moves"
	driverVersion = 1
)

type driverImage struct {
	Digest reconfig.Digest `json:"digest"`
	State  DriverState     `json:"state"`
	Phase  int             `json:"phase"`
	Begun  bool            `json:"begun"`
	Kind   ActionKind      `json:"kind"`
	Lost   []int           `json:"lost"`
	Owes   []int           `json:"owes"`
}

// Snapshot writes where d is, without moves and plan. Equal drivers write equal bytes.
func (d *Driver) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "moves: snapshot", driverFormat, driverVersion, d.image())
}

func (d *Driver) image() driverImage {
	img := driverImage{Digest: d.moves.Digest, State: d.state, Phase: d.phase, Begun: d.begun, Kind: d.kind}
	for i := range d.members {
		if d.members[i].lost {
			img.Lost = append(img.Lost, i)
		}
		if d.members[i].owes {
			img.Owes = append(img.Owes, i)
		}
	}
	return img
}

// RestoreDriver returns the driver that Snapshot saved, for the same moves and plan;
// others are ErrStale, and a state in which no driver can be is ErrInvalid. Step it with
// ReportResume to send again what is outstanding.
func RestoreDriver(r io.Reader, m *Sequence, to *reconfig.Plan) (*Driver, error) {
	const op = "moves: restore"
	d, err := NewDriver(m, to)
	if err != nil {
		return nil, err
	}
	var img driverImage
	body, err := snapshot.ReadJSON(r, op, driverFormat, driverVersion, &img)
	if err != nil {
		return nil, err
	}
	bad := func(kind error, field, reason string) error {
		return &lockstep.Error{Kind: kind, Op: op, Field: field, Reason: reason}
	}
	if img.Digest != m.Digest {
		return nil, bad(lockstep.ErrStale, "digest", "is of other moves")
	}
	if !d.resume(&img) {
		return nil, bad(lockstep.ErrInvalid, "state", "no driver can be there")
	}
	return d, snapshot.CheckJSON(op, body, d.image())
}

// resume puts d where an image was taken; false if that cannot be.
func (d *Driver) resume(img *driverImage) bool {
	if !slices.Contains(statesOf(img.Kind), img.State) || !d.reached(img) {
		return false
	}
	outside := func(i int) bool { return i < 0 || i >= len(d.members) }
	if slices.ContainsFunc(img.Lost, outside) || slices.ContainsFunc(img.Owes, outside) {
		return false
	}
	for i := range d.members {
		d.members[i].owes = false
	}
	for _, i := range img.Lost {
		d.members[i].lost = true
	}
	for _, i := range img.Owes {
		d.members[i].owes = !d.members[i].lost
	}
	d.state, d.phase, d.begun, d.kind = img.State, img.Phase, img.Begun, img.Kind
	return d.sound()
}

// reached says whether a driver gets to a state in such a phase.
func (d *Driver) reached(img *driverImage) bool {
	n := len(d.moves.Phases)
	start, end, within := img.Phase == 0 && !img.Begun, img.Phase == n && !img.Begun, img.Phase >= 0 && img.Phase < n && img.Begun
	switch img.State {
	case Preparing, Committing, Aborting, Aborted:
		return start
	case Moving:
		return within
	case Finishing, Done:
		return end
	}
	return start || end || within
}

// sound says whether those who are lost and those who owe an answer can be these.
func (d *Driver) sound() bool {
	parties := map[lockstep.DeviceID]bool{}
	if d.state == Moving {
		for id := range d.parties() {
			parties[id] = true
		}
	}
	forward := slices.Contains([]DriverState{Preparing, Committing, Moving, Finishing}, d.state)
	owing := false
	for i := range d.members {
		e := &d.members[i]
		owing = owing || e.owes
		if e.lost && forward && (d.state == Preparing || !d.spared(e)) || e.owes && d.state == Moving && !parties[e.id] {
			return false
		}
	}
	return owing != slices.Contains([]DriverState{Done, Aborted, Halted}, d.state)
}

// statesOf returns the states in which members are asked for an action.
func statesOf(kind ActionKind) []DriverState {
	switch kind {
	case DoPrepare:
		return []DriverState{Preparing}
	case DoCommit:
		return []DriverState{Committing}
	case DoMakeRoom, DoTransfer:
		return []DriverState{Moving}
	case DoFinish:
		return []DriverState{Finishing, Done}
	case DoAbort:
		return []DriverState{Aborting, Aborted}
	case DoHalt:
		return []DriverState{Halting, Halted}
	}
	return nil
}
