package checkpoint

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// duty is what a rank owes a target before it may leave it. It is recorded
// before the call that may make it due.
type duty int

const (
	dutyNone   duty = iota
	dutyUnlock      // Unlock
	dutyResume      // Resume, then Unlock
	dutyKill        // only killing it helps
)

// hold is what is known of one target and owed to it: the pure part of the
// table of edges in the package documentation.
type hold struct {
	State  State `json:"state,omitempty"`  // as last read
	Duty   duty  `json:"duty,omitempty"`   // owed
	Flight bool  `json:"flight,omitempty"` // a call has not ended, or may not have: what is read may change yet
}

// verdict is what the end of a call means for who made it.
type verdict int

const (
	verdictOK      verdict = iota // the target is where the call should have taken it
	verdictFailed                 // it is not; do what Duty says
	verdictRetry                  // undoing did not get on; try again
	verdictUnsure                 // the call has not ended, or the target is between two states: look again
	verdictForeign                // somebody else holds the target; nothing is owed
	verdictGone                   // the target died; nothing is owed
	verdictWedged                 // only killing it helps
	verdictUnknown                // a state that nobody knows: hands off
)

// begin notes what is owed before a call is made.
func (h *hold) begin(call ActionKind) {
	switch call {
	case ActionLock:
		h.Duty = max(h.Duty, dutyUnlock)
	case ActionSuspend:
		h.Duty = max(h.Duty, dutyResume)
	}
}

// ended takes in how a call ended. Where the target is, as read, counts for more
// than what the call returned: drivers have reported success for what failed and
// failure for what went well.
func (h *hold) ended(call ActionKind, e *Event) verdict {
	if e.State != "" {
		h.State = e.State
	}
	switch {
	case errors.Is(e.Err, ErrGone) && (e.State == "" || e.State == Gone), e.State == Gone:
		h.State, h.Duty, h.Flight = Gone, dutyNone, false
		return verdictGone
	case errors.Is(e.Err, ErrWedged), e.State == Failed:
		h.Duty, h.Flight = dutyKill, false
		return verdictWedged
	case e.State != "" && !e.State.Known():
		return verdictUnknown
	case errors.Is(e.Err, ErrInFlight):
		h.Flight = true
		return verdictUnsure
	case e.State == "", e.State == Checkpointing, e.State == Restoring:
		return verdictUnsure
	}
	if call != ActionRead {
		h.Flight = false // a call that the driver took shows that the one before has ended
	}
	switch call {
	case ActionLock:
		return h.locked(e)
	case ActionSuspend:
		return h.suspended(e)
	case ActionResume:
		return h.resumed(e)
	}
	return h.opened(call)
}

func (h *hold) locked(e *Event) verdict {
	switch {
	case e.Before != "" && e.Before != Running,
		e.State == Locked && errors.Is(e.Err, ErrIllegalState),
		e.State == Checkpointed:
		h.Duty = dutyNone
		return verdictForeign
	case e.State == Running: // it drained too slowly, or the driver lied
		h.Duty = dutyNone
		return verdictFailed
	case e.Err != nil: // the driver gave up and locked it all the same
		return verdictFailed
	}
	return verdictOK
}

func (h *hold) suspended(e *Event) verdict {
	switch {
	case e.State == Checkpointed && e.Err == nil:
		return verdictOK
	case e.State == Locked:
		h.Duty = dutyUnlock
	case e.State == Running: // somebody has let it go
		h.Duty = dutyNone
	}
	return verdictFailed
}

func (h *hold) resumed(e *Event) verdict {
	switch e.State {
	case Locked:
		h.Duty = dutyUnlock
		return verdictOK
	case Running:
		h.Duty = dutyNone
		return verdictOK
	}
	// It is still Checkpointed. A device that had no room once is followed by
	// "operating system error" for ever, so nothing but time and a map is
	// worth another try.
	if e.Err == nil || errors.Is(e.Err, ErrTimeout) || errors.Is(e.Err, ErrIllegalState) || isInvalid(e.Err) {
		return verdictRetry
	}
	h.Duty = dutyKill
	return verdictWedged
}

// opened is how Unlock and Read end.
func (h *hold) opened(call ActionKind) verdict {
	switch {
	case h.State == Running && !h.Flight:
		h.Duty = dutyNone
		return verdictOK
	case h.State == Checkpointed:
		h.Duty = max(h.Duty, dutyResume)
	}
	if call == ActionRead {
		return verdictOK
	}
	return verdictRetry
}

// next is the call that brings the target nearer to what is owed.
func (h *hold) next() ActionKind {
	switch h.State {
	case Checkpointed:
		return ActionResume
	case Locked, Running: // Running with a call in flight: only an Unlock that succeeds shows that it has ended
		return ActionUnlock
	}
	return ActionRead
}

// checkPairs says what is wrong with a map that no device has been asked about.
func checkPairs(list []DevicePair) error {
	var faults []error
	old, to := map[lockstep.DeviceID]bool{}, map[lockstep.DeviceID]bool{}
	for i, p := range list {
		at := "[" + strconv.Itoa(i) + "]"
		if err := errors.Join(p.Old.Validate(), p.New.Validate()); err != nil {
			faults = append(faults, fault(lockstep.ErrInvalid, "devices", at, "", err.Error()))
			continue
		}
		if old[p.Old] || to[p.New] {
			faults = append(faults, fault(lockstep.ErrDuplicate, "devices", at, string(p.Old)+"="+string(p.New), "a device stands twice"))
		}
		old[p.Old], to[p.New] = true, true
	}
	return errors.Join(faults...)
}
