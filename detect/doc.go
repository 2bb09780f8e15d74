// Package detect finds what makes a training job slow: it works out what each iteration should
// take, tests the ratio, and says which stage of which replica it is, or what to measure.
//
// # Model
//
// The time of a chunk, one pass over one micro-batch on one stage, is a part for each token and a
// part for each pair of a query and a key (package fit finds them); [FitRates] fits all kinds of passes
// and stages, and a [Monitor] fits on within limits. A [Predictor] puts the chunks of an iteration through its schedule, so documents that are longer, or bubbles, are no
// slowdown. What is left is the logarithm of observed over expected time, a series that is about
// level for a healthy job. Sequential tests watch it:
//
//   - [ChunkTest], from chunk times: each (replica, stage) against its own past and its peers;
//   - [MatchedTest], from iteration times alone: the iteration as it would be with each place slower;
//   - a test of package change, of whole iterations: CUSUM, and for comparison the methods in use elsewhere.
//
// A [Monitor] watches one job with what is measured of it, and gives a [Verdict] an iteration, with
// the cause, the onset, the places or else the probes that would find them, and the smallest
// slowdown that it could have seen. Package signal watches what a job reports of itself.
//
// Invariants: documents of a micro-batch may come in any order; the unit of time does not matter;
// nothing is learned while an alarm stands, and what led to the alarm of whole iterations was not learned
// either; a baseline rises by no more than Drift a sample and Cap in all, so a slow ramp does not
// become normal; a second slowdown is told like the first; unknown is never healthy; a restored
// state goes on as the saved one.
//
// # Usage
//
//	m, err := detect.New(detect.Config{Pipeline: pipeline.Config{Stages: 4, Micros: 8}, Replicas: 2, Rates: rates})
//	v, err := m.Observe(&detect.Iteration{Number: n, Took: took, Batches: batches, Chunks: chunks})
//	if v.Alarm { // v.Cause, v.Suspects, v.Probes
//	}
//
// # Order of decision
//
// An iteration seen before, or older than one seen, is not judged; then a pause by the caller; then
// the phase; then a change of Layout, replicas or micro-batches, which arms anew. Chunk times go to
// the ChunkTest, iteration times without them to the MatchedTest, and the test of whole iterations
// counts where there are chunk times or no model. Causes, the first that holds: LossLayer where the
// last stage of all replicas became slower, Hardware for a place, Network where iterations are slow
// and no chunk is, Unknown; without an alarm Resize, Pause for one iteration that stands out alone,
// Lengths, LossLayer. Suspects go by Score, then Factor, then replica, then stage.
//
// # Errors
//
// All are *lockstep.Error of kind ErrInvalid, or what package pipeline, a reader or a writer
// returned. A fit that its samples do not determine is fit.ErrUnidentifiable as well, and Field
// names what does not vary. After any error nothing has changed.
//
// # Concurrency
//
// Nothing here is safe for concurrent use; the caller serializes calls. Suspects and Probes of a
// Verdict are shared until the next call.
//
// # Cost
//
// A test of whole iterations takes O(1) a sample; a Predictor O(ops of the schedules); the
// ChunkTest O(chunks + places · log replicas); the MatchedTest up to O(places · ops). Nothing is
// allocated once the numbers of replicas and micro-batches are known; see BenchmarkExpect and
// BenchmarkMonitor. State is bounded: a few hundred bytes a test and place.
//
// # Limits
//
// A place that is slow from the first iteration on is taken for healthy by the tests; compare places
// once with AppendOutliers. Levels follow slowly: after a change that makes a job several percent
// faster call Reset, or what is lost again is no slowdown. A job whose number of micro-batches changes all the time is never known.
// Pure stalls belong to detect/liveness, codes and counters of devices to detect/health. With one
// replica a loss layer that grows looks like a device. Iteration times alone tell places with the
// same effect apart by chance only. A rank is named by Waits only. Rest and transfers are given, not fitted.
//
// Sources: Shiryaev (1963), Roberts (1966) and Pollak (1985) for the odds that ChunkTest and
// MatchedTest compare with a threshold: without a change their mean grows by at most 1 a sample;
// FALCON/Greyhound (ATC 2025, arXiv 2410.12588) for probes; ResiHP (arXiv 2605.06374 v2, section on
// detection) for the prediction; Lin et al., "Understanding Stragglers in Large Model Training Using
// What-if Analysis" (OSDI 2025, arXiv 2505.05713) for causes and blame.
package detect
