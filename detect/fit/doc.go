// Package fit finds what a pass over a micro-batch takes, for each token and each pair of a query and
// a key, from measured times.
//
// # Model
//
// A [Coeff] says that the time of a chunk (one pass, forward or backward, over one micro-batch on one
// stage) is Alpha for each token, Beta for each pair and Fixed for each chunk. [Solve] finds the
// coefficients that suit some [Sample]s best; a [Tracker] fits them on while a job runs.
//
// Invariants: coefficients are never negative; a minority of wrong samples (under half, spread over all lengths)
// does not bend a fit; the order of samples changes it by rounding only, their unit of time scales it; a
// tracked prediction moves by no more than Drift a sample and rises by no more than Cap in all, so that a fault
// that grows slowly does not become what is expected.
//
// # Usage
//
//	c, report, err := fit.Solve(samples, fit.Options{})
//	want := c.Time(batch)
//
//	t, err := fit.NewTracker(c, report, fit.TrackerConfig{})
//	err = t.Observe(fit.Sample{Batch: batch, Took: took})
//
// # Order of decision
//
// Whether samples determine the fit comes first: pairs, then tokens, then the fixed part must vary by
// themselves. Of sets of positive coefficients with the same error the one with the earlier terms (tokens,
// pairs, fixed) is taken.
//
// # Errors
//
// All are *lockstep.Error. Samples that do not determine a fit give [ErrUnidentifiable], and Field names what does not
// vary; samples and limits that cannot be, and snapshots that no Tracker wrote, give ErrInvalid. After any
// error nothing has changed.
//
// # Concurrency
//
// Functions are safe for concurrent use, a [Tracker] is not; the caller serializes calls.
//
// # Cost
//
// [Solve] takes up to 40 rounds of O(samples log samples) and keeps two numbers a sample; Tracker.Observe takes
// O(1) and allocates nothing. A Tracker is a few hundred bytes.
//
// # Limits
//
// Three terms. Waiting is not part of a chunk and must not be in its time. Where lengths hardly vary, tokens and
// pairs cannot be told apart: set Options.Linear.
//
// Sources: time = tokens and squared lengths, ResiHP (arXiv 2605.06374 v2, section on detection); Lawson and
// Hanson, "Solving Least Squares Problems" (1974); Beaton and Tukey, "The fitting of power series" (1974).
package fit
