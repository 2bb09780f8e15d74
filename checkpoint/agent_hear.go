package checkpoint

import (
	"errors"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// receive takes in a message of a leader.
func (a *Agent) receive(m *Message) {
	if m.Term < a.term {
		// It learns the term from this. It is no outcome: the leader that has
		// that term would take it for one.
		a.send(Message{Kind: msgBusy, Epoch: m.Epoch})
		return
	}
	a.term = m.Term
	switch {
	case m.Kind == msgAsk:
		a.ask()
	case m.Epoch > a.epoch:
		a.ahead(m)
	case m.Epoch < a.epoch:
		a.behind(m)
	default:
		a.word = a.now
		a.present(m)
	}
}

// ask has the step read, unless there is something else to do first.
func (a *Agent) ask() {
	a.word = a.now
	if a.op == 0 && a.hold.Duty == dutyNone {
		a.start(ActionStep, Action{Timeout: a.cfg.Call})
	}
}

// ahead takes in a message of an epoch that is new here.
func (a *Agent) ahead(m *Message) {
	switch {
	case a.phase == phaseBroken || a.final == msgBroken:
		a.send(Message{Kind: msgBroken, Epoch: m.Epoch, Reason: a.reason, Detail: a.detail})
	case a.doing == ActionStep:
		// The leader repeats it; a read is over soon.
	case a.phase != phaseIdle:
		// The leader would not go on if the epoch here were not void. But a
		// rank that may have peers that were terminated asks the ledger.
		if a.aim == aimForward && a.plan.StopAfter && a.stored {
			if a.op == 0 && a.now >= a.retry {
				a.settle()
			}
		} else if a.aim == aimForward {
			a.abandon(reasonStale, "")
		}
	case m.Kind == msgPrepare:
		a.prepare(m)
	case m.Kind == msgAbort:
		a.join(m)
		a.leave(msgResumed) // a prepare that comes late is refused then
	default:
		// It took part, and its record is lost. Whatever comes late must not
		// have it take part again.
		a.join(m)
		a.leave(msgRefuse)
	}
}

// behind answers a message of an epoch that has been left.
func (a *Agent) behind(m *Message) {
	kind := msgResumed
	if m.Kind == msgPrepare || m.Kind == msgSnapshot {
		kind = msgRefuse
	}
	if a.phase == phaseBroken || a.final == msgGone {
		kind = a.final
	}
	a.send(Message{Kind: kind, Epoch: m.Epoch})
}

// join enters an epoch.
func (a *Agent) join(m *Message) {
	if a.saving != 0 {
		a.out = append(a.out, Action{Kind: ActionCancel, Op: a.saving, Epoch: a.epoch}) // one at a time
	}
	a.epoch, a.plan, a.word = m.Epoch, m.Plan, a.now
	a.aim, a.final, a.reason, a.detail = aimForward, "", "", ""
	a.stored, a.staged, a.image = false, false, RankImage{}
	a.step, a.bytes, a.since, a.undoing, a.retry, a.tries, a.remap, a.saving = 0, 0, 0, 0, 0, 0, nil, 0
}

func (a *Agent) prepare(m *Message) {
	a.join(m)
	a.phase = phaseLocking
	a.hold.begin(ActionLock)
	a.record()
	a.start(ActionLock, Action{StopStep: m.Plan.StopStep, Timeout: m.Plan.Lock})
}

// present takes in a message of the epoch that this rank is in, or was last in.
func (a *Agent) present(m *Message) {
	if a.final == "" && a.aim == aimForward && a.onward(m) {
		return
	}
	if m.Kind == msgAbort && a.phase == phaseIdle && a.saving != 0 {
		// It went on early; the rest is in vain.
		a.staged = false
		a.out = append(a.out, Action{Kind: ActionCancel, Op: a.saving, Epoch: a.epoch})
	}
	if a.defect == defectRelock && m.Kind == msgPrepare && a.phase == phaseIdle {
		a.prepare(m)
		return
	}
	a.reply()
}

// onward does what a leader says to a rank that is still on its way to a commit,
// and says whether there was anything to do.
func (a *Agent) onward(m *Message) bool {
	switch {
	case m.Kind == msgSnapshot && a.phase == phaseReady:
		a.snapshot()
	case m.Kind == msgResume && (a.staged || a.stored):
		a.turn(aimUndo)
	case m.Kind == msgCommit:
		a.committed()
	case m.Kind == msgAbort:
		a.remap = slices.Clone(m.Devices)
		a.void()
	default:
		return false
	}
	return true
}

// snapshot goes on from Locked.
func (a *Agent) snapshot() {
	if a.cfg.NoSuspend {
		a.save()
		return
	}
	a.phase = phaseSuspending
	a.hold.begin(ActionSuspend)
	a.record()
	a.start(ActionSuspend, Action{Timeout: a.cfg.Call})
}

func (a *Agent) save() {
	if a.plan.Hold {
		a.phase, a.staged = phaseStored, true
		a.reply()
		return
	}
	a.phase = phaseSaving
	a.start(ActionSave, Action{StopStep: a.plan.StopStep, Timeout: a.plan.Pause})
}

// committed goes forward: there is no way back from a commit.
func (a *Agent) committed() {
	switch {
	case !a.stored:
		a.reply() // it cannot be: nobody commits what was not stored
	case a.plan.StopAfter:
		a.turn(aimKill)
		a.record()
	default:
		a.turn(aimUndo)
	}
}

// void goes back.
func (a *Agent) void() {
	if a.phase == phaseSaving || a.phase == phaseStored {
		a.staged = false // whatever is in memory is in vain too
	}
	a.abandon(reasonReleased, "")
}

// done takes in the end of an action.
func (a *Agent) done(e *Event) {
	switch {
	case e.Op == 0:
	case e.Op == a.recording && e.Err != nil:
		a.unrecorded()
	case e.Op == a.saving:
		a.saved(e)
	case e.Op == a.op:
		kind := a.doing
		a.op, a.doing = 0, 0
		switch kind {
		case ActionSettle:
			a.found(e)
		case ActionKill:
			a.killed(e)
		default:
			a.called(kind, e)
		}
	}
}

// found takes in what the ledger says of an epoch in doubt.
func (a *Agent) found(e *Event) {
	switch {
	case a.aim != aimForward || a.phase != phaseStored:
		// The leader's word came first.
	case e.Err != nil && !errors.Is(e.Err, ErrFenced):
		a.retry = a.later()
	case e.Epoch != nil && a.in(e.Epoch):
		a.turn(aimKill)
		a.record()
	default:
		a.stored = false // nobody can commit it now
		a.abandon(reasonLeader, "")
	}
}

// in says whether m has this rank's image.
func (a *Agent) in(m *Manifest) bool {
	return m.Epoch == a.epoch && a.cfg.Rank < len(m.Ranks) && m.Ranks[a.cfg.Rank].Image == a.image.Image
}

func (a *Agent) killed(e *Event) {
	if e.State == Gone {
		a.hold = hold{State: Gone}
		a.leave(msgTerminated)
		return
	}
	a.again(reasonStuck, e)
}

// saved takes in the end of a save.
func (a *Agent) saved(e *Event) {
	a.saving = 0
	switch {
	case e.Err == nil && (a.aim == aimForward || a.staged):
		a.stored, a.image, a.bytes = true, e.Image, e.Image.Bytes
		a.image.Rank = a.cfg.Rank
		if a.phase == phaseSaving {
			a.phase = phaseStored
		}
		a.record()
		a.reply()
	case a.aim == aimForward:
		a.abandon(reasonSave, detail(e))
	case a.staged:
		a.staged = false
		a.reason, a.detail = reasonSave, detail(e)
		if a.final != "" {
			a.reply()
		}
	}
}

// called takes in the end of a call into the driver.
func (a *Agent) called(kind ActionKind, e *Event) {
	if kind == ActionStep {
		if e.State != "" {
			a.hold.State = e.State
		}
		a.step = e.Step
		a.send(Message{Kind: msgStep, Epoch: a.epoch})
		return
	}
	v := a.hold.ended(kind, e)
	switch v {
	case verdictOK:
		a.went(kind, e)
	case verdictFailed:
		a.fell(kind, e)
	case verdictRetry:
		a.again(reasonWedged, e)
	case verdictUnsure:
		a.abandon(unsure(e), detail(e))
		a.retry = a.later()
	case verdictForeign:
		a.reason, a.detail = reasonForeign, detail(e)
		a.leave(msgRefuse)
	case verdictGone:
		a.reason, a.detail = reasonGone, detail(e)
		a.leave(msgGone)
	case verdictWedged:
		a.ruin(reasonWedged, e)
	case verdictUnknown:
		a.ruin(reasonUnknown, e)
	}
}

// went goes on after a call that did what it should.
func (a *Agent) went(kind ActionKind, e *Event) {
	a.tries, a.retry = 0, 0
	switch kind {
	case ActionLock:
		a.phase, a.step = phaseReady, e.Step
		a.since = max(a.now, 1)
		if a.aim == aimForward {
			a.reply()
		}
	case ActionSuspend:
		if a.aim == aimForward {
			a.save()
		}
	case ActionResume:
		if a.defect == defectForget {
			a.hold.Duty = dutyNone
		}
	}
}

// fell turns back after a call on the way forward.
func (a *Agent) fell(kind ActionKind, e *Event) {
	reason := reasonRefused
	if errors.Is(e.Err, ErrTimeout) {
		reason = reasonTimeout
	}
	if kind == ActionLock && a.hold.Duty == dutyNone {
		a.reason, a.detail = reason, detail(e)
		a.leave(msgRefuse)
		return
	}
	a.abandon(reason, detail(e))
}

// again has the way back tried once more, or gives up.
func (a *Agent) again(reason lockstep.Reason, e *Event) {
	a.tries++
	if isInvalid(e.Err) {
		a.remap = nil // the map was bad: back to where it was
		a.detail = detail(e)
	}
	if a.tries >= a.cfg.Tries {
		a.ruin(reason, e)
		return
	}
	a.retry = a.later()
}

// ruin leaves the target as it is.
func (a *Agent) ruin(reason lockstep.Reason, e *Event) {
	a.phase, a.undoing = phaseBroken, 0
	a.record()
	a.conclude(msgBroken, reason, detail(e))
}

// unrecorded turns back where a record could not be made durable: the actions
// behind it were not begun.
func (a *Agent) unrecorded() {
	switch {
	case a.phase == phaseLocking && a.doing == ActionLock:
		a.op, a.doing, a.hold.Duty, a.phase = 0, 0, dutyNone, phaseIdle
		a.conclude(msgRefuse, reasonRecord, "")
	case a.phase == phaseSuspending && a.doing == ActionSuspend:
		a.op, a.doing, a.hold.Duty = 0, 0, dutyUnlock
		a.abandon(reasonRecord, "")
	case a.phase == phaseStored && a.aim == aimForward:
		a.stored = false // it was not told, so nobody counts on it
		a.abandon(reasonRecord, "")
	}
}

func (a *Agent) later() int64 { return a.now + int64(a.cfg.Poll) }

func unsure(e *Event) lockstep.Reason {
	if errors.Is(e.Err, ErrInFlight) {
		return reasonStuck
	}
	return reasonUnknown
}

// detail is one line about an event's error.
func detail(e *Event) string {
	if e.Details != "" || e.Err == nil {
		return e.Details
	}
	return e.Err.Error()
}
