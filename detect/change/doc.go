// Package change finds when one series of times becomes slower, sample by sample.
//
// # Model
//
// A sample is the natural logarithm of a time, or of observed over expected time, so a slowdown by a
// factor is a rise by its logarithm, whatever the unit. A [Test] learns from the first samples where a
// healthy series lies, how far samples scatter, and how much each one follows the one before; then it
// adds up evidence for a rise and gives a [Decision] for each sample: an alarm, the onset, the size,
// and the smallest slowdown that it could have found. [CUSUM] is the one to use; the other methods are
// there to be compared with. A [Predictive] test, [ResiHP], wants what was expected beside what was observed.
//
// Invariants: a sample counts no more than Clip scales; adding a constant to all samples changes
// nothing but the level; what led to an alarm within Lag samples is not learned, and nothing is
// while an alarm stands; the level rises by no more than Drift a sample and Cap in all, so that a slow
// ramp does not become normal; a second rise on top of a first is told like the first; a restored
// test goes on as the saved one.
//
// # Usage
//
//	test, err := change.New(change.Config{})
//	d, err := test.Observe(math.Log(observed / expected))
//	if d.Alarm { // since d.Since samples, by a factor of e to the d.Shift
//	}
//
// # Order of decision
//
// While Learning there is neither a score nor an alarm. CUSUM asks for recovery before it asks for a second rise; an
// alarm that stands is raised again only for a second rise. With BOCD and its kin a fall to less than half
// of the fault ends the alarm; of equally likely onsets the latest counts.
//
// # Errors
//
// All are *lockstep.Error of kind ErrInvalid: a configuration out of range (all faults joined), a sample that is
// no logarithm, Tune of what was built in, a snapshot that no test wrote; or what a reader or writer returned. After any
// error nothing has changed.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// O(1) a sample, O(Support) for BOCD and its kin; nothing is allocated (BenchmarkObserve). State is Warmup + Lag
// numbers, and three times Support. [New] and Tune work power out once, in O(Horizon) steps of a small Markov chain.
//
// # Limits
//
// A rise only; one series only. What is slow from the first sample on is taken for healthy. MinDetectable of BOCD
// and its kin is not known. Samples should come at regular times: correlation is that of neighbours.
//
// Sources: Page, "Continuous inspection schemes" (1954); Roberts, "Control chart tests based on geometric moving
// averages" (1959); Brook and Evans (1972) for power; Huber, "Robust estimation of a location parameter" (1964);
// Kendall, "Note on bias in the estimation of autocorrelation" (1954); Adams and MacKay, "Bayesian online changepoint
// detection" (2007); FALCON/Greyhound (ATC 2025, arXiv 2410.12588; wutianyuan1/Greyhound de4d6b3); ResiHP (arXiv
// 2605.06374 v2, section on detection).
package change
