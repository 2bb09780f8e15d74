package hpo

import "github.com/lockstep-gpu/lockstep"

// TrialID names a trial of a search.
type TrialID string

// Report is a metric that a trial measured.
type Report struct {
	Trial   TrialID // Trial is who; it must run.
	Attempt uint32  // Attempt is that of the trial's Start; 0 means the present one.
	Step    uint64  // Step is how far it is: epochs, iterations, tokens, counted from 1.
	Value   float64 // Value is the metric; NaN if there is none.
	Seq     uint64  // Seq orders the reports of one call; ties go to the trial's ID.
}

// Action is what to do with a trial.
type Action string

// The actions.
const (
	Continue Action = "continue" // Continue: let it run.
	Pause    Action = "pause"    // Pause: save it and free its place; Next may start it again.
	Stop     Action = "stop"     // Stop: it is over; nothing of it is needed but its result.
	Copy     Action = "copy"     // Copy: it goes on, as the new Attempt, from a checkpoint of Source with Turns made.
)

// Why a decision was made.
const (
	ReasonBetween  lockstep.Reason = "between-rungs"   // ReasonBetween: there was nothing to decide at this step.
	ReasonWithin   lockstep.Reason = "within-cut"      // ReasonWithin: it is good enough to go on.
	ReasonBelow    lockstep.Reason = "below-cut"       // ReasonBelow: it is not.
	ReasonRung     lockstep.Reason = "at-rung"         // ReasonRung: it waits for others, or to be promoted.
	ReasonComplete lockstep.Reason = "complete"        // ReasonComplete: it has run to the end.
	ReasonFew      lockstep.Reason = "too-few"         // ReasonFew: there are not enough others to judge it by.
	ReasonNumber   lockstep.Reason = "not-a-number"    // ReasonNumber: its metric is not finite.
	ReasonLate     lockstep.Reason = "late"            // ReasonLate: the report is of an earlier attempt, of which nothing is needed, and was passed over.
	ReasonOver     lockstep.Reason = "already-over"    // ReasonOver: it was stopped before.
	ReasonFailed   lockstep.Reason = "failed"          // ReasonFailed: it failed for good.
	ReasonRestart  lockstep.Reason = "to-be-restarted" // ReasonRestart: Next will start it again.
	ReasonDeadline lockstep.Reason = "deadline"        // ReasonDeadline: it can reach nothing before the deadline.
)

// Decision says what to do with one trial.
type Decision struct {
	Trial   TrialID         // Trial is whom it concerns.
	Attempt uint32          // Attempt is which of its attempts; that of Copy is the one to begin.
	Action  Action          // Action is what to do.
	Level   uint64          // Level is the step of the rung it was decided at, with Copy that of Source's score; 0 if at none.
	Reason  lockstep.Reason // Reason is why.
	Source  TrialID         // Source is whom to copy, with Copy.
	Turns   []Turn          // Turns are the changes to its hyperparameters, with Copy; the receiver owns them.
}

// Start tells the host to run a trial.
type Start struct {
	Trial   TrialID // Trial is which.
	Attempt uint32  // Attempt is 1 for its first; its reports repeat it.
	Bracket int     // Bracket is where it competes, from 0.
	From    uint64  // From is the last step that it reported, 0 for none; an earlier checkpoint will do, and so will none.
	Until   uint64  // Until is the next step at which there is something to decide; 0 if at any. After Continue, see Running.
}

// FailKind says how a trial came to an end that the search did not ask for.
type FailKind string

// The kinds of failure.
const (
	Crashed   FailKind = "crashed"   // Crashed: it died, and is restarted up to Config.Retries times.
	Preempted FailKind = "preempted" // Preempted: its device was taken; it is restarted always.
	Invalid   FailKind = "invalid"   // Invalid: its configuration can never run.
	Ended     FailKind = "ended"     // Ended: it ended by itself, or is not wanted any more.
)
