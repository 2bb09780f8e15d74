// Package signal says whether what a training job reports of itself is out of its usual range.
//
// # Model
//
// A [Reading] is what a job reports for one iteration: tokens a second, the time of the step, the loss, the norm of
// the gradient, or some of these. A [Watch] compares each with the last ones and gives a [Level] for each ([Findings]).
//
// Invariants: what is not reported, or not yet often enough, is [Unknown] and never [Normal]; a loss or norm that is
// no number is [Abnormal] at once and is not learned; a level that is abnormal stays so until it is clearly normal; a
// single slow step makes no gap; a restored Watch goes on as the saved one.
//
// # Usage
//
//	w, err := signal.New(signal.Config{})
//	f, err := w.Observe(signal.Reading{Step: &took, Loss: &loss})
//	if f.Loss == signal.Abnormal {
//	}
//
// # Order of decision
//
// Each signal by itself. A reading is compared with those before it; the gap between the slowest and the median
// step with the reading in it.
//
// # Errors
//
// All are *lockstep.Error of kind ErrInvalid: a throughput or step time that cannot be, a configuration out of range,
// a snapshot that no Watch wrote; or what a reader or writer returned. After any error nothing has changed.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// O(Window) moves of numbers a reading, nothing allocated; four times two Windows of numbers are kept.
//
// # Limits
//
// It sees that something is wrong with a job, not what or where: package detect does. A slow drift becomes usual
// within a Window. Step times and throughput follow the lengths of documents here: nothing is predicted.
package signal
