package lifecycle

import "slices"

// State is where a job is in its life.
type State string

// The states.
const (
	Held             State = "held"              // Held: not to be tried until somebody queues it.
	Queued           State = "queued"            // Queued: waits for its turn.
	Admitted         State = "admitted"          // Admitted: quota is granted, devices are not.
	Reserving        State = "reserving"         // Reserving: devices are held while members confirm.
	Starting         State = "starting"          // Starting: all members confirmed and are coming up.
	Running          State = "running"           // Running: the gang works.
	Draining         State = "draining"          // Draining: it was told to stop and may save until the deadline.
	Suspended        State = "suspended"         // Suspended: stopped until somebody queues it.
	Backoff          State = "backoff"           // Backoff: waits before the next attempt.
	Lost             State = "lost"              // Lost: members do not answer and are not fenced off yet.
	Cleaning         State = "cleaning"          // Cleaning: the processes are gone or fenced off, devices are not confirmed clean.
	Succeeded        State = "succeeded"         // Succeeded: the work is done. Terminal.
	Failed           State = "failed"            // Failed: it will not be tried again. Terminal.
	Cancelled        State = "cancelled"         // Cancelled: its owner does not want it any more. Terminal.
	DeadlineExceeded State = "deadline-exceeded" // DeadlineExceeded: its own deadline or the longest wait is over. Terminal.
)

// Terminal reports whether s is an end.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == DeadlineExceeded
}

// States returns all states, in the order of their declaration.
func States() []State {
	return []State{
		Held, Queued, Admitted, Reserving, Starting, Running, Draining, Suspended, Backoff, Lost, Cleaning,
		Succeeded, Failed, Cancelled, DeadlineExceeded,
	}
}

// Legal reports whether a job may pass from one state directly to the other.
func Legal(from, to State) bool { return slices.Contains(exits(from), to) }

// exits returns the states that may follow s.
func exits(s State) []State {
	switch s {
	case Held, Suspended, Backoff:
		return []State{Queued}
	case Queued:
		return []State{Admitted, Held, Cancelled, DeadlineExceeded}
	case Admitted:
		return []State{Reserving, Queued}
	case Reserving:
		return []State{Starting, Queued}
	case Starting:
		return []State{Running, Draining, Lost}
	case Running:
		return []State{Draining, Lost, Cleaning}
	case Draining:
		return []State{Cleaning}
	case Lost:
		return []State{Running, Cleaning}
	case Cleaning:
		return []State{Succeeded, Failed, Cancelled, DeadlineExceeded, Suspended, Backoff, Queued}
	}
	return nil
}

// Move is what asks for a transition, or notes a fact about a state.
type Move string

// The moves, with the states they may start from.
const (
	MoveSubmit  Move = "submit"  // MoveSubmit: the job arrives, Queued. Until is its own deadline.
	MoveHold    Move = "hold"    // MoveHold: from Queued, Admitted or Reserving to Held.
	MoveQueue   Move = "queue"   // MoveQueue: from Held, Suspended or Backoff to Queued.
	MoveAdmit   Move = "admit"   // MoveAdmit: from Queued to Admitted.
	MoveReserve Move = "reserve" // MoveReserve: from Queued or Admitted to Reserving, with GPUs, until Until; begins an attempt.
	MoveReturn  Move = "return"  // MoveReturn: from Admitted or Reserving back to Queued, with all devices.
	MoveStart   Move = "start"   // MoveStart: from Reserving to Starting.
	MoveRun     Move = "run"     // MoveRun: from Starting to Running, or back from Lost.
	MoveExtend  Move = "extend"  // MoveExtend: notes that a Running job keeps its devices.
	MoveSave    Move = "save"    // MoveSave: notes that a Running job stands still to save.
	MoveSaved   Move = "saved"   // MoveSaved: notes that all work is durable, in Draining or after MoveSave; with a Cause, that the save failed.
	MoveResize  Move = "resize"  // MoveResize: notes that a Running job is to go on with GPUs: at once if they are more, at MoveResized if fewer.
	MoveResized Move = "resized" // MoveResized: notes that the members that left are gone and clean.
	MoveDrain   Move = "drain"   // MoveDrain: from Starting or Running to Draining, for Cause, until Until.
	MoveLose    Move = "lose"    // MoveLose: from Starting or Running to Lost.
	MoveExit    Move = "exit"    // MoveExit: from Starting, Running, Draining or Lost to Cleaning, with Exit.
	MoveFence   Move = "fence"   // MoveFence: from Lost to Cleaning: the members can no longer do harm.
	MoveClean   Move = "clean"   // MoveClean: GPUs more are confirmed clean, 0 for all; once all are, from Cleaning to where the job is bound.
	MoveCancel  Move = "cancel"  // MoveCancel: from any state that is not terminal, to Cancelled in the end.
	MoveTick    Move = "tick"    // MoveTick: time passes; it names no job.
)

// allowed reports whether m may start from s.
func (m Move) allowed(s State) bool {
	switch m {
	case MoveHold:
		return s == Queued || s == Admitted || s == Reserving
	case MoveQueue:
		return s == Held || s == Suspended || s == Backoff
	case MoveAdmit:
		return s == Queued
	case MoveReserve:
		return s == Queued || s == Admitted
	case MoveReturn:
		return s == Admitted || s == Reserving
	case MoveStart:
		return s == Reserving
	case MoveRun:
		return s == Starting || s == Lost
	case MoveExtend, MoveSave, MoveResize, MoveResized:
		return s == Running
	case MoveSaved:
		return s == Running || s == Draining
	case MoveDrain, MoveLose:
		return s == Starting || s == Running
	case MoveExit:
		return s == Starting || s == Running || s == Draining || s == Lost
	case MoveFence:
		return s == Lost
	case MoveClean:
		return s == Cleaning
	case MoveCancel:
		return !s.Terminal()
	}
	return false
}

// known reports whether m is one of the moves.
func (m Move) known() bool {
	switch m {
	case MoveSubmit, MoveHold, MoveQueue, MoveAdmit, MoveReserve, MoveCancel, MoveTick:
		return true
	}
	return m.ofAttempt()
}

// ofAttempt reports whether m is about an attempt and not about the job, so that
// it means nothing once that attempt is over. Agents and schedulers alike may be late.
func (m Move) ofAttempt() bool {
	switch m {
	case MoveReturn, MoveStart, MoveRun, MoveExtend, MoveSave, MoveSaved, MoveResize, MoveResized, MoveDrain, MoveLose, MoveExit, MoveFence, MoveClean:
		return true
	}
	return false
}
