package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// TestEachEdgeOfATarget is the table of edges in doc.go, a row each.
func TestEachEdgeOfATarget(t *testing.T) {
	const (
		lock, suspend, resume, unlock, read = ActionLock, ActionSuspend, ActionResume, ActionUnlock, ActionRead
	)
	for _, tt := range []struct {
		name   string
		from   State
		duty   duty // before the call
		call   ActionKind
		before State
		state  State // read back
		err    error
		want   verdict
		then   duty
	}{
		{"lock: well", Running, dutyNone, lock, Running, Locked, nil, verdictOK, dutyUnlock},
		{"lock: timed out", Running, dutyNone, lock, Running, Running, ErrTimeout, verdictFailed, dutyNone},
		{"lock: timed out and locked all the same", Running, dutyNone, lock, Running, Locked, ErrTimeout, verdictFailed, dutyUnlock},
		{"lock: somebody else holds it", Running, dutyNone, lock, Running, Locked, ErrIllegalState, verdictForeign, dutyNone},
		{"lock: was not running", Running, dutyNone, lock, Locked, Locked, ErrIllegalState, verdictForeign, dutyNone},
		{"lock: was suspended by somebody else", Running, dutyNone, lock, Checkpointed, Checkpointed, ErrIllegalState, verdictForeign, dutyNone},
		{"lock: not supported", Running, dutyNone, lock, Running, Running, ErrUnsupported, verdictFailed, dutyNone},
		{"lock: not permitted", Running, dutyNone, lock, Running, Running, ErrPermission, verdictFailed, dutyNone},
		{"lock: driver not ready", Running, dutyNone, lock, Running, Running, ErrDriver, verdictFailed, dutyNone},
		{"lock: said well and did nothing", Running, dutyNone, lock, Running, Running, nil, verdictFailed, dutyNone},
		{"lock: outlives its context", Running, dutyNone, lock, Running, Running, ErrInFlight, verdictUnsure, dutyUnlock},
		{"lock: state unreadable", Running, dutyNone, lock, Running, "", ErrDriver, verdictUnsure, dutyUnlock},
		{"lock: target dies", Running, dutyNone, lock, Running, Gone, ErrDriver, verdictGone, dutyNone},
		{"lock: PID reused", Running, dutyNone, lock, Running, "", ErrGone, verdictGone, dutyNone},
		{"lock: failed", Running, dutyNone, lock, Running, Failed, ErrDriver, verdictWedged, dutyKill},
		{"lock: a state nobody knows", Running, dutyNone, lock, Running, UnknownState(9), nil, verdictUnknown, dutyUnlock},

		{"suspend: well", Locked, dutyUnlock, suspend, "", Checkpointed, nil, verdictOK, dutyResume},
		{"suspend: not supported", Locked, dutyUnlock, suspend, "", Locked, ErrUnsupported, verdictFailed, dutyUnlock},
		{"suspend: out of memory, or MIG, or managed memory", Locked, dutyUnlock, suspend, "", Locked, ErrMemory, verdictFailed, dutyUnlock},
		{"suspend: out of memory and failed", Locked, dutyUnlock, suspend, "", Failed, ErrMemory, verdictWedged, dutyKill},
		{"suspend: said well and did nothing", Locked, dutyUnlock, suspend, "", Locked, nil, verdictFailed, dutyUnlock},
		{"suspend: failed and did it", Locked, dutyUnlock, suspend, "", Checkpointed, ErrTimeout, verdictFailed, dutyResume},
		{"suspend: outlives its context", Locked, dutyUnlock, suspend, "", Locked, ErrInFlight, verdictUnsure, dutyResume},
		{"suspend: on the way", Locked, dutyUnlock, suspend, "", Checkpointing, nil, verdictUnsure, dutyResume},
		{"suspend: somebody has unlocked it", Locked, dutyUnlock, suspend, "", Running, ErrIllegalState, verdictFailed, dutyNone},
		{"suspend: target dies", Locked, dutyUnlock, suspend, "", Gone, ErrGone, verdictGone, dutyNone},

		{"resume: well", Checkpointed, dutyResume, resume, "", Locked, nil, verdictOK, dutyUnlock},
		{"resume: and unlocked by somebody", Checkpointed, dutyResume, resume, "", Running, nil, verdictOK, dutyNone},
		{"resume: out of memory", Checkpointed, dutyResume, resume, "", Checkpointed, ErrMemory, verdictWedged, dutyKill},
		{"resume: bad map", Checkpointed, dutyResume, resume, "", Checkpointed, lockstep.ErrInvalid, verdictRetry, dutyResume},
		{"resume: operating system error", Checkpointed, dutyResume, resume, "", Checkpointed, ErrPermission, verdictWedged, dutyKill},
		{"resume: driver error", Checkpointed, dutyResume, resume, "", Checkpointed, ErrDriver, verdictWedged, dutyKill},
		{"resume: timed out", Checkpointed, dutyResume, resume, "", Checkpointed, ErrTimeout, verdictRetry, dutyResume},
		{"resume: outlives its context", Checkpointed, dutyResume, resume, "", Checkpointed, ErrInFlight, verdictUnsure, dutyResume},
		{"resume: on the way", Checkpointed, dutyResume, resume, "", Restoring, nil, verdictUnsure, dutyResume},
		{"resume: said well and did nothing", Checkpointed, dutyResume, resume, "", Checkpointed, nil, verdictRetry, dutyResume},
		{"resume: failed", Checkpointed, dutyResume, resume, "", Failed, ErrDriver, verdictWedged, dutyKill},
		{"resume: target dies", Checkpointed, dutyResume, resume, "", Gone, ErrDriver, verdictGone, dutyNone},

		{"unlock: well", Locked, dutyUnlock, unlock, "", Running, nil, verdictOK, dutyNone},
		{"unlock: illegal, since it runs", Locked, dutyUnlock, unlock, "", Running, ErrIllegalState, verdictOK, dutyNone},
		{"unlock: did nothing", Locked, dutyUnlock, unlock, "", Locked, ErrIllegalState, verdictRetry, dutyUnlock},
		{"unlock: said well and did nothing", Locked, dutyUnlock, unlock, "", Locked, nil, verdictRetry, dutyUnlock},
		{"unlock: it is suspended", Locked, dutyUnlock, unlock, "", Checkpointed, ErrIllegalState, verdictRetry, dutyResume},
		{"unlock: outlives its context", Locked, dutyUnlock, unlock, "", Locked, ErrInFlight, verdictUnsure, dutyUnlock},
		{"unlock: wedged", Locked, dutyUnlock, unlock, "", "", ErrWedged, verdictWedged, dutyKill},
		{"unlock: target dies", Locked, dutyUnlock, unlock, "", Gone, ErrGone, verdictGone, dutyNone},

		{"read: locked", "", dutyUnlock, read, "", Locked, nil, verdictOK, dutyUnlock},
		{"read: suspended", "", dutyUnlock, read, "", Checkpointed, nil, verdictOK, dutyResume},
		{"read: running", "", dutyResume, read, "", Running, nil, verdictOK, dutyNone},
		{"read: failed", "", dutyResume, read, "", Failed, nil, verdictWedged, dutyKill},
		{"read: gone", "", dutyResume, read, "", Gone, nil, verdictGone, dutyNone},
		{"read: between two states", "", dutyResume, read, "", Restoring, nil, verdictUnsure, dutyResume},
		{"read: unreadable", Locked, dutyUnlock, read, "", "", ErrPermission, verdictUnsure, dutyUnlock},
		{"read: a state nobody knows", "", dutyResume, read, "", UnknownState(-1), nil, verdictUnknown, dutyResume},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := hold{State: tt.from, Duty: tt.duty}
			h.begin(tt.call)
			require.GreaterOrEqual(t, h.Duty, tt.duty)
			e := Event{Before: tt.before, State: tt.state, Err: tt.err}
			require.Equal(t, tt.want, h.ended(tt.call, &e))
			require.Equal(t, tt.then, h.Duty)
			if tt.want == verdictUnsure && tt.err != nil && tt.state != "" {
				require.True(t, h.Flight)
				running := Event{State: Running}
				h.ended(ActionRead, &running)
				require.NotEqual(t, dutyNone, h.Duty, "what is read while a call is in flight may change yet")
				require.Equal(t, ActionUnlock, h.next())
				h.ended(ActionUnlock, &running)
				require.Equal(t, dutyNone, h.Duty, "an unlock that went through shows that the call has ended")
			}
		})
	}
}

func TestTheWayBackGoesByTheState(t *testing.T) {
	for s, want := range map[State]ActionKind{ // each alone: order cannot matter
		Checkpointed: ActionResume, Locked: ActionUnlock, Running: ActionUnlock, "": ActionRead, Restoring: ActionRead, Checkpointing: ActionRead,
	} {
		require.Equal(t, want, (&hold{State: s}).next(), "%s", s)
	}
}
