package moves

import (
	"errors"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// ActionKind says what a device is asked to do.
type ActionKind string

// The actions, in the order in which a device meets them.
const (
	DoPrepare  ActionKind = "prepare"  // DoPrepare: say whether the device has derived moves of this digest by itself, and stop at the end of the step; nothing is changed.
	DoCommit   ActionKind = "commit"   // DoCommit: the moves will be made; leave the communicators that they end.
	DoMakeRoom ActionKind = "makeRoom" // DoMakeRoom: give up and stage what the phase says.
	DoTransfer ActionKind = "transfer" // DoTransfer: send and receive what the phase says.
	DoFinish   ActionKind = "finish"   // DoFinish: all state is in place; drop host copies, join the new communicators and go on.
	DoAbort    ActionKind = "abort"    // DoAbort: forget the moves and go on as before, also where nothing was prepared.
	DoHalt     ActionKind = "halt"     // DoHalt: stay stopped for the moves that follow these. If Phase has begun, give up and stage what it says, if that is not done, and drop what it brought. Host copies stay.
)

// Action is what one device is to do.
type Action struct {
	Kind   ActionKind        `json:"kind"`            // Kind is what.
	Device lockstep.DeviceID `json:"device"`          // Device is who.
	Digest reconfig.Digest   `json:"digest"`          // Digest is that of the moves.
	Phase  int               `json:"phase,omitempty"` // Phase is the index of the phase, of DoMakeRoom and DoTransfer; of DoHalt, that of the first one that is not over.
	Begun  bool              `json:"begun,omitempty"` // Begun says, for DoHalt, that Phase has begun.
}

// ErrGone is what an Executor wraps when a device is lost.
var ErrGone = errors.New("moves: device is gone")

// Executor does on devices what a Driver says. The same action may come twice, and
// then succeeds the second time without doing anything again. An error that wraps
// ErrGone means that the device is lost; any other that it refuses or has failed, and
// that nothing of the action counts.
//
// A device refuses DoPrepare for any digest but that of the moves which it has derived
// itself, and when it is committed to others; DoCommit, DoMakeRoom, DoTransfer and
// DoFinish without what comes before them; and DoAbort once it is committed. Moves of
// the same digest may come again after an abort, a halt or a finish, from DoPrepare on,
// which then begins anew. Package movestest tests all that.
type Executor interface {
	// Do carries out one action.
	Do(a Action) error
}

// Drive has x do what d says, one action after the other, until nothing is left to
// do, and returns where that led. A host that acts on many devices at once calls
// Driver.Step itself.
func Drive(d *Driver, x Executor) (DriverState, error) {
	queue, err := d.Step(Report{})
	for err == nil && len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		if !d.Expects(a) {
			continue // overtaken by an abort or a halt
		}
		r := Report{Kind: ReportDone, Action: a, Device: a.Device}
		if fault := x.Do(a); errors.Is(fault, ErrGone) {
			r.Kind = ReportLost
		} else if fault != nil {
			r.Kind = ReportFailed
		}
		var more []Action
		more, err = d.Step(r)
		queue = append(queue, more...)
	}
	return d.State(), err
}
